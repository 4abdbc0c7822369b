/* test_generate.c - snug generate on a GPU against itself on the CPU: the same ids in fp32 by every way of drawing, the
 * same in any run, quantised weights, and no byte more than planned. */
#include "base/file.h"
#include "tests/cuda/cuda_test.h"
#include "tests/snug.h"

enum { PROMPTS = 20 };

static void make_prompts(void) {
    Str s = {0};
    for (int r = 0; r < PROMPTS; r++) {
        str_add(&s, "{\"ids\":[1");
        for (int i = 0; i < 1 + r * 37 % 190; i++) str_addf(&s, ",%d", (r * 31 + i * 17 + 5) % 500);
        str_addf(&s, "],\"seed\":%d%s}\n", 1000 + r, r % 3 ? "" : ",\"max_tokens\":5");
    }
    file_write_all(test_path("p.jsonl"), s.data, s.len, NULL);
    str_free(&s);
}

static void make_model(const char *dtype) { /* weights large enough that the prompt matters */
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --overwrite --dtype %s --set num_hidden_layers=3 --set hidden_size=256 "
        "--set num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=64 --set intermediate_size=384 "
        "--set vocab_size=1003 --set initializer_range=0.08", test_path("m"), dtype);
    if (!EXPECT(r.code == 0)) test_note("    %s", str_text(&r.err));
    ran_free(&r);
}

