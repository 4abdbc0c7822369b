/* test_kernels.c - everything between the products on the GPU against the CPU: norms, rotary positions, SwiGLU,
 * add, embedding, loss sums, updates, fills, copies and decoded weights, on rows of 1, of odd and of real sizes. */
#include <string.h>

#include "base/rng.h"
#include "tests/cuda/cuda_test.h"

static const Format reals[] = {FMT_F32, FMT_BF16, FMT_F16};
typedef struct Shape {
    int64_t rows, cols;
} Shape;
static const Shape shapes[] = {{1, 1},    {1, 8},    {3, 7},    {5, 64},   {17, 129},
                               {33, 256}, {2, 2048}, {70, 896}, {40, 3584}};

static Tid normal_matrix(CudaTest *t, Format f, int64_t rows, int64_t cols, uint64_t key) {
    Tid id = cuda_test_matrix(t, f, rows, cols);
    cuda_test_normal(t, id, key, 1);
    return id;
}

static Tid normal_vector(CudaTest *t, Format f, int64_t n, uint64_t key) {
    Tid id = cuda_test_vector(t, f, n);
    cuda_test_normal(t, id, key, 1);
    return id;
}

static Tid positive_matrix(CudaTest *t, int64_t rows, int64_t cols, uint64_t key) { /* stands for 1/deviations */
    Tid id = cuda_test_matrix(t, FMT_F32, rows, cols);
    double *x = mem_alloc(rows * cols * (int64_t)sizeof *x);
    for (int64_t i = 0; i < rows * cols; i++) x[i] = 0.5 + rng_uniform(key, (uint64_t)i);
    cuda_test_set(t, id, x);
    mem_free(x);
    return id;
}

static Tid whole_numbers(CudaTest *t, int64_t n, int32_t most, uint64_t key) { /* 0..most */
    Tid id = cuda_test_vector(t, FMT_I32, n);
    int32_t *x = mem_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (int32_t)(rng_u32(key, (uint64_t)i) % (uint32_t)(most + 1));
    cuda_test_set_i32(t, id, x);
    mem_free(x);
    return id;
}

/* The beta dial: 0, 1, or no dial at all. */
static Tid beta_dial(CudaTest *t, int way) {
    return way < 2 ? cuda_test_number(t, FMT_F32, way) : NONE;
}

/* Rounded at random with the same draws: bf16 numbers agree in their bits, but for the few whose fp32 sums
 * differ and fall on the two sides of the draw. */
static void expect_draws(CudaTest *t, Tid id) {
    if (prog_t(&t->p, id)->format != FMT_BF16) return;
    const uint16_t *x = t->gpu[id], *y = t->cpu[id];
    int64_t n = prog_elements(&t->p, id), off = 0;
    for (int64_t i = 0; i < n; i++) off += x[i] != y[i];
    if (off <= 2 + n / 50) return;
    EXPECT(!"the GPU rounds with the CPU's draws");
    test_note("    %s\n    tensor %d: %lld of %lld numbers were rounded elsewhere", t->about, (int)id,
              (long long)off, (long long)n);
}

/* ---- norms ---- */

static void try_rmsnorm(Shape s, Format f, Format fw) {
    CudaTest t;
    cuda_test_open(&t, "rmsnorm %lldx%lld %s, weight %s", (long long)s.rows, (long long)s.cols, format_name(f),
                   format_name(fw));
    Tid x = normal_matrix(&t, f, s.rows, s.cols, 1), w = normal_vector(&t, fw, s.cols, 2);
    Tid y = cuda_test_matrix(&t, f, s.rows, s.cols), rstd = cuda_test_vector(&t, FMT_F32, s.rows);
    cuda_test_run(&t, (Step){.op = OP_RMSNORM, .rmsnorm = {.in = {x, w}, .out = {y, rstd}}, .attr.norm = {1e-6f}},
                  false);
    cuda_test_expect(&t, y, 2e-6);
    cuda_test_expect(&t, rstd, 2e-6);
    cuda_test_close(&t);
}

TEST(rmsnorm_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(reals); k++) {
            try_rmsnorm(shapes[i], reals[k], reals[k]);
            try_rmsnorm(shapes[i], reals[k], FMT_F32);
        }
}

