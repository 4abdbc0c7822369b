/* run.c - items through an engine: in which order requests are submitted, and what their events mean.
 *
 * The choices of an item go one after the other: each finds what it shares with the one before in the slot that is
 * free now. So there are as many items under way as there are slots. Windows of a text share nothing and go at
 * once. */
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "base/work.h"
#include "suite/suite_int.h"

typedef struct ItemRun {
    Suite *s;
    Engine *n;
    int64_t *order;     /* owns: items as they are begun */
    int64_t next, done; /* in order; pieces that are scored */
    int next_piece;     /* of the item that is begun next */
    int64_t pieces;
    int64_t open; /* requests under way: at most as many as slots, so that a next choice finds its slot free */
    Work work;
} ItemRun;

/* ---- order ---- */

static int64_t item_tokens(const Item *it) {
    int64_t n = 0;
    for (int i = 0; i < it->n; i++) n = MAX2(n, it->piece[i].n_prompt + it->piece[i].n_forced);
    return n;
}

static int compare(const void *a, const void *b,
                   void *suite) { /* by task, then the longest first, then as they came */
    int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    const Item *x = &((const Suite *)suite)->item[i], *y = &((const Suite *)suite)->item[k];
    if (x->task != y->task) return x->task < y->task ? -1 : 1;
    int64_t nx = item_tokens(x), ny = item_tokens(y);
    if (nx != ny) return nx > ny ? -1 : 1;
    return i < k ? -1 : i > k;
}

static void set_order(ItemRun *r) {
    r->order = MEM_NEW(int64_t, r->s->n_items);
    for (int64_t i = 0; i < r->s->n_items; i++) {
        r->order[i] = i;
        r->pieces += r->s->item[i].n;
    }
    qsort_r(r->order, (size_t)r->s->n_items, sizeof *r->order, compare, r->s);
}

/* ---- requests ---- */

enum { PIECES_MOST = 1 << 20 }; /* of an item: a request's number is item * PIECES_MOST + piece */

static bool submit(ItemRun *r, int64_t item, int piece, Err *e) {
    const Suite *s = r->s;
    const Item *it = &s->item[item];
    const Piece *p = &it->piece[piece];
    const TaskRow *row = s->task[it->task].row;
    Request q = {.prompt = p->prompt,
                 .n_prompt = p->n_prompt,
                 .samples = 1,
                 .sampling = {.top_p = 1, .repetition = 1},
                 .number = item * PIECES_MOST + piece};
    if (p->n_forced) {
        q.forced = p->forced;
        q.n_forced = q.max_new = p->n_forced;
        q.want_logp = true;
    } else {
        q.max_new = row->most_new;
        q.stop_id = s->spec.stop_id;
        q.n_stop_ids = s->spec.n_stop_ids;
        q.stops.text = row->until;
        while (q.stops.n < COUNT_OF(row->until) && row->until[q.stops.n]) q.stops.n++;
    }
    r->open++;
    if (engine_submit(r->n, &q, NULL, e)) return true;
    return fail_within(e, "%s, item %lld", s->task[it->task].name, (long long)it->doc);
}

static bool submit_next(ItemRun *r, Err *e) {
    while (r->open < r->n->g->spec.slots && r->next < r->s->n_items) {
        int64_t item = r->order[r->next];
        const Item *it = &r->s->item[item];
        if (!submit(r, item, r->next_piece, e)) return false;
        if (goes_at_once(r->s, it) && ++r->next_piece < it->n) continue;
        r->next_piece = 0;
        r->next++;
    }
    return true;
}

/* ---- events ---- */

static bool take(ItemRun *r, const EngineEvent *ev, Err *e) {
    int64_t item = ev->request->number / PIECES_MOST;
    int piece = (int)(ev->request->number % PIECES_MOST);
    Item *it = &r->s->item[item];
    Piece *p = &it->piece[piece];
    if (ev->kind == EVENT_FAILED)
        return fail(e, ERR_FAIL, "%s, item %lld: %s", r->s->task[it->task].name, (long long)it->doc, ev->error);
    r->done++;
    r->open--;
    if (!p->n_forced) {
        it->answer = mem_strdup(ev->text ? str_text(ev->text) : "");
        return true;
    }
    p->logp = 0;
    for (int64_t i = 0; i < ev->n; i++) p->logp += ev->logp[i];
    if (goes_at_once(r->s, it) || piece + 1 == it->n) return true;
    return submit(r, item, piece + 1, e);
}

static bool step(ItemRun *r, bool *busy, Err *e) {
    if (!submit_next(r, e)) return false;
    EngineState state = engine_step(r->n, e);
    if (state == ENGINE_BROKEN) return false;
    bool ok = true;
    for (EngineEvent ev; engine_event(r->n, &ev);) ok = ok && take(r, &ev, e);
    *busy = r->done < r->pieces;
    ok = ok && work_on(&r->work, r->done, e);
    status_count(r->n->options.status, r->done, r->pieces, work_left_seconds(&r->work));
    return ok;
}

bool suite_run(Suite *s, Engine *n, Err *e) {
    ItemRun r = {.s = s, .n = n};
    bool ok = true, busy = true;
    set_order(&r);
    work_begin(&r.work, WORK_COUNT, r.pieces, "scoring requests");
    status_count(n->options.status, 0, r.pieces, -1); /* the engine tells of its tokens before the first is done */
    while (ok && busy) ok = step(&r, &busy, e);
    work_end(&r.work);
    mem_free(r.order);
    return ok && score_items(s, e);
}