/* Every line of the output: the answers, then the summary. */
static json_t *generate(const char *device, const char *flags) {
    Ran r = snug_run("generate --model %s --prompts %s --max-tokens 40 --ignore-eos --json --logprobs --device %s %s",
                     test_path("m"), test_path("p.jsonl"), device, flags);
    json_t *list = json_array();
    if (!EXPECT(r.code == 0)) test_note("    %s %s: exit %d: %s", device, flags, r.code, str_text(&r.err));
    for (char *save = NULL, *line = r.out.len ? strtok_r(r.out.data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        json_array_append_new(list, json_loads(line, 0, NULL));
    ran_free(&r);
    return list;
}

static json_t *of(json_t *list, size_t i, const char *key) { return json_object_get(json_array_get(list, i), key); }

/* A draw walks the weights of the tokens in the order of their ids. Where its key falls on the boundary of two tokens
 * to within the rounding of fp32 logits, a CPU and a GPU may take either, about once in two thousand draws over a
 * vocabulary of 1,003: neighbours in that order, behind tokens whose log-probabilities agree. */
static bool is_boundary_draw(json_t *a, json_t *b, size_t i, size_t token) {
    json_t *x = of(a, i, "ids"), *y = of(b, i, "ids");
    for (size_t k = 0; k < token; k++)
        if (fabs(json_real_value(json_array_get(of(a, i, "logprobs"), k)) -
                 json_real_value(json_array_get(of(b, i, "logprobs"), k))) > 1e-3)
            return false;
    return llabs(json_integer_value(json_array_get(x, token)) - json_integer_value(json_array_get(y, token))) == 1;
}

/* How many answers have other ids, beside `boundary` draws at a boundary; every first place is told. */
static int other_ids(json_t *a, json_t *b, const char *what, int boundary) {
    int other = 0;
    for (size_t i = 0; i < PROMPTS; i++) {
        json_t *x = of(a, i, "ids"), *y = of(b, i, "ids");
        if (json_is_array(x) && json_equal(x, y)) continue;
        size_t k = 0;
        while (k < json_array_size(x) && json_equal(json_array_get(x, k), json_array_get(y, k))) k++;
        test_note("    %s: answer %zu, token %zu of %zu: %lld (logp %.6g) and %lld (logp %.6g)", what, i, k,
                  json_array_size(x), (long long)json_integer_value(json_array_get(x, k)),
                  json_real_value(json_array_get(of(a, i, "logprobs"), k)),
                  (long long)json_integer_value(json_array_get(y, k)),
                  json_real_value(json_array_get(of(b, i, "logprobs"), k)));
        if (!boundary || !is_boundary_draw(a, b, i, k)) other++;
        else boundary--;
    }
    return other;
}

static double worst_logp(json_t *a, json_t *b) { /* of first tokens */
    double worst = 0;
    for (size_t i = 0; i < PROMPTS; i++) {
        double x = json_real_value(json_array_get(of(a, i, "logprobs"), 0)),
               y = json_real_value(json_array_get(of(b, i, "logprobs"), 0));
        bool same = json_equal(json_array_get(of(a, i, "ids"), 0), json_array_get(of(b, i, "ids"), 0));
        if (same) worst = fmax(worst, fabs(x - y));
    }
    return worst;
}

TEST(answers_on_a_gpu_are_the_cpus_in_fp32) {
    if (!cuda_test_ready()) return;
    static const char *const ways[] = {"",
                                       "--slots 3",
                                       "--temperature 0.9 --top-p 0.95 --slots 5",
                                       "--temperature 1.1 --top-k 50 --min-p 0.02",
                                       "--repetition-penalty 1.2 --slots 1",
                                       "--invariant --temperature 1 --prefill-chunk 64",
                                       "--temperature 0.7 --prefill-chunk 16 --slots 16",
                                       "--temperature 0.8 --prefill-chunk 64 --prefill-piece 64 --slots 4"};
    make_model("fp32");
    make_prompts();
    for (int k = 0; k < COUNT_OF(ways); k++) {
        json_t *cpu = generate("cpu", ways[k]), *gpu = generate("cuda", ways[k]);
        EXPECT(json_array_size(cpu) == PROMPTS + 1 && json_array_size(gpu) == PROMPTS + 1);
        EXPECT(other_ids(cpu, gpu, ways[k], strstr(ways[k], "temperature") ? 1 : 0) == 0);
        json_decref(cpu);
        json_decref(gpu);
    }
}

TEST(answers_on_a_gpu_repeat_and_take_what_was_planned) {
    if (!cuda_test_ready()) return;
    static const struct {
        const char *dtype, *flags;
        double off;
    } kinds[] = {{"bf16", "", 0.1},
                 {"bf16", "--quantize int8", 0.1},
                 {"bf16", "--quantize nf4", 0.1},
                 {"bf16", "--kv-cache int8", 0.1},
                 {"bf16", "--precision fp16", 0.02}, /* weights become fp16 while they are loaded */
                 {"fp16", "--precision fp16 --quantize int8", 0.02},
                 {"fp16", "--precision fp16 --quantize nf4", 0.02},
                 {"fp16", "--precision fp16 --kv-cache int8", 0.05}};
    make_prompts();
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        char flags[200];
        make_model(kinds[k].dtype);
        snprintf(flags, sizeof flags, "--deterministic --temperature 1 --slots 6 %s", kinds[k].flags);
        json_t *cpu = generate("cpu", flags), *first = generate("cuda", flags), *second = generate("cuda", flags);
        EXPECT(other_ids(first, second, flags, 0) == 0);
        double off = worst_logp(cpu, first);
        EXPECT(off < kinds[k].off);
        int64_t planned = json_integer_value(of(first, PROMPTS, "planned_bytes")),
                measured = json_integer_value(of(first, PROMPTS, "measured_bytes")),
                process_planned = json_integer_value(of(first, PROMPTS, "process_planned_bytes")),
                process_measured = json_integer_value(of(first, PROMPTS, "process_measured_bytes"));
        EXPECT(planned == measured && process_measured <= process_planned);
        test_note("    %s: first log-probabilities off the CPU's by %.3g at most", flags, off);
        test_note("    arena %lld of %lld, process %lld of %lld bytes", (long long)measured, (long long)planned,
                  (long long)process_measured, (long long)process_planned);
        json_decref(cpu);
        json_decref(first);
        json_decref(second);
    }
}

/* Long contexts: the cache is split among blocks, prompts go in chunks. */
TEST(a_long_prompt_on_a_gpu) {
    if (!cuda_test_ready()) return;
    Str s = {0};
    make_model("fp32");
    for (int r = 0; r < PROMPTS; r++) {
        str_add(&s, "{\"ids\":[1");
        for (int i = 0; i < (r == 3 ? 3000 : 40); i++) str_addf(&s, ",%d", (i * i * 7 + i * 13 + r) % 1000);
        str_add(&s, "]}\n");
    }
    file_write_all(test_path("p.jsonl"), s.data, s.len, NULL);
    str_free(&s);
    json_t *cpu = generate("cpu", "--prefill-chunk 512 --slots 2"),
           *gpu = generate("cuda", "--prefill-chunk 512 --slots 2"), *one = generate("cuda", "--slots 1");
    EXPECT(other_ids(cpu, gpu, "cpu, gpu", 0) == 0);
    EXPECT(other_ids(cpu, one, "cpu, gpu with one slot", 0) == 0);
    json_decref(cpu);
    json_decref(gpu);
    json_decref(one);
}
