/* test_plan.c - what `snug plan` tells people is what planning it anew gives: pools, savings, ladder, tables,
 * caps, --allow. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/snug.h"
#include "tests/test.h"

static json_t *plan(int want, const char *flags) {
    Ran r = snug_run("plan --json %s", flags);
    json_t *j = ran_json(&r);
    if (!EXPECT(j != NULL && r.code == want)) test_note("    %s: exit %d\n%s", flags, r.code, str_text(&r.err));
    ran_free(&r);
    return j;
}

static void expect_said(Ran *r, int code, const char *part1, const char *part2) {
    if (!EXPECT(r->code == code && strstr(str_text(&r->err), part1) && strstr(str_text(&r->err), part2)))
        test_note("    exit %d, wanted %d with '%s' and '%s':\n%s", r->code, code, part1, part2,
                  str_text(&r->err));
    ran_free(r);
}

static int64_t number(const json_t *j, const char *key) {
    return (int64_t)json_number_value(json_object_get(j, key));
}
static const char *text_of(const json_t *j, const char *key) {
    return json_string_value(json_object_get(j, key));
}
static int64_t pool_bytes(const json_t *j, const char *pool) {
    return number(json_object_get(json_object_get(j, "pools"), pool), "process_planned_bytes");
}

static int64_t device_bytes_of(const char *flags) {
    json_t *j = plan(0, flags);
    int64_t bytes = pool_bytes(j, "device");
    json_decref(j);
    return bytes;
}

#define SMALL "--model qwen2.5-0.5b --mode lora --lora-rank 32 --seq 256 --gpu rtx-4090 "

TEST(every_pool_that_is_used_is_shown) {
    Ran r = snug_run("plan " SMALL "--offload weights --recompute none");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "in pinned host memory") &&
           strstr(str_text(&r.out), "= pinned"));
    EXPECT(strstr(str_text(&r.out), "tokens/s") && strstr(str_text(&r.out), "of the ceiling of RTX 4090"));
    EXPECT(strstr(str_text(&r.out), "a million tokens: ") != NULL);
    ran_free(&r);
    r = snug_run("plan " SMALL "--offload none --recompute none --steps 100");
    EXPECT(r.code == 0 && !strstr(str_text(&r.out), "pinned") && strstr(str_text(&r.out), "= host"));
    EXPECT(strstr(str_text(&r.out), "the job: 100 updates") != NULL);
    ran_free(&r);
    json_t *j = plan(0, SMALL "--offload weights --recompute none"), *line;
    int64_t sum = 0;
    size_t i;
    const json_t *pinned = json_object_get(json_object_get(j, "pools"), "pinned");
    json_array_foreach(json_object_get(pinned, "lines"), i, line) sum += number(line, "bytes");
    EXPECT(sum > 500 * MIB && sum == number(pinned, "planned_bytes"));
    json_decref(j);
}

static void make_model_and_rows(void) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --set num_hidden_layers=2 --set hidden_size=256 --set "
        "num_attention_heads=4 "
        "--set num_key_value_heads=2 --set intermediate_size=512 --set vocab_size=500",
        test_path("m"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    Str text = {0};
    for (int row = 0; row < 10; row++) {
        str_addf(&text, "{\"ids\":[%d", row + 1);
        for (int i = 0; i < 600; i++) str_addf(&text, ",%d", (row * 7 + i) % 500);
        str_add(&text, "]}\n");
    }
    file_write_all(test_path("rows.jsonl"), text.data, text.len, NULL);
    str_free(&text);
}

/* The words of a run that would draw its weights, or begin from an adapter, plan that run. */
TEST(a_plan_of_random_weights_or_of_an_adapter_is_the_plan_of_the_run) {
    make_model_and_rows();
    char job[900], words[1400];
    snprintf(job, sizeof job, "--model %s --data %s --seq 64 --global-batch 4 --steps 1 --mode lora", test_path("m"),
             test_path("rows.jsonl"));
    for (int adapter = 0; adapter < 2; adapter++) {
        snprintf(words, sizeof words, "%s %s%s", job, adapter ? "--adapter " : "--lora-rank 3 --init random",
                 adapter ? test_path("o0/adapter") : "");
        json_t *planned = plan(0, words);
        Ran r = snug_run("train %s --out %s --budget 2GiB", words, test_path(adapter ? "o1" : "o0"));
        json_t *ran = ran_json(&r);
        if (!EXPECT(r.code == 0 && ran)) test_note("%s", str_text(&r.err));
        EXPECT(number(ran, "process_planned_bytes") == pool_bytes(planned, "device"));
        EXPECT(number(planned, "trainable_parameters") > 0);
        ran_free(&r);
        json_decref(ran), json_decref(planned);
    }
}

