/* journal.c - a reply as a line of a job's log, and back into a pipeline. */
#include "reason/journal.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"

void journal_clean(Str *out, const char *text, int64_t bytes) {
    str_clear(out);
    for (int64_t i = 0; i < bytes;) {
        utf8proc_int32_t code;
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(bytes - i), &code);
        bool good = n > 0 && code;
        if (good)
            str_add_bytes(out, text + i, n);
        else
            str_add(out, "\xef\xbf\xbd"); /* U+FFFD */
        i += good ? n : 1;
    }
}

/* ---- reading ---- */

static int64_t problem_at(const Pipeline *p, int64_t place) { /* -1: none of ours */
    return p->n && place >= p->track[0].place && place <= p->track[p->n - 1].place ? place - p->track[0].place : -1;
}

static bool take_line(void *pipeline, const json_t *line, int64_t at, int64_t bytes, Err *e) {
    Pipeline *p = pipeline;
    const json_t *role = json_object_get(line, "role"), *text = json_object_get(line, "text");
    int64_t problem = problem_at(p, json_integer_value(json_object_get(line, "place"))),
            tokens = json_integer_value(json_object_get(line, "tokens"));
    AskRole awaited;
    int round;
    bool fits = problem >= 0 && json_is_string(role) && json_is_string(text) && tokens >= 0 && tokens <= INT32_MAX &&
                pipeline_awaits(p, problem, &awaited, &round) &&
                !strcmp(json_string_value(role), ask_role_name(awaited)) &&
                json_integer_value(json_object_get(line, "round")) == round;
    if (!fits) return fail(e, ERR_FAIL, "a reply that no problem waits for. Give --overwrite to begin anew");
    pipeline_take(p, problem,
                  &(Reply){.text = json_string_value(text),
                           .tokens = tokens,
                           .cut = json_is_true(json_object_get(line, "cut")),
                           .when = json_number_value(json_object_get(line, "time"))});
    return true;
}

bool journal_open(Journal *j, const char *path, const json_t *job, bool anew, Pipeline *p, Err *e) {
    return joblog_open(j, path, "reason", job, anew, take_line, p, e);
}

/* ---- writing ---- */

bool journal_add(Journal *j, const Pipeline *p, int64_t problem, const Reply *r, Err *e) {
    AskRole role;
    int round;
    CHECK(pipeline_awaits(p, problem, &role, &round));
    json_t *line = json_pack("{s:I, s:s, s:i, s:I, s:b, s:f, s:s}", "place", (json_int_t)p->track[problem].place,
                             "role", ask_role_name(role), "round", round, "tokens", (json_int_t)r->tokens, "cut",
                             r->cut, "time", r->when, "text", r->text);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    bool ok = joblog_add(j, text, e) && joblog_flush(j, e);
    mem_free(text);
    json_decref(line);
    return ok;
}
