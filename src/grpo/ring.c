/* ring.c - which passes stand beside the policy's training step, and how often an update plays them. */
#include "grpo/ring.h"

static int64_t pieces(int64_t n, int64_t most) {
    return (n + most - 1) / most;
}

/* The last shorter piece of a prompt counts as a whole one; slots are refilled, so waves are full but the last. */
GrpoPlays grpo_plays(const GrpoSpec *s, int64_t rows, int64_t micro_batches) {
    int64_t slots = s->slots ? s->slots : MIN2(rows, GRPO_SLOTS), waves = pieces(rows, slots);
    int64_t read = s->prompt_tokens + s->answer_tokens;
    GrpoPlays n = {.prefill = pieces(rows, s->group) * pieces(s->prompt_tokens, s->chunk),
                   .decode = waves * s->answer_tokens};
    if (s->has_evaluator) {
        n.evaluator_prefill = rows * pieces(read, s->chunk);
        n.evaluator_decode = waves * s->evaluator_tokens;
    }
    if (s->reference_kind != REFERENCE_NONE) n.reference = micro_batches;
    return n;
}

static void note_plays(Job *j, int phase, int64_t times) {
    CHECK(j->n_plays < JOB_PLAYS);
    j->plays[j->n_plays++] = (JobPlays){phase, (double)times};
}

/* The largest of its passes stand for all: they take the most, of bytes and of an update's time. */
static void note_passes(Job *j, const Gen *g, int64_t prefill, int64_t decode) {
    note_plays(j, g->prefill[g->n_prefill - 1].phase, prefill);
    note_plays(j, g->decode[g->n_decode - 1].phase, decode);
}

static GenSpec passes_of(const GrpoSpec *s, const Job *j, const ModelConfig *model, int64_t prompt,
                         int64_t answer) {
    int64_t rows = j->spec.micro_batch * j->spec.accum;
    return (GenSpec){.model = *model,
                     .activations = j->spec.activations,
                     .cache = j->spec.activations,
                     .slots = s->slots ? s->slots : MIN2(rows, GRPO_SLOTS),
                     .context = prompt + answer,
                     .chunk = MIN2(s->chunk, prompt),
                     .estimate = j->spec.estimate};
}

/* Log-probabilities of the rows that the next micro-steps train on: the same inputs, another model. */
static void record_reference(GrpoRing *r, const GrpoSpec *s, Job *j) {
    Program *p = &j->p;
    p->model = GRPO_REFERENCE;
    if (s->reference_kind == REFERENCE_BASE) {
        r->reference = decoder_twin(p, &j->d, false);
    } else {
        const SideModel *m = &s->reference;
        Format base = m->model.dtype, stored = m->quantised ? m->stored : base;
        decoder_weights(p, &r->reference, &m->model,
                        &(WeightSpec){.format = base,
                                      .stored = stored,
                                      .activations = j->spec.activations,
                                      .gradients = j->spec.activations});
        decoder_homes(p, &r->reference, stored, (DecoderAway){.layers = m->sent, .outside = m->sent >= m->model.layers});
    }
    p->model = NULL;
    DecoderInput in = j->in;
    in.id_order = NONE;
    r->phase_reference = prog_begin_phase(p, GRPO_REFERENCE, MAX2(j->spec.accum, 2));
    Tid hidden = decoder_hidden(p, &r->reference, &in, NULL, 0);
    r->reference_logp = op_head_logp(p, hidden, r->reference.head, j->labels, job_head_attr(j));
    prog_end_phase(p);
}

static bool check(const GrpoSpec *s, const Job *j, Err *e) {
    CHECK_MSG(s->reference_kind != REFERENCE_BASE || j->spec.lora,
              "trained weights cannot be their own reference");
    if (s->reference_kind == REFERENCE_MODEL && s->reference.model.vocab != j->spec.model.vocab)
        return fail(e, ERR_USAGE,
                    "the reference %s knows %lld tokens, the policy %s %lld: they cannot be compared",
                    s->reference.model.name, (long long)s->reference.model.vocab, j->spec.model.name,
                    (long long)j->spec.model.vocab);
    return true;
}

static bool record(const void *user, Job *j, Err *e) {
    const GrpoSpec *s = user;
    Program *p = &j->p;
    if (!check(s, j, e)) return false;
    GrpoRing *r = ARENA_NEW(&p->arena, GrpoRing, 1);
    GrpoPlays n = grpo_plays(s, j->spec.micro_batch * j->spec.accum, j->spec.accum);
    j->beside = r;
    j->n_plays = 0;
    r->phase_reference = -1;
    Decoder policy = decoder_twin(p, &j->d, true);
    GenSpec answers = passes_of(s, j, &j->spec.model, s->prompt_tokens, s->answer_tokens);
    if (!gen_record(&r->policy, p, &answers, &j->machine, &policy, e)) return false;
    note_passes(j, &r->policy, n.prefill, n.decode);
    if (s->has_evaluator) {
        const SideModel *m = &s->evaluator;
        GenSpec judged = passes_of(s, j, &m->model, s->prompt_tokens + s->answer_tokens, s->evaluator_tokens);
        judged.quantised = m->quantised;
        judged.stored = m->stored;
        judged.sent = m->sent;
        p->model = GRPO_EVALUATOR;
        bool ok = gen_record(&r->evaluator, p, &judged, &j->machine, NULL, e);
        p->model = NULL;
        if (!ok) return fail_within(e, "the evaluator");
        note_passes(j, &r->evaluator, n.evaluator_prefill, n.evaluator_decode);
    }
    if (s->reference_kind == REFERENCE_NONE) return true;
    record_reference(r, s, j);
    note_plays(j, r->phase_reference, n.reference);
    return true;
}

static int64_t host_bytes(const Job *j) {
    const GrpoRing *r = j->beside;
    return gen_host_bytes(&r->policy) + (r->evaluator.n_decode ? gen_host_bytes(&r->evaluator) : 0);
}

JobBeside grpo_beside(const GrpoSpec *s) {
    return (JobBeside){.user = s, .record = record, .host_bytes = host_bytes};
}