TEST(a_plan_with_data_is_the_plan_of_the_run) {
    make_model_and_rows();
    char words[900];
    snprintf(words, sizeof words,
             "--model %s --data %s --seq 64 --global-batch 4 --epochs 2 --pack off --val-split 0.2", test_path("m"),
             test_path("rows.jsonl"));
    json_t *planned = plan(0, words);
    const json_t *predicted = json_object_get(planned, "predicted");
    EXPECT(number(predicted, "updates") == 4); /* 8 rows of 10, two an epoch, twice */
    EXPECT_NEAR(json_number_value(json_object_get(predicted, "job_seconds")),
                4 * json_number_value(json_object_get(predicted, "update_seconds")), 1e-6);
    Ran r = snug_run("train %s --out %s --budget 2GiB --no-save", words, test_path("o"));
    json_t *ran = ran_json(&r);
    if (!EXPECT(r.code == 0 && ran)) test_note("%s", str_text(&r.err));
    EXPECT(number(ran, "steps") == 4 && number(ran, "process_planned_bytes") == pool_bytes(planned, "device"));
    ran_free(&r);
    json_decref(ran), json_decref(planned);
    r = snug_run("plan --model qwen2.5-0.5b --seq 64 --data %s",
                 test_path("none.jsonl")); /* planned elsewhere: said, not refused */
    expect_said(&r, 0, "planned without the data", "none.jsonl");
}

TEST(a_saving_is_the_plan_without_that_technique) {
    json_t *j = plan(0, SMALL "--micro-batch 4 --accum 4 --recompute block --offload weights=8 --head-chunk 256"),
           *s;
    int64_t now = pool_bytes(j, "device"), found = 0;
    const json_t *on = json_object_get(j, "switched_on");
    size_t i;
    json_array_foreach(json_object_get(on, "savings"), i, s) {
        const char *name = text_of(s, "name"), *without = NULL;
        if (strstr(name, "recompute block x 24"))
            without = SMALL "--micro-batch 4 --accum 4 --recompute none --offload weights=8 --head-chunk 256";
        if (strstr(name, "weights of 8 layers"))
            without = SMALL "--micro-batch 4 --accum 4 --recompute block --offload none --head-chunk 256";
        if (strstr(name, "chunks of 256"))
            without = SMALL "--micro-batch 4 --accum 4 --recompute block --offload weights=8 --head-chunk 0";
        if (!EXPECT(without != NULL)) test_note("    %s", name);
        if (without) EXPECT(device_bytes_of(without) - now == number(s, "device_bytes_saved"));
        found++;
    }
    EXPECT(found == 3 && number(on, "after_bytes") == now && number(on, "before_bytes") > now);
    EXPECT(device_bytes_of(SMALL "--micro-batch 4 --accum 4 --recompute none --offload none --head-chunk 0") ==
           number(on, "before_bytes"));
    json_decref(j);
}

TEST(what_saves_nothing_is_no_line_among_the_savings) {
    static const char *const flags[] = {"--head-chunk 4096", "--head-chunk 4096 --recompute block",
                                        "--device cpu --offload weights"};
    for (int i = 0; i < COUNT_OF(flags); i++) {
        Ran r = snug_run("plan --model qwen2.5-0.5b --seq 256 --micro-batch 4 --accum 2 %s --json", flags[i]);
        json_t *j = ran_json(&r), *s;
        const json_t *on = json_object_get(j, "switched_on"), *list = json_object_get(on, "savings");
        size_t k;
        EXPECT(r.code == 0 && number(on, "before_bytes") > 0 && (json_array_size(list) > 0) == (i == 1));
        json_array_foreach(list, k, s)
            EXPECT(number(s, "device_bytes_saved") > 0 || number(s, "host_bytes_taken") < 0);
        EXPECT(i == 1 || !strstr(str_text(&r.err), "switched on: each line"));
        ran_free(&r);
        json_decref(j);
    }
}