/* Against the CPU, in b's place and not; and the bits are those of the two steps it stands for. */
static void try_add_rmsnorm(Shape s, Format f, Format fw, bool in_place) {
    CudaTest t;
    cuda_test_open(&t, "add_rmsnorm %lldx%lld %s, weight %s%s", (long long)s.rows, (long long)s.cols, format_name(f),
                   format_name(fw), in_place ? ", in place" : "");
    Tid a = normal_matrix(&t, f, s.rows, s.cols, 1), b = normal_matrix(&t, f, s.rows, s.cols, 3);
    Tid w = normal_vector(&t, fw, s.cols, 2), y = cuda_test_matrix(&t, f, s.rows, s.cols);
    Tid rstd = cuda_test_vector(&t, FMT_F32, s.rows), sum = cuda_test_matrix(&t, f, s.rows, s.cols);
    Tid alone = cuda_test_matrix(&t, f, s.rows, s.cols), alone_rstd = cuda_test_vector(&t, FMT_F32, s.rows);
    cuda_test_run(
        &t,
        (Step){
            .op = OP_ADD_RMSNORM, .add_rmsnorm = {.in = {a, b, w}, .out = {y, rstd, sum}}, .attr.norm = {1e-6f}},
        in_place);
    cuda_test_expect(&t, sum, 0);
    cuda_test_expect(&t, y, 2e-6);
    cuda_test_expect(&t, rstd, 2e-6);
    int64_t bytes = prog_bytes(&t.p, y), rows = prog_bytes(&t.p, rstd);
    char *fused = mem_alloc(bytes + rows);
    memcpy(fused, t.gpu[y], (size_t)bytes);
    memcpy(fused + bytes, t.gpu[rstd], (size_t)rows);
    memcpy(t.initial[sum], t.gpu[sum], (size_t)prog_bytes(&t.p, sum));
    cuda_test_run(
        &t,
        (Step){.op = OP_RMSNORM, .rmsnorm = {.in = {sum, w}, .out = {alone, alone_rstd}}, .attr.norm = {1e-6f}},
        false);
    EXPECT(!memcmp(fused, t.gpu[alone], (size_t)bytes) && !memcmp(fused + bytes, t.gpu[alone_rstd], (size_t)rows));
    mem_free(fused);
    cuda_test_close(&t);
}

TEST(add_rmsnorm_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(reals); k++) try_add_rmsnorm(shapes[i], reals[k], k ? reals[k] : FMT_F32, i % 2);
    try_add_rmsnorm((Shape){600, 896}, FMT_BF16, FMT_F32, true); /* more rows than teams of a block, not a multiple */
    try_add_rmsnorm((Shape){5, 9000}, FMT_BF16, FMT_BF16, true);  /* longer than a team keeps */
    try_add_rmsnorm((Shape){3, 4099}, FMT_F16, FMT_F16, false);
}

typedef struct NormWants {
    bool dx, dw, so_far;
    int beta;
} NormWants;

static void try_rmsnorm_grad(Shape s, Format f, Format fg, NormWants want) {
    CudaTest t;
    cuda_test_open(&t, "rmsnorm_grad %lldx%lld %s, gradient %s, dx %d dw %d so_far %d beta %d", (long long)s.rows,
                   (long long)s.cols, format_name(f), format_name(fg), want.dx, want.dw, want.so_far, want.beta);
    Tid dy = normal_matrix(&t, f, s.rows, s.cols, 1), x = normal_matrix(&t, f, s.rows, s.cols, 2);
    Tid w = normal_vector(&t, f, s.cols, 3), rstd = positive_matrix(&t, 1, s.rows, 4),
        clock = cuda_test_clock(&t, 5, 0, 3);
    Tid so_far = want.so_far ? normal_matrix(&t, f, s.rows, s.cols, 6) : NONE, beta = beta_dial(&t, want.beta);
    Tid dx = want.dx ? cuda_test_matrix(&t, f, s.rows, s.cols) : NONE, dw = NONE;
    if (want.dw) dw = want.beta ? normal_vector(&t, fg, s.cols, 7) : cuda_test_vector(&t, fg, s.cols);
    Step step = {
        .op = OP_RMSNORM_GRAD,
        .rmsnorm_grad =
            {.in = {.dy = dy, .x = x, .w = w, .rstd = rstd, .so_far = so_far, .beta = beta, .clock = clock},
             .out = {dx, dw}},
        .attr.norm = {1e-6f}};
    cuda_test_run(&t, step, cuda_test_shares(&step));
    if (dx) cuda_test_expect(&t, dx, 1e-5);
    if (dw) cuda_test_expect(&t, dw, 1e-5 * sqrt((double)s.rows) + 1e-5), expect_draws(&t, dw);
    cuda_test_close(&t);
}

TEST(rmsnorm_gradient_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const NormWants wants[] = {{true, true, true, 0},   {true, true, false, 1},  {true, false, true, 2},
                                      {true, false, false, 2}, {false, true, false, 0}, {true, true, true, 2}};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(wants); k++) {
            try_rmsnorm_grad(shapes[i], FMT_F32, FMT_F32, wants[k]);
            try_rmsnorm_grad(shapes[i], FMT_BF16, FMT_BF16, wants[k]);
        }
    try_rmsnorm_grad(shapes[4], FMT_F16, FMT_F32, wants[0]);
    try_rmsnorm_grad((Shape){5000, 64}, FMT_BF16, FMT_F32, wants[0]); /* parts of 32 rows */
    try_rmsnorm_grad((Shape){37, 1536}, FMT_BF16, FMT_BF16, wants[0]);
    try_rmsnorm_grad((Shape){37, 8192}, FMT_F32, FMT_F32, wants[0]);
    try_rmsnorm_grad((Shape){3, 14336}, FMT_BF16, FMT_BF16, wants[0]); /* sums beyond 48 KB of shared memory */
}

