/* baseline.c - which rows an update has, how they are scored, and how their weights become a step. */
#include "unlearn/baseline_int.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/stop.h"
#include "base/work.h"
#include "obs/sensors.h"
#include "weights/weights.h"

/* ---- the phase that scores ---- */

typedef struct ScorePass {
    int phase;
    Tid logp, entropy; /* (N): read after each play; entropy NONE: not made */
} ScorePass;

static void record_score(Job *j, bool entropy) {
    Program *p = &j->ring->p;
    ScorePass *s = j->own = ARENA_NEW(&p->arena, ScorePass, 1);
    Model scored = model_twin(p, &j->m, true);
    s->phase = prog_begin_phase(p, "score", MAX2(j->spec.accum, 2));
    s->logp = op_head_logp_entropy(p, job_hidden(j, &scored), scored.head, j->labels, job_head_attr(j),
                                   entropy ? &s->entropy : NULL);
    prog_end_phase(p);
    ring_add_plays(j->ring, s->phase, job_micro_steps(&j->spec));
}

static bool record_logp(const Task *t, Job *j, Err *e) {
    record_score(j, false);
    return true;
}

static bool record_logp_entropy(const Task *t, Job *j, Err *e) {
    record_score(j, true);
    return true;
}

static void scored_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    ModelInput whole = j->in;
    j->in = tuning_input(j);
    job_supervised_loss(t, j, m, stat, roots);
    j->in = whole;
}

const Task task_scored = {.name = "unlearning", .record = record_logp, .loss = scored_loss};
const Task task_scored_entropy = {
    .name = "unlearning", .record = record_logp_entropy, .loss = scored_loss};

/* ---- the rows of an update ---- */

int64_t baseline_rows(const LossSpec *s, int64_t batch, bool refusals) {
    return batch * (1 + loss_has_retain(s) + (s->kind == LOSS_DPO && refusals));
}

int64_t baseline_bytes(const LossSpec *s, const JobSpec *job, int64_t rows, int64_t samples) {
    int64_t seq = job->seq, width = dense_width(job, s), tokens = job->micro_batch * seq;
    int64_t dense = width * 4 * (4 + tokens);
    int64_t row = seq * (12 + 4 * loss_has_entropy(s)) + (int64_t)sizeof(LossRow) + 16;
    return rows * row + row_list_bytes(rows) + batch_bytes(rows, seq) + samples * 32 + dense;
}

static Dataset *data_of(const Tuning *t, int i) {
    return t->row[i].kind == ROW_REFUSAL ? t->b->refusals : t->b->run->data;
}

static void add_row(Tuning *t, LossRowKind kind, int64_t member, int64_t place, int pair) {
    int64_t seq = t->b->run->job->spec.seq;
    t->row[t->n] =
        (LossRow){.kind = kind, .pair = pair, .logp = t->logp + t->n * seq, .weight = t->weight + t->n * seq};
    if (t->entropy) t->row[t->n].entropy = t->entropy + t->n * seq;
    t->member[t->n] = member;
    t->place[t->n++] = place;
}

/* A sample that is kept, by the update and the place in it. */
static int64_t draw_retained(const Tuning *t, int64_t update, int64_t i) {
    const ForgetSet *f = t->b->forget;
    int64_t rows = dataset_rows(t->b->run->data);
    uint64_t key = rng_fold(rng_fold(t->b->seed, 0x72657461696e), (uint64_t)update);
    for (uint64_t tries = 0;; tries++) {
        int64_t row = (int64_t)(rng_fold(key, (uint64_t)i + (tries << 32)) % (uint64_t)rows);
        if (!f->removed[row]) return row;
    }
}

static void lay_out(Tuning *t, int64_t update, int64_t per_epoch) {
    const Baseline *b = t->b;
    int64_t epoch = update / per_epoch, first = update % per_epoch * b->batch,
            n = MIN2(b->batch, b->forget->n - first);
    uint64_t key = rng_fold(rng_fold(b->seed, 0x666f72676574), (uint64_t)epoch);
    t->n = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t place = rng_permuted(key, b->forget->n, first + i);
        add_row(t, ROW_FORGET, b->forget->sample[place], place, 0);
    }
    for (int64_t i = 0; i < n && loss_has_retain(&b->loss); i++)
        add_row(t, ROW_RETAIN, draw_retained(t, update, i), 0, 0);
    for (int64_t i = 0; i < n && b->loss.kind == LOSS_DPO; i++)
        add_row(t, ROW_REFUSAL, t->place[i], t->place[i], (int)i);
    for (int i = 0; i < t->n; i++) {
        bool refusal = t->row[i].kind == ROW_REFUSAL;
        t->row[i].reference = refusal ? t->refusal_reference[t->place[i]] : t->reference[t->place[i]];
    }
}

