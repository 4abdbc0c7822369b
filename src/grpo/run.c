/* run.c - the order of a rollout and of its updates, and what is kept of both. */
#include "grpo/run.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/stop.h"
#include "base/units.h"
#include "grpo/exact.h"
#include "grpo/report.h"
#include "obs/sensors.h"
#include "store/jsonfile.h"

const char *const grpo_part_names[GRPO_PARTS] = {"rollout", "evaluator", "rewards", "reference", "training"};

static void begin_part(GrpoRun *g) { g->part_began = sensors_seconds(); }
static void end_part(GrpoRun *g, GrpoPart part) { g->seconds[part] += sensors_seconds() - g->part_began; }

GrpoPart grpo_part_of(const Job *j, int phase) {
    const GrpoRing *ring = grpo_ring(j);
    if (phase == j->micro || phase == j->update) return GRPO_TRAINING;
    if (phase == ring->phase_reference || phase == ring->phase_old) return GRPO_LOGPS;
    return str_starts(j->ring->p.phase[phase].name, GRPO_EVALUATOR ".") ? GRPO_JUDGING : GRPO_ANSWERS;
}

/* ---- memory ---- */

static int64_t completions_of(const Batches *b) { return b->completions * b->generations; }

int64_t grpo_host_bytes(const JobSpec *s, const Batches *b, int64_t items, int64_t held_out) {
    enum { TEXT_BYTES = 8 }; /* of a token, in what is written and what is answered to it */
    const GrpoSpec *g = &((const GrpoTask *)s->task)->spec;
    int64_t n = completions_of(b), context = g->prompt_tokens + g->answer_tokens, texts = 2 * TEXT_BYTES * context;
    int64_t arrays = (n + held_out) * (REWARDS_MOST + 14) * 8 + 2 * items * 8;
    return rollout_bytes(n, context, g->answer_tokens) + rollout_bytes(held_out, context, g->answer_tokens) +
           (n + held_out) * texts + arrays + rollout_batch_bytes(s->micro_batch, s->seq, s->row_samples > 1) +
           4 * s->micro_batch * s->seq +
           (g->exact ? s->micro_batch * s->seq * ((int64_t)sizeof(DrawHow) + 4) : 0) + MIB;
}

static bool open_voice(Engine *n, Gen *g, const GrpoGenerator *v, Err *e) {
    bool ok = gen_open(g, e) && gen_warm(g, e);
    if (ok)
        engine_open(n, g, v->tokenizer, (EngineOptions){0});
    else
        gen_close(g);
    return ok;
}

static void close_voice(Engine *n, Gen *g) {
    if (!n->g) return;
    engine_close(n);
    gen_close(g);
}

bool grpo_run_open(GrpoRun *g, Job *job, const GrpoOptions *o, Err *e) {
    const GrpoSpec *s = &((const GrpoTask *)job->spec.task)->spec;
    int64_t n = completions_of(&o->batches), held_out = o->held_out ? o->held_out->n : 0;
    int64_t most = MAX2(n, held_out), context = s->prompt_tokens + s->answer_tokens;
    *g = (GrpoRun){.o = *o, .job = job, .reward_first = NAN, .reward_last = NAN};
    g->before = g->after = (ScoreMean){.mean = NAN, .error = NAN};
    arena_init(&g->arena, "grpo");
    rollout_init(&g->rollout, n, context, s->answer_tokens);
    if (held_out) rollout_init(&g->held_out, held_out, context, s->answer_tokens);
    bool shares = job->spec.row_samples > 1;
    rollout_rows_init(&g->rows, &g->arena, most, shares);
    rollout_batch_init(&g->batch, &g->arena, job->spec.micro_batch, job->spec.seq, shares);
    g->logp = ARENA_NEW(&g->arena, float, job->spec.micro_batch * job->spec.seq);
    g->given = ARENA_NEW(&g->arena, double, most *MAX2(o->rewards.n, 1));
    double **doubles[] = {&g->reward, &g->advantage, &g->weight};
    int64_t **wholes[] = {&g->tokens, &g->member, &g->order, &g->which, &g->kept};
    for (int i = 0; i < COUNT_OF(doubles); i++) *doubles[i] = ARENA_NEW(&g->arena, double, most);
    for (int i = 0; i < COUNT_OF(wholes); i++) *wholes[i] = ARENA_NEW(&g->arena, int64_t, most);
    g->prompt_item = ARENA_NEW(&g->arena, int64_t, MAX2(o->items->n, most));
    g->scratch = ARENA_NEW(&g->arena, int64_t, MAX2(o->items->n, most));
    g->truncated = ARENA_NEW(&g->arena, bool, most);
    g->slice = ARENA_NEW(&g->arena, double, o->batches.spec.batch);
    int64_t rows = job->spec.micro_batch * job->spec.seq;
    if (s->exact) g->how = ARENA_NEW(&g->arena, DrawHow, rows), g->drawn = ARENA_NEW(&g->arena, int32_t, rows);
    if (!scoring_open(&g->scoring, &g->o.rewards, e)) return false;
    return !o->remote || answers_open_remote(&g->remote, o->remote, e);
}

