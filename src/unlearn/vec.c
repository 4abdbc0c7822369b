/* vec.c - sums in blocks and tiles, so that their order and error do not grow with the length. */
#include "unlearn/vec.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { BLOCK = 4096, TILE = 64 * BLOCK };

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
    int64_t tiles = (n + TILE - 1) / TILE;
    if (team) threads_for(team, tiles, do_tile, &t);
    else
        for (int64_t i = 0; i < tiles; i++) do_tile(&t, i, 0);
}

/* ---- sums ---- */

typedef struct Dot {
    const float *a, *b;
    double *of_tile;
} Dot;

static void dot_part(void *context, int64_t first, int64_t last) {
    Dot *d = context;
    double sum = 0;
    for (int64_t from = first; from < last; from += BLOCK) {
        double block = 0;
        for (int64_t i = from, end = MIN2(from + BLOCK, last); i < end; i++)
            block += (double)d->a[i] * (double)d->b[i];
        sum += block;
    }
    d->of_tile[first / TILE] = sum;
}

double vec_dot(Threads *team, const float *a, const float *b, int64_t n) {
    double one = 0, sum = 0;
    int64_t tiles = (n + TILE - 1) / TILE;
    Dot d = {a, b, tiles > 1 ? MEM_NEW(double, tiles) : &one};
    vec_for(team, n, dot_part, &d);
    for (int64_t i = 0; i < tiles; i++) sum += d.of_tile[i];
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

static void zero_part(void *context, int64_t from, int64_t end) {
    memset((float *)context + from, 0, sizeof(float) * (size_t)(end - from));
}

void vec_zero(Threads *team, float *to, int64_t n) { vec_for(team, n, zero_part, to); }
