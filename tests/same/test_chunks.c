/* test_chunks.c - a feed-forward that takes its tokens in pieces: to the bit where it has no weight gradients to
 * sum, within the rounding of those sums where it has; evaluation always to the bit. */
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { STEPS = 5, ROWS = 20, SEQ = 96, VOCAB = 300 };

typedef struct Outcome {
    double loss[STEPS], eval_loss;
    int n;
    char checksum[24];
} Outcome;

static void make_model_and_rows(void) {
    if (file_is_dir(test_path("m"))) return;
    Ran r = snug_run(
        "init --model qwen2.5-0.5b --out %s --set num_hidden_layers=3 --set hidden_size=64 --set "
        "num_attention_heads=4 "
        "--set num_key_value_heads=2 --set intermediate_size=112 --set vocab_size=%d",
        test_path("m"), VOCAB);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    Str text = {0};
    for (int row = 0; row < ROWS; row++) {
        int n = 40 + (int)(rng_u32(3, (uint64_t)row) % 56);
        str_add(&text, "{\"ids\":[1");
        for (int i = 0; i < n; i++)
            str_addf(&text, ",%d", (int)(rng_u32(4, (uint64_t)(row * 100 + i % 9)) % VOCAB));
        str_add(&text, "]}\n");
    }
    file_write_all(test_path("rows.jsonl"), text.data, text.len, NULL);
    str_free(&text);
}

static Outcome train(const char *flags) {
    static int number;
    Outcome o = {0};
    char out[32];
    make_model_and_rows();
    snprintf(out, sizeof out, "out%d", number++);
    Ran r = snug_run(
        "train --model %s --data %s --out %s --seq %d --global-batch 8 --micro-batch 4 --steps %d --log-steps 1 "
        "--lr 3e-3 "
        "--val-split 0.2 --threads 2 --pack off %s",
        test_path("m"), test_path("rows.jsonl"), test_path(out), SEQ, STEPS, flags);
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("    %s: %s", flags, str_text(&r.err));
    const char *sum = json_string_value(json_object_get(j, "checksum"));
    snprintf(o.checksum, sizeof o.checksum, "%s", sum ? sum : "?");
    o.eval_loss = json_number_value(json_object_get(j, "eval_loss"));
    o.n = snug_metrics(test_path(out), "train", "loss", o.loss, STEPS);
    EXPECT(o.n == STEPS && o.loss[STEPS - 1] < o.loss[0]);
    json_decref(j);
    ran_free(&r);
    return o;
}

static const char *const levels[] = {"--recompute block", "--recompute ffn", "--recompute none",
                                     "--recompute block --offload weights,inputs", "--recompute block:0,norm:1-2"};

TEST(pieces_of_a_frozen_feed_forward_keep_every_bit) {
    static const char *const kinds[] = {"--mode lora --lora-targets q,k,v,o --lora-dropout 0.1 --precision fp32",
                                        "--mode lora --lora-targets q,v --precision bf16",
                                        "--mode lora --lora-targets q,v --quantize nf4"};
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        char flags[300];
        snprintf(flags, sizeof flags, "%s --recompute none", kinds[k]);
        Outcome whole = train(flags);
        for (int l = 0; l < COUNT_OF(levels); l += 1 + 2 * (k > 0 || test_brief())) {
            snprintf(flags, sizeof flags, "%s %s --ffn-chunks %d", kinds[k], levels[l], 2 + l % 2);
            Outcome pieces = train(flags);
            bool same = !strcmp(pieces.checksum, whole.checksum) && pieces.eval_loss == whole.eval_loss;
            for (int i = 0; i < STEPS; i++) same &= pieces.loss[i] == whole.loss[i];
            if (!EXPECT(same))
                test_note("    %s: checksum %s, not %s; losses %.17g, not %.17g", flags, pieces.checksum,
                          whole.checksum, pieces.loss[STEPS - 1], whole.loss[STEPS - 1]);
        }
    }
}

/* The first loss is computed before any sum of pieces was used. */
TEST(pieces_change_the_sums_of_weight_gradients_and_nothing_else) {
    static const struct {
        const char *flags;
        double most; /* of |loss - loss without|, after five updates; stated in docs/techniques.md */
    } kinds[] = {{"--precision fp32", 1e-6},
                 {"--precision bf16", 2e-3},
                 {"--mode lora --lora-rank 8 --precision fp32", 1e-6},
                 {"--mode lora --lora-rank 8 --precision bf16", 2e-3}};
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        char flags[300];
        snprintf(flags, sizeof flags, "%s --recompute block", kinds[k].flags);
        Outcome whole = train(flags);
        for (int n = 2 + test_brief(); n <= 3; n++) {
            double apart = 0;
            snprintf(flags, sizeof flags, "%s --recompute block --ffn-chunks %d", kinds[k].flags, n);
            Outcome pieces = train(flags);
            for (int i = 0; i < STEPS; i++) apart = fmax(apart, fabs(pieces.loss[i] - whole.loss[i]));
            /* two pieces of 384 tokens are 256 and 128, which are the parts of a sum in any case */
            bool other = n == 2 || strcmp(pieces.checksum, whole.checksum);
            if (!EXPECT(pieces.loss[0] == whole.loss[0] && apart <= kinds[k].most && other))
                test_note("    %s: %.3g apart, first losses %.17g and %.17g", flags, apart, pieces.loss[0],
                          whole.loss[0]);
            if (getenv("VERBOSE")) test_note("    %s: %.3g apart", flags, apart);
        }
    }
}
