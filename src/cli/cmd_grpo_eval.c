/* cmd_grpo_eval.c - snug grpo-eval: a tuned policy beside the one it began as, on the same items, by the same
 * evaluator and rewards. The models take turns in memory: base, tuned, evaluator. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/grpo_setup.h"
#include "cli/lines.h"
#include "cli/show.h"
#include "cli/sub_command.h"
#include "grpo/advantage.h"
#include "grpo/clean.h"
#include "obs/sensors.h"

enum { BASE, TUNED, POLICIES };
enum { GREEDY, DRAWN, KINDS }; /* one answer to each item, and --best-of of them */
static const char *const policy_names[POLICIES] = {"base", "tuned"};

typedef struct Policy {
    const char *model;
    const char *adapter; /* "": none */
    Rollout answers[KINDS];
    double *reward[KINDS]; /* by completion */
    double *best;          /* by item: of the drawn ones */
} Policy;

typedef struct Comparison {
    const Options *o;
    ModelFiles base;
    Items items;
    RewardSetup rewards;
    Scoring scoring;
    RemoteSpec remote_spec;
    RemoteJudge remote;
    bool judged;
    int64_t best_of, prompt_tokens, answer_tokens, evaluator_tokens;
    char tuned[1100];
    Policy policy[POLICIES];
    double *given, *difference; /* scratch */
    Arena arena;
    RingMost most; /* of the models */
    double began;
} Comparison;

/* ---- what is compared ---- */

/* DIR may be a model, an adapter, or a run, which holds one of them. */
static bool find_tuned(Comparison *c, Err *e) {
    const char *dir = opt_text(c->o, OPT_TUNED);
    static const char *const places[] = {"", "/adapter", "/model"};
    Policy *base = &c->policy[BASE], *tuned = &c->policy[TUNED];
    base->model = tuned->model = c->base.has_folder ? c->base.folder : opt_text(c->o, OPT_MODEL);
    base->adapter = tuned->adapter = "";
    for (int i = 0; i < COUNT_OF(places); i++) {
        snprintf(c->tuned, sizeof c->tuned, "%s%s", dir, places[i]);
        if (file_exists(file_in(c->tuned, "adapter_config.json").s)) tuned->adapter = c->tuned;
        else if (file_exists(file_in(c->tuned, "config.json").s)) tuned->model = c->tuned;
        else continue;
        return true;
    }
    return fail(e, ERR_FAIL,
                "--tuned %s: holds neither a model (config.json) nor an adapter (adapter_config.json)", dir);
}

static bool read_items(Comparison *c, Err *e) {
    Words words;
    if (!setup_words(&words, c->o, &c->base, e)) return false;
    bool ok = grpo_setup_items(&c->items, c->o, OPT_DATA, &words, e);
    setup_words_free(&words);
    return ok;
}

static bool prepare(Comparison *c, Err *e) {
    const Options *o = c->o;
    c->best_of = opt_int(o, OPT_BEST_OF);
    c->prompt_tokens = opt_int(o, OPT_PROMPT_TOKENS);
    c->answer_tokens = opt_int(o, OPT_MAX_TOKENS);
    c->evaluator_tokens = opt_given(o, OPT_EVALUATOR_TOKENS) ? opt_int(o, OPT_EVALUATOR_TOKENS) : c->answer_tokens;
    if (c->best_of && gen_setup_sampling(o, 1).temperature == 0)
        return fail(e, ERR_USAGE,
                    "--temperature 0: the --best-of answers to a prompt would be the same; give 1, say");
    if (!setup_model(&c->base, o, e) || !find_tuned(c, e) || !read_items(c, e) ||
        !grpo_setup_rewards(&c->rewards, o, e))
        return false;
    c->judged = opt_given(o, OPT_EVALUATOR) || opt_given(o, OPT_EVALUATOR_URL);
    if (!scoring_open(&c->scoring, &c->rewards.set, e)) return false;
    return !opt_given(o, OPT_EVALUATOR_URL) || (grpo_setup_remote(&c->remote_spec, o, c->evaluator_tokens, e) &&
                                                answers_open_remote(&c->remote, &c->remote_spec, e));
}

static int64_t answers_of(const Comparison *c, int kind) {
    return kind == GREEDY ? c->items.n : c->items.n * c->best_of;
}

