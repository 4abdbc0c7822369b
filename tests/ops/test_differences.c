/* test_differences.c - the gradients of products, adapters and heads against central differences of their forward
 * formulas in doubles; how much an adapter's dropout drops. */
#include "tests/ops/bench.h"

enum { N = 5, K = 6, M = 7 };

/* sum of dy * (x w^T + bias) */
typedef struct Linear {
    double *x, *w, *bias, *dy;
} Linear;

static double linear_loss(void *context) {
    const Linear *k = context;
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++) {
            double y = k->bias[j];
            for (int c = 0; c < K; c++) y += k->x[i * K + c] * k->w[j * K + c];
            sum += k->dy[i * M + j] * y;
        }
    return sum;
}

static Tid normal_matrix(Bench *b, int64_t rows, int64_t cols, uint64_t key) {
    return bench_draw(b, FMT_F32, rows, cols, key);
}

TEST(linear_gradients_follow_differences) {
    Bench b;
    bench_open(&b, "linear %d x %d x %d", N, M, K);
    Tid x = normal_matrix(&b, N, K, 1), w = normal_matrix(&b, M, K, 2), bias = normal_matrix(&b, 1, M, 3);
    Tid dy = normal_matrix(&b, N, M, 4), dx = bench_matrix(&b, FMT_F32, N, K);
    Tid dw = bench_matrix(&b, FMT_F32, M, K);
    Tid db = bench_vector(&b, FMT_F32, M), first = bench_number(&b, FMT_F32, 0), clock = bench_clock(&b, 1);
    Linear k = {bench_initial(&b, x), bench_initial(&b, w), bench_initial(&b, bias), bench_initial(&b, dy)};
    bench_run(&b, (Step){.op = OP_LINEAR_DX, .linear_dx = {.in = {dy, w}, .out = {dx}}}, 1, false);
    bench_differences(&b, "dx", k.x, bench_now(&b, dx), N * K, linear_loss, &k, 1e-5);
    bench_run(&b,
              (Step){.op = OP_LINEAR_DW,
                     .linear_dw = {.in = {.dy = dy, .x = x, .beta = first, .clock = clock}, .out = {dw}}},
              1, false);
    bench_differences(&b, "dw", k.w, bench_now(&b, dw), M * K, linear_loss, &k, 1e-5);
    bench_run(&b, (Step){.op = OP_LINEAR_DB, .linear_db = {.in = {dy, first, clock}, .out = {db}}}, 1, false);
    bench_differences(&b, "db", k.bias, bench_now(&b, db), M, linear_loss, &k, 1e-5);
    bench_close(&b);
}

/* sum of dy * (scale * (x a_g^T) b_g^T in each group's columns) */
typedef struct Lora {
    AttrLora at;
    double *x, *a, *b, *dy;
} Lora;

static double lora_loss(void *context) {
    const Lora *k = context;
    double sum = 0;
    int64_t row = 0;
    for (int g = 0; g < k->at.groups; row += k->at.rows[g++])
        for (int i = 0; i < N; i++)
            for (int64_t j = 0; j < k->at.rows[g]; j++)
                for (int r = 0; r < k->at.rank; r++) {
                    double u = 0;
                    for (int c = 0; c < K; c++) u += k->x[i * K + c] * k->a[(g * k->at.rank + r) * K + c];
                    sum += k->dy[i * M + k->at.col[g] + j] * k->at.scale * u * k->b[(row + j) * k->at.rank + r];
                }
    return sum;
}

