/* reason_run.c - how an ask becomes a request of the engine, and an answer a reply. */
#include "cli/reason_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "obs/sensors.h"

enum { LEAST_ROOM = 16, SLACK = 32 }; /* tokens: an answer that makes sense; what splitting a text anew may add */

/* ---- prompts ---- */

static bool encode(const ReasonRun *r, TokenIds *out, const char *text, Err *e) {
    const GenSetup *n = &r->setup;
    bool chat = opt_is(r->o, OPT_TEMPLATE, "chat") || (opt_is(r->o, OPT_TEMPLATE, "auto") && n->words.chat);
    out->n = 0;
    if (!chat) { /* a text to go on with */
        Str plain = {0};
        str_addf(&plain, "%s\n\n", text);
        bool ok = gen_setup_encode_text(n, out, str_text(&plain), plain.len, e);
        str_free(&plain);
        return ok;
    }
    return gen_setup_encode_turn(n, out, text, (int64_t)strlen(text), e);
}

static bool prompt_tokens(ReasonRun *r, int64_t *n, Str *text, Err *e) { /* empties text */
    TokenIds ids = {0};
    bool ok = encode(r, &ids, str_text(text), e);
    *n = ids.n;
    r->planning_bytes = MAX2(r->planning_bytes, tokenizer_encoding_bytes(&ids, text->len));
    token_ids_free(&ids);
    str_clear(text);
    return ok;
}

/* The longest solving prompt, and whose it is. */
static bool longest_problem(ReasonRun *r, const Problems *all, int64_t *tokens, const char **problem, Str *text,
                            Err *e) {
    *tokens = 0;
    *problem = "";
    for (int64_t i = 0; i < all->n; i++) {
        int64_t n;
        prompt_solve(text, all->item[i].text);
        if (!prompt_tokens(r, &n, text, e)) return false;
        if (n > *tokens) *problem = all->item[i].text;
        *tokens = MAX2(*tokens, n);
    }
    return true;
}

static bool context_needed(ReasonRun *r, const Problems *all, int64_t *need, Str *text, Err *e) {
    const PipelineSpec *s = &r->pipeline.spec;
    int64_t solve, judge, improve, answer = s->solve.max_tokens, verdict = s->judge.max_tokens;
    const char *problem;
    Judgement worst = {0};
    Str feedback = {0};
    if (!longest_problem(r, all, &solve, &problem, text, e)) return false;
    prompt_judge(text, &s->rubric, problem, "");
    if (!prompt_tokens(r, &judge, text, e)) return false;
    feedback_make(&feedback, &s->rubric, &worst, "-");
    prompt_improve(text, problem, "", str_text(&feedback));
    str_free(&feedback);
    if (!prompt_tokens(r, &improve, text, e)) return false;
    *need = MAX2(solve + answer, judge + answer + verdict);
    if (s->rounds) *need = MAX2(*need, improve + answer + 2 * verdict + answer);
    *need += SLACK;
    return true;
}

bool reason_plan_context(ReasonRun *r, const Problems *all, Err *e) {
    int64_t need = 0, known = r->setup.model.config.max_positions;
    Str text = {0};
    bool ok = opt_given(r->o, OPT_CONTEXT) || context_needed(r, all, &need, &text, e);
    str_free(&text);
    r->planning_bytes += problems_bytes(all);
    if (opt_given(r->o, OPT_CONTEXT))
        need = opt_int(r->o, OPT_CONTEXT);
    else if (known)
        need = MIN2(need, known);
    r->setup.spec.context = MAX2(2, need);
    return ok;
}

/* ---- asks and answers ---- */

static void show_progress(ReasonRun *r, int64_t problem) {
    const ProgressFacts none = {(double)NAN, (double)NAN, (double)NAN, 0};
    double now = sensors_seconds();
    r->setup.status.step = r->pipeline.n_done;
    if (r->pipeline.track[problem].done) { /* with the tokens of answers that have not ended yet */
        int64_t tokens = r->setup.engine.counts.new_tokens;
        progress_step(&r->progress, tokens - r->tokens_shown, 0, 0, now);
        r->tokens_shown = tokens;
    }
    int64_t every = MAX2(1, r->pipeline.n / 20);
    progress_show(&r->progress, &none, r->pipeline.track[problem].done && r->progress.done_steps % every == 0);
}

