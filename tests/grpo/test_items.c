/* test_items.c - every layout of rows, the meta-prompt's place, shuffles, refusals; real files where they are
 * there. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "grpo/items.h"
#include "tests/test.h"

static const char *write_rows(const char *text) {
    static char path[300];
    Err e;
    snprintf(path, sizeof path, "%s/rows.jsonl", test_tmp());
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
    return path;
}

#define ARTICLE                                                                                            \
    "Assign this news article to one class. The classes are: World, Sports, Business, Science/Technology." \
    "\n\nTitle: Oil up\nDescription: Prices rise."

static const struct {
    const char *parser, *row, *meta, *messages, *question, *gold;
} known[] = {
    {"math",
     "{\"prompt\": [{\"role\": \"user\", \"content\": \" Find $x$. \"}], \"solution\": \"$\\\\frac{1}{2}$\"}",
     "Do", "[{\"role\": \"system\", \"content\": \"Do\"}, {\"role\": \"user\", \"content\": \"Find $x$.\"}]",
     "Find $x$.", "$\\frac{1}{2}$"},
    {"math", "{\"problem\": \"P\", \"solution\": \"So\\nit is \\\\boxed{7}.\"}", "",
     "[{\"role\": \"user\", \"content\": \"P\"}]", "P", "7"},
    {"easy_math", "{\"question\": \"How many?\", \"answer\": \"3*360 = <<3*360=1080>>1080\\n#### 1,080\"}", "Do",
     "[{\"role\": \"user\", \"content\": \"Do\\n\\nHow many?\"}]", "How many?", "1080"},
    {"easy_math", "{\"question\": \"Q\", \"answer\": \"#### -5\"}", "",
     "[{\"role\": \"user\", \"content\": \"Q\"}]", "Q", "-5"},
    {"easy-math", "{\"question\": \"Q\", \"answer\": \"five\"}", "", "[{\"role\": \"user\", \"content\": \"Q\"}]",
     "Q", "five"},
    {"classification", "{\"label\": 3, \"title\": \"Oil up\", \"description\": \"Prices rise.\"}", "Do",
     "[{\"role\": \"user\", \"content\": \"Do\\n\\n@\"}]", ARTICLE, "Business"},
    {"classification", "{\"label\": \"4\", \"title\": \"Oil up\", \"description\": \"Prices rise.\"}", "",
     "[{\"role\": \"user\", \"content\": \"@\"}]", ARTICLE, "Science/Technology"},
    {"poem", "{\"INSTRUCTION\": \"Sing.\", \"RESPONSE\": \"la\"}", "Do",
     "[{\"role\": \"user\", \"content\": \"Do\\n\\nSing.\"}]", "Sing.", ""},
    {"custom", "{\"prompt\": \"Ask\", \"answer\": 2.5, \"level\": 3}", "Do",
     "[{\"role\": \"user\", \"content\": \"Do\\n\\nAsk\"}]", "Ask", "2.5"},
    {"custom",
     "{\"prompt\": [{\"role\": \"system\", \"content\": \"Be\"}, {\"role\": \"user\", \"content\": \"A\"}, "
     "{\"role\": "
     "\"assistant\", \"content\": \"B\"}, {\"role\": \"user\", \"content\": \"C\"}]}",
     "Do",
     "[{\"role\": \"system\", \"content\": \"Do\\n\\nBe\"}, {\"role\": \"user\", \"content\": \"A\"}, {\"role\": "
     "\"assistant\", \"content\": \"B\"}, {\"role\": \"user\", \"content\": \"C\"}]",
     "C", ""},
    {"custom", "{\"prompt\": [{\"role\": \"user\", \"content\": \"A\"}], \"gold\": \"g\"}", "Do",
     "[{\"role\": \"system\", \"content\": \"Do\"}, {\"role\": \"user\", \"content\": \"A\"}]", "A", "g"},
};

/* The expected messages, where "@" stands for the article's task. */
static json_t *expected(const char *text) {
    json_t *messages = json_loads(text, 0, NULL), *turn = json_array_get(messages, 0);
    const char *content = json_string_value(json_object_get(turn, "content")), *at = strchr(content, '@');
    Str whole = {0};
    if (!at) return messages;
    str_add_bytes(&whole, content, at - content);
    str_add(&whole, ARTICLE);
    json_object_set_new(turn, "content", json_string(whole.data));
    str_free(&whole);
    return messages;
}

