/* test_token.c - embeddings, their gradient by sorted ids, and the weighted token sum. */
#include <stdlib.h>

#include "base/rng.h"
#include "tests/ops/bench.h"

static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};

static const int32_t *sort_ids;
static int by_id(const void *x, const void *y) {
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    if (sort_ids[a] != sort_ids[b]) return sort_ids[a] < sort_ids[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

typedef struct Tokens {
    int64_t n;
    int32_t *ids, *order;
} Tokens;

/* Half of the tokens are one id: a run far longer than a block. */
static Tokens some_tokens(Bench *b, int64_t n, int64_t vocab) {
    Tokens t = {n, ARENA_NEW(&b->arena, int32_t, n), ARENA_NEW(&b->arena, int32_t, n)};
    for (int64_t i = 0; i < n; i++) {
        uint32_t r = rng_u32(21, (uint64_t)i);
        t.ids[i] = r & 1 ? (int32_t)(vocab / 2) : (int32_t)((r >> 1) % (uint32_t)vocab);
        t.order[i] = (int32_t)i;
    }
    sort_ids = t.ids;
    qsort(t.order, (size_t)n, sizeof *t.order, by_id);
    return t;
}

static void embed_case(Format table_format, Format f, int64_t n, int64_t vocab, int64_t cols) {
    Bench b;
    bench_open(&b, "embed %s to %s, %lld tokens, table %lld x %lld", format_name(table_format), format_name(f),
               (long long)n, (long long)vocab, (long long)cols);
    Tokens t = some_tokens(&b, n, vocab);
    Tid table = bench_matrix(&b, table_format, vocab, cols), ids = bench_vector(&b, FMT_I32, n);
    Tid x = bench_matrix(&b, f, n, cols);
    bench_set_i32(&b, ids, t.ids);
    bench_normal(&b, table, 1, 1);
    double *rows = bench_initial(&b, table), *want = bench_doubles(&b, n * cols);
    for (int64_t i = 0; i < n; i++) memcpy(want + i * cols, rows + t.ids[i] * cols, (size_t)cols * sizeof *want);
    bench_check(&b, (Step){.op = OP_EMBED, .embed = {.in = {table, ids}, .out = {x}}});
    bench_expect(&b, x, want, 1e-7);
    bench_close(&b);
}

/* beta < 0: the place is empty, which means 1. The op is linear, so its differences are the formula itself. */
static void embed_grad_case(Format f, int64_t n, int64_t vocab, int64_t cols, double beta) {
    Bench b;
    bench_open(&b, "embed_grad %s, %lld tokens, table %lld x %lld, beta %g", format_name(f), (long long)n,
               (long long)vocab, (long long)cols, beta);
    Tokens t = some_tokens(&b, n, vocab);
    Tid dx = bench_matrix(&b, f, n, cols), ids = bench_vector(&b, FMT_I32, n);
    Tid order = bench_vector(&b, FMT_I32, n);
    Tid dial = beta < 0 ? NONE : bench_number(&b, FMT_F32, beta), clock = bench_clock(&b, 9);
    Tid d = bench_matrix(&b, f, vocab, cols);
    bench_set_i32(&b, ids, t.ids);
    bench_set_i32(&b, order, t.order);
    bench_normal(&b, dx, 1, 1);
    double *rows = bench_initial(&b, dx), *want = bench_doubles(&b, vocab * cols);
    if (beta != 0) {
        bench_normal(&b, d, 2, 1);
        want = bench_initial(&b, d);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) want[t.ids[i] * cols + c] += rows[i * cols + c];
    bench_check(
        &b, (Step){.op = OP_EMBED_GRAD,
                   .embed_grad = {.in = {.dx = dx, .ids = ids, .id_order = order, .beta = dial, .clock = clock},
                                  .out = {d}}});
    bench_expect_random(&b, d, want, 3e-6 * sqrt((double)n));
    bench_close(&b);
}

/* sum of dx * table[ids] */
typedef struct Lookup {
    const Tokens *t;
    int64_t cols;
    double *table, *dx;
} Lookup;

static double lookup_loss(void *context) {
    const Lookup *k = context;
    double sum = 0;
    for (int64_t i = 0; i < k->t->n; i++)
        for (int64_t c = 0; c < k->cols; c++) sum += k->dx[i * k->cols + c] * k->table[k->t->ids[i] * k->cols + c];
    return sum;
}

TEST(embed_gradient_follows_differences) {
    Bench b;
    bench_open(&b, "embed_grad, 9 tokens, table 5 x 4");
    Tokens t = some_tokens(&b, 9, 5);
    Tid dx = bench_matrix(&b, FMT_F32, 9, 4), ids = bench_vector(&b, FMT_I32, 9);
    Tid order = bench_vector(&b, FMT_I32, 9);
    Tid first = bench_number(&b, FMT_F32, 0), clock = bench_clock(&b, 9), d = bench_matrix(&b, FMT_F32, 5, 4);
    bench_set_i32(&b, ids, t.ids);
    bench_set_i32(&b, order, t.order);
    bench_normal(&b, dx, 1, 1);
    Lookup k = {&t, 4, bench_doubles(&b, 20), bench_initial(&b, dx)};
    bench_run(&b,
              (Step){.op = OP_EMBED_GRAD,
                     .embed_grad = {.in = {.dx = dx, .ids = ids, .id_order = order, .beta = first, .clock = clock},
                                    .out = {d}}},
              1, false);
    bench_differences(&b, "dtable", k.table, bench_now(&b, d), 20, lookup_loss, &k, 1e-6);
    bench_close(&b);
}

TEST(embed_takes_rows) {
    for (int f = 0; f < COUNT_OF(formats); f++) {
        embed_case(formats[f], formats[f], 1, 1, 1);
        embed_case(formats[f], FMT_F32, 40, 17, 577);
        embed_case(FMT_INT8, formats[f], 33, 11, 1030);
        embed_case(FMT_NF4, formats[f], 33, 11, 1031);
    }
}

TEST(embed_gradient_sums_runs_of_ids) {
    static const double betas[] = {0, 1, -1};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int i = 0; i < COUNT_OF(betas); i++) {
            embed_grad_case(formats[f], 1, 3, 1, betas[i]);
            embed_grad_case(formats[f], 300, 40, 33, betas[i]);
            embed_grad_case(formats[f], 77, 501, 1100, betas[i]);
        }
}

typedef struct Sum {
    int64_t n;
    double *v, *weight, divisor, scale;
} Sum;

static double loss(void *context) {
    const Sum *k = context;
    double sum = 0;
    for (int64_t i = 0; i < k->n; i++) sum += k->v[i] * k->weight[i];
    return k->scale * sum / k->divisor;
}

static void sum_case(int64_t n, double beta) {
    Bench b;
    bench_open(&b, "token_sum of %lld, beta %g", (long long)n, beta);
    Tid v = bench_vector(&b, FMT_F32, n), weight = bench_vector(&b, FMT_F32, n);
    Tid divisor = bench_number(&b, FMT_F32, 37);
    Tid dial = bench_number(&b, FMT_F32, beta), stat = bench_vector(&b, FMT_F64, 1);
    Tid dv = bench_vector(&b, FMT_F32, n);
    double before = 0.25;
    if (beta != 0) bench_set(&b, stat, &before);
    bench_normal(&b, v, 1, 3);
    bench_normal(&b, weight, 2, 1);
    Sum k = {n, bench_initial(&b, v), bench_initial(&b, weight), 37, -1};
    double want = (beta != 0 ? before * beta : 0) + loss(&k);
    bench_check(&b, (Step){.op = OP_TOKEN_SUM,
                           .token_sum = {.in = {.v = v, .weight = weight, .divisor = divisor, .beta = dial},
                                         .out = {stat}},
                           .attr.scale = {-1}});
    bench_expect(&b, stat, &want, 1e-12 * (1 + fabs(want)));
    bench_check(&b, (Step){.op = OP_TOKEN_SUM_GRAD,
                           .token_sum_grad = {.in = {weight, divisor}, .out = {dv}},
                           .attr.scale = {-1}});
    bench_differences(&b, "dv", k.v, bench_now(&b, dv), n, loss, &k, 1e-6);
    bench_close(&b);
}

TEST(token_sum_is_its_formula) {
    static const int64_t lengths[] = {1, 5, 1024, 3001};
    for (int i = 0; i < COUNT_OF(lengths); i++) {
        sum_case(lengths[i], 0);
        sum_case(lengths[i], 1);
    }
}

static void score_case(int64_t n, int64_t vocabulary) {
    Bench b;
    bench_open(&b, "token_score of %lld rows, %lld tokens", (long long)n, (long long)vocabulary);
    Tid logits = bench_matrix(&b, FMT_F32, n, vocabulary), labels = bench_vector(&b, FMT_I32, n);
    Tid score = bench_matrix(&b, FMT_F32, n, TOKEN_SCORES);
    bench_normal(&b, logits, 1, 5);
    double *x = bench_initial(&b, logits), *want = bench_doubles(&b, n * TOKEN_SCORES);
    int32_t *label = MEM_NEW(int32_t, n);
    /* two largest: the first is the likeliest */
    if (n > 2) x[2 * vocabulary] = x[2 * vocabulary + vocabulary - 1] = 40;
    if (n > 3) x[3 * vocabulary + 1] = -INFINITY;
    bench_set(&b, logits, x);
    for (int64_t r = 0; r < n; r++) {
        const double *at = x + r * vocabulary;
        double top = -INFINITY, sum = 0, mean = 0, square = 0;
        int64_t best = 0;
        for (int64_t i = 0; i < vocabulary; i++) best = at[i] > at[best] ? i : best;
        label[r] = (int32_t)(r == 1 ? -1 : r == 2 ? vocabulary - 1 : r % 2 ? best : r * 7 % vocabulary);
        if (label[r] < 0) continue;
        top = at[best];
        for (int64_t i = 0; i < vocabulary; i++) sum += exp(at[i] - top);
        for (int64_t i = 0; i < vocabulary; i++) {
            double logp = at[i] - top - log(sum), p = exp(logp);
            if (p > 0) mean += p * logp, square += p * logp * logp;
        }
        want[r * TOKEN_SCORES + SCORE_LOGP] = at[label[r]] - top - log(sum);
        want[r * TOKEN_SCORES + SCORE_MEAN] = mean;
        want[r * TOKEN_SCORES + SCORE_DEVIATION] = sqrt(square - mean * mean);
        want[r * TOKEN_SCORES + SCORE_LIKELIEST] = label[r] == best;
    }
    bench_set_i32(&b, labels, label);
    bench_check(&b, (Step){.op = OP_TOKEN_SCORE, .token_score = {.in = {logits, labels}, .out = {score}}});
    bench_expect(&b, score, want, 1e-5);
    mem_free(label);
    bench_close(&b);
}

TEST(a_token_is_scored_by_its_distribution) {
    static const int64_t vocabulary[] = {5, 512, 1025, 3000};
    for (int i = 0; i < COUNT_OF(vocabulary); i++) score_case(7, vocabulary[i]);
}
