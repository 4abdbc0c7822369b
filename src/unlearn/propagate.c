/* propagate.c - the recursion over updates, and its norm guard. */
#include "unlearn/propagate.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/work.h"
#include "unlearn/vec.h"

typedef struct Carried {
    const Walk *w;
    const PropagateOptions *o;
    PropagateReport *out;
    float *v, *m; /* deviation of theta; of the momentum (NULL: the optimizer has none) */
    float *change, *other; /* NULL: the walk streams pieces and needs no vector */
    bool fresh;   /* nothing was removed yet: v counts as 0 */
    bool by_walk; /* the walk propagated v through the last update and applied the guard itself */
    double norm;  /* of v */
    bool more;    /* the next update is propagated through as well */
} Carried;

/* With whole updates removed and a rank-1 Fisher product, a walk can stream v a piece at a time. */
static bool streams_whole_updates(const PropagateOptions *o, double momentum) {
    return o->hessian == HESSIAN_FISHER && o->mode == PROPAGATE_STEPS && !(momentum > 0);
}

int propagate_vectors(const PropagateOptions *o, double momentum) {
    return streams_whole_updates(o, momentum) ? 0 : momentum > 0 ? 3 : 2;
}

/* ---- one update ---- */

typedef struct StepOfSpan {
    Carried *c;
    const WalkSpan *span;
    WalkRate rate;
} StepOfSpan;

static void momentum_step_part(void *context, int64_t from, int64_t end) {
    const StepOfSpan *s = context;
    Carried *c = s->c;
    double lr = s->rate.lr * s->span->mult, decay = s->span->decay + c->o->damping;
    for (int64_t i = s->span->first + from; i < s->span->first + end; i++) {
        double force = s->rate.scale * (double)c->change[i] + decay * (double)c->v[i];
        c->m[i] = (float)(c->w->momentum * (double)c->m[i] + force);
        c->v[i] = (float)((double)c->v[i] - lr * (double)c->m[i]);
    }
}

/* v <- v - lr * (scale * change + (decay + damping) * v); with momentum, the same force goes through m first. */
static void take_step(Carried *c, WalkRate rate) {
    for (int k = 0; k < c->w->n_spans; k++) {
        const WalkSpan *s = &c->w->span[k];
        double lr = rate.lr * s->mult, keep = 1 - lr * (s->decay + c->o->damping);
        if (c->m) vec_for(c->w->team, s->count, momentum_step_part, &(StepOfSpan){c, s, rate});
        else vec_step(c->w->team, c->v + s->first, c->change + s->first, keep, lr * rate.scale, s->count);
    }
}

static void note_rate(PropagateReport *r, WalkRate rate) {
    r->rate_low = r->rate_high > 0 ? fmin(r->rate_low, rate.lr) : rate.lr;
    r->rate_high = fmax(r->rate_high, rate.lr);
    r->clipped |= rate.scale < 1;
}

static bool product_into_change(Carried *c, WalkRows rows, Err *e) {
    if (c->out->added_norm == 0) { /* nothing has been removed yet: v is 0 */
        vec_zero(c->w->team, c->change, c->w->n);
        return true;
    }
    c->out->hvp_calls++;
    return hessian_product(c->w, c->o, rows, c->v, c->change, c->other, e);
}

static bool remove_step(Carried *c, Err *e) {
    WalkRate rate;
    int64_t n = c->w->n;
    double added;
    if (c->w->remove) {
        if (!c->w->remove(c->w->user, c->v, c->fresh, &added, &c->norm, e)) return false;
        c->out->added_norm += added;
        c->fresh = false;
        return true;
    }
    if (!c->w->advance(c->w->user, c->change, c->m ? c->other : NULL, &rate, e)) return false;
    vec_add(c->w->team, c->v, c->change, -1, n);
    if (c->m) vec_add(c->w->team, c->m, c->other, -1, n);
    c->out->added_norm += vec_norm(c->w->team, c->change, n);
    c->norm = vec_norm(c->w->team, c->v, n);
    return true;
}

