/* job.c - which phases a job has and what is recorded in each. */
#include "train/job.h"

#include "base/stop.h"
#include "base/units.h"
#include "obs/sampler.h"
#include "train/log_writer.h"
#include "weights/weights.h"

/* ---- the passes over a batch ---- */

static const Task *task_of(const Job *j) { return j->spec.task ? j->spec.task : &task_supervised; }

AttrHead job_head_attr(const Job *j) {
    int64_t rows = j->spec.micro_batch * j->spec.seq;
    int64_t chunk = j->spec.head_chunk ? j->spec.head_chunk : job_default_chunk(&j->spec, j->ring->machine.kind);
    return (AttrHead){.chunk = MIN2(chunk, rows), .scale = j->spec.head_scale, .fp32 = task_of(j)->fp32_logits};
}

/* Rows per chunk of the head. A GPU's products want thousands of rows, half as many with fp32 logits; on a CPU 64 MiB
 * of logits are enough, but at least one tile. */
int64_t job_default_chunk(const JobSpec *s, MachineKind kind) {
    if (kind == MACHINE_CUDA) return job_logits_fp32(s) ? 1024 : 2048;
    int64_t rows = 64 * MIB / (s->m.config.vocab * 4);
    rows = MIN2(rows, 2048) / HEAD_TILE * HEAD_TILE;
    return MAX2(rows, HEAD_TILE);
}

static int64_t micro_steps_of(const JobSpec *s, int64_t rows) { return (rows + s->micro_batch - 1) / s->micro_batch; }

double job_micro_steps(const JobSpec *s) {
    const UpdateRows *u = s->rows;
    if (!u || !u->updates) return (double)s->accum;
    if (u->expected && !s->estimate) return (double)micro_steps_of(s, u->expected);
    double plays = 0;
    for (int64_t r = 0; r <= u->most; r++) plays += (double)(u->count[r] * micro_steps_of(s, r));
    return plays / (double)u->updates;
}

int64_t job_samples(const JobSpec *s) {
    /* job_rows is the worst case where rows hold several samples, so the samples themselves are taken */
    return s->rows && s->row_samples > 1 ? s->rows->samples : job_rows(s) * MAX2(s->row_samples, 1);
}

/* Each sample begins with a copy of the last shared token, and its own last token is left out. */
int64_t job_sample_tokens(const JobSpec *s) {
    return s->row_samples > 1 ? s->shared_tokens + (s->seq - s->shared_tokens) / s->row_samples + 1 : s->seq;
}

void job_set_micro(JobSpec *s, int64_t samples, MachineKind kind) {
    int64_t all = job_samples(s);
    if (s->task && s->task->lay_out) s->task->lay_out(s->task, s, samples, kind);
    s->micro_batch = samples / MAX2(s->row_samples, 1);
    int64_t each = MAX2(s->row_samples, 1), rows = s->rows ? job_rows(s) : (all + each - 1) / each;
    s->accum = (rows + s->micro_batch - 1) / s->micro_batch;
}

int64_t job_rows(const JobSpec *s) { return s->rows ? MAX2(s->rows->most, 1) : s->micro_batch * s->accum; }

/* A multiple of the tile, so that a piece's products use the same tiles as the whole. */
static int64_t ffn_rows(const JobSpec *s) {
    int64_t rows = s->micro_batch * s->seq, pieces = MAX2(s->ffn_chunks, 1);
    return units_round_up((rows + pieces - 1) / pieces, HEAD_TILE);
}

/* Products of 2,048 tokens run at full speed. Fewer than 4 pieces save little; with more than 32 the piece is small
 * compared with attention's memory. */
int64_t job_useful_pieces(const JobSpec *s) {
    enum { PIECE = 2048, LEAST = 4, MOST = 32 };
    int64_t n = MIN2((s->micro_batch * s->seq + PIECE - 1) / PIECE, MOST);
    return s->train && n >= LEAST ? n : 0;
}

Tid job_hidden(Job *j, const Model *m) {
    ModelInput in = j->in;
    ModelOut out = {.tap_layer = -1};
    in.id_order = NONE;
    model_hidden(&j->ring->p, m, &in, &out);
    return out.hidden;
}