static void end_problem(ReasonRun *r, int64_t problem, const char *note) {
    pipeline_end(&r->pipeline, problem, note);
    show_progress(r, problem);
}

static void end_too_long(ReasonRun *r, int64_t tokens) {
    char note[300];
    snprintf(note, sizeof note,
             "ended at round %d: the prompt to %s is %lld tokens long, and a context of %lld leaves no room for an "
             "answer (--context)",
             r->ask.round,
             r->ask.role == ASK_SOLVE     ? "solve"
             : r->ask.role == ASK_IMPROVE ? "improve"
                                          : "judge",
             (long long)tokens, (long long)r->setup.gen->spec.context);
    end_problem(r, r->ask.problem, note);
}

/* The latest ask as a request; a problem whose ask cannot be answered ends there, with a note. */
static bool submit_ask(ReasonRun *r, Err *e) {
    const Ask *a = &r->ask;
    if (!encode(r, &r->prompt, str_text(&a->text), e)) return false;
    int64_t room = r->setup.gen->spec.context - r->prompt.n;
    if (room < MIN2(LEAST_ROOM, a->how.max_tokens)) {
        end_too_long(r, r->prompt.n);
        return true;
    }
    Request q = gen_setup_request(&r->setup, 0);
    q.sampling.temperature = (float)a->how.temperature;
    q.sampling.top_p = (float)a->how.top_p;
    q.max_new = MIN2(a->how.max_tokens, room);
    q.key = a->key;
    q.prompt = r->prompt.ids;
    q.n_prompt = r->prompt.n;
    q.number = a->problem;
    Err refused = {0};
    if (!engine_submit(&r->setup.engine, &q, NULL, &refused)) end_problem(r, a->problem, refused.text);
    return true;
}

static bool submit_asks(ReasonRun *r, Err *e) {
    while (engine_room(&r->setup.engine) > 0 && pipeline_next(&r->pipeline, &r->ask))
        if (!submit_ask(r, e)) return false;
    return true;
}

static bool take_event(ReasonRun *r, const EngineEvent *ev, Err *e) {
    int64_t problem = ev->request->number;
    if (ev->kind == EVENT_FAILED) { /* it keeps what it has, others go on */
        end_problem(r, problem, ev->error);
        return true;
    }
    if (ev->end == GEN_END_CANCELLED) return true; /* asked again by the next run */
    journal_clean(&r->reply, str_text(ev->text), ev->text->len);
    Reply reply = {.text = str_text(&r->reply),
                   .tokens = ev->n,
                   .cut = ev->end == GEN_END_LENGTH,
                   .when = sensors_wall_seconds()};
    if (!journal_add(&r->journal, &r->pipeline, problem, &reply, e)) return false;
    pipeline_take(&r->pipeline, problem, &reply);
    r->tokens += ev->n;
    show_progress(r, problem);
    return true;
}

/* Until every problem is done, or an interrupt. */
static bool answer_asks(ReasonRun *r, Err *e) {
    Engine *n = &r->setup.engine;
    while (!stop_signal) {
        if (!submit_asks(r, e)) return false;
        EngineState state = engine_step(n, e);
        if (state == ENGINE_BROKEN) return false;
        for (EngineEvent ev; engine_event(n, &ev);)
            if (!take_event(r, &ev, e)) return false;
        if (state == ENGINE_IDLE && r->pipeline.n_done == r->pipeline.n) return true;
    }
    return true;
}

/* ---- the whole ---- */

/* Texts that may come to be kept, at four to five bytes a token; the problems with their rows; and what was taken
 * before the engine began. */
static GenHost host_bytes(const ReasonRun *r) {
    const PipelineSpec *s = &r->pipeline.spec;
    int64_t versions = s->rounds + 1, answers = (s->solve.max_tokens + 2 * s->judge.max_tokens) * 5;
    int64_t tracks = r->pipeline.n * (2048 + versions * (answers + (int64_t)sizeof(Version)));
    return (GenHost){.requests = problems_bytes(&r->problems) + tracks + r->planning_bytes +
                                 r->setup.spec.slots * r->setup.spec.context * 24};
}