static const AttrHeads some_heads[] = {
    {.heads = 1, .kv_heads = 1, .head_dim = 1, .seq = 1},
    {.heads = 2, .kv_heads = 1, .head_dim = 7, .seq = 1},
    {.heads = 4, .kv_heads = 2, .head_dim = 48, .seq = 1},
    {.heads = 14, .kv_heads = 2, .head_dim = 64, .seq = 1},
    {.heads = 3, .kv_heads = 3, .head_dim = 80, .seq = 1},
    {.heads = 6, .kv_heads = 2, .head_dim = 96, .seq = 1},
    {.heads = 28, .kv_heads = 4, .head_dim = 128, .seq = 1},
    {.heads = 2, .kv_heads = 1, .head_dim = 256, .seq = 1},
};

static int64_t width_of(const AttrHeads *h) {
    return (int64_t)(h->heads + 2 * h->kv_heads) * h->head_dim;
}

static void try_head_norm(AttrHeads h, int64_t tokens, Format f) {
    CudaTest t;
    cuda_test_open(&t, "head_norm %lld tokens, %d/%d heads of %d, %s", (long long)tokens, h.heads, h.kv_heads,
                   h.head_dim, format_name(f));
    h.eps = 1e-6f;
    Tid qkv = normal_matrix(&t, f, tokens, width_of(&h), 1), wq = normal_vector(&t, f, h.head_dim, 2),
        wk = normal_vector(&t, f, h.head_dim, 3);
    Tid y = cuda_test_matrix(&t, f, tokens, width_of(&h)),
        rstd = cuda_test_matrix(&t, FMT_F32, tokens, h.heads + h.kv_heads);
    cuda_test_run(
        &t, (Step){.op = OP_HEAD_NORM, .head_norm = {.in = {qkv, wq, wk}, .out = {y, rstd}}, .attr.heads = h},
        false);
    cuda_test_expect(&t, y, 2e-6);
    cuda_test_near(&t, rstd, 2e-6, 1e-5);
    cuda_test_close(&t);
}

static void try_head_norm_grad(AttrHeads h, int64_t tokens, Format f, int beta_way, bool sums) {
    CudaTest t;
    cuda_test_open(&t, "head_norm_grad %lld tokens, %d/%d heads of %d, %s, beta %d, dw %d", (long long)tokens,
                   h.heads, h.kv_heads, h.head_dim, format_name(f), beta_way, sums);
    Tid dy = normal_matrix(&t, f, tokens, width_of(&h), 1), qkv = normal_matrix(&t, f, tokens, width_of(&h), 2);
    Tid wq = normal_vector(&t, f, h.head_dim, 3), wk = normal_vector(&t, f, h.head_dim, 4);
    Tid rstd = positive_matrix(&t, tokens, h.heads + h.kv_heads, 5), beta = beta_dial(&t, beta_way),
        clock = cuda_test_clock(&t, 9, 0, 1);
    Tid dx = cuda_test_matrix(&t, f, tokens, width_of(&h)), dwq = NONE, dwk = NONE;
    if (sums) dwq = normal_vector(&t, f, h.head_dim, 6), dwk = normal_vector(&t, f, h.head_dim, 7);
    cuda_test_run(
        &t,
        (Step){.op = OP_HEAD_NORM_GRAD,
               .head_norm_grad =
                   {.in = {.dy = dy, .qkv = qkv, .wq = wq, .wk = wk, .rstd = rstd, .beta = beta, .clock = clock},
                    .out = {dx, dwq, dwk}},
               .attr.heads = h},
        false);
    cuda_test_expect(&t, dx, 1e-5);
    double slack = 1e-5 * sqrt((double)(tokens * h.heads)) + 1e-5;
    if (sums) cuda_test_expect(&t, dwq, slack), cuda_test_expect(&t, dwk, slack);
    if (sums) expect_draws(&t, dwq), expect_draws(&t, dwk);
    cuda_test_close(&t);
}

TEST(norms_of_heads_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(some_heads); i++)
        for (int k = 0; k < COUNT_OF(reals); k++) {
            try_head_norm(some_heads[i], 5, reals[k]);
            try_head_norm_grad(some_heads[i], 19, reals[k], i % 3, true);
            try_head_norm_grad(some_heads[i], 3, reals[k], 2, false);
        }
}

