/* test_dataset_bad.c - files and rows that are refused, with the place and a hint. */
#include "tests/data/tiny_data.h"
#include "tests/test.h"

typedef struct BadRow {
    const char *name, *text, *says, *also;
} BadRow;

static void expect_refused(const BadRow *bad, const DataOptions *o, ErrCode code) {
    Err e = {0};
    Dataset *d = NULL;
    bool opened = dataset_open(&d, tiny_file(bad->name, bad->text), o, &e);
    bool good =
        !opened && !d && e.code == code && strstr(e.text, bad->says) && (!bad->also || strstr(e.text, bad->also));
    if (!EXPECT(good)) test_note("    %s gave: %s", bad->text, e.text);
    dataset_close(d);
}

TEST(dataset_refuses_bad_files) {
    static const BadRow bad[] = {
        {"a.jsonl", "", "a.jsonl: is empty", NULL},
        {"a.jsonl", "\n  \n\t\n", "a.jsonl: is empty", NULL},
        {"a.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": \"ab\"\n", "a.jsonl:3: is not JSON", "one object"},
        {"a.jsonl", "I am not sure.\n", "a.jsonl:1: is not JSON", ".txt"},
        {"a.jsonl", "{\"text\": \"a\xff\"}\n", "a.jsonl:1: is not JSON", "0xff"},
        {"a.jsonl", "{\"text\": \"ab\"} {\"text\": \"ab\"}\n", "a.jsonl:1: is not JSON", NULL},
        {"a.jsonl", "{\"text\": \"ab\", \"text\": \"cd\"}\n", "a.jsonl:1: is not JSON", "duplicate"},
        {"a.jsonl", "{\n \"text\": \"ab\"\n}\n", "a.jsonl:1: is not JSON", "one object"},
        {"a.jsonl", "\"text\"\n", "a.jsonl:1: ", NULL},
        {"a.jsonl", "{\"text\": \"ab\"}\n[1]\n", "a.jsonl:2: a JSON object was expected", NULL},
        {"a.json", "[{\"text\": \"ab\"},\n {\"text\": }]", "a.json:2: is not JSON", "array"},
        {"a.json", "[{\"text\": \"ab\"}\n {\"text\": \"ab\"}]", "a.json:2: ',' or ']' was expected", NULL},
        {"a.json", "[{\"text\": \"ab\"},\n", "a.json:2: is not JSON", NULL},
        {"a.json", "[{\"text\": \"ab\"}", "a.json:1: ',' or ']' was expected", "cut short"},
        {"a.json", "[{\"text\": \"ab\"}]\nx", "a.json:2: something follows", NULL},
        {"a.json", "[\n1]", "a.json:2: a JSON object was expected", NULL},
        {"a.json", "[]", "a.json: holds no samples", NULL},
        {"a.jsonl", "PAR1xxxx", "a.jsonl: is a Parquet file", "JSON lines"},
        {"a.jsonl", "\x1f\x8b\x08\x01\x01\x01\x01\x01\x01\x03zz", "a.jsonl: cannot be unpacked", "cut short"},
        {"a.txt", "ok\nno\xe9\n", "a.txt:2: byte 0xe9 is not UTF-8", "iconv"},
        {"a.txt", "", "a.txt: no sample is left of 1", NULL},
        {"a.jsonl", "{\"text\": \"\"}\n", "a.jsonl: no sample is left of 1", "two tokens"},
        {"a.jsonl", "{\"prompt\": \"a\", \"answer\": \"\"}\n", "a.jsonl: no sample is left of 1", "--seq"},
        /* what people have in place of JSON lines */
        {"a.jsonl", "prompt,answer\na,b\n", "a.jsonl:1: is not JSON", "name a table .csv"},
        {"a.jsonl", "{\"text\": \"a\"}\r{\"text\": \"b\"}\r", "a.jsonl:1: is not JSON", "CR alone"},
        {"a.jsonl", "{\"text\": \"a\"},\n{\"text\": \"b\"},\n", "a.jsonl:1: is not JSON", "a comma stands behind"},
        {"a.jsonl", "{\"text\": \"\\ud83d ok\"}\n", "a.jsonl:1: is not JSON", "Half of a character"},
        {"a.jsonl", "{\"ids\": [3]}\n", "a.jsonl: no sample is left of 1", "two ids"},
        {"a.jsonl", "{\"text\": NaN}\n", "a.jsonl:1: is not JSON", "write null"},
        {"a.jsonl", "{'text': 'a'}\n", "a.jsonl:1: is not JSON", "json.dumps"},
        {"a.jsonl", "{\"text\": \"gr\xfc\xdf\"}\n", "a.jsonl:1: is not JSON", "iconv -f LATIN1"},
        {"a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b", "a.jsonl:2: is not JSON", "cut short"},
        {"a.jsonl", "{\n\"text\": \"a\"}\n", "a.jsonl:1: is not JSON", "jq -c . FILE"},
        {"a.json", "{\"data\": [ {\"text\": \"a\"}]}", "a.json:1: field 'text' is missing", "jq -c '.data[]' FILE"},
        {"a.jsonl", "{\"row\": {\"text\": \"a\"}}", "a.jsonl:1: field 'text' is missing", "jq -c '.row' FILE"},
        {"a.jsonl", "{\"Prompt\": \"a\", \"Answer\": \"b\"}", "a.jsonl:1: field 'text' is missing",
         "'Prompt' must be written 'prompt'"},
        {"a.jsonl", "{\"prompt\": \"a\", \"answer\": null}", "a.jsonl:1: field 'answer' is null", "select("},
        {"a.jsonl", "{\"text\": null}", "a.jsonl:1: field 'text' is null", "select("},
        {"a.jsonl", "{\"prompt\": \"a\", \"b\": 1}", "a.jsonl:1: field 'completion' is missing", NULL},
    };
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 8);
    for (int i = 0; i < COUNT_OF(bad); i++) expect_refused(&bad[i], &o, ERR_FAIL);
    Err e;
    Dataset *d;
    EXPECT(!dataset_open(&d, "/no/such/file.jsonl", &o, &e) && strstr(e.text, "/no/such/file.jsonl: cannot open"));
    Str deep = {0};
    str_add(&deep, "{\"text\": ");
    for (int i = 0; i < 100000; i++) str_add_char(&deep, '[');
    expect_refused(&(BadRow){"a.jsonl", deep.data, "a.jsonl:1: is not JSON", "depth"}, &o, ERR_FAIL);
    str_free(&deep);
    tokenizer_close(t);
}