static bool remove_samples(Carried *c, Err *e) {
    WalkRate rate;
    int64_t n = c->w->n;
    if (!product_into_change(c, WALK_KEPT, e) || !c->w->gradient(c->w->user, c->other, WALK_REMOVED, NULL, 0, e))
        return false;
    double removed = vec_norm(c->w->team, c->other, n);
    vec_add(c->w->team, c->change, c->other, -1, n);
    if (!c->w->advance(c->w->user, NULL, NULL, &rate, e)) return false;
    note_rate(c->out, rate);
    take_step(c, rate);
    c->out->added_norm += rate.lr * rate.scale * removed;
    c->norm = vec_norm(c->w->team, c->v, n);
    return true;
}

/* |v| may not exceed ten times the sum of what removals have added. Without that limit the growth between removals
 * would compound wherever the recursion does not contract. */
static WalkGuard guard_of(const Carried *c) {
    double added = c->out->added_norm;
    return (WalkGuard){c->o->guard, fmax(10 * added, 0.05), added};
}

static bool propagate_through(Carried *c, Err *e) {
    WalkRate rate;
    if (!c->change) {
        WalkFisher how = {.damping = c->o->damping, .guard = guard_of(c), .more = c->more};
        c->by_walk = true;
        if (!c->w->fisher(c->w->user, c->v, &how, &rate, &c->norm, e)) return false;
        c->out->hvp_calls++;
        note_rate(c->out, rate);
        return true;
    }
    if (!product_into_change(c, WALK_ALL, e) || !c->w->advance(c->w->user, NULL, NULL, &rate, e)) return false;
    note_rate(c->out, rate);
    take_step(c, rate);
    c->norm = vec_norm(c->w->team, c->v, c->w->n);
    return true;
}

static void guard(Carried *c) {
    WalkGuard g = guard_of(c);
    double norm = c->norm;
    bool wild = !isfinite(norm), held = g.on && (wild || norm > g.limit);
    if (held && !c->by_walk) {
        if (c->w->scale) c->w->scale(c->w->user, wild ? 0 : g.back_to / norm);
        else if (wild) vec_zero(c->w->team, c->v, c->w->n);
        else vec_scale(c->w->team, c->v, g.back_to / norm, c->w->n);
    }
    if (held) norm = wild ? 0 : g.back_to;
    c->out->guarded += held;
    c->out->norm = norm;
    c->out->largest_norm = fmax(c->out->largest_norm, norm);
    c->by_walk = false;
}

/* ---- the window ---- */

static bool walk_window(Carried *c, const int64_t *touched, int64_t n, Err *e) {
    int64_t last = touched[n - 1], end = last + MIN2(c->o->window, c->w->steps - 1 - last);
    Work work;
    work_begin(&work, WORK_COUNT, end + 1 - touched[0], "propagating");
    bool ok = c->w->seek(c->w->user, touched[0], e);
    for (int64_t s = touched[0], i = 0; ok && s <= end; s++) {
        bool removal = i < n && touched[i] == s;
        i += removal;
        c->more = s < end && !(i < n && touched[i] == s + 1);
        ok = !removal                        ? propagate_through(c, e)
             : c->o->mode == PROPAGATE_STEPS ? remove_step(c, e)
                                             : remove_samples(c, e);
        if (ok) guard(c);
        ok = ok && work_on(&work, s + 1 - touched[0], e);
    }
    work_end(&work);
    c->out->window_used = end - last;
    return ok;
}

bool propagate(const Walk *w, const PropagateOptions *o, const int64_t *touched, int64_t n, float *v,
               PropagateReport *out, Err *e) {
    CHECK(n > 0);
    *out = (PropagateReport){.steps_touched = n};
    Carried c = {.w = w, .o = o, .out = out, .v = v, .fresh = true};
    if (!w->fisher || !streams_whole_updates(o, w->momentum)) {
        c.change = vec_new(w->n);
        c.other = vec_new(w->n);
        vec_zero(w->team, v, w->n);
    }
    if (w->momentum > 0) c.m = vec_new(w->n);
    bool ok = walk_window(&c, touched, n, e);
    mem_free(c.change);
    mem_free(c.other);
    mem_free(c.m);
    return ok;
}
