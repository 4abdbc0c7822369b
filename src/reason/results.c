/* results.c - which files are written in which order, and how ranks' parts become one. */
#include "reason/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "reason/journal.h"
#include "reason/report.h"
#include "store/jsonfile.h"

enum { PATH_ROOM = 1100 };

/* ---- one file at a time, a record at a time ---- */

typedef enum Kind { KIND_JSON, KIND_CSV, KIND_HTML } Kind;

static bool add_record(Str *out, const Results *r, Kind kind, const json_t *record, bool first, Err *e) {
    if (kind == KIND_CSV) report_csv_row(out, r->rubric, record);
    if (kind == KIND_HTML) report_html_item(out, r->rubric, record);
    if (kind != KIND_JSON) return true;
    str_addf(out, "%s\n", first ? "" : ",");
    return json_add(out, record, JSON_DIGITS) ||
           fail(e, ERR_FAIL, "%s: a record could not be written as JSON", r->out);
}

static bool write_records(FileOut *f, const Results *r, Kind kind, Tally *sum, Str *text, Err *e) {
    for (int64_t i = 0; i < r->n; i++) {
        json_t *record = r->at(r->user, i);
        bool ok = record ? add_record(text, r, kind, record, i == 0, e)
                         : fail(e, ERR_FAIL, "%s: record %lld holds text that is not UTF-8", r->out, (long long)i);
        if (ok && sum) tally_add(sum, record);
        json_decref(record);
        if (!ok || !file_write(f->fd, text->data, text->len, f->temporary, e)) return false;
        str_clear(text);
    }
    return true;
}

/* head and tail stand around the records; sum: counts them on the way. */
static bool write_file(const char *path, const Results *r, Kind kind, const Str *head, const char *tail,
                       Tally *sum, Err *e) {
    FileOut f;
    Str text = {0};
    if (!file_begin(&f, path, e)) return false;
    bool ok = file_write(f.fd, str_text(head), head->len, f.temporary, e) &&
              write_records(&f, r, kind, sum, &text, e) &&
              file_write(f.fd, tail, (int64_t)strlen(tail), f.temporary, e);
    str_free(&text);
    return file_end(&f, ok, e);
}

static void beside(char *to, const char *out, const char *suffix) { /* FILE.json -> FILE.csv */
    int n = (int)strlen(out) - (str_ends(out, ".json") ? 5 : 0);
    snprintf(to, PATH_ROOM, "%.*s%s", n, out, suffix);
}

bool results_write(const Results *r, Tally *t, Err *e) {
    char csv[PATH_ROOM], html[PATH_ROOM];
    Str head = {0}, tail = {0};
    beside(csv, r->out, ".csv");
    beside(html, r->out, ".html");
    tally_begin(t, r->rubric);
    report_csv_head(&head, r->rubric);
    bool ok = write_file(csv, r, KIND_CSV, &head, "", t, e);
    str_clear(&head);
    report_html_head(&head, t, r->facts);
    report_html_tail(&tail);
    ok = ok && write_file(html, r, KIND_HTML, &head, str_text(&tail), NULL, e);
    str_clear(&head);
    str_add_char(&head, '[');
    ok = ok && write_file(r->out, r, KIND_JSON, &head, "\n]\n", NULL, e);
    str_free(&head), str_free(&tail);
    return ok;
}

/* ---- ranks ---- */

void results_rank_path(char *to, int64_t room, const char *out, int rank) {
    snprintf(to, (size_t)room, "%s.rank-%d", out, rank);
}

bool results_write_rank(const Results *r, Tally *t, const json_t *job, int rank, int ranks, Err *e) {
    char path[PATH_ROOM];
    Str head = {0};
    json_t *about = json_pack("{s:O, s:i, s:i, s:f, s:O}", "job", job, "rank", rank, "ranks", ranks, "threshold",
                              r->rubric->threshold, "facts", r->facts);
    bool ok = json_add(&head, about, JSON_ALL_DIGITS);
    json_decref(about);
    if (!ok) return fail(e, ERR_FAIL, "%s: what it is about could not be written as JSON", r->out);
    head.len--; /* without its brace */
    str_add(&head, ",\"records\":[");
    tally_begin(t, r->rubric);
    results_rank_path(path, sizeof path, r->out, rank);
    ok = write_file(path, r, KIND_JSON, &head, "\n]}\n", t, e);
    str_free(&head);
    return ok;
}

bool results_has_rank(bool *has, const char *out, const json_t *job, int rank, Err *e) {
    char path[PATH_ROOM];
    json_t *part;
    results_rank_path(path, sizeof path, out, rank);
    *has = file_exists(path);
    if (!*has) return true;
    if (!jsonfile_read(&part, path, 0, e)) return false;
    bool same = joblog_same_job(path, json_object_get(part, "job"), job, e);
    json_decref(part);
    return same;
}

/* ---- merging ---- */

typedef struct Parts {
    json_t **part; /* owns */
    int n;
    int at;        /* the part that holds the record asked for last */
    int64_t first; /* number of that part's first record */
} Parts;

