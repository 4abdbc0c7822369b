/* cmd_generate.c - snug generate: prompts in, answers out as text or JSON lines in the prompts' order. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/json.h"
#include "cli/cmd.h"
#include "cli/generate.h"
#include "cli/show.h"
#include "obs/progress.h"
#include "obs/sensors.h"

enum { SAMPLES_MOST = 65536 }; /* of one prompt */
static const double line_seconds = 60; /* between two lines of progress where there is no terminal */

typedef struct Session {
    const Options *o;
    const GenerateHooks *hooks;
    GenSetup setup;
    Prompts prompts;
    AnswerLines lines;
    json_t *job;         /* what the log of lines belongs to */
    int64_t samples;     /* of a prompt: its lines are [i * samples, (i + 1) * samples) */
    int64_t next, next_sample; /* to be submitted */
    bool plain;          /* one answer, as text, as it comes */
    int64_t *whole;      /* owns; tickets whose answers are complete before the model ends them */
    int64_t n_whole, whole_room;
    bool ending;         /* these are being cancelled */
    int64_t found;       /* answers of the run that is resumed */
    int64_t prompt_tokens, answer_tokens, interrupted;
    Progress progress;
    int64_t tokens_shown;
    double line_shown;
} Session;

/* ---- answers ---- */

static json_t *line_head(const Session *s, int64_t prompt, int sample) {
    return JSON_COUNTS({"index", prompt}, {"sample", sample}, {"prompt_tokens", s->prompts.item[prompt].ids.n});
}

static void add_id(json_t *line, const Prompt *p) {
    if (p->id) json_object_set(line, "id", p->id);
}

/* Cancelled: by an interrupt, or because all that is wanted is there. */
static bool is_whole(const Session *s, const EngineEvent *ev) { return ev->end != GEN_END_CANCELLED || s->ending; }

static json_t *answer_json(const Session *s, const EngineEvent *ev) {
    json_t *j = line_head(s, ev->request->number, ev->sample);
    json_object_set_new(j, "tokens", json_integer(ev->n));
    json_object_set_new(j, "finish", json_string(gen_end_name(s->ending ? GEN_END_TEXT : ev->end)));
    add_id(j, &s->prompts.item[ev->request->number]);
    if (ev->text) json_object_set_new(j, "text", json_stringn(str_text(ev->text), (size_t)ev->text->len));
    json_object_set_new(j, "ids", json_ids(ev->ids, ev->n));
    if (ev->logp) json_object_set_new(j, "logprobs", json_floats(ev->logp, ev->n));
    return j;
}

/* The line of a prompt, or of one of its samples, that was not answered. */
static bool add_error(Session *s, int64_t prompt, int sample, const char *error, Err *e) {
    const Prompt *p = &s->prompts.item[prompt];
    int64_t at = prompt * s->samples + sample;
    if (lines_has(&s->lines, at)) return true;
    json_t *j = line_head(s, prompt, sample);
    add_id(j, p);
    if (p->line) json_object_set_new(j, "line", json_integer(p->line));
    json_object_set_new(j, "error", json_string(error));
    bool ok = lines_add(&s->lines, at, j, e);
    json_decref(j);
    return ok;
}

/* Prompts that cannot be answered have one line each, whatever --n says. */
static bool add_errors(Session *s, Err *e) {
    for (int64_t i = 0; i < s->prompts.n; i++) {
        if (!s->prompts.item[i].error) continue;
        log_warn("%s", s->prompts.item[i].error);
        if (!add_error(s, i, 0, s->prompts.item[i].error, e)) return false;
        for (int64_t k = 1; k < s->samples; k++) lines_skip(&s->lines, i * s->samples + k);
    }
    return true;
}

/* A line of the run that is resumed. */
static bool take_kept(void *user, const json_t *line, int64_t at, int64_t bytes, Err *e) {
    Session *s = user;
    int64_t index = json_integer_value(json_object_get(line, "index")),
            sample = json_integer_value(json_object_get(line, "sample"));
    const char *error = json_string_value(json_object_get(line, "error"));
    if (!json_is_integer(json_object_get(line, "index")) || index < 0 || index >= s->prompts.n || sample < 0 ||
        sample >= s->samples)
        return fail(e, ERR_FAIL, "is an answer to none of the prompts. Give --overwrite to begin anew");
    lines_found(&s->lines, index * s->samples + sample, at, bytes);
    if (error) prompts_fail(&s->prompts, index, error);
    s->found++;
    return true;
}

/* ---- requests ---- */

