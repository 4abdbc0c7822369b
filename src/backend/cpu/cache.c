/* cache.c - the KV cache: keys are rotated and written by position with their values, and later tokens attend to them.
 *
 * cache(R, slots, 2*G, D): slot s of row r holds the k heads, then the v heads of the token at position s; in int8 each
 * of them with its own scale. A token at a negative position is an idle place of the batch: nothing is put for it and
 * it attends to nothing. Which row of the cache a row of the batch uses may be named by an input. */
#include <string.h>

#include "backend/cpu/attend.h"
#include "backend/cpu/rope.h"

enum { CHUNK = 1024 };
_Static_assert((int)CHUNK >= (int)ROPE_MOST_DIM, "a head fits");

typedef struct Cache {
    const Args *a;
    AttrHeads h;
    AttendSplit split;
    int64_t rows, tiles, each;
    const int32_t *positions, *named; /* named: cache rows, or NULL */
} Cache;

static Cache cache_of(const Args *a, Operand qkv, Operand cache, Operand positions, Operand rows) {
    Cache t = {.a = a, .h = a->step->attr.heads, .positions = positions.data, .named = rows.data};
    t.split = attend_split(&t.h);
    t.rows = cpu_rows(qkv.t) / t.h.seq;
    t.tiles = (t.h.seq + ATTEND_TILE - 1) / ATTEND_TILE;
    int64_t cache_rows = cpu_count(cache.t) / (t.h.slots * 2 * t.h.kv_heads * t.h.head_dim);
    for (int64_t r = 0; t.named && r < t.rows; r++)
        CHECK_MSG(t.named[r] >= 0 && t.named[r] < cache_rows, "row %d of a cache of %lld", t.named[r],
                  (long long)cache_rows);
    for (int64_t i = 0; i < t.rows * t.h.seq; i++)
        CHECK_MSG(t.positions[i] < t.h.slots, "position %d, cache of %lld slots", t.positions[i],
                  (long long)t.h.slots);
    return t;
}

static int64_t cache_row(const Cache *t, int64_t row) { return t->named ? t->named[row] : row; }

/* n numbers (whole heads) of `from` become those of the cache from `to` on. */
static void put_numbers(const Cache *t, int64_t to, const void *from, Format f, int64_t first, int64_t n) {
    Operand cache = t->a->rope_put.out.cache;
    float buffer[CHUNK];
    bool int8 = cache.t->format == FMT_INT8; /* a head a row */
    int64_t dim = t->h.head_dim, at_once = int8 ? dim : CHUNK;
    for (int64_t c = 0; c < n; c += at_once) {
        int64_t k = MIN2(at_once, n - c);
        const float *x = cpu_view(buffer, from, f, first + c, k);
        if (int8) format_table[FMT_INT8].encode(cache.data, x, cpu_rows(cache.t), dim, (to + c) / dim, 1);
        else cpu_write(cache, to + c, x, k);
    }
}

static void put_token(void *context, int64_t token, int worker) {
    const Cache *t = context;
    const void *qkv = t->a->rope_put.in.qkv.data;
    void *rotated = t->a->rope_put.out.rotated.data;
    int64_t dim = t->h.head_dim, kv = t->h.kv_heads * dim, q = t->h.heads * dim, position = t->positions[token];
    int64_t first = token * (q + 2 * kv), k = first + q;
    int64_t to = (cache_row(t, token / t->h.seq) * t->h.slots + position) * 2 * kv;
    Format f = t->a->rope_put.in.qkv.t->format;
    float key[CHUNK]; /* one rotated head, as the activations' format holds it: no longer than fp32 */
    RopeAngles angles;
    rope_angles(&angles, &t->h, t->a->rope_put.in.inv_freq.data, t->positions[token]);
    rope_rotate(rotated, first, qkv, first, f, t->h.heads, dim, &angles);
    if (rotated != qkv)
        memcpy((char *)rotated + k * format_item_bytes(f), (const char *)qkv + k * format_item_bytes(f),
               (size_t)(2 * kv * format_item_bytes(f)));
    if (position < 0) return;
    for (int64_t c = 0; c < kv; c += dim) {
        rope_rotate(key, 0, qkv, k + c, f, 1, dim, &angles);
        put_numbers(t, to + c, key, f, 0, dim);
    }
    put_numbers(t, to + kv, qkv, f, k + kv, kv);
}

void cpu_rope_put(Backend *b, Queue q, const Args *a) {
    Cache t = cache_of(a, a->rope_put.in.qkv, a->rope_put.out.cache, a->rope_put.in.positions, a->rope_put.in.rows);
    threads_for(cpu_threads(b), t.rows * t.h.seq, put_token, &t);
}

static void attend_one(void *context, int64_t tile, int worker) {
    const Cache *t = context;
    Operand qkv = t->a->attend_cache.in.qkv, cache = t->a->attend_cache.in.cache, o = t->a->attend_cache.out.o;
    int64_t bunch = tile % t->split.bunches, g = tile / t->split.bunches % t->h.kv_heads;
    int64_t part = tile / (t->split.bunches * t->h.kv_heads), row = part % t->rows;
    int64_t first = part / t->rows * ATTEND_TILE;
    int64_t dim = t->h.head_dim, width = (t->h.heads + 2 * t->h.kv_heads) * dim;
    int64_t slot_width = 2 * t->h.kv_heads * dim;
    int64_t head = g * t->split.group + bunch * t->split.heads, token = row * t->h.seq + first;
    AttendTile x = {.tokens = MIN2(ATTEND_TILE, t->h.seq - first),
                    .heads = MIN2(t->split.heads, (g + 1) * t->split.group - head), .dim = dim,
                    .scale = t->h.scale};
    x.q = (AttendPlace){qkv.data, qkv.t->format, token * width + head * dim, width};
    x.o = (AttendPlace){o.data, o.t->format, (token * t->h.heads + head) * dim, t->h.heads * dim};
    x.k = (AttendPlace){cache.data, cache.t->format, cache_row(t, row) * t->h.slots * slot_width + g * dim, slot_width};
    x.v = x.k;
    x.v.first += t->h.kv_heads * dim;
    for (int64_t i = 0; i < x.tokens; i++) x.end[i] = t->positions[token + i] + 1;
    attend_tile(&x, cpu_scratch(t->a, 0, t->each, worker));
}

void cpu_attend_cache(Backend *b, Queue q, const Args *a) {
    Cache t = cache_of(a, a->attend_cache.in.qkv, a->attend_cache.in.cache, a->attend_cache.in.positions,
                       a->attend_cache.in.rows);
    t.each = attend_tile_bytes(&t.h, t.h.seq);
    threads_for(cpu_threads(b), t.tiles * t.rows * t.h.kv_heads * t.split.bunches, attend_one, &t);
}