static bool start(ReasonRun *r, Err *e) {
    GenSpec *spec = &r->setup.spec;
    int64_t left = r->pipeline.n - r->pipeline.n_done, open = MIN2(r->pipeline.spec.open, GEN_MOST_SLOTS);
    spec->slots = gen_setup_slots(&r->setup, left);
    if (open && !opt_given(r->o, OPT_SLOTS)) spec->slots = MIN2(open, left); /* more at a time are asked for */
    GenHost host = host_bytes(r);
    return gen_setup_start(&r->setup, &host, !opt_given(r->o, OPT_SLOTS), spec->context, e);
}

bool reason_answer_all(ReasonRun *r, const json_t *job, Err *e) {
    Pipeline *p = &r->pipeline;
    if (p->n_begun)
        log_line("%s: goes on; %lld of %lld problems were done", r->journal.path, (long long)p->n_done,
                 (long long)p->n);
    if (p->n_done == p->n) return true;
    if (!r->setup.words.tokenizer)
        return fail(e, ERR_FAIL, "%s: has no tokenizer.json; give --tokenizer DIR", r->setup.model.folder);
    if (!start(r, e) || !joblog_begin(&r->journal, job, e)) return false;
    double began = sensors_seconds();
    progress_begin(&r->progress, p->n_done, p->n, began);
    r->progress.unit = "problem";
    r->progress.at_once = true;
    r->answered = true;
    gen_setup_tell(&r->setup, "answering", "problem", p->n);
    bool ok = answer_asks(r, e);
    r->seconds = sensors_seconds() - began;
    if (ok && p->n_done < p->n)
        return fail(e, ERR_FAIL, "interrupted: %lld of %lld problems are done; the same command goes on from %s",
                    (long long)p->n_done, (long long)p->n, r->journal.path);
    return ok;
}

void reason_run_free(ReasonRun *r) {
    token_ids_free(&r->prompt);
    str_free(&r->reply);
    pipeline_ask_free(&r->ask);
    pipeline_free(&r->pipeline);
    problems_free(&r->problems);
    gen_setup_end(&r->setup);
}

/* ---- closing words ---- */

void reason_speed(Str *out, const ReasonRun *r) {
    if (!r->answered) return;
    const EngineCounts *c = &r->setup.engine.counts;
    str_addf(out, "%s tokens answered in %.1f s: %.1f tokens/s", units_count(r->tokens).s, r->seconds,
             r->seconds > 0 ? (double)r->tokens / r->seconds : 0);
    if (c->prefill_seconds > 0)
        str_addf(out, "; prompts read at %.1f tokens/s", (double)c->prefill_tokens / c->prefill_seconds);
}

void reason_memory(Str *out, const ReasonRun *r) {
    if (!r->answered) return;
    str_addf(out, "planned %s bytes, measured %s; the process planned %s, measured %s",
             units_count(r->setup.ring.placement.arena_bytes[POOL_DEVICE]).s,
             units_count(r->setup.ring.x.pool_bytes[POOL_DEVICE]).s,
             units_count(ring_process_bytes(&r->setup.ring)).s,
             units_count(gen_setup_peak(&r->setup).budget_bytes).s);
}

void reason_summary(json_t *to, const ReasonRun *r) {
    if (!r->answered) return;
    const Gen *g = r->setup.gen;
    json_object_set_new(to, "seconds", json_real(r->seconds));
    JSON_SET_COUNTS(to, {"tokens_here", r->tokens}, {"slots", g->spec.slots}, {"context", g->spec.context});
    Peak peak = gen_setup_peak(&r->setup);
    peak_add_ring(to, &r->setup.ring, &peak);
}

bool reason_settle(const ReasonRun *r, Err *e) {
    if (!r->answered) return true;
    Peak peak = gen_setup_peak(&r->setup);
    return peak_settle(&peak, r->o, e);
}
