/* cache.c - keys and values that stay: turned and put by position, and attended to by the tokens that follow.
 *
 * cache(R, slots, 2*G, D): slot s of row r holds the k heads, then the v heads of the token at position s; in int8 each
 * of them with its own scale. A token at a negative position is an idle place of the batch: nothing is put for it and it
 * attends to nothing. Which row of the cache a row of the batch uses may be named by an input. */
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

static Cache cache_of(const Args *a, const Tensor *cache, int positions) {
    Cache t = {.a = a, .h = a->step->attr.heads, .positions = a->in[positions], .named = a->in[3]};
    t.split = attend_split(&t.h);
    t.rows = cpu_rows(a->ti[0]) / t.h.seq;
    t.tiles = (t.h.seq + ATTEND_TILE - 1) / ATTEND_TILE;
    int64_t cache_rows = cpu_count(cache) / (t.h.slots * 2 * t.h.kv_heads * t.h.head_dim);
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
    const Args *a = t->a;
    float buffer[CHUNK];
    bool int8 = a->to[1]->format == FMT_INT8; /* a head a row */
    int64_t dim = t->h.head_dim, at_once = int8 ? dim : CHUNK;
    for (int64_t c = 0; c < n; c += at_once) {
        int64_t k = MIN2(at_once, n - c);
        const float *x = cpu_view(buffer, from, f, first + c, k);
        if (int8) format_table[FMT_INT8].encode(a->out[1], x, cpu_rows(a->to[1]), dim, (to + c) / dim, 1);
        else cpu_store(a->out[1], a->to[1]->format, to + c, x, k);
    }
}

static void put_token(void *context, int64_t token, int worker) {
    const Cache *t = context;
    const Args *a = t->a;
    int64_t dim = t->h.head_dim, kv = t->h.kv_heads * dim, q = t->h.heads * dim, position = t->positions[token];
    int64_t first = token * (q + 2 * kv), k = first + q;
    int64_t to = (cache_row(t, token / t->h.seq) * t->h.slots + position) * 2 * kv;
    Format f = a->ti[0]->format;
    float turned[CHUNK]; /* keys as the activations' format holds them: no longer than fp32 */
    RopeAngles angles;
    rope_angles(&angles, &t->h, a->in[2], t->positions[token]);
    rope_turn(a->out[0], first, a->in[0], first, f, t->h.heads, dim, &angles);
    if (a->out[0] != a->in[0])
        memcpy((char *)a->out[0] + k * format_item_bytes(f), (const char *)a->in[0] + k * format_item_bytes(f),
               (size_t)(2 * kv * format_item_bytes(f)));
    if (position < 0) return;
    for (int64_t c = 0; c < kv; c += dim) {
        rope_turn(turned, 0, a->in[0], k + c, f, 1, dim, &angles);
        put_numbers(t, to + c, turned, f, 0, dim);
    }
    put_numbers(t, to + kv, a->in[0], f, k + kv, kv);
}

void cpu_rope_put(Backend *b, Queue q, const Args *a) {
    Cache t = cache_of(a, a->to[1], 1);
    threads_for(cpu_threads(b), t.rows * t.h.seq, put_token, &t);
}

static void attend_one(void *context, int64_t tile, int worker) {
    const Cache *t = context;
    const Args *a = t->a;
    int64_t bunch = tile % t->split.bunches, g = tile / t->split.bunches % t->h.kv_heads;
    int64_t part = tile / (t->split.bunches * t->h.kv_heads), row = part % t->rows;
    int64_t first = part / t->rows * ATTEND_TILE;
    int64_t dim = t->h.head_dim, width = (t->h.heads + 2 * t->h.kv_heads) * dim;
    int64_t slot_width = 2 * t->h.kv_heads * dim;
    int64_t head = g * t->split.group + bunch * t->split.heads, token = row * t->h.seq + first;
    AttendTile x = {.tokens = MIN2(ATTEND_TILE, t->h.seq - first),
                    .heads = MIN2(t->split.heads, (g + 1) * t->split.group - head), .dim = dim,
                    .scale = t->h.scale};
    x.q = (AttendPlace){a->in[0], a->ti[0]->format, token * width + head * dim, width};
    x.o = (AttendPlace){a->out[0], a->to[0]->format, (token * t->h.heads + head) * dim, t->h.heads * dim};
    x.k = (AttendPlace){a->in[1], a->ti[1]->format, cache_row(t, row) * t->h.slots * slot_width + g * dim, slot_width};
    x.v = x.k;
    x.v.first += t->h.kv_heads * dim;
    for (int64_t i = 0; i < x.tokens; i++) x.end[i] = t->positions[token + i] + 1;
    attend_tile(&x, cpu_scratch(a, 0, t->each, worker));
}

void cpu_attend_cache(Backend *b, Queue q, const Args *a) {
    Cache t = cache_of(a, a->ti[1], 2);
    t.each = attend_tile_bytes(&t.h, t.h.seq);
    threads_for(cpu_threads(b), t.tiles * t.rows * t.h.kv_heads * t.split.bunches, attend_one, &t);
}
