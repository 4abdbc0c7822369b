/* joblog.c - how results are appended to a job's log and read back. */
#include "store/joblog.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { READ_BYTES = 1 << 16 };

bool joblog_same_job(const char *path, const json_t *there, const json_t *here, Err *e) {
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

/* ---- writing ---- */

bool joblog_add(JobLog *l, const char *line, Err *e) {
    if (!line) return fail(e, ERR_FAIL, "%s: a result could not be written as JSON", l->path);
    str_clear(&l->line);
    str_add(&l->line, line);
    str_add_char(&l->line, '\n');
    if (!file_write(l->fd, l->line.data, l->line.len, l->path, e)) return false;
    l->bytes += l->line.len;
    return true;
}

bool joblog_flush(JobLog *l, Err *e) { return file_flush(l->fd, l->path, e); }

/* ---- reading ---- */

static bool check_first(const JobLog *l, const json_t *line, const json_t *job, Err *e) {
    const json_t *there = json_object_get(line, "job");
    if (json_integer_value(json_object_get(line, l->kind)) != 1 || !json_is_object(there))
        return fail(e, ERR_FAIL, "%s: is not the progress of a `snug %s`; move it away", l->path, l->kind);
    return joblog_same_job(l->path, there, job, e);
}

typedef struct LogReader {
    JobLog *l;
    const json_t *job;
    JobLogTake *take;
    void *user;
    int64_t number; /* of the line */
} LogReader;

/* A line without its end; *whole: it is one. Half a line, and a last one whose pages were lost, are not. */
static bool take_line(LogReader *r, const char *line, int64_t bytes, bool last, bool *whole, Err *e) {
    json_t *parsed = json_loadb(line, (size_t)bytes, 0, NULL);
    *whole = parsed || !last;
    bool ok = !parsed            ? last || fail(e, ERR_FAIL, "is not JSON. Give --overwrite to begin anew")
              : r->number == 1   ? check_first(r->l, parsed, r->job, e)
                                 : r->take(r->user, parsed, r->l->bytes, bytes + 1, e);
    json_decref(parsed);
    if (!ok && r->number > 1) return fail_within(e, "%s:%lld", r->l->path, (long long)r->number);
    return ok;
}

/* The whole lines that stand in the text; they leave it. at_end: no more will come. */
static bool take_lines(LogReader *r, Str *text, bool at_end, bool *ended, Err *e) {
    int64_t at = 0;
    while (!*ended && at < text->len) {
        const char *end = memchr(text->data + at, '\n', (size_t)(text->len - at));
        if (!end) break;
        int64_t bytes = end - (text->data + at);
        bool whole, last = at_end && end + 1 == text->data + text->len;
        if (!last && end + 1 == text->data + text->len) break; /* whether it is the last is not known yet */
        if (!take_line(r, text->data + at, bytes, last, &whole, e)) return false;
        *ended = !whole;
        if (!whole) break;
        at += bytes + 1;
        r->l->bytes += bytes + 1;
        r->number++;
    }
    memmove(text->data, text->data + at, (size_t)(text->len - at));
    text->len -= at;
    return true;
}

static bool read_lines(LogReader *r, Err *e) {
    Str text = {0};
    char *some = mem_alloc(READ_BYTES);
    bool ok = true, ended = false;
    for (int64_t got = 1; ok && got > 0 && !ended;) {
        ok = file_read_some(r->l->fd, some, &got, READ_BYTES, r->l->path, e);
        if (ok) str_add_bytes(&text, some, got);
        if (ok && text.len) ok = take_lines(r, &text, got == 0, &ended, e);
    }
    mem_free(some);
    str_free(&text);
    return ok;
}

static bool add_first(JobLog *l, const json_t *job, Err *e) {
    json_t *first = json_pack("{s:i, s:O}", l->kind, 1, "job", job);
    char *text = json_dumps(first, JSON_COMPACT);
    bool ok = joblog_add(l, text, e) && joblog_flush(l, e);
    mem_free(text);
    json_decref(first);
    return ok;
}

static bool open_locked(JobLog *l, Err *e) {
    return file_open_append(l->path, &l->fd, e) && runlock_take_file(&l->lock, l->path, e);
}

bool joblog_open(JobLog *l, const char *path, const char *kind, const json_t *job, bool anew, JobLogTake *take,
                 void *user, Err *e) {
    LogReader reader = {.l = l, .job = job, .take = take, .user = user, .number = 1};
    *l = (JobLog){.fd = -1, .lock = {.fd = -1}, .kind = kind};
    if (snprintf(l->path, sizeof l->path, "%s", path) >= (int)sizeof l->path)
        return fail(e, ERR_FAIL, "%s: the path is too long", path);
    if (!file_exists(path) || (open_locked(l, e) && (anew || read_lines(&reader, e)))) return true;
    joblog_close(l);
    return false;
}

bool joblog_begin(JobLog *l, const json_t *job, Err *e) {
    bool is_new = l->fd < 0;
    int64_t size;
    if (is_new && (!file_make_parents(l->path, e) || !open_locked(l, e))) return false;
    if (!file_size(l->path, &size, e)) return false;
    if (is_new && size) return fail(e, ERR_FAIL, "%s: another run has begun there meanwhile", l->path);
    if (l->bytes < size && !file_cut(l->fd, l->bytes, l->path, e)) return false;
    if (l->bytes || add_first(l, job, e)) return true;
    if (is_new) joblog_remove(l, NULL); /* no room for a line: it would be taken for a job that was interrupted */
    return false;
}

bool joblog_read(const JobLog *l, Str *out, int64_t at, int64_t bytes, Err *e) {
    char *data = mem_alloc(bytes);
    bool ok = file_pread(l->fd, data, bytes, at, l->path, e);
    if (ok) str_add_bytes(out, data, bytes);
    mem_free(data);
    return ok;
}

void joblog_close(JobLog *l) {
    file_close(l->fd);
    l->fd = -1;
    runlock_release(&l->lock);
    str_free(&l->line);
}

bool joblog_remove(JobLog *l, Err *e) {
    bool ok = file_remove_tree(l->path, e);
    joblog_close(l);
    return ok;
}
