/* job.c - which phases a job has and what is recorded in each. */
#include "train/job.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "base/units.h"

static double now_ms(void) { /* this thread's own time: planning waits for nothing, and a busy machine does not count */
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- how parameters start ---- */

uint64_t job_fill_key(uint64_t seed, const char *file_name) {
    uint64_t key = rng_fold(seed, 0x1417);
    for (const char *c = file_name; *c; c++) key = rng_fold(key, (unsigned char)*c);
    return key;
}

AttrFill job_fill(const ModelConfig *c, const char *file_name, uint64_t seed) {
    AttrFill f = {.kind = FILL_CONSTANT, .key = job_fill_key(seed, file_name)};
    if (strstr(file_name, "norm.weight")) f.scale = 1;
    else if (!strstr(file_name, ".bias")) f = (AttrFill){FILL_NORMAL, (float)c->init_std, f.key};
    return f;
}

static void record_init(Job *j) {
    Program *p = &j->p;
    j->phase_init = prog_begin_phase(p, "init", 1);
    for (Tid t = 1, n = (Tid)p->n_t; t < n; t++) {
        Tensor w = *prog_t(p, t);
        if (!w.file_name) continue;
        p->layer = w.layer;
        if (w.role == ROLE_WEIGHT && j->spec.random_init) op_fill(p, t, job_fill(&j->spec.model, w.file_name, j->spec.seed));
        if (w.role == ROLE_ADAPTER) { /* A uniform in +-1/sqrt(K) as PEFT draws it, B zero */
            AttrFill f = {FILL_CONSTANT, 0, job_fill_key(j->spec.seed, w.file_name)};
            if (strstr(w.file_name, "lora_A")) f = (AttrFill){FILL_UNIFORM, 1.0f / sqrtf((float)w.dim[1]), f.key};
            op_fill(p, t, f);
        }
    }
    prog_end_phase(p);
}

/* ---- the passes over a batch ---- */

AttrHead job_head_attr(const Job *j) {
    int64_t rows = j->spec.micro_batch * j->spec.seq;
    int64_t chunk = j->spec.head_chunk ? j->spec.head_chunk : job_default_chunk(&j->spec, j->machine.kind);
    return (AttrHead){MIN2(chunk, rows)};
}

/* A GPU's products want thousands of rows; on a CPU about 64 MiB of logits are enough, but at least one tile. */
int64_t job_default_chunk(const JobSpec *s, MachineKind kind) {
    if (kind == MACHINE_CUDA) return 2048;
    int64_t rows = (int64_t)64 * 1048576 / (s->model.vocab * 4);
    rows = MIN2(rows, 2048) / HEAD_TILE * HEAD_TILE;
    return MAX2(rows, HEAD_TILE);
}

/* Whole tiles, so that a piece's products are cut as those of the whole are. */
int64_t job_ffn_rows(const JobSpec *s) {
    int64_t rows = s->micro_batch * s->seq, pieces = MAX2(s->ffn_chunks, 1);
    return units_round_up((rows + pieces - 1) / pieces, HEAD_TILE);
}

static Tid record_loss(Job *j, const Decoder *d, Tid stat) {
    Program *p = &j->p;
    Tid hidden = decoder_hidden(p, d, &j->in, NULL, 0);
    Tid logp = op_head_logp(p, hidden, d->head, j->labels, job_head_attr(j));
    return op_token_sum(p, stat, logp, j->weight, j->divisor, -1);
}

static void record_micro(Job *j) {
    Program *p = &j->p;
    j->phase_micro = prog_begin_phase(p, "micro", j->spec.accum);
    int begin = (int)p->n_s;
    record_loss(j, &j->d, j->loss);
    prog_backward(p, begin, &(Root){j->loss, NONE}, 1);
    if (!j->spec.update_in_backward) prog_end_phase(p);
}

static void record_eval(Job *j) {
    Program *p = &j->p;
    j->d_eval = decoder_twin(p, &j->d, true);
    j->phase_eval = prog_begin_phase(p, "evaluate", 2); /* several batches: the sum is carried */
    record_loss(j, &j->d_eval, j->eval_loss);
    prog_end_phase(p);
}

/* ---- the update ---- */

/* One multiplier per tensor: a rule that names one of several stacked projections cannot be kept. */
static bool lr_mult_of(const Job *j, Tid t, float *mult, Err *e) {
    const Program *p = &j->p;
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
    Program *p = &j->p;
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
    Program *p = &j->p;
    uint32_t key = p->next_key;
    Tid verdict = prog_view(p, "own_verdict", verdicts, n, 1);
    p->layer = layer;
    op_clip(p, verdict, part, j->loss, j->max_norm, NONE);
    p->layer = -1;
    p->next_key = key;
    return verdict;
}

static bool record_update(Job *j, Err *e) {
    Program *p = &j->p;
    Tid last = (Tid)p->n_t, verdicts = NONE, *part = MEM_NEW(Tid, last);
    bool inside = j->spec.update_in_backward, ok = true;
    int64_t n = 0;
    for (Tid t = 1; t < last; t++) n += p->t[t].trainable;
    j->parts = prog_tensor(p, "squares", ROLE_STATISTIC, FMT_F64, 1, DIMS(MAX2(n, 1)));
    if (inside) verdicts = prog_tensor(p, "verdicts", ROLE_STATISTIC, FMT_F64, 2, DIMS(MAX2(n, 1), VERDICT_WORDS));
    else j->phase_update = prog_begin_phase(p, "update", 1);
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
    return ok;
}

/* ---- the whole ---- */

static void record_inputs(Job *j) {
    Program *p = &j->p;
    const JobSpec *s = &j->spec;
    const int64_t *n = DIMS(s->micro_batch * s->seq), *one = DIMS(1);
    p->beta = prog_tensor(p, "beta", ROLE_DIAL, FMT_F32, 1, one);
    p->clock = prog_tensor(p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    j->divisor = prog_tensor(p, "divisor", ROLE_DIAL, FMT_F32, 1, one);
    j->dials = prog_tensor(p, "dials", ROLE_DIAL, FMT_F32, 1, DIMS(DIAL_WORDS));
    j->max_norm = prog_tensor(p, "max_norm", ROLE_DIAL, FMT_F32, 1, one);
    if (s->train && s->activations == FMT_F16) j->unscale = prog_tensor(p, "unscale", ROLE_DIAL, FMT_F32, 1, one);
    j->in = decoder_input(p, &j->d, "batch", s->micro_batch, s->seq);
    j->in.attend = s->attend;
    j->labels = prog_tensor(p, "labels", ROLE_INPUT, FMT_I32, 1, n);
    j->weight = prog_tensor(p, "token_weight", ROLE_INPUT, FMT_F32, 1, n);
    j->loss = prog_tensor(p, "loss", ROLE_STATISTIC, FMT_F64, 1, one);
    j->eval_loss = prog_tensor(p, "eval_loss", ROLE_STATISTIC, FMT_F64, 1, one);
    j->verdict = prog_tensor(p, "verdict", ROLE_STATISTIC, FMT_F64, 1, DIMS(VERDICT_WORDS));
}

/* A generous count of everything a step could ever keep at once. While it fits 63 bits, so does every size that is
 * added up while planning; config_check bounds the weights. */
static bool is_countable(const JobSpec *s) {
    const ModelConfig *c = &s->model;
    int64_t heads = (int64_t)(c->heads + 2 * c->kv_heads) * c->head_dim;
    int64_t layers = mem_mul(64 * c->layers, c->hidden + heads + c->ffn);
    int64_t token = mem_add(layers, 64 * c->vocab);
    return mem_mul(mem_mul(token, mem_mul(s->micro_batch, s->seq)), 8) >= 0;
}

static bool check_spec(const JobSpec *s, Err *e) {
    const ModelConfig *c = &s->model;
    if (c->layers > JOB_LAYERS)
        return fail(e, ERR_USAGE, "%s: %d layers, at most %d are planned", c->name, c->layers, JOB_LAYERS);
    if (c->sliding_window && s->seq > c->sliding_window)
        return fail(e, ERR_USAGE,
                    "--seq %lld: this model attends to a sliding window of %lld tokens, which is not supported; "
                    "use --seq %lld or less",
                    (long long)s->seq, (long long)c->sliding_window, (long long)c->sliding_window);
    if (s->head_int8 && s->train && !s->lora)
        return fail(e, ERR_USAGE, "--quantize-head int8: a head that is trained is not quantised; it goes with --mode lora");
    if (s->update_in_backward && (s->accum > 1 || !job_can_update_early(s)))
        return fail(e, ERR_USAGE, "--update-in-backward on: %s; leave the update behind backward",
                    s->accum > 1 ? "micro-batches are added up before an update"
                                 : "with fp16 an update may have to be taken back");
    if (mem_mul(s->micro_batch, s->seq) < 0 || s->micro_batch * s->seq > INT32_MAX)
        return fail(e, ERR_USAGE, "--micro-batch x --seq: more than %d tokens", INT32_MAX);
    if (!is_countable(s))
        return fail(e, ERR_USAGE, "%s at %lld tokens: more bytes than can be counted. Is its config.json right?", c->name,
                    (long long)(s->micro_batch * s->seq));
    if (s->head_chunk && s->head_chunk < s->micro_batch * s->seq && s->head_chunk % HEAD_TILE)
        return fail(e, ERR_USAGE, "--head-chunk %lld: is not a multiple of %d rows", (long long)s->head_chunk, HEAD_TILE);
    return true;
}

/* Device memory that a library for attention may take for itself: its handle and code, loaded in the first play. */
#define LIBRARY_CODE_BYTES ((int64_t)16 * 1048576) /* 10 to 12 MiB were seen with cuDNN 9.14 on an H200 */

static void add_lines(Job *j, const HostBytes *host) {
    /* the process beside the arena: on the CPU it is the device's own memory that these bytes take */
    Pool pool = j->machine.kind == MACHINE_CPU ? POOL_DEVICE : POOL_HOST;
    int64_t program = j->p.cap_t * (int64_t)sizeof(Tensor) + j->p.cap_s * (int64_t)sizeof(Step) + j->p.n_s * 256;
    const Machine *m = &j->machine;
    int64_t mappings = m->mapping_bytes + (int64_t)(m->mapping_share * (double)j->placement.arena_bytes[POOL_PINNED]);
    bool library = m->kind == MACHINE_CUDA && j->spec.attend != ATTEND_OWN && j->spec.activations != FMT_F32;
    const struct {
        const char *name, *note;
        int64_t bytes;
    } beside[] = {{"context", "the driver's own", m->context_bytes},
                  {"code", "kernels as they are first used", m->code_bytes},
                  {"graphs", "plays that are kept", m->graph_bytes},
                  {"mappings", "page tables", mappings},
                  {"attention", "code of the library", library ? LIBRARY_CODE_BYTES : 0}};
    for (int i = 0; i < COUNT_OF(beside); i++)
        if (beside[i].bytes) ledger_add(&j->ledger, POOL_DEVICE, beside[i].name, beside[i].note, beside[i].bytes, false);
    ledger_add(&j->ledger, pool, "runtime", "code, heap, BLAS buffers, stacks", j->machine.runtime_bytes + program, false);
#ifdef __SANITIZE_ADDRESS__ /* shadow bytes and freed blocks kept aside */
    ledger_add(&j->ledger, pool, "sanitizers", "a debug build",
               (int64_t)256 * 1048576 + j->placement.arena_bytes[POOL_DEVICE] / 4, false);
#endif
    if (j->spec.beside)
        ledger_add(&j->ledger, pool, "requests", "prompts, answers, sampling", j->spec.beside->host_bytes(j), false);
    if (host && host->tokenizer) ledger_add(&j->ledger, pool, "tokenizer", NULL, host->tokenizer, false);
    if (host && host->data) ledger_add(&j->ledger, pool, "data", "token ids of the whole set", host->data, false);
    /* while rows are read there are no pools yet: only what is more than they will take counts */
    int64_t pools = j->placement.arena_bytes[POOL_PINNED] + (m->kind == MACHINE_CPU ? j->placement.arena_bytes[POOL_DEVICE] : 0);
    int64_t reading = host ? host->reading - pools - host->batches : 0;
    if (reading > 0) ledger_add(&j->ledger, pool, "reading", "rows before they are tokens, above the pools", reading, false);
    if (host && host->batches)
        ledger_add(&j->ledger, pool, "batches", "rows side by side, some filled ahead", host->batches, false);
}

bool job_open(Job *j, const JobSpec *spec, const Machine *m, const HostBytes *host, Err *e) {
    *j = (Job){.spec = *spec, .machine = *m, .phase_init = -1, .phase_micro = -1, .phase_update = -1, .phase_eval = -1};
    if (!check_spec(spec, e)) return false;
    double began = now_ms();
    Program *p = &j->p;
    prog_init(p);
    bool full = spec->train && !spec->lora;
    Format base = full ? spec->weights : spec->model.dtype;
    WeightSpec w = {.format = base, .stored = base, .activations = spec->activations, .train = full,
                    .gradients = spec->gradients, .lora = spec->adapter};
    decoder_weights(p, &j->d, &spec->model, &w);
    if (!spec->train) /* an adapter that is only applied has no gradient */
        for (Tid t = 1; t < p->n_t; t++) p->t[t].trainable = p->t[t].needs_grad = false;
    record_inputs(j);
    record_init(j);
    bool ok = !spec->beside || spec->beside->record(spec->beside->user, j, e);
    if (ok && spec->train) {
        record_micro(j);
        ok = record_update(j, e);
    }
    if (!ok) {
        job_close(j);
        return false;
    }
    if (spec->evaluate || !spec->train) record_eval(j);
    job_set_homes(p, spec, m->kind, spec->quantised ? spec->stored : base);
    if (spec->head_int8) decoder_quantise_head(p, &j->d);
    if (m->kind == MACHINE_CUDA) plan_adapters_first(p);
    if (spec->sweep) plan_sweep(p);
    plan_recompute(p, spec->recompute, spec->model.layers);
    if (spec->ffn_chunks > 1) plan_chunk_ffn(p, job_ffn_rows(spec));
    plan_fuse(p);
    if (spec->update_in_backward) plan_update_early(p);
    plan_offload_late(p, (int)spec->away[AWAY_INPUTS],
                      spec->recompute[0] == RECOMPUTE_TWICE); /* where memory is all that counts */
    plan_materialise(p);
    j->placement = spec->estimate ? plan_estimate(p, m) : plan_all(p, m);
    plan_ledger(p, &j->placement, m, &j->ledger);
    add_lines(j, host);
    j->plan_ms = now_ms() - began;
    return true;
}

void job_close(Job *j) { prog_free(&j->p); }

int64_t job_host_bytes(const Job *j) {
    return ledger_process_bytes(&j->ledger, POOL_PINNED) + ledger_process_bytes(&j->ledger, POOL_HOST);
}

int64_t job_process_bytes(const Job *j) { /* on the CPU all pools are the same memory */
    return ledger_process_bytes(&j->ledger, POOL_DEVICE) + (j->machine.kind == MACHINE_CPU ? job_host_bytes(j) : 0);
}

int64_t job_disk_bytes(const Job *j) {
    return j->placement.arena_bytes[POOL_DISK] -
           (j->spec.random_init ? 0 : plan_file_bytes(&j->p, j->spec.model.quant == QUANT_OWN));
}

double job_micro_steps(const JobSpec *s) {
    const UpdateRows *u = s->rows;
    if (!u || !u->updates) return (double)s->accum;
    double plays = 0;
    for (int64_t r = 0; r <= u->most; r++) plays += (double)(u->count[r] * ((r + s->micro_batch - 1) / s->micro_batch));
    return plays / (double)u->updates;
}

int64_t job_rows(const JobSpec *s) { return s->rows ? MAX2(s->rows->most, 1) : s->micro_batch * s->accum; }

void job_batch_flags(Str *out, const JobSpec *s, int64_t micro_batch, int64_t accum) {
    if (s->rows) str_addf(out, "--micro-batch %lld --global-batch %lld", (long long)micro_batch, (long long)s->rows->samples);
    else str_addf(out, "--micro-batch %lld --accum %lld", (long long)micro_batch, (long long)accum);
}

double job_update_seconds(const Job *j) {
    double s = j->phase_micro >= 0 ? plan_step_seconds(&j->p, &j->machine, j->phase_micro) * job_micro_steps(&j->spec) : 0;
    for (int i = 0; i < j->n_plays; i++) s += j->plays[i].times * plan_step_seconds(&j->p, &j->machine, j->plays[i].phase);
    return s + (j->phase_update >= 0 ? plan_step_seconds(&j->p, &j->machine, j->phase_update) : 0);
}

double job_useful_flops(const Job *j) {
    double f = j->phase_micro >= 0 ? plan_useful_flops(&j->p, j->phase_micro) * job_micro_steps(&j->spec) : 0;
    for (int i = 0; i < j->n_plays; i++) f += j->plays[i].times * plan_useful_flops(&j->p, j->plays[i].phase);
    return f + (j->phase_update >= 0 ? plan_useful_flops(&j->p, j->phase_update) : 0);
}
