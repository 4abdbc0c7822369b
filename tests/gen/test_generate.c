/* test_generate.c - snug generate and snug chat as a person uses them: ids against transformers, answers that do not
 * depend on their company, memory as planned, and clear refusals. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "ir/format.h"
#include "store/safetensors.h"
#include "tests/data/tiny_data.h"
#include "tests/terminal.h"
#include "tests/snug.h"
#include "tests/test.h"

static void write_text(const char *path, const char *text) { file_write_all(path, text, (int64_t)strlen(text), NULL); }

static void expect_refused(Ran r, int code, const char *part1, const char *part2) {
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), part1) && strstr(str_text(&r.err), part2)))
        test_note("    exit %d, wanted %d with '%s' and '%s':\n%s", r.code, code, part1, part2, str_text(&r.err));
    ran_free(&r);
}

/* A random model in m, with weights large enough that the prompt matters. */
static void make_model(const char *more) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --dtype fp32 --set num_hidden_layers=2 --set hidden_size=32 --set "
        "num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=48 --set initializer_range=0.3 %s",
        test_path("m"), more);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

/* The lines of standard output as a list; gives. Answers first, with --json the summary last. */
static json_t *answers(Ran *r) {
    json_t *list = json_array();
    if (!EXPECT(r->code == 0)) test_note("%s", str_text(&r->err));
    for (char *save = NULL, *line = r->out.len ? strtok_r(r->out.data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        json_array_append_new(list, json_loads(line, 0, NULL));
    ran_free(r);
    return list;
}

static json_t *ids_of(json_t *list, size_t at) { return json_object_get(json_array_get(list, at), "ids"); }
static int64_t number(json_t *list, size_t at, const char *key) {
    return json_integer_value(json_object_get(json_array_get(list, at), key));
}

/* n prompts of 3 to 40 tokens below 100, each with its own seed; every second has its own length of answer. */
static void write_prompts(const char *path, int from, int n) {
    Str s = {0};
    for (int r = from; r < from + n; r++) {
        str_add(&s, "{\"ids\":[1");
        for (int i = 0; i < 2 + r * 5 % 38; i++) str_addf(&s, ",%d", (r * 31 + i * 17 + 5) % 100);
        str_addf(&s, "],\"seed\":%d,\"id\":\"p%d\"", 1000 + r, r);
        if (r % 2) str_addf(&s, ",\"max_tokens\":%d", 3 + r % 11);
        str_add(&s, "}\n");
    }
    file_write_all(path, s.data, s.len, NULL);
    str_free(&s);
}

/* ---- against others ---- */

/* The prompts of a case's rows, as ids, into p.jsonl. */
static void write_case(json_t *one) {
    Str rows = {0};
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(one, "rows"), i, row) {
        char *ids = json_dumps(json_object_get(row, "prompt"), JSON_COMPACT);
        str_addf(&rows, "{\"ids\":%s}\n", ids);
        mem_free(ids);
    }
    write_text(test_path("p.jsonl"), rows.data);
    str_free(&rows);
}

static void expect_case(json_t *one, Ran *r) {
    json_t *have = answers(r), *row;
    size_t i;
    json_array_foreach(json_object_get(one, "rows"), i, row) {
        if (!EXPECT(json_equal(ids_of(have, i), json_object_get(row, "continuation"))))
            test_note("    %s, row %zu", json_string_value(json_object_get(one, "model")), i);
    }
    json_decref(have);
}

TEST(greedy_ids_are_those_of_transformers) {
    json_t *cases = json_load_file("tests/gen/greedy.json", 0, NULL), *one;
    size_t c;
    EXPECT(json_array_size(cases) >= 12);
    json_array_foreach(cases, c, one) {
        const char *model = json_string_value(json_object_get(one, "model")),
                   *adapter = json_string_value(json_object_get(one, "adapter"));
        char more[200] = "";
        write_case(one);
        if (*adapter) snprintf(more, sizeof more, "--adapter tests/golden/%s/adapter", model);
        Ran r = snug_run(
            "generate --model tests/golden/%s %s --prompts %s --max-tokens 16 --ignore-eos --prefill-chunk 16 "
            "--slots 3 --repetition-penalty %g",
            model, more, test_path("p.jsonl"), json_number_value(json_object_get(one, "repetition_penalty")));
        expect_case(one, &r);
    }
    json_decref(cases);
}

/* A golden model in another folder, its fp32 weights as `dtype`. */
static void copy_as(const char *model, const char *folder, Format f, StDtype dtype, const char *dtype_name) {
    Err e = {0};
    StSet from;
    StWriter *w = NULL;
    char path[300];
    file_make_dirs(folder, &e);
    snprintf(path, sizeof path, "tests/golden/%s", model);
    if (!EXPECT(st_open(&from, path, &e))) return;
    StTensor *t = MEM_NEW(StTensor, from.n);
    for (int64_t i = 0; i < from.n; i++) {
        EXPECT(from.tensor[i].dtype == ST_F32);
        t[i] = from.tensor[i];
        t[i].dtype = dtype;
    }
    EXPECT_OK(st_write_folder_begin(&w, folder, t, from.n, 0, NULL, &e));
    for (int64_t i = 0; i < from.n; i++) {
        int64_t n = from.tensor[i].bytes / 4;
        float *x = MEM_NEW(float, n);
        uint16_t *half = MEM_NEW(uint16_t, n);
        EXPECT_OK(st_read(&from, &from.tensor[i], x, 0, n * 4, &e));
        format_table[f].encode(half, x, 1, n, 0, 1);
        EXPECT_OK(st_write_data(w, half, n * 2, &e));
        mem_free(x);
        mem_free(half);
    }
    EXPECT_OK(st_write_end(w, &e));
    mem_free(t);
    st_close(&from);
    snprintf(path, sizeof path, "tests/golden/%s/config.json", model);
    json_t *config = json_load_file(path, 0, NULL);
    json_object_set_new(config, "dtype", json_string(dtype_name));
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = json_dumps(config, 0);
    write_text(path, text);
    mem_free(text);
    json_decref(config);
}

/* Weights, activations and the cache in fp16, as a GPU without bf16 has them. */
TEST(greedy_ids_in_fp16_are_those_of_transformers) {
    json_t *cases = json_load_file("tests/gen/greedy_fp16.json", 0, NULL), *one;
    size_t c;
    EXPECT(json_array_size(cases) >= 7);
    json_array_foreach(cases, c, one) {
        const char *model = json_string_value(json_object_get(one, "model"));
        copy_as(model, test_path("half"), FMT_F16, ST_F16, "float16");
        write_case(one);
        for (int slots = 1; slots <= 3; slots += 2) {
            Ran r = snug_run(
                "generate --model %s --prompts %s --precision fp16 --max-tokens 16 --ignore-eos --prefill-chunk 16 "
                "--slots %d",
                test_path("half"), test_path("p.jsonl"), slots);
            EXPECT(strstr(str_text(&r.err), "weights fp16, activations fp16, cache fp16"));
            expect_case(one, &r);
        }
    }
    json_decref(cases);
}

TEST(a_card_without_bf16_answers_in_fp16_and_says_so) {
    Ran r = snug_run("plan --task generate --model qwen2.5-0.5b --gpu T4 --budget 8GiB --json");
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "has no bf16") && strstr(str_text(&r.out), "\"fp16\""));
    ran_free(&r);
    r = snug_run(
        "plan --task generate --model qwen2.5-0.5b --gpu T4 --budget 8GiB --json --precision bf16");
    EXPECT(r.code == 0 && !strstr(str_text(&r.err), "--precision fp16") && strstr(str_text(&r.out), "\"bf16\""));
    ran_free(&r);
}

