/* baseline_dense.c - losses on whole vectors: the host reads logits or hidden states of a micro-batch and gives back
 * their gradients.
 *
 * The micro-step's root is the tensor itself, with a gradient that is an input: backward goes on from what the host
 * has put there. So these losses need no op of their own either. The reference, where there is one, is a frozen copy
 * of the weights on the same ring. */
#include <string.h>

#include "base/rng.h"
#include "base/stop.h"
#include "unlearn/baseline_int.h"
#include "unlearn/dense.h"
#include "unlearn/vec.h"

typedef struct DensePass {
    int own, reference; /* phases; reference -1: none */
    Tid out, ref_out;   /* (N, width): read after each play; a hidden state doubled */
    Tid d;              /* input (N, width) */
    bool hidden;        /* a hidden state, not logits */
} DensePass;

/* ---- recording ---- */

/* The last step of a phase gives what the host reads: a hidden state further up is added to itself there. */
static Tid record_pass(Program *p, const Job *j, const Model *m, bool hidden) {
    ModelInput in = tuning_input(j);
    ModelOut out = {.tap_layer = hidden ? baseline_tap(&j->spec.m.config) : -1};
    in.id_order = NONE;
    model_hidden(p, m, &in, &out);
    return hidden ? op_add(p, "doubled", out.tap, out.tap) : op_head_logits(p, out.hidden, m->head);
}

static void record_reference(Job *j, DensePass *s, Model *reference) {
    Program *p = &j->ring->p;
    ModelSpec frozen = j->spec.m;
    p->model = BASELINE_REFERENCE;
    model_weights(p, reference, &frozen, NULL);
    p->model = NULL;
    s->reference = prog_begin_phase(p, BASELINE_REFERENCE, MAX2(j->spec.accum, 2));
    s->ref_out = record_pass(p, j, reference, s->hidden);
    prog_end_phase(p);
    ring_add_plays(j->ring, s->reference, job_micro_steps(&j->spec));
    model_homes(p, reference, j->ring->machine.kind);
}

static bool record(Job *j, bool hidden) {
    Program *p = &j->ring->p;
    DensePass *s = j->own = ARENA_NEW(&p->arena, DensePass, 1);
    int64_t rows = j->spec.micro_batch * j->spec.seq,
            width = hidden ? j->spec.m.config.hidden : j->spec.m.config.vocab;
    *s = (DensePass){.reference = -1, .hidden = hidden};
    s->d = prog_tensor(p, "d_upstream", ROLE_INPUT, j->spec.m.activations, 2, DIMS(rows, width));
    return true;
}

static bool record_logits(const Task *t, Job *j, Err *e) { return record(j, false); }
static bool record_hidden(const Task *t, Job *j, Err *e) { return record(j, true); }

/* Played before every micro-step, so between two of an update: gradients live here too. */
static bool record_own(const Task *t, Job *j, Err *e) {
    Program *p = &j->ring->p;
    DensePass *s = j->own;
    Model own = model_twin(p, &j->m, true);
    s->own = prog_begin_phase(p, "score", MAX2(j->spec.accum, 2));
    s->out = record_pass(p, j, &own, s->hidden);
    prog_end_phase(p);
    ring_add_plays(j->ring, s->own, job_micro_steps(&j->spec));
    return true;
}

static bool record_own_beside(const Task *t, Job *j, Err *e) {
    Model *reference = ARENA_NEW(&j->ring->p.arena, Model, 1);
    record_reference(j, j->own, reference);
    return record_own(t, j, e);
}

/* The statistic is of no use here, but the update's verdict looks at it: the weights' own sum is finite. */
static void logits_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    Program *p = &j->ring->p;
    const DensePass *s = j->own;
    ModelInput in = tuning_input(j);
    ModelOut out = {.tap_layer = -1};
    model_hidden(p, m, &in, &out);
    Tid logits = op_linear(p, "logits", out.hidden, m->head, NONE);
    op_token_sum(p, stat, j->weight, j->weight, j->divisor, 1);
    roots->root[roots->n++] = (Root){logits, s->d};
}

/* Layers above the tap have gradients too: zeros, from a supervised loss whose weights are 0. */
static void hidden_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    Program *p = &j->ring->p;
    const DensePass *s = j->own;
    ModelInput in = tuning_input(j);
    ModelOut out = {.tap_layer = baseline_tap(&j->spec.m.config)};
    model_hidden(p, m, &in, &out);
    Tid logp = op_head_logp(p, out.hidden, m->head, j->labels, job_head_attr(j));
    roots->root[roots->n++] = (Root){op_token_sum(p, stat, logp, j->weight, j->divisor, -1), NONE};
    roots->root[roots->n++] = (Root){out.tap, s->d};
}