/* ---- rotary positions ---- */

static void try_rope(AttrHeads h, int64_t tokens, Format f, bool in_place) {
    CudaTest t;
    cuda_test_open(&t, "rope %lld tokens, %d/%d heads of %d, %s, inverse %d, in place %d", (long long)tokens,
                   h.heads, h.kv_heads, h.head_dim, format_name(f), h.inverse, in_place);
    Tid x = normal_matrix(&t, f, tokens, width_of(&h), 1), at = whole_numbers(&t, tokens, 131071, 2);
    Tid freq = cuda_test_vector(&t, FMT_F32, MAX2(h.head_dim / 2, 1)),
        y = cuda_test_matrix(&t, f, tokens, width_of(&h));
    double inv[128] = {1};
    for (int i = 0; i < h.head_dim / 2; i++) inv[i] = pow(10000.0, -2.0 * i / h.head_dim);
    cuda_test_set(&t, freq, inv);
    h.scale = 1.25f;
    cuda_test_run(&t, (Step){.op = OP_ROPE, .rope = {.in = {x, at, freq}, .out = {y}}, .attr.heads = h}, in_place);
    cuda_test_expect(&t, y, 1e-6);
    cuda_test_close(&t);
}

TEST(rotary_positions_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(some_heads); i++)
        for (int k = 0; k < COUNT_OF(reals); k++) {
            AttrHeads h = some_heads[i];
            try_rope(h, 5, reals[k], false);
            h.inverse = true;
            try_rope(h, 3, reals[k], true);
        }
}

/* ---- elementwise ---- */

static void try_swiglu(Shape s, Format f, bool in_place) {
    CudaTest t;
    cuda_test_open(&t, "swiglu %lldx%lld %s, in place %d", (long long)s.rows, (long long)s.cols, format_name(f),
                   in_place);
    Tid gate_up = cuda_test_matrix(&t, f, s.rows, 2 * s.cols), h = cuda_test_matrix(&t, f, s.rows, s.cols);
    cuda_test_normal(&t, gate_up, 1, 4);
    cuda_test_run(&t, (Step){.op = OP_SWIGLU, .swiglu = {.in = {gate_up}, .out = {h}}}, false);
    cuda_test_expect(&t, h, 2e-5);
    Tid dh = normal_matrix(&t, f, s.rows, s.cols, 2), d = cuda_test_matrix(&t, f, s.rows, 2 * s.cols);
    cuda_test_run(&t, (Step){.op = OP_SWIGLU_GRAD, .swiglu_grad = {.in = {dh, gate_up}, .out = {d}}}, in_place);
    cuda_test_expect(&t, d, 2e-5);
    cuda_test_close(&t);
}

static void try_add(Shape s, Format f, bool in_place) {
    CudaTest t;
    cuda_test_open(&t, "add %lldx%lld %s, in place %d", (long long)s.rows, (long long)s.cols, format_name(f),
                   in_place);
    Tid a = normal_matrix(&t, f, s.rows, s.cols, 1), b = normal_matrix(&t, f, s.rows, s.cols, 2);
    Tid c = cuda_test_matrix(&t, f, s.rows, s.cols);
    cuda_test_run(&t, (Step){.op = OP_ADD, .add = {.in = {a, b}, .out = {c}}}, in_place);
    cuda_test_same(&t, c);
    cuda_test_close(&t);
}

TEST(elementwise_ops_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(reals); k++) {
            try_swiglu(shapes[i], reals[k], i % 2);
            try_add(shapes[i], reals[k], i % 2);
        }
}

/* ---- ids ---- */

typedef struct Ids {
    int64_t tokens;
    int32_t vocab;
    int64_t padding; /* tokens at the end that share one id */
} Ids;

static void order_by_id(int32_t *order, const int32_t *ids, int64_t n, int32_t vocab) {
    int64_t at = 0;
    for (int32_t v = 0; v < vocab; v++)
        for (int64_t i = 0; i < n; i++)
            if (ids[i] == v) order[at++] = (int32_t)i;
}

