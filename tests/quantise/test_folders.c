/* test_folders.c - quantised models on file: written and read back, made by bitsandbytes, damaged. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/bnb.h"
#include "store/jsonfile.h"
#include "tests/snug.h"
#include "tests/test.h"

#define FIXTURES "tests/quantise/fixtures"
#define BNB FIXTURES "/bnb"
#define ROWS "--data " FIXTURES "/rows.jsonl --seq 40 --pack off"

static double real(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static json_t *run_json(const char *what, const char *flags) {
    Ran r = snug_run("%s %s --json", what, flags);
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("    %s %s: %s", what, flags, str_text(&r.err));
    ran_free(&r);
    return j;
}

static double loss_of(const char *flags) {
    json_t *j = run_json("eval " ROWS, flags);
    double loss = real(j, "loss");
    json_decref(j);
    return loss;
}

static void expect_refusal(const char *command, int code, const char *words) {
    Ran r = snug_run("%s", command);
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), words)))
        test_note("    %s: exit %d, %s", command, r.code, str_text(&r.err));
    ran_free(&r);
}

static double expected(const char *key) {
    json_t *j = NULL;
    jsonfile_read(&j, FIXTURES "/expected.json", 1 << 16, NULL);
    double v = real(j, key);
    json_decref(j);
    return v;
}

/* ---- bitsandbytes ---- */

TEST(a_tensor_by_bitsandbytes_reads_as_bitsandbytes_dequantises_it) {
    static const char name[] = "model.layers.0.self_attn.k_proj.weight";
    enum { N = 32 * 64 };
    Err e = {0};
    StSet s, plain;
    BnbTensor b;
    float want[N], have[N], odd[N];
    EXPECT_OK(st_open(&s, BNB, &e));
    EXPECT_OK(st_open(&plain, FIXTURES "/k_proj.safetensors", &e));
    EXPECT_OK(st_read(&plain, st_find(&plain, name), want, 0, sizeof want, &e));
    EXPECT(bnb_is_nf4(&s, st_find(&s, name)) && !bnb_is_nf4(&s, st_find(&s, "model.norm.weight")));
    EXPECT_OK(bnb_open(&b, &s, st_find(&s, name), &e));
    EXPECT(b.rank == 2 && b.dim[0] == 32 && b.dim[1] == 64 && b.n == N && b.nested);
    EXPECT_OK(bnb_read(&b, have, 0, N, &e));
    EXPECT(!memcmp(have, want, sizeof want));
    for (int64_t at = 0; at < N; at += 77) EXPECT_OK(bnb_read(&b, odd + at, at, MIN2(77, N - at), &e)); /* any range */
    EXPECT(!memcmp(odd, want, sizeof want));
    st_close(&s);
    st_close(&plain);
}

/* Nested and plain statistics, blocks of 64 and of 128: the loss that transformers gives on the dequantised weights. */
TEST(a_folder_by_bitsandbytes_gives_the_loss_of_transformers) {
    EXPECT_NEAR(loss_of("--model " BNB), expected("bnb_loss"), 2e-5);
    Ran r = snug_run("eval --model " BNB " " ROWS " --quantize nf4 --json");
    EXPECT(strstr(str_text(&r.err), "dequantised while loading and quantised again as nf4") != NULL);
    json_t *j = ran_json(&r);
    EXPECT_NEAR(real(j, "loss"), expected("bnb_loss"), 0.02); /* only the blocks' maxima are rounded once more */
    json_decref(j);
    ran_free(&r);
}

/* ---- our own folders ---- */

