/* gradnorm.c - one sample a pass, and its gradients' norm read from the device. */
#include "unlearn/gradnorm.h"

#include "base/work.h"
#include "unlearn/params.h"

static bool norm_of_row(double *out, Run *run, const Params *p, Dataset *d, int64_t row, Err *e) {
    Exec *x = &run->ring->x;
    Update u = {.scaling = {.scale = 1}};
    dataset_list_rows(d, &run->rows, 0, row, 1);
    batch_fill(&run->batch, d, &run->rows, 0);
    step_put_divisor(run, &u, dataset_row_scored(d, run->rows.member[0]));
    step_put_micro(run, &u, &run->batch, 0);
    exec_play(x, run->job->micro);
    if (!exec_sync(x, e)) return false;
    *out = params_gradient_norm(p, x);
    return true;
}

bool gradnorm_make(double *out, Run *run, Dataset *d, const int64_t *row, int64_t n, Err *e) {
    Params p;
    Work work;
    bool ok = true;
    params_init(&p, run->job);
    work_begin(&work, WORK_COUNT, n, "gradients of samples");
    for (int64_t i = 0; ok && i < n; i++)
        ok = norm_of_row(&out[i], run, &p, d, row[i], e) && work_on(&work, i + 1, e);
    work_end(&work);
    params_free(&p);
    return ok;
}
