/* test_norm.c - RMS norms of rows and of heads against the formula, their gradients against it and differences. */
#include <string.h>

#include "tests/ops/bench.h"

static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};

typedef struct Norm { /* rows of n numbers, in doubles */
    int64_t rows, n;
    double eps;
    double *x, *w, *dy;
    double *y, *rstd;
} Norm;

static void forward(const Norm *k) {
    for (int64_t i = 0; i < k->rows; i++) {
        const double *x = k->x + i * k->n;
        double squares = 0;
        for (int64_t c = 0; c < k->n; c++) squares += x[c] * x[c];
        k->rstd[i] = 1 / sqrt(squares / (double)k->n + k->eps);
        for (int64_t c = 0; c < k->n; c++) k->y[i * k->n + c] = x[c] * k->rstd[i] * k->w[c];
    }
}

static double loss(void *context) {
    const Norm *k = context;
    double sum = 0;
    forward(k);
    for (int64_t i = 0; i < k->rows * k->n; i++) sum += k->y[i] * k->dy[i];
    return sum;
}

/* dx and dw are added to. */
static void backward(const Norm *k, double *dx, double *dw) {
    for (int64_t i = 0; i < k->rows; i++) {
        const double *x = k->x + i * k->n, *dy = k->dy + i * k->n;
        double r = k->rstd[i], dot = 0;
        for (int64_t c = 0; c < k->n; c++) dot += dy[c] * k->w[c] * x[c];
        for (int64_t c = 0; c < k->n; c++) {
            dx[i * k->n + c] += r * dy[c] * k->w[c] - x[c] * r * r * r * dot / (double)k->n;
            dw[c] += dy[c] * x[c] * r;
        }
    }
}

static Norm norm_of(Bench *b, int64_t rows, int64_t n, double eps, Tid x, Tid w, Tid dy) {
    Norm k = {rows, n, eps, bench_initial(b, x), bench_initial(b, w), bench_initial(b, dy),
              bench_doubles(b, rows * n), bench_doubles(b, rows)};
    forward(&k);
    return k;
}

static void rows_case(Format f, Format wf, int64_t n, int64_t c) {
    Bench b;
    bench_open(&b, "rmsnorm %s, weights %s, %lld x %lld", format_name(f), format_name(wf), (long long)n,
               (long long)c);
    Tid x = bench_matrix(&b, f, n, c), w = bench_vector(&b, wf, c), y = bench_matrix(&b, f, n, c);
    Tid rstd = bench_vector(&b, FMT_F32, n), dy = bench_matrix(&b, f, n, c);
    bench_normal(&b, x, 1, 2);
    bench_normal(&b, w, 2, 1);
    bench_normal(&b, dy, 3, 1);
    Norm k = norm_of(&b, n, c, 1e-5f, x, w, dy);
    bench_check(&b, (Step){.op = OP_RMSNORM, .rmsnorm = {.in = {x, w}, .out = {y, rstd}}, .attr.norm = {1e-5f}});
    bench_expect(&b, y, k.y, 2e-6);
    bench_expect(&b, rstd, k.rstd, 1e-6);

    Tid so_far = bench_matrix(&b, f, n, c), dx = bench_matrix(&b, f, n, c), dw = bench_vector(&b, wf, c);
    Tid saved = bench_vector(&b, FMT_F32, n), beta = bench_number(&b, FMT_F32, 0.5), clock = bench_clock(&b, 5);
    bench_normal(&b, so_far, 4, 1);
    bench_normal(&b, dw, 5, 1);
    bench_set(&b, saved, k.rstd);
    double *want_dx = bench_initial(&b, so_far), *want_dw = bench_initial(&b, dw);
    for (int64_t i = 0; i < c; i++) want_dw[i] *= 0.5;
    backward(&k, want_dx, want_dw);
    bench_check(
        &b,
        (Step){.op = OP_RMSNORM_GRAD,
               .rmsnorm_grad = {
                   .in = {.dy = dy, .x = x, .w = w, .rstd = saved, .so_far = so_far, .beta = beta, .clock = clock},
                   .out = {dx, dw}}});
    bench_expect(&b, dx, want_dx, 1e-5);
    bench_expect_random(&b, dw, want_dw, 1e-5 * sqrt((double)n) + 1e-6 * (double)n);
    bench_close(&b);
}