static json_t *merged_record(void *user, int64_t i) {
    Parts *p = user;
    if (i == 0) p->at = 0, p->first = 0;
    for (;; p->at++) {
        const json_t *list = json_object_get(p->part[p->at], "records");
        int64_t n = (int64_t)json_array_size(list);
        if (i < p->first + n) return json_incref(json_array_get(list, (size_t)(i - p->first)));
        p->first += n;
    }
}

/* The same job, but for the rank. */
static bool check_part(const char *path, const json_t *first, const json_t *part, int rank, int ranks, Err *e) {
    if (!json_is_array(json_object_get(part, "records")) ||
        json_integer_value(json_object_get(part, "rank")) != rank ||
        json_integer_value(json_object_get(part, "ranks")) != ranks)
        return fail(e, ERR_FAIL, "%s: is not the part of rank %d of %d", path, rank, ranks);
    json_t *a = json_copy(json_object_get(part, "job")), *b = json_copy(json_object_get(first, "job"));
    json_object_del(a, "rank");
    json_object_del(b, "rank");
    bool same = joblog_same_job(path, a, b, e);
    json_decref(a), json_decref(b);
    return same;
}

static bool read_parts(Parts *p, const char *out, int ranks, Err *e) {
    char path[PATH_ROOM];
    *p = (Parts){.part = MEM_NEW(json_t *, ranks)};
    for (int i = 0; i < ranks; i++) {
        results_rank_path(path, sizeof path, out, i);
        if (!jsonfile_read(&p->part[i], path, 0, e)) return false;
        p->n++;
        if (!check_part(path, p->part[0], p->part[i], i, ranks, e)) return false;
    }
    return true;
}

static json_t *merged_facts(const Parts *p) { /* the first part's, then how each one ran */
    static const char *const own[] = {"speed", "memory"};
    json_t *facts = json_deep_copy(json_object_get(p->part[0], "facts"));
    if (!facts) facts = json_object();
    for (int k = 0; k < COUNT_OF(own); k++) json_object_del(facts, own[k]);
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < COUNT_OF(own); k++) {
            char label[60];
            json_t *text = json_object_get(json_object_get(p->part[i], "facts"), own[k]);
            snprintf(label, sizeof label, "%s of rank %d", own[k], i);
            if (text) json_object_set(facts, label, text);
        }
    }
    return facts;
}

static bool write_merged(Parts *p, const char *out, Tally *t, Err *e) {
    Rubric rubric = rubric_default();
    json_t *facts = merged_facts(p);
    Results r = {.out = out, .rubric = &rubric, .facts = facts, .at = merged_record, .user = p};
    rubric.threshold = json_number_value(json_object_get(p->part[0], "threshold"));
    for (int i = 0; i < p->n; i++) r.n += (int64_t)json_array_size(json_object_get(p->part[i], "records"));
    bool ok = results_write(&r, t, e);
    json_decref(facts);
    return ok;
}

static bool remove_parts(const char *out, int ranks, Err *e) { /* the first one, which is locked, last */
    char path[PATH_ROOM];
    for (int i = ranks - 1; i >= 0; i--) {
        results_rank_path(path, sizeof path, out, i);
        if (!file_remove_tree(path, e)) return false;
    }
    return true;
}

static int missing_rank(const char *out, int ranks) { /* -1: all are there */
    char path[PATH_ROOM];
    for (int i = 0; i < ranks; i++) {
        results_rank_path(path, sizeof path, out, i);
        if (!file_exists(path)) return i;
    }
    return -1;
}

static bool merge_locked(const char *out, bool *merged, int *missing, Tally *t, Err *e) {
    char path[PATH_ROOM];
    json_t *first;
    Parts p;
    results_rank_path(path, sizeof path, out, 0);
    if (!file_exists(path)) return true; /* another process has just merged */
    if (!jsonfile_read(&first, path, 0, e)) return false;
    int ranks = (int)json_integer_value(json_object_get(first, "ranks"));
    json_decref(first);
    if (ranks < 1) return fail(e, ERR_FAIL, "%s: is not the part of a rank", path);
    *missing = missing_rank(out, ranks);
    if (*missing >= 0) return true;
    bool ok = read_parts(&p, out, ranks, e) && write_merged(&p, out, t, e);
    for (int i = 0; i < p.n; i++) json_decref(p.part[i]);
    mem_free(p.part);
    *merged = ok;
    return ok && remove_parts(out, ranks, e);
}

/* Whoever finds a part missing looks once more after letting go: the rank that brought it may have found the lock
 * held. */
bool results_merge(const char *out, bool *merged, int *missing, Tally *t, Err *e) {
    char path[PATH_ROOM];
    bool ok = true;
    *merged = false;
    do {
        RunLock lock;
        results_rank_path(path, sizeof path, out, 0);
        *missing = 0;
        if (!file_exists(path)) return true;
        *missing = -1;
        if (!runlock_take_file(&lock, path, e)) {
            if (!lock.busy && file_exists(path)) return false;
            *e = (Err){0};
            return true;
        }
        ok = merge_locked(out, merged, missing, t, e);
        runlock_release(&lock);
        if (*missing >= 0) results_rank_path(path, sizeof path, out, *missing);
    } while (ok && *missing >= 0 && file_exists(path));
    return ok;
}
