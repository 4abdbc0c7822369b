/* correction.c - the phases that a correction on the ring is carried by, their dials, and what they leave. */
#include "unlearn/correction.h"

typedef struct Phases {
    int carry, apply;
} Phases;

const char *correction_refusal(const JobSpec *s) {
    if (s->lora) return "adapters are trained, and a correction of them is small";
    if (s->optimizer != OPTIMIZER_SGD)
        return "the run is AdamW's, and only an update of plain SGD carries a correction";
    if (s->update.beta1 > 0) return "the run has momentum, whose deviation would have to be carried too";
    if (s->accum > 1) return "an update has several micro-batches, and is not made inside backward";
    if (!job_can_update_early(s))
        return "an update of this run may have to be taken back, and is not made inside backward";
    return NULL;
}

/* ---- recording ---- */

static bool is_trained(const Program *p, Tid t) { return p->t[t].trainable && !p->t[t].base; }

/* A gradient lives from its first to its last use on the ring. So that it lives within a pass, each has its own. */
static void renew_gradients(Job *j, const char *phase) {
    Program *p = &j->ring->p;
    for (Tid w = 1, last = (Tid)p->n_t; w < last; w++) {
        if (!is_trained(p, w)) continue;
        Tensor g = p->t[p->t[w].grad];
        Tid own =
            prog_tensor(p, arena_printf(&p->arena, "%s.%s_grad", p->t[w].name, phase), g.role, g.format, g.rank, g.dim);
        p->t[own].layer = g.layer;
        p->t[w].grad = own;
    }
}

static bool record(const Task *t, Job *j, Err *e) {
    Phases *s = j->own = ARENA_NEW(&j->ring->p.arena, Phases, 1);
    job_begin_carry(j);
    s->carry = job_record_pass(j, "carry");
    if (!job_record_carry(j, e) || !job_record_carry_apply(j, &s->apply, e)) return false;
    ring_add_plays(j->ring, s->carry, 1);
    renew_gradients(j, "micro");
    return true;
}

const Task task_correction = {.name = "supervised, with a correction", .record = record, .loss = job_supervised_loss};

/* ---- playing ---- */

int correction_carry_phase(const Job *j) { return ((const Phases *)j->own)->carry; }

void correction_put(Run *r, const CorrectionStep *d, bool remove) {
    float words[CARRY_WORDS] = {[CARRY_KEEP] = (float)d->keep,
                                [CARRY_LR] = (float)d->step.lr,
                                [CARRY_DAMPING] = (float)d->step.damping,
                                [CARRY_TIMES] = (float)d->step.times,
                                [CARRY_REMOVE] = remove ? 1 : 0};
    exec_put(&r->ring->x, r->job->carry.dials, words, 0, sizeof words);
}

bool correction_read(Run *r, VecSums *of_tensor, int n, VecSums *all, Err *e) {
    Exec *x = &r->ring->x;
    int64_t count = (int64_t)n * CARRY_SUMS;
    double *words = MEM_NEW(double, count);
    bool ok = exec_sync(x, e);
    if (ok) exec_get(x, r->job->carry.sums, words, 0, count * (int64_t)sizeof *words);
    *all = (VecSums){0};
    for (int k = 0; k < n; k++) {
        const double *q = words + k * CARRY_SUMS;
        of_tensor[k] = (VecSums){.vg = q[CARRY_VX], .gg = q[CARRY_XX], .vv = q[CARRY_VV]};
        all->vg += of_tensor[k].vg;
        all->gg += of_tensor[k].gg;
        all->vv += of_tensor[k].vv;
    }
    mem_free(words);
    return ok;
}

void correction_apply(Run *r, const CorrectionStep *d) {
    correction_put(r, d, false);
    exec_play(&r->ring->x, ((const Phases *)r->job->own)->apply);
}
