/* test_head_int8.c - a head stored as int8: what it computes from its codes is what it would compute from the numbers
 * they stand for, and a logit is off by no more than half a code for every number of its row. */
#include "base/rng.h"
#include "tests/ops/bench.h"

typedef struct Heads { /* one head three times: as drawn, as int8, and the numbers of the int8 one */
    Bench b;
    int64_t n, v, c;
    Tid x, drawn, coded, decoded, labels, dlogp, clock, logits, logp, lse, dx;
} Heads;

static void open_heads(Heads *h, int64_t n, int64_t v, int64_t c, Format f) {
    Bench *b = &h->b;
    bench_open(b, "int8 head %lld rows, %lld words, width %lld, %s", (long long)n, (long long)v, (long long)c,
               format_name(f));
    h->n = n, h->v = v, h->c = c;
    h->x = bench_matrix(b, f, n, c);
    h->drawn = bench_matrix(b, FMT_F32, v, c), h->coded = bench_matrix(b, FMT_INT8, v, c);
    h->decoded = bench_matrix(b, FMT_F32, v, c);
    h->labels = bench_vector(b, FMT_I32, n), h->dlogp = bench_vector(b, FMT_F32, n), h->clock = bench_clock(b, 8);
    h->logits = bench_matrix(b, FMT_F32, n, v), h->dx = bench_matrix(b, f, n, c);
    h->logp = bench_vector(b, FMT_F32, n), h->lse = bench_vector(b, FMT_F32, n);
    bench_normal(b, h->x, 1, 1);
    bench_normal(b, h->drawn, 2, 2 / sqrt((double)c));
    format_table[FMT_INT8].encode(b->initial[h->coded], b->initial[h->drawn], v, c, 0, v);
    format_table[FMT_INT8].decode(b->initial[h->decoded], b->initial[h->coded], v, c, 0, v);
    bench_normal(b, h->dlogp, 3, 0.01);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)b->initial[h->labels])[i] = i % 5 == 1 ? -100 : (int32_t)(rng_u32(5, (uint64_t)i) % (uint64_t)v);
}

static double *kept(Heads *h, Tid t) {
    double *copy = bench_doubles(&h->b, prog_elements(&h->b.p, t));
    return memcpy(copy, bench_now(&h->b, t), (size_t)prog_elements(&h->b.p, t) * sizeof *copy);
}

static Step logits_step(const Heads *h, Tid w) {
    return (Step){.op = OP_HEAD_LOGITS, .head_logits = {.in = {h->x, w}, .out = {h->logits}}};
}

static Step logp_step(const Heads *h, Tid w) {
    return (Step){.op = OP_HEAD_LOGP,
                  .head_logp = {.in = {h->x, w, h->labels}, .out = {h->logp, h->lse}},
                  .attr.head = {128}};
}

static Step sweep_step(const Heads *h, Tid w) {
    return (Step){
        .op = OP_HEAD_SWEEP,
        .head_sweep = {.in = {.x = h->x, .w = w, .labels = h->labels, .dlogp = h->dlogp, .clock = h->clock},
                       .out = {h->logp, h->lse, h->dx}},
        .attr.head = {128}};
}

/* The bound of docs/techniques.md. */
static void expect_near_the_drawn(Heads *h) {
    Bench *b = &h->b;
    const double *x = bench_initial(b, h->x), *w = bench_initial(b, h->drawn), *got = kept(h, h->logits);
    bench_run(b, logits_step(h, h->drawn), 1, false);
    const double *full = bench_now(b, h->logits);
    double nearest = 0;
    for (int64_t i = 0; i < h->n * h->v; i++) {
        double most = 0, sum = 0;
        for (int64_t c = 0; c < h->c; c++)
            most = fmax(most, fabs(w[i % h->v * h->c + c])), sum += fabs(x[i / h->v * h->c + c]);
        double bound = most / 127 / 2 * sum, off = fabs(got[i] - full[i]);
        nearest = fmax(nearest, off / bound);
        if (!EXPECT(off <= bound * (1 + 1e-4) + 2e-5)) return;
    }
    EXPECT(nearest > 0.02); /* it was quantised */
}

TEST(a_head_in_int8_computes_what_its_codes_stand_for) {
    static const struct {
        int64_t n, v, c;
        Format f;
    } cases[] = {{1, 530, 70, FMT_F32},  {8, 33, 129, FMT_BF16},  {16, 530, 70, FMT_F32},
                 {17, 530, 70, FMT_F32}, {40, 700, 64, FMT_BF16}, {140, 60, 1300, FMT_F32}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Heads h;
        open_heads(&h, cases[i].n, cases[i].v, cases[i].c, cases[i].f);
        Bench *b = &h.b;
        bench_run(b, logits_step(&h, h.decoded), 1, false);
        const double *logits = kept(&h, h.logits);
        bench_run(b, sweep_step(&h, h.decoded), 1, false);
        const double *logp = kept(&h, h.logp), *dx = kept(&h, h.dx);
        bench_check(b, logp_step(&h, h.coded));
        bench_expect(b, h.logp, logp, 2e-5);
        memcpy(b->initial[h.lse], b->now[h.lse], (size_t)h.n * 4);
        bench_check(b, sweep_step(&h, h.coded));
        bench_expect(b, h.logp, logp, 2e-5);
        bench_expect(b, h.dx, dx, 1e-6);
        bench_check(b, (Step){.op = OP_HEAD_LOGP_GRAD,
                              .head_logp_grad = {.in = {.x = h.x,
                                                        .w = h.coded,
                                                        .labels = h.labels,
                                                        .lse = h.lse,
                                                        .dlogp = h.dlogp,
                                                        .clock = h.clock},
                                                 .out = {h.dx}},
                              .attr.head = {128}});
        bench_expect(b, h.dx, dx, 1e-6);
        bench_check(b, logits_step(&h, h.coded));
        bench_expect(b, h.logits, logits, 2e-5);
        expect_near_the_drawn(&h);
        bench_close(b);
    }
}
