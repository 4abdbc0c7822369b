/* norm.c - RMSNorm of whole rows and of single heads (QK-norm), and their gradients.
 *
 * r = 1/sqrt(mean(x^2) + eps);  y = x*r*w;  dx = r*dy*w - x * r^3 * sum(dy*w*x)/n;  dw = sum over rows of dy*x*r.
 * A head of q or k is a row of its own, so both ops walk "norm rows": n numbers that begin at some element.
 * dw is summed over parts of ROWS_A_PART rows (the scratch: one row of sums a part), then over parts in order. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

enum { CHUNK = 2048, LANES = 16, ROWS_A_TILE = 16, ROWS_A_PART = 64 };

/* ---- loops over fp32 numbers ---- */

static inline float fold_lanes(float *s) {
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) s[l] += s[l + width];
    return s[0];
}

CPU_VECTOR static float sum_squares(const float *x, int64_t n) {
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += x[i + l] * x[i + l];
    for (int l = 0; i + l < n; l++) s[l] += x[i + l] * x[i + l];
    return fold_lanes(s);
}

CPU_VECTOR static float sum_products(const float *dy, const float *w, const float *x, int64_t n) {
    float s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += dy[i + l] * w[i + l] * x[i + l];
    for (int l = 0; i + l < n; l++) s[l] += dy[i + l] * w[i + l] * x[i + l];
    return fold_lanes(s);
}

CPU_VECTOR static void scale_row(float *restrict y, const float *x, const float *w, float r, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * r * w[i];
}

CPU_VECTOR static void dx_row(float *restrict dx, const float *dy, const float *w, const float *x, float r,
                                 float c, int64_t n) {
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * w[i] * r - x[i] * c;
}

CPU_VECTOR static void add_row(float *restrict to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

CPU_VECTOR static void add_products(float *restrict sums, const float *dy, const float *x, float r, int64_t n) {
    for (int64_t i = 0; i < n; i++) sums[i] += dy[i] * x[i] * r;
}

/* ---- one norm row ---- */

typedef struct Stored { /* numbers of a tensor in its own format */
    void *data;
    Format f;
} Stored;

static Stored stored(Operand x) { return (Stored){x.data, x.data ? x.t->format : FMT_F32}; }
static const float *view(float *buffer, Stored s, int64_t first, int64_t n) {
    return cpu_view(buffer, s.data, s.f, first, n);
}

/* A weight that fits a chunk is decoded once and used by many rows. */
static Stored decoded(Stored w, float *buffer, int64_t n) {
    return n > CHUNK ? w : (Stored){(void *)view(buffer, w, 0, n), FMT_F32};
}

static float norm_row(Stored y, Stored x, Stored w, int64_t first, int64_t n, float eps) {
    float bx[CHUNK], bw[CHUNK], by[CHUNK];
    const float *row = NULL; /* the last chunk read */
    double squares = 0;
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t k = MIN2(CHUNK, n - c);
        row = view(bx, x, first + c, k);
        squares += sum_squares(row, k);
    }
    float r = (float)(1.0 / sqrt(squares / (double)n + eps));
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t k = MIN2(CHUNK, n - c);
        if (n > CHUNK) row = view(bx, x, first + c, k);
        scale_row(by, row, view(bw, w, c, k), r, k);
        cpu_store(y.data, y.f, first + c, by, k);
    }
    return r;
}

typedef struct NormGrad {
    Stored dy, x, so_far; /* so_far: data NULL when there is none */
    Stored dx;            /* data NULL: not wanted */
} NormGrad;

/* sums: the part's row of dw (n numbers), or NULL. dx may be so_far itself: each chunk is read before it is
 * written. */