static void try_embed(Ids k, int64_t cols, Format table_f, Format f, Format gf, int beta_way) {
    CudaTest t;
    cuda_test_open(&t,
                   "embed %lld tokens (%lld padding), %d ids, width %lld: table %s, rows %s, gradient %s, beta %d",
                   (long long)k.tokens, (long long)k.padding, k.vocab, (long long)cols, format_name(table_f),
                   format_name(f), format_name(gf), beta_way);
    int32_t *ids = mem_alloc(k.tokens * 4), *order = mem_alloc(k.tokens * 4);
    for (int64_t i = 0; i < k.tokens; i++)
        ids[i] = i >= k.tokens - k.padding ? k.vocab / 2 : (int32_t)(rng_u32(3, (uint64_t)i) % (uint32_t)k.vocab);
    order_by_id(order, ids, k.tokens, k.vocab);
    Tid table = normal_matrix(&t, table_f, k.vocab, cols, 1), id = cuda_test_vector(&t, FMT_I32, k.tokens);
    Tid by_id = cuda_test_vector(&t, FMT_I32, k.tokens), x = cuda_test_matrix(&t, f, k.tokens, cols);
    cuda_test_set_i32(&t, id, ids);
    cuda_test_set_i32(&t, by_id, order);
    cuda_test_run(&t, (Step){.op = OP_EMBED, .embed = {.in = {table, id, by_id}, .out = {x}}}, false);
    cuda_test_same(&t, x);

    Tid dx = normal_matrix(&t, f, k.tokens, cols, 2), beta = beta_dial(&t, beta_way),
        clock = cuda_test_clock(&t, 11, 0, 2);
    Tid d = cuda_test_matrix(&t, gf, k.vocab, cols);
    if (beta_way) cuda_test_normal(&t, d, 4, 1);
    cuda_test_run(
        &t,
        (Step){.op = OP_EMBED_GRAD,
               .embed_grad = {.in = {.dx = dx, .ids = id, .id_order = by_id, .beta = beta, .clock = clock},
                              .out = {d}}},
        false);
    cuda_test_expect(&t, d, 1e-6 * sqrt((double)k.tokens) + 1e-6);
    expect_draws(&t, d);
    cuda_test_close(&t);
    mem_free(ids);
    mem_free(order);
}

TEST(embedding_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Ids ids[] = {{1, 1, 0},    {7, 3, 2},      {40, 50, 0},    {33, 5, 33},
                              {100, 9, 32}, {300, 20, 180}, {500, 100, 64}, {96, 2, 0}};
    static const int64_t widths[] = {1, 7, 64, 896};
    for (int i = 0; i < COUNT_OF(ids); i++)
        for (int c = 0; c < COUNT_OF(widths); c++) {
            try_embed(ids[i], widths[c], FMT_F32, FMT_F32, FMT_F32, (i + c) % 3);
            try_embed(ids[i], widths[c], FMT_BF16, FMT_BF16, FMT_BF16, (i + c + 1) % 3);
            try_embed(ids[i], widths[c], FMT_INT8, FMT_BF16, FMT_F32, (i + c + 2) % 3);
            try_embed(ids[i], widths[c], FMT_NF4, FMT_BF16, FMT_F32, (i + c) % 3);
        }
    try_embed(ids[5], 64, FMT_F16, FMT_F32, FMT_F16, 1);
}

/* ---- losses ---- */

static void try_token_sum(int64_t n, Format divisor_f, int beta_way) {
    CudaTest t;
    cuda_test_open(&t, "token_sum of %lld, divisor %s, beta %d", (long long)n, format_name(divisor_f), beta_way);
    Tid v = normal_vector(&t, FMT_F32, n, 1), weight = normal_vector(&t, FMT_F32, n, 2),
        divisor = cuda_test_number(&t, divisor_f, 37);
    Tid beta = beta_dial(&t, beta_way),
        stat = beta_way ? cuda_test_number(&t, FMT_F64, 3.5) : cuda_test_vector(&t, FMT_F64, 1);
    cuda_test_run(
        &t,
        (Step){.op = OP_TOKEN_SUM,
               .token_sum = {.in = {.v = v, .weight = weight, .divisor = divisor, .beta = beta}, .out = {stat}},
               .attr.scale = {-1}},
        false);
    cuda_test_near(&t, stat, 1e-12, 1e-12);
    Tid dv = cuda_test_vector(&t, FMT_F32, n);
    cuda_test_run(
        &t,
        (Step){
            .op = OP_TOKEN_SUM_GRAD, .token_sum_grad = {.in = {weight, divisor}, .out = {dv}}, .attr.scale = {-1}},
        false);
    cuda_test_expect(&t, dv, 0);
    cuda_test_close(&t);
}

TEST(token_sums_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const int64_t sizes[] = {1, 31, 1024, 5000};
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int beta = 0; beta < 3; beta++) try_token_sum(sizes[i], beta ? FMT_F32 : FMT_F64, beta);
}

/* ---- updates ---- */