/* A file in bf16 is kept in fp16, in the same bytes; what comes out is nearer to fp32 than bf16's. */
TEST(fp16_answers_from_a_bf16_file_are_near_those_in_fp32) {
    static const char *const how[] = {"--precision fp32",
                                      "--precision bf16",
                                      "--precision fp16",
                                      "--precision fp16 --quantize int8",
                                      "--precision fp16 --quantize nf4",
                                      "--precision fp32 --quantize int8",
                                      "--precision fp32 --quantize nf4"};
    make_model("--dtype bf16 --set vocab_size=100 --set hidden_size=64 --set intermediate_size=128 --set head_dim=32");
    write_prompts(test_path("p.jsonl"), 0, 12);
    double logp[COUNT_OF(how)][12];
    int64_t bytes[COUNT_OF(how)];
    for (int k = 0; k < COUNT_OF(how); k++) {
        Ran r = snug_run("generate --model %s --prompts %s --max-tokens 1 --logprobs --json --device cpu %s",
                         test_path("m"), test_path("p.jsonl"), how[k]);
        json_t *a = answers(&r);
        for (size_t i = 0; i < 12; i++)
            logp[k][i] = json_real_value(json_array_get(json_object_get(json_array_get(a, i), "logprobs"), 0));
        bytes[k] = number(a, 12, "planned_bytes");
        EXPECT(bytes[k] == number(a, 12, "measured_bytes"));
        json_decref(a);
    }
    double off[COUNT_OF(how)] = {0};
    for (int k = 0; k < COUNT_OF(how); k++)
        for (int i = 0; i < 12; i++) off[k] = fmax(off[k], fabs(logp[k][i] - logp[k < 3 ? 0 : k == 3 ? 5 : 6][i]));
    if (!EXPECT(off[2] < 0.02 && off[2] < off[1] && off[3] < 0.02 && off[4] < 0.02))
        test_note("    bf16 %g, fp16 %g, int8 %g, nf4 %g", off[1], off[2], off[3], off[4]);
    EXPECT(bytes[2] == bytes[1]);
}