/* On a GPU a trained head works on all rows at a time, or half of them, where that fits, except where the same bits are
 * asked for. */
TEST(a_head_takes_the_room_that_is_left) {
#define TRAINED "--model qwen2.5-0.5b --seq 1024 --micro-batch 8 --gpu h200 "
    int64_t usual = device_bytes_of(TRAINED "--head-chunk 2048"), half = device_bytes_of(TRAINED "--head-chunk 4096");
    int64_t all = device_bytes_of(TRAINED "--head-chunk 8192");
    EXPECT(all > half && half > usual && device_bytes_of(TRAINED) == all);
    EXPECT(device_bytes_of(TRAINED "--deterministic") == device_bytes_of(TRAINED "--deterministic --head-chunk 2048"));
    char tight[200];
    snprintf(tight, sizeof tight, TRAINED "--budget %lld", (long long)all - 1);
    EXPECT(device_bytes_of(tight) == half);
    snprintf(tight, sizeof tight, TRAINED "--budget %lld", (long long)half - 1);
    EXPECT(device_bytes_of(tight) == usual);
#undef TRAINED
}

TEST(each_rung_of_the_ladder_is_a_plan_that_fits) {
    json_t *j = plan(0, SMALL "--global-batch 24 --budget 6GiB --ladder"), *rung;
    size_t i;
    double last_tokens = 0;
    EXPECT(json_array_size(json_object_get(j, "ladder")) == 4);
    json_array_foreach(json_object_get(j, "ladder"), i, rung) {
        int64_t micro = number(rung, "micro_batch"), accum = number(rung, "accum"),
                bytes = number(rung, "device_bytes");
        EXPECT(json_is_true(json_object_get(rung, "fits")) && bytes <= number(rung, "budget_bytes"));
        EXPECT(micro * accum >= 24 && micro * (accum - 1) < 24); /* the global batch is kept */
        double tokens = json_number_value(json_object_get(rung, "tokens_per_s")),
               share = json_number_value(json_object_get(rung, "ceiling_share"));
        EXPECT(tokens >= 0.998 * last_tokens && share > 0 &&
               share <= 1); /* plans within a thousandth are equals */
        last_tokens = tokens;
        char flags[600];
        snprintf(flags, sizeof flags, SMALL "%s", text_of(rung, "flags"));
        if (!EXPECT(device_bytes_of(flags) == bytes)) test_note("    %s", flags);
    }
    json_decref(j);
}

/* A head that is given what room is left takes bytes and saves time: both stand in the rung. */
TEST(a_rung_tells_what_its_flags_take) {
#define TRAINED "--model qwen2.5-0.5b --seq 1024 --gpu l40s "
    json_t *j = plan(0, TRAINED "--ladder"), *rung;
    size_t i;
    json_array_foreach(json_object_get(j, "ladder"), i, rung) {
        char flags[600];
        snprintf(flags, sizeof flags, TRAINED "%s", text_of(rung, "flags"));
        json_t *same = plan(0, flags);
        EXPECT(strstr(flags, "--head-chunk 16384") != NULL);
        EXPECT(pool_bytes(same, "device") == number(rung, "device_bytes"));
        EXPECT_NEAR(json_number_value(json_object_get(json_object_get(same, "predicted"), "tokens_per_s")),
                    json_number_value(json_object_get(rung, "tokens_per_s")), 1e-3);
        json_decref(same);
    }
    EXPECT(i == 4);
    json_decref(j);
#undef TRAINED
}