void grpo_run_close(GrpoRun *g) {
    if (!g->job) return;
    GrpoRing *ring = grpo_ring(g->job);
    close_voice(&g->policy, &ring->policy);
    close_voice(&g->evaluator, &ring->evaluator);
    scoring_close(&g->scoring);
    remote_close(g->remote.remote);
    if (g->samples_open) samples_close(&g->samples);
    rollout_free(&g->rollout);
    rollout_free(&g->held_out);
    arena_free(&g->arena);
    *g = (GrpoRun){0};
}

/* ---- a micro-batch ---- */

static void put_rows(GrpoRun *g, Run *r, Tid to, const float *numbers) {
    if (to) exec_put(&r->ring->x, to, numbers, 0, g->batch.b.rows * g->batch.b.seq * 4);
}

static void put_prefix(GrpoRun *g, Run *r) {
    Tid to = grpo_ring(g->job)->prefix;
    if (to)
        exec_put(&r->ring->x, to, g->batch.prefix, 0,
                 g->batch.b.rows * g->batch.b.seq * 2 * (int64_t)sizeof(int32_t));
}

void grpo_put_rows(GrpoRun *g, Run *r) {
    step_put_batch(r, &g->batch.b, -1);
    put_prefix(g, r);
}

static void put_batch(GrpoRun *g, Run *r) {
    const GrpoRing *ring = grpo_ring(g->job);
    put_prefix(g, r);
    put_rows(g, r, ring->sampled, g->batch.sampled);
    put_rows(g, r, ring->old, g->batch.old);
    put_rows(g, r, ring->ref, g->batch.ref);
    put_rows(g, r, ring->advantage, g->batch.advantage);
    put_rows(g, r, ring->scored, g->batch.scored);
}

static void load(void *user, Run *r) { /* padding alone */
    GrpoRun *g = user;
    gen_load(&grpo_ring(g->job)->policy);
    Update u = {.step = r->step, .scaling = r->state.scaling};
    g->rows.rows = 0;
    rollout_batch_fill(&g->batch, &g->rollout, &g->rows, 0, NULL);
    put_batch(g, r);
    step_put_float(r, g->job->divisor, 1);
    step_put_micro(r, &u, &g->batch.b, 0);
}

/* Log-probabilities of every completion by a phase that is no training: the reference's, or the policy's own. */
static bool take_logps(GrpoRun *g, Run *r, int phase, Tid logp, RolloutLogp to, Err *e) {
    const Batch *b = &g->batch.b;
    for (int64_t i = 0; i < g->rollout.n; i++) g->member[i] = i;
    rollout_rows_pack(&g->rows, &g->rollout, g->member, g->rollout.n, b->seq);
    for (int64_t first = 0; first < g->rows.rows; first += b->rows) {
        if (stop_asked()) return false;
        rollout_batch_fill(&g->batch, &g->rollout, &g->rows, first, NULL);
        grpo_put_rows(g, r);
        exec_play(&r->ring->x, phase);
        if (!exec_sync(&r->ring->x, e)) return false;
        exec_get(&r->ring->x, logp, g->logp, 0, b->rows * b->seq * 4);
        rollout_take(&g->rollout, &g->batch, &g->rows, first, g->logp, to);
    }
    return true;
}