/* The next samples that are to be answered: those in a row share the prefill. false: there are none. */
static bool next_request(Session *s, Request *r) {
    for (; s->next < s->prompts.n; s->next++, s->next_sample = 0) {
        const Prompt *p = &s->prompts.item[s->next];
        int64_t first = s->next_sample, at = s->next * s->samples;
        while (first < s->samples && (p->error || lines_has(&s->lines, at + first))) first++;
        if (first == s->samples) continue;
        int64_t end = first + 1;
        while (end < s->samples && !lines_has(&s->lines, at + end)) end++;
        *r = gen_setup_request(&s->setup, p->seed);
        r->prompt = p->ids.ids;
        r->n_prompt = p->ids.n;
        r->max_new = prompts_most_new(p, &s->setup);
        r->number = s->next;
        r->first_sample = (int)first;
        r->samples = (int)(end - first);
        r->stream = s->plain || s->hooks->whole;
        s->next_sample = end;
        return true;
    }
    return false;
}

static bool submit(Session *s, Err *e) {
    Request r;
    while (engine_room(&s->setup.engine) > 0 && next_request(s, &r)) {
        Err why = {0};
        if (engine_submit(&s->setup.engine, &r, NULL, &why)) continue;
        prompts_fail(&s->prompts, r.number, why.text);
        for (int k = 0; k < r.samples; k++)
            if (!add_error(s, r.number, r.first_sample + k, why.text, e)) return false;
    }
    return true;
}

/* ---- the loop ---- */

static bool print_text(const char *text, int64_t bytes, Err *e) {
    return (fwrite(text, 1, (size_t)bytes, stdout) == (size_t)bytes && !fflush(stdout)) ||
           fail(e, ERR_FAIL, "standard output could not be written");
}

static bool take_done(Session *s, const EngineEvent *ev, Err *e) {
    s->interrupted += !is_whole(s, ev);
    s->prompt_tokens += ev->sample == ev->request->first_sample ? ev->request->n_prompt : 0;
    s->answer_tokens += ev->n;
    if (s->plain) return print_text("\n", 1, e);
    if (!is_whole(s, ev)) return true;
    json_t *j = answer_json(s, ev);
    bool ok = lines_add(&s->lines, ev->request->number * s->samples + ev->sample, j, e);
    json_decref(j);
    return ok;
}

static bool take_text(Session *s, const EngineEvent *ev, Err *e) {
    if (!s->hooks->whole) return print_text(ev->fresh, ev->fresh_bytes, e);
    if (!s->hooks->whole(s->hooks->self, ev)) return true;
    s->whole = mem_grow(s->whole, &s->whole_room, s->n_whole + 1, sizeof *s->whole);
    s->whole[s->n_whole++] = ev->ticket;
    return true;
}

static bool take_event(Session *s, const EngineEvent *ev, Err *e) {
    if (ev->kind == EVENT_TEXT) return take_text(s, ev, e);
    if (ev->kind == EVENT_DONE) return take_done(s, ev, e);
    prompts_fail(&s->prompts, ev->request->number, ev->error);
    return s->plain || add_error(s, ev->request->number, ev->sample, ev->error, e);
}

static void show_progress(Session *s) {
    const ProgressFacts none = {(double)NAN, (double)NAN, (double)NAN, 0};
    s->setup.status.step = s->lines.n_done;
    int64_t tokens = s->setup.engine.counts.new_tokens, fresh = tokens - s->tokens_shown;
    double now = sensors_seconds();
    if (s->plain || (log_is_terminal() && !s->lines.out && isatty(STDOUT_FILENO)))
        return; /* the answers are the progress */
    s->tokens_shown = tokens;
    progress_tokens(&s->progress, fresh, now);
    while (s->progress.done_steps < s->lines.n_done) progress_step(&s->progress, 0, 0, 0, now);
    bool keep = !log_is_terminal() && now - s->line_shown >= line_seconds;
    if (keep) s->line_shown = now;
    progress_show(&s->progress, &none, keep);
}

static bool take_events(Session *s, Err *e) {
    for (EngineEvent ev; engine_event(&s->setup.engine, &ev);)
        if (!take_event(s, &ev, e)) return false;
    return true;
}

/* Cancels complete answers, which frees their slots. */
static bool end_whole(Session *s, Err *e) {
    s->ending = true;
    for (int64_t i = 0; i < s->n_whole; i++) engine_cancel(&s->setup.engine, s->whole[i]);
    bool ok = take_events(s, e);
    s->n_whole = 0;
    s->ending = false;
    return ok;
}

