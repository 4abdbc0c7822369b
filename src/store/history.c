/* history.c - how the lines of a step log are written, and cut back when a run resumes. */
#include "store/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/folder.h"

enum { STEP_BYTES = 300, SAMPLE_BYTES = 20 }; /* of a line at most: without its samples, and for each */

int64_t history_line_bytes(int64_t samples) { return STEP_BYTES + samples * SAMPLE_BYTES + CHAIN_BYTES; }

bool history_state_path(char *out, size_t size, const char *folder, int64_t step, Err *e) {
    int n = snprintf(out, size, "%s/state-%" PRId64, folder, step);
    return n < (int)size || fail(e, ERR_FAIL, "%s: the path is too long", folder);
}

bool history_update_path(char *out, size_t size, const char *folder, int64_t step, Err *e) {
    int n = snprintf(out, size, "%s/update-%" PRId64 ".safetensors", folder, step);
    return n < (int)size || fail(e, ERR_FAIL, "%s: the path is too long", folder);
}

/* ---- looking ---- */

/* Bytes and chain of the log as it stood after so many updates. */
static bool find_place(HistoryLog *l, const History *h, int64_t step, Err *e) {
    if (h->n_steps < step)
        return fail(e, ERR_FAIL,
                    "--step-log %s: holds %" PRId64 " updates and the checkpoint stands at %" PRId64
                    ": what lies between is not known. Resume from an earlier checkpoint, or without --step-log",
                    l->folder, h->n_steps, step);
    Str text = {0};
    int64_t updates = 0, at = 0;
    if (!file_read(l->path, &text, 0, e)) return false;
    for (const char *end; (end = memchr(text.data + at, '\n', (size_t)(text.len - at)));) {
        const char *line = text.data + at;
        bool is_step = str_starts(line, "{\"step\":");
        if (str_starts(line, "{\"end\":") || (is_step && updates == step)) break;
        updates += is_step;
        if (!chain_check(&l->chain, line, end - line, e)) break;
        at = end + 1 - text.data;
    }
    str_free(&text);
    l->bytes = at;
    return !e->code;
}

bool history_look(HistoryLog *l, const char *folder, json_t *job, int64_t stride, int64_t resumed_step,
                  bool overwrite, int64_t most_samples, Err *e) {
    *l = (HistoryLog){.job = job, .stride = stride, .from = resumed_step, .open = true, .fd = -1};
    l->line.capacity = history_line_bytes(most_samples);
    l->line.data = mem_alloc(l->line.capacity);
    if (snprintf(l->folder, sizeof l->folder, "%s", folder) >= (int)sizeof l->folder)
        return fail(e, ERR_FAIL, "--step-log %s: the path is too long", folder);
    snprintf(l->path, sizeof l->path, "%s/steps.jsonl", folder);
    if (!resumed_step) {
        l->anew = true;
        return overwrite || !file_exists(l->path) ||
               fail(e, ERR_FAIL, "--step-log %s: holds the log of a run already. Give another folder, or --overwrite",
                    folder);
    }
    if (!file_exists(l->path))
        return fail(e, ERR_FAIL,
                    "--step-log %s: the run resumes at step %" PRId64
                    " and its log is not there: the steps before are "
                    "not known. Resume without --step-log, or begin anew",
                    folder, resumed_step);
    History h;
    bool ok = history_read(&h, folder, e) && history_check_job(&h, job, e);
    if (ok && h.stride != stride)
        ok = fail(e, ERR_FAIL, "--step-log-stride %" PRId64 ": the log of %s has %" PRId64, stride, folder, h.stride);
    ok = ok && find_place(l, &h, resumed_step, e);
    history_free(&h);
    return ok;
}

/* ---- writing ---- */

/* What a refused write left behind the last whole line goes first. */
static bool put_line(HistoryLog *l, Err *e) {
    Chain next = l->chain;
    int64_t size;
    chain_close(&next, &l->line, 0);
    if (!file_size(l->path, &size, e) || (size != l->bytes && !file_cut(l->fd, l->bytes, l->path, e))) return false;
    if (!file_write(l->fd, l->line.data, l->line.len, l->path, e)) return false;
    l->bytes += l->line.len;
    l->chain = next;
    return true;
}

static bool put_header(HistoryLog *l, Err *e) {
    char *job = json_dumps(l->job, JSON_COMPACT);
    if (!job) return fail(e, ERR_FAIL, "%s: the job cannot be written as JSON", l->path);
    str_clear(&l->line);
    str_addf(&l->line, "{\"snug_step_log\":2,\"stride\":%" PRId64 ",\"threads\":%d,\"job\":%s", l->stride, l->threads,
             job);
    mem_free(job);
    return put_line(l, e) && file_flush(l->fd, l->path, e);
}

static bool is_of_log(const char *name) {
    return str_starts(name, "state-") || str_starts(name, "update-") || !strcmp(name, "steps.jsonl");
}

bool history_begin(HistoryLog *l, Err *e) {
    if (!file_make_dirs(l->folder, e)) return false;
    if (l->anew && !file_clear(l->folder, is_of_log, e)) return false;
    if (!file_open_append(l->path, &l->fd, e)) return false;
    if (l->anew) return put_header(l, e);
    return file_cut(l->fd, l->bytes, l->path, e);
}

bool history_add_step(HistoryLog *l, const HistoryStep *s, Err *e) {
    Str *t = &l->line;
    str_clear(t);
    str_addf(
        t, "{\"step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"row\":%" PRId64 ",\"lr\":%.17g,\"key\":\"%016" PRIx64 "\"",
        s->step, s->epoch, s->row, s->lr, s->key);
    if (s->scale != 1 || s->skipped) str_addf(t, ",\"scale\":%.17g,\"skipped\":%" PRId64, s->scale, s->skipped);
    if (s->overflowed) str_add(t, ",\"overflowed\":true");
    str_add(t, ",\"samples\":[");
    for (int64_t i = 0; i < s->n; i++) str_addf(t, i ? ",%" PRId64 : "%" PRId64, s->sample[i]);
    str_add(t, "]");
    return put_line(l, e);
}

/* One that could not be flushed is taken back: it is written again. */
static bool put_state(HistoryLog *l, const char *kind, HistoryState s, Err *e) {
    Chain before = l->chain;
    int64_t bytes = l->bytes;
    str_clear(&l->line);
    str_addf(&l->line, "{\"%s\":%" PRId64 ",\"checksum\":\"%016" PRIx64 "\"", kind, s.step, s.checksum);
    if (put_line(l, e) && file_flush(l->fd, l->path, e)) return true;
    l->chain = before;
    l->bytes = bytes;
    return false;
}

bool history_add_state(HistoryLog *l, HistoryState s, Err *e) { return put_state(l, "checkpoint", s, e); }
bool history_add_end(HistoryLog *l, HistoryState s, Err *e) { return put_state(l, "end", s, e); }

bool history_add_update(HistoryLog *l, const HistoryUpdate *u, Err *e) {
    str_clear(&l->line);
    str_addf(&l->line,
             "{\"update\":%" PRId64 ",\"format\":\"%s\",\"norm\":%.9g,\"error\":%.6g,\"checksum\":\"%016" PRIx64 "\"",
             u->step, u->format, u->norm, u->error, u->checksum);
    return put_line(l, e);
}

bool history_flush(HistoryLog *l, Err *e) { return file_flush(l->fd, l->path, e); }

void history_close(HistoryLog *l) {
    if (!l->open) return;
    if (l->fd >= 0) file_close(l->fd);
    json_decref(l->job);
    str_free(&l->line);
    *l = (HistoryLog){0};
}