static int64_t host_bytes(const Comparison *c) {
    int64_t context = c->prompt_tokens + c->answer_tokens, text = 8 * (c->answer_tokens + c->evaluator_tokens),
            bytes = 0;
    for (int k = 0; k < KINDS; k++) {
        int64_t n = answers_of(c, k);
        bytes += POLICIES * (rollout_bytes(n, context, c->answer_tokens) + n * (text + 8)) + n * 8 * REWARDS_MOST;
    }
    return bytes + 4 * 8 * c->items.n + c->items.bytes + (c->remote.remote ? remote_bytes(&c->remote_spec) : 0);
}

static void make_room(Comparison *c) {
    int64_t context = c->prompt_tokens + c->answer_tokens,
            most = MAX2(answers_of(c, GREEDY), answers_of(c, DRAWN));
    arena_init(&c->arena, "comparison");
    for (int p = 0; p < POLICIES; p++) {
        Policy *policy = &c->policy[p];
        for (int k = 0; k < KINDS; k++) {
            rollout_init(&policy->answers[k], answers_of(c, k), context, c->answer_tokens);
            policy->reward[k] = ARENA_NEW(&c->arena, double, MAX2(answers_of(c, k), 1));
        }
        policy->best = ARENA_NEW(&c->arena, double, c->items.n);
    }
    c->given = ARENA_NEW(&c->arena, double, most * c->rewards.set.n);
    c->difference = ARENA_NEW(&c->arena, double, c->items.n);
}

/* ---- models, one after another ---- */

typedef struct Speaker {
    SubCommand part;
    GenSetup setup;
    GrpoGenerator voice;
    AnswersShown shown;
} Speaker;

/* side: how an evaluator is kept; NULL: as the options say. */
static bool open_speaker(Speaker *s, Comparison *c, const char *model, const char *adapter, const ModelSpec *side,
                         int64_t context, Err *e) {
    const char *more[] = {"--prompt", "-", "--adapter", adapter};
    if (!sub_command_begin(&s->part, c->o, CMD_GENERATE, model, more, adapter[0] ? 4 : 2, e) ||
        !gen_setup_begin(&s->setup, &s->part.o, e))
        return false;
    GenSpec *spec = &s->setup.spec;
    if (!s->setup.words.tokenizer)
        return fail(e, ERR_FAIL, "%s: has no tokenizer.json; give --tokenizer DIR", model);
    if (side && side->quantised) spec->m.quantised = true, spec->m.stored = side->stored;
    if (side && side->offload.layers[OFFLOAD_WEIGHTS]) spec->m.offload = side->offload, spec->may_offload = false;
    bool given = opt_given(c->o, OPT_SLOTS);
    int64_t most = MAX2(answers_of(c, GREEDY), answers_of(c, DRAWN));
    spec->slots = given ? opt_int(c->o, OPT_SLOTS) : gen_setup_slots(&s->setup, most);
    spec->context = context;
    if (!gen_setup_start(&s->setup, &(GenHost){.requests = host_bytes(c)}, !given, context, e)) return false;
    Sampling how = side ? grpo_setup_evaluator_sampling(c->o) : gen_setup_sampling(c->o, 1);
    s->voice = grpo_setup_voice(&s->setup.words, &s->setup.stop, how);
    s->voice.shown = &s->shown;
    return true;
}

static void begin_showing(Speaker *s, const char *phase, const char *what, int64_t total) {
    gen_setup_tell(&s->setup, phase, "answer", total);
    work_begin(&s->shown.work, WORK_COUNT, total, "%s", what);
}

static void close_speaker(Speaker *s, Comparison *c) {
    if (s->setup.gen) peak_note_ring(&c->most, &s->setup.ring);
    gen_setup_end(&s->setup);
    options_free(&s->part.o);
}