void job_supervised_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    Program *p = &j->ring->p;
    ModelOut out = {.tap_layer = -1};
    model_hidden(p, m, &j->in, &out);
    Tid logp = op_head_logp(p, out.hidden, m->head, j->labels, job_head_attr(j));
    roots->root[roots->n++] = (Root){op_token_sum(p, stat, logp, j->weight, j->divisor, -1), NONE};
    for (int i = 0; i < out.n_terms; i++) roots->root[roots->n++] = (Root){out.term[i], NONE};
    if (out.n_terms) j->index_loss = out.term[0];
    if (out.report) j->report_stat = out.report;
}

const Task task_supervised = {.name = "supervised", .loss = job_supervised_loss};

/* Forward, loss and backward over a batch, drawing as a phase of the name `keys` does. */
static int record_pass(Job *j, const char *name, const char *keys, bool warmup) {
    Program *p = &j->ring->p;
    JobRoots all = {0}, roots = {0};
    int phase = prog_begin_phase(p, name, j->spec.accum), begin = (int)p->n_s;
    prog_keys_of(p, keys);
    j->in.warmup = warmup;
    task_of(j)->loss(task_of(j), j, &j->m, j->loss, &all);
    j->in.warmup = false;
    for (int i = 0; i < all.n; i++) /* a frozen warm-up learns from the auxiliary losses of layers alone */
        if (!warmup || !j->spec.warmup_frozen || all.root[i].tensor != j->loss) roots.root[roots.n++] = all.root[i];
    prog_backward(p, begin, roots.root, roots.n);
    return phase;
}

int job_record_pass(Job *j, const char *name) { return record_pass(j, name, "micro", false); }

static void record_micro(Job *j) {
    j->micro = job_record_pass(j, "micro");
    if (!j->spec.update_in_backward) prog_end_phase(&j->ring->p);
    ring_add_plays(j->ring, j->micro, job_micro_steps(&j->spec));
}

static bool record_warmup(Job *j, Err *e) {
    if (!j->spec.warmup_steps) return true;
    j->warmup = record_pass(j, "warmup", "warmup", true);
    j->warmup_index_loss = j->index_loss;
    prog_end_phase(&j->ring->p);
    return !j->spec.warmup_frozen || job_record_warmup_update(j, e);
}

/* Statistics of attention over a training batch, for families that report any. */
static void record_report(Job *j) {
    Program *p = &j->ring->p;
    ModelOut out = {.tap_layer = -1};
    ModelInput in = j->in;
    if (!model_family(&j->spec.m.config)->reports) return;
    Model twin = model_twin(p, &j->m, true);
    in.weight = in.divisor = NONE;
    in.report = true;
    j->report = prog_begin_phase(p, "report", 1);
    model_hidden(p, &twin, &in, &out);
    prog_end_phase(p);
    j->report_stat = out.report;
}

static void record_evaluate(Job *j) {
    Program *p = &j->ring->p;
    JobRoots roots = {0};
    j->m_eval = model_twin(p, &j->m, true);
    j->evaluate = prog_begin_phase(p, "evaluate", 2); /* played repeatedly: the loss is summed over plays */
    ModelInput trained_on = j->in;
    j->in.weight = j->in.divisor = NONE; /* without the layers' auxiliary losses */
    j->in.report = j->spec.report;
    task_supervised.loss(&task_supervised, j, &j->m_eval, j->eval_loss, &roots);
    j->in = trained_on;
    prog_end_phase(p);
}

static void record_init(Job *j) {
    j->init = prog_begin_phase(&j->ring->p, "init", 1);
    weights_record_start(&j->ring->p, &j->m);
    prog_end_phase(&j->ring->p);
}