/* Until every prompt is answered, or an interrupt ends what is under way. */
static bool run_engine(Session *s, Err *e) {
    Engine *n = &s->setup.engine;
    EngineState state = ENGINE_BUSY;
    while (state == ENGINE_BUSY) {
        if (!submit(s, e)) return false;
        state = engine_step(n, e);
        if (state == ENGINE_BROKEN) return false;
        if (stop_signal) engine_cancel_all(n);
        if (!take_events(s, e)) return false;
        if (stop_signal) return true;
        if (s->n_whole && !end_whole(s, e)) return false;
        if (engine_room(n) > 0 && s->next < s->prompts.n) state = ENGINE_BUSY; /* more to submit */
        show_progress(s);
    }
    return true;
}

/* ---- the whole ---- */

static json_t *job_of(const Session *s, Err *e) {
    static const OptId same[] = {OPT_N,         OPT_MAX_TOKENS, OPT_TEMPERATURE, OPT_TOP_P,      OPT_TOP_K,
                                 OPT_MIN_P,     OPT_REPETITION, OPT_STOP,        OPT_IGNORE_EOS, OPT_LOGPROBS,
                                 OPT_SEED,      OPT_QUANTIZE,   OPT_KV_CACHE,    OPT_PRECISION,  OPT_QUANTIZE_HEAD,
                                 OPT_INVARIANT, OPT_TEMPLATE,   OPT_TOKENIZER,   OPT_INIT,       OPT_SELECTION,
                                 OPT_GATES,     OPT_TAKE};
    json_t *job = gen_setup_job(&s->setup, same, COUNT_OF(same), e);
    if (job) json_set_hex(job, "prompts", s->prompts.hash);
    return job;
}

/* The log, with what it holds already. */
static bool open_lines(Session *s, Err *e) {
    if (!s->lines.out) return true;
    s->job = job_of(s, e);
    return s->job && lines_open(&s->lines, s->job, opt_flag(s->o, OPT_OVERWRITE), take_kept, s, e);
}

/* There will be something to keep: the log is made, with the prompts that cannot be answered. */
static bool begin_lines(Session *s, Err *e) {
    return (!s->lines.out || joblog_begin(&s->lines.log, s->job, e)) && add_errors(s, e);
}

static bool start(Session *s, Err *e) {
    GenSpec *spec = &s->setup.spec;
    int64_t bytes = s->prompts.bytes + s->lines.n * 256,
            each = s->lines.out ? 0 : opt_flag(s->o, OPT_LOGPROBS) ? 64 : 24; /* of a token in a line that is held */
    for (int64_t i = 0; i < s->prompts.n; i++)
        bytes += prompts_most_new(&s->prompts.item[i], &s->setup) * s->samples * each;
    spec->slots = gen_setup_slots(&s->setup, (s->prompts.n - s->prompts.n_bad) * s->samples);
    return gen_setup_start(&s->setup, &(GenHost){.requests = bytes}, !opt_given(s->o, OPT_SLOTS), spec->context, e);
}

static void print_summary(const Session *s, double seconds, const Peak *peak) {
    const GenSpec *g = &s->setup.gen->spec;
    const EngineCounts *c = &s->setup.engine.counts;
    json_t *j = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "requests", (json_int_t)s->prompts.n,
        "answers", (json_int_t)s->lines.n, "failed", (json_int_t)s->prompts.n_bad, "resumed", (json_int_t)s->found,
        "prompt_tokens", (json_int_t)s->prompt_tokens, "prefill_tokens", (json_int_t)c->prefill_tokens,
        "shared_tokens", (json_int_t)c->shared_tokens, "tokens", (json_int_t)s->answer_tokens, "seconds", seconds,
        "prefill_seconds", c->prefill_seconds, "decode_seconds", c->decode_seconds, "slots", (json_int_t)g->slots,
        "context", (json_int_t)g->context, "plays", (json_int_t)c->plays);
    CHECK(j);
    peak_add_ring(j, &s->setup.ring, peak);
    json_object_set_new(j, "plan_ms", json_real(s->setup.ring.plan_ms));
    if (s->hooks->sum_up) s->hooks->sum_up(s->hooks->self, j);
    show_print_json(j);
}

static bool profile(Session *s, Err *e) {
    Str text = {0};
    bool ok = gen_profile(s->setup.gen, &text, e);
    log_str(&text);
    return ok;
}

