/* vec.c - sums in blocks and tiles: a fixed order, and a rounding error that does not grow with the length. */
#include "unlearn/vec.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"

enum { BLOCK = 4096, TILE = 64 * BLOCK };

float *vec_new(int64_t n) { return mem_alloc_wide(mem_mul(n, (int64_t)sizeof(float))); }

/* ---- tiles ---- */

typedef struct Tiles {
    VecPart *fn;
    void *context;
    int64_t n;
} Tiles;

static void do_tile(void *context, int64_t tile, int worker) {
    const Tiles *t = context;
    (void)worker;
    t->fn(t->context, tile * TILE, MIN2((tile + 1) * TILE, t->n));
}

void vec_for(Threads *team, int64_t n, VecPart *fn, void *context) {
    Tiles t = {fn, context, n};
    threads_for(team, (n + TILE - 1) / TILE, do_tile, &t);
}

/* ---- blocks ---- */

/* These functions are compiled for several instruction sets, and the loader picks one (ifunc). clang has no such
 * clones, and ThreadSanitizer is not initialised when an ifunc resolver runs. All clones give the same bits: no
 * multiplication is contracted into an FMA, except in sums, where the fp64 product of two fp32 numbers is exact anyway.
 * */
#if defined __clang__ || defined __SANITIZE_THREAD__
#define FAST
#define FAST_SUM
#else
#define FAST __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"), optimize("O3")))
#define FAST_SUM                                                                        \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"),        \
                   optimize("O3", "fp-contract=fast")))
#endif

enum { LANES = 8 };
typedef float Floats __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
typedef double Doubles __attribute__((vector_size(LANES * sizeof(double))));

static double sum_lanes(const Doubles *d) {
    Doubles x = *d;
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

FAST_SUM double vec_block_dot(const float *a, const float *b, int64_t n) {
    Doubles sum = {0};
    double rest = 0;
    int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES)
        sum += __builtin_convertvector(*(const Floats *)(a + i), Doubles) *
               __builtin_convertvector(*(const Floats *)(b + i), Doubles);
    for (int64_t i = whole; i < n; i++) rest += (double)a[i] * (double)b[i];
    return sum_lanes(&sum) + rest;
}

FAST_SUM void vec_block_sums(VecSums *s, const float *v, const float *g, int64_t n) {
    Doubles vg = {0}, gg = {0}, vv = {0};
    int64_t whole = n / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        Doubles a = __builtin_convertvector(*(const Floats *)(v + i), Doubles);
        Doubles b = __builtin_convertvector(*(const Floats *)(g + i), Doubles);
        vg += a * b;
        gg += b * b;
        vv += a * a;
    }
    for (int64_t i = whole; i < n; i++) {
        vg[i - whole] += (double)v[i] * (double)g[i];
        gg[i - whole] += (double)g[i] * (double)g[i];
        vv[i - whole] += (double)v[i] * (double)v[i];
    }
    *s = (VecSums){s->vg + sum_lanes(&vg), s->gg + sum_lanes(&gg), s->vv + sum_lanes(&vv)};
}

FAST void vec_block_step(float *v, const float *g, double keep, double times, int64_t n) {
    for (int64_t i = 0; i < n; i++) v[i] = (float)(keep * (double)v[i] - times * (double)g[i]);
}

typedef int32_t Bits __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(sizeof(int32_t))));

/* Negates the numbers whose bit of `signs` is 0; eight bits count. */
static inline void negate(Floats *z, uint64_t signs) {
    static const Bits bit = {1, 2, 4, 8, 16, 32, 64, 128};
    int32_t low = (int32_t)(signs & 0xff);
    Bits all = {low, low, low, low, low, low, low, low};
    *z = (Floats)((Bits)*z ^ (((all & bit) == 0) & INT32_MIN));
}

FAST double vec_block_signed_sum(const float *z, uint64_t signs) {
    Floats sum = {0};
    for (int i = 0; i < VEC_SIGNS; i += LANES) {
        Floats part = *(const Floats *)(z + i);
        negate(&part, signs >> i);
        sum += part;
    }
    Doubles d = __builtin_convertvector(sum, Doubles);
    return sum_lanes(&d);
}

FAST void vec_block_add_signed(float *to, float by, uint64_t signs) {
    for (int i = 0; i < VEC_SIGNS; i += LANES) {
        Floats part = {by, by, by, by, by, by, by, by};
        negate(&part, signs >> i);
        *(Floats *)(to + i) += part;
    }
}

