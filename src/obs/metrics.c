/* metrics.c - what a line of metrics.jsonl looks like, and that the file holds whole lines, but for
 * the last one of a process that was killed inside a write; a resumed run drops it. */
#include "obs/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "obs/sensors.h"

enum { LINE_BYTES = 8192, TAG_BYTES = 160 };

typedef struct Line {
    char text[LINE_BYTES];
    int64_t len;
    bool too_long;
} Line;

static void add(Line *line, const char *text) {
    int64_t n = (int64_t)strlen(text);
    line->too_long |= line->len + n >= LINE_BYTES;
    if (line->too_long) return;
    memcpy(line->text + line->len, text, (size_t)n);
    line->len += n;
}

/* Shortest text that reads back to the same number; JSON has no word for what is not finite. */
static void add_real(Line *line, double value) {
    char text[40] = "null";
    for (int digits = 6; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    add(line, text);
}

static void add_integer(Line *line, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add(line, text);
}

static void add_key(Line *line, const char *name) {
    CHECK_MSG(!name[strcspn(name, "\"\\\n")], "a metric is called '%s'", name);
    add(line, line->len > 1 ? ", \"" : "\"");
    add(line, name);
    add(line, "\": ");
}

static bool write_line(Metrics *m, const char *kind, int64_t step, double now, const Metric *fields, int n,
                       Err *e) {
    Line line = {.len = 0};
    add(&line, "{");
    add_key(&line, "kind");
    add(&line, "\"");
    add(&line, kind);
    add(&line, "\"");
    add_key(&line, "step");
    add_integer(&line, step);
    add_key(&line, "time");
    add_real(&line, floor(now * 1e3) / 1e3);
    for (int i = 0; i < n; i++) {
        add_key(&line, fields[i].name);
        if (fields[i].whole)
            add_integer(&line, fields[i].integer);
        else
            add_real(&line, fields[i].real);
    }
    add(&line, "}\n");
    if (line.too_long) return fail(e, ERR_FAIL, "%s: a record of more than %d bytes", m->path, LINE_BYTES);
    if (!file_write(m->fd, line.text, line.len, m->path, e)) {
        if (!file_cut(m->fd, m->bytes, m->path, NULL)) fail_within(e, "half a line remains");
        return false;
    }
    m->bytes += line.len;
    return true;
}

bool metrics_write(Metrics *m, const char *kind, int64_t step, const Metric *fields, int n, Err *e) {
    double now = sensors_wall_seconds();
    char tag[TAG_BYTES];
    int64_t before = m->bytes;
    if (!write_line(m, kind, step, now, fields, n, e)) return false;
    tensorboard_begin(&m->events, now, step);
    for (int i = 0; i < n; i++) {
        snprintf(tag, sizeof tag, "%s/%s", kind, fields[i].name);
        tensorboard_scalar(&m->events, tag, fields[i].whole ? (double)fields[i].integer : fields[i].real);
    }
    if (tensorboard_end(&m->events, e)) return true;
    if (file_cut(m->fd, before, m->path, NULL)) m->bytes = before; /* a record is in both files or in neither */
    return false;
}

/* ---- opening ---- */

static int64_t step_of(const char *line) {
    const char *at = strstr(line, "\"step\": ");
    return at ? strtoll(at + 8, NULL, 10) : 0;
}

/* Where the first line stands that belongs to a later step or was cut short. Steps never fall within a file. */
static bool end_of_step(const Metrics *m, int64_t *end, int64_t step, Err *e) {
    char text[LINE_BYTES + 1], *newline;
    int64_t held = 0, got;
    *end = 0;
    for (;;) {
        if (!file_read_some(m->fd, text + held, &got, LINE_BYTES - held, m->path, e)) return false;
        char *line = text;
        text[held += got] = 0;
        for (; (newline = strchr(line, '\n')); line = newline + 1) {
            *newline = 0;
            if (step_of(line) > step) return true;
            *end += newline - line + 1;
        }
        if (got == 0) return true;
        held -= line - text;
        memmove(text, line, (size_t)held);
    }
}

bool metrics_open(Metrics *m, const char *folder, int64_t resumed_step, Err *e) {
    m->events.fd = -1;
    int n = snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", folder);
    if (n >= (int)sizeof m->path) return fail(e, ERR_FAIL, "%s: the path is too long", folder);
    if (!file_open_append(m->path, &m->fd, e)) return false;
    m->bytes = 0;
    /* Curves of a run that stood there before: TensorBoard would draw them into those of the new one. */
    bool ok = resumed_step > 0 ? end_of_step(m, &m->bytes, resumed_step, e)
                               : file_clear(folder, tensorboard_is_file, e);
    ok = ok && file_cut(m->fd, m->bytes, m->path, e) &&
         tensorboard_open(&m->events, folder, sensors_wall_seconds(), resumed_step, e);
    if (!ok) metrics_close(m);
    return ok;
}

void metrics_close(Metrics *m) {
    file_close(m->fd);
    m->fd = -1;
    tensorboard_close(&m->events);
}
