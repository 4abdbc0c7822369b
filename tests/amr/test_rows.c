/* test_rows.c - an AMR corpus as training data: which tokens are scored, what is left out, and where it may be
 * read. */
#include "amr/rows.h"

#include "base/mem.h"
#include "data/dataset.h"
#include "tests/amr/command.h"

static const char corpus_text[] =
    "# AMR release\n\n"
    "#::snt The boy wants to go.\n(w / want-01\n  :ARG0 (b / boy)\n  :ARG1 (g / go-02 :ARG0 b))\n\n"
    "#::snt Broken.\n(b / break-01 :ARG1\n   (b / thing))\n\n"
    "(n / no-sentence)\n"
    "# ::id 3\n# ::snt Con chó \"sủa\".\n(s / sủa :agent (c / chó))\n \t\n"
    "#::snt Cut short.\n(c / cut-02 :ARG1 (s / short\n";

typedef struct World {
    Tokenizer *tokenizer;
    AmrRows rows;
    DataOptions options;
    Dataset *data;
} World;

static bool open_data(World *w, const char *name, const char *wording, AmrRowStyle style, int64_t seq, Err *e) {
    *w = (World){0};
    if (!tokenizer_open(&w->tokenizer, "models/tally", e) || !amr_rows_open(&w->rows, wording, style, e))
        return false;
    w->options = (DataOptions){.tokenizer = w->tokenizer,
                               .eos_id = tokenizer_eos(w->tokenizer),
                               .seq = seq,
                               .vocab = 768,
                               .pack = PACK_OFF,
                               .blocks = &w->rows.blocks};
    return dataset_open(&w->data, test_path(name), &w->options, e);
}

static void close_data(World *w) {
    dataset_close(w->data);
    amr_rows_close(&w->rows);
    tokenizer_close(w->tokenizer);
}

/* The row's text up to the first token that is scored, and the text of those that are; ends: their last is EOS. */
static void row_texts(const World *w, int64_t row, Str *prompt, Str *answer, bool *ends) {
    int64_t seq = dataset_seq(w->data), n = dataset_row_tokens(w->data, row), first = -1;
    int32_t *ids = MEM_NEW(int32_t, 4 * seq), *labels = ids + seq, *positions = ids + 2 * seq,
            *begin = ids + 3 * seq;
    float *weight = MEM_NEW(float, seq);
    Err e;
    dataset_row_fill(w->data, row, ids, labels, weight, positions, begin);
    for (int64_t t = 0; t + 1 < n; t++) {
        if (labels[t] < 0)
            EXPECT(first < 0 && weight[t] == 0); /* what is scored is the row's end */
        else if (first < 0)
            first = t + 1;
        EXPECT(labels[t] < 0 || labels[t] == ids[t + 1]);
    }
    if (first < 0) first = n;
    *ends = ids[n - 1] == tokenizer_eos(w->tokenizer);
    EXPECT_OK(tokenizer_decode(w->tokenizer, prompt, ids, first, false, &e));
    EXPECT_OK(tokenizer_decode(w->tokenizer, answer, ids + first, n - first - *ends, false, &e));
    mem_free(ids);
    mem_free(weight);
}

static void expect_row(const World *w, int64_t row, const char *prompt_end, const char *answer_text) {
    Str prompt = {0}, answer = {0};
    bool ends;
    row_texts(w, row, &prompt, &answer, &ends);
    EXPECT(ends && str_ends(str_text(&prompt), prompt_end));
    EXPECT_STR(str_text(&answer), answer_text);
    str_free(&prompt);
    str_free(&answer);
}

TEST(the_graph_and_its_end_mark_are_all_that_is_scored) {
    World w;
    Err e;
    put("c.txt", corpus_text);
    EXPECT_OK(open_data(&w, "c.txt", "plain", (AmrRowStyle){.layout = PENMAN_ONE_LINE}, 512, &e));
    EXPECT(dataset_report(w.data)->samples == 2 && strstr(dataset_report(w.data)->kind_text, "AMR corpus"));
    expect_row(&w, 0, "Sentence: The boy wants to go.\nGraph:\n",
               "(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 :ARG0 b))");
    expect_row(&w, 1, "Sentence: Con chó \"sủa\".\nGraph:\n", "(s / sủa :agent (c / chó))");
    close_data(&w);
    EXPECT_OK(open_data(&w, "c.txt", "unified", (AmrRowStyle){.layout = PENMAN_FLAT}, 512, &e));
    expect_row(&w, 1, "Sentence: Con chó \"sủa\".\n",
               "Step 1: (sủa:agent(chó))\nStep 2:\n(s / sủa\n:agent (c / chó))");
    close_data(&w);
}

TEST(blocks_that_are_left_out_are_named_by_block_and_line) {
    World w;
    Err e;
    Str text = {0};
    put("c.amr", corpus_text);
    EXPECT_OK(open_data(&w, "c.amr", "plain", (AmrRowStyle){0}, 512, &e));
    amr_rows_report(&text, &w.rows);
    EXPECT(strstr(str_text(&text),
                  "c.amr: 3 of 5 blocks are left out (2 without a valid graph, 1 without a sentence)"));
    EXPECT(strstr(str_text(&text), "\n  block 2, line 10: the variable 'b' already names the node of line 9"));
    EXPECT(strstr(str_text(&text), "\n  block 3, line 12: there is no sentence"));
    EXPECT(strstr(str_text(&text), "\n  block 5, line 18: the text ends where"));
    str_free(&text);
    close_data(&w);
}