FAST static void decode_bf16(float *to, const uint16_t *raw, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = half_from_bf16(raw[i]);
}

FAST static void encode_bf16(uint16_t *raw, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) raw[i] = half_to_bf16(from[i]);
}

/* The format table converts one number at a time; bf16, by far the most frequent format here, has a fast path. */
void vec_block_decode(float *to, const void *raw, Format f, int64_t n) {
    if (f == FMT_BF16) decode_bf16(to, raw, n);
    else format_table[f].decode(to, raw, 1, n, 0, 1);
}

void vec_block_encode(void *raw, const float *from, Format f, int64_t n) {
    if (f == FMT_BF16) encode_bf16(raw, from, n);
    else format_table[f].encode(raw, from, 1, n, 0, 1);
}

double vec_sum(const double *a, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i];
    return sum;
}

/* ---- sums ---- */

typedef struct Dot {
    const float *a, *b;
    double *of_tile;
} Dot;

static void dot_part(void *context, int64_t first, int64_t last) {
    Dot *d = context;
    double sum = 0;
    for (int64_t from = first; from < last; from += BLOCK)
        sum += vec_block_dot(d->a + from, d->b + from, MIN2(BLOCK, last - from));
    d->of_tile[first / TILE] = sum;
}

double vec_dot(Threads *team, const float *a, const float *b, int64_t n) {
    double one = 0;
    int64_t tiles = (n + TILE - 1) / TILE;
    Dot d = {a, b, tiles > 1 ? MEM_NEW(double, tiles) : &one};
    vec_for(team, n, dot_part, &d);
    double sum = vec_sum(d.of_tile, tiles);
    if (tiles > 1) mem_free(d.of_tile);
    return sum;
}

double vec_norm(Threads *team, const float *a, int64_t n) { return sqrt(vec_dot(team, a, a, n)); }

/* ---- element by element ---- */

typedef struct Change {
    float *to;
    const float *a;
    double times;
} Change;

static void add_part(void *context, int64_t from, int64_t end) {
    const Change *c = context;
    for (int64_t i = from; i < end; i++) c->to[i] = (float)((double)c->to[i] + c->times * (double)c->a[i]);
}

void vec_add(Threads *team, float *to, const float *a, double times, int64_t n) {
    vec_for(team, n, add_part, &(Change){to, a, times});
}

static void difference_part(void *context, int64_t from, int64_t end) {
    const Change *c = context;
    for (int64_t i = from; i < end; i++) c->to[i] = (float)(((double)c->to[i] - (double)c->a[i]) / c->times);
}

void vec_difference(Threads *team, float *to, const float *a, double by, int64_t n) {
    vec_for(team, n, difference_part, &(Change){to, a, by});
}

static void scale_part(void *context, int64_t from, int64_t end) {
    const Change *c = context;
    for (int64_t i = from; i < end; i++) c->to[i] = (float)(c->times * (double)c->to[i]);
}

void vec_scale(Threads *team, float *to, double times, int64_t n) {
    vec_for(team, n, scale_part, &(Change){.to = to, .times = times});
}

typedef struct Stepping {
    float *v;
    const float *g;
    double keep, times;
} Stepping;

static void step_part(void *context, int64_t from, int64_t end) {
    const Stepping *s = context;
    vec_block_step(s->v + from, s->g + from, s->keep, s->times, end - from);
}

void vec_step(Threads *team, float *v, const float *g, double keep, double times, int64_t n) {
    vec_for(team, n, step_part, &(Stepping){v, g, keep, times});
}

typedef struct Drawing {
    float *to;
    uint64_t key;
} Drawing;

static void draw_part(void *context, int64_t from, int64_t end) {
    const Drawing *d = context;
    for (int64_t i = from; i < end; i++) d->to[i] = rng_normal(d->key, (uint64_t)i);
}

void vec_normal(Threads *team, float *to, uint64_t key, int64_t n) {
    vec_for(team, n, draw_part, &(Drawing){to, key});
}

static void zero_part(void *context, int64_t from, int64_t end) {
    memset((float *)context + from, 0, sizeof(float) * (size_t)(end - from));
}

void vec_zero(Threads *team, float *to, int64_t n) { vec_for(team, n, zero_part, to); }
