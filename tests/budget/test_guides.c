/* test_guides.c - cases that people met with other tools, as numbers of the planner: a 7B adapter on 24 GB, the
 * ladder of micro-batches of a pre-training run on 44 GB cards, half a billion parameters at batch 128, answers of a 7B
 * model inside 12 GiB of a 14.7 GiB card. */
#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/snug.h"
#include "tests/test.h"

static json_t *plan(int *code, const char *flags) {
    Ran r = snug_run("plan --json %s", flags);
    json_t *j = ran_json(&r);
    *code = r.code;
    if (!EXPECT(j != NULL)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    return j;
}

static int64_t number(const json_t *j, const char *key) {
    return (int64_t)json_number_value(json_object_get(j, key));
}
static const json_t *device(const json_t *j) {
    return json_object_get(json_object_get(j, "pools"), "device");
}

static int64_t line(const json_t *j, const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(
        json_object_get(device(j), "lines"), i,
        row) if (!strcmp(json_string_value(json_object_get(row, "name")), name)) return number(row, "bytes");
    return 0;
}

#define SEVEN "--model qwen2.5-7b --mode lora --lora-rank 128 --gpu rtx-4090 "

TEST(a_7b_adapter_of_rank_128_on_24_gb) {
    int code;
    /* 2 x 2048 with nothing switched on: not 25 GB as people estimate it, but 35 GiB */
    json_t *asked =
        plan(&code, SEVEN "--budget 24GB --seq 2048 --micro-batch 2 --accum 8 --recompute none --offload none");
    EXPECT(code == 3 && json_is_false(json_object_get(asked, "fits")));
    EXPECT(number(asked, "trainable_parameters") == 322961408 && line(asked, "weights") == 15231233024);
    EXPECT(line(asked, "adapters") == 2 * 322961408LL && line(asked, "optimizer") == 4 * 322961408LL);
    int64_t needed = number(device(asked), "process_planned_bytes");
    EXPECT(needed > 30 * GIB && needed < 40 * GIB);
    /* the same job, left to the planner */
    json_t *fitted = plan(&code, SEVEN "--budget 24GB --seq 2048 --micro-batch 2 --accum 8");
    EXPECT(code == 0 && json_is_true(json_object_get(fitted, "fits")));
    const json_t *on = json_object_get(fitted, "switched_on"), *same = json_object_get(on, "unchanged");
    EXPECT(number(on, "before_bytes") == needed && json_array_size(json_object_get(on, "savings")) >= 1);
    EXPECT(number(on, "after_bytes") == number(device(fitted), "process_planned_bytes") &&
           number(on, "after_bytes") <= 24000000000);
    EXPECT(number(same, "parameters") == 7615616512 && number(same, "trainable_parameters") == 322961408);
    EXPECT(number(same, "rank") == 128 && number(same, "global_batch") == 16 && number(same, "seq") == 2048);
    /* what the guide did by hand (1 x 1536 x 16, checkpointing): 20 GB with 4 GB to spare */
    json_t *by_hand =
        plan(&code, SEVEN "--budget 24GB --seq 1536 --micro-batch 1 --accum 16 --recompute block --offload none");
    EXPECT(code == 0 && number(device(by_hand), "process_planned_bytes") < 20000000000);
    json_decref(asked), json_decref(fitted), json_decref(by_hand);
}

TEST(the_pre_training_ladder_keeps_its_global_batch) {
    char folder[200], path[240], flags[600];
    int code;
    snprintf(folder, sizeof folder, "%s/m", test_tmp());
    snprintf(path, sizeof path, "%s/config.json", folder);
    file_make_dirs(folder, NULL);
    const char *config =
        "{\"model_type\":\"llama\",\"hidden_size\":512,\"intermediate_size\":1536,\"vocab_size\":151936,"
        "\"num_hidden_layers\":8,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"max_position_embeddings\":"
        "4096,"
        "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";
    file_write_all(path, config, (int64_t)strlen(config), NULL);
    /* 256 rows over four cards: 64 on each */
    snprintf(
        flags, sizeof flags,
        "--model %s --precision fp32 --seq 1024 --global-batch 64 --micro-batch 2 --recompute none --offload none "
        "--gpu L40S --budget 44GB --compare '--micro-batch 3' --compare '--micro-batch 4'",
        folder);
    json_t *j = plan(&code, flags), *row;
    const int64_t micro[] = {2, 3, 4}, accum[] = {32, 22, 16};
    int64_t last = 0;
    size_t i;
    EXPECT(code == 0 && json_array_size(json_object_get(j, "compared")) == 3);
    json_array_foreach(json_object_get(j, "compared"), i, row) {
        EXPECT(number(row, "micro_batch") == micro[i] && number(row, "accum") == accum[i] &&
               number(row, "global_batch") == 64);
        EXPECT(json_is_true(json_object_get(row, "fits")) && number(row, "device_bytes") > last);
        last = number(row, "device_bytes");
    }
    /* the state people put at 21 to 24 GB: 16 bytes a parameter */
    EXPECT(number(j, "parameters") == 179708416);
    EXPECT(line(j, "weights") + line(j, "gradients") + line(j, "optimizer") == 16 * 179708416LL);
    json_decref(j);
}

TEST(half_a_billion_parameters_at_batch_128) {
    int code;
    json_t *j = plan(&code, "--model qwen2.5-0.5b --mode full --seq 512 --global-batch 128 --gpu L40S --batches"),
           *row, *name;
    const json_t *kept = NULL, *again = NULL;
    size_t i;
    json_array_foreach(json_object_get(j, "batches"), i, row) if (number(row, "micro_batch") == 128)
        kept = row,
        again = json_object_get(row, "recompute_block");
    EXPECT(code == 0 && kept && again && json_array_size(json_object_get(j, "batches")) == 9);
    bool on_l40s = false;
    json_array_foreach(json_object_get(again, "cards"), i, name) on_l40s |=
        !strcmp(json_string_value(name), "L40S");
    EXPECT(on_l40s &&
           number(again, "total_bytes") < 22000000000); /* the guide: 14 to 22 GB, with an evaluator beside it */
    EXPECT(number(kept, "total_bytes") > 48000000000);  /* and nothing like it with every activation kept */
    json_decref(j);
}

#define ANSWERS "--task generate --model deepseek-r1-distill-qwen-7b --gpu T4 --prompt-tokens 1024 --max-tokens 4096 "

TEST(answers_of_7b_in_12_gib_on_a_card_of_15) {
    int code;
    /* in 16 bits 15.2 GB of weights alone: what loading it met on that card. 9 of its layers have to wait elsewhere */
    json_t *half = plan(&code, ANSWERS "--budget 12GiB --offload none"), *row;
    EXPECT(code == 3 && json_is_false(json_object_get(half, "fits")) && number(half, "slots") == 1);
    EXPECT(line(half, "weights") == 15231233024 && number(device(half), "process_planned_bytes") > 14.7 * (double)GIB);
    json_t *sent = plan(&code, ANSWERS "--budget 12GiB --max-memory host=32GiB");
    int64_t layers = number(sent, "layers_sent");
    const json_t *pinned = json_object_get(json_object_get(sent, "pools"), "pinned");
    EXPECT(code == 0 && json_is_true(json_object_get(sent, "fits")) && layers >= 8 && layers <= 10);
    EXPECT(number(pinned, "process_planned_bytes") >= layers * 2 * 233046016LL); /* the four products of a layer */
    EXPECT(line(sent, "weights") + layers * 2 * 233046016LL == line(half, "weights"));
    EXPECT(number(device(sent), "process_planned_bytes") <= 12 * GIB);
    json_t *small = plan(&code, ANSWERS "--budget 12GiB --max-memory host=2GiB"); /* the host's memory is part of it */
    EXPECT(code == 3 && json_is_false(json_object_get(small, "fits")));
    /* 8 bit: everything stays, and ten problems of 5,120 tokens are answered at a time instead of one */
    json_t *bytes = plan(&code, ANSWERS "--budget 12GiB --quantize int8");
    EXPECT(code == 0 && number(bytes, "layers_sent") == 0 && number(bytes, "slots") >= 9);
    EXPECT(line(bytes, "quantised weights") > 6500000000 && line(bytes, "quantised weights") < 6600000000);
    EXPECT(line(bytes, "cache") == number(bytes, "slots") * 5120LL * 28 * 2 * 4 * 128 * 2);
    size_t i;
    json_array_foreach(json_object_get(bytes, "slots_that_fit"), i, row) { /* the table is made of plans */
        char flags[400];
        int64_t n = number(row, "int8"), context = number(row, "context");
        if (!n || context > 10000) continue;
        snprintf(flags, sizeof flags, ANSWERS "--budget 12GiB --quantize int8 --offload none --context %lld --slots %lld",
                 (long long)context, (long long)n);
        json_decref(plan(&code, flags));
        EXPECT(code == 0);
        snprintf(flags, sizeof flags, ANSWERS "--budget 12GiB --quantize int8 --offload none --context %lld --slots %lld",
                 (long long)context, (long long)n + 1);
        json_decref(plan(&code, flags));
        EXPECT(code == 3);
    }
    EXPECT(i == 4);
    json_decref(half), json_decref(sent), json_decref(small), json_decref(bytes);
}