/* The same bits as the add and the norm one after the other, sums rounded in between. */
static void fused_case(Format f, Format wf, int64_t n, int64_t c) {
    Bench b;
    bench_open(&b, "add_rmsnorm %s, weights %s, %lld x %lld", format_name(f), format_name(wf), (long long)n,
               (long long)c);
    Tid p = bench_matrix(&b, f, n, c), q = bench_matrix(&b, f, n, c), w = bench_vector(&b, wf, c);
    Tid sum = bench_matrix(&b, f, n, c), y = bench_matrix(&b, f, n, c), rstd = bench_vector(&b, FMT_F32, n);
    bench_normal(&b, p, 1, 2);
    bench_normal(&b, q, 3, 1);
    bench_normal(&b, w, 2, 1);
    int64_t bytes = prog_bytes(&b.p, y), rows = prog_bytes(&b.p, rstd);
    char *want = mem_alloc(2 * bytes + rows);
    bench_check(&b, (Step){.op = OP_ADD, .add = {.in = {p, q}, .out = {sum}}});
    memcpy(want, b.now[sum], (size_t)bytes);
    memcpy(b.initial[sum], b.now[sum], (size_t)bytes);
    bench_check(&b, (Step){.op = OP_RMSNORM, .rmsnorm = {.in = {sum, w}, .out = {y, rstd}}, .attr.norm = {1e-5f}});
    memcpy(want + bytes, b.now[y], (size_t)bytes);
    memcpy(want + 2 * bytes, b.now[rstd], (size_t)rows);
    memset(b.initial[sum], 0xff, (size_t)bytes);
    bench_check(&b, (Step){.op = OP_ADD_RMSNORM,
                           .add_rmsnorm = {.in = {p, q, w}, .out = {y, rstd, sum}},
                           .attr.norm = {1e-5f}});
    EXPECT(!memcmp(want, b.now[sum], (size_t)bytes) && !memcmp(want + bytes, b.now[y], (size_t)bytes) &&
           !memcmp(want + 2 * bytes, b.now[rstd], (size_t)rows));
    mem_free(want);
    bench_close(&b);
}

TEST(add_rmsnorm_is_an_add_and_a_norm) {
    static const int64_t shapes[][2] = {{1, 1}, {1, 7}, {3, 576}, {65, 33}, {17, 1025}, {5, 4099}};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int s = 0; s < COUNT_OF(shapes); s++) fused_case(formats[f], formats[f], shapes[s][0], shapes[s][1]);
    fused_case(FMT_BF16, FMT_F32, 70, 96);
}

TEST(rmsnorm_is_its_formula) {
    static const int64_t shapes[][2] = {{1, 1}, {1, 7}, {3, 576}, {65, 33}, {130, 64}, {17, 1025}, {5, 4099}};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int s = 0; s < COUNT_OF(shapes); s++) rows_case(formats[f], formats[f], shapes[s][0], shapes[s][1]);
    rows_case(FMT_BF16, FMT_F32, 70, 96);
}

TEST(rmsnorm_gradient_follows_differences) {
    Bench b;
    int64_t n = 5, c = 9;
    bench_open(&b, "rmsnorm_grad 5 x 9, nothing to add to");
    Tid x = bench_matrix(&b, FMT_F32, n, c), w = bench_vector(&b, FMT_F32, c);
    Tid dy = bench_matrix(&b, FMT_F32, n, c);
    Tid rstd = bench_vector(&b, FMT_F32, n), dx = bench_matrix(&b, FMT_F32, n, c);
    Tid dw = bench_vector(&b, FMT_F32, c);
    Tid beta = bench_number(&b, FMT_F32, 0), clock = bench_clock(&b, 5);
    bench_normal(&b, x, 1, 0.7);
    bench_normal(&b, w, 2, 1);
    bench_normal(&b, dy, 3, 1);
    Norm k = norm_of(&b, n, c, 1e-2, x, w, dy);
    bench_set(&b, rstd, k.rstd);
    /* beta 0: what stood in dw is poison, and must not be read */
    bench_check(
        &b, (Step){.op = OP_RMSNORM_GRAD,
                   .rmsnorm_grad = {.in = {.dy = dy, .x = x, .w = w, .rstd = rstd, .beta = beta, .clock = clock},
                                    .out = {dx, dw}}});
    bench_differences(&b, "dx", k.x, bench_now(&b, dx), n * c, loss, &k, 1e-5);
    bench_differences(&b, "dw", k.w, bench_now(&b, dw), c, loss, &k, 1e-5);
    /* each output may be absent */
    bench_check(
        &b, (Step){.op = OP_RMSNORM_GRAD,
                   .rmsnorm_grad = {.in = {.dy = dy, .x = x, .w = w, .rstd = rstd, .beta = beta, .clock = clock},
                                    .out = {.dw = dw}}});
    bench_differences(&b, "dw alone", k.w, bench_now(&b, dw), c, loss, &k, 1e-5);
    bench_check(&b, (Step){.op = OP_RMSNORM_GRAD,
                           .rmsnorm_grad = {.in = {.dy = dy, .x = x, .w = w, .rstd = rstd}, .out = {dx}}});
    bench_differences(&b, "dx alone", k.x, bench_now(&b, dx), n * c, loss, &k, 1e-5);
    bench_close(&b);
}

/* One kind of head (q or k) gathered from qkv: token i, head h is row i*heads + h. */
static void gather(double *dst, const double *src, const AttrHeads *a, int64_t tokens, bool is_k, bool back) {
    int64_t heads = is_k ? a->kv_heads : a->heads, width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t c = 0; c < heads * a->head_dim; c++) {
            int64_t wide = i * width + (is_k ? a->heads * a->head_dim : 0) + c;
            int64_t tight = i * heads * a->head_dim + c;
            if (back) dst[wide] = src[tight];
            else dst[tight] = src[wide];
        }
}

