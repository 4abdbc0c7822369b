/* attend.c - attention forward and backward without the T x T matrix (FlashAttention): tiles of scores and an online
 * softmax.
 *
 * Forward, per tile of queries (tokens x heads of one KV head, stacked as rows) and per tile of keys:
 *   S = scale*Q K^T;  m' = max(m, rowmax S);  P = e^(S - m');  c = e^(m - m');  l = c*l + rowsum P;  O = c*O + P V
 * and at the end O/l and lse = m + log l. Backward needs no softmax state but lse:
 *   P = e^(S - lse);  dV += P^T dO;  dS = P * (dO V^T - rowsum(dO * O));  dQ += scale*dS K;  dK += scale*dS^T Q
 * One worker owns a whole (row, KV head) in backward, so that dK and dV are summed in one order. */
#include "backend/cpu/attend.h"

#include <math.h>
#include <string.h>

enum { TILE = ATTEND_TILE, LANES = 16 };
static const float HIDDEN = -1e30f; /* a score that must not count: its exponential is 0 */

/* ---- loops over rows of TILE scores ---- */

static inline float fold_sum(float *s) {
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) s[l] += s[l + width];
    return s[0];
}

static inline float fold_max(float *s) {
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) s[l] = s[l] > s[l + width] ? s[l] : s[l + width];
    return s[0];
}

/* Raises each row's maximum and subtracts it from the scores; e^rescale is what the older sums are rescaled by. */
CPU_VECTOR static void subtract_new_max(float *restrict s, float *restrict top, float *restrict rescale, int64_t rows) {
    for (int64_t r = 0; r < rows; r++, s += TILE) {
        float m[LANES];
        for (int l = 0; l < LANES; l++) m[l] = s[l];
        for (int c = LANES; c < TILE; c += LANES)
            for (int l = 0; l < LANES; l++) m[l] = s[c + l] > m[l] ? s[c + l] : m[l];
        float now = fold_max(m);
        now = now > top[r] ? now : top[r];
        rescale[r] = top[r] - now;
        top[r] = now;
        float off = now > HIDDEN ? now : 0; /* a row that has seen nothing: its scores stay hidden */
        for (int c = 0; c < TILE; c++) s[c] -= off;
    }
}

CPU_VECTOR static void sum_rows(float *restrict o, float *restrict sum, const float *restrict s,
                                const float *rescale, int64_t rows, int64_t dim) {
    for (int64_t r = 0; r < rows; r++, s += TILE, o += dim) {
        float p[LANES] = {0};
        for (int c = 0; c < TILE; c += LANES)
            for (int l = 0; l < LANES; l++) p[l] += s[c + l];
        sum[r] = sum[r] * rescale[r] + fold_sum(p);
        if (rescale[r] == 1.0f) continue;
        for (int64_t d = 0; d < dim; d++) o[d] *= rescale[r];
    }
}

CPU_VECTOR static void scale_rows(float *restrict o, const float *by, int64_t rows, int64_t dim) {
    for (int64_t r = 0; r < rows; r++, o += dim)
        for (int64_t d = 0; d < dim; d++) o[d] *= by[r];
}

CPU_VECTOR static void subtract_rows(float *restrict s, const float *off, int64_t rows) {
    for (int64_t r = 0; r < rows; r++, s += TILE)
        for (int c = 0; c < TILE; c++) s[c] -= off[r];
}

/* s: P, becomes dS */
CPU_VECTOR static void ds_rows(float *restrict s, const float *restrict dp, const float *delta, int64_t rows) {
    for (int64_t r = 0; r < rows; r++, s += TILE, dp += TILE)
        for (int c = 0; c < TILE; c++) s[c] *= dp[c] - delta[r];
}

CPU_VECTOR static void dot_rows(float *restrict out, const float *a, const float *b, int64_t rows, int64_t dim) {
    for (int64_t r = 0; r < rows; r++, a += dim, b += dim) {
        float s[LANES] = {0};
        int64_t i = 0;
        for (; i + LANES <= dim; i += LANES)
            for (int l = 0; l < LANES; l++) s[l] += a[i + l] * b[i + l];
        for (int l = 0; i + l < dim; l++) s[l] += a[i + l] * b[i + l];
        out[r] = fold_sum(s);
    }
}