/* ---- a rollout ---- */

static bool is_judged(const GrpoRun *g) {
    return g->o.remote || grpo_ring(g->job)->evaluator.ring;
}

static bool judge(GrpoRun *g, Rollout *to, Err *e) {
    if (g->o.remote) return answers_judge_remote(&g->remote, to, e);
    if (!is_judged(g)) return true;
    GrpoRing *ring = grpo_ring(g->job);
    gen_load(&ring->evaluator);
    int64_t most = ((const GrpoTask *)g->job->spec.task)->spec.evaluator_tokens;
    bool ok = answers_judge(&g->evaluator, &g->o.evaluator, to, most, g->o.seed, e);
    gen_load(&ring->policy); /* the evaluator has taken its bytes */
    return ok;
}

/* Advantages of each generation batch on its own, and what is said of the rollout. */
static void take_advantages(GrpoRun *g) {
    const Batches *b = &g->o.batches;
    double mean = 0, std = 0, zero = 0;
    for (int64_t k = 0; k < b->generations; k++) {
        int64_t at = k * b->completions;
        AdvantageFacts f =
            advantage_make(g->advantage + at, g->reward + at, b->completions, b->spec.group, g->o.scale);
        mean += f.reward_mean, std += f.reward_std, zero += f.zero_std_share;
    }
    double n = (double)b->generations;
    g->facts.advantage = (AdvantageFacts){mean / n, std / n, zero / n};
    for (int k = 0; k < g->o.rewards.n; k++)
        advantage_function(&g->facts.function_mean[k], &g->facts.function_std[k], g->given, g->rollout.n,
                           g->o.rewards.n, k);
    for (int64_t i = 0; i < g->rollout.n; i++) {
        g->rollout.c[i].reward = g->reward[i];
        g->rollout.c[i].advantage = g->advantage[i];
    }
    report_completions(g);
}

static bool write_samples(GrpoRun *g, int64_t step, Err *e) {
    if (!g->samples_open) return true;
    SampleRow *row = MEM_NEW(SampleRow, g->rollout.n);
    for (int64_t i = 0; i < g->rollout.n; i++) {
        const Completion *c = &g->rollout.c[i];
        const Item *item = &g->o.items->item[c->item];
        row[i] = (SampleRow){.item = c->item,
                             .sample = c->sample,
                             .question = item->question,
                             .gold = item->gold,
                             .completion = str_text(&c->text),
                             .answer = is_judged(g) ? str_text(&c->answer) : NULL,
                             .rewards = c->given,
                             .why = str_text(&c->why),
                             .reward = c->reward,
                             .advantage = c->advantage,
                             .tokens = completion_tokens(c),
                             .truncated = c->truncated};
    }
    bool ok = samples_write(&g->samples, step, row, g->rollout.n, e);
    mem_free(row);
    return ok;
}