TEST(a_long_row_loses_the_end_of_its_graph_and_is_counted) {
    World w;
    Err e;
    Str prompt = {0}, answer = {0};
    bool ends;
    put("c.amr", corpus_text);
    EXPECT_OK(open_data(&w, "c.amr", "plain", (AmrRowStyle){.layout = PENMAN_ONE_LINE}, 512, &e));
    int64_t whole = dataset_row_tokens(w.data, 0);
    close_data(&w);
    EXPECT_OK(open_data(&w, "c.amr", "plain", (AmrRowStyle){.layout = PENMAN_ONE_LINE}, whole - 8, &e));
    EXPECT(dataset_report(w.data)->truncated >= 1);
    row_texts(&w, 0, &prompt, &answer, &ends);
    EXPECT(ends && dataset_row_tokens(w.data, 0) == whole - 8 && str_ends(str_text(&prompt), "to go.\nGraph:\n"));
    EXPECT(str_starts("(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 :ARG0 b))", str_text(&answer)));
    str_free(&prompt);
    str_free(&answer);
    close_data(&w);
}

/* ---- as a person uses it ---- */

static double eval_loss(const char *arguments) {
    Ran r = snug_run("eval --model models/tally --device cpu --threads 1 --json %s", arguments);
    json_t *j = ran_json(&r);
    double loss = json_number_value(json_object_get(j, "loss"));
    if (!EXPECT(r.code == 0 && loss > 0)) test_note("%s", str_text(&r.err));
    json_decref(j);
    ran_free(&r);
    return loss;
}

TEST(eval_reads_a_corpus_as_the_rows_made_of_it) {
    static const char *const wording[] = {"plain", "chat", "recipes/amr/unified-short.txt"};
    char line[700];
    put("c.txt", corpus_text);
    for (int i = 0; i < COUNT_OF(wording); i++) {
        bool chat = !strcmp(wording[i], "chat");
        Ran r = snug_run("amr rows %s --amr-prompt %s --out %s --overwrite", test_path("c.txt"), wording[i],
                         test_path("rows.jsonl"));
        EXPECT(r.code == 0);
        ran_free(&r);
        snprintf(line, sizeof line, "--data %s --template %s", test_path("rows.jsonl"), chat ? "auto" : "none");
        double of_rows = eval_loss(line);
        snprintf(line, sizeof line, "--data %s --amr-prompt %s", test_path("c.txt"), wording[i]);
        EXPECT(eval_loss(line) == of_rows);
    }
}

TEST(train_says_what_it_found_and_holds_the_tail_out) {
    Str text = {0};
    for (int i = 0; i < 20; i++) str_addf(&text, "#::snt Number %d.\n(n / number :quant %d)\n\n", i, i);
    str_add(&text, "#::snt Broken.\n(n / number :quant\n");
    put("c.txt", str_text(&text));
    str_free(&text);
    Ran r = snug_run(
        "train --model models/tally --device cpu --data %s --val-split 0.2 --steps 2 --global-batch 4 --seq 128 "
        "--out %s --no-save --json",
        test_path("c.txt"), test_path("o"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    EXPECT(strstr(str_text(&r.err), "AMR corpus, sentence to graph (--amr-prompt plain), joined as they are"));
    EXPECT(strstr(str_text(&r.err), "1 of 21 blocks are left out") &&
           strstr(str_text(&r.err), "block 21, line 62:"));
    EXPECT(strstr(str_text(&r.err), "held out"));
    ran_free(&r);
}

static void expect_train_refused(const char *arguments, int code, const char *part) {
    expect_refused(snug_run("train --model models/tally --device cpu --steps 1 --no-save --out %s %s",
                            test_path("o"), arguments),
                   code, part);
}

TEST(what_cannot_be_trained_on_is_refused_with_the_reason) {
    char line[1200];
    put("bad.amr", "#::snt Broken.\n(b / break-01\n");
    EXPECT(file_make_dirs(test_path("mixed"), NULL));
    put("mixed/a.txt", corpus_text);
    put("mixed/b.txt", "plain text\n");
    put("c.amr", corpus_text);
    snprintf(line, sizeof line, "--data %s", test_path("bad.amr"));
    expect_train_refused(line, 1, "block 1, line 2: the text ends where");
    snprintf(line, sizeof line, "--data %s --amr-prompt nothing", test_path("c.amr"));
    expect_train_refused(line, 2, "'nothing' is neither plain, chat, unified nor the file");
    snprintf(line, sizeof line, "--data %s --prompt-template '{a}'", test_path("c.amr"));
    expect_train_refused(line, 2, "a prompt of your own is a file for --amr-prompt");
    snprintf(line, sizeof line, "--data %s", test_path("mixed"));
    expect_train_refused(line, 1, "b.txt: is no AMR corpus, and the files before it are of that kind");
    EXPECT(!file_exists(test_path("o")));
}
