/* replay.h - replays a logged run: recomputes any theta[t] and any update u[t], bit for bit, from the light log.
 *
 * The run must be the one that was logged (history_check_job); its plan may differ only in techniques that keep the
 * bits. Whenever the replay reaches a state that the log has a checksum of, the weights are compared with it, so a
 * replay that diverges is refused instead of believed. */
#ifndef UNLEARN_REPLAY_H
#define UNLEARN_REPLAY_H

#include "store/history.h"
#include "train/run.h"
#include "unlearn/carry.h"
#include "unlearn/correction.h"
#include "unlearn/gauss_newton.h"
#include "unlearn/params.h"
#include "unlearn/walk.h"

typedef struct Replay {
    Run *run;         /* keeps; opened; the update is inside backward where v is on the ring, and only there */
    const History *h; /* keeps */
    Threads *team;    /* owns; for arithmetic on vectors */
    Params params;
    int64_t step;         /* the slots hold theta[step] */
    int64_t walk_step;    /* position of the walk; the slots catch up lazily, when they are read */
    bool moved;           /* the slots were written since the caller last cleared this */
    int64_t updates_read; /* number of removed updates that were read from the log instead of replayed */
    bool has_gradients;  /* the gradient slots hold the gradient of all rows at theta[step] */
    const bool *removed; /* [rows of the set]; keeps; NULL: none */
    GaussNewton gauss_newton;
    float *theta;        /* owns; theta[step] if has_theta; NULL: not needed so far */
    bool has_theta;
    bool astray;    /* the slots hold weights of no logged state: the next seek must load a state */
    int64_t passes; /* forward and backward passes over an update's batch */
    Carry carry;    /* owns; opened at its first use */
    VecSums *sums;  /* owns; of each tensor, where v is on the ring */
    CorrectionStep due; /* that v on the ring has still to take */
    double device_seconds; /* duration of the last gradient on the device, while the host worked on v */
    WalkSeconds spent;
} Replay;

/* Bytes of pageable memory that a walk allocates at its first use of theta; at its first streamed pass (Walk.fisher,
 * Walk.remove, replay_add); and for the stacks of its threads. */
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
/* The same of the v on the ring. Gives its norm as well. */
bool replay_apply_correction(Replay *r, double *asked, double *applied, Err *e);
/* The oracle: plays the run from that update on as it would have gone without the removed rows (weight 0, the divisor
 * stays), or without any update that saw one of them. Leaves the weights it comes to. */
bool replay_retrain(Replay *r, int64_t from, bool whole_steps, Err *e);

#endif