static void grad_row(const NormGrad *g, Stored w, float *sums, int64_t first, int64_t n, float r) {
    float bdy[CHUNK], bx[CHUNK], bw[CHUNK], bdx[CHUNK], bs[CHUNK];
    const float *dy = NULL, *x = NULL; /* the last chunks read */
    double dot = 0;
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t k = MIN2(CHUNK, n - c);
        dy = view(bdy, g->dy, first + c, k);
        x = view(bx, g->x, first + c, k);
        if (g->dx.data) dot += sum_products(dy, view(bw, w, c, k), x, k);
        if (sums) add_products(sums + c, dy, x, r, k);
    }
    if (!g->dx.data) return;
    float pull = (float)(dot * r * r * r / (double)n);
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t k = MIN2(CHUNK, n - c);
        if (n > CHUNK) dy = view(bdy, g->dy, first + c, k), x = view(bx, g->x, first + c, k);
        dx_row(bdx, dy, view(bw, w, c, k), x, r, pull, k);
        if (g->so_far.data) add_row(bdx, view(bs, g->so_far, first + c, k), k);
        cpu_store(g->dx.data, g->dx.f, first + c, bdx, k);
    }
}

/* Weight gradients: the parts' rows of sums, added in order, fall into dw. */
typedef struct Parts {
    const float *sums; /* (n_parts, n) at `stride` numbers */
    int64_t n_parts, stride, n;
    Stored dw;
    float beta;
    uint64_t key;
} Parts;

static void join_tile(void *context, int64_t tile, int worker) {
    const Parts *p = context;
    float total[CHUNK];
    int64_t c = tile * CHUNK, k = MIN2(CHUNK, p->n - c);
    memset(total, 0, sizeof total);
    for (int64_t i = 0; i < p->n_parts; i++) add_row(total, p->sums + i * p->stride + c, k);
    cpu_accumulate(p->dw.data, p->dw.f, c, total, k, p->beta, p->key);
}

static void join_parts(Backend *b, Parts p) {
    threads_for(cpu_threads(b), (p.n + CHUNK - 1) / CHUNK, join_tile, &p);
}

/* ---- rows of the residual stream ---- */

typedef struct RowNorm {
    const Args *a;
    int64_t rows, cols;
    float *sums; /* (parts, cols), or NULL */
} RowNorm;

static void rmsnorm_tile(void *context, int64_t tile, int worker) {
    const RowNorm *t = context;
    const Args *a = t->a;
    float *rstd = a->rmsnorm.out.rstd.data, buffer[CHUNK];
    Stored w = decoded(stored(a->rmsnorm.in.w), buffer, t->cols);
    Stored x = stored(a->rmsnorm.in.x), y = stored(a->rmsnorm.out.y);
    for (int64_t i = tile * ROWS_A_TILE; i < MIN2((tile + 1) * ROWS_A_TILE, t->rows); i++)
        rstd[i] = norm_row(y, x, w, i * t->cols, t->cols, a->step->attr.norm.eps);
}

void cpu_rmsnorm(Backend *b, Queue q, const Args *a) {
    RowNorm t = {.a = a, .rows = cpu_rows(a->rmsnorm.in.x.t), .cols = cpu_cols(a->rmsnorm.in.x.t)};
    threads_for(cpu_threads(b), (t.rows + ROWS_A_TILE - 1) / ROWS_A_TILE, rmsnorm_tile, &t);
}

/* The sum is rounded to its format before the norm reads it: the same bits as in two steps. */
static void add_rmsnorm_tile(void *context, int64_t tile, int worker) {
    const RowNorm *t = context;
    const Args *a = t->a;
    float *rstd = a->add_rmsnorm.out.rstd.data, buffer[CHUNK], ba[CHUNK], bb[CHUNK], sum[CHUNK];
    Stored w = decoded(stored(a->add_rmsnorm.in.w), buffer, t->cols), x = stored(a->add_rmsnorm.out.sum);
    Stored y = stored(a->add_rmsnorm.out.y);
    for (int64_t i = tile * ROWS_A_TILE; i < MIN2((tile + 1) * ROWS_A_TILE, t->rows); i++) {
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t k = MIN2(CHUNK, t->cols - c), at = i * t->cols + c;
            memcpy(sum, cpu_read(ba, a->add_rmsnorm.in.a, at, k), (size_t)k * sizeof *sum);
            add_row(sum, cpu_read(bb, a->add_rmsnorm.in.b, at, k), k);
            cpu_store(x.data, x.f, at, sum, k);
        }
        rstd[i] = norm_row(y, x, w, i * t->cols, t->cols, a->step->attr.norm.eps);
    }
}