/* What a token sees of a tile of slots: columns [from, upto), and [also_from, also_upto) in front of them. */
typedef struct Seen {
    int64_t also_from, also_upto, from, upto;
} Seen;

static Seen seen_of(const AttendTile *t, int64_t i, int64_t slot, int64_t slots) {
    Seen s;
    s.from = MIN2(MAX2(t->begin[i] - slot, 0), TILE);
    s.upto = MAX2(MIN2(t->end[i] - slot, slots), s.from);
    s.also_from = MIN2(MAX2(t->also_begin[i] - slot, 0), s.from);
    s.also_upto = MAX2(MIN2(t->also_end[i] - slot, s.from), s.also_from);
    return s;
}

/* Hides the scores of slots a token does not see, and those behind the last slot of the tile. */
static void mask_keys(float *s, const AttendTile *t, int64_t slot, int64_t slots) {
    for (int64_t i = 0; i < t->tokens; i++) {
        Seen seen = seen_of(t, i, slot, slots);
        if (seen.from == 0 && seen.upto == TILE) continue;
        for (int64_t h = 0; h < t->heads; h++) {
            float *row = s + (i * t->heads + h) * TILE;
            for (int64_t c = 0; c < seen.also_from; c++) row[c] = HIDDEN;
            for (int64_t c = seen.also_upto; c < seen.from; c++) row[c] = HIDDEN;
            for (int64_t c = seen.upto; c < TILE; c++) row[c] = HIDDEN;
        }
    }
}

/* Answers lie between a prompt and the last of them: their slots are no other's to see. */
static bool sees_any(const AttendTile *t, int64_t slot, int64_t slots) {
    for (int64_t i = 0; i < t->tokens; i++) {
        Seen seen = seen_of(t, i, slot, slots);
        if (seen.from < seen.upto || seen.also_from < seen.also_upto) return true;
    }
    return false;
}

CPU_VECTOR static void load_int8(float *restrict dst, const int8_t *codes, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = (float)codes[i] * scale;
}

static void load_int8_rows(float *dst, AttendPlace p, int64_t from, int64_t rows, int64_t width) {
    int64_t bytes = format_row_bytes(p.f, width), at = format_row_scale(p.f, width);
    for (int64_t i = 0; i < rows; i++) {
        const char *row = (const char *)p.data + (p.first + (from + i) * p.stride) / width * bytes;
        load_int8(dst + i * width, (const int8_t *)row, *(const float *)(row + at), width);
    }
}

static void load_rows(float *dst, AttendPlace p, int64_t from, int64_t rows, int64_t width) {
    if (p.f == FMT_INT8) {
        load_int8_rows(dst, p, from, rows, width);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        cpu_load(dst + i * width, p.data, p.f, p.first + (from + i) * p.stride, width);
}

static void store_rows(AttendPlace p, const float *src, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; i++) cpu_store(p.data, p.f, p.first + i * p.stride, src + i * width, width);
}

/* The slots any token of the tile sees, from a tile's border on. */
static void slots_seen(const AttendTile *t, int64_t *from, int64_t *upto) {
    *from = INT64_MAX;
    *upto = 0;
    for (int64_t i = 0; i < t->tokens; i++) {
        if (t->also_begin[i] < t->also_end[i]) {
            *from = MIN2(*from, t->also_begin[i]);
            *upto = MAX2(*upto, t->also_end[i]);
        }
        if (t->begin[i] >= t->end[i]) continue;
        *from = MIN2(*from, t->begin[i]);
        *upto = MAX2(*upto, t->end[i]);
    }
    *from = *from / TILE * TILE;
}

/* S (m, TILE) = scale * Q K^T; columns behind the last slot hold nothing yet. */
static void scores(float *s, const float *q, const float *k, const AttendTile *t, int64_t slots) {
    cpu_multiply(&(CpuBlock){.rows = t->tokens * t->heads, .cols = slots, .inner = t->dim, .a = q, .lda = t->dim,
                             .b = k, .ldb = t->dim, .b_transposed = true, .c = s, .ldc = TILE, .alpha = t->scale});
}

