/* schedule.h - the learning rate of every update, as Hugging Face's schedulers give it. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum ScheduleKind {
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_CONSTANT,
    SCHEDULE_WSD, /* warm-up, stable, decay */
    SCHEDULE_KINDS
} ScheduleKind;
extern const char *const schedule_names[SCHEDULE_KINDS];

typedef enum DecayShape { DECAY_LINEAR, DECAY_COSINE, DECAY_SQRT, DECAY_SHAPES } DecayShape;
extern const char *const decay_names[DECAY_SHAPES];

typedef struct Schedule {
    ScheduleKind kind;
    double lr, min_lr;
    int64_t warmup_steps, total_steps;
    int64_t decay_steps; /* wsd: the last so many of total_steps; 0: decay_ratio of them, rounded up */
    double decay_ratio;
    DecayShape decay; /* of wsd */
} Schedule;

/* step counts from 0: with a warm-up the first update has rate 0. */
double schedule_lr(const Schedule *s, int64_t step);
int64_t schedule_decay_steps(const Schedule *s); /* of wsd: all that the warm-up leaves, at most */

#endif
