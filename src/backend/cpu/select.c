/* select.c - top-k selection of keys: an indexer's scores, how many keys a query attends to, and the best of them.
 *
 * A tile of queries is scored against the keys of its row, block by block; only the tile's scores exist at a time.
 * The k-th best score is found by its bits, eight at a time, so that equal scores, infinities and NaNs have one order
 * and one cost. */
#include <math.h>
#include <string.h>

#include "backend/cpu/sparse.h"
#include "ir/sampling.h"

enum { TILE = SPARSE_TILE, BLOCK = SPARSE_BLOCK, MOST_HEADS = 64 };

/* ---- shared with the other kernels of sparse attention ---- */

Keys sparse_heads(const AttrHeads *h, Operand qkv, Operand cache, int64_t row, int64_t g) {
    int64_t dim = h->head_dim, slot = 2 * h->kv_heads;
    if (cache.data) return (Keys){cache, row * h->slots * slot + g, slot, 0, dim};
    return (Keys){qkv, row * h->seq, 1, (h->heads + g) * dim, dim};
}

Keys sparse_index_keys(const AttrSparse *a, Operand index, Operand cache, int64_t row) {
    if (cache.data) return (Keys){cache, row * a->heads.slots, 1, 0, a->index_dim};
    return (Keys){index, row * a->heads.seq, 1, (int64_t)a->index_heads * a->index_dim, a->index_dim};
}

CPU_VECTOR static void relu(float *x, float bias, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] + bias > 0 ? x[i] + bias : 0;
}

CPU_VECTOR static void negate(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = -x[i];
}

CPU_VECTOR static void one_over_one_plus(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = 1.0f / (1.0f + x[i]);
}

void sparse_act(float *x, float bias, bool with_relu, int64_t n) {
    if (with_relu) {
        relu(x, bias, n);
        return;
    }
    negate(x, n);
    cpu_exp(x, x, bias, n);
    one_over_one_plus(x, n);
}

void sparse_weights(float *w, const AttrSparse *a, Operand index, const float *bias, int64_t token) {
    int64_t width = sparse_index_width(a), heads = a->index_heads;
    cpu_load(w, index.data, index.t->format, (token + 1) * width - heads, heads);
    for (int64_t j = 0; j < heads; j++) sparse_act(w + j, bias[j], false, 1);
}

/* ---- the cache ---- */

static int64_t cache_row(Operand rows, int64_t row) { return rows.data ? ((const int32_t *)rows.data)[row] : row; }

static void put_one(void *context, int64_t token, int worker) {
    const Args *a = context;
    const AttrSparse *k = &a->step->attr.sparse;
    Operand index = a->index_put.in.index, cache = a->index_put.out.cache;
    int64_t position = ((const int32_t *)a->index_put.in.positions.data)[token], dim = k->index_dim;
    int64_t to = cache_row(a->index_put.in.rows, token / k->heads.seq) * k->heads.slots + position;
    float key[1024];
    CHECK_MSG(dim <= COUNT_OF(key) && position < k->heads.slots, "an index key of %lld numbers at %lld", (long long)dim,
              (long long)position);
    if (position < 0) return;
    cpu_load(key, index.data, index.t->format, token * sparse_index_width(k) + k->index_heads * dim, dim);
    if (cache.t->format == FMT_INT8)
        format_table[FMT_INT8].encode(cache.data, key, cpu_rows(cache.t), dim, to, 1);
    else
        cpu_write(cache, to * dim, key, dim);
}

void cpu_index_put(Backend *b, Queue q, const Args *a) {
    threads_for(cpu_threads(b), cpu_rows(a->index_put.in.index.t), put_one, (void *)a);
}

/* ---- scores ---- */

typedef struct Select {
    const Args *a;
    AttrSparse k;
    float bias[2 * MOST_HEADS];
    int64_t rows, tiles, each, most; /* most: columns of keys */
} Select;

typedef struct Scores {      /* a worker's scratch */
    float *q, *w, *s, *keys; /* (TILE*J, E), (TILE, J), (TILE*J, BLOCK), (BLOCK, E) */
    float *row;              /* (TILE, span) */
    uint32_t *order;         /* (span) */
    float *dense;            /* oracle: sparse_dense_row's */
    int64_t span;
} Scores;

