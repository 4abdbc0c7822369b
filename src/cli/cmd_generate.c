/* cmd_generate.c - snug generate: prompts in, answers out as text or JSON lines in the prompts' order. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/cmd.h"
#include "cli/gen_setup.h"
#include "obs/sensors.h"

enum { SAMPLES_MOST = 65536 }; /* of one prompt */

typedef struct Prompt {
    TokenIds ids;
    uint64_t seed;
    int64_t max_new; /* 0: the option's */
    json_t *id;      /* as the file names it; NULL: it does not */
} Prompt;

typedef struct Session {
    const Options *o;
    Engine engine;
    Prompt *prompt;
    int64_t n, capacity;
    int64_t given; /* prompts handed to the engine */
    char **line;   /* per answer: finished, waiting for those before it */
    int64_t n_lines, written;
    FileOut out;
    bool to_file;
    int64_t prompt_tokens, answer_tokens, interrupted;
} Session;

/* ---- prompts ---- */

static Prompt *add_prompt(Session *s) {
    s->prompt = mem_grow(s->prompt, &s->capacity, s->n + 1, sizeof *s->prompt);
    Prompt *p = &s->prompt[s->n];
    *p = (Prompt){.seed = rng_fold((uint64_t)opt_int(s->o, OPT_SEED), (uint64_t)s->n)};
    s->n++;
    return p;
}

static bool encode_words(Session *s, Prompt *p, const char *text, int64_t bytes, Err *e) {
    if (!opt_is(s->o, OPT_TEMPLATE, "chat")) return engine_encode_text(&s->engine, &p->ids, text, bytes, e);
    json_t *messages = json_pack("[{s:s, s:s%}]", "role", "user", "content", text, (size_t)bytes);
    if (!messages) return fail(e, ERR_FAIL, "the prompt is not UTF-8");
    bool ok = engine_encode_chat(&s->engine, &p->ids, messages, e);
    json_decref(messages);
    return ok;
}

static bool take_ids(Prompt *p, const json_t *ids, Err *e) {
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return fail(e, ERR_FAIL, "ids[%zu] is not a token id", i);
        token_ids_add(&p->ids, (int32_t)json_integer_value(id));
    }
    return true;
}

static bool take_row(Session *s, Prompt *p, const json_t *row, Err *e) {
    const json_t *ids = json_object_get(row, "ids"), *messages = json_object_get(row, "messages"),
                 *text = json_object_get(row, "text");
    const json_t *seed = json_object_get(row, "seed"), *most = json_object_get(row, "max_tokens"),
                 *id = json_object_get(row, "id");
    if (!ids) ids = json_object_get(row, "input_ids");
    if (!text) text = json_object_get(row, "prompt");
    if (json_is_integer(seed)) p->seed = rng_fold((uint64_t)json_integer_value(seed), 0);
    if (most && (!json_is_integer(most) || json_integer_value(most) < 1))
        return fail(e, ERR_FAIL, "max_tokens is not a whole number above 0");
    p->max_new = json_integer_value(most);
    p->id = id ? json_incref((json_t *)id) : NULL;
    if (json_is_array(ids)) return take_ids(p, ids, e);
    if (json_is_array(messages)) return engine_encode_chat(&s->engine, &p->ids, messages, e);
    if (json_is_string(text)) return encode_words(s, p, json_string_value(text), (int64_t)json_string_length(text), e);
    return fail(e, ERR_FAIL, "the row has neither text nor messages (a list) nor ids (a list)");
}