static bool make_rollout(GrpoRun *g, Run *r, int64_t number, int64_t step, Err *e) {
    const Batches *b = &g->o.batches;
    const GrpoRing *ring = grpo_ring(g->job);
    Rollout *to = &g->rollout;
    for (int64_t k = 0; k < b->generations; k++)
        batches_prompts(g->prompt_item + k * b->prompts, g->scratch, b, g->o.items->n, number * b->generations + k,
                        g->o.shuffle, g->o.seed);
    Ask ask = {.items = g->o.items, .item = g->prompt_item, .prompts = b->prompts * b->generations,
               .samples = (int)b->spec.group, .key = rng_fold(rng_fold(g->o.seed, 0x9090), (uint64_t)number)};
    begin_part(g);
    if (!answers_ask(&g->policy, &g->o.policy, to, &ask, e)) return false;
    to->number = number;
    g->facts.redrawn = g->facts.verifications = 0;
    if (ring->phase_verify >= 0 && !exact_settle(g, r, &ask, e)) return false;
    end_part(g, GRPO_ANSWERS);
    begin_part(g);
    if (!judge(g, to, e)) return false;
    end_part(g, GRPO_JUDGING);
    begin_part(g);
    if (!scoring_run(&g->scoring, g->given, to, g->o.items, is_judged(g), e)) return false;
    g->facts.unscored = advantage_rewards(g->reward, g->given, g->o.rewards.weight, to->n, g->o.rewards.n, NULL);
    take_advantages(g);
    end_part(g, GRPO_REWARDS);
    begin_part(g);
    if (ring->phase_reference >= 0 &&
        !take_logps(g, r, ring->phase_reference, ring->reference_logp, ROLLOUT_REF, e))
        return false;
    if (ring->phase_old >= 0 && !take_logps(g, r, ring->phase_old, ring->old_logp, ROLLOUT_OLD, e)) return false;
    end_part(g, GRPO_LOGPS);
    if (isnan(g->reward_first)) g->reward_first = g->facts.advantage.reward_mean;
    g->reward_last = g->facts.advantage.reward_mean;
    return write_samples(g, step + 1, e);
}

/* ---- an update ---- */

int64_t grpo_gather(GrpoRun *g, int64_t update) {
    const Batches *b = &g->o.batches;
    int64_t n = 0, batch = b->spec.batch, ordered = -1;
    for (int64_t i = 0; i < g->rollout.n; i++) {
        g->tokens[i] = completion_tokens(&g->rollout.c[i]);
        g->truncated[i] = g->rollout.c[i].truncated;
    }
    for (int64_t micro = 0; micro < b->spec.accum; micro++) {
        BatchPlace at = batches_place(b, update, micro);
        int64_t base = at.generation * b->completions, all = 0;
        if (ordered != at.generation)
            batches_order(g->order, b, g->rollout.number * b->generations + at.generation, g->o.seed);
        ordered = at.generation;
        for (int64_t i = 0; i < b->completions; i++) all += g->tokens[base + i];
        for (int64_t i = 0; i < batch; i++) g->member[n + i] = g->order[at.first + i];
        LossBatch loss = {.kind = g->o.loss, .mask_truncated = g->o.mask_truncated, .tokens = g->tokens + base,
                          .truncated = g->truncated + base, .generation_tokens = all, .member = g->member + n,
                          .n = batch, .accum = b->spec.accum, .max_completion = g->rollout.answer};
        double divisor = advantage_weights(g->slice, &loss);
        for (int64_t i = 0; i < batch; i++) {
            g->member[n + i] += base;
            g->weight[g->member[n + i]] = g->slice[i] / divisor;
        }
        n += batch;
    }
    return n;
}

static bool train_update(GrpoRun *g, Run *r, Update *u, int64_t update, Err *e) {
    const Batch *b = &g->batch.b;
    int64_t n = grpo_gather(g, update), micro = 0;
    rollout_rows_pack(&g->rows, &g->rollout, g->member, n, b->seq);
    begin_part(g);
    step_put_float(r, g->job->divisor, 1 / u->scaling.scale);
    for (int64_t first = 0; first < MAX2(g->rows.rows, 1); first += b->rows, micro++) {
        if (stop_asked()) return false;
        rollout_batch_fill(&g->batch, &g->rollout, &g->rows, first, g->weight);
        put_batch(g, r);
        step_put_micro(r, u, b, micro);
        exec_play(&r->ring->x, g->job->micro);
        u->tokens += b->tokens;
        u->scored += b->scored;
    }
    return true;
}