static void record_inputs(Job *j) {
    Program *p = &j->ring->p;
    const JobSpec *s = &j->spec;
    const int64_t *n = DIMS(s->micro_batch * s->seq), *one = DIMS(1);
    p->beta = prog_tensor(p, "beta", ROLE_DIAL, FMT_F32, 1, one);
    p->clock = prog_tensor(p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    j->divisor = prog_tensor(p, "divisor", ROLE_DIAL, FMT_F32, 1, one);
    j->dials = prog_tensor(p, "dials", ROLE_DIAL, FMT_F32, 1, DIMS(DIAL_WORDS));
    j->max_norm = prog_tensor(p, "max_norm", ROLE_DIAL, FMT_F32, 1, one);
    if (s->train && s->limited) j->limits = prog_tensor(p, "limits", ROLE_DIAL, FMT_F32, 1, DIMS(LIMIT_WORDS));
    if (s->train && s->m.activations == FMT_F16) j->unscale = prog_tensor(p, "unscale", ROLE_DIAL, FMT_F32, 1, one);
    j->in = model_input(p, &j->m, "batch", s->micro_batch, s->seq);
    j->in.attend = s->attend;
    j->labels = prog_tensor(p, "labels", ROLE_INPUT, FMT_I32, 1, n);
    j->weight = prog_tensor(p, "token_weight", ROLE_INPUT, FMT_F32, 1, n);
    if (s->train) j->in.weight = j->weight, j->in.divisor = j->divisor;
    j->loss = prog_tensor(p, "loss", ROLE_STATISTIC, FMT_F64, 1, one);
    j->eval_loss = prog_tensor(p, "eval_loss", ROLE_STATISTIC, FMT_F64, 1, one);
    j->verdict = prog_tensor(p, "verdict", ROLE_STATISTIC, FMT_F64, 1, DIMS(VERDICT_WORDS));
}

/* ---- the whole ---- */

/* An upper bound of all that a step could keep at once. If it fits 63 bits, every size that planning adds up fits too;
 * config_check bounds the weights. */
static bool is_countable(const JobSpec *s) {
    const ModelConfig *c = &s->m.config;
    int64_t heads = (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
    int64_t layers = mem_mul(64 * c->layers, c->hidden + heads + c->ffn);
    int64_t token = mem_add(layers, 64 * c->vocab);
    return mem_mul(mem_mul(token, mem_mul(s->micro_batch, s->seq)), 8) >= 0;
}

static bool check_spec(const JobSpec *s, Err *e) {
    const ModelConfig *c = &s->m.config;
    if (c->layers > JOB_LAYERS)
        return fail(e, ERR_USAGE, "%s: %d layers, at most %d are planned", c->name, c->layers, JOB_LAYERS);
    int64_t sample = job_sample_tokens(s);
    if (c->sliding_window && sample > c->sliding_window)
        return fail(e, ERR_USAGE,
                    "--seq %lld: this model attends to a sliding window of %lld tokens, which is not supported; "
                    "use --seq %lld or less",
                    (long long)sample, (long long)c->sliding_window, (long long)c->sliding_window);
    if (s->train && s->lora && !s->m.adapter.targets)
        return fail(e, ERR_USAGE, "--lora-targets: %s has none of these projections", c->name);
    if (s->m.head_int8 && s->train && !s->lora)
        return fail(e, ERR_USAGE,
                    "--quantize-head int8: a head that is trained is not quantised; it goes with --mode lora");
    if (s->update_in_backward && (s->accum > 1 || !job_can_update_early(s)))
        return fail(e, ERR_USAGE, "--update-in-backward on: %s; leave the update behind backward",
                    s->accum > 1           ? "micro-batches are added up before an update"
                    : s->warmup_steps      ? "an indexer's warm-up has updates of its own"
                    : s->gradient_noise    ? "the noise of gradients is measured before an update"
                    : s->whole_updates     ? "an update is written as a whole or not at all"
                                           : "with fp16 an update may have to be taken back");
    if (mem_mul(s->micro_batch, s->seq) < 0 || s->micro_batch * s->seq > INT32_MAX)
        return fail(e, ERR_USAGE, "--micro-batch x --seq: more than %d tokens", INT32_MAX);
    if (!is_countable(s))
        return fail(e, ERR_USAGE, "%s at %lld tokens: more bytes than can be counted. Is its config.json right?",
                    c->name, (long long)(s->micro_batch * s->seq));
    if (s->head_chunk && s->head_chunk < s->micro_batch * s->seq && s->head_chunk % HEAD_TILE)
        return fail(e, ERR_USAGE, "--head-chunk %lld: is not a multiple of %d rows", (long long)s->head_chunk,
                    HEAD_TILE);
    return true;
}

static bool record(Job *j, Err *e) {
    const JobSpec *s = &j->spec;
    Program *p = &j->ring->p;
    ModelTraining training = {.weights = !s->lora, .format = s->weights, .gradients = s->gradients};
    model_weights(p, &j->m, &s->m, s->train ? &training : NULL);
    record_inputs(j);
    record_init(j);
    if (task_of(j)->record && !task_of(j)->record(task_of(j), j, e)) return false;
    if (s->train) {
        if (!record_warmup(j, e)) return false;
        record_micro(j);
        if (s->gradient_noise && s->accum > 1 && !s->task) job_record_noise(j);
        if (!job_record_update(j, e)) return false;
        record_report(j);
    }
    if (s->evaluate || !s->train) record_evaluate(j);
    model_homes(p, &j->m, j->ring->machine.kind);
    return true;
}

static PlanChoices choices_of(const JobSpec *s) {
    return (PlanChoices){.recompute = s->recompute,
                         .layers = s->m.config.layers,
                         .ffn_piece_rows = s->ffn_chunks > 1 ? ffn_rows(s) : 0,
                         .offload_inputs = (int)s->m.offload.layers[OFFLOAD_INPUTS],
                         .offload_late = s->recompute[0] == RECOMPUTE_TWICE, /* where memory is all that counts */
                         .update_early = s->update_in_backward,
                         .keep_head_gradient_apart = s->no_sweep,
                         .estimate = s->estimate};
}

static int64_t updates_bytes(const Program *p, Format f) {
    StoredUpdate layout;
    stored_lay_out(&layout, p, f);
    int64_t bytes = stored_host_bytes(&layout);
    stored_free(&layout);
    return bytes;
}

/* By default a state is copied to host memory before it is written if the device has its own memory and the copy is a
 * small part of the host's. */
static void add_log_bytes(Job *j, const HostBytes *host, const Machine *m) {
    enum { SMALL_PART = 4 };
    const Program *p = &j->ring->p;
    int64_t state = state_copy_bytes(p, job_trained_role(j));
    bool small = m->kind != MACHINE_CPU && state <= m->free_bytes[POOL_HOST] / SMALL_PART;
    j->copies_states = host->state_copying == STATES_COPIED || (host->state_copying == STATES_AUTO && small);
    ring_add_host(j->ring, "step log", "what waits to be written, and a thread",
                  log_writer_bytes(host->logged_samples) + (j->copies_states ? state : 0));
    if (host->stores_updates)
        ring_add_host(j->ring, "updates", "the weights before an update, and it, for the step log",
                      updates_bytes(p, host->update_format));
}

bool job_plan(Job *j, Ring *r, const JobSpec *spec, const Machine *m, const HostBytes *host, Err *e) {
    *j = (Job){.spec = *spec,
               .ring = r,
               .init = -1,
               .micro = -1,
               .update = -1,
               .evaluate = -1,
               .warmup = -1,
               .warmup_update = -1,
               .noise = -1,
               .report = -1};
    ring_init(r, m);
    if (!stop_check(e) || !check_spec(spec, e) || !record(j, e)) return false;
    if (host) {
        ring_add_host(r, "tokenizer", NULL, host->tokenizer);
        ring_add_host(r, "data", "token ids: of the whole set, or windows on shards", host->data);
        ring_add_host_before(r, "reading", "rows before they are tokens, above the pools", host->reading,
                             host->batches);
        if (host->vectors) ring_add_host(r, "vectors", "as long as what is trained", host->vectors);
        if (host->logged_samples) add_log_bytes(j, host, m);
        ring_add_host(r, "batches", "rows side by side, some filled ahead", host->batches);
        bool sampled = spec->train && m->kind == MACHINE_CUDA;
        ring_add_host(r, "sampler", "a thread that reads the GPU's sensors", sampled ? SAMPLER_STACK_BYTES : 0);
    }
    PlanChoices c = choices_of(spec);
    ring_plan(r, &c);
    return true;
}

double job_update_seconds(const Job *j, int64_t updates) {
    const Ring *r = j->ring;
    double usual = ring_round_seconds(r, &r->machine);
    if (!j->spec.warmup_steps || updates <= 0) return usual;
    double first = job_micro_steps(&j->spec) * plan_step_seconds(&r->p, &r->machine, j->warmup) +
                   plan_step_seconds(&r->p, &r->machine, j->warmup_update >= 0 ? j->warmup_update : j->update);
    double share = (double)MIN2(j->spec.warmup_steps, updates) / (double)updates;
    return share * first + (1 - share) * usual;
}