/* ---- forward ---- */

int64_t attend_tile_bytes(const AttrHeads *h, int64_t tokens) {
    int64_t rows = MIN2(tokens, TILE) * attend_split(h).heads, dim = h->head_dim;
    return (4 * (rows * (2 * dim + TILE + 3) + 2 * TILE * dim) + 255) / 256 * 256;
}

static void finish(const AttendTile *t, float *o, const float *top, float *sum) {
    int64_t rows = t->tokens * t->heads;
    for (int64_t r = 0; r < rows; r++) {
        bool seen = top[r] > HIDDEN || isnan(sum[r]);
        if (t->lse) t->lse[r / t->heads * t->lse_stride + r % t->heads] = seen ? top[r] + logf(sum[r]) : 0;
        sum[r] = seen ? 1.0f / sum[r] : 0;
    }
    scale_rows(o, sum, rows, t->dim);
    store_rows(t->o, o, t->tokens, t->heads * t->dim);
}

void attend_tile(const AttendTile *t, float *scratch) {
    int64_t rows = t->tokens * t->heads, from, upto;
    float *q = scratch, *o = q + rows * t->dim, *s = o + rows * t->dim, *top = s + rows * TILE, *sum = top + rows;
    float *rescale = sum + rows, *k = rescale + rows, *v = k + TILE * t->dim;
    load_rows(q, t->q, 0, t->tokens, t->heads * t->dim);
    memset(o, 0, (size_t)(rows * t->dim) * sizeof *o);
    memset(sum, 0, (size_t)rows * sizeof *sum);
    for (int64_t r = 0; r < rows; r++) top[r] = HIDDEN;

    slots_seen(t, &from, &upto);
    for (int64_t slot = from; slot < upto; slot += TILE) {
        int64_t slots = MIN2(TILE, upto - slot);
        if (!sees_any(t, slot, slots)) continue;
        load_rows(k, t->k, slot, slots, t->dim);
        load_rows(v, t->v, slot, slots, t->dim);
        scores(s, q, k, t, slots);
        mask_keys(s, t, slot, slots);
        subtract_new_max(s, top, rescale, rows);
        cpu_exp(s, s, 0, rows * TILE);
        cpu_exp(rescale, rescale, 0, rows);
        sum_rows(o, sum, s, rescale, rows, t->dim);
        cpu_multiply(&(CpuBlock){.rows = rows, .cols = t->dim, .inner = slots, .a = s, .lda = TILE, .b = v,
                                 .ldb = t->dim, .c = o, .ldc = t->dim, .alpha = 1, .beta = 1});
    }
    finish(t, o, top, sum);
}

/* ---- whole rows ---- */

typedef struct Attend {
    const Args *a;
    AttrHeads h;
    Operand qkv;
    AttendSplit split;
    int64_t rows, tiles;  /* rows of seq tokens; tiles of queries in one row */
    int64_t each;         /* bytes of a worker's scratch */
    const int32_t *begin; /* (N) */
    const int32_t *prefix; /* (N, 2); NULL: none */
} Attend;

static Attend attend_of(const Args *a, Operand qkv, Operand doc_begin, Operand prefix) {
    Attend t = {.a = a, .h = a->step->attr.heads, .qkv = qkv, .begin = doc_begin.data, .prefix = prefix.data};
    t.split = attend_split(&t.h);
    t.rows = cpu_rows(qkv.t) / t.h.seq;
    t.tiles = (t.h.seq + TILE - 1) / TILE;
    return t;
}