TEST(items_of_every_parser) {
    for (int i = 0; i < COUNT_OF(known); i++) {
        Items items;
        Err e = {0};
        ItemQuery q = {.parser = known[i].parser,
                       .path = write_rows(known[i].row),
                       .meta_prompt = known[i].meta,
                       .count = -1};
        bool ok = items_read(&items, &q, &e);
        EXPECT_OK(ok);
        if (!ok || !EXPECT(items.n == 1)) continue;
        const Item *item = &items.item[0];
        json_t *messages = expected(known[i].messages), *row = json_loads(known[i].row, 0, NULL);
        if (!EXPECT(json_equal(item->messages, messages)))
            test_note("    case %d: %s", i, json_dumps(item->messages, 0));
        EXPECT(!item->text && json_equal(item->columns, row));
        EXPECT_STR(item->question, known[i].question);
        EXPECT_STR(item->gold, known[i].gold);
        json_decref(messages);
        json_decref(row);
        items_free(&items);
    }
}

TEST(plain_items_are_one_text) {
    Items items;
    Err e = {0};
    ItemQuery q = {
        .parser = "math", .path = write_rows(known[0].row), .meta_prompt = "Do", .plain = true, .count = -1};
    EXPECT_OK(items_read(&items, &q, &e));
    EXPECT(!items.item[0].messages);
    EXPECT_STR(items.item[0].text, "Do\n\nFind $x$.");
    items_free(&items);
}

TEST(fields_of_their_own) {
    Items items;
    Err e = {0};
    const char *rows = "{\"src\": \"One?\", \"ref\": 1, \"x\": [1]}\n{\"src\": \"Two?\", \"ref\": \"zwei\"}\n";
    ItemQuery q = {
        .parser = "custom", .path = write_rows(rows), .prompt_field = "src", .answer_field = "ref", .count = -1};
    EXPECT_OK(items_read(&items, &q, &e));
    EXPECT(items.n == 2 && json_is_array(json_object_get(items.item[0].columns, "x")));
    EXPECT_STR(items.item[0].gold, "1");
    EXPECT_STR(items.item[1].gold, "zwei");
    EXPECT_STR(items.item[1].question, "Two?");
    items_free(&items);
}

TEST(drawn_additions_are_right_and_keyed) {
    Items a, b;
    Err e = {0};
    ItemQuery q = {.parser = "test", .seed = 42, .count = 50};
    EXPECT_OK(items_read(&a, &q, &e));
    for (int64_t i = 0; i < a.n; i++) {
        int x, y;
        EXPECT(sscanf(a.item[i].question, "What is %d + %d?", &x, &y) == 2 && x + y == atoi(a.item[i].gold));
    }
    q.seed = 43;
    EXPECT_OK(items_read(&b, &q, &e));
    EXPECT(a.n == 50 && a.hash != b.hash);
    items_free(&a);
    items_free(&b);
}

static const char *numbered(int n) {
    Str s = {0};
    for (int i = 0; i < n; i++) str_addf(&s, "{\"question\": \"%d\", \"answer\": \"#### %d\"}\n", i, i);
    const char *path = write_rows(s.data);
    str_free(&s);
    return path;
}

TEST(items_are_shuffled_by_the_seed_then_counted) {
    Items all, few, plain;
    Err e = {0};
    ItemQuery q = {.parser = "easy_math", .path = numbered(40), .shuffle = true, .seed = 42, .count = -1};
    EXPECT_OK(items_read(&all, &q, &e));
    q.count = 7;
    EXPECT_OK(items_read(&few, &q, &e));
    q.shuffle = false;
    EXPECT_OK(items_read(&plain, &q, &e));
    bool seen[40] = {0};
    int moved = 0;
    for (int64_t i = 0; i < all.n; i++) {
        int k = atoi(all.item[i].gold);
        EXPECT(!seen[k]);
        seen[k] = true;
        moved += k != i;
    }
    EXPECT(all.n == 40 && few.n == 7 && plain.n == 7 && moved > 25);
    for (int64_t i = 0; i < few.n; i++) EXPECT_STR(few.item[i].gold, all.item[i].gold);
    EXPECT(atoi(plain.item[3].gold) == 3 && few.hash != plain.hash);
    items_free(&all);
    items_free(&few);
    items_free(&plain);
}

