/* selected.c - attention over the keys selected for each query (gather), forward and backward.
 *
 * The keys of a query are gathered block by block, for all heads of a KV head at once; scores of one query exist at a
 * time. In backward one worker owns a whole (row, KV head), so that dK and dV are summed in the order of the queries:
 *   P = e^(S - lse);  dV[s] += P^T dO;  dS = P * (dO V^T - rowsum(dO * O));  dQ = scale*dS K;  dK[s] += scale*dS^T Q */
#include <math.h>
#include <string.h>

#include "backend/cpu/sparse.h"

enum { BLOCK = SPARSE_BLOCK };

typedef struct Selected {
    const Args *a;
    AttrHeads h;
    Operand qkv, keys, cache, rows;
    int64_t tokens, most, group, each;
} Selected;

static Selected selected_of(const Args *a, Operand qkv, Operand keys, Operand cache, Operand rows) {
    Selected t = {.a = a, .h = a->step->attr.heads, .qkv = qkv, .keys = keys, .cache = cache, .rows = rows};
    t.tokens = cpu_rows(qkv.t);
    t.most = cpu_cols(keys.t);
    t.group = sparse_group(&t.h);
    return t;
}

static const int32_t *list_of(const Selected *t, int64_t token) {
    return (const int32_t *)t->keys.data + token * t->most;
}
static int64_t width_of(const Selected *t) { return (t->h.heads + 2 * t->h.kv_heads) * t->h.head_dim; }

static Keys keys_of(const Selected *t, int64_t token, int64_t g) {
    int64_t row = token / t->h.seq;
    return sparse_heads(&t->h, t->qkv, t->cache, t->rows.data ? ((const int32_t *)t->rows.data)[row] : row, g);
}

/* C(rows, cols) = alpha * A B^T + beta * C over rows of `inner` numbers that stand side by side. */
static void times_rows(float *c, int64_t ldc, const float *a, const float *b, int64_t rows, int64_t cols, int64_t inner,
                       float alpha) {
    cpu_multiply(&(CpuBlock){.rows = rows,
                             .cols = cols,
                             .inner = inner,
                             .a = a,
                             .lda = inner,
                             .b = b,
                             .ldb = inner,
                             .b_transposed = true,
                             .c = c,
                             .ldc = ldc,
                             .alpha = alpha});
}

/* Of one head's scores: a softmax, and its logarithmic sum. */
static float softmax(float *s, int64_t n) {
    if (!n) return 0;
    float top = cpu_max(s, n);
    cpu_exp(s, s, top, n);
    double sum = cpu_sum(s, n);
    for (int64_t i = 0; i < n; i++) s[i] = (float)(s[i] / sum);
    return top + logf((float)sum);
}

static void attend_one(void *context, int64_t tile, int worker) {
    const Selected *t = context;
    int64_t token = tile / t->h.kv_heads, g = tile % t->h.kv_heads, dim = t->h.head_dim, group = t->group;
    float *block = cpu_scratch(t->a, 0, t->each, worker), *q = block + BLOCK * dim, *o = q + group * dim,
          *s = o + group * dim;
    const int32_t *list = list_of(t, token);
    int64_t n = sparse_count(list, t->most);
    Keys k = keys_of(t, token, g), v = keys_of(t, token, g + t->h.kv_heads);
    Operand lse = t->a->attend_selected.out.lse;
    cpu_load(q, t->qkv.data, t->qkv.t->format, token * width_of(t) + g * group * dim, group * dim);
    memset(o, 0, (size_t)(group * dim) * sizeof *o);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t some = MIN2(BLOCK, n - at);
        keys_gather(block, &k, list, at, some);
        times_rows(s + at, t->most, q, block, group, some, dim, t->h.scale);
    }
    for (int64_t r = 0; r < group; r++) {
        float sum = softmax(s + r * t->most, n);
        if (lse.data) ((float *)lse.data)[token * t->h.heads + g * group + r] = sum;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t some = MIN2(BLOCK, n - at);
        keys_gather(block, &v, list, at, some);
        cpu_multiply(&(CpuBlock){.rows = group,
                                 .cols = dim,
                                 .inner = some,
                                 .a = s + at,
                                 .lda = t->most,
                                 .b = block,
                                 .ldb = dim,
                                 .c = o,
                                 .ldc = dim,
                                 .alpha = 1,
                                 .beta = 1});
    }
    cpu_write(t->a->attend_selected.out.o, (token * t->h.heads + g * group) * dim, o, group * dim);
}

void cpu_attend_selected(Backend *b, Queue q, const Args *a) {
    Selected t = selected_of(a, a->attend_selected.in.qkv, a->attend_selected.in.keys, a->attend_selected.in.cache,
                             a->attend_selected.in.rows);
    t.each = sparse_attend_bytes(&t.h, t.most);
    threads_for(cpu_threads(b), t.tokens * t.h.kv_heads, attend_one, &t);
}

/* ---- backward ---- */

typedef struct Back {        /* a worker's scratch */
    float *k, *v, *dk, *dv;  /* (seq, D): one row's, of one KV head */
    float *some_k, *some_v;  /* (BLOCK, D): gathered */
    float *part;             /* (BLOCK, D): what is added to their gradients */
    float *q, *d_o, *dq, *o; /* (group, D) */
    float *p, *dp;           /* (group, BLOCK) */
    float *delta, *lse;      /* (group) */
} Back;