TEST(a_file_that_gives_no_sample_is_refused_beside_others_that_do) {
    static const BadRow bad[] = {
        {"b.txt", "", "b.txt: no sample is left of 1", "two tokens"},
        {"b.jsonl", "{\"prompt\": \"a\", \"answer\": \"\"}", "b.jsonl: no sample is left of 1", "answers are empty"},
        {"b.csv", "text\n", "b.csv: holds no samples", NULL},
    };
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 8);
    char good[500];
    snprintf(good, sizeof good, "%s", tiny_file("a.jsonl", "{\"prompt\": \"a\", \"answer\": \"b\"}\n"));
    for (int i = 0; i < COUNT_OF(bad); i++) {
        Err e = {0};
        Dataset *d = NULL;
        const char *path = tiny_file(bad[i].name, bad[i].text);
        bool opened = dataset_open_files(&d, (DataFile[]){{.path = good}, {.path = path}}, 2, &o, &e);
        bool said = !opened && strstr(e.text, bad[i].says) && (!bad[i].also || strstr(e.text, bad[i].also));
        if (!EXPECT(said)) test_note("    %s gave: %s", bad[i].name, e.text);
        dataset_close(d);
    }
    tokenizer_close(t);
}

TEST(dataset_refuses_bad_rows) {
    static const BadRow bad[] = {
        {"a.jsonl", "{\"title\": \"x\", \"body\": \"y\"}",
         "a.jsonl:1: field 'text' is missing (the row has: title, body)", "--prompt-template"},
        {"a.jsonl", "{}", "a.jsonl:1: field 'text' is missing (the row has: nothing)", NULL},
        {"a.jsonl", "{\"text\": \"ab\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}",
         "a.jsonl:2: field 'text' is missing (the row has: prompt, completion)", "one kind"},
        {"a.jsonl", "{\"user\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
         "a.jsonl:1: fields 'chosen' and 'rejected'", "preference data"},
        {"a.jsonl",
         "{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [\"a\"], \"answer_start\": [0]}}",
         "a.jsonl:1: field 'answers' is an object", "SQuAD"},
        {"a.jsonl", "{\"question\": \"a\", \"answer\": 7}",
         "a.jsonl:1: field 'answer' is a number, text was expected", NULL},
        {"a.jsonl", "{\"text\": [\"ab\"]}", "a.jsonl:1: field 'text' is a list", NULL},
        {"a.jsonl", "{\"ids\": \"1 2\"}", "a.jsonl:1: field 'ids' is text, a list was expected", NULL},
        {"a.jsonl", "{\"ids\": [1, 2]}\n{\"ids\": [1, 260]}",
         "a.jsonl:2: id 260 at place 1 is not in the model's vocabulary", "260 ids"},
        {"a.jsonl", "{\"ids\": [1, -2]}", "a.jsonl:1: id -2 at place 1", NULL},
        {"a.jsonl", "{\"ids\": [1, 4294967297]}", "a.jsonl:1: id 4294967297", NULL},
        {"a.jsonl", "{\"ids\": [1, 2.5]}", "a.jsonl:1: 'ids' holds something else", NULL},
        {"a.jsonl", "{\"ids\": [1, 2], \"labels\": [1]}", "a.jsonl:1: 'ids' and 'labels' are of different lengths",
         NULL},
        {"a.jsonl", "{\"ids\": [1, 2], \"labels\": [2, 3]}", "a.jsonl:1: label 2 at place 0", "not shifted"},
        {"a.jsonl", "{\"ids\": [1, 2], \"labels\": [1, \"x\"]}", "a.jsonl:1: 'labels' holds something else", NULL},
        {"a.jsonl", "{\"ids\": [1, 2, 3], \"attention_mask\": [1, 0, 1]}",
         "a.jsonl:1: 'attention_mask' has a hole", NULL},
        {"a.jsonl", "{\"messages\": \"hi\"}", "a.jsonl:1: field 'messages' is text, a list was expected", NULL},
        {"a.jsonl", "{\"messages\": [\"hi\"]}", "a.jsonl:1: messages[0] is not an object", NULL},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\"}]}",
         "a.jsonl:1: messages[0]: its content is missing; text", NULL},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
         "messages[0]: its content is null; text was", NULL},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": 7}]}",
         "messages[0]: its content is a number; text was", NULL},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"url\": \"x\"}]}]}",
         "messages[0]: part 0 of its content is of type 'image'", "only parts of text"},
        {"a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}",
         "a.jsonl:1: messages[0]: part 0 of its content is not text", NULL},
        {"a.jsonl", "{\"messages\": [{\"content\": \"x\"}]}", "a.jsonl:1: messages[0] needs text in 'role'", NULL},
        {"a.jsonl", "{\"conversations\": [{\"from\": \"dog\", \"value\": \"x\"}]}",
         "a.jsonl:1: conversations[0] is from 'dog'", "human, gpt"},
        {"a.jsonl", "{\"messages\": [], \"tools\": {}}", "a.jsonl:1: field 'tools' is an object", NULL},
        {"a.jsonl", "{\"prompt\": [" TURN("user", "a") "], \"completion\": \"b\"}",
         "a.jsonl:1: field 'completion' is text, a list was expected", NULL},
        {"a.jsonl", "{\"messages\": [" TURN("user", "a") "]}", "a.jsonl: no sample is left of 1",
         "nothing to learn"},
        {"a.jsonl", "{\"messages\": [" TURN("king", "a") "," TURN("assistant", "b") "]}",
         "a.jsonl:1: ", "no kings"},
    };
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat =
        tiny_template("{% if messages[0].role == 'king' %}{{ raise_exception('no kings') }}{% endif %}x");
    DataOptions o = tiny_options(t, 8);
    o.chat = chat;
    for (int i = 0; i < COUNT_OF(bad); i++) expect_refused(&bad[i], &o, ERR_FAIL);
    o.template_mode = TEMPLATE_NONE;
    expect_refused(
        &(BadRow){"a.jsonl",
                  "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\", \"completion\": null}",
                  "a.jsonl:2: field 'completion' is null", "Text was expected there"},
        &o, ERR_FAIL);
    o.text_field = "body";
    expect_refused(&(BadRow){"a.jsonl", "{\"text\": \"a\"}", "a.jsonl:1: field 'body' is missing", "--text-field"},
                   &o, ERR_FAIL);
    template_free(chat);
    tokenizer_close(t);
}