static Scores scores_of(const Select *t, float *scratch) {
    const AttrSparse *k = &t->k;
    int64_t rows = (int64_t)TILE * k->index_heads;
    Scores s = {.q = scratch, .span = sparse_span(&k->heads)};
    s.w = s.q + rows * k->index_dim;
    s.s = s.w + rows;
    s.keys = s.s + rows * BLOCK;
    s.row = s.keys + (int64_t)BLOCK * k->index_dim;
    s.order = (uint32_t *)(s.row + TILE * s.span);
    s.dense = (float *)(s.order + s.span);
    return s;
}

/* What token i of a row sees: keys [begin, end). */
typedef struct Seen {
    int64_t begin, end;
} Seen;

static Seen seen_by(const Select *t, int64_t token) {
    if (t->a->select.in.cache.data) return (Seen){0, ((const int32_t *)t->a->select.in.positions.data)[token] + 1};
    int64_t at = token % t->k.heads.seq, begin = ((const int32_t *)t->a->select.in.doc_begin.data)[token];
    return (Seen){MAX2(begin, 0), at + 1};
}

CPU_VECTOR static void add_weighted(float *restrict to, const float *x, float by, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
}

/* Scores of `tokens` queries from `token` on against keys [from, upto) of their row. */
static void score_tile(const Select *t, const Scores *s, int64_t token, int64_t tokens, Seen all) {
    const AttrSparse *k = &t->k;
    Operand index = t->a->select.in.index;
    int64_t width = sparse_index_width(k), heads = k->index_heads, dim = k->index_dim;
    int64_t row = cache_row(t->a->select.in.rows, token / k->heads.seq);
    Keys keys = sparse_index_keys(k, index, t->a->select.in.cache, row);
    for (int64_t i = 0; i < tokens; i++) {
        cpu_load(s->q + i * heads * dim, index.data, index.t->format, (token + i) * width, heads * dim);
        sparse_weights(s->w + i * heads, k, index, t->bias, token + i);
        memset(s->row + i * s->span + all.begin, 0, (size_t)(all.end - all.begin) * sizeof *s->row);
    }
    for (int64_t at = all.begin; at < all.end; at += BLOCK) {
        int64_t n = MIN2(BLOCK, all.end - at);
        keys_gather(s->keys, &keys, NULL, at, n);
        cpu_multiply(&(CpuBlock){.rows = tokens * heads,
                                 .cols = n,
                                 .inner = dim,
                                 .a = s->q,
                                 .lda = dim,
                                 .b = s->keys,
                                 .ldb = dim,
                                 .b_transposed = true,
                                 .c = s->s,
                                 .ldc = BLOCK,
                                 .alpha = 1.0f / sqrtf((float)dim)});
        for (int64_t r = 0; r < tokens * heads; r++) {
            sparse_act(s->s + r * BLOCK, t->bias[heads + r % heads], k->relu, n);
            add_weighted(s->row + r / heads * s->span + at, s->s + r * BLOCK, s->w[r], n);
        }
    }
}

/* ---- how many, and which ---- */

static double spread_of(const float *x, int64_t n) { /* unbiased variance over mean square */
    double sum = 0, square = 0, off = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        square += (double)x[i] * x[i];
        off += (x[i] - mean) * (x[i] - mean);
    }
    return n < 2 ? 0 : off / (double)(n - 1) / (square / (double)n + 1e-8);
}

static double entropy_of(const float *x, int64_t n) {
    double top = cpu_max(x, n), sum = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = exp(x[i] - top);
        sum += e;
        dot += e * (x[i] - top);
    }
    return log(sum) - dot / sum;
}

static int64_t keys_kept(const AttrSparse *a, const float *x, int64_t n) {
    double k = (double)a->k_base;
    if (a->keep == KEEP_VARIANCE) k *= 0.5 + 1 / (1 + a->temperature * spread_of(x, n));
    if (a->keep == KEEP_ENTROPY) k *= 0.5 + a->temperature * entropy_of(x, n) / log((double)n + 1);
    if (a->keep != KEEP_FIXED) k = fmin(fmax(k, (double)a->k_min), (double)a->k_max);
    return MIN2((int64_t)k, n);
}

