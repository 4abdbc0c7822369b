/* gauss_newton.c - the two phases of a Gauss-Newton product, and the Hessian of cross-entropy at a token. */
#include "unlearn/gauss_newton.h"

#include <math.h>
#include <string.h>

#include "unlearn/vec.h"

typedef struct Passes {
    int forward, back; /* phases */
    Tid logits;        /* (N, V) fp32: read after forward */
    Tid d;             /* input (N, V): the gradient of the logits */
} Passes;

/* ---- recording ---- */

static bool check_spec(const JobSpec *s, Err *e) {
    if (s->weights != FMT_F32 || s->m.activations != FMT_F32)
        return fail(e, ERR_USAGE,
                    "--hessian gauss-newton: is made of differences of logits, which %s is too coarse for; train with "
                    "--precision fp32, or give --hessian fisher",
                    format_name(s->weights != FMT_F32 ? s->weights : s->m.activations));
    return true;
}

static bool record_back(Job *j, Passes *s, Err *e) {
    Program *p = &j->ring->p;
    ModelOut out = {.tap_layer = -1};
    s->d = prog_tensor(p, "d_logits", ROLE_INPUT, FMT_F32, 2,
                       DIMS(j->spec.micro_batch * j->spec.seq, j->spec.m.config.vocab));
    s->back = prog_begin_phase(p, "gauss_newton", j->spec.accum);
    prog_keys_of(p, "micro");
    int begin = (int)p->n_s;
    model_hidden(p, &j->m, &j->in, &out);
    if (out.n_terms)
        return fail(e, ERR_USAGE, "--hessian gauss-newton: %s has a loss of its own beside cross-entropy; give exact",
                    j->spec.m.config.name);
    Root root = {op_linear(p, "logits", out.hidden, j->m.head, NONE), s->d};
    prog_backward(p, begin, &root, 1);
    prog_end_phase(p);
    return true;
}

static void record_forward(Job *j, Passes *s) {
    Program *p = &j->ring->p;
    s->forward = prog_begin_phase(p, "logits", MAX2(j->spec.accum, 2));
    prog_keys_of(p, "micro");
    s->logits = op_head_logits(p, job_hidden(j, &j->m), j->m.head);
    prog_end_phase(p);
}

static bool record(const Task *t, Job *j, Err *e) {
    Passes *s = j->own = ARENA_NEW(&j->ring->p.arena, Passes, 1);
    if (!check_spec(&j->spec, e)) return false;
    if (!record_back(j, s, e)) return false;
    record_forward(j, s); /* behind it on the ring: gradients live from there to the update, and here as well */
    return true;
}

const Task task_gauss_newton = {
    .name = "supervised, with Gauss-Newton products", .record = record, .loss = job_supervised_loss};

/* ---- memory ---- */

static int64_t count_of(const JobSpec *s) { return s->micro_batch * s->seq * s->m.config.vocab; }

int64_t gauss_newton_bytes(const JobSpec *s) { return s->task == &task_gauss_newton ? 2 * 4 * count_of(s) : 0; }

void gauss_newton_init(GaussNewton *g, Run *run, Threads *team) {
    const JobSpec *s = &run->job->spec;
    *g = (GaussNewton){.run = run, .team = team};
    if (!gauss_newton_bytes(s)) return;
    g->jv = MEM_NEW(float, count_of(s));
    g->z = MEM_NEW(float, count_of(s));
}

void gauss_newton_free(GaussNewton *g) {
    mem_free(g->jv);
    mem_free(g->z);
    *g = (GaussNewton){0};
}

/* ---- playing ----
 *
 * Inputs live as long as their phase reads them: they are put before every play. */

static bool read_logits(GaussNewton *g, const GaussNewtonMicro *m, float *to, Err *e) {
    const Passes *s = g->run->job->own;
    Exec *x = &g->run->ring->x;
    step_put_micro(g->run, m->u, &g->run->batch, m->number);
    exec_play(x, s->forward);
    if (!exec_sync(x, e)) return false;
    exec_get(x, s->logits, to, 0, 4 * count_of(&g->run->job->spec));
    return true;
}

bool gauss_newton_ahead(GaussNewton *g, const GaussNewtonMicro *m, Err *e) { return read_logits(g, m, g->jv, e); }

bool gauss_newton_behind(GaussNewton *g, const GaussNewtonMicro *m, double h, Err *e) {
    if (!read_logits(g, m, g->z, e)) return false;
    vec_difference(g->team, g->jv, g->z, 2 * h, count_of(&g->run->job->spec));
    return true;
}

typedef struct Tokens {
    GaussNewton *g;
    double divisor;
} Tokens;

/* z <- weight / divisor * (p jv - p (p . jv)), p = softmax(z). */
static void apply_hessian(void *context, int64_t token, int worker) {
    const Tokens *t = context;
    int64_t n = t->g->run->job->spec.m.config.vocab;
    float *z = t->g->z + token * n;
    const float *jv = t->g->jv + token * n;
    double top = -INFINITY, sum = 0, mean = 0, by = (double)t->g->run->batch.weight[token] / t->divisor;
    if (by == 0) {
        memset(z, 0, sizeof *z * (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) top = fmax(top, (double)z[i]);
    for (int64_t i = 0; i < n; i++) {
        double w = exp((double)z[i] - top);
        sum += w;
        mean += w * (double)jv[i];
    }
    mean /= sum;
    for (int64_t i = 0; i < n; i++) z[i] = (float)(by * exp((double)z[i] - top) / sum * ((double)jv[i] - mean));
}

bool gauss_newton_back(GaussNewton *g, const GaussNewtonMicro *m, Err *e) {
    const Passes *s = g->run->job->own;
    const JobSpec *spec = &g->run->job->spec;
    Exec *x = &g->run->ring->x;
    if (!read_logits(g, m, g->z, e)) return false;
    threads_for(g->team, spec->micro_batch * spec->seq, apply_hessian, &(Tokens){g, m->divisor});
    step_put_micro(g->run, m->u, &g->run->batch, m->number);
    exec_put(x, s->d, g->z, 0, 4 * count_of(spec)); /* last: labels, which this phase does not read, may share bytes */
    exec_play(x, s->back);
    return true;
}