/* The tile of queries [first, ...) of one row, heads [head, head+heads) of KV head g. */
static AttendTile tile_of(const Attend *t, int64_t row, int64_t first, int64_t g, int64_t bunch) {
    void *qkv = t->qkv.data;
    Format f = t->qkv.t->format;
    int64_t dim = t->h.head_dim, width = (t->h.heads + 2 * t->h.kv_heads) * dim, at = row * t->h.seq;
    int64_t head = g * t->split.group + bunch * t->split.heads;
    AttendTile x = {.tokens = MIN2(TILE, t->h.seq - first),
                    .heads = MIN2(t->split.heads, (g + 1) * t->split.group - head),
                    .dim = dim, .scale = t->h.scale, .lse_stride = t->h.heads};
    x.q = (AttendPlace){qkv, f, (at + first) * width + head * dim, width};
    x.k = (AttendPlace){qkv, f, at * width + (t->h.heads + g) * dim, width};
    x.v = (AttendPlace){qkv, f, at * width + (t->h.heads + t->h.kv_heads + g) * dim, width};
    x.o = (AttendPlace){NULL, f, ((at + first) * t->h.heads + head) * dim, t->h.heads * dim};
    for (int64_t i = 0; i < x.tokens; i++) {
        x.begin[i] = MAX2(t->begin[at + first + i], 0);
        x.end[i] = first + i + 1;
        if (!t->prefix) continue;
        const int32_t *prefix = t->prefix + 2 * (at + first + i);
        x.also_begin[i] = MAX2(prefix[0], 0);
        x.also_end[i] = MIN2(prefix[1], MIN2(x.begin[i], x.end[i]));
    }
    return x;
}

static void attend_one(void *context, int64_t tile, int worker) {
    const Attend *t = context;
    const Args *a = t->a;
    int64_t bunch = tile % t->split.bunches, g = tile / t->split.bunches % t->h.kv_heads;
    int64_t row = tile / (t->split.bunches * t->h.kv_heads) % t->rows;
    int64_t from_end = tile / (t->split.bunches * t->h.kv_heads * t->rows); /* the longest tiles come first */
    int64_t first = (t->tiles - 1 - from_end) * TILE;
    AttendTile x = tile_of(t, row, first, g, bunch);
    x.o.data = a->attend.out.o.data;
    x.o.f = a->attend.out.o.t->format;
    x.lse = (float *)a->attend.out.lse.data + x.o.first / t->h.head_dim;
    attend_tile(&x, cpu_scratch(a, 0, t->each, worker));
}

void cpu_attend(Backend *b, Queue q, const Args *a) {
    Attend t = attend_of(a, a->attend.in.qkv, a->attend.in.doc_begin, a->attend.in.prefix);
    t.each = attend_tile_bytes(&t.h, t.h.seq);
    threads_for(cpu_threads(b), t.tiles * t.rows * t.h.kv_heads * t.split.bunches, attend_one, &t);
}

/* ---- backward ---- */

typedef struct Back { /* a worker's scratch */
    float *k, *v, *dk, *dv;  /* (seq, D): one row's, of one KV head */
    float *q, *d_o, *dq;     /* (m, D) */
    float *s, *dp;           /* (m, TILE) */
    float *delta, *lse;      /* (m) */
} Back;

static int64_t back_bytes(const Attend *t) {
    int64_t rows = MIN2(t->h.seq, TILE) * t->split.heads, dim = t->h.head_dim;
    return (4 * (4 * t->h.seq * dim + rows * (3 * dim + 2 * TILE + 2)) + 255) / 256 * 256;
}

static Back back_of(const Attend *t, float *scratch) {
    int64_t rows = MIN2(t->h.seq, TILE) * t->split.heads, whole = t->h.seq * t->h.head_dim;
    int64_t part = rows * t->h.head_dim;
    Back w = {.k = scratch};
    w.v = w.k + whole;
    w.dk = w.v + whole;
    w.dv = w.dk + whole;
    w.q = w.dv + whole;
    w.d_o = w.q + part;
    w.dq = w.d_o + part;
    w.s = w.dq + part;
    w.dp = w.s + rows * TILE;
    w.delta = w.dp + rows * TILE;
    w.lse = w.delta + rows;
    return w;
}

