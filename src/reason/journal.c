/* journal.c - how replies are appended, and read back into a pipeline. */
#include "reason/journal.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
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

/* ---- the first line ---- */

bool journal_same_job(const char *path, const json_t *there, const json_t *here, Err *e) {
    const char *key;
    json_t *value;
    for (int turn = 0; turn < 2; turn++) { /* what we say, then what only the other says */
        json_object_foreach((json_t *)(turn ? there : here), key, value) {
            const char *a = json_string_value(json_object_get(there, key)),
                       *b = json_string_value(json_object_get(here, key));
            if (a && b && !strcmp(a, b)) continue;
            return fail(e, ERR_FAIL,
                        "%s: belongs to another job: %s is %s there, %s here. Give --overwrite to begin anew, or "
                        "another --out",
                        path, key, a ? a : "not set", b ? b : "not set");
        }
    }
    return true;
}

static bool write_line(Journal *j, json_t *line, Err *e) { /* takes over line */
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text) return fail(e, ERR_FAIL, "%s: a reply could not be written as JSON", j->path);
    str_clear(&j->line);
    str_add(&j->line, text);
    str_add_char(&j->line, '\n');
    mem_free(text);
    return file_write(j->fd, j->line.data, j->line.len, j->path, e) && file_flush(j->fd, j->path, e);
}

static bool check_first(const Journal *j, const json_t *line, const json_t *job, Err *e) {
    const json_t *there = json_object_get(line, "job");
    if (json_integer_value(json_object_get(line, "reason")) != 1 || !json_is_object(there))
        return fail(e, ERR_FAIL, "%s: is not the progress of a `snug reason`; move it away", j->path);
    return journal_same_job(j->path, there, job, e);
}

/* ---- the others ---- */

static int64_t problem_at(const Pipeline *p, int64_t place) { /* -1: none of ours */
    return p->n && place >= p->track[0].place && place <= p->track[p->n - 1].place ? place - p->track[0].place : -1;
}

static bool take_line(const json_t *line, Pipeline *p, Err *e) {
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

/* Goes through the lines; *kept: bytes up to the last whole one. */
static bool take_lines(const Journal *j, const Str *text, const json_t *job, Pipeline *p, int64_t *kept, Err *e) {
    int64_t number = 1;
    *kept = 0;
    for (const char *end; *kept < text->len; *kept = end + 1 - text->data, number++) {
        const char *line = text->data + *kept;
        end = memchr(line, '\n', (size_t)(text->len - *kept));
        json_t *parsed = end ? json_loadb(line, (size_t)(end - line), 0, NULL) : NULL;
        if (!parsed && (!end || end + 1 == text->data + text->len))
            return true; /* half a line, or its pages were lost */
        bool ok = parsed ? number == 1 ? check_first(j, parsed, job, e) : take_line(parsed, p, e)
                         : fail(e, ERR_FAIL, "is not JSON. Give --overwrite to begin anew");
        json_decref(parsed);
        if (!ok) return number == 1 ? false : fail_within(e, "%s:%lld", j->path, (long long)number);
    }
    return true;
}

static bool read_all(Journal *j, const json_t *job, bool anew, Pipeline *p, Err *e) {
    Str text = {0};
    bool ok = file_read(j->path, &text, 0, e) && (anew || take_lines(j, &text, job, p, &j->kept, e));
    str_free(&text);
    return ok;
}

static bool open_locked(Journal *j, Err *e) {
    return file_open_append(j->path, &j->fd, e) && runlock_take_file(&j->lock, j->path, e);
}

bool journal_open(Journal *j, const char *path, const json_t *job, bool anew, Pipeline *p, Err *e) {
    *j = (Journal){.fd = -1, .lock = {.fd = -1}};
    if (snprintf(j->path, sizeof j->path, "%s", path) >= (int)sizeof j->path)
        return fail(e, ERR_FAIL, "%s: the path is too long", path);
    if (!file_exists(path) || (open_locked(j, e) && read_all(j, job, anew, p, e))) return true;
    journal_close(j);
    return false;
}

bool journal_begin(Journal *j, const json_t *job, Err *e) {
    int64_t bytes = 0;
    bool is_new = j->fd < 0;
    if (is_new && (!file_make_parents(j->path, e) || !open_locked(j, e) || !file_size(j->path, &bytes, e)))
        return false;
    if (bytes) return fail(e, ERR_FAIL, "%s: another run has begun there meanwhile", j->path);
    if (!file_cut(j->fd, j->kept, j->path, e)) return false;
    return j->kept || write_line(j, json_pack("{s:i, s:O}", "reason", 1, "job", job), e);
}

bool journal_add(Journal *j, const Pipeline *p, int64_t problem, const Reply *r, Err *e) {
    AskRole role;
    int round;
    CHECK(pipeline_awaits(p, problem, &role, &round));
    return write_line(j,
                      json_pack("{s:I, s:s, s:i, s:I, s:b, s:f, s:s}", "place",
                                (json_int_t)p->track[problem].place, "role", ask_role_name(role), "round", round,
                                "tokens", (json_int_t)r->tokens, "cut", r->cut, "time", r->when, "text", r->text),
                      e);
}

void journal_close(Journal *j) {
    file_close(j->fd);
    j->fd = -1;
    runlock_release(&j->lock);
    str_free(&j->line);
}

bool journal_remove(Journal *j, Err *e) {
    bool ok = file_remove_tree(j->path, e);
    journal_close(j);
    return ok;
}