static void heads_case(Format f, int64_t tokens, AttrHeads a, bool differences) {
    Bench b;
    int64_t dim = a.head_dim, width = (a.heads + 2 * a.kv_heads) * dim, normed = a.heads + a.kv_heads;
    bench_open(&b, "head_norm %s, %lld tokens, %d+%d heads of %d", format_name(f), (long long)tokens, a.heads,
               a.kv_heads, a.head_dim);
    Tid qkv = bench_matrix(&b, f, tokens, width), y = bench_matrix(&b, f, tokens, width);
    Tid dy = bench_matrix(&b, f, tokens, width);
    Tid rstd = bench_matrix(&b, FMT_F32, tokens, normed), dqkv = bench_matrix(&b, f, tokens, width);
    Tid w[2] = {bench_vector(&b, f, dim), bench_vector(&b, f, dim)};
    Tid dw[2] = {bench_vector(&b, f, dim), bench_vector(&b, f, dim)};
    Tid clock = bench_clock(&b, 3);
    bench_normal(&b, qkv, 1, 1);
    bench_normal(&b, dy, 2, 1);
    double *want_y = bench_initial(&b, qkv), *want_d = bench_initial(&b, dy);
    double *want_r = bench_doubles(&b, tokens * normed);
    Norm k[2];
    double *want_dw[2], *dx[2];
    for (int j = 0; j < 2; j++) {
        int64_t heads = j ? a.kv_heads : a.heads, n = tokens * heads * dim;
        bench_normal(&b, w[j], 3 + (uint64_t)j, 1);
        bench_normal(&b, dw[j], 5 + (uint64_t)j, 1);
        k[j] = (Norm){tokens * heads, dim, a.eps, bench_doubles(&b, n), bench_initial(&b, w[j]),
                      bench_doubles(&b, n), bench_doubles(&b, n), bench_doubles(&b, tokens * heads)};
        gather(k[j].x, bench_initial(&b, qkv), &a, tokens, j, false);
        gather(k[j].dy, bench_initial(&b, dy), &a, tokens, j, false);
        forward(&k[j]);
        gather(want_y, k[j].y, &a, tokens, j, true);
        for (int64_t i = 0; i < tokens * heads; i++)
            want_r[i / heads * normed + (j ? a.heads : 0) + i % heads] = k[j].rstd[i];
        dx[j] = bench_doubles(&b, n);
        want_dw[j] = bench_initial(&b, dw[j]);
        backward(&k[j], dx[j], want_dw[j]);
        gather(want_d, dx[j], &a, tokens, j, true);
    }
    bench_check(
        &b, (Step){.op = OP_HEAD_NORM, .head_norm = {.in = {qkv, w[0], w[1]}, .out = {y, rstd}}, .attr.heads = a});
    bench_expect(&b, y, want_y, 2e-6);
    bench_expect(&b, rstd, want_r, 1e-6);
    bench_set(&b, rstd, want_r);
    bench_check(
        &b,
        (Step){
            .op = OP_HEAD_NORM_GRAD,
            .head_norm_grad = {.in = {.dy = dy, .qkv = qkv, .wq = w[0], .wk = w[1], .rstd = rstd, .clock = clock},
                               .out = {dqkv, dw[0], dw[1]}},
            .attr.heads = a});
    bench_expect(&b, dqkv, want_d, 1e-5);
    for (int j = 0; j < 2; j++) bench_expect_random(&b, dw[j], want_dw[j], 1e-4);
    for (int j = 0; j < 2 && differences; j++) {
        double *got = bench_doubles(&b, tokens * a.heads * dim), *sum = bench_now(&b, dw[j]);
        double *was = bench_initial(&b, dw[j]);
        gather(got, bench_now(&b, dqkv), &a, tokens, j, false);
        for (int64_t c = 0; c < dim; c++) sum[c] -= was[c];
        bench_differences(&b, j ? "dk" : "dq", k[j].x, got, k[j].rows * dim, loss, &k[j], 2e-5);
        bench_differences(&b, j ? "dwk" : "dwq", k[j].w, sum, dim, loss, &k[j], 2e-5);
    }
    bench_close(&b);
}

TEST(head_norm_is_its_formula) {
    for (int f = 0; f < COUNT_OF(formats); f++) {
        heads_case(formats[f], 1, (AttrHeads){.heads = 1, .kv_heads = 1, .head_dim = 1, .seq = 1, .eps = 1e-6f},
                   false);
        heads_case(formats[f], 3, (AttrHeads){.heads = 4, .kv_heads = 2, .head_dim = 7, .seq = 3, .eps = 1e-3f},
                   f == 0);
        heads_case(formats[f], 70, (AttrHeads){.heads = 3, .kv_heads = 1, .head_dim = 64, .seq = 35, .eps = 1e-6f},
                   false);
    }
}
