/* cmd_grpo.c - snug grpo: from options to items, rewards and voices; the rest is a training session. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/grpo_setup.h"
#include "cli/session.h"
#include "grpo/run.h"
#include "store/identity.h"
#include "weights/weights.h"

typedef struct GrpoSession {
    GrpoSetup setup;
    GrpoOptions o;
    StopIds stop, evaluator_stop;
    RewardSetup rewards;
    RemoteSpec remote;
    char of[96]; /* "64 answers to 8 prompts" */
    GrpoRun run;
} GrpoSession;

/* ---- voices ---- */

static bool set_policy(GrpoSession *g, const Session *s, Err *e) {
    const char *folder = s->base.model.has_folder ? s->base.model.folder : opt_text(s->base.o, OPT_MODEL);
    if (!s->base.words.tokenizer)
        return fail(e, ERR_FAIL, "%s: has no tokenizer.json; give --tokenizer DIR", folder);
    if (!gen_setup_stop_ids(&g->stop, &s->base.model, &s->base.words, e)) return false;
    g->o.policy = grpo_setup_voice(&s->base.words, &g->stop, gen_setup_sampling(s->base.o, 1));
    if (!(g->o.policy.sampling.temperature > 0))
        return fail(e, ERR_USAGE, "--temperature 0: all answers of a group would be the same; give 1, say");
    return true;
}

static bool set_evaluator(GrpoSession *g, const Session *s, Err *e) {
    const Options *o = s->base.o;
    const ModelFiles *m = &g->setup.evaluator;
    if (opt_given(o, OPT_EVALUATOR_URL)) {
        g->o.remote = &g->remote;
        return grpo_setup_remote(&g->remote, o, g->setup.spec.evaluator_tokens, e);
    }
    if (!g->setup.spec.has_evaluator) return true;
    if (!m->has_folder && !g->setup.spec.evaluator.random_init)
        return fail(e, ERR_FAIL, "--evaluator %s: is a preset without weights; give a folder",
                    opt_text(o, OPT_EVALUATOR));
    /* an evaluator without words of its own has the policy's: both are drawn, or one is the other */
    const Words *w = g->setup.evaluator_words.tokenizer ? &g->setup.evaluator_words : &s->base.words;
    if (!gen_setup_stop_ids(&g->evaluator_stop, m, w, e)) return false;
    g->o.evaluator = grpo_setup_voice(w, &g->evaluator_stop, grpo_setup_evaluator_sampling(o));
    return true;
}

/* ---- the session's steps ---- */

static bool open_items(Session *s, Err *e) {
    GrpoSession *g = s->own = MEM_NEW(GrpoSession, 1);
    const Options *o = s->base.o;
    const Items *items, *held_out;
    if (!grpo_setup(&g->setup, &s->base.spec, &s->base.global_batch, o, &s->base.model, e) ||
        !grpo_setup_read(&g->setup, o, &s->base.words, e))
        return false;
    items = g->o.items = &g->setup.items;
    held_out = g->o.held_out = g->setup.held_out.n ? &g->setup.held_out : NULL;
    g->o.batches = g->setup.batches;
    g->o.shuffle = opt_flag(o, OPT_SHUFFLE);
    g->o.seed = (uint64_t)opt_int(o, OPT_SEED);
    g->o.mask_truncated = opt_flag(o, OPT_MASK_TRUNCATED);
    g->o.sample_steps = opt_int(o, OPT_SAMPLE_STEPS);
    g->o.folder = opt_text(o, OPT_OUT);
    if (!loss_kind_find(&g->o.loss, opt_text(o, OPT_LOSS_TYPE), e) ||
        !reward_scale_find(&g->o.scale, opt_text(o, OPT_SCALE_REWARDS), e))
        return false;
    if (!grpo_setup_rewards(&g->rewards, o, e)) return false;
    g->o.rewards = g->rewards.set;
    if (!set_policy(g, s, e) || !set_evaluator(g, s, e)) return false;
    log_line("%s items%s%s", units_count(items->n).s, held_out ? ", held out: " : "",
             held_out ? units_count(held_out->n).s : "");
    return true;
}

static bool shape(Session *s, Err *e) {
    GrpoSession *g = s->own;
    JobSetup *b = &s->base;
    if (!grpo_setup_shape(&g->setup, &b->spec, b->global_batch, b->o, b->machine.kind, e)) return false;
    grpo_setup_layout(&g->setup, &b->spec, b->o, &b->machine, &b->words, b->limits);
    bool shares = g->setup.spec.share_prompts;
    double with = g->setup.shared_seconds, without = g->setup.repeated_seconds;
    if (with > 0 && without > 0)
        log_line("prompts are %s: predicted %s an update, %s with %s prompts", shares ? "shared" : "repeated",
                 units_seconds(shares ? with : without).s, units_seconds(shares ? without : with).s,
                 shares ? "repeated" : "shared");
    return true;
}

static void count(Session *s) {
    const GrpoSession *g = s->own;
    s->base.host = grpo_setup_host(&g->setup, &s->base.spec, &s->base.words);
}

static bool load_side(Session *s, const char *name, const ModelFiles *files, const ModelSpec *m, Err *e) {
    return m->random_init || weights_load(&s->base.ring.x, name, ROLE_WEIGHT, files->folder, e);
}

