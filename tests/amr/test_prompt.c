/* test_prompt.c - wordings are read and refused, files say what is built in, rows are what train and generate
 * take. */
#include "amr/prompt.h"

#include "amr/answer.h"
#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"

static const char block_text[] =
    "#::snt The boy {wants} to go.\n(w / want-01\n  :ARG0 (b / boy)\n  :ARG1 (g / go-02 :polarity -\n    :ARG0 "
    "b))\n";

static void one_block(AmrCorpus *c) {
    Str s = {0};
    Err e;
    str_add(&s, block_text);
    EXPECT_OK(amr_corpus_parse(c, &s, "x.amr", 1, &e));
}

TEST(the_graph_without_variables_names_concepts_alone) {
    AmrCorpus c;
    Str s = {0};
    one_block(&c);
    amr_print_bare(&s, &c.block[0].graph);
    EXPECT_STR(str_text(&s), "(want-01:ARG0(boy):ARG1(go-02:polarity -:ARG0 boy))");
    str_free(&s);
    amr_corpus_free(&c);
}

/* The answer of every wording gives back the graph it was made of, so that training and collecting agree. */
TEST(every_wording_of_the_recipes_can_be_answered) {
    char **names;
    int64_t n;
    Err e;
    AmrCorpus c;
    one_block(&c);
    EXPECT_OK(file_list("recipes/amr", &names, &n, &e));
    EXPECT(n >= 8);
    for (int64_t i = 0; i < n; i++) {
        char path[300];
        AmrPrompt p;
        AmrRepairs done;
        Penman graph;
        Str s = {0};
        snprintf(path, sizeof path, "recipes/amr/%s", names[i]);
        EXPECT_OK(amr_prompt_open(&p, path, &e));
        json_t *row = amr_row(&p, &c.block[0], 0, (AmrRowStyle){.layout = PENMAN_FLAT});
        const char *prompt = json_string_value(json_object_get(row, "prompt"));
        const char *answer = json_string_value(json_object_get(row, "completion"));
        EXPECT(strstr(prompt, "The boy {wants} to go.") && str_ends(prompt, "\n") && !str_ends(answer, "\n"));
        EXPECT_OK(amr_take(&graph, &done, answer, (int64_t)strlen(answer), (AmrTake){0}, &e));
        penman_print(&s, &graph, PENMAN_ONE_LINE);
        EXPECT_STR(str_text(&s), "(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 :polarity - :ARG0 b))");
        str_free(&s);
        penman_free(&graph);
        json_decref(row);
        amr_prompt_free(&p);
        mem_free(names[i]);
    }
    mem_free(names);
    amr_corpus_free(&c);
}

TEST(files_say_what_is_built_in) {
    static const char *const names[] = {"plain", "unified"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        AmrPrompt a, b;
        Err e;
        char path[100];
        snprintf(path, sizeof path, "recipes/amr/%s.txt", names[i]);
        EXPECT_OK(amr_prompt_open(&a, names[i], &e));
        EXPECT_OK(amr_prompt_open(&b, path, &e));
        EXPECT_STR(a.prompt, b.prompt);
        EXPECT_STR(a.answer, b.answer);
        amr_prompt_free(&a);
        amr_prompt_free(&b);
    }
}

TEST(rows_are_what_train_and_generate_take) {
    AmrCorpus c;
    AmrPrompt p;
    Err e;
    one_block(&c);
    EXPECT_OK(
        amr_prompt_parse(&p, "note\n[prompt]\r\nQ {{x}}: {sentence}\r\n[answer]\n{bare} -> {graph}\n\n", "t", &e));
    json_t *want = json_pack(
        "{s:s, s:s}", "prompt", "Q {x}: The boy {wants} to go.\n", "completion",
        "(want-01:ARG0(boy):ARG1(go-02:polarity -:ARG0 boy)) -> (w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 "
        ":polarity - :ARG0 b))");
    json_t *got = amr_row(&p, &c.block[0], 3, (AmrRowStyle){.layout = PENMAN_ONE_LINE});
    EXPECT(json_equal(want, got));
    json_decref(got);
    got = amr_row(&p, &c.block[0], 3, (AmrRowStyle){.chat = true});
    const json_t *messages = json_object_get(got, "messages");
    EXPECT_STR(json_string_value(json_object_get(json_array_get(messages, 0), "content")),
               "Q {x}: The boy {wants} to go.");
    EXPECT_STR(json_string_value(json_object_get(json_array_get(messages, 1), "role")), "assistant");
    json_decref(got);
    json_decref(want);
    want = json_pack("{s:s, s:{s:i, s:s}}", "text", "Q {x}: The boy {wants} to go.\n", "id", "block", 3,
                     "sentence", "The boy {wants} to go.");
    got = amr_row(&p, &c.block[0], 3, (AmrRowStyle){.without_answer = true});
    EXPECT(json_equal(want, got));
    json_decref(want);
    json_decref(got);
    amr_prompt_free(&p);
    amr_corpus_free(&c);
}

TEST(a_wording_that_cannot_work_is_refused) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{sentence}\n{graph}", "a line [prompt]"},
        {"[answer]\n{graph}\n[prompt]\n{sentence}", "a line [prompt]"},
        {"[prompt]\nno sentence\n[answer]\n{graph}", "[prompt] has no {sentence}"},
        {"[prompt]\n{sentence}\n[answer]\n{bare}", "[answer] has no {graph}"},
        {"[prompt]\n{sentence}\n[answer]\n{graph} {bare}", "{bare} must come before {graph}"},
        {"[prompt]\n{sentence} {graph}\n[answer]\n{graph}", "'{graph}"},
        {"[prompt]\n{sentence} {Satz}\nA\n[answer]\n{graph}", "'{Satz}' is no placeholder"},
        {"[prompt]\n{sentence} {Sätzchen des Textes}\n[answer]\n{graph}", "'{Sätzchen des Textes}' is no"},
        {"[prompt]\n{sentence} }\n[answer]\n{graph}", "a brace is written"},
        {"[prompt]\n{sentence\n[answer]\n{graph}", "'{' is no placeholder"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AmrPrompt p;
        Err e = {0};
        bool ok = amr_prompt_parse(&p, cases[i].text, "w.txt", &e);
        if (!EXPECT(!ok && str_starts(e.text, "w.txt: ") && strstr(e.text, cases[i].part)))
            test_note("    case %d: %s", i, e.text);
        amr_prompt_free(&p);
    }
    AmrPrompt p;
    Err e;
    EXPECT(!amr_prompt_open(&p, "unifeid", &e) && strstr(e.text, "neither plain, chat, unified"));
}
