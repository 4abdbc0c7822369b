/* ring.c - which passes stand beside the policy's training step, and how often an update plays them. */
#include "grpo/ring.h"

#include "grpo/layout.h"

static int64_t pieces(int64_t n, int64_t most) {
    return (n + most - 1) / most;
}

/* ---- savings ---- */

static bool evaluator_may_come(const GrpoSpec *s) { return s->evaluator_may_move && !s->evaluator.by_phase; }

static int moves(const GrpoSpec *s) { /* savings that take weights off the device by phase */
    return s->weights_stay || !s->has_evaluator ? 0 : evaluator_may_come(s) + s->policy_is_frozen;
}

static int halvings(const GrpoSpec *s) { /* savings that take answers at a time */
    enum { MOST = 4 };
    return s->slots ? 0 : s->has_evaluator ? MOST : MOST - 1;
}

GrpoSavings grpo_savings_at(const GrpoSpec *s, int saving, int64_t rows) {
    int64_t slots = s->slots ? s->slots : MIN2(rows, GRPO_SLOTS);
    int come = MIN2(saving, moves(s)), halved = saving - come;
    int alone = s->has_evaluator ? MIN2(halved, 2) : 0; /* the evaluator's alone */
    GrpoSavings v = {.evaluator_by_phase = s->evaluator.by_phase};
    if (come && evaluator_may_come(s)) v.evaluator_by_phase = true, come--;
    v.policy_by_phase = come > 0;
    v.evaluator_slots = MAX2(slots >> halved, 1);
    v.policy_slots = MAX2(slots >> (halved - alone), 1);
    return v;
}

static void describe_saving(const Task *task, const JobSpec *j, Str *out) {
    const GrpoSpec *s = &((const GrpoTask *)task)->spec;
    int64_t rows = job_micro_samples(j) * j->accum;
    GrpoSavings v = grpo_savings_at(s, j->task_saving, rows), plain = grpo_savings_at(s, 0, rows);
    const char *gap = "";
    if (v.evaluator_by_phase || v.policy_by_phase) {
        str_addf(out, "weights by phase: %s%s%s", v.evaluator_by_phase ? GRPO_EVALUATOR : "",
                 v.evaluator_by_phase && v.policy_by_phase ? ", " : "", v.policy_by_phase ? "policy" : "");
        gap = "; ";
    }
    if (v.policy_slots == plain.policy_slots && v.evaluator_slots == plain.evaluator_slots) return;
    str_addf(out, "%s%lld answers at a time", gap, (long long)v.policy_slots);
    if (s->has_evaluator) str_addf(out, ", evaluator %lld", (long long)v.evaluator_slots);
}

/* ---- plays ---- */

/* The last shorter piece of a prompt counts as a whole one; slots are refilled, so waves are full but the last, which
 * runs to the longest answer. */
GrpoPlays grpo_plays(const GrpoSpec *s, const GrpoSavings *v, int64_t rows, int64_t micro_batches) {
    int64_t waves = pieces(rows, v->policy_slots), evaluator_waves = pieces(rows, v->evaluator_slots);
    int64_t read = s->prompt_tokens + s->answer_tokens;
    GrpoPlays n = {.prefill = pieces(rows, s->group) * pieces(s->prompt_tokens, s->chunk),
                   .decode = (waves - 1) * grpo_expected_tokens(s) + s->answer_tokens};
    if (s->has_evaluator) {
        n.evaluator_prefill = rows * pieces(read, s->chunk);
        n.evaluator_decode = evaluator_waves * s->evaluator_tokens;
    }
    if (s->reference_kind != REFERENCE_NONE) n.reference = micro_batches;
    return n;
}

/* The largest of its passes stand for all: they take the most, of bytes and of an update's time. A play finds the cache
 * half full on average: prefill of prompts of that many tokens, decode of all of them and half of an answer. */
static void add_passes(Ring *r, const Gen *g, double prompt, double answer, int64_t prefill, int64_t decode) {
    int first = g->prefill[g->n_prefill - 1].phase, next = g->decode[g->n_decode - 1].phase;
    if (g->phase_load >= 0) ring_add_plays(r, g->phase_load, 1);
    ring_add_plays(r, first, (double)prefill);
    ring_add_plays(r, next, (double)decode);
    r->p.phase[first].filled = prompt / 2 / (double)g->spec.context;
    r->p.phase[next].filled = (prompt + answer / 2) / (double)g->spec.context;
}

static GenSpec passes_of(const GrpoSpec *s, const Job *j, const ModelSpec *model, int64_t slots, int64_t prompt,
                         int64_t answer) {
    return (GenSpec){.m = *model,
                     .cache = model->activations,
                     .slots = slots,
                     .context = prompt + answer,
                     .chunk = MIN2(s->chunk, prompt),
                     .shares_arena = true,
                     .estimate = j->spec.estimate};
}

