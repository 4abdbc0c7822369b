/* test_chunks.c - a feed-forward cut into pieces of its tokens: the plan holds the rules in every mode, takes less
 * by what was promised, and leaves alone what cannot be cut. */
#include "tests/test.h"
#include "train/job.h"

enum { TOKENS = 4096, PIECES = 8 };

static JobSpec spec(bool lora, RecomputeLevel level) {
    Err e = {0};
    JobSpec s = {.train = true,
                 .lora = lora,
                 .m.activations = FMT_BF16,
                 .weights = FMT_BF16,
                 .gradients = FMT_BF16,
                 .moments = MOMENTS_BF16,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f},
                 .seq = TOKENS,
                 .micro_batch = 1,
                 .accum = 2,
                 .evaluate = true};
    EXPECT(config_from_preset(&s.m.config, "qwen2.5-0.5b"));
    const char *small[] = {"num_hidden_layers=4", "vocab_size=1024"};
    EXPECT_OK(config_set(&s.m.config, small, NULL, COUNT_OF(small), &e));
    if (lora) s.m.adapter = (LoraSpec){.rank = 8, .alpha = 16, .targets = 127, .format = FMT_BF16};
    for (int l = 0; l < 4; l++) s.recompute[l] = level;
    return s;
}

typedef struct Counts {
    int64_t bytes, steps, swiglus[2], dw; /* of the micro-step: forward and made again; sums into gate and up */
    int64_t largest;                      /* activation as wide as gate and up */
} Counts;

static Counts planned(const JobSpec *s, MachineKind kind) {
    Err e = {0};
    Counts c = {0};
    Job *j = MEM_NEW(Job, 1);
    Ring r;
    Machine m = machine_generic_cpu(2);
    m.kind = kind;
    EXPECT_OK(job_plan(j, &r, s, &m, NULL, &e));
    EXPECT_OK(plan_verify(&r.p, &e));
    const Program *p = &r.p;
    c.bytes = r.placement.arena_bytes[POOL_DEVICE];
    c.steps = p->n_s;
    for (int i = p->phase[j->micro].begin; i < p->phase[j->micro].end; i++) {
        const Step *t = &p->s[i];
        if (t->op == OP_SWIGLU) c.swiglus[t->region == REGION_RECOMPUTE]++;
        if (t->op == OP_LINEAR_DW && prog_rows(p, t->linear_dw.out.dw) == 2 * s->m.config.ffn) c.dw++;
        for (int k = 0; k < MAX_OUT; k++)
            if (t->out[k] && p->t[t->out[k]].role == ROLE_ACTIVATION &&
                prog_cols(p, t->out[k]) == 2 * s->m.config.ffn)
                c.largest = MAX2(c.largest, prog_rows(p, t->out[k]));
    }
    ring_close(&r);
    mem_free(j);
    return c;
}

TEST(pieces_hold_the_rules_in_every_mode) {
    for (int k = 0; k < 64; k++) {
        JobSpec s = spec(k & 1, (RecomputeLevel)(k >> 1 & 3));
        s.ffn_chunks = 3 + k % 5;
        if (k & 8)
            s.m.offload.layers[OFFLOAD_WEIGHTS] = 4, s.m.offload.layers[OFFLOAD_GRADIENTS] = 2,
            s.m.offload.layers[OFFLOAD_INPUTS] = 3;
        if (k & 16 && s.lora) s.m.quantised = true, s.m.stored = k & 32 ? FMT_NF4 : FMT_INT8;
        if (k & 32) s.accum = 1;
        JobSpec whole = s;
        whole.ffn_chunks = 0;
        Counts cut = planned(&s, k & 4 ? MACHINE_CUDA : MACHINE_CPU),
               was = planned(&whole, k & 4 ? MACHINE_CUDA : MACHINE_CPU);
        bool kept = s.recompute[0] < RECOMPUTE_FFN; /* evaluation is cut all the same */
        if (!EXPECT(cut.steps > was.steps && (kept ? cut.bytes <= was.bytes : cut.bytes < was.bytes)))
            test_note("    case %d: %lld bytes, whole %lld", k, (long long)cut.bytes, (long long)was.bytes);
    }
}

TEST(what_lies_between_the_products_exists_for_one_piece) {
    for (int lora = 0; lora < 2; lora++) {
        JobSpec s = spec(lora, RECOMPUTE_BLOCK), whole = s;
        s.ffn_chunks = PIECES;
        Counts cut = planned(&s, MACHINE_CUDA), was = planned(&whole, MACHINE_CUDA);
        EXPECT(was.largest == TOKENS && cut.largest == TOKENS / PIECES);
        EXPECT(cut.swiglus[0] == 4 * PIECES && cut.swiglus[1] == 4 * PIECES && cut.dw == (lora ? 0 : 4 * PIECES));
        /* gate, up, SwiGLU and its gradient at least, of all but one piece */
        int64_t saved = was.bytes - cut.bytes, least = 4 * s.m.config.ffn * TOKENS * 2 * (PIECES - 1) / PIECES;
        if (!EXPECT(saved > least / 2)) test_note("    saved %lld of %lld", (long long)saved, (long long)least);
    }
}

TEST(what_cannot_be_cut_stays_whole) {
    JobSpec s = spec(true, RECOMPUTE_BLOCK);
    s.ffn_chunks = PIECES;
    s.m.adapter.dropout = 0.1f; /* draws are counted from the step's first token */
    Counts cut = planned(&s, MACHINE_CPU);
    EXPECT(cut.swiglus[0] == 4 && cut.swiglus[1] == 4 && cut.largest == TOKENS);
    for (int level = RECOMPUTE_NONE; level < RECOMPUTE_LEVELS;
         level++) { /* up to norm, gate and up are kept for backward */
        s = spec(false, (RecomputeLevel)level);
        s.ffn_chunks = PIECES;
        cut = planned(&s, MACHINE_CPU);
        int64_t times = level >= RECOMPUTE_FFN ? PIECES : 1;
        EXPECT(cut.swiglus[0] == 4 * times && cut.dw == 4 * times);
    }
    s.seq = 128; /* one tile is one piece */
    s.ffn_chunks = 4;
    cut = planned(&s, MACHINE_CPU);
    EXPECT(cut.dw == 4);
}
