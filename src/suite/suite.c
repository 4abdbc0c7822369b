/* suite.c - which tasks were asked for, where their items are kept, and what becomes of them. */
#include "suite/suite.h"

#include <stdio.h>
#include <string.h>

#include "suite/suite_int.h"

Task *suite_add_task(Suite *s, const TaskRow *row, const char *name) {
    s->task = mem_grow(s->task, &s->task_capacity, s->n_tasks + 1, sizeof *s->task);
    Task *t = &s->task[s->n_tasks++];
    *t = (Task){.row = row};
    CHECK(strlen(name) < sizeof t->name);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

Item *suite_add_item(Suite *s, Task *t, int pieces) {
    s->item = mem_grow(s->item, &s->item_capacity, s->n_items + 1, sizeof *s->item);
    Item *it = &s->item[s->n_items++];
    *it = (Item){.task = (int)(t - s->task), .doc = t->n++, .n = pieces, .depth = -1};
    it->piece = ARENA_NEW(&s->arena, Piece, pieces);
    return it;
}

/* ---- opening ---- */

static bool add_row(Suite *s, const TaskRow *row, Err *e) {
    CHECK(row);
    if (row->kind == TASK_ROLLING) return rolling_add(s, row, e);
    if (row->kind == TASK_HAYSTACK) return haystack_add(s, row, e);
    return rows_add(s, row, e);
}

/* Every task of a suite. Of several, those whose rows are not there are left out, but not all of them. */
static bool add_suite(Suite *s, const char *name, Err *e) {
    const TaskRow *absent = NULL;
    int64_t before = s->n_tasks;
    for (int i = 0; task_row(i); i++) {
        const TaskRow *row = task_row(i);
        bool is_task = !strcmp(row->name, name), of_suite = !strcmp(row->suite, name);
        if (!is_task && !of_suite) continue;
        if (!is_task && row->split && !rows_there(s, row)) absent = row;
        else if (!add_row(s, row, e)) return false;
    }
    return s->n_tasks > before || add_row(s, absent, e); /* says what is not there */
}

static bool open_all(Suite *s, Err *e) {
    for (int i = 0; i < s->spec.n_names; i++)
        if (!add_suite(s, s->spec.name[i], e)) return false;
    for (int64_t i = 0; i < s->n_tasks; i++)
        if (!s->task[i].n)
            return fail(e, ERR_FAIL, "%s: there are no items. Is its file in --suite-data empty?",
                        s->task[i].name);
    return s->n_items > 0 || fail(e, ERR_FAIL, "there are no items");
}

bool suite_open(Suite **out, const SuiteSpec *spec, Err *e) {
    Suite *s = *out = MEM_NEW(Suite, 1);
    int32_t bos = tokenizer_bos(spec->tokenizer);
    s->spec = *spec;
    s->prefix = bos >= 0 ? bos : tokenizer_eos(spec->tokenizer);
    s->prefix_text = s->prefix >= 0 ? tokenizer_piece(spec->tokenizer, s->prefix) : NULL;
    arena_init(&s->arena, "suite");
    return open_all(s, e);
}

void suite_close(Suite *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->n_items; i++) {
        mem_free(s->item[i].answer);
        for (int k = 0; k < FILTERS; k++) mem_free(s->item[i].extracted[k]);
    }
    mem_free(s->item);
    mem_free(s->task);
    arena_free(&s->arena);
    mem_free(s);
}

int64_t suite_context(const Suite *s) { return s->context; }

int64_t suite_at_once(const Suite *s) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_items; i++) n += goes_at_once(s, &s->item[i]) ? s->item[i].n : 1;
    return n;
}

int64_t suite_bytes(const Suite *s) {
    int64_t lists = s->item_capacity * (int64_t)sizeof *s->item + s->task_capacity * (int64_t)sizeof *s->task;
    return s->arena.used_bytes + lists + s->answer_bytes + s->reading_bytes + s->n_items * (int64_t)sizeof(int64_t);
}
