/* update.c - records the optimizer: gradient norms, the verdict on them, and one update step per trained tensor. */
#include <string.h>

#include "train/job.h"

/* ---- groups by name ---- */

static bool matches_here(const char *part, const char *name) {
    for (; *part && *part != '*'; part++, name++)
        if (*part != *name) return false;
    if (!*part) return true;
    for (const char *at = name;; at++) {
        if (matches_here(part + 1, at)) return true;
        if (!*at) return false;
    }
}

static bool name_holds(const char *name, const char *part) {
    for (const char *at = name;; at++) {
        if (matches_here(part, at)) return true;
        if (!*at) return false;
    }
}

/* A tensor has one multiplier, so a rule that names only some of its stacked projections is refused. */
static bool rule_fits(const Program *p, Tid t, const NameRules *r, const char *part, bool *fits, Err *e) {
    int names = 0, hits = 0;
    *fits = name_holds(p->t[t].name, part) || (p->t[t].file_name && name_holds(p->t[t].file_name, part));
    for (Tid v = 1; v < p->n_t && !*fits; v++) {
        if (p->t[v].base != t || !p->t[v].file_name) continue;
        names++;
        hits += name_holds(p->t[v].file_name, part);
    }
    if (hits && hits < names)
        return fail(e, ERR_USAGE, "--%s %s: names only part of %s, which is one product here; name all of its parts",
                    r->option, part, p->t[t].name);
    *fits |= hits > 0;
    return true;
}

static bool mult_of(const Job *j, Tid t, const NameRules *r, float *mult, Err *e) {
    for (int i = 0; i < r->n; i++) {
        bool fits;
        if (!rule_fits(&j->ring->p, t, r, r->rule[i].part, &fits, e)) return false;
        if (fits) *mult = r->rule[i].mult;
    }
    return true;
}

static bool check_names(const Program *p, const NameRules *r, Err *e) {
    for (int i = 0; i < r->n; i++) {
        bool fits = r->rule[i].may_miss;
        for (Tid t = 1; t < p->n_t && !fits; t++)
            if (p->t[t].trainable && !rule_fits(p, t, r, r->rule[i].part, &fits, e)) return false;
        if (!fits)
            return fail(e, ERR_USAGE,
                        "--%s %s: no parameter that is trained has this in its name (`snug plan --listing` shows them)",
                        r->option, r->rule[i].part);
    }
    return true;
}

bool job_check_names(const Job *j, Err *e) {
    return check_names(&j->ring->p, &j->spec.lr_rules, e) && check_names(&j->ring->p, &j->spec.decay_rules, e);
}

/* ---- one tensor ---- */

/* The optimizer's state "layers.3.qkv_w.m"; the second update phase of a program reuses that of the first. */
static Tid twin_of(Job *j, Tid w, const char *what, Role role, Format f) {
    Program *p = &j->ring->p;
    Tensor t = *prog_t(p, w);
    const char *name = arena_printf(&p->arena, "%s.%s", t.name, what);
    Tid m = j->warmup_update >= 0 ? prog_find(p, name) : NONE; /* otherwise there is only one update phase */
    if (m) return m;
    m = prog_tensor(p, name, role, f, t.rank, t.dim);
    p->t[m].layer = t.layer;
    return m;
}

/* Where several phases update the same tensor, it has one master. */
static Tid master_of(Job *j, Tid w) {
    Tid *known = j->carry.master ? &j->carry.master[w] : NULL;
    Tid master = known && *known ? *known : twin_of(j, w, "master", ROLE_MASTER, FMT_F32);
    if (known) *known = master;
    return master;
}

/* number: of the tensor among those that are trained. */
static CarryTensors carry_of(Job *j, Tid w, int64_t number) {
    Program *p = &j->ring->p;
    Tid *v = &j->carry.correction[w], *last = &j->carry.last[w];
    if (!*v) *v = twin_of(j, w, "correction", ROLE_CORRECTION, FMT_F32);
    if (!*last) *last = twin_of(j, w, "last_grad", ROLE_CORRECTION, p->t[p->t[w].grad].format);
    Tid sums = prog_view(p, "carry_sums", j->carry.sums, number, 1);
    return (CarryTensors){.correction = *v, .last = *last, .dials = j->carry.dials, .sums = sums};
}