TEST(norm_and_verdict_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Shape sizes[] = {{1, 1}, {3, 341}, {128, 128}, {97, 1031}, {512, 512}};
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int k = 0; k < COUNT_OF(reals); k++) {
            CudaTest t;
            cuda_test_open(&t, "sum_squares %lldx%lld %s", (long long)sizes[i].rows, (long long)sizes[i].cols,
                           format_name(reals[k]));
            Tid g = normal_matrix(&t, reals[k], sizes[i].rows, sizes[i].cols, 1),
                part = cuda_test_vector(&t, FMT_F64, 1);
            cuda_test_run(&t, (Step){.op = OP_SUM_SQUARES, .sum_squares = {.in = {g}, .out = {part}}}, false);
            cuda_test_near(&t, part, 0, 1e-13);
            cuda_test_close(&t);
        }
    static const double losses[] = {2.5, NAN, INFINITY}, norms[] = {1, 0, 1e9};
    static const double limits[3][LIMIT_WORDS] = {{2.5, 1e3}, {2.4, 1e3}, {INFINITY, 1}};
    for (int i = 0; i < 36; i++) { /* the first nine without limits */
        CudaTest t;
        cuda_test_open(&t, "clip, loss %g, max_norm %g, case %d", losses[i % 9 / 3], norms[i % 3], i);
        double parts[1500];
        for (int p = 0; p < COUNT_OF(parts); p++) parts[p] = 0.1 + rng_uniform(1, (uint64_t)p);
        Tid p = cuda_test_vector(&t, FMT_F64, COUNT_OF(parts)),
            verdict = cuda_test_vector(&t, FMT_F64, VERDICT_WORDS);
        Tid loss = cuda_test_number(&t, FMT_F64, losses[i % 9 / 3]), limit = NONE,
            most = cuda_test_number(&t, FMT_F32, norms[i % 3]);
        cuda_test_set(&t, p, parts);
        Tid unscale = i % 2 ? cuda_test_number(&t, FMT_F32, 0x1p-16) : NONE;
        if (i >= 9) limit = cuda_test_vector(&t, FMT_F32, LIMIT_WORDS);
        if (i >= 9) cuda_test_set(&t, limit, limits[i / 9 - 1]);
        cuda_test_run(
            &t,
            (Step){
                .op = OP_CLIP,
                .clip = {.in = {.parts = p, .loss = loss, .max_norm = most, .unscale = unscale, .limits = limit},
                         .out = {verdict}}},
            false);
        cuda_test_near(&t, verdict, 1e-17, 1e-13);
        cuda_test_close(&t);
    }
}

typedef struct States {
    Format w, g, m, v;
    bool master;
} States;

static Tid state(CudaTest *t, Format f, Shape s, uint64_t key, double std, bool positive) {
    Tid id = cuda_test_matrix(t, f, s.rows, s.cols);
    double *x = mem_alloc(s.rows * s.cols * (int64_t)sizeof *x);
    for (int64_t i = 0; i < s.rows * s.cols; i++) {
        x[i] = std * rng_normal(key, (uint64_t)i);
        if (positive) x[i] = x[i] * x[i];
    }
    cuda_test_set(t, id, x);
    mem_free(x);
    return id;
}

static void try_update(bool sgd, Shape s, States f, bool moment, bool ok) {
    static const double dials[DIAL_WORDS] = {1e-2, 1.7, 2.3};
    const double words[VERDICT_WORDS] = {0.8, 3, ok};
    CudaTest t;
    cuda_test_open(&t, "%s %lldx%lld: weight %s%s, gradient %s, moments %s %s, ok %d", sgd ? "sgd" : "adamw",
                   (long long)s.rows, (long long)s.cols, format_name(f.w), f.master ? " with master" : "",
                   format_name(f.g), moment ? format_name(f.m) : "none", sgd ? "" : format_name(f.v), ok);
    Tid w = state(&t, f.w, s, 1, 1, false), g = state(&t, f.g, s, 2, 0.1, false), m = NONE, v = NONE,
        master = NONE;
    if (moment) m = state(&t, f.m, s, 3, 0.1, false);
    if (!sgd) v = state(&t, f.v, s, 4, 0.1, true);
    if (f.master) master = state(&t, FMT_F32, s, 1, 1, false);
    Tid dial = cuda_test_vector(&t, FMT_F32, DIAL_WORDS), verdict = cuda_test_vector(&t, FMT_F64, VERDICT_WORDS);
    Tid clock = cuda_test_clock(&t, 77, 0, 1);
    cuda_test_set(&t, dial, dials);
    cuda_test_set(&t, verdict, words);
    Step step = {.op = OP_ADAMW,
                 .adamw = {.in = {.weight = w,
                                  .g = g,
                                  .m = m,
                                  .v = v,
                                  .master = master,
                                  .dials = dial,
                                  .verdict = verdict,
                                  .clock = clock},
                           .out = {.weight = w, .m = m, .v = v, .master = master}}};
    if (sgd)
        step = (Step){.op = OP_SGD,
                      .sgd = {.in = {.weight = w,
                                     .g = g,
                                     .m = m,
                                     .master = master,
                                     .dials = dial,
                                     .verdict = verdict,
                                     .clock = clock},
                              .out = {w, m, master}}};
    step.attr.update =
        (AttrUpdate){.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .lr_mult = 0.5f};
    cuda_test_run(&t, step, false);
    if (!ok) {
        cuda_test_same(&t, w);
        if (m) cuda_test_same(&t, m);
    } else {
        /* 8-bit moments: a code may fall one step aside, 1/127 or 1/255 of the block's largest */
        cuda_test_expect(&t, w, 2e-6);
        if (m) cuda_test_expect(&t, m, f.m == FMT_MOM8 ? 0.5 / 127 : 1e-7);
        if (v) cuda_test_expect(&t, v, f.v == FMT_VAR8 ? 3e-4 : 1e-8);
        if (master) cuda_test_expect(&t, master, 2e-6);
        expect_draws(&t, w);
        if (m) expect_draws(&t, m);
        if (v) expect_draws(&t, v);
    }
    cuda_test_close(&t);
}