TEST(dataset_refuses_what_does_not_go_together) {
    static const char messages[] = "{\"messages\": [" TURN("user", "a") "," TURN("assistant", "b") "]}";
    static const char pair[] = "{\"prompt\": \"a\", \"completion\": \"b\"}";
    Tokenizer *t = tiny_tokenizer(false);
    Template *chat = tiny_template(tiny_chatml);
    const DataOptions o = tiny_options(t, 8);
    DataOptions x = o;
    expect_refused(&(BadRow){"a.jsonl", messages, "a.jsonl:1: the model has no chat template", "--template none"},
                   &x, ERR_FAIL);
    x.template_mode = TEMPLATE_NONE;
    x.chat = chat;
    expect_refused(&(BadRow){"a.jsonl", messages, "messages can only be rendered", NULL}, &x, ERR_USAGE);
    x = o;
    x.template_mode = TEMPLATE_CHAT;
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: the model has no chat template", NULL}, &x, ERR_FAIL);
    x.chat = chat;
    expect_refused(&(BadRow){"a.jsonl", "{\"text\": \"a\"}", "--template chat needs prompts", NULL}, &x,
                   ERR_USAGE);
    expect_refused(&(BadRow){"a.txt", "abc", "a.txt: --template chat needs prompts", NULL}, &x, ERR_USAGE);
    x = o;
    x.tokenizer = NULL;
    expect_refused(
        &(BadRow){"a.jsonl", pair, "a.jsonl:1: text can only be encoded with the model's tokenizer", NULL}, &x,
        ERR_FAIL);
    x = o;
    x.vocab = 98; /* 'b' is 98 */
    x.eos_id = -1;
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: token 98 ('b') is not below", NULL}, &x, ERR_FAIL);
    x.eos_id = 98;
    expect_refused(&(BadRow){"a.jsonl", pair, "end-of-text id 98", NULL}, &x, ERR_FAIL);
    x = o;
    x.seq = 1;
    expect_refused(&(BadRow){"a.jsonl", pair, "rows of 1 tokens", NULL}, &x, ERR_USAGE);
    x = o;
    x.answer_template = "{a}";
    expect_refused(&(BadRow){"a.jsonl", pair, "needs a prompt template", NULL}, &x, ERR_USAGE);
    x.prompt_template = "{x}";
    expect_refused(
        &(BadRow){"a.jsonl", pair, "a.jsonl:1: field 'x' is missing (the row has: prompt, completion)", "{{"}, &x,
        ERR_FAIL);
    x.prompt_template = "{x";
    expect_refused(&(BadRow){"a.jsonl", pair, "'{' at character 1 is not closed", NULL}, &x, ERR_USAGE);
    x = o;
    x.answer_field = "gold";
    expect_refused(&(BadRow){"a.jsonl", pair, "a.jsonl:1: field 'gold' is missing", NULL}, &x, ERR_FAIL);
    template_free(chat);
    tokenizer_close(t);
}
