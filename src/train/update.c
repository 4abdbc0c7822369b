/* update.c - the optimizer written down: norms, the verdict on them, and one step a tensor that is trained. */
#include <string.h>

#include "train/job.h"

/* One multiplier per tensor: a rule that names one of several stacked projections cannot be kept. */
static bool lr_mult_of(const Job *j, Tid t, float *mult, Err *e) {
    const Program *p = &j->ring->p;
    *mult = 1;
    for (int r = 0; r < j->spec.n_lr_rules; r++) {
        const char *part = j->spec.lr_rule[r].part;
        int names = 0, hits = strstr(p->t[t].name, part) != NULL;
        if (p->t[t].file_name) hits |= strstr(p->t[t].file_name, part) != NULL;
        bool whole = hits;
        for (Tid v = 1; v < p->n_t && !whole; v++) {
            if (p->t[v].base != t || !p->t[v].file_name) continue;
            names++;
            hits += strstr(p->t[v].file_name, part) != NULL;
        }
        if (!whole && hits && hits < names)
            return fail(e, ERR_USAGE, "lr-mult %s: names only part of %s, which is one product here; name all of its parts",
                        part, p->t[t].name);
        if (hits) *mult = j->spec.lr_rule[r].mult;
    }
    return true;
}

static Tid moment(Program *p, Tid w, const char *what, Format f) {
    Tensor t = *prog_t(p, w);
    Tid m = prog_tensor(p, arena_printf(&p->arena, "%s.%s", t.name, what), ROLE_MOMENT, f, t.rank, t.dim);
    p->t[m].layer = t.layer;
    return m;
}

static bool record_one_update(Job *j, Tid w, Tid verdict, Err *e) {
    static const Format first[] = {FMT_F32, FMT_BF16, FMT_MOM8}, second[] = {FMT_F32, FMT_BF16, FMT_VAR8};
    Program *p = &j->ring->p;
    const JobSpec *s = &j->spec;
    AttrUpdate attr = s->update;
    if (!lr_mult_of(j, w, &attr.lr_mult, e)) return false;
    Tensor t = *prog_t(p, w);
    if (t.rank < 2) attr.weight_decay = 0; /* norms and biases are not decayed */
    UpdateTensors u = {.weight = w, .gradient = t.grad, .dials = j->dials, .verdict = verdict};
    if (s->master && t.format != FMT_F32) {
        u.master = prog_tensor(p, arena_printf(&p->arena, "%s.master", t.name), ROLE_MASTER, FMT_F32, t.rank, t.dim);
        p->t[u.master].layer = t.layer;
    }
    if (s->optimizer == OPTIMIZER_ADAMW || attr.beta1 > 0) u.m = moment(p, w, "m", first[s->moments]);
    if (s->optimizer == OPTIMIZER_ADAMW) u.v = moment(p, w, "v", second[s->moments]);
    p->layer = t.layer;
    if (s->optimizer == OPTIMIZER_ADAMW) op_adamw(p, u, attr);
    else op_sgd(p, u, attr);
    p->layer = -1;
    return true;
}

/* Inside backward nobody knows yet what other gradients will be: a tensor is written when its own are finite and the loss
 * is. The extra steps draw no key, so that the update rounds as it does elsewhere (P6). */
static Tid record_own_verdict(Job *j, Tid verdicts, int64_t n, Tid part, int layer) {
    Program *p = &j->ring->p;
    uint32_t key = p->next_key;
    Tid verdict = prog_view(p, "own_verdict", verdicts, n, 1);
    p->layer = layer;
    op_clip(p, verdict, part, j->loss, j->max_norm, NONE);
    p->layer = -1;
    p->next_key = key;
    return verdict;
}

bool job_record_update(Job *j, Err *e) {
    Program *p = &j->ring->p;
    Tid last = (Tid)p->n_t, verdicts = NONE, *part = MEM_NEW(Tid, last);
    bool inside = j->spec.update_in_backward, ok = true;
    int64_t n = 0;
    for (Tid t = 1; t < last; t++) n += p->t[t].trainable;
    j->parts = prog_tensor(p, "squares", ROLE_STATISTIC, FMT_F64, 1, DIMS(MAX2(n, 1)));
    if (inside) verdicts = prog_tensor(p, "verdicts", ROLE_STATISTIC, FMT_F64, 2, DIMS(MAX2(n, 1), VERDICT_WORDS));
    else j->update = prog_begin_phase(p, "update", 1);
    prog_keys_of(p, "update");
    p->region = REGION_UPDATE;
    n = 0;
    for (Tid t = 1; t < last; t++)
        if (p->t[t].trainable) {
            part[t] = prog_view(p, "square", j->parts, n++, 1);
            p->layer = p->t[t].layer;
            op_sum_squares(p, part[t], p->t[t].grad);
        }
    p->layer = -1;
    op_clip(p, j->verdict, j->parts, j->loss, j->max_norm, j->unscale);
    n = 0;
    for (Tid t = 1; t < last && ok; t++) {
        if (!p->t[t].trainable) continue;
        Tid verdict = inside ? record_own_verdict(j, verdicts, n++, part[t], p->t[t].layer) : j->verdict;
        ok = record_one_update(j, t, verdict, e);
    }
    mem_free(part);
    p->layer = -1;
    prog_end_phase(p);
    if (!inside) ring_add_plays(j->ring, j->update, 1);
    return ok;
}
