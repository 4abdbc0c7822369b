/* baseline_ring.c - what the losses record on the ring, and what they put into an update's micro-steps.
 *
 * Losses of log-probabilities have a phase that scores labels, and a supervised step with token weights. Those on whole
 * logits are terms of the chunked head (ir/op_token.c, "With terms"), rmu is row_distance: both are a few coefficients
 * for every token, so no logits and no hidden states pass the host. A reference that such a loss compares with is a
 * frozen copy of the weights, or with adapters the weights without them; its forward pass is part of the micro-step. */
#include <string.h>

#include "base/rng.h"
#include "base/stop.h"
#include "unlearn/baseline_int.h"
#include "unlearn/vec.h"

static BaselineRing *ring_of(Job *j) { return j->own; }

/* ---- recording ---- */

static Tid token_input(Job *j, const char *name, int64_t words) {
    int64_t rows = j->spec.micro_batch * j->spec.seq;
    return prog_tensor(&j->ring->p, name, ROLE_INPUT, FMT_F32, words > 1 ? 2 : 1, DIMS(rows, words));
}

static BaselineRing *record_score(Job *j, bool entropy) {
    Program *p = &j->ring->p;
    BaselineRing *r = j->own = ARENA_NEW(&p->arena, BaselineRing, 1);
    Model scored = model_twin(p, &j->m, true);
    r->score = prog_begin_phase(p, "score", MAX2(j->spec.accum, 2));
    r->logp = op_head_logp_entropy(p, job_hidden(j, &scored), scored.head, j->labels, job_head_attr(j),
                                   entropy ? &r->entropy : NULL);
    prog_end_phase(p);
    ring_add_plays(j->ring, r->score, job_micro_steps(&j->spec));
    return r;
}

/* The weights of the reference: those of the model itself where adapters are trained. */
static void record_reference(Job *j, BaselineRing *r) {
    Program *p = &j->ring->p;
    ModelSpec frozen = j->spec.m;
    r->reference = ARENA_NEW(&p->arena, Model, 1);
    if (j->spec.lora) {
        *r->reference = model_twin(p, &j->m, false);
        return;
    }
    p->model = BASELINE_REFERENCE;
    model_weights(p, r->reference, &frozen, NULL);
    p->model = NULL;
    model_homes(p, r->reference, j->ring->machine.kind);
}

/* Its hidden rows in front of the head, or behind a layer. They are made in the micro-step that reads them: a phase of
 * their own would stand where the gradients of earlier micro-steps must not be written over. */
static Tid reference_rows(Job *j, int tap_layer) {
    const BaselineRing *r = ring_of(j);
    ModelInput in = tuning_input(j);
    ModelOut out = {.tap_layer = tap_layer};
    if (!r->reference) return NONE;
    in.id_order = NONE;
    model_hidden(&j->ring->p, r->reference, &in, &out);
    return tap_layer >= 0 ? out.tap : out.hidden;
}

static BaselineRing *record_terms(Job *j, const char *name, int64_t words) {
    BaselineRing *r = record_score(j, false);
    r->terms = token_input(j, name, words);
    r->reported_weight = token_input(j, "reported_weight", 1);
    r->reported = prog_tensor(&j->ring->p, "reported_loss", ROLE_STATISTIC, FMT_F64, 1, DIMS(1));
    return r;
}

static bool record_scored(const Task *t, Job *j, Err *e) { return record_score(j, false) != NULL; }
static bool record_scored_entropy(const Task *t, Job *j, Err *e) { return record_score(j, true) != NULL; }
static bool record_logits(const Task *t, Job *j, Err *e) { return record_terms(j, "terms", HEAD_TERMS) != NULL; }

static bool record_logits_beside(const Task *t, Job *j, Err *e) {
    record_reference(j, record_terms(j, "terms", HEAD_TERMS));
    return true;
}

static bool record_hidden_beside(const Task *t, Job *j, Err *e) {
    BaselineRing *r = record_terms(j, "distance_to", DISTANCE_WORDS);
    r->toward = prog_tensor(&j->ring->p, "toward", ROLE_INPUT, FMT_F32, 1, DIMS(j->spec.m.config.hidden));
    record_reference(j, r);
    return true;
}

