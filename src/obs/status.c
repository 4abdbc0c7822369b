/* status.c - what the status file of a job looks like, and which of them are of jobs that died. */
#include "obs/status.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "obs/sensors.h"

/* The fields: the same table writes and reads them. */
typedef enum FieldType { TEXT, WHOLE, REAL, PID } FieldType;
typedef struct Field {
    const char *name;
    FieldType type;
    size_t at, size;
} Field;
#define FIELD(name, type) \
    { #name, type, offsetof(JobStatus, name), sizeof(((JobStatus *)0)->name) }
static const Field fields[] = {
    FIELD(pid, PID),           FIELD(start_ticks, WHOLE),
    FIELD(name, TEXT),         FIELD(command, TEXT),
    FIELD(unit, TEXT),         FIELD(tokens, WHOLE),
    FIELD(out, TEXT),          FIELD(device, TEXT),
    FIELD(bus_id, TEXT),       FIELD(planned_bytes, WHOLE),
    FIELD(total_steps, WHOLE), FIELD(began, REAL),
    FIELD(phase, TEXT),        FIELD(updated, REAL),
    FIELD(step, WHOLE),        FIELD(loss, REAL),
    FIELD(tokens_per_s, REAL), FIELD(step_seconds, REAL),
    FIELD(left_seconds, REAL), FIELD(measured_bytes, WHOLE),
};

enum { FILE_BYTES = 16384, NUMBER_BYTES = 40 };

void status_init(JobStatus *s) {
    *s = (JobStatus){.loss = NAN, .tokens_per_s = NAN, .step_seconds = NAN, .left_seconds = NAN};
}

/* ---- writing ---- */

typedef struct Text {
    char data[FILE_BYTES];
    int len;
} Text;

static void add(Text *t, const char *bytes, int n) {
    if (t->len + n >= FILE_BYTES) return; /* the longest status is shorter */
    memcpy(t->data + t->len, bytes, (size_t)n);
    t->len += n;
}

/* A byte that is no UTF-8, as in the name of a folder, is no JSON either: it becomes '?'. */
static void add_quoted(Text *t, const char *text) {
    add(t, "\"", 1);
    utf8proc_int32_t c;
    for (utf8proc_ssize_t n; *text; text += MAX2(n, 1)) {
        char escape[8];
        n = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &c);
        bool special = n > 0 && (c < 0x20 || c == '"' || c == '\\' || c == 0x7f);
        int len = special ? snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c) : (int)n;
        add(t, n < 1 ? "?" : special ? escape : text, n < 1 ? 1 : len);
    }
    add(t, "\"", 1);
}

static void add_field(Text *t, const JobStatus *s, const Field *f) {
    const char *value = (const char *)s + f->at;
    char number[NUMBER_BYTES] = "null";
    double real;
    memcpy(&real, value, MIN2(f->size, sizeof real));
    if (f->type == TEXT) {
        add_quoted(t, value);
        return;
    }
    if (f->type == WHOLE)
        snprintf(number, sizeof number, "%lld", (long long)*(const int64_t *)(const void *)value);
    else if (f->type == PID)
        snprintf(number, sizeof number, "%d", *(const int *)(const void *)value);
    else if (isfinite(real))
        snprintf(number, sizeof number, "%.15g", real);
    add(t, number, (int)strlen(number));
}

void status_put(JobStatus *s) {
    if (!s->path[0]) return;
    Text t = {.len = 0};
    s->updated = sensors_wall_seconds();
    for (int i = 0; i < COUNT_OF(fields); i++) {
        add(&t, i ? ", \"" : "{\"", i ? 3 : 2);
        add(&t, fields[i].name, (int)strlen(fields[i].name));
        add(&t, "\": ", 3);
        add_field(&t, s, &fields[i]);
    }
    add(&t, "}\n", 2);
    if (file_replace(s->path, t.data, t.len, NULL)) return;
    char folder[sizeof s->path]; /* a system may take it away when its user logs out */
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(s->path, '/') - s->path), s->path);
    if (file_make_private(folder, NULL)) file_replace(s->path, t.data, t.len, NULL);
}

void status_phase(JobStatus *s, const char *phase) {
    if (!s) return;
    snprintf(s->phase, sizeof s->phase, "%s", phase);
    status_put(s);
}