static const char *stories(void) { /* its folder, or NULL after a skip */
    static char folder[300];
    const char *bin = test_assets("stories260K/stories260K.bin");
    if (!bin) return NULL;
    char words[400];
    snprintf(words, sizeof words, "%.*s/tok512.bin", (int)(strrchr(bin, '/') - bin), bin);
    snprintf(folder, sizeof folder, "%s/st", test_tmp());
    Ran r = snug_run("convert --from llama2c %s --tokenizer %s --out %s", bin, words, folder);
    EXPECT(r.code == 0);
    ran_free(&r);
    return folder;
}

TEST(stories260k_tells_its_golden_story) {
    const char *folder = stories();
    if (!folder) return;
    json_t *g = json_load_file(test_assets("stories260K/golden.json"), 0, NULL),
           *want = json_object_get(g, "greedy_ids");
    int n = (int)json_array_size(want) - 1;
    write_text(test_path("p.jsonl"), "{\"ids\":[1]}\n");
    Ran r = snug_run("generate --model %s --prompts %s --max-tokens %d --ignore-eos", folder, test_path("p.jsonl"), n);
    json_t *have = answers(&r);
    json_array_remove(want, 0);
    EXPECT(n >= 200 && json_equal(ids_of(have, 0), want));
    json_decref(have);

    /* with keys and values in int8 nearly the same story */
    r = snug_run("generate --model %s --prompts %s --max-tokens %d --ignore-eos --kv-cache int8 --json", folder,
                 test_path("p.jsonl"), n);
    have = answers(&r);
    size_t same = 0;
    while (same < (size_t)n && json_equal(json_array_get(ids_of(have, 0), same), json_array_get(want, same))) same++;
    if (!EXPECT(same >= 30)) test_note("    %zu tokens are the same", same);
    EXPECT(number(have, 1, "planned_bytes") == number(have, 1, "measured_bytes"));
    json_decref(have);
    json_decref(g);

    /* text in, text out; a stop string that no token is */
    r = snug_run("generate --model %s --prompt 'Once upon a time' --max-tokens 60 --stop 'red ba'", folder);
    EXPECT(r.code == 0);
    EXPECT_STR(
        str_text(&r.out),
        ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, \n");
    ran_free(&r);
}

/* ---- company ---- */

TEST(a_prompt_alone_and_among_31_others_gives_the_same_ids) {
    const char *how =
        "--model tests/golden/llama_plain --max-tokens 24 --ignore-eos --temperature 1 --invariant --prefill-chunk 16 "
        "--logprobs";
    write_prompts(test_path("all.jsonl"), 0, 32);
    Ran r = snug_run("generate %s --prompts %s", how, test_path("all.jsonl"));
    json_t *all = answers(&r);
    EXPECT(json_array_size(all) == 32);
    for (int i = 0; i < 32; i += 6) {
        write_prompts(test_path("one.jsonl"), i, 1);
        r = snug_run("generate %s --prompts %s", how, test_path("one.jsonl"));
        json_t *one = answers(&r);
        json_t *bits = json_object_get(json_array_get(all, (size_t)i), "logprobs"),
               *bits_alone = json_object_get(json_array_get(one, 0), "logprobs");
        EXPECT(json_array_size(bits) >= 3 && json_equal(bits, bits_alone)); /* not only the tokens: the same numbers */
        if (!EXPECT(json_equal(ids_of(all, (size_t)i), ids_of(one, 0)))) test_note("    prompt %d", i);
        json_decref(one);
    }
    json_decref(all);
}

TEST(more_prompts_than_slots_lose_and_mix_nothing) {
    const char *how =
        "--model tests/golden/qwen3 --max-tokens 9 --ignore-eos --temperature 0.8 --top-p 0.9 --logprobs --json";
    write_prompts(test_path("p.jsonl"), 0, 23);
    Ran r = snug_run("generate %s --prompts %s --slots 1 --threads 1", how, test_path("p.jsonl"));
    json_t *alone = answers(&r);
    r = snug_run("generate %s --prompts %s --slots 4", how, test_path("p.jsonl"));
    json_t *four = answers(&r);
    EXPECT(json_array_size(alone) == 24 && json_array_size(four) == 24);
    for (size_t i = 0; i < 23; i++) {
        char id[8];
        snprintf(id, sizeof id, "p%zu", i);
        EXPECT(number(four, i, "index") == (int64_t)i &&
               !strcmp(json_string_value(json_object_get(json_array_get(four, i), "id")), id));
        EXPECT(number(four, i, "tokens") == (i % 2 ? 3 + (int64_t)i % 11 : 9) &&
               json_equal(ids_of(alone, i), ids_of(four, i)));
        EXPECT(json_array_size(json_object_get(json_array_get(four, i), "logprobs")) ==
               (size_t)number(four, i, "tokens"));
    }
    EXPECT(number(four, 23, "plays") < number(alone, 23, "plays")); /* they did run together */
    json_decref(alone);
    json_decref(four);
}

/* Eight short prompts are one pass; one too long for what room is left goes alone, and so do a prompt's samples. */
TEST(short_prompts_are_prefilled_together) {
    char how[400];
    make_model("--set vocab_size=113");
    snprintf(how, sizeof how, "--model %s --max-tokens 5 --ignore-eos --prefill-chunk 64 --json", test_path("m"));
    Str s = {0};
    for (int r = 0; r < 9; r++) {
        str_add(&s, "{\"ids\":[1");
        for (int i = 0; i < (r == 8 ? 66 : r); i++) str_addf(&s, ",%d", (r * 31 + i * 17 + 5) % 100);
        str_add(&s, "]}\n");
    }
    file_write_all(test_path("p.jsonl"), s.data, s.len, NULL);
    str_free(&s);
    static const struct {
        const char *more;
        int64_t plays;
    } cases[] = {{"--slots 1", 8 + 2 + 9 * 4},             /* each on its own, the long one in two */
                 {"--slots 9", 1 + 2 + 4},                 /* a pack, the long one, four tokens of all */
                 {"--slots 9 --invariant", 8 + 2 + 2 * 4}, /* nothing packed, eight slots at a time */
                 {"--slots 9 --n 2", 8 + 2 + 2 * 4}};      /* 18 answers, nine at a time */
    json_t *want = NULL;
    for (int k = 0; k < COUNT_OF(cases); k++) {
        Ran r = snug_run("generate %s %s --prompts %s", how, cases[k].more, test_path("p.jsonl"));
        json_t *have = answers(&r);
        size_t each = k == 3 ? 2 : 1;
        if (!EXPECT(number(have, 9 * each, "plays") == cases[k].plays))
            test_note("    %s: %lld plays", cases[k].more, (long long)number(have, 9 * each, "plays"));
        EXPECT(number(have, 9 * each, "prefill_tokens") + number(have, 9 * each, "shared_tokens") >= 36 + 67);
        for (size_t i = 0; want && i < 9; i++) EXPECT(json_equal(ids_of(have, i * each), ids_of(want, i)));
        if (!want) want = json_incref(have);
        json_decref(have);
    }
    json_decref(want);
}

TEST(samples_share_the_prefill_and_seeds_repeat) {
    const char *how = "--model tests/golden/llama3 --max-tokens 12 --ignore-eos --temperature 1.2 --json";
    write_text(test_path("p.jsonl"), "{\"ids\":[5,9,33,7,2,60,61,62]}\n{\"ids\":[8,8,9]}\n");
    Ran r = snug_run("generate %s --prompts %s --n 5 --slots 3", how, test_path("p.jsonl"));
    json_t *a = answers(&r);
    r = snug_run("generate %s --prompts %s --n 5 --slots 10", how, test_path("p.jsonl"));
    json_t *b = answers(&r);
    r = snug_run("generate %s --prompts %s --n 5 --seed 43", how, test_path("p.jsonl"));
    json_t *other = answers(&r);
    EXPECT(json_array_size(a) == 11 && number(a, 10, "prefill_tokens") == 11 &&
           number(a, 10, "shared_tokens") == 4 * 11);
    int changed = 0, apart = 0;
    for (size_t i = 0; i < 10; i++) {
        EXPECT(json_equal(ids_of(a, i), ids_of(b, i)) && number(a, i, "sample") == (int64_t)i % 5);
        changed += !json_equal(ids_of(a, i), ids_of(other, i));
        apart += i % 5 && !json_equal(ids_of(a, i), ids_of(a, i - 1));
    }
    EXPECT(changed == 10 && apart == 8);
    json_decref(a);
    json_decref(b);
    json_decref(other);
}

/* ---- memory ---- */

TEST(generation_takes_what_was_planned_and_fits_its_budget) {
    char how[400];
    make_model("--set vocab_size=113");
    snprintf(how, sizeof how, "--model %s --max-tokens 20 --context 900 --ignore-eos --json", test_path("m"));
    write_prompts(test_path("p.jsonl"), 0, 12);
    Ran r = snug_run("generate %s --prompts %s", how, test_path("p.jsonl"));
    json_t *wide = answers(&r);
    int64_t need = number(wide, 12, "process_planned_bytes");
    EXPECT(number(wide, 12, "slots") == 12 && number(wide, 12, "planned_bytes") == number(wide, 12, "measured_bytes"));
    EXPECT(number(wide, 12, "process_measured_bytes") > 0 && number(wide, 12, "process_measured_bytes") <= need);
    r = snug_run("generate %s --prompts %s --budget %lld", how, test_path("p.jsonl"), (long long)need - 700000);
    json_t *tight = answers(&r);
    EXPECT(number(tight, 12, "slots") < 12 && number(tight, 12, "slots") > 0);
    EXPECT(number(tight, 12, "process_planned_bytes") <= need - 700000);
    EXPECT(number(tight, 12, "planned_bytes") == number(tight, 12, "measured_bytes"));
    for (size_t i = 0; i < 12; i++) EXPECT(json_equal(ids_of(wide, i), ids_of(tight, i)));
    expect_refused(
        snug_run("generate %s --prompts %s --out %s --budget 1MiB", how, test_path("p.jsonl"), test_path("a.jsonl")), 3,
        "does not fit", "missing");
    EXPECT(!file_exists(test_path("a.jsonl")));
    expect_refused(snug_run("generate %s --prompts %s --slots 12 --budget %lld", how, test_path("p.jsonl"),
                            (long long)need - 700000),
                   3, "12 slots", "--slots");
    json_decref(wide);
    json_decref(tight);
}

TEST(quantised_weights_answer_nearly_alike) {
    static const char *const kinds[] = {"none", "int8", "nf4"};
    make_model("--set vocab_size=100 --set hidden_size=64 --set intermediate_size=128 --set head_dim=32");
    write_prompts(test_path("p.jsonl"), 0, 4);
    double first[3];
    int64_t weights[3];
    for (int k = 0; k < 3; k++) {
        Ran r = snug_run("generate --model %s --prompts %s --max-tokens 3 --logprobs --json --quantize %s",
                         test_path("m"), test_path("p.jsonl"), kinds[k]);
        json_t *a = answers(&r);
        first[k] = json_real_value(json_array_get(json_object_get(json_array_get(a, 0), "logprobs"), 0));
        weights[k] = number(a, 4, "planned_bytes");
        json_decref(a);
    }
    if (!snug_device())
        EXPECT(weights[0] > weights[1] && weights[1] > weights[2]); /* a GPU's pages are larger than the model */
    EXPECT(first[1] != first[0] && first[2] != first[1]);
    EXPECT_NEAR(first[1], first[0], 0.02);
    EXPECT_NEAR(first[2], first[0], 0.3);
}

/* A head of 32 numbers is 48 bytes in int8, 128 in fp32; the ledger says so, and what comes out is nearly the same. */
TEST(an_int8_cache_is_smaller_and_answers_nearly_alike) {
    static const char *const kinds[] = {"auto", "int8"};
    make_model("--set vocab_size=100 --set hidden_size=64 --set head_dim=32");
    write_prompts(test_path("p.jsonl"), 0, 4);
    double first[2];
    for (int k = 0; k < 2; k++) {
        Ran r = snug_run(
            "generate --model %s --prompts %s --max-tokens 3 --context 1000 --slots 4 --logprobs --json --kv-cache %s",
            test_path("m"), test_path("p.jsonl"), kinds[k]);
        /* 2 layers, 4 slots of 1,000 tokens, a k and a v head */
        const char *line = strstr(str_text(&r.err), "  cache");
        if (!EXPECT(line && strstr(line, k ? "768,000" : "2,048,000"))) test_note("%s", str_text(&r.err));
        json_t *a = answers(&r);
        first[k] = json_real_value(json_array_get(json_object_get(json_array_get(a, 3), "logprobs"), 0));
        EXPECT(number(a, 4, "planned_bytes") == number(a, 4, "measured_bytes"));
        json_decref(a);
    }
    EXPECT(first[1] != first[0]);
    EXPECT_NEAR(first[1], first[0], 0.05);
}

TEST(random_weights_answer_without_files) {
    write_text(test_path("p.jsonl"), "{\"ids\":[3,1,4,1,5]}\n");
    json_t *a[4];
    static const char *const how[4] = {"--init random", "--init random", "--init random --seed 7", ""};
    for (int i = 0; i < 4; i++) {
        Ran r = snug_run(
            "generate --model tests/golden/llama_plain --prompts %s --max-tokens 12 --ignore-eos --logprobs %s",
            test_path("p.jsonl"), how[i]);
        a[i] = answers(&r);
    }
    EXPECT(json_array_size(ids_of(a[0], 0)) == 12 && json_equal(a[0], a[1]));
    EXPECT(!json_equal(a[0], a[2]) && !json_equal(a[0], a[3]));
    for (int i = 0; i < 4; i++) json_decref(a[i]);
    expect_refused(snug_run("generate --model smollm2-135m --prompts %s", test_path("p.jsonl")), 1, "preset",
                   "--init random");
}

/* ---- refusals ---- */

TEST(bad_prompts_are_refused_with_file_and_line) {
    const char *model = "--model tests/golden/llama_plain";
    expect_refused(snug_run("generate %s", model), 2, "--prompt", "--prompts");
    expect_refused(snug_run("generate %s --prompt hello", model), 1, "tokenizer.json", "--tokenizer");
    expect_refused(snug_run("generate %s --prompts %s", model, test_path("absent")), 1, "absent", "No such file");
    const struct {
        const char *text, *part1, *part2;
    } bad[] = {{"{\"ids\":[1]}\n\n{\"ids\":[1,}\n", "b.jsonl:3", "JSON"},
               {"{\"ids\":[1,-4]}\n", "b.jsonl:1", "ids[1]"},
               {"{\"words\":3}\n", "b.jsonl:1", "neither"},
               {"{\"ids\":[1],\"max_tokens\":0}\n", "b.jsonl:1", "max_tokens"},
               {"\n \n", "b.jsonl", "no prompts"},
               {"{\"ids\":[]}\n", "b.jsonl:1", "no tokens"},
               {"{\"ids\":[4,-1]}\n{\"ids\":[4,100000]}\n", "b.jsonl:1", "ids[1]"},
               {"{\"ids\":[]}\n{\"ids\":[4,100000]}\n", "b.jsonl:1", "No other prompt"}};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        write_text(test_path("b.jsonl"), bad[i].text);
        expect_refused(
            snug_run("generate %s --prompts %s --out %s", model, test_path("b.jsonl"), test_path("o.jsonl")), 1,
            bad[i].part1, bad[i].part2);
        EXPECT(!file_exists(test_path("o.jsonl")));
    }
    write_text(test_path("p.jsonl"), "{\"ids\":[1,2,3]}\n");
    expect_refused(snug_run("generate %s --prompts %s --context 8 --max-tokens 6", model, test_path("p.jsonl")), 1,
                   "context of 8", "p.jsonl:1: 3 tokens");
    expect_refused(snug_run("generate %s --prompts %s --max-tokens 1000000", model, test_path("p.jsonl")), 1,
                   "positions", "--max-tokens");
    expect_refused(snug_run("generate %s --prompts %s --out %s", model, test_path("p.jsonl"), test_path("p.jsonl")), 2,
                   "would replace", "choose another name");
    expect_refused(snug_run("generate %s --prompts %s --out %s", model, test_path("p.jsonl"), test_path("b.jsonl")), 1,
                   "already there", "--overwrite");
    expect_refused(snug_run("chat %s", model), 1, "chat template", "generate");
}

