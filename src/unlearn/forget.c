/* forget.c - how a forget set is written down. */
#include "unlearn/forget.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/source.h"

enum { FILE_BYTES = 1 << 30 };

static bool add(ForgetSet *f, int64_t *capacity, int64_t sample, int64_t rows, const char *where, Err *e) {
    if (sample < 0 || sample >= rows)
        return fail(e, ERR_FAIL,
                    "--forget %s: there is no sample %" PRId64 "; the run was trained on samples 0 to %" PRId64,
                    where, sample, rows - 1);
    f->sample = mem_grow(f->sample, capacity, f->n + 1, sizeof *f->sample);
    f->sample[f->n++] = sample;
    return true;
}

/* ---- the forms ---- */

static bool read_split(ForgetSet *f, const char *name, int64_t rows, bool *is_split, Err *e) {
    static const struct {
        const char *name;
        int64_t n;
    } splits[] = {{"forget01", 40}, {"forget05", 200}, {"forget10", 400}};
    int64_t capacity = 0, n = 0;
    for (int i = 0; i < COUNT_OF(splits); i++)
        if (!strcmp(name, splits[i].name)) n = splits[i].n;
    *is_split = n > 0 && !file_exists(name);
    if (!*is_split) return true;
    if (rows != TOFU_SAMPLES)
        return fail(e, ERR_FAIL,
                    "--forget %s: is the last %" PRId64 " of TOFU's %d samples, and this run was trained on %" PRId64
                    ". Give a file of sample numbers",
                    name, n, TOFU_SAMPLES, rows);
    for (int64_t i = rows - n; i < rows; i++)
        if (!add(f, &capacity, i, rows, name, e)) return false;
    return true;
}

static bool read_list(ForgetSet *f, const json_t *list, int64_t rows, const char *path, Err *e) {
    int64_t capacity = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v))
            return fail(e, ERR_FAIL, "--forget %s: element %zu of the list is not a whole number", path, i);
        if (!add(f, &capacity, json_integer_value(v), rows, path, e)) return false;
    }
    return true;
}

static bool read_lines(ForgetSet *f, const char *text, int64_t rows, const char *path, Err *e) {
    int64_t capacity = 0, line = 1;
    for (const char *at = text; *at; line++) {
        char *end;
        errno = 0;
        int64_t sample = strtoll(at, &end, 10);
        bool found = end != at && !errno;
        at = found ? end : at;
        at += strspn(at, " \t\r");
        if (*at && *at != '\n')
            return fail(e, ERR_FAIL,
                        "--forget %s:%" PRId64
                        ": is not a sample number. The file holds a JSON list, or a number a line",
                        path, line);
        at += *at == '\n';
        if (found && !add(f, &capacity, sample, rows, path, e)) return false;
    }
    return true;
}

static bool read_file(ForgetSet *f, const char *path, int64_t rows, Err *e) {
    Str text = {0};
    if (!file_exists(path))
        return fail(e, ERR_FAIL, "--forget %s: is neither a file nor one of forget01, forget05, forget10", path);
    if (!source_read_text(path, &text, FILE_BYTES, e)) return false;
    const char *begin = str_text(&text) + str_mark(str_text(&text), text.len);
    while (isspace((unsigned char)*begin)) begin++;
    json_error_t where = {0};
    json_t *list = *begin == '[' ? json_loads(begin, 0, &where) : NULL;
    bool ok = *begin != '[' ? read_lines(f, begin, rows, path, e)
              : list        ? read_list(f, list, rows, path, e)
                            : fail(e, ERR_FAIL, "--forget %s:%d: is not JSON: %s", path, where.line, where.text);
    json_decref(list);
    str_free(&text);
    return ok;
}

/* ---- the steps ---- */

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool is_seen(const ForgetSet *f, const HistoryStep *by) {
    bool hit = false;
    for (int64_t i = 0; i < by->n; i++) hit |= f->removed[by->sample[i]];
    return hit;
}

static void find_steps(ForgetSet *f, const History *h) {
    int64_t capacity = 0;
    for (int64_t s = 0; s < h->n_steps; s++) {
        if (!is_seen(f, &h->step[s])) continue;
        f->step = mem_grow(f->step, &capacity, f->n_steps + 1, sizeof *f->step);
        f->step[f->n_steps++] = s;
    }
}

bool forget_open(ForgetSet *f, const char *text, int64_t rows, const History *h, Err *e) {
    bool is_split;
    *f = (ForgetSet){.removed = MEM_NEW(bool, rows)};
    if (!read_split(f, text, rows, &is_split, e) || (!is_split && !read_file(f, text, rows, e))) return false;
    if (!f->n)
        return fail(e, ERR_FAIL, "--forget %s: names no sample. A file holds a JSON list, or a number a line",
                    text);
    for (int64_t i = 0; i < f->n; i++) f->removed[f->sample[i]] = true;
    qsort(f->sample, (size_t)f->n, sizeof *f->sample, ascending);
    int64_t kept = 1;
    for (int64_t i = 1; i < f->n; i++)
        if (f->sample[i] != f->sample[kept - 1]) f->sample[kept++] = f->sample[i];
    f->n = kept;
    if (!h) return true;
    find_steps(f, h);
    return f->n_steps > 0 ||
           fail(e, ERR_FAIL,
                "--forget %s: no update of the run saw any of these samples; there is nothing to take out", text);
}

void forget_leave_out(ForgetSet *f, const ForgetSet *earlier, const History *h, bool whole_steps) {
    int64_t samples = 0, steps = 0, gone = 0;
    for (int64_t i = 0; i < f->n; i++) {
        int64_t sample = f->sample[i];
        f->removed[sample] = !earlier->removed[sample];
        if (f->removed[sample]) f->sample[samples++] = sample;
    }
    f->n = samples;
    for (int64_t i = 0; i < f->n_steps; i++) {
        int64_t s = f->step[i];
        while (gone < earlier->n_steps && earlier->step[gone] < s) gone++;
        bool taken = whole_steps && gone < earlier->n_steps && earlier->step[gone] == s;
        if (!taken && is_seen(f, &h->step[s])) f->step[steps++] = s;
    }
    f->n_steps = steps;
}

void forget_free(ForgetSet *f) {
    mem_free(f->sample);
    mem_free(f->removed);
    mem_free(f->step);
    *f = (ForgetSet){0};
}