TEST(items_that_are_refused) {
    static const struct {
        const char *rows, *says;
        ItemQuery q;
    } c[] = {
        {"{\"a\": 1}",
         "rows.jsonl:1: the row has no field 'question' (it has: a)",
         {.parser = "easy_math", .count = -1}},
        {"{\"question\": \"a\"}", "no field 'answer'", {.parser = "easy_math", .count = -1}},
        {"{\"prompt\": \"a\"}\n{\"prompt\": \" \"}",
         ":2: field 'prompt' with the prompt",
         {.parser = "custom", .count = -1}},
        {"{\"prompt\": {\"a\": 1}}", "must be text or a number", {.parser = "custom", .count = -1}},
        {"{\"prompt\": [{\"role\": \"user\"}]}", "list of messages", {.parser = "custom", .count = -1}},
        {"{\"prompt\": [{\"role\": \"system\", \"content\": \"x\"}]}",
         "no message of the user",
         {.parser = "custom", .count = -1}},
        {"{\"prompt\": \"a\"}", "no field 'b'", {.parser = "custom", .answer_field = "b", .count = -1}},
        {"{\"label\": 5, \"title\": \"a\", \"description\": \"b\"}",
         "1 to 4",
         {.parser = "classification", .count = -1}},
        {"{\"prompt\": \"a\\u0000b\"}", "zero byte", {.parser = "custom", .count = -1}},
        {"{\"prompt\": \"a\"}", "cannot be taken", {.parser = "custom", .count = 0}},
        {"{\"prompt\": \"a\"}", "not UTF-8", {.parser = "custom", .meta_prompt = "\xff", .count = -1}},
        {"{\"prompt\": \"a\"}", "Did you mean poem?", {.parser = "poems", .count = -1}},
        {"{\"prompt\": \"a\"", "is not JSON", {.parser = "custom", .count = -1}},
        {NULL, "get openai/gsm8k", {.parser = "easy_math", .count = -1}},
    };
    for (int i = 0; i < COUNT_OF(c); i++) {
        Items items;
        Err e = {0};
        ItemQuery q = c[i].q;
        if (c[i].rows) q.path = write_rows(c[i].rows);
        EXPECT(!items_read(&items, &q, &e) && !items.item);
        if (!EXPECT(strstr(e.text, c[i].says))) test_note("    \"%s\" is not in: %s", c[i].says, e.text);
    }
}

TEST(a_meta_prompt_is_a_text_or_a_file) {
    Str text = {0};
    Err e = {0};
    char value[400];
    EXPECT_OK(items_meta_prompt(&text, "Rewrite it.", &e));
    EXPECT_STR(str_text(&text), "Rewrite it.");
    snprintf(value, sizeof value, "@%s", write_rows(" From a file. \n\n"));
    str_clear(&text);
    EXPECT_OK(items_meta_prompt(&text, value, &e));
    EXPECT_STR(str_text(&text), "From a file.");
    EXPECT(!items_meta_prompt(&text, "@/nowhere/at.txt", &e) && strstr(e.text, "--meta-prompt"));
    str_free(&text);
}

TEST(the_meta_prompts_that_come_with_it_can_be_read) {
    char **names;
    int64_t n;
    Err e = {0};
    EXPECT_OK(file_list("recipes/grpo", &names, &n, &e));
    EXPECT(n >= 6);
    for (int64_t i = 0; i < n; i++) {
        Str text = {0};
        char value[200];
        snprintf(value, sizeof value, "@recipes/grpo/%s", names[i]);
        if (str_ends(names[i], ".txt")) EXPECT_OK(items_meta_prompt(&text, value, &e) && text.len > 40);
        str_free(&text);
        mem_free(names[i]);
    }
    mem_free(names);
}

TEST(gsm8k_has_a_number_for_every_problem) {
    const char *path = test_assets("gsm8k/train.jsonl");
    if (!path) return;
    Items items;
    Err e = {0};
    ItemQuery q = {.parser = "easy_math", .path = path, .shuffle = true, .seed = 42, .count = -1};
    EXPECT_OK(items_read(&items, &q, &e));
    EXPECT(items.n == 7473);
    for (int64_t i = 0; i < items.n; i++) {
        char *end;
        strtod(items.item[i].gold, &end);
        if (!EXPECT(*items.item[i].gold && !*end)) test_note("    '%s'", items.item[i].gold);
    }
    items_free(&items);
}

TEST(math500_has_an_answer_for_every_problem) {
    const char *path = test_assets("math500/math500.jsonl");
    if (!path) return;
    Items items;
    Err e = {0};
    ItemQuery q = {.parser = "math", .path = path, .count = 200};
    EXPECT_OK(items_read(&items, &q, &e));
    EXPECT(items.n == 200);
    for (int64_t i = 0; i < items.n; i++) EXPECT(*items.item[i].gold && *items.item[i].question);
    items_free(&items);
}