static void say_speed(const Session *s, double seconds) {
    const EngineCounts *c = &s->setup.engine.counts;
    int64_t answers = s->lines.n - s->found,
            decoded = s->answer_tokens - answers; /* the first ones are the prefill's */
    log_line("%lld tokens of prompts, %lld of answers in %.2f s: prefill %.1f tokens/s, decode %.1f tokens/s",
             (long long)s->prompt_tokens, (long long)s->answer_tokens, seconds,
             c->prefill_seconds > 0 ? (double)c->prefill_tokens / c->prefill_seconds : 0,
             c->decode_seconds > 0 ? (double)decoded / c->decode_seconds : 0);
}

static bool interrupted(Session *s, Err *e) {
    int64_t whole = s->plain ? 0 : s->lines.n_done;
    if (!lines_interrupt(&s->lines, e)) return false;
    return fail(e, ERR_FAIL, "interrupted: %lld of %lld answers are whole%s%s%s", (long long)whole,
                (long long)s->lines.n, s->lines.out ? " and kept in " : "", s->lines.out ? s->lines.log.path : "",
                s->lines.out ? "; the same command with --resume goes on" : "");
}

static bool say_bad(const Session *s, Err *e) {
    Str text = {0};
    prompts_describe_bad(&text, &s->prompts);
    fail(e, ERR_FAIL, "%s", str_text(&text));
    str_free(&text);
    return false;
}

/* Where prompts that failed have lines of their own, which the hook makes of them, they are counted there. */
static bool settle_bad(const Session *s, Err *e) { return !s->prompts.n_bad || s->hooks->turn || say_bad(s, e); }

static bool answer_all(Session *s, Err *e) {
    double began = sensors_seconds();
    progress_begin(&s->progress, s->lines.n_done, s->lines.n, began);
    s->progress.unit = "answer";
    s->progress.at_once = true;
    s->line_shown = began;
    gen_setup_tell(&s->setup, "answering", "answer", s->lines.n);
    if (!run_engine(s, e)) return false;
    double seconds = sensors_seconds() - began;
    if (s->interrupted || s->lines.n_done < (s->plain ? 0 : s->lines.n)) return interrupted(s, e);
    if (!s->plain && !lines_finish(&s->lines, e)) return false;
    Peak peak = gen_setup_show_measured(&s->setup);
    say_speed(s, seconds);
    if (opt_flag(s->o, OPT_JSON)) print_summary(s, seconds, &peak);
    else if (s->hooks->sum_up) s->hooks->sum_up(s->hooks->self, NULL);
    if (opt_flag(s->o, OPT_PROFILE) && !profile(s, e)) return false;
    return peak_settle(&peak, s->o, e) && settle_bad(s, e);
}

static bool generate(Session *s, Err *e) {
    const char *out = opt_text(s->o, OPT_OUT);
    const GenerateHooks *h = s->hooks;
    if (!gen_setup_begin(&s->setup, s->o, e) ||
        !(h->read ? h->read(h->self, &s->prompts, &s->setup, e) : prompts_read(&s->prompts, &s->setup, e)) ||
        !prompts_plan(&s->prompts, &s->setup, e))
        return false;
    lines_init(&s->lines, out, s->prompts.n * s->samples, h);
    s->plain = !out && opt_given(s->o, OPT_PROMPT) && !opt_flag(s->o, OPT_JSON) && s->lines.n == 1 &&
               s->setup.words.tokenizer && !opt_flag(s->o, OPT_LOGPROBS);
    if (!open_lines(s, e)) return false; /* what is resumed is looked at before anything is loaded */
    if (s->lines.n_done == s->lines.n) return lines_finish(&s->lines, e) && settle_bad(s, e);
    return start(s, e) && begin_lines(s, e) && answer_all(s, e);
}

bool cmd_generate(const Options *o, Err *e) { return generate_run(o, &(GenerateHooks){0}, e); }

bool generate_run(const Options *o, const GenerateHooks *h, Err *e) {
    Session s = {.o = o, .hooks = h, .samples = o->command == CMD_GENERATE ? opt_int(o, OPT_N) : 1};
    bool whole;
    if (s.samples > SAMPLES_MOST) return fail(e, ERR_USAGE, "--n: %d at most", SAMPLES_MOST);
    if (!lines_check(o, &whole, e)) return false;
    if (whole) {
        log_line("%s: all answers are there already; its prompts are not compared (--overwrite begins anew)",
                 opt_text(o, OPT_OUT));
        return true;
    }
    bool ok = generate(&s, e);
    lines_free(&s.lines);
    json_decref(s.job);
    mem_free(s.whole);
    prompts_free(&s.prompts);
    gen_setup_end(&s.setup);
    return ok;
}