TEST(a_written_folder_is_what_quantising_while_loading_gives) {
    static const char *const formats[] = {"int8", "nf4"};
    for (int i = 0; i < 2; i++) {
        char out[200], flags[400], trained[2][24];
        snprintf(out, sizeof out, "%s/%s", test_tmp(), formats[i]);
        Ran r = snug_run("quantize --model " BNB " --quantize %s --out %s", formats[i], out);
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
        snprintf(flags, sizeof flags, "--model " BNB " --quantize %s", formats[i]);
        double loading = loss_of(flags);
        snprintf(flags, sizeof flags, "--model %s", out);
        EXPECT(loss_of(flags) == loading);
        snprintf(flags, sizeof flags, "--model %s --quantize %s", out, formats[i]); /* the same is no contradiction */
        EXPECT(loss_of(flags) == loading);
        for (int k = 0; k < 2; k++) {
            r = snug_run("train %s %s " ROWS " --mode lora --lora-rank 4 --steps 3 --out %s/run%d%d",
                         k ? "--model " BNB " --quantize" : "--model", k ? formats[i] : out, test_tmp(), i, k);
            json_t *j = ran_json(&r);
            if (!EXPECT(r.code == 0 && j)) test_note("%s", str_text(&r.err));
            const char *sum = json_string_value(json_object_get(j, "checksum"));
            snprintf(trained[k], sizeof trained[k], "%s", sum ? sum : k ? "?" : "!");
            json_decref(j);
            ran_free(&r);
        }
        EXPECT_STR(trained[0], trained[1]);
        StSet s;
        Err e = {0};
        EXPECT_OK(st_open(&s, out, &e)); /* codes and scales of 36,864 numbers, then the embedding and three norms */
        int64_t rows = 64 + 32 + 32 + 64 + 128 + 128, codes = rows * (i ? 48 : 80) + 64 * (i ? 80 : 144);
        if (!EXPECT(s.total_bytes == codes + (64 * 64 + 3 * 64) * 4))
            test_note("    %lld bytes", (long long)s.total_bytes);
        st_close(&s);
    }
}

TEST(what_a_quantised_folder_cannot_do_is_refused_by_name) {
    char out[200], command[1200];
    snprintf(out, sizeof out, "%s/q", test_tmp());
    Ran r = snug_run("quantize --model " BNB " --quantize nf4 --out %s", out);
    EXPECT(r.code == 0);
    ran_free(&r);
    snprintf(command, sizeof command, "eval --model %s " ROWS " --quantize int8", out);
    expect_refusal(command, 2, "stored as nf4 already");
    snprintf(command, sizeof command, "train --model %s " ROWS " --mode full --steps 1 --out %s-run", out, out);
    expect_refusal(command, 2, "--mode lora");
    snprintf(command, sizeof command, "quantize --model %s --quantize int8 --out %s-2", out, out);
    expect_refusal(command, 1, "stored as nf4 already");
    snprintf(command, sizeof command, "merge --model %s --adapter %s --out %s-2", out, out, out);
    expect_refusal(command, 1, "is quantised");
    snprintf(command, sizeof command, "quantize --model " BNB " --quantize nf4 --out %s", out);
    expect_refusal(command, 1, "--overwrite");
    expect_refusal("quantize --model " BNB " --quantize nf4", 2, "--report");
    expect_refusal("quantize --model " BNB " --out x", 2, "--quantize int8");
    expect_refusal("quantize --model " BNB " --quantize nf4 --report", 2, "--data");
}

TEST(the_report_agrees_with_two_evaluations) {
    json_t *j = run_json("quantize --model " BNB " --quantize int8 --report " ROWS, "");
    json_t *full = json_object_get(j, "full"), *less = json_object_get(j, "quantised");
    EXPECT_NEAR(real(full, "loss"), loss_of("--model " BNB), 1e-8);
    EXPECT_NEAR(real(less, "loss"), loss_of("--model " BNB " --quantize int8"), 1e-8);
    EXPECT_NEAR(real(j, "perplexity_change"), real(less, "perplexity") / real(full, "perplexity") - 1, 1e-7);
    EXPECT(real(j, "tokens") == 6 * 39);
    EXPECT(real(full, "weight_bytes") > 0 &&
           real(full, "weight_bytes") - real(less, "weight_bytes") == real(j, "bytes_saved"));
    EXPECT(real(j, "bytes_saved") == 36864 * 4 - (448 * 80 + 64 * 144));
    json_decref(j);
}

/* ---- damaged ---- */

/* A copy of `from` with four bytes of a tensor replaced. */
static void damage(char *folder, size_t size, const char *from, const char *tensor, int64_t at, const void *word) {
    char path[300], to[300];
    Err e = {0};
    static int n;
    snprintf(folder, size, "%s/damaged%d", test_tmp(), n++);
    EXPECT_OK(file_make_dirs(folder, &e));
    static const char *const files[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", from, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        EXPECT_OK(file_copy(path, to, &e));
    }
    StSet s;
    EXPECT_OK(st_open(&s, folder, &e));
    const StTensor *t = st_find(&s, tensor);
    FILE *f = fopen(to, "r+b");
    if (EXPECT(t && f && !fseek(f, (long)(t->offset + at), SEEK_SET))) EXPECT(fwrite(word, 4, 1, f) == 1);
    if (f) fclose(f);
    st_close(&s);
}