uint32_t sparse_kth_largest(const uint32_t *x, int64_t n, int64_t k, int64_t *above) {
    uint32_t prefix = 0, mask = 0;
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        for (int64_t i = 0; i < n; i++)
            if ((x[i] & mask) == prefix) count[x[i] >> shift & 255]++;
        int digit = 255;
        while (*above + count[digit] < k) *above += count[digit--];
        prefix |= (uint32_t)digit << shift;
        mask |= 0xffu << shift;
    }
    return prefix;
}

static void write_best(int32_t *to, int64_t most, const float *x, uint32_t *order, Seen seen, int64_t k) {
    int64_t n = seen.end - seen.begin, above = 0, equal = 0, put = 0;
    for (int64_t i = 0; i < n; i++) order[i] = draw_order(x[i]);
    uint32_t least = k > 0 ? sparse_kth_largest(order, n, k, &above) : UINT32_MAX;
    for (int64_t i = 0; i < n; i++) equal += order[i] == least;
    int64_t skipped = equal - (k - above); /* of equals, the earlier ones */
    for (int64_t i = 0; i < n && put < k; i++) {
        if (order[i] < least || (order[i] == least && skipped-- > 0)) continue;
        to[put++] = (int32_t)(seen.begin + i);
    }
    while (put < most) to[put++] = -1;
}

CPU_VECTOR static void round_scores(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = rintf(x[i] * SPARSE_STEPS) / SPARSE_STEPS;
}

static void draw_scores(const Select *t, float *row,
                        Seen seen) { /* by places within the document: in a cache they are the same */
    for (int64_t i = seen.begin; i < seen.end; i++)
        row[i] = sparse_drawn(t->k.key, t->k.kept, seen.end - seen.begin, i - seen.begin);
}

static void select_tile(void *context, int64_t tile, int worker) {
    const Select *t = context;
    int64_t seq = t->k.heads.seq, row = tile / t->tiles, first = tile % t->tiles * TILE, token = row * seq + first;
    int64_t tokens = MIN2(TILE, seq - first);
    Scores s = scores_of(t, cpu_scratch(t->a, 0, t->each, worker));
    Seen all = {INT64_MAX, 0};
    for (int64_t i = 0; i < tokens; i++) {
        Seen seen = seen_by(t, token + i);
        CHECK_MSG(seen.end <= s.span, "position %lld of %lld slots", (long long)seen.end, (long long)s.span);
        if (seen.begin >= seen.end) continue;
        all = (Seen){MIN2(all.begin, seen.begin), MAX2(all.end, seen.end)};
    }
    if (all.begin < all.end) score_tile(t, &s, token, tokens, all);
    for (int64_t i = 0; i < tokens; i++) {
        Seen seen = seen_by(t, token + i);
        int32_t *to = (int32_t *)t->a->select.out.keys.data + (token + i) * t->most;
        float *scores = s.row + i * s.span;
        int64_t n = seen.end - seen.begin;
        if (n > 0) round_scores(scores + seen.begin, n);
        int64_t k = n > 0 ? MIN2(keys_kept(&t->k, scores + seen.begin, n), t->most) : 0;
        if (n > 0 && t->k.by == SELECT_RANDOM) draw_scores(t, scores, seen);
        if (n > 0 && t->k.by == SELECT_ORACLE)
            sparse_dense_row(scores, &t->k.heads, t->a->select.in.qkv, t->a->select.in.kv_cache,
                             cache_row(t->a->select.in.rows, row), token + i, seen.begin, seen.end, s.dense);
        write_best(to, t->most, scores + seen.begin, s.order, n > 0 ? seen : (Seen){0}, k);
    }
}

void cpu_select(Backend *b, Queue q, const Args *a) {
    Select t = {.a = a, .k = a->step->attr.sparse, .most = cpu_cols(a->select.out.keys.t)};
    CHECK_MSG(t.k.index_heads <= MOST_HEADS, "%d index heads", t.k.index_heads);
    cpu_load(t.bias, a->select.in.bias.data, a->select.in.bias.t->format, 0, 2 * t.k.index_heads);
    t.rows = cpu_rows(a->select.in.index.t) / t.k.heads.seq;
    t.tiles = (t.k.heads.seq + TILE - 1) / TILE;
    t.each = sparse_select_bytes(&t.k);
    threads_for(cpu_threads(b), t.rows * t.tiles, select_tile, &t);
}