static void say_score(const char *when, const ScoreMean *s) {
    log_line("held-out items %s: mean reward %.4f +- %.4f (95 %%, %lld items)", when, s->mean, 1.96 * s->error,
             (long long)s->n);
}

static bool measure(GrpoRun *g, ScoreMean *to, const char *when, Err *e) {
    const Items *items = g->o.held_out;
    if (!items || !items->n) return true;
    Ask ask = {.items = items, .prompts = items->n, .samples = 1, .greedy = true};
    if (!answers_ask(&g->policy, &g->o.policy, &g->held_out, &ask, e) || !judge(g, &g->held_out, e) ||
        !scoring_run(&g->scoring, g->given, &g->held_out, items, is_judged(g), e))
        return false;
    advantage_rewards(g->reward, g->given, g->o.rewards.weight, items->n, g->o.rewards.n, NULL);
    *to = score_mean(g->reward, items->n);
    say_score(when, to);
    return true;
}

/* Whoever is asked to leave meanwhile keeps the last update. */
static bool measure_after(GrpoRun *g, Err *e) {
    Err why = {0};
    if (measure(g, &g->after, "after", &why)) return true;
    bool asked_to_leave = !why.code || stop_caused(&why);
    if (asked_to_leave)
        log_line("asked to leave: held-out items were not answered once more; `snug grpo-eval` does it");
    else
        *e = why;
    return asked_to_leave;
}

static bool get_ready(GrpoRun *g, Run *r, int64_t step, Err *e) {
    if (g->ready) return true;
    GrpoRing *ring = grpo_ring(g->job);
    if (!g->o.load_sides(g->o.load_user, e) || !open_voice(&g->policy, &ring->policy, &g->o.policy, e) ||
        (ring->evaluator.ring && !open_voice(&g->evaluator, &ring->evaluator, &g->o.evaluator, e)))
        return false;
    gen_load(&ring->policy);
    g->ready = true;
    if (g->o.folder) {
        SamplesSpec s = {.folder = g->o.folder,
                         .title = "GRPO samples",
                         .names = g->o.rewards.name,
                         .functions = g->o.rewards.n,
                         .every = g->o.sample_steps,
                         .updates = g->o.batches.updates,
                         .resumed_step = step};
        if (!samples_open(&g->samples, &s, e)) return false;
        g->samples_open = true;
    }
    if (g->measured) return true;
    g->measured = true;
    return measure(g, &g->before, "before", e);
}

/* Texts take memory and give it back; like a checkpoint's JSON they are no part of the played plan, and counted
 * apart. */
static void leave_out_texts(GrpoRun *g, Run *r, int64_t before) {
    int64_t requests = mem_stats().requests - before;
    r->requests += requests;
    if (r->progress.steps_here) g->text_requests += requests;
}

static bool queue(void *user, Run *r, Update *u, Err *e) {
    GrpoRun *g = user;
    int64_t updates = g->o.batches.updates, number = u->step / updates, before = mem_stats().requests;
    bool ok =
        get_ready(g, r, u->step, e) && (g->rollout.number == number || make_rollout(g, r, number, u->step, e));
    leave_out_texts(g, r, before);
    ok = ok && train_update(g, r, u, u->step % updates, e);
    if (!ok && stop_caused(e)) *e = (Err){0};
    return ok;
}

static bool logged(void *user, Run *r, const Update *u, Err *e) {
    GrpoRun *g = user;
    GrpoFacts *f = &g->facts;
    end_part(g, GRPO_TRAINING);
    g->updates++;
    const GrpoRing *ring = grpo_ring(g->job);
    double entropy;
    exec_get(&r->ring->x, ring->facts, f->policy, 0, sizeof f->policy);
    exec_get(&r->ring->x, ring->entropy, &entropy, 0, sizeof entropy);
    f->entropy = entropy / u->scaling.scale; /* the divisor of an update is 1 / scale */
    f->tokens_seen = r->state.tokens_seen;
    if (u->step % g->o.batches.updates == 0) /* later ones train on answers of earlier weights */
        g->apart_most = fmax(g->apart_most, f->policy[POLICY_MOST_APART]);
    int64_t before = mem_stats().requests;
    if (r->step == r->o.total_steps && !measure_after(g, e)) return false;
    leave_out_texts(g, r, before);
    return (r->step % r->o.log_steps && r->step != r->o.total_steps) || report_update(g, r, e);
}