static Back back_of(const Selected *t, float *scratch) {
    int64_t whole = t->h.seq * t->h.head_dim, block = (int64_t)BLOCK * t->h.head_dim, head = t->group * t->h.head_dim;
    Back w = {.k = scratch};
    w.v = w.k + whole;
    w.dk = w.v + whole;
    w.dv = w.dk + whole;
    w.some_k = w.dv + whole;
    w.some_v = w.some_k + block;
    w.part = w.some_v + block;
    w.q = w.part + block;
    w.d_o = w.q + head;
    w.dq = w.d_o + head;
    w.o = w.dq + head;
    w.p = w.o + head;
    w.dp = w.p + t->group * BLOCK;
    w.delta = w.dp + t->group * BLOCK;
    w.lse = w.delta + t->group;
    return w;
}

CPU_VECTOR static void add_row(float *restrict to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

/* to[list[i]] += by * (A^T B)[i] for the keys of a block; A (group, BLOCK), B (group, D). */
static void add_outer(float *to, float *part, const int32_t *list, const float *a, const float *b, int64_t group,
                      int64_t n, int64_t dim, float by) {
    cpu_multiply(&(CpuBlock){.rows = n,
                             .cols = dim,
                             .inner = group,
                             .a = a,
                             .lda = BLOCK,
                             .a_transposed = true,
                             .b = b,
                             .ldb = dim,
                             .c = part,
                             .ldc = dim,
                             .alpha = by});
    for (int64_t i = 0; i < n; i++) add_row(to + list[i] * dim, part + i * dim, dim);
}

static void back_block(const Selected *t, const Back *w, const int32_t *list, int64_t n) {
    int64_t dim = t->h.head_dim, group = t->group;
    for (int64_t i = 0; i < n; i++) {
        memcpy(w->some_k + i * dim, w->k + list[i] * dim, (size_t)dim * sizeof *w->k);
        memcpy(w->some_v + i * dim, w->v + list[i] * dim, (size_t)dim * sizeof *w->v);
    }
    times_rows(w->p, BLOCK, w->q, w->some_k, group, n, dim, t->h.scale);
    times_rows(w->dp, BLOCK, w->d_o, w->some_v, group, n, dim, 1);
    for (int64_t r = 0; r < group; r++) cpu_exp(w->p + r * BLOCK, w->p + r * BLOCK, w->lse[r], n);
    add_outer(w->dv, w->part, list, w->p, w->d_o, group, n, dim, 1);
    for (int64_t r = 0; r < group; r++)
        for (int64_t i = 0; i < n; i++) w->p[r * BLOCK + i] *= w->dp[r * BLOCK + i] - w->delta[r];
    cpu_multiply(&(CpuBlock){.rows = group,
                             .cols = dim,
                             .inner = n,
                             .a = w->p,
                             .lda = BLOCK,
                             .b = w->some_k,
                             .ldb = dim,
                             .c = w->dq,
                             .ldc = dim,
                             .alpha = t->h.scale,
                             .beta = 1});
    add_outer(w->dk, w->part, list, w->p, w->q, group, n, dim, t->h.scale);
}

static void back_query(const Selected *t, const Back *w, int64_t token, int64_t g) {
    const Args *a = t->a;
    int64_t dim = t->h.head_dim, group = t->group, at = (token * t->h.heads + g * group) * dim,
            n = sparse_count(list_of(t, token), t->most);
    int64_t q = token * width_of(t) + g * group * dim;
    const float *lse = (const float *)a->attend_selected_grad.in.lse.data + at / dim;
    cpu_load(w->q, t->qkv.data, t->qkv.t->format, q, group * dim);
    cpu_load(w->d_o, a->attend_selected_grad.in.d_o.data, a->attend_selected_grad.in.d_o.t->format, at, group * dim);
    cpu_load(w->o, a->attend_selected_grad.in.o.data, a->attend_selected_grad.in.o.t->format, at, group * dim);
    memset(w->dq, 0, (size_t)(group * dim) * sizeof *w->dq);
    for (int64_t r = 0; r < group; r++) {
        w->lse[r] = lse[r];
        w->delta[r] = 0;
        for (int64_t d = 0; d < dim; d++) w->delta[r] += w->d_o[r * dim + d] * w->o[r * dim + d];
    }
    for (int64_t i = 0; i < n; i += BLOCK) back_block(t, w, list_of(t, token) + i, MIN2(BLOCK, n - i));
    cpu_write(a->attend_selected_grad.out.d_qkv, q, w->dq, group * dim);
}

static void grad_one(void *context, int64_t tile, int worker) {
    const Selected *t = context;
    Operand d_qkv = t->a->attend_selected_grad.out.d_qkv;
    int64_t g = tile % t->h.kv_heads, first = tile / t->h.kv_heads * t->h.seq, seq = t->h.seq, dim = t->h.head_dim;
    Back w = back_of(t, cpu_scratch(t->a, 0, t->each, worker));
    Keys k = keys_of(t, first, g), v = keys_of(t, first, g + t->h.kv_heads);
    keys_gather(w.k, &k, NULL, 0, seq);
    keys_gather(w.v, &v, NULL, 0, seq);
    memset(w.dk, 0, (size_t)(2 * seq * dim) * sizeof *w.dk); /* and dv behind it */
    for (int64_t i = 0; i < seq; i++) back_query(t, &w, first + i, g);
    for (int64_t i = 0; i < seq; i++) {
        cpu_write(d_qkv, (first + i) * width_of(t) + k.col, w.dk + i * dim, dim);
        cpu_write(d_qkv, (first + i) * width_of(t) + v.col, w.dv + i * dim, dim);
    }
}

void cpu_attend_selected_grad(Backend *b, Queue q, const Args *a) {
    Selected t =
        selected_of(a, a->attend_selected_grad.in.qkv, a->attend_selected_grad.in.keys, (Operand){0}, (Operand){0});
    t.each = sparse_attend_grad_bytes(&t.h);
    threads_for(cpu_threads(b), t.tokens / t.h.seq * t.h.kv_heads, grad_one, &t);
}