TEST(updates_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const States states[] = {
        {FMT_F32, FMT_F32, FMT_F32, FMT_F32, false},     {FMT_BF16, FMT_BF16, FMT_BF16, FMT_BF16, false},
        {FMT_BF16, FMT_BF16, FMT_MOM8, FMT_VAR8, false}, {FMT_BF16, FMT_F32, FMT_F32, FMT_F32, true},
        {FMT_BF16, FMT_BF16, FMT_MOM8, FMT_VAR8, true},  {FMT_F16, FMT_F16, FMT_F16, FMT_F32, false},
        {FMT_F32, FMT_BF16, FMT_BF16, FMT_VAR8, false},
    };
    static const Shape sizes[] = {{1, 1}, {1, 255}, {1, 256}, {3, 171}, {8, 64}, {16, 1031}, {128, 256}};
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int k = 0; k < COUNT_OF(states); k++) {
            try_update(false, sizes[i], states[k], true, true);
            try_update(true, sizes[i], states[k], i % 2, true);
        }
    for (int k = 0; k < COUNT_OF(states); k++) try_update(k % 2, sizes[4], states[k], true, false);
}

/* ---- a correction beside the weights ---- */

typedef struct Carried {
    CudaTest t;
    Tid w, g, master, v, last, sums, dials;
} Carried;

static void open_carried(Carried *c, const char *op, Shape s, States f, bool removes) {
    const double dials[CARRY_WORDS] = {removes ? 0 : 0.7, removes ? 0 : 0.2, 0.3, removes ? 0 : -1.5, removes};
    cuda_test_open(&c->t, "%s %lldx%lld: weight %s%s, gradient %s, removes %d", op, (long long)s.rows,
                   (long long)s.cols, format_name(f.w), f.master ? " with master" : "", format_name(f.g), removes);
    c->w = state(&c->t, f.w, s, 1, 1, false);
    c->g = state(&c->t, f.g, s, 2, 0.1, false);
    c->v = state(&c->t, FMT_F32, s, 3, 0.1, false);
    c->last = state(&c->t, f.g, s, 4, 0.1, false);
    c->master = f.master ? state(&c->t, FMT_F32, s, 1, 1, false) : NONE;
    c->sums = cuda_test_vector(&c->t, FMT_F64, CARRY_SUMS);
    c->dials = cuda_test_vector(&c->t, FMT_F32, CARRY_WORDS);
    cuda_test_set(&c->t, c->dials, dials);
}

static void try_carry(Shape s, States f, bool removes, bool ok) {
    const double lr[DIAL_WORDS] = {1e-2, 1, 1}, verdict[VERDICT_WORDS] = {1, 3, ok};
    Carried c;
    open_carried(&c, "sgd_carry", s, f, removes);
    Tid rates = cuda_test_vector(&c.t, FMT_F32, DIAL_WORDS), words = cuda_test_vector(&c.t, FMT_F64, VERDICT_WORDS);
    cuda_test_set(&c.t, rates, lr);
    cuda_test_set(&c.t, words, verdict);
    Step step = {.op = OP_SGD_CARRY,
                 .sgd_carry = {.in = {.weight = c.w,
                                      .g = c.g,
                                      .master = c.master,
                                      .correction = c.v,
                                      .last = c.last,
                                      .dials = rates,
                                      .carry = c.dials,
                                      .verdict = words,
                                      .clock = cuda_test_clock(&c.t, 77, 0, 1)},
                               .out = {c.w, c.master, c.v, c.last, c.sums}},
                 .attr.update = {.weight_decay = 0.1f, .lr_mult = 0.5f}};
    cuda_test_run(&c.t, step, false);
    if (ok) { /* a weight that the two devices round apart moves v by as much */
        double unit = f.master || f.w == FMT_F32 ? 1e-6 : f.w == FMT_BF16 ? 0x1p-6 : 0x1p-9;
        cuda_test_expect(&c.t, c.w, 2e-6);
        cuda_test_expect(&c.t, c.v, removes ? unit : 1e-6);
        cuda_test_near(&c.t, c.sums, 1e-3, 1e-3);
    } else {
        cuda_test_same(&c.t, c.w);
        cuda_test_same(&c.t, c.v);
        cuda_test_same(&c.t, c.sums);
    }
    cuda_test_same(&c.t, c.last);
    cuda_test_close(&c.t);
}