void cpu_add_rmsnorm(Backend *b, Queue q, const Args *a) {
    const Tensor *sum = a->add_rmsnorm.out.sum.t;
    RowNorm t = {.a = a, .rows = cpu_rows(sum), .cols = cpu_cols(sum)};
    threads_for(cpu_threads(b), (t.rows + ROWS_A_TILE - 1) / ROWS_A_TILE, add_rmsnorm_tile, &t);
}

static void rmsnorm_grad_tile(void *context, int64_t tile, int worker) {
    const RowNorm *t = context;
    const Args *a = t->a;
    const float *rstd = a->rmsnorm_grad.in.rstd.data;
    float buffer[CHUNK];
    Stored w = decoded(stored(a->rmsnorm_grad.in.w), buffer, t->cols);
    NormGrad g = {.dy = stored(a->rmsnorm_grad.in.dy), .x = stored(a->rmsnorm_grad.in.x),
                  .so_far = stored(a->rmsnorm_grad.in.so_far), .dx = stored(a->rmsnorm_grad.out.dx)};
    float *sums = t->sums ? t->sums + tile * t->cols : NULL;
    if (sums) memset(sums, 0, (size_t)t->cols * sizeof *sums);
    for (int64_t i = tile * ROWS_A_PART; i < MIN2((tile + 1) * ROWS_A_PART, t->rows); i++)
        grad_row(&g, w, sums, i * t->cols, t->cols, rstd[i]);
}

void cpu_rmsnorm_grad(Backend *b, Queue q, const Args *a) {
    const Tensor *x = a->rmsnorm_grad.in.x.t;
    RowNorm t = {.a = a, .rows = cpu_rows(x), .cols = cpu_cols(x)};
    int64_t parts = (t.rows + ROWS_A_PART - 1) / ROWS_A_PART;
    if (a->rmsnorm_grad.out.dw.data) {
        t.sums = a->workspace;
        CHECK(a->workspace_bytes >= parts * t.cols * (int64_t)sizeof *t.sums);
    }
    threads_for(cpu_threads(b), parts, rmsnorm_grad_tile, &t);
    if (t.sums)
        join_parts(b, (Parts){.sums = t.sums, .n_parts = parts, .stride = t.cols, .n = t.cols,
                              .dw = stored(a->rmsnorm_grad.out.dw), .beta = cpu_beta(a->rmsnorm_grad.in.beta),
                              .key = cpu_draw_key(a, a->rmsnorm_grad.in.clock)});
}

/* ---- heads of q and k ---- */

typedef struct HeadNorm {
    const Args *a;
    AttrHeads h;
    int64_t rows, cols;
    float *sums; /* (parts, 2, D): of wq and of wk, or NULL */
} HeadNorm;

static HeadNorm head_norm_of(const Args *a, Operand qkv) {
    return (HeadNorm){.a = a, .h = a->step->attr.heads, .rows = cpu_rows(qkv.t), .cols = cpu_cols(qkv.t)};
}

static void copy_numbers(Stored to, Stored from, int64_t first, int64_t n) {
    float buffer[CHUNK];
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t k = MIN2(CHUNK, n - c);
        cpu_store(to.data, to.f, first + c, view(buffer, from, first + c, k), k);
    }
}

