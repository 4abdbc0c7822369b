/* progress.h - how far a run is, how fast it goes, when it ends; as numbers and as one line. Allocates nothing.
 *
 *     progress_begin(&p, resumed_step, total_steps, sensors_seconds());
 *     ... progress_step(&p, tokens, step_seconds, waited_seconds, sensors_seconds());
 *         progress_show(&p, &(ProgressFacts){loss, norm, lr}, step % log_steps == 0);                    */
#ifndef OBS_PROGRESS_H
#define OBS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_WINDOW = 32 }; /* steps behind the speed that is shown */

typedef struct ProgressSample {
    double step_seconds, waited_seconds;
    int64_t tokens;
} ProgressSample;

typedef struct Progress {
    int64_t done_steps, total_steps;
    int64_t steps_here;        /* in this process */
    ProgressSample first, all; /* the first step, which also warms up; the sum of all */
    ProgressSample recent[PROGRESS_WINDOW];
    double began, first_end, now; /* seconds of the caller's clock */
    double shown;                 /* when the bar was last drawn */
    const char *unit;             /* what a step is called, set after progress_begin; NULL: a training step */
    /* steps run beside each other: speed and pace are of all of them since the beginning */
    bool at_once;
} Progress;

typedef struct ProgressFacts {
    double loss, norm, lr; /* NaN: left out */
    int64_t skipped;       /* updates that wrote nothing; 0: left out */
} ProgressFacts;

void progress_begin(Progress *p, int64_t done_steps, int64_t total_steps, double now);

/* One step has ended: it took step_seconds, of which waited_seconds passed waiting for data. Pauses between steps
 * (evaluation, saving) are in `now` alone: they count for the time that is left, not for the speed. */
void progress_step(Progress *p, int64_t tokens, double step_seconds, double waited_seconds, double now);

/* Tokens of steps that have not ended yet. */
void progress_tokens(Progress *p, int64_t tokens, double now);

double progress_tokens_per_s(const Progress *p); /* of this process, without its first step */
double progress_recent_per_s(const Progress *p); /* of the last steps */
double progress_wait_share(const Progress *p);   /* of the last steps: 0..1 */
double progress_left_seconds(const Progress *p); /* until the last step, at the pace so far; -1: not known yet */
double progress_job_seconds(const Progress *p);  /* of the whole job from step 0, at the pace so far; -1: ... */

/* "step 20/100  loss 2.5013  left 3 min 20 s  1,234 tok/s  lr 1.00e-04  norm 1.2  data 0.5%", with a bar in front
 * when asked for; cut to room - 1 characters, the least important last. */
void progress_text(char *to, int64_t room, const Progress *p, const ProgressFacts *f, bool bar);

/* keep: a line that stays, in the log file too. Otherwise the bar is redrawn on a terminal, and nothing is said
 * elsewhere. */
void progress_show(Progress *p, const ProgressFacts *f, bool keep);

#endif