/* The reported loss leaves out tokens whose coefficient is a derivative (loss_weights): there the sum is no value. */
static void logits_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    Program *p = &j->ring->p;
    const BaselineRing *r = ring_of(j);
    ModelInput in = tuning_input(j);
    ModelOut out = {.tap_layer = -1};
    HeadTarget target = {.terms = r->terms, .x = reference_rows(j, -1), .w = r->reference ? r->reference->head : NONE};
    model_hidden(p, m, &in, &out);
    Tid value = op_head_terms(p, out.hidden, m->head, j->labels, target, job_head_attr(j));
    roots->root[roots->n++] = (Root){op_token_sum(p, stat, value, j->weight, j->divisor, -1), NONE};
    op_token_sum(p, r->reported, value, r->reported_weight, j->divisor, -1);
}

/* Layers above the tap have gradients too: zeros, from log-probabilities whose weights are 0. */
static void hidden_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    Program *p = &j->ring->p;
    const BaselineRing *r = ring_of(j);
    ModelInput in = tuning_input(j);
    ModelOut out = {.tap_layer = baseline_tap(&j->spec.m.config)};
    Tid ref = reference_rows(j, out.tap_layer);
    model_hidden(p, m, &in, &out);
    Tid logp = op_head_logp(p, out.hidden, m->head, j->labels, job_head_attr(j));
    Tid distance = op_row_distance(p, out.tap, ref, r->toward, r->terms);
    roots->root[roots->n++] = (Root){op_token_sum(p, r->reported, logp, r->reported_weight, j->divisor, -1), NONE};
    roots->root[roots->n++] = (Root){op_token_sum(p, stat, distance, j->weight, j->divisor, 1), NONE};
}

static void scored_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    ModelInput whole = j->in;
    j->in = tuning_input(j);
    job_supervised_loss(t, j, m, stat, roots);
    j->in = whole;
}

static const Task task_scored = {.name = "unlearning", .record = record_scored, .loss = scored_loss};
static const Task task_scored_entropy = {
    .name = "unlearning", .record = record_scored_entropy, .loss = scored_loss};
static const Task task_logits = {.name = "unlearning on logits", .record = record_logits, .loss = logits_loss};
static const Task task_logits_beside = {
    .name = "unlearning on logits, beside a reference", .record = record_logits_beside, .loss = logits_loss};
static const Task task_hidden_beside = {
    .name = "unlearning on hidden states", .record = record_hidden_beside, .loss = hidden_loss};

const Task *baseline_task(const LossSpec *s) {
    if (!loss_is_dense(s)) return loss_has_entropy(s) ? &task_scored_entropy : &task_scored;
    return s->kind == LOSS_RMU ? &task_hidden_beside : loss_has_model(s) ? &task_logits_beside : &task_logits;
}

/* ---- what a token's loss is made of ---- */

typedef struct Counts {
    double tokens[3], rows[3]; /* by the kind of row */
} Counts;

static Counts count(const Tuning *t) {
    Counts c = {0};
    for (int i = 0; i < t->n; i++) c.tokens[t->row[i].kind] += (double)t->row[i].n, c.rows[t->row[i].kind]++;
    return c;
}

static void set_distance(const Tuning *t, int64_t token, const LossRow *r, const Counts *c) {
    const LossSpec *s = &t->b->loss;
    bool retain = r->kind == ROW_RETAIN;
    float *how = t->terms + token * DISTANCE_WORDS;
    how[DISTANCE_REF] = retain ? 1 : 0;
    how[DISTANCE_TOWARD] = retain ? 0 : (float)s->beta;
    t->batch.weight[token] = (float)((retain ? s->alpha : s->gamma) / (c->rows[r->kind] * (double)r->n));
}

