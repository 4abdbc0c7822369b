/* schedule.c - learning-rate schedules: warm-up, then a decay from the highest rate down to the lowest: at once
 * (cosine, linear), after a stable stretch (wsd), or never (constant). */
#include "train/schedule.h"

#include <math.h>

#include "base/check.h"

const char *const schedule_names[SCHEDULE_KINDS] = {[SCHEDULE_COSINE] = "cosine",
                                                    [SCHEDULE_LINEAR] = "linear",
                                                    [SCHEDULE_CONSTANT] = "constant",
                                                    [SCHEDULE_WSD] = "wsd"};
const char *const decay_names[DECAY_SHAPES] = {
    [DECAY_LINEAR] = "linear", [DECAY_COSINE] = "cosine", [DECAY_SQRT] = "1-sqrt"};

int64_t schedule_decay_steps(const Schedule *s) {
    int64_t most = MAX2(s->total_steps - s->warmup_steps, 1);
    int64_t asked = s->decay_steps ? s->decay_steps : (int64_t)ceil(s->decay_ratio * (double)s->total_steps - 1e-9);
    return MIN2(MAX2(asked, 1), most);
}

/* What is left of the way from the lowest to the highest rate; progress: 0 to 1. */
static double left_of(DecayShape shape, double progress) {
    if (shape == DECAY_COSINE) return 0.5 * (1 + cos(M_PI * progress));
    return 1 - (shape == DECAY_SQRT ? sqrt(progress) : progress);
}

double schedule_lr(const Schedule *s, int64_t step) {
    if (step < s->warmup_steps) return s->lr * (double)step / (double)s->warmup_steps;
    if (s->kind == SCHEDULE_CONSTANT) return s->lr;
    int64_t length = s->kind == SCHEDULE_WSD ? schedule_decay_steps(s) : MAX2(s->total_steps - s->warmup_steps, 1);
    int64_t begin = s->kind == SCHEDULE_WSD ? MAX2(s->total_steps - length, s->warmup_steps) : s->warmup_steps;
    double progress = fmax(0, fmin(1, (double)(step - begin) / (double)length));
    DecayShape shape = s->kind == SCHEDULE_WSD      ? s->decay
                       : s->kind == SCHEDULE_COSINE ? DECAY_COSINE
                                                    : DECAY_LINEAR;
    double least = fmin(s->min_lr, s->lr);
    return least + (s->lr - least) * left_of(shape, progress);
}