static bool is_older(const JobStatus *s, double seconds) {
    return s->path[0] && !fault_counts() && sensors_wall_seconds() - s->updated >= seconds;
}

void status_update(JobStatus *s, const char *phase) {
    static const double seconds = 0.1;
    if (s && (is_older(s, seconds) || strcmp(s->phase, phase))) status_phase(s, phase);
}

bool status_is_due(const JobStatus *s) {
    static const double seconds = 1;
    return s && is_older(s, seconds);
}

void status_count(JobStatus *s, int64_t done, int64_t total, double left_seconds) {
    if (!s) return;
    s->step = done;
    s->total_steps = total;
    s->left_seconds = left_seconds < 0 ? NAN : left_seconds;
}

void status_tokens(JobStatus *s, int64_t tokens, int64_t taken_bytes) {
    double seconds = sensors_wall_seconds() - s->updated;
    if (tokens > s->tokens && seconds > 0) s->tokens_per_s = (double)(tokens - s->tokens) / seconds;
    s->tokens = tokens;
    s->measured_bytes = taken_bytes;
    status_put(s);
}

/* A file for each run folder: the next run in it takes the file of one that died over. */
static uint64_t hash_of(const char *out) { /* FNV-1a */
    uint64_t h = 0xcbf29ce484222325u;
    for (; *out; out++) h = (h ^ (unsigned char)*out) * 0x100000001b3u;
    return h;
}

void status_begin(JobStatus *s, const char *folder) {
    ProcessFacts self;
    if (!file_make_private(folder, NULL) || !process_facts(&self, (int)getpid())) return;
    s->pid = self.pid;
    s->start_ticks = self.start_ticks;
    s->began = sensors_wall_seconds();
    char own[24];
    snprintf(own, sizeof own, "%d", s->pid);
    unsigned long long key = hash_of(s->out[0] ? s->out : own);
    int n = snprintf(s->path, sizeof s->path, "%s/%016llx.json", folder, key);
    if (n >= (int)sizeof s->path) s->path[0] = 0;
    status_put(s);
}

void status_end(JobStatus *s) {
    if (s->path[0]) file_remove_tree(s->path, NULL);
    s->path[0] = 0;
}

/* ---- reading ---- */

static void read_field(JobStatus *s, const Field *f, const json_t *value) {
    char *to = (char *)s + f->at;
    if (f->type == TEXT && json_is_string(value)) snprintf(to, f->size, "%s", json_string_value(value));
    if (f->type == WHOLE && json_is_integer(value)) *(int64_t *)(void *)to = json_integer_value(value);
    if (f->type == PID && json_is_integer(value)) *(int *)(void *)to = (int)json_integer_value(value);
    if (f->type == REAL && json_is_number(value)) *(double *)(void *)to = json_number_value(value);
}

static bool read_status(JobStatus *s, const char *folder, const char *file) { /* false: no status */
    Str text = {0};
    status_init(s);
    int n = snprintf(s->path, sizeof s->path, "%s/%s", folder, file);
    bool ok = n < (int)sizeof s->path && file_read(s->path, &text, FILE_BYTES, NULL);
    json_t *root = ok ? json_loads(str_text(&text), 0, NULL) : NULL;
    for (int i = 0; i < COUNT_OF(fields) && root; i++)
        read_field(s, &fields[i], json_object_get(root, fields[i].name));
    json_decref(root);
    str_free(&text);
    return s->pid > 0;
}

bool status_is_alive(const JobStatus *s) {
    ProcessFacts now;
    return process_facts(&now, s->pid) && now.start_ticks == s->start_ticks && !now.ended;
}

static int by_pid(const void *a, const void *b) {
    return ((const JobStatus *)a)->pid - ((const JobStatus *)b)->pid;
}

int status_list(JobStatus *list, int room, const char *folder) {
    char **names = NULL;
    int64_t count = 0;
    int n = 0;
    if (!file_list(folder, &names, &count, NULL)) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (n < room && str_ends(names[i], ".json") && read_status(&list[n], folder, names[i])) n++;
        mem_free(names[i]);
    }
    mem_free(names);
    qsort(list, (size_t)n, sizeof *list, by_pid);
    return n;
}