/* Log-probabilities of the rows that the next micro-steps train on: the same inputs, another model. */
static void record_reference(GrpoRing *r, const GrpoSpec *s, Job *j) {
    Program *p = &j->ring->p;
    p->model = GRPO_REFERENCE;
    ModelSpec kept = s->reference;
    int64_t offload = j->spec.side_offload[GRPO_SIDE_REFERENCE];
    if (offload) kept.offload.layers[OFFLOAD_WEIGHTS] = offload;
    if (s->reference_kind == REFERENCE_BASE) r->reference = model_twin(p, &j->m, false);
    else model_weights(p, &r->reference, &kept, NULL);
    p->model = NULL;
    r->phase_reference = prog_begin_phase(p, GRPO_REFERENCE, MAX2(j->spec.accum, 2));
    r->reference_logp =
        op_head_logp(p, job_hidden(j, &r->reference), r->reference.head, j->labels, job_head_attr(j));
    prog_end_phase(p);
    if (s->reference_kind == REFERENCE_MODEL) model_homes(p, &r->reference, j->ring->machine.kind);
}

/* The same of the policy as it stands, for updates that follow others of the same answers. */
static void record_old(GrpoRing *r, Job *j, const Model *policy) {
    Program *p = &j->ring->p;
    r->phase_old = prog_begin_phase(p, "old", MAX2(j->spec.accum, 2));
    r->old_logp = op_head_logp(p, job_hidden(j, policy), policy->head, j->labels, job_head_attr(j));
    prog_end_phase(p);
}

/* The same, with the tokens that the trainer's own logits draw. Its steps are those of the training forward, shape by
 * shape (tests/grpo/test_ring.c), so its log-probabilities have the bits that the update's forward gives. */
static void record_verify(GrpoRing *r, Job *j, const Model *policy) {
    Program *p = &j->ring->p;
    int64_t rows = j->spec.micro_batch * j->spec.seq;
    r->verify_how = prog_tensor(p, "verify_how", ROLE_INPUT, FMT_I32, 2, DIMS(rows, DRAW_WORDS));
    r->verify_drawn = prog_tensor(p, "verify_drawn", ROLE_STATISTIC, FMT_I32, 1, DIMS(rows));
    r->phase_verify = prog_begin_phase(p, "verify", MAX2(j->spec.accum, 2));
    r->verify_logp = op_head_draw(p, job_hidden(j, policy), policy->head, j->labels, job_head_attr(j), r->verify_how,
                                  r->verify_drawn);
    prog_end_phase(p);
}

static Tid row_input(Program *p, const Job *j, const char *name) {
    return prog_tensor(p, name, ROLE_INPUT, FMT_F32, 1, DIMS(j->spec.micro_batch * j->spec.seq));
}

/* Every pass over the rows that are trained on is given it with the job's own inputs. */
static void record_prefix(GrpoRing *r, Job *j) {
    const JobSpec *s = &j->spec;
    if (s->row_samples <= 1) return;
    r->prefix = prog_tensor(&j->ring->p, "prefix", ROLE_INPUT, FMT_I32, 2, DIMS(s->micro_batch * s->seq, 2));
    j->in.prefix = r->prefix;
    j->in.prefix_tokens = s->shared_tokens;
    j->in.document_tokens = (s->seq - s->shared_tokens) / s->row_samples;
}

static void record_inputs(GrpoRing *r, const GrpoSpec *s, Job *j) {
    Program *p = &j->ring->p;
    record_prefix(r, j);
    r->sampled = row_input(p, j, "sampled_logp");
    r->advantage = row_input(p, j, "advantage");
    r->scored = row_input(p, j, "scored");
    if (s->needs_old) r->old = row_input(p, j, "old_logp");
    if (s->reference_kind != REFERENCE_NONE) r->ref = row_input(p, j, "reference_logp");
    r->facts = prog_tensor(p, "policy_facts", ROLE_STATISTIC, FMT_F64, 1, DIMS(POLICY_FACTS));
    r->entropy = prog_tensor(p, "policy_entropy", ROLE_STATISTIC, FMT_F64, 1, DIMS(1));
}

static void policy_loss(const Task *task, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    const GrpoSpec *s = &((const GrpoTask *)task)->spec;
    const GrpoRing *r = grpo_ring(j);
    Program *p = &j->ring->p;
    ModelOut out = {.tap_layer = -1};
    model_hidden(p, m, &j->in, &out);
    Tid entropy, logp = op_head_logp_entropy(p, out.hidden, m->head, j->labels, job_head_attr(j), &entropy);
    op_token_sum(p, r->entropy, entropy, r->scored, j->divisor, 1);
    PolicyOperands o = {.logp = logp,
                        .sampled = r->sampled,
                        .old = r->old,
                        .ref = r->ref,
                        .advantage = r->advantage,
                        .weight = j->weight,
                        .divisor = j->divisor,
                        .stat = stat,
                        .facts = r->facts};
    roots->root[roots->n++] = (Root){op_policy_loss(p, &o, s->loss), NONE};
    for (int i = 0; i < out.n_terms; i++) roots->root[roots->n++] = (Root){out.term[i], NONE};
}

/* Verification repeats the training forward bit for bit. On a GPU a product's bits depend on its number of rows, and a
 * library's attention need not repeat its own. */