static bool is_blank(const char *text, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

static bool take_line(Session *s, const char *line, int64_t bytes, Err *e) {
    json_error_t je;
    json_t *row = json_loadb(line, (size_t)bytes, JSON_ALLOW_NUL, &je);
    if (!row) return fail(e, ERR_FAIL, "is not JSON: %s", je.text);
    bool ok = take_row(s, add_prompt(s), row, e);
    json_decref(row);
    return ok;
}

static bool read_prompts(Session *s, const char *path, int64_t *bytes, Err *e) {
    Str text = {0};
    bool ok = file_read(path, &text, 0, e);
    int64_t number = 1;
    for (int64_t at = 0; ok && at < text.len; number++) {
        const char *line = text.data + at, *end = memchr(line, '\n', (size_t)(text.len - at));
        int64_t len = end ? end - line : text.len - at;
        if (!is_blank(line, len) && !take_line(s, line, len, e)) ok = fail_within(e, "%s:%lld", path, (long long)number);
        at += len + 1;
    }
    *bytes = text.len;
    str_free(&text);
    return ok && (s->n || fail(e, ERR_FAIL, "%s: holds no prompts", path));
}

static bool find_prompts(Session *s, int64_t *bytes, Err *e) {
    const char *one = opt_text(s->o, OPT_PROMPT), *file = opt_text(s->o, OPT_PROMPTS);
    *bytes = 0;
    if (!one == !file) return fail(e, ERR_USAGE, "generate needs --prompt TEXT or --prompts FILE.jsonl (one of them)");
    return one ? encode_words(s, add_prompt(s), one, (int64_t)strlen(one), e) : read_prompts(s, file, bytes, e);
}

/* ---- answers ---- */

static json_t *answer_json(const Session *s, const Answer *a) {
    const Prompt *p = &s->prompt[a->request->number];
    json_t *j = json_pack("{s:I, s:I, s:I, s:I, s:s}", "index", (json_int_t)a->request->number, "sample",
                          (json_int_t)a->sample, "prompt_tokens", (json_int_t)a->request->n_prompt, "tokens",
                          (json_int_t)a->n, "finish", gen_end_name(a->end));
    json_t *ids = json_array(), *logp = json_array();
    if (p->id) json_object_set(j, "id", p->id);
    if (a->text) json_object_set_new(j, "text", json_stringn(str_text(a->text), (size_t)a->text->len));
    for (int64_t i = 0; i < a->n; i++) {
        json_array_append_new(ids, json_integer(a->ids[i]));
        if (a->logp) json_array_append_new(logp, json_real(a->logp[i]));
    }
    json_object_set_new(j, "ids", ids);
    if (a->logp) json_object_set(j, "logprobs", logp);
    json_decref(logp);
    return j;
}

static bool write_ready(Session *s, Err *e) { /* answers whose turn has come */
    while (s->written < s->n_lines && s->line[s->written]) {
        char *line = s->line[s->written];
        int64_t n = (int64_t)strlen(line);
        line[n] = '\n'; /* in place of the 0 */
        bool ok = s->to_file ? file_write(s->out.fd, line, n + 1, s->out.temporary, e)
                             : fwrite(line, 1, (size_t)n + 1, stdout) > 0;
        mem_free(line);
        s->line[s->written++] = NULL;
        if (!ok) return s->to_file ? false : fail(e, ERR_FAIL, "standard output could not be written");
    }
    if (!s->to_file) fflush(stdout);
    return true;
}

/* How long an answer may be; without a word about it, no longer than the model's positions allow. */
static int64_t most_new(const Session *s, const Prompt *p) {
    int64_t most = p->max_new ? p->max_new : opt_int(s->o, OPT_MAX_TOKENS), known = s->engine.model.config.max_positions;
    bool asked = p->max_new || opt_given(s->o, OPT_MAX_TOKENS);
    return asked || !known ? most : MAX2(1, MIN2(most, known - p->ids.n));
}

static bool on_next(void *user, Request *r) {
    Session *s = user;
    if (s->given == s->n) return false;
    const Prompt *p = &s->prompt[s->given];
    *r = engine_request(&s->engine, p->seed);
    r->prompt = p->ids.ids;
    r->n_prompt = p->ids.n;
    r->max_new = most_new(s, p);
    r->number = s->given++;
    return true;
}

static bool on_done(void *user, const Answer *a, Err *e) {
    Session *s = user;
    s->prompt_tokens += a->sample ? 0 : a->request->n_prompt;
    s->answer_tokens += a->n;
    s->interrupted += a->end == GEN_END_ASKED;
    json_t *j = answer_json(s, a);
    s->line[a->request->number * a->request->samples + a->sample] = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(j);
    return write_ready(s, e);
}

static bool on_said(void *user, const Answer *a, const char *text, int64_t bytes) { /* one prompt, one answer: as it comes */
    return fwrite(text, 1, (size_t)bytes, stdout) == (size_t)bytes && !fflush(stdout);
}

static bool on_done_plain(void *user, const Answer *a, Err *e) {
    Session *s = user;
    s->prompt_tokens += a->sample ? 0 : a->request->n_prompt;
    s->answer_tokens += a->n;
    s->interrupted += a->end == GEN_END_ASKED;
    return putchar('\n') == '\n' || fail(e, ERR_FAIL, "standard output could not be written");
}

/* ---- the whole ---- */

static bool check_prompts(const Session *s, Err *e) {
    int64_t vocab = s->engine.model.config.vocab;
    for (int64_t i = 0; i < s->n; i++) {
        const TokenIds *t = &s->prompt[i].ids;
        if (!t->n) return fail(e, ERR_FAIL, "prompt %lld has no tokens", (long long)i);
        for (int64_t k = 0; k < t->n; k++)
            if (t->ids[k] >= vocab)
                return fail(e, ERR_FAIL, "prompt %lld: id %d at place %lld is not one of the model's %lld tokens",
                            (long long)i, t->ids[k], (long long)k, (long long)vocab);
    }
    return true;
}

static int64_t default_slots(const Session *s) {
    int64_t most = s->engine.machine.kind == MACHINE_CPU ? 32 : 64;
    return MIN2(most, s->n * opt_int(s->o, OPT_N));
}

static bool start(Session *s, int64_t file_bytes, Err *e) {
    GenSpec *spec = &s->engine.spec;
    int64_t longest = 0, tokens = 0, each = opt_flag(s->o, OPT_LOGPROBS) ? 64 : 24; /* bytes of a token in a waiting line */
    for (int64_t i = 0; i < s->n; i++) {
        int64_t most = most_new(s, &s->prompt[i]);
        longest = MAX2(longest, s->prompt[i].ids.n + most);
        tokens += s->prompt[i].ids.capacity * 4 + most * opt_int(s->o, OPT_N) * each;
    }
    spec->context = opt_given(s->o, OPT_CONTEXT) ? opt_int(s->o, OPT_CONTEXT) : MAX2(2, longest);
    if (longest > spec->context)
        return fail(e, ERR_USAGE, "--context %lld: a prompt with its answer is %lld tokens long", (long long)spec->context,
                    (long long)longest);
    spec->slots = opt_given(s->o, OPT_SLOTS) ? opt_int(s->o, OPT_SLOTS) : default_slots(s);
    s->n_lines = s->n * opt_int(s->o, OPT_N);
    s->line = MEM_NEW(char *, s->n_lines);
    GenHost host = {.requests = file_bytes + tokens + s->n_lines * 256 + s->capacity * (int64_t)sizeof(Prompt)};
    return engine_start(&s->engine, &host, !opt_given(s->o, OPT_SLOTS), spec->context, e);
}

static void print_summary(const Session *s, double seconds) {
    const Gen *g = s->engine.gen;
    const GenCounts *c = &g->counts;
    printf(
        "{\"requests\":%lld,\"answers\":%lld,\"prompt_tokens\":%lld,\"prefill_tokens\":%lld,\"shared_tokens\":%lld,"
        "\"tokens\":%lld,"
        "\"seconds\":%.6g,\"prefill_seconds\":%.6g,\"decode_seconds\":%.6g,\"slots\":%lld,\"context\":%lld,\"plays\":%lld,"
        "\"planned_bytes\":%lld,\"measured_bytes\":%lld,\"process_planned_bytes\":%lld,\"process_measured_bytes\":%lld,"
        "\"plan_ms\":%.4g}\n",
        (long long)s->n, (long long)s->n_lines, (long long)s->prompt_tokens, (long long)c->prefill_tokens,
        (long long)c->shared_tokens, (long long)s->answer_tokens, seconds, c->prefill_seconds, c->decode_seconds,
        (long long)g->spec.slots, (long long)g->spec.context, (long long)c->plays,
        (long long)s->engine.ring.placement.arena_bytes[POOL_DEVICE], (long long)s->engine.ring.x.pool_bytes[POOL_DEVICE],
        (long long)ring_process_bytes(&s->engine.ring), (long long)s->engine.ring.peak_bytes, s->engine.ring.plan_ms);
}

static bool profile(Session *s, Err *e) {
    Str text = {0};
    bool ok = gen_profile(s->engine.gen, &text, e);
    log_line("%s", str_text(&text));
    str_free(&text);
    return ok;
}

static bool answer_all(Session *s, Err *e) {
    const char *out = opt_text(s->o, OPT_OUT);
    bool plain = !out && opt_given(s->o, OPT_PROMPT) && !opt_flag(s->o, OPT_JSON) && s->n_lines == 1 &&
                 s->engine.words.tokenizer && !opt_flag(s->o, OPT_LOGPROBS);
    GenCalls calls = {.user = s,
                      .next = on_next,
                      .done = plain ? on_done_plain : on_done,
                      .said = plain ? on_said : NULL,
                      .stop = &cmd_stop};
    if (out && !file_begin(&s->out, out, e)) return false;
    s->to_file = out != NULL;
    double began = sensors_seconds();
    bool ok = gen_run(s->engine.gen, s->engine.words.tokenizer, &calls, e);
    double seconds = sensors_seconds() - began;
    bool cut = s->interrupted || s->written < (plain ? 0 : s->n_lines);
    if (ok && cut)
        ok = fail(e, ERR_FAIL, "interrupted: %lld of %lld answers are whole%s", (long long)(s->written - s->interrupted),
                  (long long)s->n_lines, out ? "; nothing was written to --out" : "");
    if (out && ok) ok = file_commit(&s->out, e);
    else if (out) file_abort(&s->out);
    if (!ok) return false;
    engine_show(&s->engine, true);
    log_line("%lld tokens of prompts, %lld of answers in %.2f s: prefill %.1f tokens/s, decode %.1f tokens/s",
             (long long)s->prompt_tokens, (long long)s->answer_tokens, seconds,
             (double)s->engine.gen->counts.prefill_tokens / s->engine.gen->counts.prefill_seconds,
             s->engine.gen->counts.decode_seconds > 0
                 ? (double)(s->answer_tokens - s->n_lines) / s->engine.gen->counts.decode_seconds
                 : 0);
    if (opt_flag(s->o, OPT_JSON)) print_summary(s, seconds);
    return !opt_flag(s->o, OPT_PROFILE) || profile(s, e);
}

bool cmd_generate(const Options *o, Err *e) {
    Session s = {.o = o};
    int64_t file_bytes;
    const char *out = opt_text(o, OPT_OUT);
    if (opt_int(o, OPT_N) > SAMPLES_MOST) return fail(e, ERR_USAGE, "--n: %d at most", SAMPLES_MOST);
    if (out && !opt_flag(o, OPT_OVERWRITE) && file_exists(out))
        return fail(e, ERR_FAIL, "%s: is already there; give --overwrite to replace it", out);
    bool ok = engine_begin(&s.engine, o, e) && find_prompts(&s, &file_bytes, e) && check_prompts(&s, e) &&
              start(&s, file_bytes, e) && answer_all(&s, e);
    for (int64_t i = 0; i < s.n; i++) {
        token_ids_free(&s.prompt[i].ids);
        json_decref(s.prompt[i].id);
    }
    for (int64_t i = 0; i < s.n_lines; i++) mem_free(s.line[i]);
    mem_free(s.line);
    mem_free(s.prompt);
    engine_end(&s.engine);
    return ok;
}