/* One tile of scores: adds to dk and dv of its slots and to dq of its tokens. */
static void back_scores(const AttendTile *x, const Back *w, int64_t slot, int64_t slots) {
    int64_t rows = x->tokens * x->heads, dim = x->dim;
    const float *k = w->k + slot * dim, *v = w->v + slot * dim;
    scores(w->s, w->q, k, x, slots);
    subtract_rows(w->s, w->lse, rows);
    mask_keys(w->s, x, slot, slots);
    cpu_exp(w->s, w->s, 0, rows * TILE);
    cpu_multiply(&(CpuBlock){.rows = slots, .cols = dim, .inner = rows, .a = w->s, .lda = TILE, .a_transposed = true,
                             .b = w->d_o, .ldb = dim, .c = w->dv + slot * dim, .ldc = dim, .alpha = 1, .beta = 1});
    cpu_multiply(&(CpuBlock){.rows = rows, .cols = slots, .inner = dim, .a = w->d_o, .lda = dim, .b = v,
                             .ldb = dim, .b_transposed = true, .c = w->dp, .ldc = TILE, .alpha = 1});
    ds_rows(w->s, w->dp, w->delta, rows);
    cpu_multiply(&(CpuBlock){.rows = rows, .cols = dim, .inner = slots, .a = w->s, .lda = TILE, .b = k, .ldb = dim,
                             .c = w->dq, .ldc = dim, .alpha = x->scale, .beta = 1});
    cpu_multiply(&(CpuBlock){.rows = slots, .cols = dim, .inner = rows, .a = w->s, .lda = TILE, .a_transposed = true,
                             .b = w->q, .ldb = dim, .c = w->dk + slot * dim, .ldc = dim, .alpha = x->scale,
                             .beta = 1});
}

static AttendPlace at_operand(AttendPlace at, Operand x) { return at.data = x.data, at.f = x.t->format, at; }

static void back_queries(const Attend *t, const AttendTile *x, const Back *w) {
    const Args *a = t->a;
    int64_t rows = x->tokens * x->heads, width = x->heads * x->dim, from, upto;
    const float *lse = (const float *)a->attend_grad.in.lse.data + x->o.first / x->dim;
    AttendPlace d_o = at_operand(x->o, a->attend_grad.in.d_o), o = at_operand(x->o, a->attend_grad.in.o);
    AttendPlace dq = at_operand(x->q, a->attend_grad.out.d_qkv);

    load_rows(w->q, x->q, 0, x->tokens, width);
    load_rows(w->d_o, d_o, 0, x->tokens, width);
    load_rows(w->dq, o, 0, x->tokens, width); /* o is needed for a moment only */
    dot_rows(w->delta, w->d_o, w->dq, rows, x->dim);
    for (int64_t r = 0; r < rows; r++) w->lse[r] = lse[r / x->heads * x->lse_stride + r % x->heads];
    memset(w->dq, 0, (size_t)(rows * x->dim) * sizeof *w->dq);
    slots_seen(x, &from, &upto);
    for (int64_t slot = from; slot < upto; slot += TILE) {
        int64_t slots = MIN2(TILE, upto - slot);
        if (sees_any(x, slot, slots)) back_scores(x, w, slot, slots);
    }
    store_rows(dq, w->dq, x->tokens, width);
}

static void attend_grad_one(void *context, int64_t tile, int worker) {
    const Attend *t = context;
    const Args *a = t->a;
    int64_t row = tile / t->h.kv_heads, g = tile % t->h.kv_heads, seq = t->h.seq, dim = t->h.head_dim;
    Back w = back_of(t, cpu_scratch(a, 0, t->each, worker));
    AttendTile x = tile_of(t, row, 0, g, 0);
    load_rows(w.k, x.k, 0, seq, dim);
    load_rows(w.v, x.v, 0, seq, dim);
    memset(w.dk, 0, (size_t)(2 * seq * dim) * sizeof *w.dk); /* and dv behind it */
    for (int64_t i = 0; i < t->tiles * t->split.bunches; i++) {
        x = tile_of(t, row, i / t->split.bunches * TILE, g, i % t->split.bunches);
        back_queries(t, &x, &w);
    }
    store_rows(at_operand(x.k, a->attend_grad.out.d_qkv), w.dk, seq, dim);
    store_rows(at_operand(x.v, a->attend_grad.out.d_qkv), w.dv, seq, dim);
}

void cpu_attend_grad(Backend *b, Queue q, const Args *a) {
    Attend t = attend_of(a, a->attend_grad.in.qkv, a->attend_grad.in.doc_begin, a->attend_grad.in.prefix);
    t.each = back_bytes(&t);
    threads_for(cpu_threads(b), t.rows * t.h.kv_heads, attend_grad_one, &t);
}