/* ---- passes ---- */

int tuning_fill(Tuning *t, int first) {
    int64_t most = t->b->run->job->spec.micro_batch;
    Dataset *d = data_of(t, first);
    int n = 0;
    while (n < most && first + n < t->n && data_of(t, first + n) == d) {
        t->list.first[n] = n;
        t->list.member[n] = t->member[first + n];
        n++;
    }
    t->list.first[n] = t->list.n_rows = t->list.n = n;
    batch_fill(&t->batch, d, &t->list, 0);
    return n;
}

/* Between the slots of a row and its scored tokens, which are those of weight above 0. to: (rows, seq). */
static void take_scored(Tuning *t, Tid from, float *all, int first, int n) {
    int64_t seq = t->batch.seq;
    exec_get(&t->b->run->ring->x, from, t->slots, 0, t->batch.rows * seq * 4);
    for (int i = 0; i < n; i++) {
        LossRow *r = &t->row[first + i];
        float *to = all + (first + i) * seq;
        r->n = 0;
        for (int64_t k = 0; k < seq; k++)
            if (t->batch.weight[i * seq + k] > 0) to[r->n++] = t->slots[i * seq + k];
    }
}

static void put_weights(Tuning *t, int first, int n) {
    int64_t seq = t->batch.seq;
    for (int i = 0; i < n; i++) {
        const float *from = t->row[first + i].weight;
        for (int64_t k = 0; k < seq; k++) {
            float *w = &t->batch.weight[i * seq + k];
            if (*w > 0) *w = *from++;
        }
    }
}

static bool score_labels(Tuning *t, int first, int n, Err *e) {
    Run *run = t->b->run;
    const ScorePass *s = run->job->own;
    Exec *x = &run->ring->x;
    step_put_batch(run, &t->batch, s->phase);
    exec_play(x, s->phase);
    if (!exec_sync(x, e)) return false;
    take_scored(t, s->logp, t->logp, first, n);
    if (t->entropy) take_scored(t, s->entropy, t->entropy, first, n);
    return true;
}

static bool score(Tuning *t, Err *e) {
    bool dense = loss_is_dense(&t->b->loss);
    for (int first = 0, n; first < t->n; first += n) {
        if (!stop_check(e)) return false;
        n = tuning_fill(t, first);
        if (!(dense ? dense_score(t, first, n, e) : score_labels(t, first, n, e))) return false;
        t->out->forward_passes++;
    }
    return true;
}

static void play_weighted(Tuning *t, const Update *u) {
    Run *run = t->b->run;
    for (int first = 0, n, micro = 0; first < t->n; first += n, micro++) {
        n = tuning_fill(t, first);
        put_weights(t, first, n);
        step_put_micro(run, u, &t->batch, micro);
        exec_play(&run->ring->x, run->job->micro);
        t->out->backward_passes++;
    }
}

/* Token weights that log-probabilities alone decide; under a retain term by divergence, those of forgetting. */
static double weigh(Tuning *t) {
    LossSpec s = t->b->loss;
    if (loss_is_dense(&s)) s.alpha = 0;
    return s.kind < LOSS_UNDIAL ? loss_weights(&s, t->row, t->n) : 0;
}

static bool step(Tuning *t, const Update *u, Err *e) {
    Run *run = t->b->run;
    double verdict[VERDICT_WORDS], dense = 0;
    t->out->loss = weigh(t);
    step_put_divisor(run, u, 1);
    if (!loss_is_dense(&t->b->loss))
        play_weighted(t, u);
    else if (!dense_step(t, u, &dense, e))
        return false;
    t->out->loss += dense;
    step_queue_update(run, u);
    if (!exec_sync(&run->ring->x, e)) return false;
    exec_get(&run->ring->x, run->job->verdict, verdict, 0, sizeof verdict);
    return verdict[VERDICT_OK] != 0 ||
           fail(e, ERR_FAIL, "update %lld: a gradient is not finite. A lower --lr may help", (long long)u->step + 1);
}

/* ---- the run ---- */