/* ---- checkpoints ---- */

static json_t *score_json(const ScoreMean *s) {
    return isnan(s->mean) ? json_null() : json_pack("{s:f, s:f, s:I}", "mean", s->mean, "error", s->error, "n",
                                                    (json_int_t)s->n);
}

/* What the metrics say of a rollout, which the rest of its updates says too. */
static json_t *counts_json(const GrpoFacts *f) {
    return JSON_COUNTS({"unscored", f->unscored}, {"redrawn", f->redrawn}, {"verifications", f->verifications});
}

static bool restore_rollout(GrpoRun *g, const json_t *rollout, const json_t *counts, Err *e) {
    if (!rollout_from_json(&g->rollout, rollout, e)) return false;
    int functions = g->o.rewards.n;
    for (int64_t i = 0; i < g->rollout.n; i++) {
        g->reward[i] = g->rollout.c[i].reward;
        for (int k = 0; k < functions; k++) g->given[i * functions + k] = g->rollout.c[i].given[k];
    }
    take_advantages(g);
    g->facts.unscored = json_integer_value(json_object_get(counts, "unscored"));
    g->facts.redrawn = json_integer_value(json_object_get(counts, "redrawn"));
    g->facts.verifications = json_integer_value(json_object_get(counts, "verifications"));
    return true;
}

static bool save(void *user, const char *folder, Err *e) {
    const GrpoRun *g = user;
    json_t *j = json_pack("{s:o, s:o, s:o, s:f}", "before", score_json(&g->before), "reward_first",
                          json_number(g->reward_first), "reward_last", json_number(g->reward_last), "apart_most",
                          g->apart_most);
    if (g->o.batches.updates > 1 && g->rollout.number >= 0) {
        json_object_set_new(j, "rollout", rollout_json(&g->rollout));
        json_object_set_new(j, "counts", counts_json(&g->facts));
    }
    bool ok = jsonfile_write(file_in(folder, "grpo_state.json").s, j, e);
    json_decref(j);
    return ok;
}

static bool restore(void *user, Run *r, const char *folder, Err *e) {
    GrpoRun *g = user;
    FilePath path = file_in(folder, "grpo_state.json");
    json_t *j;
    if (!jsonfile_read(&j, path.s, 0, e)) return false;
    const json_t *before = json_object_get(j, "before"), *first = json_object_get(j, "reward_first"),
                 *last = json_object_get(j, "reward_last"), *rollout = json_object_get(j, "rollout");
    if (json_is_object(before))
        g->before = (ScoreMean){json_number_value(json_object_get(before, "mean")),
                                json_number_value(json_object_get(before, "error")),
                                json_integer_value(json_object_get(before, "n"))};
    if (json_is_number(first)) g->reward_first = json_number_value(first);
    if (json_is_number(last)) g->reward_last = json_number_value(last);
    g->apart_most = json_number_value(json_object_get(j, "apart_most"));
    g->measured = true;
    bool ok = !rollout || r->step % g->o.batches.updates == 0 ||
              restore_rollout(g, rollout, json_object_get(j, "counts"), e) || fail_within(e, "%s", path.s);
    json_decref(j);
    return ok;
}

RunSource grpo_source(GrpoRun *g) {
    int64_t per_epoch = batches_rollouts(&g->o.batches, g->o.items->n, 1) * g->o.batches.updates;
    return (RunSource){.user = g, .rows = MAX2(per_epoch, 1), .queue = queue, .load = load, .logged = logged,
                       .save = save, .restore = restore};
}