static const Task task_logits_own = {
    .name = "unlearning on logits", .record = record_logits, .record_between = record_own, .loss = logits_loss};
static const Task task_logits_beside = {.name = "unlearning on logits, beside a reference",
                                        .record = record_logits,
                                        .record_between = record_own_beside,
                                        .loss = logits_loss};
static const Task task_hidden_beside = {.name = "unlearning on hidden states",
                                        .record = record_hidden,
                                        .record_between = record_own_beside,
                                        .loss = hidden_loss};

const Task *baseline_task(const LossSpec *s) {
    if (!loss_is_dense(s)) return loss_has_entropy(s) ? &task_scored_entropy : &task_scored;
    return s->kind == LOSS_RMU ? &task_hidden_beside : loss_has_model(s) ? &task_logits_beside : &task_logits_own;
}

/* ---- playing ---- */

int64_t dense_width(const JobSpec *j, const LossSpec *s) {
    return !loss_is_dense(s) ? 0 : s->kind == LOSS_RMU ? j->m.config.hidden : j->m.config.vocab;
}

void dense_begin(Tuning *t) {
    int64_t n = dense_width(&t->b->run->job->spec, &t->b->loss);
    for (int64_t i = 0; i < n; i++) t->direction[i] = rng_normal(rng_fold(t->b->seed, 0x726d75), (uint64_t)i);
    if (n) vec_scale(NULL, t->direction, 1 / vec_norm(NULL, t->direction, n), n);
}

static void read_token(Tuning *t, Tid tensor, int64_t token, int64_t n, float *to) {
    Exec *x = &t->b->run->ring->x;
    Format f = prog_t(x->p, tensor)->format;
    int64_t item = format_item_bytes(f);
    exec_get(x, tensor, t->raw, token * n * item, n * item);
    format_table[f].decode(to, t->raw, 1, n, 0, 1);
}

/* As the device will have it, in the bytes of t->ref: a token's gradient ends where its reference does, or before. */
static void keep_gradient(Tuning *t, int64_t token, int64_t n) {
    Format f = prog_t(&t->b->run->ring->p, ((const DensePass *)t->b->run->job->own)->d)->format;
    format_table[f].encode((char *)t->ref + token * n * format_item_bytes(f), t->d, 1, n, 0, 1);
}

static void put_gradients(Tuning *t) {
    const DensePass *s = t->b->run->job->own;
    Exec *x = &t->b->run->ring->x;
    exec_put(x, s->d, t->ref, 0, prog_bytes(x->p, s->d));
}

typedef struct Counts {
    double tokens[3], rows[3]; /* by the kind of row */
} Counts;

/* One scored token: number k of row r, ref the reference's vector. Adds to t->d. */
static double token_loss(Tuning *t, const LossRow *r, int64_t k, int32_t label, const float *ref, int64_t n,
                         const Counts *c) {
    const LossSpec *s = &t->b->loss;
    bool retain = r->kind == ROW_RETAIN;
    double scale = (retain ? s->alpha : s->gamma) / c->tokens[r->kind];
    if (s->kind == LOSS_RMU) {
        double each = (retain ? s->alpha : s->gamma) / (c->rows[r->kind] * (double)r->n);
        return each * (retain ? dense_square(t->d, t->z, ref, 1, n, each)
                              : dense_square(t->d, t->z, t->direction, s->beta, n, each));
    }
    if (retain)
        return scale * (s->divergence ? dense_divergence(t->d, t->z, ref, n, scale)
                                      : dense_label(t->d, t->z, n, label, scale));
    if (s->kind == LOSS_UNDIAL) return scale * dense_undial(t->d, t->z, ref, n, label, s->beta, scale);
    if (s->kind == LOSS_PDU) return scale * dense_margin(t->d, t->z, n, scale);
    dense_label(t->d, t->z, n, label, (double)r->weight[k]); /* d(-logp) times -dL/dlogp */
    return 0;
}

/* Reads what the passes gave, and keeps the gradients of a micro-batch's tokens. Nothing is put before all is read: an
 * input of the micro-step may take the bytes of what a pass gave. */
