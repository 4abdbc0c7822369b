/* recompute.c - activation checkpointing: what forward does not keep, backward recomputes by clones of forward steps,
 * as few as it reads.
 *
 *   R1  a level names outputs of a layer's forward steps that are dropped. What another layer, another phase or
 *       the end of the model reads is never dropped: that is the residual stream.
 *   R2  only a step's first output is a reason to run the step again. The others (rstd, log-sum-exp, an
 *       adapter's small u) come with the clone when there is one, and are kept otherwise: an adapter beside the
 *       down projection must not cost that projection.
 *   R3  a clone stands just before the first backward step that needs it, after clones of what it reads itself;
 *       later readers use the same one. A step that no backward reader needs is not cloned (P5).
 *   R4  a clone keeps key and constants (P6); a step that writes state is never cloned, and neither is one that
 *       reads what its phase writes later: state, or a value carried around the ring (P4). An update behind backward
 *       does not count: clones stand before it.
 *   R5  norms and gates are those whose row says that repeating is cheap; the feed-forward of a layer is what the model
 *       recorded as such (Step.part). */
#include <stdlib.h>
#include <string.h>

#include "base/choose.h"
#include "plan/plan_int.h"

static const char *const level_names[RECOMPUTE_LEVELS] = {"none", "norm", "ffn", "block", "twice"};

const char *plan_recompute_name(RecomputeLevel level) {
    return level_names[level];
}

/* ---- the option's text ---- */

static bool parse_level(RecomputeLevel *level, const char *word, int64_t len, Err *e) {
    char copy[32] = "";
    int which;
    memcpy(copy, word, (size_t)MIN2(len, (int64_t)sizeof copy - 1));
    if (!choose_name(&which, copy, level_names, RECOMPUTE_LEVELS, "recompute level", e)) return false;
    *level = (RecomputeLevel)which;
    return true;
}

static bool parse_number(int *n, const char **text) {
    char *end;
    if (**text < '0' || **text > '9') return false;
    long v = strtol(*text, &end, 10);
    if (v > 1000000) return false;
    *n = (int)v;
    *text = end;
    return true;
}

static bool parse_part(RecomputeLevel *per_layer, bool *named, int layers, const char **text, Err *e) {
    const char *at = *text, *colon = at + strcspn(at, ":,");
    RecomputeLevel level;
    int first = 0, last;
    if (!parse_level(&level, at, colon - at, e)) return false;
    if (*colon != ':')
        return fail(e, ERR_USAGE,
                    "recompute: '%s' names no layers. Write level:first-last, as in block:0-13,norm:14-27", at);
    at = colon + 1;
    bool ok = parse_number(&first, &at);
    last = first;
    if (ok && *at == '-') at++, ok = parse_number(&last, &at);
    if (!ok || (*at && *at != ','))
        return fail(e, ERR_USAGE,
                    "recompute: '%s' is not a range of layers. Write level:first-last, as in block:0-13",
                    colon + 1);
    if (first > last || last >= layers)
        return fail(e, ERR_USAGE, "recompute: layers %d-%d are not among 0-%d", first, last, layers - 1);
    for (int i = first; i <= last; i++) {
        if (named[i]) return fail(e, ERR_USAGE, "recompute: layer %d is named twice", i);
        named[i] = true;
        per_layer[i] = level;
    }
    *text = at;
    return true;
}

bool plan_parse_recompute(RecomputeLevel *per_layer, int layers, const char *text, Err *e) {
    for (int i = 0; i < layers; i++) per_layer[i] = RECOMPUTE_NONE;
    if (!strpbrk(text, ":,")) { /* one level for all */
        RecomputeLevel level;
        if (!parse_level(&level, text, (int64_t)strlen(text), e)) return false;
        for (int i = 0; i < layers; i++) per_layer[i] = level;
        return true;
    }
    bool *named = MEM_NEW(bool, layers + 1), ok = true;
    for (const char *at = text; ok;) {
        ok = parse_part(per_layer, named, layers, &at, e);
        if (!ok || !*at) break;
        at++; /* the comma */
    }
    mem_free(named);
    return ok;
}

/* ---- the pass ---- */

typedef struct Made { /* where an activation comes from */
    int step;         /* that writes it; -1: not a candidate */
    int visit;        /* the stretch of one layer's forward steps that this step is in */
    bool dropped;     /* by its layer's level */
    bool first;       /* it is the step's first output (R2) */
    Tid twin;         /* what its clone made; NONE: not cloned yet */
} Made;

typedef struct Recompute {
    Program *p;
    Rewrite w;
    const RecomputeLevel *per_layer;
    int layers;
    Made *made;      /* owns: per tensor of the recorded program */
    bool *cloned;    /* owns: per recorded step, it will be cloned */
    int *visit;      /* owns: per recorded step; 0: not forward of a layer */
    int *last_write; /* owns: per base tensor, the last step that writes it, up to the phase at hand */
} Recompute;

static bool writes_state(const Program *p, const Step *s) {
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] && prog_is_state(p, s->out[k])) return true;
    return false;
}

/* R4; last_write: as it stands at the end of the step's phase. */
static bool reads_what_changes(const Recompute *r, int step) {
    for (int k = 0; k < MAX_IN; k++) {
        Tid id = r->p->s[step].in[k];
        if (id && r->last_write[prog_base(r->p, id)] > step) return true;
    }
    return false;
}

static void note_writes(Recompute *r, const Phase *phase) {
    int end = phase->end; /* what is written behind the last backward step comes after every clone */
    while (end > phase->begin && r->p->s[end - 1].region == REGION_UPDATE) end--;
    for (int i = phase->begin; i < end; i++)
        for (int k = 0; k < MAX_OUT; k++)
            if (r->p->s[i].out[k]) r->last_write[prog_base(r->p, r->p->s[i].out[k])] = i;
}