static bool attr_of(const Job *j, Tid w, AttrUpdate *attr, Err *e) {
    const JobSpec *s = &j->spec;
    float decay = j->ring->p.t[w].rank < 2 ? 0 : 1; /* norms and biases are not decayed */
    *attr = s->update;
    attr->lr_mult = 1;
    if (!mult_of(j, w, &s->lr_rules, &attr->lr_mult, e) || !mult_of(j, w, &s->decay_rules, &decay, e)) return false;
    attr->weight_decay *= decay;
    return true;
}

/* number: of the tensor among those that are updated. */
static bool record_one_update(Job *j, Tid w, Tid verdict, int64_t number, Err *e) {
    static const Format first[] = {FMT_F32, FMT_BF16, FMT_MOM8}, second[] = {FMT_F32, FMT_BF16, FMT_VAR8};
    Program *p = &j->ring->p;
    const JobSpec *s = &j->spec;
    AttrUpdate attr;
    Tensor t = *prog_t(p, w);
    if (!attr_of(j, w, &attr, e)) return false;
    UpdateTensors u = {.weight = w, .gradient = t.grad, .dials = j->dials, .verdict = verdict};
    if (s->master && t.format != FMT_F32) u.master = master_of(j, w);
    if (s->optimizer == OPTIMIZER_ADAMW || attr.beta1 > 0) u.m = twin_of(j, w, "m", ROLE_MOMENT, first[s->moments]);
    if (s->optimizer == OPTIMIZER_ADAMW) u.v = twin_of(j, w, "v", ROLE_MOMENT, second[s->moments]);
    CarryTensors carried = j->carry.recording ? carry_of(j, w, number) : (CarryTensors){0};
    p->layer = t.layer;
    if (s->optimizer == OPTIMIZER_ADAMW) op_adamw(p, u, attr);
    else if (carried.correction) op_sgd_carry(p, u, carried, attr);
    else op_sgd(p, u, attr);
    p->layer = -1;
    return true;
}

/* Inside backward the other gradients are not known yet: a tensor is updated if its own gradient and the loss are
 * finite. The extra steps take no random key, so that the update rounds with the same numbers as outside backward (P6).
 * */
static Tid record_own_verdict(Job *j, Tid verdicts, int64_t n, Tid part, int layer) {
    Program *p = &j->ring->p;
    uint32_t key = p->next_key;
    Tid verdict = prog_view(p, "own_verdict", verdicts, n, 1);
    p->layer = layer;
    op_clip(p, verdict, part, j->loss, j->max_norm, NONE, NONE);
    p->layer = -1;
    p->next_key = key;
    return verdict;
}

/* Whether t is trained and its gradient was recorded at or after `since`. */
static bool is_updated(const Program *p, Tid t, int since) {
    return p->t[t].trainable && p->t[p->t[t].grad].recorded >= since;
}

/* Records the sum of squares of every gradient; part[t] becomes a view of one number of parts. */
static void record_squares(Program *p, Tid parts, Tid *part, Tid last, int since) {
    int64_t n = 0;
    for (Tid t = 1; t < last; t++)
        if (is_updated(p, t, since)) {
            part[t] = prog_view(p, "square", parts, n++, 1);
            p->layer = p->t[t].layer;
            op_sum_squares(p, part[t], p->t[t].grad);
        }
    p->layer = -1;
}

/* parts: one number per updated tensor. */
static bool record_updates(Job *j, Tid parts, Tid last, int since, Err *e) {
    Program *p = &j->ring->p;
    Tid verdicts = NONE, *part = MEM_NEW(Tid, last);
    bool inside = j->spec.update_in_backward, ok = true;
    int64_t n = 0;
    if (inside)
        verdicts = prog_tensor(p, "verdicts", ROLE_STATISTIC, FMT_F64, 2, DIMS(prog_elements(p, parts), VERDICT_WORDS));
    prog_keys_of(p, "update");
    p->region = REGION_UPDATE;
    record_squares(p, parts, part, last, since);
    op_clip(p, j->verdict, parts, j->loss, j->max_norm, j->unscale, j->limits);
    n = 0;
    for (Tid t = 1; t < last && ok; t++) {
        if (!is_updated(p, t, since)) continue;
        Tid verdict = inside ? record_own_verdict(j, verdicts, n, part[t], p->t[t].layer) : j->verdict;
        ok = record_one_update(j, t, verdict, n++, e);
    }
    mem_free(part);
    p->layer = -1;
    return ok;
}

