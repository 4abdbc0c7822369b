/* test_losses.c - whole runs of the program against the losses of torch: AdamW, SGD, adapters, accumulation. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/snug.h"
#include "tests/test.h"

static json_t *load_json(const char *name, const char *file) {
    char path[300];
    snprintf(path, sizeof path, "tests/golden/%s/%s", name, file);
    return json_load_file(path, 0, NULL);
}

/* The rows of batch.json as JSON lines of ids and labels; gives the number of tokens of a row. */
static int write_rows(const char *name, const char *ids_key, const char *labels_key, const char *path) {
    json_t *batch = load_json(name, "batch.json"), *ids = json_object_get(batch, ids_key),
           *labels = json_object_get(batch, labels_key);
    Str text = {0};
    for (size_t r = 0; r < json_array_size(ids); r++) {
        json_t *row = json_pack("{s:O, s:O}", "ids", json_array_get(ids, r), "labels", json_array_get(labels, r));
        char *line = json_dumps(row, 0);
        str_addf(&text, "%s\n", line);
        free(line);
        json_decref(row);
    }
    int seq = (int)json_array_size(json_array_get(ids, 0));
    file_write_all(path, text.data, text.len, NULL);
    str_free(&text);
    json_decref(batch);
    return seq;
}

static void expect_losses(const char *name, const char *key, const char *out) {
    json_t *expected = load_json(name, "expected.json"), *want = json_object_get(expected, key);
    double have[64];
    int n = snug_metrics(out, "train", "loss", have, 64);
    if (!EXPECT(n == (int)json_array_size(want) && n >= 6)) test_note("    %s %s: %d losses", name, key, n);
    for (int i = 0; i < n; i++) {
        double w = json_number_value(json_array_get(want, (size_t)i));
        /* a GPU's sums have another order; AdamW divides by small numbers */
        double bound = snug_device() ? 1e-4 : 1e-5;
        if (!EXPECT(fabs(have[i] - w) <= bound * fabs(w)))
            test_note("    %s %s, step %d: %.9g, reference %.9g", name, key, i + 1, have[i], w);
    }
    json_decref(expected);
}

static double number(const json_t *root, const char *key, double fallback) {
    const json_t *v = json_object_get(root, key);
    return json_is_number(v) ? json_number_value(v) : fallback;
}

static void run_case(const char *name, const char *what, const char *losses, const char *extra) {
    char data[200], out[200];
    json_t *expected = load_json(name, "expected.json");
    const json_t *h = json_object_get(expected, what);
    snprintf(data, sizeof data, "%s/%s.jsonl", test_tmp(), name);
    snprintf(out, sizeof out, "%s/%s-%s", test_tmp(), name, what);
    int seq = write_rows(name, "ids", "labels", data);
    Ran r = snug_run(
        "train --model tests/golden/%s --data %s --out %s --seq %d --micro-batch 2 --steps 10 --log-steps 1 "
        "--precision fp32 --schedule constant --no-shuffle --pack off --lr %.9g --clip %.9g --weight-decay %.9g %s",
        name, data, out, seq, number(h, "lr", 1e-3), number(h, "clip", 1), number(h, "weight_decay", 0.01), extra);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    expect_losses(name, losses, out);
    ran_free(&r);
    json_decref(expected);
}

static const char *const full[] = {"qwen2_tied", "qwen2_untied", "llama3",  "llama_linear",
                                   "llama_yarn", "qwen3",        "mistral", "llama_plain"};
static const char *const lora[] = {"qwen2_tied", "llama3", "qwen3", "llama_plain"};

TEST(ten_adamw_losses_equal_torch) {
    for (int i = 0; i < (int)(sizeof full / sizeof *full); i++) run_case(full[i], "adamw", "adamw_losses", "");
}

TEST(ten_adapter_losses_equal_peft) {
    for (int i = 0; i < (int)(sizeof lora / sizeof *lora); i++) {
        char extra[300];
        snprintf(extra, sizeof extra, "--mode lora --adapter tests/golden/%s/adapter", lora[i]);
        run_case(lora[i], "lora_adamw", "lora_adamw_losses", extra);
    }
}

TEST(sgd_losses_equal_torch) { run_case("qwen2_tied", "sgd", "sgd_losses", "--optimizer sgd --momentum 0.9"); }

TEST(accumulated_losses_with_warmup_equal_torch) {
    static const char *const splits[] = {"--micro-batch 1 --accum 4", "--micro-batch 2 --accum 2",
                                         "--micro-batch 4 --accum 1", "--micro-batch 3 --global-batch 4"};
    for (int i = 0; i < 4; i++) {
        char data[200], out[200];
        snprintf(data, sizeof data, "%s/accum.jsonl", test_tmp());
        snprintf(out, sizeof out, "%s/accum-%d", test_tmp(), i);
        int seq = write_rows("qwen2_tied", "accum_ids", "accum_labels", data);
        Ran r = snug_run(
            "train --model tests/golden/qwen2_tied --data %s --out %s --seq %d --steps 6 --log-steps 1 --precision "
            "fp32 "
            "--schedule cosine --warmup-steps 2 --no-shuffle --pack off --lr 1e-3 --clip 1 --weight-decay 0.01 %s",
            data, out, seq, splits[i]);
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        expect_losses("qwen2_tied", "adamw_accum_losses", out);
        ran_free(&r);
    }
}

TEST(stories260k_reproduces_its_golden_values) {
    const char *bin = test_assets("stories260K/stories260K.bin");
    if (!bin) return;
    char folder[1024], tok[1024], golden[1024], data[200];
    snprintf(folder, sizeof folder, "%s/st", test_tmp());
    snprintf(tok, sizeof tok, "%.*s/tok512.bin", (int)(strrchr(bin, '/') - bin), bin);
    snprintf(golden, sizeof golden, "%.*s/golden.json", (int)(strrchr(bin, '/') - bin), bin);
    Ran r = snug_run("convert --from llama2c %s --tokenizer %s --out %s", bin, tok, folder);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    json_t *g = json_load_file(golden, 0, NULL), *ids = json_object_get(g, "greedy_ids");
    json_t *row = json_pack("{s:O}", "ids", ids);
    char *line = json_dumps(row, 0);
    json_decref(row);
    snprintf(data, sizeof data, "%s/greedy.jsonl", test_tmp());
    file_write_all(data, line, (int64_t)strlen(line), NULL);
    r = snug_run("eval --model %s --data %s --seq %d --json --precision fp32", folder, data, (int)json_array_size(ids));
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("%s", str_text(&r.err));
    EXPECT_NEAR(number(j, "loss", 0), number(g, "mean_nll_greedy", -1), 2e-5);
    EXPECT(number(j, "tokens", 0) == (double)json_array_size(ids) - 1);
    ran_free(&r);
    free(line);
    json_decref(j);
    json_decref(g);
}
