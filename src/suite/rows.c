/* rows.c - where the rows of a task lie, which of them are few-shot examples, and how a row becomes an item.
 *
 * A row is read, rendered and encoded before the next one is read: only ids are kept. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/work.h"
#include "data/field.h"
#include "data/rows.h"
#include "suite/mt.h"
#include "suite/suite_int.h"

enum { SHOT_SEED = 1234 }; /* the harness's, of drawn examples */

typedef struct Shots { /* rows that may stand before an item, as they stand there */
    Arena arena;
    const char **text, **subject; /* owns the lists; the texts lie in the arena */
    uint64_t *row;                /* owns: their fields, as a number */
    int64_t n, capacity;
} Shots;

typedef struct TaskFile { /* the rows of one task, or of tasks by subject */
    const TaskRow *row;
    char path[1200], shots_path[1200];
    const char *subject; /* of all rows; NULL: by their fields, or the task has none */
    TaskTexts texts;
    Shots shots;
    int n_shots;
    Mt draw; /* goes on from item to item */
} TaskFile;

static uint64_t row_number(const json_t *row) {
    char *text = json_dumps(row, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t number = rng_fold_text(0, text);
    mem_free(text);
    return number;
}

/* Calls `take` for each row until it says that it has enough. */
typedef bool TakeRow(void *user, const json_t *row, bool *enough, Err *e);
static bool each_row(const char *path, TakeRow *take, void *user, Err *e) {
    RowReader r;
    Work w;
    int64_t bytes = 0;
    bool ok = true, enough = false;
    if (!file_size(path, &bytes, e) || !dataset_reader_open(&r, path, e)) return false;
    work_begin(&w, WORK_BYTES, bytes, "reading %s", path);
    while (ok && !enough) {
        json_t *row = NULL;
        ok = work_on(&w, dataset_reader_at(&r), e) && dataset_reader_next(&r, &row, e);
        if (!ok || !row) break;
        ok = take(user, row, &enough, e);
        json_decref(row);
        if (!ok) fail_within(e, "%s:%lld", path, (long long)r.row_line);
    }
    work_end(&w);
    dataset_reader_close(&r);
    return ok;
}

/* ---- few-shot examples ---- */

static bool take_shot(void *user, const json_t *row, bool *enough, Err *e) {
    TaskFile *f = user;
    Shots *s = &f->shots;
    Rendered r;
    Str text = {0};
    if (!texts_render(&f->texts, f->row, &r, row, e)) return false;
    rendered_example(&text, f->row, &r);
    rendered_free(&r);
    const char *subject = f->row->subject ? json_string_value(field_get(row, f->row->subject)) : NULL;
    int64_t room = s->capacity, also = room;
    s->text = mem_grow(s->text, &room, s->n + 1, sizeof *s->text);
    s->subject = mem_grow(s->subject, &also, s->n + 1, sizeof *s->subject);
    s->row = mem_grow(s->row, &s->capacity, s->n + 1, sizeof *s->row);
    s->text[s->n] = arena_strdup(&s->arena, str_text(&text));
    s->subject[s->n] = subject ? arena_strdup(&s->arena, subject) : NULL;
    s->row[s->n++] = row_number(row);
    str_free(&text);
    *enough = f->row->first_shots && !f->row->subject && s->n == f->n_shots;
    return true;
}

static int64_t shots_bytes(const Shots *s) {
    return s->arena.used_bytes + s->capacity * (int64_t)(sizeof *s->text + sizeof *s->subject + sizeof *s->row);
}

static void shots_free(Shots *s) {
    mem_free(s->text);
    mem_free(s->subject);
    mem_free(s->row);
    arena_free(&s->arena);
}

/* The first ones of the subject; false: there are too few. */
static bool first_shots(const TaskFile *f, int64_t *out, const char *subject) {
    int n = 0;
    for (int64_t i = 0; i < f->shots.n && n < f->n_shots; i++)
        if (f->subject || !subject || (f->shots.subject[i] && !strcmp(f->shots.subject[i], subject))) out[n++] = i;
    return n == f->n_shots;
}

/* Drawn anew for every item. Where the rows may hold the item itself, one more is drawn and its copies are left
 * out. */
static bool draw_shots(TaskFile *f, int64_t *out, uint64_t item) {
    const Shots *s = &f->shots;
    int64_t drawn[SHOTS_MOST + 1], n = 0, want = f->n_shots + f->row->may_draw_itself;
    if (s->n < want) return false;
    mt_sample(&f->draw, drawn, s->n, want);
    for (int64_t i = 0; i < want && n < f->n_shots; i++)
        if (!f->row->may_draw_itself || s->row[drawn[i]] != item) out[n++] = drawn[i];
    if (n == f->n_shots) return true;
    int64_t *others = MEM_NEW(int64_t, s->n), left = 0; /* several copies were drawn */
    for (int64_t i = 0; i < s->n; i++)
        if (s->row[i] != item) others[left++] = i;
    bool enough = left >= f->n_shots;
    if (enough) mt_sample(&f->draw, drawn, left, f->n_shots);
    for (int64_t i = 0; i < f->n_shots && enough; i++) out[i] = others[drawn[i]];
    mem_free(others);
    return enough;
}

static bool add_shots(TaskFile *f, Str *out, const json_t *row, const char *subject, Err *e) {
    int64_t chosen[SHOTS_MOST];
    if (!f->n_shots) return true;
    bool found = f->row->first_shots ? first_shots(f, chosen, subject) : draw_shots(f, chosen, row_number(row));
    if (!found)
        return fail(e, ERR_FAIL, "%s has too few rows for %d few-shot examples%s%s; give a smaller --num-fewshot",
                    f->shots_path, f->n_shots, subject ? " of " : "", subject ? subject : "");
    for (int i = 0; i < f->n_shots; i++) str_add(out, f->shots.text[chosen[i]]);
    return true;
}

/* ---- items ---- */

static bool encode_choices(Suite *s, Item *it, const TaskRow *row, const char *before, const Rendered *r, Err *e) {
    TokenIds known = {0};
    Str context = {0}, follows = {0};
    bool ok = true;
    for (int i = 0; i < it->n && ok; i++) {
        const char *choice = json_string_value(json_array_get(r->choices, (size_t)i));
        bool blank = row->kind == TASK_BLANK;
        str_clear(&context), str_clear(&follows);
        str_add(&context, before);
        str_add(&context, blank ? choice : str_text(&r->prompt));
        str_addf(&follows, " %s", blank ? str_text(&r->target) : choice);
        it->piece[i].chars = str_characters(choice);
        ok = encode_pair(s, &it->piece[i], str_text(&context), str_text(&follows), blank ? NULL : &known, e);
    }
    token_ids_free(&known);
    str_free(&context);
    str_free(&follows);
    return ok;
}

static bool encode_answer(Suite *s, Item *it, const TaskRow *row, Str *before, const Rendered *r, Err *e) {
    str_add(before, str_text(&r->prompt));
    it->target = arena_strdup(&s->arena, str_text(&r->target));
    s->answer_bytes += row->most_new * 8;
    return encode_prompt(s, &it->piece[0], str_text(before), row->most_new, e);
}

typedef struct Taking {
    Suite *s;
    TaskFile *file;
} Taking;

static Task *task_of(Suite *s, const TaskFile *f, const char *subject) {
    char name[80];
    if (subject)
        snprintf(name, sizeof name, "%s_%s", f->row->name, subject);
    else
        snprintf(name, sizeof name, "%s", f->row->name);
    for (int64_t i = 0; i < s->n_tasks; i++)
        if (!strcmp(s->task[i].name, name)) return &s->task[i];
    Task *t = suite_add_task(s, f->row, name);
    t->shots = f->n_shots;
    if (subject) snprintf(t->group, sizeof t->group, "%s", task_category(subject));
    return t;
}

static bool check_subject(const TaskFile *f, const char *subject, Err *e) {
    if (!f->row->subject) return true;
    if (!subject) return fail(e, ERR_FAIL, "the row has no field '%s', which says of what it is", f->row->subject);
    return task_category(subject) || fail(e, ERR_FAIL, "%s has no subject '%.60s'", f->row->name, subject);
}

/* What stands before the prompt of an item. */
static bool add_before(TaskFile *f, Str *out, const json_t *row, const char *subject, Err *e) {
    if (subject) {
        str_add(out, "The following are multiple choice questions (with answers) about ");
        for (const char *c = subject; *c; c++) str_add_char(out, *c == '_' ? ' ' : *c);
        str_add(out, ".\n\n");
    }
    return add_shots(f, out, row, subject, e);
}

static bool take_item(void *user, const json_t *row, bool *enough, Err *e) {
    Taking *k = user;
    Suite *s = k->s;
    TaskFile *f = k->file;
    const char *subject =
        f->subject || !f->row->subject ? f->subject : json_string_value(field_get(row, f->row->subject));
    if (!check_subject(f, subject, e)) return false;
    Task *t = task_of(s, f, subject);
    t->rows++;
    if (s->spec.limit && t->n >= s->spec.limit) return true; /* rows are counted to the end of the file */
    Rendered r;
    Str before = {0};
    if (!texts_render(&f->texts, f->row, &r, row, e)) return false;
    bool ok = add_before(f, &before, row, subject, e);
    if (ok) {
        Item *it = suite_add_item(s, t, r.choices ? (int)json_array_size(r.choices) : 1);
        it->gold = r.gold;
        ok = r.choices ? encode_choices(s, it, f->row, str_text(&before), &r, e)
                       : encode_answer(s, it, f->row, &before, &r, e);
    }
    str_free(&before);
    rendered_free(&r);
    return ok;
}

/* ---- files ---- */

static bool read_file(Suite *s, TaskFile *f, Err *e) {
    arena_init(&f->shots.arena, "few-shot");
    mt_seed(&f->draw, SHOT_SEED);
    bool ok = texts_open(&f->texts, f->row, e);
    if (ok && f->n_shots && !file_exists(f->shots_path))
        ok = fail(e, ERR_FAIL,
                  "%s: is not there, and holds the %d few-shot examples of %s; give --num-fewshot 0, or the file",
                  f->shots_path, f->n_shots, f->row->name);
    ok = ok && (!f->n_shots || each_row(f->shots_path, take_shot, f, e)) &&
         each_row(f->path, take_item, &(Taking){s, f}, e);
    s->reading_bytes = MAX2(s->reading_bytes, shots_bytes(&f->shots));
    texts_close(&f->texts);
    shots_free(&f->shots);
    return ok;
}

static TaskFile task_file(const Suite *s, const TaskRow *row, const char *folder, const char *subject) {
    TaskFile f = {.row = row, .subject = subject};
    int64_t asked = s->spec.shots >= 0 ? s->spec.shots : row->shots;
    f.n_shots = (int)MIN2(asked, SHOTS_MOST);
    snprintf(f.path, sizeof f.path, "%s/%s.jsonl", folder, row->split);
    snprintf(f.shots_path, sizeof f.shots_path, "%s/%s.jsonl", folder, row->shot_split);
    return f;
}

/* A folder a subject. */
static bool add_subjects(Suite *s, const TaskRow *row, const char *folder, bool *found, Err *e) {
    char **name, path[1100];
    int64_t n;
    bool ok = true;
    if (!file_list(folder, &name, &n, e)) return false;
    for (int64_t i = 0; ok && i < n; i++) {
        snprintf(path, sizeof path, "%.800s/%.200s", folder, name[i]);
        TaskFile f = task_file(s, row, path, name[i]);
        if (!task_category(name[i]) || !file_exists(f.path)) continue;
        *found = true;
        ok = read_file(s, &f, e);
    }
    file_list_free(name, n);
    return ok;
}

static void find_folder(const Suite *s, const TaskRow *row, char folder[1000], char flat[1100]) {
    snprintf(folder, 1000, "%.800s/%s", s->spec.folder, row->name);
    snprintf(flat, 1100, "%s.jsonl", folder);
}

bool rows_there(const Suite *s, const TaskRow *row) {
    char folder[1000], flat[1100];
    find_folder(s, row, folder, flat);
    return file_exists(folder) || file_exists(flat);
}

bool rows_add(Suite *s, const TaskRow *row, Err *e) {
    char folder[1000], flat[1100];
    bool found = false;
    find_folder(s, row, folder, flat);
    TaskFile f = task_file(s, row, folder, NULL);
    if (!file_exists(f.path) && file_exists(flat)) snprintf(f.path, sizeof f.path, "%s", flat);
    if (file_exists(f.path)) return read_file(s, &f, e);
    if (row->subject && file_is_dir(folder) && !add_subjects(s, row, folder, &found, e)) return false;
    return found ||
           fail(e, ERR_FAIL,
                "%s: neither %s nor %s is there. It is the split '%s' of the data set, a JSON object a line",
                row->name, f.path, flat, row->split);
}