TEST(lora_gradients_follow_differences) {
    Bench b;
    AttrLora at = {.groups = 2, .rank = 3, .col = {1, 5}, .rows = {3, 2}, .scale = 0.5f};
    bench_open(&b, "lora in two groups");
    Tid x = normal_matrix(&b, N, K, 1), a = normal_matrix(&b, 6, K, 2), up = normal_matrix(&b, 5, 3, 3);
    Tid dy = normal_matrix(&b, N, M, 4);
    Tid y0 = normal_matrix(&b, N, M, 5), y = bench_matrix(&b, FMT_F32, N, M), u = bench_matrix(&b, FMT_F32, N, 6);
    Tid du = bench_matrix(&b, FMT_F32, N, 6), dup = bench_matrix(&b, FMT_F32, 5, 3);
    Tid da = bench_matrix(&b, FMT_F32, 6, K);
    Tid dx = bench_matrix(&b, FMT_F32, N, K), first = bench_number(&b, FMT_F32, 0), clock = bench_clock(&b, 1);
    Lora k = {at, bench_initial(&b, x), bench_initial(&b, a), bench_initial(&b, up), bench_initial(&b, dy)};
    bench_run(&b,
              (Step){.op = OP_LORA,
                     .lora = {.in = {.y0 = y0, .x = x, .a = a, .b = up, .clock = clock}, .out = {y, u}},
                     .attr.lora = at},
              1, false);
    memcpy(b.initial[u], b.now[u], (size_t)prog_bytes(&b.p, u));
    bench_run(&b,
              (Step){.op = OP_LORA_DB,
                     .lora_db = {.in = {.dy = dy, .u = u, .beta = first, .clock = clock}, .out = {dup}},
                     .attr.lora = at},
              1, false);
    bench_differences(&b, "db", k.b, bench_now(&b, dup), 5 * 3, lora_loss, &k, 1e-5);
    bench_run(&b, (Step){.op = OP_LORA_DU, .lora_du = {.in = {dy, up}, .out = {du}}, .attr.lora = at}, 1, false);
    memcpy(b.initial[du], b.now[du], (size_t)prog_bytes(&b.p, du));
    bench_run(&b,
              (Step){.op = OP_LORA_DA,
                     .lora_da = {.in = {.du = du, .x = x, .beta = first, .clock = clock}, .out = {da}},
                     .attr.lora = at},
              1, false);
    bench_differences(&b, "da", k.a, bench_now(&b, da), 6 * K, lora_loss, &k, 1e-5);
    bench_run(&b, (Step){.op = OP_LORA_DX, .lora_dx = {.in = {du, a, clock}, .out = {dx}}, .attr.lora = at}, 1,
              false);
    bench_differences(&b, "dx", k.x, bench_now(&b, dx), N * K, lora_loss, &k, 1e-5);
    bench_close(&b);
}

/* With one input of 1 and a = 1, u shows what dropout did: 0, or 1/(1-p). */
TEST(dropout_keeps_its_share_and_the_mean) {
    enum { TOKENS = 20000 };
    static const float shares[] = {0.05f, 0.5f};
    for (int s = 0; s < COUNT_OF(shares); s++) {
        Bench b;
        float p = shares[s];
        AttrLora at = {.groups = 1, .rank = 1, .rows = {1}, .scale = 1, .dropout = p};
        bench_open(&b, "dropout %g", p);
        Tid x = bench_matrix(&b, FMT_F32, TOKENS, 1), one = bench_matrix(&b, FMT_F32, 1, 1);
        Tid y0 = bench_matrix(&b, FMT_F32, TOKENS, 1);
        Tid y = bench_matrix(&b, FMT_F32, TOKENS, 1), u = bench_matrix(&b, FMT_F32, TOKENS, 1);
        Tid clock = bench_clock(&b, 8);
        double *ones = bench_doubles(&b, TOKENS);
        for (int i = 0; i < TOKENS; i++) ones[i] = 1;
        bench_set(&b, x, ones);
        bench_set(&b, y0, ones);
        bench_set(&b, one, ones);
        bench_check(&b,
                    (Step){.op = OP_LORA,
                           .lora = {.in = {.y0 = y0, .x = x, .a = one, .b = one, .clock = clock}, .out = {y, u}},
                           .attr.lora = at});
        const double *got = bench_now(&b, u);
        double kept = 0, repeats = 0, strange = 0;
        for (int i = 0; i < TOKENS; i++) {
            kept += got[i] != 0;
            if (i) repeats += got[i] != 0 && got[i - 1] != 0;
            strange += got[i] != 0 && fabs(got[i] - 1 / (1 - (double)p)) > 1e-6;
        }
        double spread = 5 * sqrt(p * (1 - p) / TOKENS);
        EXPECT_NEAR(kept / TOKENS, 1 - (double)p, spread);
        /* neighbours are independent */
        EXPECT_NEAR(repeats / TOKENS, (1 - (double)p) * (1 - (double)p), 2 * spread);
        EXPECT(strange == 0);
        bench_close(&b);
    }
}

