/* test_family.c - a block of another family needs no pass to be taught: a gated attention over what an indexer chose,
 * with two steps that mix tokens, a gate and a norm inside its attention, goes through all of them as recorded. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

static Decoder sparse(int rank) {
    Decoder d = decoder_tiny;
    d.sparse = true;
    d.rank = rank;
    return d;
}

static void recompute(Program *p, const Decoder *d, RecomputeLevel level) {
    RecomputeLevel per_layer[8];
    for (int l = 0; l < d->layers; l++) per_layer[l] = level;
    plan_recompute(p, per_layer, d->layers);
}

static bool mixes(const Step *s) { return op_row(s->op)->flags & OPF_MIXES_TOKENS; }

TEST(another_block_goes_through_every_pass) {
    for (int variant = 0; variant < 4 * RECOMPUTE_LEVELS; variant++) {
        Decoder d = sparse(variant & 1 ? 2 : 0);
        RecomputeLevel level = (RecomputeLevel)(variant / 4);
        Machine m = machine_generic_cpu(2);
        Program plain, passed;
        Err e = {0};
        if (variant & 1) d.home = (Home){POOL_PINNED, FMT_BF16, 0};
        decoder_record(&plain, &d);
        decoder_record(&passed, &d);
        int64_t recorded = plain.n_t;
        plan_sweep(&passed);
        recompute(&passed, &d, level);
        plan_fuse(&passed);
        plan_offload(&passed, d.layers, variant & 2);
        plan_materialise(&passed);
        plan_all(&plain, &m);
        Placement pl = plan_all(&passed, &m);
        EXPECT_OK(plan_verify(&passed, &e));
        EXPECT(play_differs(&passed, pl.arena_bytes) < 0 && play_same_state(&plain, &passed, recorded));
        prog_free(&plain);
        prog_free(&passed);
    }
}

/* At "ffn" what attention holds is kept, but for what is cheap: also behind the norm that stands inside it. */
TEST(levels_follow_the_parts_that_were_recorded) {
    Decoder d = sparse(0);
    for (int level = RECOMPUTE_NORM; level < RECOMPUTE_LEVELS; level++) {
        Program p;
        int of_attention = 0, of_ffn = 0, mixed = 0;
        decoder_record(&p, &d);
        recompute(&p, &d, (RecomputeLevel)level);
        for (int64_t i = 0; i < p.n_s; i++) {
            const Step *s = &p.s[i];
            if (s->clone_of < 0 || op_row(s->op)->flags & OPF_CHEAP) continue;
            *(s->part == PART_FFN ? &of_ffn : &of_attention) += 1;
            mixed += mixes(s);
        }
        EXPECT((of_ffn > 0) == (level >= RECOMPUTE_FFN) && (of_attention > 0) == (level >= RECOMPUTE_BLOCK));
        EXPECT(mixed == (level >= RECOMPUTE_BLOCK ? 2 * d.layers : 0)); /* the indexer's and attention's own, once */
        prog_free(&p);
    }
}

TEST(only_the_feed_forward_is_cut_into_pieces) {
    Decoder d = sparse(0);
    Machine m = machine_generic_cpu(2);
    Program p;
    Err e = {0};
    int cut = 0, whole = 0;
    decoder_record(&p, &d);
    recompute(&p, &d, RECOMPUTE_BLOCK);
    plan_chunk_ffn(&p, d.tokens / 2);
    for (int64_t i = 0; i < p.n_s; i++) {
        const Step *s = &p.s[i];
        if (s->op != OP_SWIGLU) continue;
        bool half = prog_rows(&p, s->swiglu.out.h) == d.tokens / 2;
        EXPECT(half == (s->part == PART_FFN));
        *(half ? &cut : &whole) += 1;
    }
    EXPECT(cut == 2 * 3 * d.layers && whole == 3 * d.layers); /* forward, recomputed, evaluated */
    plan_all(&p, &m);
    EXPECT_OK(plan_verify(&p, &e));
    prog_free(&p);
}

/* Late, what a layer needs comes back when the layer before has the first gradient that mixes tokens behind it. */
TEST(offloaded_inputs_come_back_behind_whatever_attends) {
    Decoder d = sparse(0);
    Program p;
    int found = 0;
    decoder_record(&p, &d);
    recompute(&p, &d, RECOMPUTE_BLOCK);
    plan_offload(&p, d.layers, true);
    for (int i = 0; i < p.n_s; i++) {
        if (p.s[i].queue != QUEUE_COPY_IN || p.s[i].layer < 0) continue;
        int before = i - 1;
        while (p.s[before].region == REGION_MOVE) before--;
        EXPECT(mixes(&p.s[before]) && p.s[before].region == REGION_BACKWARD);
        found++;
    }
    EXPECT(found == d.layers - 1); /* the last layer's comes back behind the head, which has no layer */
    prog_free(&p);
}
