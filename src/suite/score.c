/* score.c - from log-probabilities and answers to measures, with their standard errors, as the harness counts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/suite_int.h"

/* ---- items ---- */

static int likeliest(const Item *it, bool by_chars) { /* the first of equals */
    int best = 0;
    double most = -INFINITY;
    for (int i = 0; i < it->n; i++) {
        double logp = it->piece[i].logp / (by_chars ? (double)MAX2(it->piece[i].chars, 1) : 1);
        if (logp > most) best = i, most = logp;
    }
    return best;
}

static bool score_answer(Item *it, const TaskRow *row, Err *e) {
    for (int k = 0; k < FILTERS && row->filter[k].name; k++) {
        if (!extract_answer(&it->extracted[k], &row->filter[k], it->answer, e)) return false;
        it->score[k] = extract_same(it->extracted[k], it->target);
    }
    return true;
}

static bool score_item(Item *it, const TaskRow *row, Err *e) {
    if (row->kind == TASK_ANSWER) return score_answer(it, row, e);
    if (row->kind == TASK_HAYSTACK) it->score[0] = extract_found(it->answer, it->want, it->n_want);
    if (row->kind != TASK_CHOICE && row->kind != TASK_BLANK) return true;
    it->score[0] = likeliest(it, false) == it->gold;
    it->score[1] = likeliest(it, true) == it->gold;
    return true;
}

/* ---- measures ---- */

static Measure *add_measure(Task *t, const char *name, const char *filter, bool higher) {
    CHECK(t->n_measures < MEASURES);
    Measure *m = &t->measure[t->n_measures++];
    *m = (Measure){.filter = filter, .higher = higher};
    snprintf(m->name, sizeof m->name, "%s", name);
    return m;
}

/* The mean of a score over the items of a task, of one length (0: of all). */
static void mean_of(Measure *m, const Suite *s, int task, int which, int64_t length) {
    double sum = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_items; i++) {
        const Item *it = &s->item[i];
        if (it->task != task || (length && it->length != length)) continue;
        sum += it->score[which];
        n++;
    }
    m->value = n ? sum / (double)n : 0;
    for (int64_t i = 0; i < s->n_items; i++) {
        const Item *it = &s->item[i];
        if (it->task != task || (length && it->length != length)) continue;
        squares += (it->score[which] - m->value) * (it->score[which] - m->value);
    }
    m->has_error = n > 1;
    m->error = n > 1 ? sqrt(squares / (double)(n - 1)) / sqrt((double)n) : 0;
}

static void measure_texts(Task *t, const Suite *s) {
    double logp = 0, words = 0, bytes = 0, tokens = 0;
    for (int64_t i = 0; i < s->n_items; i++) {
        const Item *it = &s->item[i];
        if (&s->task[it->task] != t) continue;
        words += (double)it->words, bytes += (double)it->bytes;
        for (int k = 0; k < it->n; k++) logp += it->piece[k].logp, tokens += (double)it->piece[k].n_forced;
    }
    add_measure(t, "word_perplexity", "none", false)->value = exp(-logp / words);
    add_measure(t, "byte_perplexity", "none", false)->value = exp(-logp / bytes);
    add_measure(t, "bits_per_byte", "none", false)->value = -logp / bytes / log(2);
    add_measure(t, "token_perplexity", "none", false)->value = exp(-logp / tokens);
}

/* One measure a length, which is its name. */
static void measure_lengths(Task *t, const Suite *s) {
    for (int64_t i = 0; i < s->n_items; i++) {
        char name[32];
        bool known = false;
        if (&s->task[s->item[i].task] != t) continue;
        snprintf(name, sizeof name, "%lld", (long long)s->item[i].length);
        for (int k = 0; k < t->n_measures; k++) known |= !strcmp(t->measure[k].name, name);
        if (!known) mean_of(add_measure(t, name, "none", true), s, (int)(t - s->task), 0, s->item[i].length);
    }
}

static void measure_task(Suite *s, int i) {
    Task *t = &s->task[i];
    const TaskRow *row = t->row;
    t->n_measures = 0;
    if (row->kind == TASK_ROLLING) measure_texts(t, s);
    else if (row->kind == TASK_ANSWER)
        for (int k = 0; k < FILTERS && row->filter[k].name; k++)
            mean_of(add_measure(t, "exact_match", row->filter[k].name, true), s, i, k, 0);
    else if (row->kind == TASK_HAYSTACK && !row->hay.by_depth) measure_lengths(t, s);
    else mean_of(add_measure(t, "acc", "none", true), s, i, 0, 0);
    if (row->normalised) mean_of(add_measure(t, "acc_norm", "none", true), s, i, 1, 0);
}

bool score_items(Suite *s, Err *e) {
    for (int64_t i = 0; i < s->n_items; i++)
        if (!score_item(&s->item[i], s->task[s->item[i].task].row, e)) return false;
    for (int i = 0; i < s->n_tasks; i++) measure_task(s, i);
    return true;
}

/* ---- cells of length and depth ---- */

static Cell *cell_for(Cell *cell, int *n, const Item *it) {
    for (int i = 0; i < *n; i++)
        if (cell[i].length == it->length && cell[i].depth == it->depth) return &cell[i];
    cell[*n] = (Cell){.length = it->length, .depth = it->depth};
    return &cell[(*n)++];
}

int score_cells(Cell **out, const Suite *s) {
    int n = 0;
    *out = MEM_NEW(Cell, MAX2(s->n_items, 1));
    for (int64_t i = 0; i < s->n_items; i++) {
        const Item *it = &s->item[i];
        if (it->depth < 0) continue;
        Cell *c = cell_for(*out, &n, it);
        c->value += it->score[0];
        c->n++;
    }
    for (int i = 0; i < n; i++) (*out)[i].value /= (double)(*out)[i].n;
    return n;
}