/* Scored token k of a row. */
static void set_terms(const Tuning *t, int64_t token, const LossRow *r, int64_t k, const Counts *c) {
    const LossSpec *s = &t->b->loss;
    bool retain = r->kind == ROW_RETAIN, divergence = retain && s->divergence;
    float *term = t->terms + token * HEAD_TERMS, scale = (float)((retain ? s->alpha : s->gamma) / c->tokens[r->kind]);
    t->batch.weight[token] = 1;
    t->reported[token] = retain || s->kind >= LOSS_UNDIAL;
    if (divergence) term[TERM_TARGET] = term[TERM_ENTROPY] = scale;
    else if (retain) term[TERM_LABEL] = scale;
    else if (s->kind == LOSS_UNDIAL) term[TERM_TARGET] = scale, term[TERM_LOWERED] = (float)s->beta;
    else if (s->kind == LOSS_PDU) term[TERM_MARGIN] = scale;
    else term[TERM_LABEL] = r->weight[k]; /* loss_weights */
}

static int64_t words_of(const LossSpec *s) { return s->kind == LOSS_RMU ? DISTANCE_WORDS : HEAD_TERMS; }

static void set_micro(Tuning *t, int first, int rows, const Counts *c) {
    int64_t seq = t->batch.seq, tokens = t->batch.rows * seq, words = words_of(&t->b->loss);
    memset(t->terms, 0, sizeof *t->terms * (size_t)(tokens * words));
    memset(t->reported, 0, sizeof *t->reported * (size_t)tokens);
    for (int64_t i = 0; i < t->batch.rows; i++) {
        const LossRow *r = &t->row[first + (i < rows ? i : 0)];
        for (int64_t token = i * seq, k = 0; token < (i + 1) * seq; token++) {
            if (i >= rows || !(t->batch.weight[token] > 0)) t->batch.weight[token] = 0;
            else if (t->b->loss.kind == LOSS_RMU) set_distance(t, token, r, c);
            else set_terms(t, token, r, k++, c);
        }
    }
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

/* ---- playing ---- */

int64_t dense_bytes(const LossSpec *s, const JobSpec *job) {
    int64_t tokens = job->micro_batch * job->seq;
    return loss_is_dense(s) ? 4 * (tokens * (words_of(s) + 1) + job->m.config.hidden) : 0;
}

void dense_begin(Tuning *t, Arena *a) {
    const JobSpec *s = &t->b->run->job->spec;
    int64_t tokens = s->micro_batch * s->seq, hidden = s->m.config.hidden;
    if (!loss_is_dense(&t->b->loss)) return;
    t->terms = ARENA_NEW(a, float, tokens * words_of(&t->b->loss));
    t->reported = ARENA_NEW(a, float, tokens);
    t->direction = ARENA_NEW(a, float, hidden);
    for (int64_t i = 0; i < hidden; i++) t->direction[i] = rng_normal(rng_fold(t->b->seed, 0x726d75), (uint64_t)i);
    vec_scale(NULL, t->direction, 1 / vec_norm(NULL, t->direction, hidden), hidden);
}

static void play_micro(Tuning *t, const Update *u, int micro) {
    Run *run = t->b->run;
    Exec *x = &run->ring->x;
    const BaselineRing *r = ring_of(run->job);
    int64_t tokens = t->batch.rows * t->batch.seq;
    step_put_micro(run, u, &t->batch, micro);
    exec_put(x, r->terms, t->terms, 0, tokens * words_of(&t->b->loss) * 4);
    exec_put(x, r->reported_weight, t->reported, 0, tokens * 4);
    if (r->toward) exec_put(x, r->toward, t->direction, 0, run->job->spec.m.config.hidden * 4);
    exec_play(x, run->job->micro);
    t->out->backward_passes++;
}

bool dense_step(Tuning *t, const Update *u, double *loss, Err *e) {
    Run *run = t->b->run;
    Counts c = count(t);
    for (int first = 0, n, micro = 0; first < t->n; first += n, micro++) {
        if (!stop_check(e)) return false;
        n = tuning_fill(t, first);
        set_micro(t, first, n, &c);
        play_micro(t, u, micro);
    }
    if (!exec_sync(&run->ring->x, e)) return false;
    Tid reported = t->b->loss.kind == LOSS_RMU ? run->job->loss : ring_of(run->job)->reported;
    exec_get(&run->ring->x, reported, loss, 0, sizeof *loss);
    if (t->b->loss.kind == LOSS_PDU) move_alpha(t);
    return true;
}
