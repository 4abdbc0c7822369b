/* schedule.c - warm-up, then cosine or a line from the highest rate down to the lowest, or constant. */
#include "train/schedule.h"

#include <math.h>

#include "base/check.h"

const char *const schedule_names[SCHEDULE_KINDS] = {
    [SCHEDULE_COSINE] = "cosine", [SCHEDULE_LINEAR] = "linear", [SCHEDULE_CONSTANT] = "constant"};

double schedule_lr(const Schedule *s, int64_t step) {
    if (step < s->warmup_steps) return s->lr * (double)step / (double)s->warmup_steps;
    if (s->kind == SCHEDULE_CONSTANT) return s->lr;
    int64_t length = MAX2(s->total_steps - s->warmup_steps, 1);
    double progress = fmin(1, (double)(step - s->warmup_steps) / (double)length);
    double factor = s->kind == SCHEDULE_COSINE ? 0.5 * (1 + cos(M_PI * progress)) : 1 - progress;
    double least = fmin(s->min_lr, s->lr);
    return least + (s->lr - least) * factor;
}