static bool check_exact(const Job *j, Err *e) {
    if (j->ring->machine.kind == MACHINE_CPU) return true;
    CHECK_MSG(j->spec.attend == ATTEND_OWN, "answers lie side by side in a row, which our own attention alone serves");
    return j->spec.ffn_chunks <= 1 ||
           fail(e, ERR_USAGE,
                "--exact-policy: on a GPU the feed-forward is not cut into %lld pieces; give --ffn-chunks 1",
                (long long)j->spec.ffn_chunks);
}

static bool check(const GrpoSpec *s, const Job *j, Err *e) {
    const ModelConfig *policy = &j->spec.m.config, *reference = &s->reference.config;
    if (s->exact && !check_exact(j, e)) return false;
    CHECK_MSG(s->reference_kind != REFERENCE_BASE || j->spec.lora, "trained weights cannot be their own reference");
    if (s->reference_kind == REFERENCE_MODEL && reference->vocab != policy->vocab)
        return fail(e, ERR_USAGE, "the reference %s knows %lld tokens, the policy %s %lld: they cannot be compared",
                    reference->name, (long long)reference->vocab, policy->name, (long long)policy->vocab);
    return true;
}

static bool record_evaluator(GrpoRing *r, const GrpoSpec *s, const GrpoSavings *v, Job *j, Err *e) {
    GenSpec answers =
        passes_of(s, j, &s->evaluator, v->evaluator_slots, s->prompt_tokens + s->answer_tokens, s->evaluator_tokens);
    int64_t offload = j->spec.side_offload[GRPO_SIDE_EVALUATOR];
    if (offload) answers.m.offload.layers[OFFLOAD_WEIGHTS] = offload;
    answers.m.by_phase = v->evaluator_by_phase;
    j->ring->p.model = GRPO_EVALUATOR;
    bool ok = gen_record(&r->evaluator, j->ring, &answers, NULL, e);
    j->ring->p.model = NULL;
    return ok || fail_within(e, "the evaluator");
}

static bool record_policy(GrpoRing *r, const GrpoSpec *s, const GrpoSavings *v, Job *j, Model *policy, Err *e) {
    Ring *ring = j->ring;
    if (v->policy_by_phase) j->m.load = prog_load_phase(&ring->p, "load");
    *policy = model_twin(&ring->p, &j->m, true);
    GenSpec answers = passes_of(s, j, &j->spec.m, v->policy_slots, s->prompt_tokens, s->answer_tokens);
    return gen_record(&r->policy, ring, &answers, policy, e);
}

static bool record(const Task *task, Job *j, Err *e) {
    const GrpoSpec *s = &((const GrpoTask *)task)->spec;
    Ring *ring = j->ring;
    if (!check(s, j, e)) return false;
    GrpoRing *r = j->own = ARENA_NEW(&ring->p.arena, GrpoRing, 1);
    int64_t rows = job_micro_samples(&j->spec) * j->spec.accum;
    GrpoSavings v = grpo_savings_at(s, j->spec.task_saving, rows);
    GrpoPlays n = grpo_plays(s, &v, rows, (int64_t)(job_micro_steps(&j->spec) + 0.5));
    double prompt = (double)s->prompt_tokens, answer = (double)grpo_expected_tokens(s);
    Model policy;
    r->phase_reference = r->phase_old = r->phase_verify = -1;
    record_inputs(r, s, j);
    if (s->has_evaluator) {
        if (!record_evaluator(r, s, &v, j, e)) return false;
        add_passes(ring, &r->evaluator, prompt + answer, (double)s->evaluator_tokens, n.evaluator_prefill,
                   n.evaluator_decode);
    }
    if (!record_policy(r, s, &v, j, &policy, e)) return false;
    add_passes(ring, &r->policy, prompt, answer, n.prefill, n.decode);
    if (s->exact) {
        record_verify(r, j, &policy);
        ring_add_plays(ring, r->phase_verify, job_micro_steps(&j->spec));
    } else if (s->needs_old) {
        record_old(r, j, &policy);
        ring_add_plays(ring, r->phase_old, job_micro_steps(&j->spec));
    }
    if (s->reference_kind == REFERENCE_NONE) return true;
    record_reference(r, s, j);
    ring_add_plays(ring, r->phase_reference, (double)n.reference);
    return true;
}

GrpoTask grpo_task(const GrpoSpec *s) {
    Task t = {.name = "grpo",
              .record = record,
              .loss = policy_loss,
              .n_sides = 2,
              .savings = moves(s) + halvings(s),
              .describe_saving = describe_saving,
              .lay_out = layout_apply,
              .fp32_logits = true};
    bool reference = s->reference_kind == REFERENCE_MODEL;
    t.side[GRPO_SIDE_REFERENCE] =
        (TaskSide){GRPO_REFERENCE, s->reference.config.layers, reference && s->reference_may_move};
    t.side[GRPO_SIDE_EVALUATOR] =
        (TaskSide){GRPO_EVALUATOR, s->evaluator.config.layers, s->has_evaluator && s->evaluator_may_move};
    return (GrpoTask){.task = t, .spec = *s};
}