TEST(the_batch_table_and_the_cards_say_what_a_plan_says) {
    json_t *j = plan(0, SMALL "--global-batch 8 --batches --cards"), *row;
    size_t i;
    int64_t last = 0, fits = 0;
    json_array_foreach(json_object_get(j, "batches"), i, row) {
        EXPECT(number(row, "micro_batch") == 1 << i && number(row, "total_bytes") > last);
        last = number(row, "total_bytes");
        if (i == 2)
            EXPECT(device_bytes_of(
                       SMALL "--micro-batch 4 --accum 2 --recompute none --offload none --head-chunk 0") == last);
    }
    EXPECT(i == 9 && json_array_size(json_object_get(j, "cards")) >= 20);
    json_array_foreach(json_object_get(j, "cards"), i, row) {
        fits += strcmp(text_of(row, "verdict"), "no") != 0;
        if (strcmp(text_of(row, "verdict"), "no"))
            EXPECT(number(row, "device_bytes") <= number(row, "room_bytes"));
    }
    EXPECT(fits == (int64_t)i); /* half a billion parameters */
    json_decref(j);
    /* too large for a small card as asked: a change is named, and with it the job fits there */
    j = plan(0, "--model llama-3.1-8b --mode lora --lora-rank 64 --seq 8192 --gpu h200 --offload none --cards");
    json_array_foreach(json_object_get(j, "cards"), i, row) {
        bool small = !strcmp(text_of(row, "name"), "T4");
        if (small)
            EXPECT(!strcmp(text_of(row, "verdict"), "no") && text_of(row, "change") &&
                   strstr(text_of(row, "change"), "--quantize int8"));
        if (!small || !text_of(row, "change")) continue;
        char flags[600];
        snprintf(
            flags, sizeof flags,
            "--model llama-3.1-8b --mode lora --lora-rank 64 --seq 8192 --gpu T4 --offload none --budget %lld %s",
            (long long)number(row, "room_bytes"), text_of(row, "change"));
        EXPECT(device_bytes_of(flags) <= number(row, "room_bytes"));
    }
    json_decref(j);
}

TEST(compared_columns_are_plans_of_their_own) {
    json_t *j = plan(0, SMALL
                     "--global-batch 8 --micro-batch 2 --recompute none --offload none --compare '--micro-batch 4 "
                     "--gpu a100-80'");
    const json_t *list = json_object_get(j, "compared"), *b = json_array_get(list, 1);
    EXPECT(json_array_size(list) == 2 &&
           number(json_array_get(list, 0), "device_bytes") == pool_bytes(j, "device"));
    EXPECT(number(b, "micro_batch") == 4 && number(b, "accum") == 2 &&
           !strcmp(text_of(b, "machine"), "A100 80, not here"));
    EXPECT(number(b, "device_bytes") ==
           device_bytes_of("--model qwen2.5-0.5b --mode lora --lora-rank 32 --seq 256 --gpu a100-80 "
                           "--micro-batch 4 --accum 2 --recompute none --offload none"));
    json_decref(j);
    Ran r = snug_run("plan " SMALL "--compare '--micro-bach 4'");
    expect_said(&r, 2, "micro-bach", "micro-batch");
}

TEST(caps_by_pool_hold_and_the_host_is_part_of_the_plan) {
    Ran r = snug_run("plan " SMALL "--max-memory tape=2GiB");
    expect_said(&r, 2, "tape", "device=SIZE,host=SIZE");
    r = snug_run("plan " SMALL "--max-memory device=plenty");
    expect_said(&r, 2, "max-memory", "12GiB");
    r = snug_run("plan " SMALL
                 "--offload weights --max-memory device=8GiB,host=700MiB"); /* forced: refused with the number */
    expect_said(&r, 3, "does not fit the host", "missing");
    json_t *j = plan(3, SMALL "--offload weights --max-memory device=8GiB,host=700MiB");
    EXPECT(json_is_false(json_object_get(j, "fits")));
    json_decref(j);
    j = plan(0,
             SMALL "--global-batch 64 --max-memory gpu=2GiB,cpu=1800MiB"); /* left to the planner: it keeps both */
    EXPECT(pool_bytes(j, "device") <= 2 * GIB && pool_bytes(j, "pinned") + pool_bytes(j, "host") <= 1800 * MIB);
    json_decref(j);
    r = snug_run("plan " SMALL
                 "--recompute none --offload none --max-memory host=4GiB"); /* says nothing about the device */
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "no --budget given"));
    ran_free(&r);
    r = snug_run("plan " SMALL "--recompute none --offload none --max-memory 1GiB");
    expect_said(&r, 3, "the budget is 1.00 GiB", "missing");
}

