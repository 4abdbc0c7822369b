/* carry.c - the passes over v and its companions (the last gradient, the kept weights), fused to as few as possible. */
#include "unlearn/carry.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

int64_t carry_bytes(const Params *p) { return p->raw_bytes + p->n_tiles * (int64_t)sizeof(VecSums); }

void carry_open(Carry *c, const Params *p, Exec *x) {
    *c = (Carry){.p = p, .x = x, .copy = mem_alloc_wide(p->raw_bytes), .of_tile = MEM_NEW(VecSums, p->n_tiles)};
}

void carry_close(Carry *c) {
    mem_free(c->copy);
    mem_free(c->of_tile);
    *c = (Carry){0};
}

static void begin_sums(Carry *c) { memset(c->of_tile, 0, sizeof(VecSums) * (size_t)c->p->n_tiles); }

static VecSums sum_tiles(const Carry *c, int64_t from, int64_t end) {
    VecSums all = {0};
    for (int64_t i = from; i < end; i++) {
        all.vg += c->of_tile[i].vg;
        all.gg += c->of_tile[i].gg;
        all.vv += c->of_tile[i].vv;
    }
    return all;
}

static float *v_of(const Carry *c, const ParamsBlock *b) { return c->v + b->k->first + b->at; }
static char *copy_of(const Carry *c, const ParamsBlock *b) { return c->copy + b->k->raw + b->at * b->item; }

/* ---- a removed update ---- */

void carry_keep_theta(Carry *c) { params_copy(c->p, c->x, PARAMS_THETA, c->copy); }

static void take_away(Carry *c, int64_t tile, float *v, const float *u, int64_t n) {
    if (c->fresh) memset(v, 0, sizeof *v * (size_t)n);
    vec_block_step(v, u, 1, 1, n);
    vec_block_sums(&c->of_tile[tile], v, u, n);
}

static void remove_block(void *context, const ParamsBlock *b) {
    Carry *c = context;
    float u[PARAMS_BLOCK];
    vec_block_decode(u, copy_of(c, b), b->format, b->n);
    for (int64_t i = 0; i < b->n; i++) u[i] = b->value[i] - u[i];
    take_away(c, b->tile, v_of(c, b), u, b->n);
}

static void end_removal(Carry *c, double *moved, double *norm) {
    VecSums s = sum_tiles(c, 0, c->p->n_tiles);
    *moved = sqrt(s.gg);
    *norm = sqrt(s.vv);
    c->fresh = false;
}

void carry_remove(Carry *c, double *moved, double *norm) {
    CHECK(!c->n_deferred);
    begin_sums(c);
    params_read(c->p, c->x, PARAMS_THETA, remove_block, c);
    end_removal(c, moved, norm);
}

/* A tile has the same length here and above, and it is split into the same blocks: sums have the same order. */
static void remove_stored(void *context, int tensor, int64_t tile, int64_t at, const float *u, int64_t n) {
    Carry *c = context;
    const ParamTensor *k = &c->p->tensor[tensor];
    for (int64_t from = 0; from < n; from += PARAMS_BLOCK)
        take_away(c, k->first_tile + tile, c->v + k->first + at + from, u + from, MIN2(PARAMS_BLOCK, n - from));
}

bool carry_remove_stored(Carry *c, StoredSource *s, double *moved, double *norm, Err *e) {
    CHECK(!c->n_deferred && s->layout.n == c->p->n_tensors);
    begin_sums(c);
    if (!stored_read(s, c->p->team, remove_stored, c, e)) return false;
    end_removal(c, moved, norm);
    return true;
}

/* ---- an update that v is propagated through ---- */

typedef struct Factors {
    double keep, times;
} Factors;

static Factors factors(const WalkSpan *span, CarryStep s, double scale) {
    double lr = s.lr * span->mult;
    return (Factors){scale * (1 - lr * (span->decay + s.damping)), scale * lr * s.times};
}

static Factors factors_of(const Carry *c, const ParamTensor *k) {
    return factors(&c->p->span[k - c->p->tensor], c->step, c->scale);
}

static void apply_and_dot_block(void *context, const ParamsBlock *b) {
    Carry *c = context;
    float *v = v_of(c, b);
    if (b->k - c->p->tensor < c->n_deferred) {
        float was[PARAMS_BLOCK];
        Factors f = factors_of(c, b->k);
        vec_block_decode(was, copy_of(c, b), b->format, b->n);
        vec_block_step(v, was, f.keep, f.times, b->n);
    }
    memcpy(copy_of(c, b), b->raw, (size_t)(b->n * b->item));
    vec_block_sums(&c->of_tile[b->tile], v, b->value, b->n);
}

double carry_apply_and_dot(Carry *c) {
    begin_sums(c);
    params_read(c->p, c->x, PARAMS_GRADIENT, apply_and_dot_block, c);
    c->n_deferred = 0;
    return sum_tiles(c, 0, c->p->n_tiles).vg;
}

double carry_square_ahead(const WalkSpan *span, CarryStep s, VecSums q) {
    Factors f = factors(span, s, 1);
    return f.keep * f.keep * q.vv - 2 * f.keep * f.times * q.vg + f.times * f.times * q.gg;
}

double carry_held_at(const WalkGuard *guard, double norm) {
    if (!guard->on || norm <= guard->limit) return 1;
    return isfinite(norm) ? guard->back_to / norm : 0;
}

static double norm_ahead(const Carry *c) {
    const Params *p = c->p;
    double sum = 0;
    for (int k = 0; k < p->n_tensors; k++) {
        const ParamTensor *t = &p->tensor[k];
        VecSums q = sum_tiles(c, t->first_tile, k + 1 < p->n_tensors ? t[1].first_tile : p->n_tiles);
        sum += carry_square_ahead(&p->span[k], c->step, q);
    }
    return sqrt(isnan(sum) ? sum : fmax(sum, 0));
}

double carry_defer(Carry *c, CarryStep s, const WalkGuard *guard) {
    c->step = s;
    c->n_deferred = c->p->n_tensors;
    double norm = norm_ahead(c);
    c->scale = carry_held_at(guard, norm);
    if (c->scale > 0) return norm;
    c->n_deferred = 0;
    vec_zero(c->p->team, c->v, c->p->n);
    return norm;
}

static void step_block(void *context, const ParamsBlock *b) {
    const Carry *c = context;
    Factors f = factors_of(c, b->k);
    float *v = v_of(c, b);
    vec_block_step(v, b->value, f.keep, f.times, b->n);
    c->of_tile[b->tile].vv += vec_block_dot(v, v, b->n);
}

void carry_apply_deferred(Carry *c, int from) {
    for (int k = from; k < c->n_deferred; k++) {
        const ParamTensor *t = &c->p->tensor[k];
        int64_t tiles = (k + 1 < c->p->n_tensors ? t[1].first_tile : c->p->n_tiles) - t->first_tile;
        memset(&c->of_tile[t->first_tile], 0, sizeof(VecSums) * (size_t)tiles);
        params_read_copy(c->p, c->x, PARAMS_GRADIENT, k, c->copy, step_block, c);
    }
    c->n_deferred = MIN2(c->n_deferred, from);
}

double carry_norm(const Carry *c) {
    CHECK(!c->n_deferred);
    return sqrt(sum_tiles(c, 0, c->p->n_tiles).vv);
}
