/* problems.c - which rows of a file, or which drawn stories, become problems, in which order, and for which rank.
 *
 * A file is read twice: counted, so that the shuffle knows how many there are; then the selected rows are kept, and no
 * others. What a row says is problems_row.c's. */
#include "reason/problems.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/pick.h"
#include "reason/arith.h"
#include "reason/problems_int.h"

enum { GENERATED_COUNT = 100 };

static int64_t row_bytes(const json_t *row) { return (int64_t)json_dumpb(row, NULL, 0, JSON_COMPACT); }

static uint64_t hash_problem(const Problem *p) { return rng_fold_text(rng_fold_text(0, p->text), p->reference); }

/* ---- the selection ---- */

typedef struct Selection {
    int64_t n;           /* over all ranks */
    int64_t first, last; /* this rank's: [first, last) */
    uint64_t *hash;      /* [n], owns */
} Selection;

/* Checks what was asked against what there is (-1: any number), and cuts out the rank's part. */
static bool select_range(Selection *s, const ProblemQuery *q, int64_t available, const char *what, Err *e) {
    int ranks = q->ranks > 0 ? q->ranks : 1;
    if (q->start < 0 || q->count < -1)
        return fail(e, ERR_USAGE, "problems from %lld, %lld of them, cannot be selected", (long long)q->start,
                    (long long)q->count);
    if (q->rank < 0 || q->rank >= ranks)
        return fail(e, ERR_USAGE, "rank %d of %d does not exist: ranks count from 0", q->rank, ranks);
    if (available >= 0 && q->start >= available)
        return fail(e, ERR_FAIL, "%s: has %lld problems, none from number %lld on", what, (long long)available,
                    (long long)q->start);
    s->n = available < 0 ? (q->count < 0 ? GENERATED_COUNT : q->count) : available - q->start;
    if (q->count >= 0) s->n = MIN2(s->n, q->count);
    s->first = s->n / ranks * q->rank + MIN2((int64_t)q->rank, s->n % ranks);
    s->last = s->first + s->n / ranks + (q->rank < s->n % ranks);
    s->hash = MEM_NEW(uint64_t, s->n + 1);
    return true;
}

static void begin_problems(Problems *out, const Selection *s) {
    *out = (Problems){.n = s->last - s->first, .first = s->first};
    out->item = MEM_NEW(Problem, out->n + 1);
}

static void end_problems(Problems *out, Selection *s) {
    for (int64_t i = 0; i < s->n; i++) out->hash = rng_fold(out->hash, s->hash[i]);
    mem_free(s->hash);
}

static void problem_free(Problem *p) {
    mem_free(p->text);
    mem_free(p->reference);
    json_decref(p->original);
    *p = (Problem){0};
}

/* Takes p: kept when it is this rank's, counted for the hash in any case. */
static void place_problem(Problems *out, Selection *s, Problem *p, int64_t place) {
    s->hash[place] = hash_problem(p);
    if (place >= s->first && place < s->last) out->item[place - s->first] = *p;
    else problem_free(p);
}

/* ---- generated ---- */

static bool generate(Problems *out, const ProblemQuery *q, Err *e) {
    Selection s = {0};
    Arith a = {0};
    if (!select_range(&s, q, -1, "", e)) return false;
    begin_problems(out, &s);
    for (int64_t i = 0; i < s.n; i++) {
        arith_draw(&a, rng_fold(q->seed, (uint64_t)(q->start + i)), ARITH_HELD_OUT);
        Str answer = {0};
        str_addf(&answer, "%lld", (long long)a.answer);
        Problem p = {mem_strdup(str_text(&a.problem)), mem_strdup(str_text(&answer)),
                     json_pack("{s:s, s:s, s:i}", "question", str_text(&a.problem), "answer",
                               str_text(&a.solution), "steps", a.n_steps)};
        place_problem(out, &s, &p, i);
        str_free(&answer);
    }
    arith_free(&a);
    end_problems(out, &s);
    return true;
}

/* ---- from a file ---- */

typedef struct Taking {
    Problems *out;
    Selection *selection;
    const ProblemQuery *q;
    RowRule rule;
} Taking;

static bool take_row(void *user, json_t *row, int64_t place, Err *e) {
    Taking *t = user;
    Problem p = {0};
    t->out->longest_row = MAX2(t->out->longest_row, row_bytes(row));
    if (!t->rule.settled && !row_rule_settle(&t->rule, t->q, row, e)) return false;
    if (place < 0) return true;
    if (!row_to_problem(&p, &t->rule, row, e)) return false;
    p.original = json_incref(row);
    place_problem(t->out, t->selection, &p, place);
    return true;
}

static bool read_file(Problems *out, const ProblemQuery *q, Err *e) {
    Selection s = {0};
    Taking taking = {out, &s, q, {0}};
    int64_t rows;
    if (!pick_count(q->path, &rows, e) || !select_range(&s, q, rows, q->path, e)) return false;
    int64_t *place = pick_places(rows, q->start, s.n, q->shuffle, q->seed);
    begin_problems(out, &s);
    bool ok = pick_rows(q->path, place, rows, take_row, &taking, e);
    end_problems(out, &s);
    mem_free(place);
    if (!ok) problems_free(out);
    return ok;
}

bool problems_read(Problems *out, const ProblemQuery *q, Err *e) {
    *out = (Problems){0};
    const Layout *l = q->layout ? layout_find(q->layout, e) : NULL;
    if (q->layout && !l) return false;
    if (q->path) return read_file(out, q, e);
    if (l && strcmp(l->key, "arithmetic") != 0)
        return fail(e, ERR_USAGE, "problems of %s are read from a file: get %s as JSON lines and name it with --data",
                    l->key, l->from);
    return generate(out, q, e);
}

int64_t problems_bytes(const Problems *p) {
    enum { ROW_SHARE = 4, TEXT_SHARE = 2 }; /* a row parsed, and as text in the results; a problem's own text */
    int64_t bytes = ROW_SHARE * p->longest_row;
    for (int64_t i = 0; i < p->n; i++)
        bytes += TEXT_SHARE * (int64_t)strlen(p->item[i].text) + ROW_SHARE * row_bytes(p->item[i].original);
    return bytes;
}

void problems_free(Problems *p) {
    for (int64_t i = 0; i < p->n; i++) problem_free(&p->item[i]);
    mem_free(p->item);
    *p = (Problems){0};
}