/* The models beside the policy: read when the ring is open, before anything is answered. */
static bool load_sides(void *session, Err *e) {
    Session *s = session;
    const GrpoSession *g = s->own;
    const GrpoSpec *spec = &g->setup.spec;
    return (spec->reference_kind != REFERENCE_MODEL ||
            load_side(s, GRPO_REFERENCE, &g->setup.reference, &spec->reference, e)) &&
           (!spec->has_evaluator || load_side(s, GRPO_EVALUATOR, &g->setup.evaluator, &spec->evaluator, e));
}

static bool start(Session *s, Err *e) {
    GrpoSession *g = s->own;
    grpo_run_close(&g->run);
    g->o.load_sides = load_sides;
    g->o.load_user = s;
    if (!grpo_run_open(&g->run, &s->base.job, &g->o, e)) return false;
    s->source = grpo_source(&g->run);
    return true;
}

static int64_t updates(const Session *s, int64_t *per_epoch, const char **of) {
    GrpoSession *g = s->own;
    const Batches *b = &g->o.batches;
    snprintf(g->of, sizeof g->of, "%s answers to %s prompts", units_count(b->spec.batch * b->spec.accum).s,
             units_count(b->spec.batch * b->spec.accum / b->spec.group).s);
    *of = g->of;
    return grpo_setup_updates(&g->setup, s->base.o, per_epoch);
}

/* Which weights, in which format: where they are kept changes nothing. */
static void set_side(json_t *to, const char *name, const ModelFiles *files, const ModelSpec *m) {
    uint64_t id = 0;
    Err unreadable = {0};
    if (files->has_folder && !m->random_init) identity_of(&id, files->folder, &unreadable);
    json_object_set_new(to, name, json_sprintf("%016" PRIx64 "%s%s", id, m->quantised ? " in " : "",
                                               m->quantised ? format_name(m->stored) : ""));
}

static void settings(const Session *s, json_t *to) {
    const GrpoSetup *g = &((const GrpoSession *)s->own)->setup;
    const GrpoSpec *spec = &g->spec;
    bool other = strncmp(opt_text(s->base.o, OPT_REFERENCE), "same", 4) || spec->reference.quantised;
    json_set_hex(to, "data", g->items.hash);
    if (spec->has_evaluator) set_side(to, "evaluator", &g->evaluator, &spec->evaluator);
    if (spec->reference_kind == REFERENCE_MODEL && other) set_side(to, "reference", &g->reference, &spec->reference);
}

/* Seconds of an update, as planned: rewards are no work of the device. */
static void predict_parts(double seconds[GRPO_PARTS], const Session *s) {
    const Job *j = &s->base.job;
    for (int i = 0; i < GRPO_PARTS; i++) seconds[i] = 0;
    for (int i = 0; i < j->ring->n_plays; i++)
        seconds[grpo_part_of(j, j->ring->plays[i].phase)] +=
            j->ring->plays[i].times * plan_step_seconds(&j->ring->p, &s->base.machine, j->ring->plays[i].phase);
}

static void say_parts(const Session *s) {
    const GrpoRun *g = &((const GrpoSession *)s->own)->run;
    double predicted[GRPO_PARTS];
    Str text = {0};
    if (!g->updates) return;
    predict_parts(predicted, s);
    str_addf(&text, "an update      predicted   measured   (predicted: for answers of %lld tokens)\n",
             (long long)grpo_expected_tokens(&((const GrpoSession *)s->own)->setup.spec));
    for (int i = 0; i < GRPO_PARTS; i++) {
        double measured = g->seconds[i] / (double)g->updates;
        if (predicted[i] > 0)
            str_addf(&text, "  %-12s %9.3f s %8.3f s\n", grpo_part_names[i], predicted[i], measured);
        else if (measured > 1e-3)
            str_addf(&text, "  %-12s %9s   %8.3f s\n", grpo_part_names[i], "-", measured);
    }
    log_str(&text);
}

static void result(const Session *s, json_t *to) {
    const GrpoRun *g = &((const GrpoSession *)s->own)->run;
    json_t *seconds = json_object(), *planned = json_object();
    double predicted[GRPO_PARTS];
    predict_parts(predicted, s);
    JSON_SET_NUMBERS(to, {"reward_first", g->reward_first}, {"reward_last", g->reward_last},
                     {"eval_before", g->before.mean}, {"eval_before_error", g->before.error},
                     {"eval_after", g->after.mean}, {"eval_after_error", g->after.error},
                     {"logp_difference_max", g->apart_most});
    JSON_SET_COUNTS(to, {"answers_a_row", MAX2(s->base.spec.row_samples, 1)},
                    {"text_allocations_after_first_step", g->text_requests});
    for (int i = 0; i < GRPO_PARTS; i++) json_set_number(seconds, grpo_part_names[i], g->seconds[i]);
    json_object_set_new(to, "seconds", seconds);
    for (int i = 0; i < GRPO_PARTS; i++) json_set_number(planned, grpo_part_names[i], predicted[i]);
    json_object_set_new(to, "predicted_seconds_per_update", planned);
}

static void close_items(Session *s) {
    GrpoSession *g = s->own;
    if (!g) return;
    grpo_run_close(&g->run);
    grpo_setup_free(&g->setup);
    mem_free(g->rewards.command);
    mem_free(g);
    s->own = NULL;
}

bool cmd_grpo(const Options *o, Err *e) {
    static const SessionTask task = {.open = open_items,
                                     .shape = shape,
                                     .count = count,
                                     .start = start,
                                     .updates = updates,
                                     .settings = settings,
                                     .say = say_parts,
                                     .result = result,
                                     .close = close_items};
    return session_run(o, &task, e);
}
