/* test_recompute.c - levels drop what they say, clones are as few as backward reads, results stay the same. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

static void all_layers(RecomputeLevel *per_layer, int layers, RecomputeLevel level) {
    for (int i = 0; i < layers; i++) per_layer[i] = level;
}

static bool reads(const Program *p, const Step *s, Tid base) {
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] && prog_base(p, s->in[k]) == base) return true;
    return false;
}

static int count_clones(const Program *p, int layer, OpId op) { /* op OP_COUNT: any */
    int n = 0;
    for (int64_t i = 0; i < p->n_s; i++)
        n += p->s[i].clone_of >= 0 && p->s[i].layer == layer && (op == OP_COUNT || p->s[i].op == op);
    return n;
}

static Decoder tiny(int rank, bool head_norms) {
    Decoder d = decoder_tiny;
    d.rank = rank;
    d.head_norms = head_norms;
    return d;
}

TEST(recompute_option_is_parsed) {
    RecomputeLevel l[28];
    Err e = {0};
    EXPECT_OK(plan_parse_recompute(l, 28, "ffn", &e));
    EXPECT(l[0] == RECOMPUTE_FFN && l[27] == RECOMPUTE_FFN);
    EXPECT_OK(plan_parse_recompute(l, 28, "block:0-13,norm:15-27", &e));
    EXPECT(l[0] == RECOMPUTE_BLOCK && l[13] == RECOMPUTE_BLOCK && l[14] == RECOMPUTE_NONE &&
           l[15] == RECOMPUTE_NORM);
    EXPECT_OK(plan_parse_recompute(l, 28, "ffn:3", &e));
    EXPECT(l[2] == RECOMPUTE_NONE && l[3] == RECOMPUTE_FFN && l[4] == RECOMPUTE_NONE);
    EXPECT_OK(plan_parse_recompute(l, 28, "none", &e));
    EXPECT_STR(plan_recompute_name(RECOMPUTE_BLOCK), "block");
    const char *const wrong[] = {
        "",       "blok",      "block:", "block:0-28", "block:5-3", "block:0-13,norm", "block:0-3,norm:3", "ffn:x",
        "ffn:1-", "ffn:1-2-3", "ffn:1,", ",ffn:1",     "ffn:-1",    "ffn:99999999999", "ffn:1;norm:2"};
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        e = (Err){0};
        if (!EXPECT(!plan_parse_recompute(l, 28, wrong[i], &e) && e.code == ERR_USAGE && e.text[0]))
            test_note("    '%s'", wrong[i]);
    }
    plan_parse_recompute(l, 28, "blok", &e);
    EXPECT(strstr(e.text, "Did you mean block?") != NULL);
}

/* Per layer and level: how many clones of which ops. Nothing else is cloned: not the down projection, not its
 * adapter, not the last add, and no head norm (backward reads what comes before and after it, never its output
 * alone). */
typedef struct Expected {
    int norm, linear, lora, rope, head_norm, attend, add, swiglu;
} Expected;

static void check_clones(const Program *p, int layer, const Expected *x) {
    EXPECT(count_clones(p, layer, OP_RMSNORM) == x->norm && count_clones(p, layer, OP_LINEAR) == x->linear);
    EXPECT(count_clones(p, layer, OP_LORA) == x->lora && count_clones(p, layer, OP_ROPE) == x->rope);
    EXPECT(count_clones(p, layer, OP_HEAD_NORM) == x->head_norm && count_clones(p, layer, OP_ATTEND) == x->attend);
    EXPECT(count_clones(p, layer, OP_ADD) == x->add && count_clones(p, layer, OP_SWIGLU) == x->swiglu);
    EXPECT(count_clones(p, layer, OP_COUNT) ==
           x->norm + x->linear + x->lora + x->rope + x->head_norm + x->attend + x->add + x->swiglu);
}

TEST(recompute_clones_only_what_backward_reads) {
    for (int variant = 0; variant < 4; variant++) {
        int lora = variant & 1, normed = variant >> 1;
        const Expected expected[RECOMPUTE_LEVELS] = {
            [RECOMPUTE_NORM] = {.norm = 2, .swiglu = 1},
            [RECOMPUTE_FFN] = {.norm = 2, .linear = 1, .lora = lora, .swiglu = 1},
            [RECOMPUTE_BLOCK] = {2, 3, 3 * lora, 1, normed, 1, 1, 1},
            /* q, k, v once more in front of attention's gradient, and the norm there and behind it */
            [RECOMPUTE_TWICE] = {4, 4, 4 * lora, 2, 2 * normed, 1, 1, 1}};
        for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
            Decoder d = tiny(lora ? 2 : 0, normed);
            Program p;
            RecomputeLevel per_layer[8];
            decoder_record(&p, &d);
            all_layers(per_layer, d.layers, (RecomputeLevel)level);
            plan_recompute(&p, per_layer, d.layers);
            for (int l = 0; l < d.layers; l++) check_clones(&p, l, &expected[level]);
            EXPECT(count_clones(&p, -1, OP_COUNT) == 0);
            prog_free(&p);
        }
    }
}

