/* test_budget.c - planned equals taken, over configurations drawn by a printed seed; a budget that is too small is
 * refused before anything is written, and every change that is offered fits and saves what it says. */
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { CONFIGURATIONS = 40 };

typedef struct Draw {
    uint64_t key, at;
} Draw;

static int draw(Draw *d, int low, int high) {
    return low + (int)(rng_u32(d->key, d->at++) % (uint32_t)(high - low + 1));
}
static const char *pick(Draw *d, const char *const *words, int n) { return words[draw(d, 0, n - 1)]; }
#define PICK(d, ...) \
    pick(d, (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static void write_rows(const char *path, int vocab, int rows, int longest, Draw *d) {
    Str text = {0};
    for (int r = 0; r < rows; r++) {
        int n = draw(d, 4, longest);
        str_add(&text, "{\"ids\":[");
        for (int i = 0; i < n; i++) str_addf(&text, i ? ",%d" : "%d", draw(d, 0, vocab - 1));
        str_add(&text, "]}\n");
    }
    file_write_all(path, text.data, text.len, NULL);
    str_free(&text);
}

static int64_t integer(const json_t *j, const char *key) { return (int64_t)json_number_value(json_object_get(j, key)); }

static void draw_flags(char *flags, size_t size, Draw *d, int layers) {
    char recompute[64];
    const char *mode = PICK(
        d, "--mode full", "--mode full --master fp32", "--mode full --moments 8bit", "--mode lora --lora-rank 4",
        "--mode lora --lora-rank 16 --lora-targets q,v --lora-dropout 0.1",
        "--mode full --optimizer sgd --momentum 0.9", "--mode full --moments fp32", "--mode lora --adapter-dtype fp32");
    snprintf(recompute, sizeof recompute, "%s", PICK(d, "none", "norm", "ffn", "block", "mixed"));
    if (!strcmp(recompute, "mixed")) snprintf(recompute, sizeof recompute, "block:0,norm:1-%d", layers - 1);
    const char *offload = PICK(d, "none", "none", "weights", "moments", "gradients=1", "inputs",
                               "weights=1,moments,gradients", "weights,moments,gradients,inputs=2");
    const char *quantize = strstr(mode, "lora") ? PICK(d, "none", "int8", "nf4") : "none";
    snprintf(flags, size,
             "%s --precision %s --recompute %s --head-chunk %s --seq %d --micro-batch %d --accum %d --threads %d "
             "--pack %s --offload %s --quantize %s",
             mode, PICK(d, "bf16", "fp32"), recompute, PICK(d, "0", "128", "256"), draw(d, 2, 160), draw(d, 1, 5),
             draw(d, 1, 3), draw(d, 1, 3), PICK(d, "on", "off"), offload, quantize);
}

TEST(planned_bytes_equal_taken_bytes_over_drawn_configurations) {
    const char *given = getenv("SEED");
    Draw d = {.key = rng_fold(given ? (uint64_t)atoll(given) : 20261, 1)};
    printf("  seed %s (set SEED to repeat)\n", given ? given : "20261");
    double fullest = 0;
    bool few = snug_device() || test_brief(); /* on a device each run opens it */
    int configurations = few ? CONFIGURATIONS / 4 : CONFIGURATIONS;
    for (int i = 0; i < configurations; i++) {
        int layers = draw(&d, 2, 4), heads = draw(&d, 1, 3) * 2, vocab = draw(&d, 64, 3000);
        char folder[200], data[200], out[200], flags[500];
        snprintf(folder, sizeof folder, "%s/m%d", test_tmp(), i);
        snprintf(data, sizeof data, "%s/d%d.jsonl", test_tmp(), i);
        snprintf(out, sizeof out, "%s/o%d", test_tmp(), i);
        Ran r = snug_run(
            "init --model %s --out %s --set num_hidden_layers=%d --set hidden_size=%d --set num_attention_heads=%d "
            "--set num_key_value_heads=2 --set head_dim=16 --set intermediate_size=%d --set vocab_size=%d %s",
            PICK(&d, "qwen2.5-0.5b", "llama-3.2-1b", "qwen3-0.6b", "qwen2.5-7b"), folder, layers, heads * 16, heads,
            draw(&d, 16, 200), vocab, PICK(&d, "--dtype bf16", "--dtype fp32"));
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
        write_rows(data, vocab, draw(&d, 6, 20), 200, &d);
        draw_flags(flags, sizeof flags, &d, layers);
        r = snug_run("train --model %s --data %s --out %s --steps 3 --log-steps 1 --val-split 0.3 --save-steps 2 %s",
                     folder, data, out, flags);
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) {
            test_note("%s\n%s", flags, str_text(&r.err));
            ran_free(&r);
            continue;
        }
        int64_t planned = integer(j, "planned_bytes"), process = integer(j, "process_planned_bytes");
        bool exact =
            planned > 0 && planned == integer(j, "measured_bytes") && integer(j, "allocations_after_first_step") == 0;
        bool within = integer(j, "process_measured_bytes") > 0 && integer(j, "process_measured_bytes") <= process;
        if (!EXPECT(exact && within)) test_note("    configuration %d: %s\n%s", i, flags, str_text(&r.out));
        fullest = fmax(fullest, (double)integer(j, "process_measured_bytes") / (double)process);
        json_decref(j);
        ran_free(&r);
    }
    printf("  %d configurations; the process took at most %.1f %% of its plan\n", configurations, 100 * fullest);
}

/* ---- too small a budget ---- */

static json_t *plan_json(int *code, const char *flags, int64_t budget) {
    char more[64] = "";
    if (budget) snprintf(more, sizeof more, "--budget %lld", (long long)budget);
    Ran r = snug_run("plan --json %s %s", flags, more);
    json_t *j = ran_json(&r);
    *code = r.code;
    if (!EXPECT(j != NULL)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    return j;
}

static int64_t process_bytes(const json_t *plan) {
    return integer(json_object_get(json_object_get(plan, "pools"), "device"), "process_planned_bytes");
}

static void check_changes(const char *flags, double share) {
    int code;
    json_t *whole = plan_json(&code, flags, 0);
    EXPECT(code == 0 && json_is_true(json_object_get(whole, "fits")));
    int64_t need = process_bytes(whole), budget = (int64_t)((double)need * share);
    json_decref(whole);
    json_t *refused = plan_json(&code, flags, budget), *changes = json_object_get(refused, "changes"), *c;
    EXPECT(code == 3 && json_is_false(json_object_get(refused, "fits")));
    if (!EXPECT(json_array_size(changes) > 0)) test_note("    nothing offered for %s at %.2f", flags, share);
    size_t i;
    json_array_foreach(changes, i, c) {
        char changed[1200];
        snprintf(changed, sizeof changed, "%s %s", flags, json_string_value(json_object_get(c, "flags")));
        json_t *after = plan_json(&code, changed, budget);
        int64_t saved = need - process_bytes(after);
        if (!EXPECT(code == 0 && json_is_true(json_object_get(after, "fits")) && saved == integer(c, "saves_bytes")))
            test_note("    '%s': exit %d, saves %lld, says %lld", changed, code, (long long)saved,
                      (long long)integer(c, "saves_bytes"));
        json_decref(after);
    }
    json_decref(refused);
}

/* Nothing is left to the planner: what does not fit is refused, and changes are offered. */
#define FIXED "--recompute none --offload none --head-chunk 0"

TEST(every_offered_change_fits_and_saves_what_it_says) {
    check_changes("--model qwen2.5-0.5b --mode full --seq 512 --micro-batch 4 --accum 2 " FIXED, 0.8);
    if (test_sanitized()) return;
    check_changes("--model qwen2.5-0.5b --mode full --seq 512 --micro-batch 4 --accum 2 " FIXED, 0.5);
    check_changes("--model qwen2.5-7b --mode lora --lora-rank 128 --seq 1536 --micro-batch 2 --accum 8 " FIXED, 0.7);
    check_changes("--model llama-3.2-1b --mode lora --lora-rank 64 --seq 2048 --micro-batch 8 --accum 1 " FIXED, 0.3);
}

TEST(too_small_a_budget_is_refused_before_anything_is_written) {
    char data[200], out[200], folder[200];
    Draw d = {.key = 5};
    snprintf(folder, sizeof folder, "%s/m", test_tmp());
    snprintf(data, sizeof data, "%s/d.jsonl", test_tmp());
    snprintf(out, sizeof out, "%s/out", test_tmp());
    Ran r = snug_run(
        "init --model qwen2.5-0.5b --out %s --set num_hidden_layers=2 --set hidden_size=256 --set "
        "num_attention_heads=4 --set num_key_value_heads=2 --set intermediate_size=512 --set vocab_size=2000",
        folder);
    EXPECT(r.code == 0);
    ran_free(&r);
    write_rows(data, 2000, 10, 300, &d);
    r = snug_run("train --model %s --data %s --out %s --steps 2 --seq 256 --micro-batch 4 --budget 30MiB --json",
                 folder, data, out);
    EXPECT(r.code == 3 && !file_exists(out));
    EXPECT(strstr(str_text(&r.err), "missing") != NULL);
    json_t *j = ran_json(&r);
    EXPECT(j && json_is_false(json_object_get(j, "fits")));
    json_decref(j);
    ran_free(&r);
}

TEST(parameter_counts_and_planning_time_of_known_models) {
    const struct {
        const char *flags;
        int64_t parameters, trainable;
    } known[] = {
        {"--model qwen2.5-7b --mode lora --lora-rank 128", 7615616512, 322961408},
        {"--model Qwen/Qwen2.5-7B-Instruct --mode lora --lora-rank 64", 7615616512, 161480704},
        {"--model qwen2.5-7b --mode lora --lora-rank 128 --lora-targets q,k,v,o", 7615616512, 80740352},
        {"--model qwen2.5-3b --mode lora --lora-rank 128", 3085938688, 239468544},
        {"--model qwen2.5-7b --mode lora --lora-rank 16", 7615616512, 40370176},
        {"--model qwen2.5-0.5b --mode full", 494032768, 494032768},
        {"--model llama-3.1-8b --mode full", 8030261248, 8030261248},
        {"--model smollm2-135m --mode full", 134515008, 134515008},
    };
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
        int code;
        char flags[300];
        snprintf(flags, sizeof flags, "%s --seq 1536 --micro-batch 1 --accum 16 --recompute block", known[i].flags);
        json_t *j = plan_json(&code, flags, 0);
        if (!EXPECT(integer(j, "parameters") == known[i].parameters &&
                    integer(j, "trainable_parameters") == known[i].trainable))
            test_note("    %s: %lld, %lld", flags, (long long)integer(j, "parameters"),
                      (long long)integer(j, "trainable_parameters"));
        json_t *device = json_object_get(json_object_get(j, "pools"), "device"), *line;
        int64_t sum = 0;
        size_t k;
        json_array_foreach(json_object_get(device, "lines"), k, line)
            if (json_is_true(json_object_get(line, "in_arena"))) sum += integer(line, "bytes");
        EXPECT(sum == integer(device, "planned_bytes"));
        double bound = (double)integer(device, "lower_bound_bytes");
        if (!EXPECT((double)integer(device, "planned_bytes") <= 1.002 * bound))
            test_note("    %s: above 1.002 of the bound", flags);
        printf("  %s: planned in %.1f ms\n", known[i].flags, json_number_value(json_object_get(j, "plan_ms")));
        json_decref(j);
    }
}
