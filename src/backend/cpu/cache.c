/* cache.c - keys and values that stay: put by position, and attended to by the tokens that follow.
 *
 * cache(R, slots, 2*G, D): slot s of row r holds the k heads, then the v heads of the token at position s; in int8 each
 * of them with its own scale. A token at a negative position is an idle place of the batch: nothing is put for it and it
 * attends to nothing. Which row of the cache a row of the batch uses may be named by an input. */
#include "backend/cpu/attend.h"

enum { CHUNK = 1024 };

typedef struct Cache {
    const Args *a;
    AttrHeads h;
    AttendSplit split;
    int64_t rows, tiles, each;
    const int32_t *positions, *named; /* named: cache rows, or NULL */
} Cache;

static Cache cache_of(const Args *a, const Tensor *cache, int positions) {
    Cache t = {.a = a, .h = a->step->attr.heads, .positions = a->in[positions], .named = a->in[positions + 1]};
    t.split = attend_split(&t.h);
    t.rows = cpu_rows(a->ti[0]) / t.h.seq;
    t.tiles = (t.h.seq + ATTEND_TILE - 1) / ATTEND_TILE;
    int64_t cache_rows = cpu_count(cache) / (t.h.slots * 2 * t.h.kv_heads * t.h.head_dim);
    for (int64_t r = 0; t.named && r < t.rows; r++)
        CHECK_MSG(t.named[r] >= 0 && t.named[r] < cache_rows, "row %d of a cache of %lld", t.named[r], (long long)cache_rows);
    for (int64_t i = 0; i < t.rows * t.h.seq; i++)
        CHECK_MSG(t.positions[i] < t.h.slots, "position %d, cache of %lld slots", t.positions[i],
                  (long long)t.h.slots);
    return t;
}

static int64_t cache_row(const Cache *t, int64_t row) { return t->named ? t->named[row] : row; }

static void put_token(void *context, int64_t token, int worker) {
    const Cache *t = context;
    const Args *a = t->a;
    float buffer[CHUNK];
    int64_t dim = t->h.head_dim, width = 2 * t->h.kv_heads * dim, position = t->positions[token];
    int64_t from = token * (t->h.heads * dim + width) + t->h.heads * dim;
    int64_t to = (cache_row(t, token / t->h.seq) * t->h.slots + position) * width;
    if (position < 0) return;
    if (a->to[0]->format == FMT_INT8) {
        CHECK(dim <= CHUNK);
        for (int64_t c = 0; c < width; c += dim) {
            const float *head = cpu_view(buffer, a->in[0], a->ti[0]->format, from + c, dim);
            format_table[FMT_INT8].encode(a->out[0], head, cpu_rows(a->to[0]), dim, (to + c) / dim, 1);
        }
        return;
    }
    for (int64_t c = 0; c < width; c += CHUNK) {
        int64_t n = MIN2(CHUNK, width - c);
        cpu_store(a->out[0], a->to[0]->format, to + c, cpu_view(buffer, a->in[0], a->ti[0]->format, from + c, n),
                  n);
    }
}

void cpu_cache_put(Backend *b, Queue q, const Args *a) {
    Cache t = cache_of(a, a->to[0], 1);
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
