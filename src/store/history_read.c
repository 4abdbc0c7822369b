/* history_read.c - what a line of a step log must hold to be believed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/history.h"
#include "store/safetensors.h"

static bool get_int(const json_t *line, const char *key, int64_t *out, Err *e) {
    const json_t *v = json_object_get(line, key);
    *out = json_integer_value(v);
    return (json_is_integer(v) && *out >= 0) || fail(e, ERR_FAIL, "\"%s\" is not a number from 0", key);
}

static bool get_hex(const json_t *line, const char *key, uint64_t *out, Err *e) {
    const char *text = json_string_value(json_object_get(line, key));
    char *end = NULL;
    *out = text ? strtoull(text, &end, 16) : 0;
    return (text && strlen(text) == 16 && !*end) || fail(e, ERR_FAIL, "\"%s\" is not 16 hexadecimal digits", key);
}

static bool take_samples(History *h, HistoryStep *s, const json_t *line, Err *e) {
    const json_t *list = json_object_get(line, "samples");
    s->n = (int64_t)json_array_size(list);
    if (!json_is_array(list)) return fail(e, ERR_FAIL, "has no \"samples\"");
    h->sample = mem_grow(h->sample, &h->samples_capacity, h->n_samples + s->n, sizeof *h->sample);
    for (int64_t i = 0; i < s->n; i++)
        h->sample[h->n_samples + i] = json_integer_value(json_array_get(list, (size_t)i));
    h->n_samples += s->n;
    return true;
}

static bool take_step(History *h, const json_t *line, Err *e) {
    HistoryStep s = {.scale = 1, .overflowed = json_is_true(json_object_get(line, "overflowed"))};
    if (!get_int(line, "step", &s.step, e) || !get_int(line, "epoch", &s.epoch, e) ||
        !get_int(line, "row", &s.row, e) || !get_hex(line, "key", &s.key, e) || !take_samples(h, &s, line, e))
        return false;
    s.lr = json_number_value(json_object_get(line, "lr"));
    if (json_object_get(line, "scale")) s.scale = json_number_value(json_object_get(line, "scale"));
    s.skipped = json_integer_value(json_object_get(line, "skipped"));
    if (s.step != h->n_steps || h->ended)
        return fail(e, ERR_FAIL, "is step %" PRId64 ", and step %" PRId64 " was to follow", s.step, h->n_steps);
    h->step = mem_grow(h->step, &h->steps_capacity, h->n_steps + 1, sizeof *h->step);
    h->step[h->n_steps++] = s;
    return true;
}

static bool take_state(History *h, const json_t *line, const char *kind, Err *e) {
    HistoryState s;
    if (!get_int(line, kind, &s.step, e) || !get_hex(line, "checksum", &s.checksum, e)) return false;
    if (s.step != h->n_steps || h->ended)
        return fail(e, ERR_FAIL, "is about step %" PRId64 " and stands elsewhere", s.step);
    if (!strcmp(kind, "end")) {
        h->ended = true;
        h->checksum = s.checksum;
        return true;
    }
    h->state = mem_grow(h->state, &h->states_capacity, h->n_states + 1, sizeof *h->state);
    h->state[h->n_states++] = s;
    return true;
}

static bool take_update(History *h, const json_t *line, Err *e) {
    HistoryUpdate u = {.norm = json_number_value(json_object_get(line, "norm")),
                       .error = json_number_value(json_object_get(line, "error"))};
    const char *format = json_string_value(json_object_get(line, "format"));
    if (!get_int(line, "update", &u.step, e) || !get_hex(line, "checksum", &u.checksum, e)) return false;
    if (!format || strlen(format) >= sizeof u.format) return fail(e, ERR_FAIL, "has no \"format\"");
    snprintf(u.format, sizeof u.format, "%s", format);
    bool again = h->n_updates && h->update[h->n_updates - 1].step == u.step;
    if (u.step != h->n_steps - 1 || again || h->ended)
        return fail(e, ERR_FAIL, "is update %" PRId64 " and stands elsewhere", u.step);
    h->update = mem_grow(h->update, &h->updates_capacity, h->n_updates + 1, sizeof *h->update);
    h->update[h->n_updates++] = u;
    return true;
}

static bool take_header(History *h, const json_t *line, Err *e) {
    json_t *job = json_object_get(line, "job");
    if (json_integer_value(json_object_get(line, "snug_step_log")) != 2 || !json_is_object(job))
        return fail(e, ERR_FAIL, "is not the first line of a step log");
    h->job = json_incref(job);
    return get_int(line, "stride", &h->stride, e);
}

static bool take_line(History *h, const char *text, int64_t bytes, Err *e) {
    json_t *line = json_loadb(text, (size_t)bytes, 0, NULL);
    if (!line) return fail(e, ERR_FAIL, "is not JSON");
    bool ok = chain_check(&h->chain, text, bytes, e);
    if (ok)
        ok = !h->job                               ? take_header(h, line, e)
             : json_object_get(line, "step")       ? take_step(h, line, e)
             : json_object_get(line, "update")     ? take_update(h, line, e)
             : json_object_get(line, "checkpoint") ? take_state(h, line, "checkpoint", e)
                                                   : take_state(h, line, "end", e);
    json_decref(line);
    return ok;
}

/* The lists may have moved while they grew. */
static void point_at_samples(History *h) {
    int64_t at = 0;
    for (int64_t i = 0; i < h->n_steps; at += h->step[i++].n) h->step[i].sample = h->sample + at;
}