/* nll of every answer of the forget set, or of the refusals; gives its mean over tokens. */
static bool score_set(Tuning *t, LossRowKind kind, double *nll, double *mean, Err *e) {
    int64_t n = t->b->forget->n, tokens = 0;
    double sum = 0;
    for (int64_t first = 0; first < n; first += t->b->batch) {
        t->n = 0;
        for (int64_t i = first; i < MIN2(first + t->b->batch, n); i++)
            add_row(t, kind, kind == ROW_REFUSAL ? i : t->b->forget->sample[i], i, 0);
        if (!score(t, e)) return false;
        for (int i = 0; i < t->n; i++) {
            double own = 0;
            for (int64_t k = 0; k < t->row[i].n; k++) own -= (double)t->row[i].logp[k];
            if (nll) nll[first + i] = own;
            sum += own;
            tokens += t->row[i].n;
        }
    }
    if (mean)
        *mean = t->b->loss.kind == LOSS_RMU ? (double)NAN
                                            : sum / (double)MAX2(tokens, 1); /* whose passes end below the head */
    return true;
}

static bool play_updates(Tuning *t, Err *e) {
    Baseline *b = t->b;
    int64_t per_epoch = (b->forget->n + b->batch - 1) / b->batch,
            total = MAX2((int64_t)ceil(b->epochs * (double)per_epoch - 1e-9), 1);
    Work work;
    bool ok = true;
    b->schedule.total_steps = total;
    b->schedule.warmup_steps = MIN2(per_epoch, total / 2); /* an epoch, as open-unlearning has it */
    work_begin(&work, WORK_COUNT, total, "unlearning");
    for (int64_t i = 0; ok && i < total; i++) {
        Update u = {.step = i, .lr = schedule_lr(&b->schedule, i), .scaling = {.scale = 1}};
        lay_out(t, i, per_epoch);
        ok = score(t, e) && step(t, &u, e) && work_on(&work, i + 1, e);
        if (ok && !i) t->out->first_loss = t->out->loss;
        t->out->updates += ok;
    }
    work_end(&work);
    return ok;
}

static void init(Tuning *t, Arena *a) {
    const Baseline *b = t->b;
    const JobSpec *s = &b->run->job->spec;
    int64_t rows = baseline_rows(&b->loss, b->batch, b->refusals != NULL);
    batch_init(&t->batch, a, s->micro_batch, s->seq);
    row_list_init(&t->list, a, MAX2(rows, s->micro_batch));
    t->row = ARENA_NEW(a, LossRow, rows);
    t->member = ARENA_NEW(a, int64_t, rows);
    t->place = ARENA_NEW(a, int64_t, rows);
    t->logp = ARENA_NEW(a, float, rows * s->seq);
    t->weight = ARENA_NEW(a, float, rows * s->seq);
    if (loss_has_entropy(&b->loss)) t->entropy = ARENA_NEW(a, float, rows * s->seq);
    t->slots = ARENA_NEW(a, float, s->micro_batch * s->seq);
    t->reference = ARENA_NEW(a, double, b->forget->n);
    t->refusal_reference = ARENA_NEW(a, double, b->forget->n);
    int64_t width = dense_width(s, &b->loss);
    if (!width) return;
    t->z = ARENA_NEW(a, float, width);
    t->d = ARENA_NEW(a, float, width);
    t->direction = ARENA_NEW(a, float, width);
    t->raw = ARENA_NEW(a, char, width * 4);
    t->ref = ARENA_NEW(a, float, width * s->micro_batch * s->seq);
    dense_begin(t);
}

bool baseline_run(Baseline *b, BaselineReport *out, Err *e) {
    Tuning t = {.b = b, .out = out};
    Arena a;
    double began = sensors_seconds();
    CHECK(b->loss.kind != LOSS_DPO || b->refusals);
    *out = (BaselineReport){.first_loss = NAN, .loss = NAN};
    arena_init(&a, "unlearning");
    init(&t, &a);
    bool ok = (!loss_has_model(&b->loss) ||
               weights_load(&b->run->ring->x, BASELINE_REFERENCE, ROLE_WEIGHT, b->run->o.model_folder, e)) &&
              score_set(&t, ROW_FORGET, t.reference, &out->forget_nll_before, e) &&
              (b->loss.kind != LOSS_DPO || score_set(&t, ROW_REFUSAL, t.refusal_reference, NULL, e)) &&
              play_updates(&t, e) && score_set(&t, ROW_FORGET, NULL, &out->forget_nll_after, e);
    arena_free(&a);
    out->seconds = sensors_seconds() - began;
    return ok;
}