static void try_carry_apply(Shape s, States f, bool nothing) {
    Carried c;
    open_carried(&c, "carry_apply", s, f, nothing);
    cuda_test_run(&c.t,
                  (Step){.op = OP_CARRY_APPLY,
                         .carry_apply = {.in = {c.w, c.master, c.v, c.last, c.dials}, .out = {c.w, c.master, c.sums}},
                         .attr.update = {.weight_decay = 0.1f, .lr_mult = 0.5f}},
                  false);
    cuda_test_expect(&c.t, c.w, 1e-7);
    if (c.master) cuda_test_expect(&c.t, c.master, 1e-7);
    cuda_test_near(&c.t, c.sums, 1e-3, 1e-3);
    cuda_test_close(&c.t);
}

TEST(corrections_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const States states[] = {{.w = FMT_F32, .g = FMT_F32},
                                    {.w = FMT_BF16, .g = FMT_BF16},
                                    {.w = FMT_BF16, .g = FMT_F32, .master = true},
                                    {.w = FMT_F16, .g = FMT_F16}};
    static const Shape sizes[] = {{1, 1}, {3, 171}, {16, 1031}, {128, 256}};
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int k = 0; k < COUNT_OF(states); k++)
            for (int removes = 0; removes < 2; removes++) {
                try_carry(sizes[i], states[k], removes, true);
                try_carry_apply(sizes[i], states[k], removes);
            }
    try_carry(sizes[2], states[1], false, false);
}

/* ---- moves ---- */

static void try_fill(Format f, Shape s, AttrFill fill) {
    CudaTest t;
    cuda_test_open(&t, "fill %s %lldx%lld, kind %d", format_name(f), (long long)s.rows, (long long)s.cols,
                   fill.kind);
    Tid x = cuda_test_matrix(&t, f, s.rows, s.cols);
    cuda_test_run(&t, (Step){.op = OP_FILL, .fill = {.out = {x}}, .attr.fill = fill}, false);
    if (fill.kind == FILL_NORMAL) /* cosines of the two devices differ; a code may fall one step aside */
        cuda_test_expect(&t, x,
                         f == FMT_INT8 || f == FMT_MOM8 ? 4.5 / 127 * fill.scale
                         : f == FMT_NF4                 ? 4.5 * 0.31 * fill.scale
                                                        : 1e-5);
    else
        cuda_test_same(&t, x);
    cuda_test_close(&t);
}

TEST(fills_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16, FMT_INT8, FMT_NF4, FMT_MOM8};
    static const Shape sizes[] = {{1, 1}, {3, 171}, {2, 256}, {70, 33}};
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int k = 0; k < COUNT_OF(formats); k++) {
            try_fill(formats[k], sizes[i], (AttrFill){FILL_CONSTANT, 1.5f, 0});
            try_fill(formats[k], sizes[i], (AttrFill){FILL_UNIFORM, 0.25f, 99});
            try_fill(formats[k], sizes[i], (AttrFill){FILL_NORMAL, 0.02f, 123});
        }
    static const Format whole[] = {FMT_F64, FMT_I64, FMT_I32, FMT_VAR8};
    for (int k = 0; k < COUNT_OF(whole); k++) {
        try_fill(whole[k], sizes[1], (AttrFill){FILL_CONSTANT, 0, 0});
        try_fill(whole[k], sizes[2], (AttrFill){FILL_CONSTANT, 3, 0});
    }
}

TEST(copies_and_decoding_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format stored[] = {FMT_INT8, FMT_NF4, FMT_BF16, FMT_F16, FMT_F32};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(stored); k++) {
            Shape s = shapes[i];
            CudaTest t;
            cuda_test_open(&t, "copy and decode %s %lldx%lld", format_name(stored[k]), (long long)s.rows,
                           (long long)s.cols);
            Tid x = normal_matrix(&t, stored[k], s.rows, s.cols, 1),
                copy = cuda_test_matrix(&t, stored[k], s.rows, s.cols);
            cuda_test_run(&t, (Step){.op = OP_COPY, .copy = {.in = {x}, .out = {copy}}}, false);
            cuda_test_same(&t, copy);
            Tid dense = cuda_test_matrix(&t, i % 2 ? FMT_BF16 : FMT_F32, s.rows, s.cols);
            cuda_test_run(&t, (Step){.op = OP_DECODE, .decode = {.in = {x}, .out = {dense}}}, false);
            cuda_test_same(&t, dense);
            cuda_test_close(&t);
        }
}
