/* replay.h - a logged run played again: any theta[t] and any update u[t], bit for bit, from the light log.
 *
 * The run must be the one that was logged (history_check_job); its plan may differ in what keeps the bits. States
 * that stand in the log are compared as the replay passes them, so that a replay that differs is refused and not
 * believed. */
#ifndef UNLEARN_REPLAY_H
#define UNLEARN_REPLAY_H

#include "store/history.h"
#include "train/run.h"
#include "unlearn/carry.h"
#include "unlearn/gauss_newton.h"
#include "unlearn/params.h"
#include "unlearn/walk.h"

typedef struct Replay {
    Run *run;         /* keeps; opened, with the plan's update behind backward */
    const History *h; /* keeps */
    Threads *team;    /* owns; for arithmetic on vectors */
    Params params;
    int64_t step;         /* theta[step] stands in the slots */
    int64_t walk_step;    /* where the walk stands: the slots follow when something looks at them */
    bool moved;           /* the slots were written since that was last false */
    int64_t updates_read; /* of removed updates, those that stood in the log */
    bool has_gradients;  /* of all rows of that update, at theta[step] */
    const bool *removed; /* [rows of the set]; keeps; NULL: none */
    GaussNewton gauss_newton;
    float *theta;        /* owns; theta[step], where has_theta; NULL: not asked for yet */
    bool has_theta;
    bool astray;    /* the slots hold what no log knows: the next seek loads */
    int64_t passes; /* over an update's batch, forward and backward */
    Carry carry;    /* owns; opened when it is first asked for */
    double device_seconds; /* that the last gradient took while the host worked on v */
    WalkSeconds spent;
} Replay;

/* Bytes of ordinary memory that a walk takes when it is first asked for theta, or for what is made by passing tensors
 * through (Walk.fisher, Walk.remove, replay_add); and those of threads' stacks. */
int64_t replay_theta_bytes(const Job *j);
int64_t replay_copy_bytes(const Job *j);
int64_t replay_stack_bytes(int threads);
/* The run stands at its start. Checks that the log is whole and about these rows. */
bool replay_open(Replay *r, Run *run, const History *h, int threads, Err *e);
void replay_close(Replay *r);
bool replay_seek(Replay *r, int64_t step, Err *e);
Walk replay_walk(Replay *r); /* borrows */
const float *replay_theta(Replay *r); /* what stands in the slots */
double replay_add(Replay *r, const float *change); /* to it; gives the norm of what rounding has left of the change */
/* The oracle: plays the run from that update on as it would have gone without the removed rows (weight 0, the divisor
 * stays), or without any update that saw one of them. Leaves the weights it comes to. */
bool replay_retrain(Replay *r, int64_t from, bool whole_steps, Err *e);

#endif