static Tid squares_of(Program *p, const char *name, Tid last, int since) {
    int64_t n = 0;
    for (Tid t = 1; t < last; t++) n += is_updated(p, t, since);
    return prog_tensor(p, name, ROLE_STATISTIC, FMT_F64, 1, DIMS(MAX2(n, 1)));
}

bool job_record_update(Job *j, Err *e) {
    Program *p = &j->ring->p;
    Tid last = (Tid)p->n_t;
    int since = p->phase[j->micro].begin;
    j->parts = squares_of(p, "squares", last, since);
    if (!j->spec.update_in_backward) j->update = prog_begin_phase(p, "update", 1);
    bool ok = record_updates(j, j->parts, last, since, e);
    prog_end_phase(p);
    if (!j->spec.update_in_backward) ring_add_plays(j->ring, j->update, 1);
    return ok;
}

void job_begin_carry(Job *j) {
    Program *p = &j->ring->p;
    int64_t n = 0;
    for (Tid t = 1; t < p->n_t; t++) n += p->t[t].trainable && !p->t[t].base;
    CHECK(j->spec.optimizer == OPTIMIZER_SGD && j->spec.update.beta1 <= 0 && j->spec.update_in_backward);
    j->carry = (JobCarry){.correction = ARENA_NEW(&p->arena, Tid, p->n_t),
                          .last = ARENA_NEW(&p->arena, Tid, p->n_t),
                          .master = ARENA_NEW(&p->arena, Tid, p->n_t)};
    j->carry.dials = prog_tensor(p, "carry", ROLE_DIAL, FMT_F32, 1, DIMS(CARRY_WORDS));
    j->carry.sums = prog_tensor(p, "carry_sums", ROLE_STATISTIC, FMT_F64, 2, DIMS(MAX2(n, 1), CARRY_SUMS));
}

bool job_record_carry(Job *j, Err *e) {
    Program *p = &j->ring->p;
    Tid last = (Tid)p->n_t;
    int since = p->phase[p->n_phases - 1].begin;
    Tid parts = squares_of(p, "carry_squares", last, since);
    j->carry.recording = true;
    bool ok = record_updates(j, parts, last, since, e);
    j->carry.recording = false;
    prog_end_phase(p);
    return ok;
}

bool job_record_carry_apply(Job *j, int *phase, Err *e) {
    Program *p = &j->ring->p;
    int64_t n = 0;
    bool ok = true;
    *phase = prog_begin_phase(p, "apply", 1);
    p->region = REGION_UPDATE;
    for (Tid w = 1, last = (Tid)p->n_t; ok && w < last; w++) {
        AttrUpdate attr;
        if (!p->t[w].trainable || p->t[w].base) continue;
        CarryTensors c = carry_of(j, w, n++);
        ok = attr_of(j, w, &attr, e);
        p->layer = p->t[w].layer;
        if (ok) op_carry_apply(p, (UpdateTensors){.weight = w, .master = j->carry.master[w]}, c, attr);
        p->layer = -1;
    }
    prog_end_phase(p);
    return ok;
}

/* Takes no random key, so that the update after it rounds with the same numbers as without this phase (P6). */
void job_record_noise(Job *j) {
    Program *p = &j->ring->p;
    Tid last = (Tid)p->n_t, *part = MEM_NEW(Tid, last);
    int since = p->phase[j->micro].begin;
    Tid parts = squares_of(p, "noise_squares", last, since);
    j->noise_verdict = prog_tensor(p, "noise_verdict", ROLE_STATISTIC, FMT_F64, 1, DIMS(VERDICT_WORDS));
    j->noise = prog_begin_phase(p, "noise", 1);
    uint32_t key = p->next_key;
    p->region = REGION_UPDATE;
    record_squares(p, parts, part, last, since);
    op_clip(p, j->noise_verdict, parts, j->loss, j->max_norm, NONE, NONE);
    p->next_key = key;
    prog_end_phase(p);
    ring_add_plays(j->ring, j->noise, 1);
    mem_free(part);
}

bool job_record_warmup_update(Job *j, Err *e) {
    Program *p = &j->ring->p;
    Tid last = (Tid)p->n_t;
    int since = p->phase[j->warmup].begin;
    Tid parts = squares_of(p, "warmup_squares", last, since);
    j->warmup_update = prog_begin_phase(p, "warmup_update", 1);
    bool ok = record_updates(j, parts, last, since, e);
    prog_end_phase(p);
    return ok;
}