static void head_norm_tile(void *context, int64_t tile, int worker) {
    const HeadNorm *t = context;
    const Args *a = t->a;
    int64_t dim = t->h.head_dim, normed = t->h.heads + t->h.kv_heads;
    float *rstd = a->head_norm.out.rstd.data, bq[CHUNK], bk[CHUNK];
    Stored x = stored(a->head_norm.in.qkv), y = stored(a->head_norm.out.y);
    Stored wq = decoded(stored(a->head_norm.in.wq), bq, dim), wk = decoded(stored(a->head_norm.in.wk), bk, dim);
    for (int64_t i = tile * ROWS_A_TILE; i < MIN2((tile + 1) * ROWS_A_TILE, t->rows); i++) {
        for (int64_t h = 0; h < normed; h++)
            rstd[i * normed + h] = norm_row(y, x, h < t->h.heads ? wq : wk, i * t->cols + h * dim, dim, t->h.eps);
        copy_numbers(y, x, i * t->cols + normed * dim, t->h.kv_heads * dim);
    }
}

void cpu_head_norm(Backend *b, Queue q, const Args *a) {
    HeadNorm t = head_norm_of(a, a->head_norm.in.qkv);
    threads_for(cpu_threads(b), (t.rows + ROWS_A_TILE - 1) / ROWS_A_TILE, head_norm_tile, &t);
}

static void head_norm_grad_tile(void *context, int64_t tile, int worker) {
    const HeadNorm *t = context;
    const Args *a = t->a;
    int64_t dim = t->h.head_dim, normed = t->h.heads + t->h.kv_heads;
    const float *rstd = a->head_norm_grad.in.rstd.data;
    float bq[CHUNK], bk[CHUNK];
    Stored wq = decoded(stored(a->head_norm_grad.in.wq), bq, dim);
    Stored wk = decoded(stored(a->head_norm_grad.in.wk), bk, dim);
    NormGrad g = {.dy = stored(a->head_norm_grad.in.dy), .x = stored(a->head_norm_grad.in.qkv),
                  .dx = stored(a->head_norm_grad.out.d_qkv)};
    float *sums = t->sums ? t->sums + tile * 2 * dim : NULL;
    if (sums) memset(sums, 0, (size_t)(2 * dim) * sizeof *sums);
    for (int64_t i = tile * ROWS_A_PART; i < MIN2((tile + 1) * ROWS_A_PART, t->rows); i++) {
        for (int64_t h = 0; h < normed; h++) {
            bool is_q = h < t->h.heads;
            grad_row(&g, is_q ? wq : wk, sums ? sums + (is_q ? 0 : dim) : NULL, i * t->cols + h * dim, dim,
                     rstd[i * normed + h]);
        }
        copy_numbers(g.dx, g.dy, i * t->cols + normed * dim, t->h.kv_heads * dim);
    }
}

void cpu_head_norm_grad(Backend *b, Queue q, const Args *a) {
    HeadNorm t = head_norm_of(a, a->head_norm_grad.in.qkv);
    Operand dw[] = {a->head_norm_grad.out.dwq, a->head_norm_grad.out.dwk};
    int64_t parts = (t.rows + ROWS_A_PART - 1) / ROWS_A_PART, dim = t.h.head_dim;
    if (dw[0].data || dw[1].data) {
        t.sums = a->workspace;
        CHECK(a->workspace_bytes >= parts * 2 * dim * (int64_t)sizeof *t.sums);
    }
    threads_for(cpu_threads(b), parts, head_norm_grad_tile, &t);
    uint64_t key = cpu_draw_key(a, a->head_norm_grad.in.clock);
    for (int i = 0; i < COUNT_OF(dw); i++)
        if (dw[i].data)
            join_parts(b, (Parts){.sums = t.sums + i * dim, .n_parts = parts, .stride = 2 * dim, .n = dim,
                                  .dw = stored(dw[i]), .beta = cpu_beta(a->head_norm_grad.in.beta),
                                  .key = rng_fold(key, (uint64_t)i)});
}
