/* results.c - measures as JSON in the layout of lm-evaluation-harness, as a table, and every item as a line. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "suite/suite_int.h"

/* ---- groups: the subjects of MMLU ---- */

typedef struct Group { /* several tasks as one */
    const char *name;
    double value, error;
    int64_t n; /* items; 0: it has no tasks here */
    bool has_error;
} Group;

static bool is_in(const Task *t, const char *group) {
    return group && t->group[0] && (!strcmp(group, "mmlu") || !strcmp(t->group, group));
}

/* The mean of all items, and the pooled standard error of tasks of different sizes. */
static Group group_of(const Suite *s, const char *name) {
    Group g = {.name = name};
    double sum = 0, spread = 0;
    int64_t tasks = 0;
    for (int64_t i = 0; i < s->n_tasks; i++) {
        const Task *t = &s->task[i];
        if (!is_in(t, name)) continue;
        double n = (double)t->n, error = t->measure[0].error;
        sum += t->measure[0].value * n;
        spread += (n - 1) * error * error * n;
        g.n += t->n;
        tasks++;
    }
    if (!g.n) return g;
    g.value = sum / (double)g.n;
    g.has_error = g.n > tasks;
    if (g.has_error) g.error = sqrt(spread / (double)(g.n - tasks) / (double)g.n);
    return g;
}

static Group group_at(const Suite *s, int i) { /* 0: all of MMLU; then its categories; a name of NULL: no more */
    const char *name = i ? task_category_at(i - 1) : "mmlu";
    return name ? group_of(s, name) : (Group){0};
}

/* ---- JSON ---- */

static void set_measure(json_t *to, const char *name, const char *filter, double value, bool has_error, double error) {
    char key[100];
    snprintf(key, sizeof key, "%s,%s", name, filter);
    json_object_set_new(to, key, json_real(value));
    snprintf(key, sizeof key, "%s_stderr,%s", name, filter);
    json_object_set_new(to, key, has_error ? json_real(error) : json_string("N/A"));
}

static const char *alias_of(const Task *t) { /* subjects go without the name of their suite */
    return t->group[0] ? t->name + strlen(t->row->name) + 1 : t->name;
}

static json_t *task_json(const Task *t) {
    json_t *j = json_object();
    json_object_set_new(j, "alias", json_string(alias_of(t)));
    for (int i = 0; i < t->n_measures; i++) {
        const Measure *m = &t->measure[i];
        set_measure(j, m->name, m->filter, m->value, m->has_error, m->error);
    }
    json_object_set_new(j, "sample_len", json_integer(t->n));
    return j;
}

static json_t *group_json(const Group *g) {
    json_t *j = json_object();
    json_object_set_new(j, "alias", json_string(strcmp(g->name, "mmlu") ? g->name + strlen("mmlu_") : g->name));
    set_measure(j, "acc", "none", g->value, g->has_error, g->error);
    json_object_set_new(j, "sample_len", json_integer(g->n));
    return j;
}

static json_t *members_json(const Suite *s, const char *group) {
    json_t *list = json_array();
    for (int i = 1; !strcmp(group, "mmlu") && group_at(s, i).name; i++)
        if (group_at(s, i).n) json_array_append_new(list, json_string(group_at(s, i).name));
    for (int64_t i = 0; strcmp(group, "mmlu") && i < s->n_tasks; i++)
        if (is_in(&s->task[i], group)) json_array_append_new(list, json_string(s->task[i].name));
    return list;
}

static void add_groups(json_t *root, const Suite *s) {
    json_t *groups = json_object(), *members = json_object();
    for (int i = 0; group_at(s, i).name; i++) {
        Group g = group_at(s, i);
        if (!g.n) continue;
        json_object_set_new(groups, g.name, group_json(&g));
        json_object_set_new(json_object_get(root, "results"), g.name, group_json(&g));
        json_object_set_new(members, g.name, members_json(s, g.name));
    }
    if (json_object_size(groups)) json_object_set(root, "groups", groups);
    json_decref(groups);
    json_object_set_new(root, "group_subtasks", members);
}

static json_t *directions_json(const Task *t) {
    json_t *j = json_object();
    for (int i = 0; i < t->n_measures; i++)
        json_object_set_new(j, t->measure[i].name, json_boolean(t->measure[i].higher));
    return j;
}

static json_t *cells_json(const Suite *s) {
    Cell *cell;
    int n = score_cells(&cell, s);
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:I, s:i, s:f, s:I}", "length", (json_int_t)cell[i].length, "depth",
                                              cell[i].depth, "acc", cell[i].value, "n", (json_int_t)cell[i].n));
    mem_free(cell);
    return list;
}