/* sum of dlogp * log-softmax(x w^T)[label] */
typedef struct Head {
    const int32_t *labels;
    double *x, *w, *dlogp, scale;
} Head;

static double head_loss(void *context) {
    const Head *k = context;
    double sum = 0;
    for (int i = 0; i < N; i++) {
        double z[M], total = 0;
        for (int j = 0; j < M; j++) {
            z[j] = 0;
            for (int c = 0; c < K; c++) z[j] += k->scale * k->x[i * K + c] * k->w[j * K + c];
            total += exp(z[j]);
        }
        if (k->labels[i] >= 0) sum += k->dlogp[i] * (z[k->labels[i]] - log(total));
    }
    return sum;
}

static void head_case(float scale) {
    Bench b;
    static const int32_t labels[N] = {3, -1, 0, M - 1, 3};
    AttrHead at = {.chunk = 128, .scale = scale};
    bench_open(&b, "head %d x %d x %d, logits times %g", N, M, K, (double)scale);
    Tid x = normal_matrix(&b, N, K, 1), w = normal_matrix(&b, M, K, 2), to = bench_vector(&b, FMT_I32, N);
    Tid dlogp = normal_matrix(&b, 1, N, 3), logp = bench_vector(&b, FMT_F32, N);
    Tid lse = bench_vector(&b, FMT_F32, N);
    Tid dx = bench_matrix(&b, FMT_F32, N, K), dw = bench_matrix(&b, FMT_F32, M, K);
    Tid first = bench_number(&b, FMT_F32, 0), clock = bench_clock(&b, 1);
    bench_set_i32(&b, to, labels);
    Head k = {labels, bench_initial(&b, x), bench_initial(&b, w), bench_initial(&b, dlogp), (double)scale};
    bench_run(&b, (Step){.op = OP_HEAD_LOGP, .head_logp = {.in = {x, w, to}, .out = {logp, lse}}, .attr.head = at},
              1, false);
    double sum = 0, *got = bench_now(&b, logp);
    for (int i = 0; i < N; i++) sum += k.dlogp[i] * got[i];
    EXPECT_NEAR(sum, head_loss(&k), 1e-5);
    memcpy(b.initial[lse], b.now[lse], (size_t)prog_bytes(&b.p, lse));
    Step grad = {
        .op = OP_HEAD_LOGP_GRAD,
        .head_logp_grad = {
            .in = {.x = x, .w = w, .labels = to, .lse = lse, .dlogp = dlogp, .beta = first, .clock = clock},
            .out = {dx, dw}}};
    grad.attr.head = at;
    bench_run(&b, grad, 1, false);
    bench_differences(&b, "dx", k.x, bench_now(&b, dx), N * K, head_loss, &k, 1e-5);
    bench_differences(&b, "dw", k.w, bench_now(&b, dw), M * K, head_loss, &k, 1e-5);
    Step sweep = {
        .op = OP_HEAD_SWEEP,
        .head_sweep = {.in = {.x = x, .w = w, .labels = to, .dlogp = dlogp, .beta = first, .clock = clock},
                       .out = {.logp = logp, .lse = lse, .dx = dx, .dw = dw}}};
    sweep.attr.head = at;
    bench_run(&b, sweep, 1, false);
    bench_differences(&b, "dx of the sweep", k.x, bench_now(&b, dx), N * K, head_loss, &k, 1e-5);
    bench_differences(&b, "dw of the sweep", k.w, bench_now(&b, dw), M * K, head_loss, &k, 1e-5);
    bench_close(&b);
}

TEST(head_gradients_follow_differences) {
    head_case(1);
    head_case(1 / 0.7f);
}