static bool ask_policy(Speaker *s, Comparison *c, Policy *p, Err *e) {
    uint64_t seed = (uint64_t)opt_int(c->o, OPT_SEED);
    if (!open_speaker(s, c, p->model, p->adapter, NULL, c->prompt_tokens + c->answer_tokens, e)) return false;
    if (c->items.item[0].messages && !s->voice.chat)
        return fail(e, ERR_FAIL, "%s: has no chat template, and --model has one", p->model);
    Ask greedy = {.items = &c->items, .prompts = c->items.n, .samples = 1, .greedy = true};
    Ask drawn = {
        .items = &c->items, .prompts = c->items.n, .samples = (int)c->best_of, .key = rng_fold(seed, 0xbe57)};
    begin_showing(s, "answering", "answers", answers_of(c, GREEDY) + answers_of(c, DRAWN));
    bool ok = answers_ask(&s->setup.engine, &s->voice, &p->answers[GREEDY], &greedy, e) &&
              (!c->best_of || answers_ask(&s->setup.engine, &s->voice, &p->answers[DRAWN], &drawn, e));
    work_end(&s->shown.work);
    return ok;
}

static bool ask_evaluator(Speaker *s, Comparison *c, Err *e) {
    ModelSpec side;
    ModelFiles files;
    bool may_move;
    if (!grpo_setup_side(&side, &files, &may_move, "--evaluator", opt_text(c->o, OPT_EVALUATOR), &c->base, e))
        return false;
    if (!files.has_folder)
        return fail(e, ERR_FAIL, "--evaluator %s: is a preset without weights; give a folder",
                    opt_text(c->o, OPT_EVALUATOR));
    int64_t context = c->prompt_tokens + c->answer_tokens + c->evaluator_tokens;
    if (!open_speaker(s, c, files.folder, "", &side, context, e)) return false;
    bool ok = true;
    begin_showing(s, "evaluating", "answers judged", POLICIES * (answers_of(c, GREEDY) + answers_of(c, DRAWN)));
    for (int i = 0; ok && i < POLICIES * KINDS; i++)
        ok = answers_judge(&s->setup.engine, &s->voice, &c->policy[i / KINDS].answers[i % KINDS],
                           c->evaluator_tokens, (uint64_t)opt_int(c->o, OPT_SEED), e);
    work_end(&s->shown.work);
    return ok;
}

static bool answer_all(Comparison *c, Err *e) {
    bool ok = true;
    for (int turn = 0; ok && turn <= POLICIES; turn++) {
        bool policy = turn < POLICIES;
        if (!policy && !opt_given(c->o, OPT_EVALUATOR)) break;
        Speaker *s = MEM_NEW(Speaker, 1);
        log_line("%s:", policy ? policy_names[turn] : "evaluator");
        ok = policy ? ask_policy(s, c, &c->policy[turn], e) : ask_evaluator(s, c, e);
        close_speaker(s, c);
        mem_free(s);
    }
    for (int i = 0; ok && c->remote.remote && i < POLICIES * KINDS; i++)
        ok = answers_judge_remote(&c->remote, &c->policy[i / KINDS].answers[i % KINDS], e);
    return ok;
}

/* ---- rewards ---- */

static bool score_policy(Comparison *c, Policy *p, Err *e) {
    const RewardSet *set = &c->rewards.set;
    for (int k = 0; k < KINDS; k++) {
        Rollout *r = &p->answers[k];
        if (!scoring_run(&c->scoring, c->given, r, &c->items, c->judged, e)) return false;
        advantage_rewards(p->reward[k], c->given, set->weight, r->n, set->n, NULL);
    }
    for (int64_t i = 0; i < c->items.n; i++) {
        p->best[i] = -INFINITY;
        for (int64_t s = 0; s < c->best_of; s++)
            p->best[i] = fmax(p->best[i], p->reward[DRAWN][i * c->best_of + s]);
    }
    return true;
}

static json_t *mean_json(ScoreMean m) {
    return json_pack("{s:f, s:o, s:o, s:o}", "mean", m.mean, "error",
                     json_number(m.error), "low", json_number(m.mean - 1.96 * m.error), "high",
                     json_number(m.mean + 1.96 * m.error));
}

static void say_mean(const char *what, ScoreMean m) {
    log_line("  %-22s %8.4f +- %.4f", what, m.mean, isfinite(m.error) ? 1.96 * m.error : 0);
}

