/* profile.c - where the time of a step goes: every op of a micro-step and an update timed on its own. */
#include <stdlib.h>
#include <string.h>

#include "train/run.h"

typedef struct OpTime {
    OpId op;
    Region region;
    double seconds, flops, bytes;
    int64_t n;
} OpTime;

static int slower(const void *a, const void *b) {
    double x = ((const OpTime *)a)->seconds, y = ((const OpTime *)b)->seconds;
    return (x < y) - (x > y);
}

static int gather(const Program *p, const double *seconds, int phase, OpTime *rows, int n, int room) {
    for (int i = p->phase[phase].begin; i < p->phase[phase].end; i++) {
        const Step *s = &p->s[i];
        int k = 0;
        while (k < n && (rows[k].op != s->op || rows[k].region != s->region)) k++;
        if (k == n && n < room) rows[n++] = (OpTime){.op = s->op, .region = s->region};
        if (k >= n) continue;
        rows[k].seconds += seconds[i];
        rows[k].flops += op_flops(p, s);
        rows[k].bytes += op_bytes_moved(p, s);
        rows[k].n++;
    }
    return n;
}

bool run_profile(Run *r, Str *out, Err *e) {
    enum { ROWS = 96, PLAYS = 3 };
    const Program *p = &r->job->p;
    double *seconds = MEM_NEW(double, p->n_s);
    bool ok = true;
    for (int play = 0; play <= PLAYS && ok; play++) {
        if (play == 1) memset(seconds, 0, (size_t)p->n_s * sizeof *seconds); /* the first warms up */
        step_load_micro(r, 0);
        ok = exec_time(&r->x, r->job->phase_micro, seconds, e) &&
             (r->job->phase_update < 0 || exec_time(&r->x, r->job->phase_update, seconds, e));
    }
    OpTime rows[ROWS] = {0};
    int n = gather(p, seconds, r->job->phase_micro, rows, 0, ROWS);
    if (r->job->phase_update >= 0) n = gather(p, seconds, r->job->phase_update, rows, n, ROWS);
    double all = 0;
    for (int i = 0; i < n; i++) all += rows[i].seconds;
    qsort(rows, (size_t)n, sizeof *rows, slower);
    str_addf(out, "one micro-step and one update, op by op (%.2f ms; each op is waited for, so a little more than in a run)\n",
             all / PLAYS * 1e3);
    str_addf(out, "  %-16s %-10s %6s %10s %7s %10s %10s\n", "op", "region", "steps", "ms", "share", "GFLOP/s", "GB/s");
    for (int i = 0; i < n; i++)
        str_addf(out, "  %-16s %-10s %6lld %10.3f %6.1f%% %10.0f %10.1f\n", op_row(rows[i].op)->name,
                 prog_region_name(rows[i].region), (long long)rows[i].n, rows[i].seconds / PLAYS * 1e3, 100 * rows[i].seconds / all,
                 rows[i].flops * PLAYS / rows[i].seconds * 1e-9, rows[i].bytes * PLAYS / rows[i].seconds * 1e-9);
    mem_free(seconds);
    return ok;
}