/* ---- on a terminal ---- */

TEST(a_terminal_shows_loading_then_a_bar_and_ctrl_c_is_answered) {
    Terminal t;
    char arguments[1000];
    make_model("--set vocab_size=113");
    write_prompts(test_path("p.jsonl"), 0, 32);
    snprintf(arguments, sizeof arguments,
             "generate --model %s --prompts %s --max-tokens 4000 --context 4096 --ignore-eos --device cpu --out %s",
             test_path("m"), test_path("p.jsonl"), test_path("o.jsonl"));
    if (!terminal_start(&t, "TERM=xterm", arguments)) return;
    EXPECT(terminal_wait(&t, "of weights ...") && terminal_wait(&t, "answer ") && terminal_wait(&t, "tok/s"));
    terminal_type(&t, "\003");
    EXPECT(terminal_wait(&t, "--resume"));
    EXPECT(terminal_end(&t) == 1);
    EXPECT(file_exists(test_path("o.jsonl.progress")) && !file_exists(test_path("o.jsonl")));
}

/* ---- talking ---- */

TEST(chat_goes_on_forgets_and_leaves) {
    tokenizer_close(tiny_tokenizer(false)); /* writes tok/tokenizer.json */
    char more[400];
    snprintf(more, sizeof more, "--set vocab_size=260 --tokenizer %s", test_path("tok"));
    make_model(more);
    write_text(test_path("m/chat_template.jinja"), tiny_chatml);
    write_text(test_path("in"), "hello\nand then?\n/reset\nhello\n/quit\nnever read\n");
    Ran r = snug_run("chat --model %s --max-tokens 6 --temperature 0 --stop $'\\x01' <%s", test_path("m"),
                     test_path("in"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    /* answers may hold line ends of their own: the same words after /reset give the same bytes as a conversation of
     * one */
    write_text(test_path("once"), "hello\n");
    write_text(test_path("twice"), "hello\n/reset\nhello\n");
    Ran one = snug_run("chat --model %s --max-tokens 6 --temperature 0 <%s", test_path("m"), test_path("once"));
    Ran two = snug_run("chat --model %s --max-tokens 6 --temperature 0 <%s", test_path("m"), test_path("twice"));
    Ran sys = snug_run("chat --model %s --max-tokens 6 --temperature 0 --system other <%s", test_path("m"),
                       test_path("once"));
    EXPECT(one.code == 0 && one.out.len > 0 && two.out.len == 2 * one.out.len);
    EXPECT(two.out.len == 2 * one.out.len && !memcmp(two.out.data, one.out.data, (size_t)one.out.len) &&
           !memcmp(two.out.data + one.out.len, one.out.data, (size_t)one.out.len));
    EXPECT(sys.code == 0 && strcmp(str_text(&sys.out), str_text(&one.out)));
    ran_free(&one);
    ran_free(&two);
    ran_free(&sys);
    /* the same by generate, as one prompt of messages */
    write_text(test_path("p.jsonl"),
               "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}\n{\"text\":\"hello\"}\n");
    r = snug_run("generate --model %s --prompts %s --max-tokens 6", test_path("m"), test_path("p.jsonl"));
    json_t *a = answers(&r);
    EXPECT(number(a, 0, "prompt_tokens") == 24 && number(a, 1, "prompt_tokens") == 5);
    json_decref(a);
}
