/* schedule.h - the learning rate of every update, as Hugging Face's schedulers give it. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_KINDS } ScheduleKind;
extern const char *const schedule_names[SCHEDULE_KINDS];

typedef struct Schedule {
    ScheduleKind kind;
    double lr, min_lr;
    int64_t warmup_steps, total_steps;
} Schedule;

/* step counts from 0: with a warm-up the first update has rate 0. */
double schedule_lr(const Schedule *s, int64_t step);

#endif