json_t *suite_json(const Suite *s) {
    json_t *root = json_object(), *results = json_object(), *versions = json_object(), *shots = json_object(),
           *better = json_object(), *samples = json_object();
    for (int64_t i = 0; i < s->n_tasks; i++) {
        const Task *t = &s->task[i];
        json_object_set_new(results, t->name, task_json(t));
        json_object_set_new(versions, t->name, json_real(t->row->version));
        json_object_set_new(shots, t->name, json_integer(t->shots));
        json_object_set_new(better, t->name, directions_json(t));
        json_object_set_new(samples, t->name, JSON_COUNTS({"original", t->rows}, {"effective", t->n}));
    }
    json_object_set_new(root, "results", results);
    add_groups(root, s);
    json_object_set_new(root, "versions", versions);
    json_object_set_new(root, "n-shot", shots);
    json_object_set_new(root, "higher_is_better", better);
    json_object_set_new(root, "n-samples", samples);
    if (suite_has_picture(s)) json_object_set_new(root, "needle", cells_json(s));
    return root;
}

/* ---- for people ---- */

static void add_line(Str *out, const char *task, const char *filter, int shots, const char *measure, bool higher,
                     double value, bool has_error, double error) {
    str_addf(out, "%-36s %-16s %6d  %-16s %s %10.4f", task, filter, shots, measure, higher ? "up  " : "down", value);
    if (has_error) str_addf(out, "  +- %.4f", error);
    str_add(out, "\n");
}

void suite_table(Str *out, const Suite *s) {
    str_addf(out, "%-36s %-16s %6s  %-16s %s %10s  %s\n", "task", "filter", "n-shot", "metric", "better", "value",
             "standard error");
    for (int i = 0; group_at(s, i).name; i++) {
        Group g = group_at(s, i);
        int shots = 0;
        for (int64_t k = 0; k < s->n_tasks; k++)
            if (is_in(&s->task[k], g.name)) shots = s->task[k].shots;
        if (g.n) add_line(out, g.name, "none", shots, "acc", true, g.value, g.has_error, g.error);
    }
    for (int64_t i = 0; i < s->n_tasks; i++)
        for (int k = 0; k < s->task[i].n_measures; k++) {
            const Measure *m = &s->task[i].measure[k];
            add_line(out, s->task[i].name, m->filter, s->task[i].shots, m->name, m->higher, m->value, m->has_error,
                     m->error);
        }
}

/* ---- items ---- */

static json_t *piece_json(const Piece *p) {
    json_t *j = json_pack("{s:o}", "prompt_ids", json_ids(p->prompt, p->n_prompt));
    if (!p->n_forced) return j;
    json_object_set_new(j, "ids", json_ids(p->forced, p->n_forced));
    json_object_set_new(j, "logp", json_real(p->logp));
    return j;
}

/* By the name of the filter where there are some, else by that of the measure. */
static void add_scores(json_t *to, const Task *t, const Item *it) {
    json_t *scores = json_object(), *extracted = json_object();
    int n = t->row->kind == TASK_HAYSTACK ? 1 : t->row->kind == TASK_ROLLING ? 0 : t->n_measures;
    for (int k = 0; k < n; k++) {
        const char *filter = t->row->filter[k].name;
        json_object_set_new(scores, filter ? filter : t->measure[k].name, json_real(it->score[k]));
        if (filter) json_object_set_new(extracted, filter, json_string(it->extracted[k]));
    }
    if (n) json_object_set(to, "scores", scores);
    if (json_object_size(extracted)) json_object_set(to, "extracted", extracted);
    json_decref(scores);
    json_decref(extracted);
}

static json_t *item_json(const Suite *s, const Item *it) {
    const Task *t = &s->task[it->task];
    json_t *j = json_object(), *pieces = json_array();
    json_object_set_new(j, "task", json_string(t->name));
    json_object_set_new(j, "doc_id", json_integer(it->doc));
    for (int i = 0; i < it->n; i++) json_array_append_new(pieces, piece_json(&it->piece[i]));
    json_object_set_new(j, "requests", pieces);
    if (t->row->kind <= TASK_BLANK) json_object_set_new(j, "gold", json_integer(it->gold));
    if (it->length) json_object_set_new(j, "length", json_integer(it->length));
    if (it->depth >= 0) json_object_set_new(j, "depth", json_integer(it->depth));
    if (it->answer) json_object_set_new(j, "answer", json_string(it->answer));
    add_scores(j, t, it);
    return j;
}

bool suite_write_items(const Suite *s, const char *path, Err *e) {
    FileOut f;
    if (!file_begin(&f, path, e)) return false;
    bool ok = true;
    for (int64_t i = 0; i < s->n_items && ok; i++) {
        json_t *j = item_json(s, &s->item[i]);
        char *line = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
        ok = file_write(f.fd, line, (int64_t)strlen(line), path, e) && file_write(f.fd, "\n", 1, path, e);
        mem_free(line);
        json_decref(j);
    }
    return file_end(&f, ok, e);
}