/* base, tuned, and how far they are apart, item by item. */
static json_t *compare(const Comparison *c, const char *what, const double *base, const double *tuned) {
    int64_t better = 0, worse = 0;
    for (int64_t i = 0; i < c->items.n; i++) {
        c->difference[i] = tuned[i] - base[i];
        better += c->difference[i] > 0;
        worse += c->difference[i] < 0;
    }
    ScoreMean b = score_mean(base, c->items.n), t = score_mean(tuned, c->items.n),
              d = score_mean(c->difference, c->items.n);
    log_line("%s, mean reward of %s items (95 %%):", what, units_count(c->items.n).s);
    say_mean("base", b);
    say_mean("tuned", t);
    say_mean("difference, paired", d);
    log_line("  better on %s items, worse on %s", units_count(better).s, units_count(worse).s);
    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "base", mean_json(b), "tuned", mean_json(t), "difference",
                     mean_json(d), "better", (json_int_t)better, "worse", (json_int_t)worse);
}

/* ---- what is written ---- */

static json_t *answer_json(const Comparison *c, const Completion *a, double reward) {
    json_t *j = json_pack("{s:o, s:f}", "completion", clean_json(str_text(&a->text)), "reward", reward);
    if (c->judged) json_object_set_new(j, "answer", clean_json(str_text(&a->answer)));
    if (a->why.len) json_object_set_new(j, "why", clean_json(str_text(&a->why)));
    return j;
}

static json_t *policy_json(const Comparison *c, const Policy *p, int64_t i) {
    json_t *j = answer_json(c, &p->answers[GREEDY].c[i], p->reward[GREEDY][i]);
    for (int64_t s = i * c->best_of; s < (i + 1) * c->best_of; s++)
        if (p->reward[DRAWN][s] == p->best[i]) {
            json_object_set_new(j, "best", answer_json(c, &p->answers[DRAWN].c[s], p->best[i]));
            break;
        }
    return j;
}

static bool write_lines(const Comparison *c, Err *e) {
    const char *out = opt_text(c->o, OPT_OUT);
    Lines lines;
    if (!out) return true;
    if (!lines_begin(&lines, out, opt_flag(c->o, OPT_OVERWRITE), e)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < c->items.n; i++) {
        json_t *row = json_pack("{s:I, s:o, s:o}", "item", (json_int_t)i, "question",
                                clean_json(c->items.item[i].question), "gold", clean_json(c->items.item[i].gold));
        for (int p = 0; p < POLICIES; p++)
            json_object_set_new(row, policy_names[p], policy_json(c, &c->policy[p], i));
        ok = lines_json(&lines, row, e);
    }
    return lines_end(&lines, ok, e);
}

static bool report(Comparison *c, Err *e) {
    const Policy *b = &c->policy[BASE], *t = &c->policy[TUNED];
    json_t *j = compare(c, "greedy", b->reward[GREEDY], t->reward[GREEDY]);
    json_object_set_new(j, "items", json_integer(c->items.n));
    if (c->best_of) {
        char what[64];
        snprintf(what, sizeof what, "best of %lld", (long long)c->best_of);
        json_object_set_new(j, "best_of", json_integer(c->best_of));
        json_object_set_new(j, "best", compare(c, what, b->best, t->best));
    }
    json_object_set_new(j, "seconds", json_real(sensors_seconds() - c->began));
    Peak peak = peak_add_most(j, &c->most);
    bool ok = write_lines(c, e);
    if (ok && opt_flag(c->o, OPT_JSON)) show_print_json(j);
    else json_decref(j);
    return ok && peak_settle(&peak, c->o, e);
}

static bool run(Comparison *c, Err *e) {
    const char *out = opt_text(c->o, OPT_OUT);
    if (out && !lines_may_write(out, opt_flag(c->o, OPT_OVERWRITE), e)) return false;
    if (!prepare(c, e)) return false;
    make_room(c);
    bool ok = answer_all(c, e);
    for (int p = 0; ok && p < POLICIES; p++) ok = score_policy(c, &c->policy[p], e);
    if (!ok && !e->code) stop_check(e); /* the process was asked to leave */
    return ok && report(c, e);
}

bool cmd_grpo_eval(const Options *o, Err *e) {
    Comparison *c = MEM_NEW(Comparison, 1);
    c->o = o;
    c->began = sensors_seconds();
    bool ok = run(c, e);
    for (int i = 0; i < POLICIES * KINDS; i++) rollout_free(&c->policy[i / KINDS].answers[i % KINDS]);
    scoring_close(&c->scoring);
    remote_close(c->remote.remote);
    items_free(&c->items);
    mem_free(c->rewards.command);
    arena_free(&c->arena);
    mem_free(c);
    return ok;
}
