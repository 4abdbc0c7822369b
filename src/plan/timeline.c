/* timeline.c - how many bytes of each class are alive at every step of the ring.
 *
 * A slot is held by one tensor after another. Where one takes over from another in the same step, the newcomer
 * counts, as in the ledger: so a tensor is counted from its birth until its death or the birth of the next in its
 * slot. */
#include <stdlib.h>

#include "plan/plan_int.h"

static int by_slot_and_birth(const void *x, const void *y) {
    const Stay *a = x, *b = y;
    if (a->slot != b->slot) return a->slot < b->slot ? -1 : 1;
    if (a->birth != b->birth) return a->birth < b->birth ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

int64_t plan_stays(Stay **out, const Program *p, Pool pool) {
    uint8_t *line = plan_lines_of(p);
    Stay *stay = *out = MEM_NEW(Stay, p->n_t);
    int64_t n = 0;
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (t->base || t->home.pool != pool || t->birth < 0) continue;
        stay[n++] = (Stay){id, t->slot, t->birth, t->death, line[id]};
    }
    qsort(stay, (size_t)n, sizeof *stay, by_slot_and_birth);
    for (int64_t i = 0; i + 1 < n; i++)
        if (stay[i].slot == stay[i + 1].slot) stay[i].death = MIN2(stay[i].death, stay[i + 1].birth - 1);
    mem_free(line);
    return n;
}

/* Lines that are never there are left out; the order stays. */
static void keep_used(Timeline *t, const int64_t *all, const bool *used) {
    for (int line = 0; line < REPORT_LINES; line++) {
        if (!used[line]) continue;
        for (int i = 0; i < t->n_steps; i++)
            t->bytes[(int64_t)t->n_lines * t->n_steps + i] = all[(int64_t)line * (t->n_steps + 1) + i];
        t->name[t->n_lines++] = plan_line_name(line);
    }
}

void plan_timeline(Timeline *t, const Program *p, const Machine *m, Pool pool) {
    int64_t steps = p->n_s, width = steps + 1;
    *t = (Timeline){.n_steps = (int)steps, .bytes = MEM_NEW(int64_t, MAX2(REPORT_LINES * steps, 1))};
    Stay *stay;
    int64_t *all = MEM_NEW(int64_t, REPORT_LINES * width), n = plan_stays(&stay, p, pool);
    bool used[REPORT_LINES] = {false};
    for (int64_t i = 0; i < n; i++) {
        if (stay[i].death < stay[i].birth) continue;
        int64_t *row = all + stay[i].line * width, bytes = p->t[stay[i].tensor].bytes;
        used[stay[i].line] |= bytes > 0;
        row[stay[i].birth] += bytes;
        row[stay[i].death + 1] -= bytes;
    }
    for (int k = 0; k < REPORT_LINES; k++)
        for (int64_t i = 1; i < steps; i++) all[k * width + i] += all[k * width + i - 1];
    keep_used(t, all, used);
    plan_peak(p, m->align_bytes, pool, &t->peak_step);
    for (int k = 0; k < t->n_lines && steps; k++) t->peak_bytes += t->bytes[k * steps + t->peak_step];
    mem_free(all);
    mem_free(stay);
}

void plan_timeline_free(Timeline *t) {
    mem_free(t->bytes);
}