#define TIGHT                                                                                              \
    "--model llama-3.2-1b --mode lora --lora-rank 256 --seq 1024 --micro-batch 1 --gpu rtx-4090 --budget " \
    "2200MiB "

TEST(the_mathematics_change_only_as_allowed_and_in_the_order_of_damage) {
    Ran r = snug_run("plan " TIGHT);
    expect_said(&r, 3, "does not fit", "--allow");
    r = snug_run("plan " TIGHT "--allow seq,nf4,8bit");
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "changing the mathematics") &&
           strstr(str_text(&r.err), ": --moments 8bit\n"));
    EXPECT(strstr(str_text(&r.out), "(changes the mathematics)") != NULL);
    ran_free(&r);
    r = snug_run("plan " TIGHT "--allow rank");
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "--lora-rank 128 --lora-alpha 256") &&
           !strstr(str_text(&r.err), "--moments"));
    ran_free(&r);
    r = snug_run(
        "plan --model qwen2.5-7b --mode lora --seq 1024 --gpu rtx-4090 --budget 8GiB --recompute block --offload "
        "none --allow 8bit,nf4");
    EXPECT(r.code == 0 &&
           strstr(str_text(&r.err),
                  ": --quantize nf4\n")); /* 8-bit moments alone were not enough, nor are they needed now */
    ran_free(&r);
    r = snug_run(
        "plan --model qwen2.5-7b --mode lora --seq 512 --gpu rtx-4090 --budget 9200MiB --recompute block --offload "
        "none --allow int8");
    /* one more after the other */
    EXPECT(r.code == 0 && strstr(str_text(&r.err), ": --quantize int8 --quantize-head int8\n"));
    ran_free(&r);
    r = snug_run("plan " TIGHT "--allow everything");
    expect_said(&r, 2, "everything", "nf4");
    r = snug_run(
        "plan --model qwen2.5-7b --mode lora --seq 512 --gpu rtx-4090 --budget 12GiB --recompute block --offload "
        "none");
    expect_said(&r, 3, "--quantize int8", "--quantize nf4"); /* offered, not taken */
}

TEST(switches_of_other_tools_are_refused_with_the_reason) {
    Ran r = snug_run("plan " SMALL "--device_map auto");
    expect_said(&r, 2, "device_map", "max-memory");
    r = snug_run("plan " SMALL "--bnb_4bit_use_double_quant false");
    expect_said(&r, 2, "bnb_4bit_use_double_quant", "quantize nf4");
}

TEST(what_train_takes_by_allow_is_in_its_configuration) {
    make_model_and_rows();
    char words[900];
    snprintf(words, sizeof words,
             "--model %s --data %s --pack off --recompute none --head-chunk 128 --global-batch 2 --micro-batch 2",
             test_path("m"), test_path("rows.jsonl"));
    int64_t need[2];
    for (int i = 0; i < 2; i++) {
        char flags[1000];
        snprintf(flags, sizeof flags, "%s --seq %d", words, i ? 512 : 256);
        need[i] = device_bytes_of(flags);
    }
    EXPECT(need[1] > need[0] + 4 * MIB);
    Ran r = snug_run("train %s --seq 512 --steps 2 --out %s --budget %lld --allow seq", words, test_path("o"),
                     (long long)(need[0] + need[1]) / 2);
    if (!EXPECT(r.code == 0 && strstr(str_text(&r.err), "--seq 256"))) test_note("%s", str_text(&r.err));
    ran_free(&r);
    Str saved = {0};
    Err e = {0};
    EXPECT_OK(file_read(test_path("o/config.yaml"), &saved, 1 << 20, &e));
    EXPECT(strstr(str_text(&saved), "seq: 256") && !strstr(str_text(&saved), "seq: 512"));
    str_free(&saved);
    r = snug_run("train --config %s --resume", test_path("o/config.yaml")); /* the same mathematics: it goes on */
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

/* Its other words fit a training job, which it is not. */
TEST(a_recipe_of_grpo_is_planned_as_what_it_is) {
    static const char *const recipes[] = {"grpo-math", "grpo-demo"};
    for (int i = 0; i < COUNT_OF(recipes); i++) {
        Ran r = snug_run("plan --config recipes/%s.yaml", recipes[i]);
        expect_said(&r, 2, "only --task grpo has it", "--");
    }
}

TEST(models_beside_a_policy_are_named_and_checked) {
    static const struct {
        const char *flags, *part1, *part2;
    } wrong[] = {
        {"--evaluator qwen2.5-0.5b:int7", "'int7'", "by-phase, streamed"},
        {"--evaluator qwen2.5-0.5b:streamed=25", "'streamed=25'", "24 layers"},
        {"--evaluator nowhere", "--evaluator nowhere", "Presets"},
        {"--reference llama-3.2-1b", "128256", "cannot be compared"},
        {"--seq 100", "--seq 100", "768"},
        {"--global-batch 12", "groups of 8", "--num-generations"},
        {"--max-tokens 40000", "40512 tokens", "32768"},
    };
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        Ran r = snug_run("plan --task grpo --model qwen2.5-0.5b --gpu l40s %s", wrong[i].flags);
        expect_said(&r, 2 - (i == 2), wrong[i].part1, wrong[i].part2);
    }
    Ran r = snug_run(
        "plan --task grpo --model qwen2.5-0.5b --gpu l40s --reference same:nf4,streamed=4 --evaluator "
        "qwen2.5-1.5b:int8 --listing");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "phase evaluator.decode8 x") &&
           strstr(str_text(&r.out), "reference.layers.5.down_w"));
    EXPECT(strstr(str_text(&r.out), "frozen, partly streamed") && strstr(str_text(&r.out), "the peak"));
    ran_free(&r);
}