/* A clone is read, keeps key and constants, and stands in front of its first reader; originals end in forward. */
TEST(recompute_clones_are_in_order_and_used) {
    Decoder d = tiny(2, true);
    Program p;
    RecomputeLevel per_layer[8];
    decoder_record(&p, &d);
    all_layers(per_layer, d.layers, RECOMPUTE_BLOCK);
    plan_recompute(&p, per_layer, d.layers);
    int evaluate = p.phase[prog_find_phase(&p, "evaluate")].begin;
    for (int i = 0; i < p.n_s; i++) {
        const Step *c = &p.s[i];
        if (c->clone_of < 0) continue;
        const Step *o = &p.s[c->clone_of];
        bool read = false;
        for (int64_t j = i + 1; j < p.n_s; j++)
            for (int k = 0; k < MAX_OUT; k++) read |= c->out[k] && reads(&p, &p.s[j], c->out[k]);
        EXPECT(read && o->key == c->key && o->op == c->op && o->region == REGION_FORWARD &&
               c->region == REGION_RECOMPUTE);
        EXPECT(i < evaluate && c->clone_of < i);
        for (int64_t j = c->clone_of + 1; j < p.n_s; j++)
            EXPECT(p.s[j].region != REGION_BACKWARD || !reads(&p, &p.s[j], prog_first_out(o)));
    }
    prog_free(&p);
}

/* An adapter's small u is kept when only it would ask for the product again: the down projection's. */
TEST(recompute_keeps_small_outputs_of_steps_not_cloned) {
    Decoder d = tiny(2, false);
    Program p;
    RecomputeLevel per_layer[8];
    decoder_record(&p, &d);
    all_layers(per_layer, d.layers, RECOMPUTE_BLOCK);
    plan_recompute(&p, per_layer, d.layers);
    int kept = 0, again = 0;
    for (int64_t i = 0; i < p.n_s; i++) {
        if (p.s[i].op != OP_LORA_DB) continue;
        for (int64_t j = 0; j < i; j++)
            if (p.s[j].op == OP_LORA && p.s[j].lora.out.u == p.s[i].lora_db.in.u)
                *(p.s[j].clone_of >= 0 ? &again : &kept) += 1;
    }
    EXPECT(kept == d.layers && again == 3 * d.layers);
    prog_free(&p);
}

static Placement planned(Program *p, const Decoder *d, const RecomputeLevel *per_layer, const Machine *m) {
    decoder_record(p, d);
    if (per_layer) plan_recompute(p, per_layer, d->layers);
    return plan_all(p, m);
}

TEST(recompute_keeps_results) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA; /* small scratch */
    for (int variant = 0; variant < 16; variant++) {
        Decoder d = tiny(variant & 1 ? 2 : 0, variant & 2);
        RecomputeLevel per_layer[8];
        for (int l = 0; l < d.layers; l++)
            per_layer[l] = (RecomputeLevel)((variant / 4 + (variant & 1 ? l : 0)) % RECOMPUTE_LEVELS);
        Program plain, again;
        Err e = {0};
        planned(&plain, &d, NULL, &m);
        Placement pl = planned(&again, &d, per_layer, &m);
        EXPECT_OK(plan_verify(&again, &e));
        EXPECT(play_differs(&again, pl.arena_bytes) < 0);
        int64_t state = prog_find(&plain, "parts"); /* weights, adapters, gradients, moments stand before it */
        EXPECT(play_same_state(&plain, &again, state));
        prog_free(&plain);
        prog_free(&again);
    }
}

TEST(recompute_saves_memory_and_costs_time) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    int64_t before = INT64_MAX;
    double seconds = 0;
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        Program p;
        RecomputeLevel per_layer[28];
        all_layers(per_layer, 28, (RecomputeLevel)level);
        Placement pl = planned(&p, &decoder_7b, per_layer, &m);
        double now = plan_step_seconds(&p, &m, prog_find_phase(&p, "micro"));
        EXPECT(pl.arena_bytes[POOL_DEVICE] < before && now > seconds);
        before = pl.arena_bytes[POOL_DEVICE];
        seconds = now;
        prog_free(&p);
    }
}
