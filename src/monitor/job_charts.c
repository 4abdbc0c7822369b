/* job_charts.c - what a job's run folder tells about it: memory over the step from plan.json, losses from the end
 * of metrics.jsonl. Either may be missing or cut short while the job runs: what cannot be read is null. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "monitor/serve.h"

enum { PATH_BYTES = 1200, PLAN_BYTES = 16 << 20, TAIL_BYTES = 4 << 20, POINTS = 400 };

static json_t *memory_over_step(const char *folder) {
    char path[PATH_BYTES];
    Str text = {0};
    snprintf(path, sizeof path, "%s/plan.json", folder);
    json_t *plan = file_read(path, &text, PLAN_BYTES, NULL) ? json_loads(str_text(&text), 0, NULL) : NULL;
    json_t *memory = json_incref(json_object_get(plan, "memory_over_step"));
    json_decref(plan);
    str_free(&text);
    return memory ? memory : json_null();
}

/* Whole lines from the end of the file; false: there are none. */
static bool read_tail(Str *out, const char *path) {
    int fd;
    if (!file_open_read(path, &fd, NULL)) return false;
    int64_t size = file_facts(fd).bytes, n = MIN2(size, TAIL_BYTES), got = 0;
    char *block = mem_alloc(n + 1);
    bool ok = n > 0 && file_seek(fd, size - n, path, NULL) && file_read_some(fd, block, &got, n, path, NULL);
    const char *first = ok && size > n ? strchr(block, '\n') : block; /* the first line may be cut */
    if (ok && first) str_add_bytes(out, first, block + got - first);
    mem_free(block);
    file_close(fd);
    return out->len > 0;
}

static void add_point(json_t *list, const char *line, int len) {
    char text[8192];
    snprintf(text, sizeof text, "%.*s", MIN2(len, (int)sizeof text - 1), line);
    json_t *row = json_loads(text, 0, NULL), *loss = json_object_get(row, "loss"),
           *step = json_object_get(row, "step");
    if (json_is_number(loss) && json_is_integer(step))
        json_array_append_new(list, json_pack("[O, O]", step, loss));
    json_decref(row);
}

/* [step, loss] of the records of that kind, so few that a line can be drawn through them. */
static json_t *losses(const Str *lines, const char *kind) {
    char begin[40];
    json_t *list = json_array();
    int64_t n = 0;
    snprintf(begin, sizeof begin, "{\"kind\": \"%s\",", kind);
    for (const char *at = str_text(lines); (at = strstr(at, begin)); at++) n++;
    int64_t every = MAX2(1, n / POINTS), i = 0;
    for (const char *at = str_text(lines); (at = strstr(at, begin)); at++, i++)
        if (i % every == 0 || i == n - 1) add_point(list, at, (int)strcspn(at, "\n"));
    return list;
}

json_t *job_charts(const JobStatus *s) {
    char path[PATH_BYTES];
    Str lines = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->out);
    read_tail(&lines, path);
    json_t *o = json_pack("{s:i, s:o, s:o, s:o}", "pid", s->pid, "memory", memory_over_step(s->out), "train",
                          losses(&lines, "train"), "eval", losses(&lines, "eval"));
    str_free(&lines);
    return o;
}