#define LONG \
    "--model llama-3.1-8b --mode lora --lora-rank 32 --quantize nf4 --micro-batch 1 --gpu rtx-4060-ti-8 --budget 8GB "

TEST_SLOW(a_long_row_fits_with_its_feed_forward_in_pieces) {
    json_decref(plan(3, LONG "--seq 49152 --ffn-chunks 1"));
    json_t *j = plan(0, LONG "--seq 49152"), *s;
    const json_t *saving = NULL;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(j, "switched_on"), "savings"), i, s) if (
        strstr(text_of(s, "name"), "feed-forward in 24 pieces")) saving = s;
    EXPECT(saving && number(saving, "device_bytes_saved") > GIB);
    int64_t without = device_bytes_of(
        "--model llama-3.1-8b --mode lora --lora-rank 32 --quantize nf4 --micro-batch 1 --gpu rtx-4060-ti-8 "
        "--seq 49152 --ffn-chunks 1 --recompute block --offload weights,inputs=30");
    EXPECT(without - pool_bytes(j, "device") == number(saving, "device_bytes_saved"));
    json_decref(j);
    j = plan(0, LONG "--seq 4096"); /* what fits without is not cut */
    json_array_foreach(json_object_get(json_object_get(j, "switched_on"), "savings"), i, s)
        EXPECT(!strstr(text_of(s, "name"), "pieces") && !strstr(text_of(s, "name"), "kernels"));
    json_decref(j);
    /* longer: what attention needs after the feed-forward is made twice */
    json_decref(plan(3, LONG "--seq 65536 --recompute block --attention cudnn"));
    j = plan(0, LONG "--seq 65536 --attention cudnn");
    saving = NULL;
    json_array_foreach(json_object_get(json_object_get(j, "switched_on"), "savings"), i, s) if (
        strstr(text_of(s, "name"), "recompute twice x 32")) saving = s;
    EXPECT(saving != NULL);
    json_decref(j);
    /* longer still: the scratch of a library for attention is the peak, and snug's own kernels have none */
    json_decref(plan(3, LONG "--seq 81920 --attention cudnn"));
    j = plan(0, LONG "--seq 81920");
    saving = NULL;
    json_array_foreach(json_object_get(json_object_get(j, "switched_on"), "savings"), i, s) if (
        strstr(text_of(s, "name"), "attention by snug's own kernels")) saving = s;
    EXPECT(saving && number(saving, "device_bytes_saved") > GIB);
    json_decref(j);
    Ran r = snug_run("plan " SMALL "--ffn-chunks many");
    expect_said(&r, 2, "--ffn-chunks many", "auto");
}
