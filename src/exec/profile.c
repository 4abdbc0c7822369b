/* profile.c - where the time of a phase goes: every op timed on its own, as a table for people. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"

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

bool exec_profile(Exec *x, Str *out, const int *phase, int n_phases, int times, ProfileLoad inputs, const char *title,
                  Err *e) {
    enum { ROWS = 96, PLAYS = 3 };
    const Program *p = x->p;
    double *seconds = MEM_NEW(double, p->n_s);
    bool ok = true;
    for (int play = 0; play <= PLAYS && ok; play++) {
        if (play == 1) memset(seconds, 0, (size_t)p->n_s * sizeof *seconds); /* the first warms up */
        inputs.load(inputs.user);
        for (int i = 0; i < n_phases && ok; i++) ok = exec_time(x, phase[i], times, seconds, e);
    }
    OpTime rows[ROWS] = {0};
    int n = 0;
    double all = 0;
    for (int i = 0; i < n_phases; i++) n = gather(p, seconds, phase[i], rows, n, ROWS);
    for (int i = 0; i < n; i++) all += rows[i].seconds;
    qsort(rows, (size_t)n, sizeof *rows, slower);
    str_addf(out, "%s, op by op (%.3f ms; each op is waited for, so a little more than in a run)\n", title,
             all / PLAYS * 1e3);
    str_addf(out, "  %-16s %-10s %6s %10s %7s %10s %10s\n", "op", "region", "steps", "ms", "share", "GFLOP/s", "GB/s");
    for (int i = 0; i < n; i++)
        str_addf(out, "  %-16s %-10s %6lld %10.3f %6.1f%% %10.0f %10.1f\n", op_name(rows[i].op),
                 prog_region_name(rows[i].region), (long long)rows[i].n, rows[i].seconds / PLAYS * 1e3,
                 100 * rows[i].seconds / all, rows[i].flops * PLAYS / rows[i].seconds * 1e-9,
                 rows[i].bytes * PLAYS / rows[i].seconds * 1e-9);
    mem_free(seconds);
    return ok;
}