static bool level_drops(RecomputeLevel level, const Step *s) { /* R5 */
    bool cheap = op_row(s->op)->flags & OPF_CHEAP, in_ffn = s->part == PART_FFN;
    return level >= RECOMPUTE_BLOCK || (level >= RECOMPUTE_NORM && cheap) || (level == RECOMPUTE_FFN && in_ffn);
}

static void note_outputs(Recompute *r, int step, bool dropped) {
    const Step *s = &r->p->s[step];
    for (int k = 0; k < MAX_OUT; k++) {
        Tid id = s->out[k];
        if (!id || r->p->t[id].role != ROLE_ACTIVATION || r->p->t[id].base) continue;
        r->made[id] = (Made){.step = step, .visit = r->visit[step], .dropped = dropped, .first = k == 0};
    }
}

/* Finds each layer's stretches of forward steps, and what its level drops there. */
static void note_layers(Recompute *r) {
    const Program *p = r->p;
    int visits = 0, layer = -1;
    for (int ph = 0; ph < p->n_phases; ph++, layer = -1) {
        note_writes(r, &p->phase[ph]);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            const Step *s = &p->s[i];
            if (s->region != REGION_FORWARD || s->layer < 0 || s->layer >= r->layers) {
                layer = -1;
                continue;
            }
            if (s->layer != layer) visits++, layer = s->layer;
            r->visit[i] = visits;
            bool drops = level_drops(r->per_layer[layer], s);
            note_outputs(r, i, drops && !writes_state(p, s) && !reads_what_changes(r, i));
        }
    }
}

static void keep_what_escapes(Recompute *r) { /* R1 */
    const Program *p = r->p;
    for (int ph = 0; ph < p->n_phases; ph++)
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++)
            for (int k = 0; k < MAX_IN; k++) {
                Tid id = p->s[i].in[k];
                Made *m = id ? &r->made[prog_base(p, id)] : NULL;
                if (!m || !m->dropped) continue;
                bool same_phase = m->step >= p->phase[ph].begin && m->step < p->phase[ph].end;
                bool backward = p->s[i].region == REGION_BACKWARD;
                if (!same_phase || (!backward && r->visit[i] != m->visit)) m->dropped = false;
            }
}

static void need_step(Recompute *r, int step) {
    if (r->cloned[step]) return;
    r->cloned[step] = true;
    for (int k = 0; k < MAX_IN; k++) {
        Tid id = r->p->s[step].in[k];
        const Made *m = id ? &r->made[prog_base(r->p, id)] : NULL;
        if (m && m->dropped && m->first) need_step(r, m->step);
    }
}

static void note_needs(Recompute *r) {
    const Program *p = r->p;
    for (int i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_IN && p->s[i].region == REGION_BACKWARD; k++) {
            Tid id = p->s[i].in[k];
            const Made *m = id ? &r->made[prog_base(p, id)] : NULL;
            if (m && m->dropped && m->first) need_step(r, m->step); /* R2 */
        }
}

static Tid recomputed(Recompute *r, Tid id);

static void clone_step(Recompute *r, int step) {
    Program *p = r->p;
    Step c = p->s[step];
    for (int k = 0; k < MAX_IN; k++) {
        if (!c.in[k]) continue;
        c.in[k] = recomputed(r, c.in[k]);
    }
    for (int k = 0; k < MAX_OUT; k++) {
        if (!c.out[k]) continue;
        Tid twin = rewrite_twin(p, c.out[k], "recomputed");
        r->made[c.out[k]].twin = twin;
        c.out[k] = twin;
    }
    c.region = REGION_RECOMPUTE;
    c.clone_of = r->w.moved[step];
    rewrite_add(&r->w, c);
}

/* The tensor that a reader in backward takes instead of id: id itself when it was kept. */
static Tid recomputed(Recompute *r, Tid id) {
    Tid base = prog_base(r->p, id);
    Made m = r->made[base];
    if (!m.dropped || !r->cloned[m.step]) return id;
    if (!m.twin) clone_step(r, m.step);
    Tid twin = r->made[base].twin;
    return id == base ? twin : rewrite_twin_view(r->p, id, twin);
}

static void rewrite(Recompute *r) {
    Program *p = r->p;
    rewrite_begin(&r->w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&r->w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            Step s = p->s[i];
            for (int k = 0; k < MAX_IN && s.region == REGION_BACKWARD; k++)
                if (s.in[k]) s.in[k] = recomputed(r, s.in[k]);
            rewrite_keep(&r->w, i, s);
        }
    }
    rewrite_end(&r->w);
}

void plan_recompute(Program *p, const RecomputeLevel *per_layer, int layers) {
    Recompute r = {.p = p,
                   .per_layer = per_layer,
                   .layers = layers,
                   .made = MEM_NEW(Made, p->n_t),
                   .cloned = MEM_NEW(bool, p->n_s + 1),
                   .visit = MEM_NEW(int, p->n_s + 1),
                   .last_write = MEM_NEW(int, p->n_t)};
    for (int64_t i = 0; i < p->n_t; i++) r.made[i].step = r.last_write[i] = -1;
    note_layers(&r);
    keep_what_escapes(&r);
    note_needs(&r);
    rewrite(&r);
    mem_free(r.made);
    mem_free(r.cloned);
    mem_free(r.visit);
    mem_free(r.last_write);
    for (int l = 0; l < layers; l++)
        if (per_layer[l] == RECOMPUTE_TWICE) {
            plan_remake(p, per_layer, layers);
            break;
        }
}