static double make_gradients(Tuning *t, int first, int rows, const Counts *c) {
    const DensePass *s = t->b->run->job->own;
    int64_t seq = t->batch.seq, n = dense_width(&t->b->run->job->spec, &t->b->loss);
    double loss = 0;
    for (int64_t token = 0; token < t->batch.rows * seq; token++) {
        memset(t->d, 0, sizeof *t->d * (size_t)n);
        if (token / seq < rows && t->batch.weight[token] > 0) {
            LossRow *r = &t->row[first + token / seq];
            int64_t k = 0;
            for (int64_t i = token / seq * seq; i < token; i++) k += t->batch.weight[i] > 0;
            read_token(t, s->out, token, n, t->z);
            if (s->hidden) vec_scale(NULL, t->z, 0.5, n);
            loss += token_loss(t, r, k, t->batch.labels[token], t->ref + token * n, n, c);
        }
        keep_gradient(t, token, n);
    }
    return loss;
}

static Counts count(const Tuning *t) {
    Counts c = {0};
    for (int i = 0; i < t->n; i++) c.tokens[t->row[i].kind] += (double)t->row[i].n, c.rows[t->row[i].kind]++;
    return c;
}

/* pdu: the retain loss is held at delta by its multiplier. */
static void move_alpha(Tuning *t) {
    LossSpec *s = &t->b->loss;
    double nll = 0;
    int64_t tokens = 0;
    for (int i = 0; i < t->n; i++)
        for (int64_t k = 0; t->row[i].kind == ROW_RETAIN && k < t->row[i].n; k++, tokens++)
            nll -= (double)t->row[i].logp[k];
    double next = s->alpha + s->beta * (nll / (double)MAX2(tokens, 1) - s->delta);
    s->alpha = next > 1e-6 ? next : 1e-6; /* the rows of an update stay the same ones */
}

/* The score phase here gives vectors: the log-probabilities of labels, which some losses want first, are made from
 * them. */
static void take_labels(Tuning *t, int first, int rows) {
    const DensePass *s = t->b->run->job->own;
    int64_t seq = t->batch.seq, n = dense_width(&t->b->run->job->spec, &t->b->loss);
    for (int i = 0; i < rows; i++) {
        LossRow *r = &t->row[first + i];
        r->n = 0;
        for (int64_t k = i * seq; k < (i + 1) * seq; k++) {
            if (!(t->batch.weight[k] > 0)) continue;
            float *logp = t->logp + (first + i) * seq + r->n++;
            if (s->hidden) continue;
            read_token(t, s->out, k, n, t->z);
            *logp = (float)-dense_label(t->d, t->z, n, t->batch.labels[k], 0);
        }
    }
}

bool dense_score(Tuning *t, int first, int rows, Err *e) {
    Run *run = t->b->run;
    const DensePass *s = run->job->own;
    step_put_batch(run, &t->batch, s->own);
    exec_play(&run->ring->x, s->own);
    if (!exec_sync(&run->ring->x, e)) return false;
    take_labels(t, first, rows);
    return true;
}

/* Kept on the host: the model's own pass takes the same bytes of the device. */
static bool read_reference(Tuning *t, Err *e) {
    Exec *x = &t->b->run->ring->x;
    const DensePass *s = t->b->run->job->own;
    int64_t n = dense_width(&t->b->run->job->spec, &t->b->loss), tokens = t->batch.rows * t->batch.seq;
    if (s->reference < 0) return true;
    exec_play(x, s->reference);
    if (!exec_sync(x, e)) return false;
    for (int64_t i = 0; i < tokens; i++)
        if (t->batch.weight[i] > 0) read_token(t, s->ref_out, i, n, t->ref + i * n);
    if (s->hidden) vec_scale(NULL, t->ref, 0.5, tokens * n);
    return true;
}

bool dense_step(Tuning *t, const Update *u, double *loss, Err *e) {
    Run *run = t->b->run;
    Exec *x = &run->ring->x;
    const DensePass *s = run->job->own;
    Counts c = count(t);
    *loss = 0;
    for (int first = 0, n, micro = 0; first < t->n; first += n, micro++) {
        if (!stop_check(e)) return false;
        n = tuning_fill(t, first);
        step_put_batch(run, &t->batch, s->own);
        if (!read_reference(t, e)) return false;
        exec_play(x, s->own);
        if (!exec_sync(x, e)) return false;
        *loss += make_gradients(t, first, n, &c);
        memset(t->batch.weight, 0, sizeof(float) * (size_t)(t->batch.rows * t->batch.seq));
        step_put_micro_of(run, u, &t->batch, micro, run->job->micro);
        put_gradients(t);
        exec_play(x, run->job->micro);
        t->out->backward_passes++;
    }
    if (t->b->loss.kind == LOSS_PDU) move_alpha(t);
    return true;
}