bool history_read(History *h, const char *folder, Err *e) {
    char path[1100];
    Str text = {0};
    *h = (History){0};
    snprintf(h->folder, sizeof h->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/steps.jsonl", folder);
    if (!file_read(path, &text, 0, e)) return false;
    bool ok = true;
    int64_t number = 1;
    for (const char *end; ok && h->bytes < text.len; h->bytes = end + 1 - text.data, number++) {
        const char *line = text.data + h->bytes;
        end = memchr(line, '\n', (size_t)(text.len - h->bytes));
        if (!end) break; /* half a line, left by a kill */
        ok = take_line(h, line, end - line, e) || fail_within(e, "%s:%" PRId64, path, number);
    }
    if (ok && !h->job) ok = fail(e, ERR_FAIL, "%s: is empty: no step log, or one that was cut short", path);
    str_free(&text);
    point_at_samples(h);
    if (!ok) history_free(h);
    return ok;
}

/* ---- the states beside the lines ---- */

typedef struct StateShape { /* what the headers of a state's files say */
    int64_t tensors, bytes;
} StateShape;

static bool add_shape(StateShape *to, const char *path, Err *e) {
    StSet s;
    if (!st_open(&s, path, e)) return false;
    to->tensors += s.n;
    to->bytes += s.total_bytes;
    st_close(&s);
    return true;
}

bool history_check_states(const History *h, Err *e) {
    StateShape first = {0};
    for (int64_t i = 0; i < h->n_states; i++) {
        char folder[1024], file[1100];
        StateShape shape = {0};
        if (!history_state_path(folder, sizeof folder, h->folder, h->state[i].step, e)) return false;
        snprintf(file, sizeof file, "%s/optimizer.safetensors", folder);
        if (!add_shape(&shape, folder, e) || !add_shape(&shape, file, e))
            return fail_within(e, "step log %s: a state that it names cannot be used", h->folder);
        if (!i) first = shape;
        if (shape.tensors != first.tensors || shape.bytes != first.bytes)
            return fail(e, ERR_FAIL,
                        "step log %s: %s holds %" PRId64 " tensors of %" PRId64
                        " bytes, and the states before it %" PRId64 " of %" PRId64 ". Was a file of the log changed?",
                        h->folder, folder, shape.tensors, shape.bytes, first.tensors, first.bytes);
    }
    return true;
}

json_t *history_read_job(const char *folder) {
    enum { LINE_BYTES = 1 << 16 };
    char path[1100], *line = mem_alloc(LINE_BYTES);
    int fd;
    int64_t got = 0;
    Err unreadable = {0};
    json_t *job = NULL;
    snprintf(path, sizeof path, "%s/steps.jsonl", folder);
    if (file_open_read(path, &fd, &unreadable)) {
        bool ok = file_read_some(fd, line, &got, LINE_BYTES, path, &unreadable);
        const char *end = ok ? memchr(line, '\n', (size_t)got) : NULL;
        json_t *first = end ? json_loadb(line, (size_t)(end - line), 0, NULL) : NULL;
        job = json_incref(json_object_get(first, "job"));
        json_decref(first);
        file_close(fd);
    }
    mem_free(line);
    return job;
}

bool history_has_ended(const char *folder) {
    History h;
    Err unreadable = {0};
    if (!history_read(&h, folder, &unreadable)) return false;
    bool ended = h.ended;
    history_free(&h);
    return ended;
}

void history_free(History *h) {
    json_decref(h->job);
    mem_free(h->step);
    mem_free(h->sample);
    mem_free(h->state);
    mem_free(h->update);
    *h = (History){0};
}

bool history_check_job(const History *h, const json_t *job, Err *e) {
    const char *key;
    json_t *value;
    for (int turn = 0; turn < 2; turn++) { /* what is here, then what only the log says */
        json_object_foreach(turn ? h->job : (json_t *)job, key, value) {
            const char *there = json_string_value(json_object_get(h->job, key)),
                       *here = json_string_value(json_object_get(job, key));
            if (there && here && !strcmp(there, here)) continue;
            return fail(e, ERR_FAIL, "step log %s: belongs to another run: %s is %s there, %s here", h->folder, key,
                        there ? there : "not set", here ? here : "not set");
        }
    }
    return true;
}

const HistoryUpdate *history_update_of(const History *h, int64_t step) {
    int64_t low = 0, high = h->n_updates;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (h->update[middle].step < step) low = middle + 1;
        else high = middle;
    }
    return low < h->n_updates && h->update[low].step == step ? &h->update[low] : NULL;
}

const HistoryState *history_state_before(const History *h, int64_t step) {
    const HistoryState *found = NULL;
    for (int64_t i = 0; i < h->n_states && h->state[i].step <= step; i++) found = &h->state[i];
    return found;
}