TEST(a_number_that_is_not_finite_is_refused_where_quantising_would_hide_it) {
    static const char name[] = "model.layers.1.mlp.up_proj.weight";
    char model[200], bad[200], command[1200];
    snprintf(model, sizeof model, "%s/m", test_tmp());
    Ran r = snug_run(
        "init --model llama-3.2-1b --dtype fp32 --out %s --set num_hidden_layers=2 --set hidden_size=64 --set "
        "num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=16 --set intermediate_size=96 --set "
        "vocab_size=64",
        model);
    EXPECT(r.code == 0);
    ran_free(&r);
    const float words[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        damage(bad, sizeof bad, model, name, (7 * 64 + 5) * 4, &words[i]);
        for (int f = 0; f < 2; f++) {
            snprintf(command, sizeof command, "eval --model %s " ROWS " --quantize %s", bad, f ? "nf4" : "int8");
            expect_refusal(command, 1, name);
            expect_refusal(command, 1, "not finite in row 7");
        }
        snprintf(command, sizeof command, "quantize --model %s --quantize nf4 --out %s/never", bad, test_tmp());
        expect_refusal(command, 1, name);
        snprintf(command, sizeof command, "%s/never", test_tmp());
        EXPECT(!file_exists(command));
        snprintf(command, sizeof command, "eval --model %s " ROWS, bad); /* not hidden: the loss says it */
        expect_refusal(command, 1, "not finite");
    }
    char out[220];
    snprintf(out, sizeof out, "%s/q", test_tmp());
    r = snug_run("quantize --model %s --quantize nf4 --out %s", model, out);
    EXPECT(r.code == 0);
    ran_free(&r);
    damage(bad, sizeof bad, out, name, 3 * 48 + 36,
           &words[0]); /* the scale of row 3: behind 32 bytes of codes and 1 of blocks */
    snprintf(command, sizeof command, "eval --model %s " ROWS, bad);
    expect_refusal(command, 1, "not finite in row 3");
}

TEST(a_state_by_bitsandbytes_that_does_not_fit_is_refused) {
    char bad[200], command[600];
    const char *name = "model.layers.0.self_attn.q_proj.weight";
    char state[120], map[120];
    snprintf(state, sizeof state, "%s.quant_state.bitsandbytes__nf4", name);
    snprintf(map, sizeof map, "%s.nested_absmax", name);
    const float nan = NAN;
    const struct {
        const char *tensor;
        int64_t at;
        const void *word;
        const char *says;
    } cases[] = {{state, 35, "32, ", "does not fit"},   /* the block size: 64 becomes 32 */
                 {state, 0, "[[[[", "quant_state"},      /* not an object */
                 {map, 0, &nan, "not finite"}};
    for (int i = 0; i < 3; i++) {
        damage(bad, sizeof bad, BNB, cases[i].tensor, cases[i].at, cases[i].word);
        snprintf(command, sizeof command, "eval --model %s " ROWS, bad);
        expect_refusal(command, 1, cases[i].says);
        expect_refusal(command, 1, name);
    }
}

TEST(other_ways_of_quantising_are_refused_by_name) {
    static const char *const configs[][2] = {
        {"{\"quant_method\":\"gptq\",\"bits\":4}", "gptq"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}", "bitsandbytes"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"fp4\"}", "fp4"},
        {"{\"quant_method\":\"snug\",\"format\":\"nf4\",\"layout\":9}", "layout"}};
    for (int i = 0; i < 4; i++) {
        char folder[200], path[300], command[400];
        json_t *j = NULL;
        Err e = {0};
        snprintf(folder, sizeof folder, "%s/c%d", test_tmp(), i);
        snprintf(path, sizeof path, "%s/config.json", folder);
        EXPECT_OK(file_make_dirs(folder, &e) && jsonfile_read(&j, BNB "/config.json", 1 << 16, &e));
        json_object_set_new(j, "quantization_config", json_loads(configs[i][0], 0, NULL));
        EXPECT_OK(jsonfile_write(path, j, &e));
        json_decref(j);
        snprintf(command, sizeof command, "plan --model %s --mode lora", folder);
        expect_refusal(command, 1, configs[i][1]);
    }
}
