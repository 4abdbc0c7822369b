/* status.h - how a running job tells others what it does: one small file for each run folder (without one: for each
 * process), replaced as a whole and removed at the end.
 *
 *     status_begin(&s, folder);                       // after name, command, out, ... are filled
 *     ... s.step = 10; status_put(&s);                // at steps that are logged
 *     status_end(&s);
 *
 * A job that is killed leaves its file behind: the process it names is gone then, or is another one (start_ticks).
 * Nothing here can fail a job: what cannot be written is not told. Writing allocates nothing. */
#ifndef OBS_STATUS_H
#define OBS_STATUS_H

#include <stdbool.h>
#include <stdint.h>

enum { STATUS_TEXT = 256 };

typedef struct JobStatus {
    char path[1024]; /* "": it is not announced */
    int pid;
    int64_t start_ticks;
    /* said once */
    char name[STATUS_TEXT]; /* of the run */
    char command[32];       /* "train" */
    char unit[16];          /* what its steps are: "answer"; "": updates */
    char out[1024];         /* the run folder or the file that is written, from the root; "": none */
    char device[64];        /* "cuda:0", "cpu" */
    char bus_id[32];        /* of a GPU; "": none or not known */
    int64_t planned_bytes;  /* of the process, as --budget counts it */
    int64_t total_steps;
    double began; /* seconds since 1970 */
    /* as it stands */
    char phase[24];                                  /* "loading", "training", "answering", "evaluating", ... */
    double updated;                                  /* seconds since 1970 */
    int64_t step;                                    /* done */
    int64_t tokens;                                  /* read and answered so far; 0: not counted */
    double loss;                                     /* NaN: none yet */
    double tokens_per_s, step_seconds, left_seconds; /* NaN: not known yet */
    int64_t measured_bytes;                          /* the most so far, as planned_bytes */
} JobStatus;

/* Unannounced, all numbers unknown. */
void status_init(JobStatus *s);
void status_begin(JobStatus *s,
                  const char *folder); /* in the place of what a dead job with the same out has left */
void status_put(JobStatus *s);
void status_phase(JobStatus *s, const char *phase); /* the same with another phase; NULL: not announced */
/* The same at most ten times a second as long as the phase stays: short steps may all be logged. */
void status_update(JobStatus *s, const char *phase);
/* Inside an answer or an evaluation: the tokens so far, with the speed since the last time; written at most once a
 * second. taken: bytes, as measured_bytes; NULL status: not announced. */
bool status_is_due(const JobStatus *s);
/* For a command that makes no updates: so many of its units are done, written with the next tokens. left_seconds
 * below 0: not known; NULL status: not announced. */
void status_count(JobStatus *s, int64_t done, int64_t total, double left_seconds);
void status_tokens(JobStatus *s, int64_t tokens, int64_t taken_bytes);
void status_end(JobStatus *s);                      /* a second call is fine */

/* The process is the one that wrote it. */
bool status_is_alive(const JobStatus *s);


/* At most room of them, by pid; gives how many. */
int status_list(JobStatus *list, int room, const char *folder);

#endif
