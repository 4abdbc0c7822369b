/* history.h - the step log of a run: what each update used, enough to recompute any state between two of them bit for
 * bit.
 *
 * A folder with steps.jsonl, lines under a hash chain (chain.h):
 *     {"snug_step_log":2,"stride":50,"threads":2,"job":{"lr":"0.01","binary":"9f..",...}}         what fixes the bits
 *     {"step":12,"epoch":0,"row":96,"lr":0.01,"key":"5e..","samples":[7,31]}                       update 12, from 0
 *     {"update":12,"format":"bf16","norm":0.19,"error":0.0017,"checksum":"5a.."}     update-12.safetensors holds u[12]
 *     {"checkpoint":50,"checksum":"88.."}                    state-50/ holds the weights after 50 updates, and the
 *                                                            optimizer's
 *     {"end":120,"checksum":"31.."}                          the run ended after 120 updates with these weights
 * A line is written once its update is done, by one call; a killed run leaves whole lines but for the last, which the
 * resumed run cuts off with whatever lies beyond its checkpoint. */
#ifndef STORE_HISTORY_H
#define STORE_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#include "store/chain.h"

typedef struct HistoryStep {
    int64_t step;          /* from 0 */
    int64_t epoch, row;    /* place of its first sample in the order of that epoch */
    double lr;             /* as used */
    uint64_t key;          /* of the random numbers it drew */
    double scale;          /* of the loss; 1: not scaled */
    int64_t skipped;       /* updates before it that overflowed and wrote nothing */
    bool overflowed;       /* so did this one */
    const int64_t *sample; /* [n] samples of the update, in the order of the epoch */
    int64_t n;
} HistoryStep;

typedef struct HistoryState { /* weights that are known after so many updates */
    int64_t step;
    uint64_t checksum;
} HistoryState;

typedef struct HistoryUpdate { /* u of that update in a file of its own, behind its line */
    int64_t step;
    char format[8];
    double norm, error; /* |u|; |u - what is stored| / |u| */
    uint64_t checksum;
} HistoryUpdate;

/* ---- reading ---- */

typedef struct History {
    char folder[1024];
    json_t *job; /* owns, like all of it */
    int64_t stride;
    HistoryStep *step; /* step[i].step == i */
    int64_t n_steps, steps_capacity;
    int64_t *sample; /* all of them, behind each other */
    int64_t n_samples, samples_capacity;
    HistoryState *state; /* checkpoints, ascending */
    int64_t n_states, states_capacity;
    HistoryUpdate *update; /* ascending */
    int64_t n_updates, updates_capacity;
    bool ended;
    uint64_t checksum; /* at the end */
    int64_t bytes;     /* of the lines */
    Chain chain;       /* of the last of them */
} History;

/* Reads and checks every line. A log that was edited is refused with its line, one that is cut short by name. */
bool history_read(History *h, const char *folder, Err *e);
/* The states that its lines name are there, whole by the headers of their files, and alike. What their numbers are is
 * compared with the checksum by a replay that passes them. */
bool history_check_states(const History *h, Err *e);
json_t *history_read_job(const char *folder); /* of its first line alone; gives, NULL: there is none to be read */
bool history_has_ended(const char *folder); /* there is a log of a run that came to its end */
void history_free(History *h); /* all zero is fine */
/* Refuses, naming the first that differs with both values, a job other than the one that was logged. */
bool history_check_job(const History *h, const json_t *job, Err *e);
/* The newest checkpoint at or before that many updates; NULL: the start of the run is nearest. */
const HistoryState *history_state_before(const History *h, int64_t step);
const HistoryUpdate *history_update_of(const History *h, int64_t step); /* NULL: its u was not stored */
bool history_update_path(char *out, size_t size, const char *folder, int64_t step, Err *e);
bool history_state_path(char *out, size_t size, const char *folder, int64_t step, Err *e);

/* ---- writing ---- */

typedef struct HistoryLog {
    char folder[1024], path[1100];
    json_t *job; /* owns */
    int64_t stride;
    int threads;  /* of this machine; a note, the bits do not depend on it */
    int64_t from; /* updates that stand in it when the run begins */
    bool anew;    /* what stands there goes first */
    bool open;    /* all zero: there is no log */
    int fd;       /* -1: not begun */
    Chain chain;
    int64_t bytes; /* of whole lines */
    Str line;      /* scratch, as long as the longest line */
} HistoryLog;

/* Looks without writing: resumed_step 0 needs a place without a log (or overwrite), otherwise the same job's log with
 * at least so many updates, which is cut back to them when it is begun. Takes over job. most_samples: of an update. */
bool history_look(HistoryLog *l, const char *folder, json_t *job, int64_t stride, int64_t resumed_step,
                  bool overwrite, int64_t most_samples, Err *e);
bool history_begin(HistoryLog *l, Err *e); /* the first write */
bool history_add_step(HistoryLog *l, const HistoryStep *s, Err *e);
/* After the folder of history_state_path stands. */
bool history_add_state(HistoryLog *l, HistoryState s, Err *e);
bool history_add_update(HistoryLog *l, const HistoryUpdate *u, Err *e); /* after its file stands */
bool history_add_end(HistoryLog *l, HistoryState s, Err *e); /* flushed to disk */
bool history_flush(HistoryLog *l, Err *e);
void history_close(HistoryLog *l);           /* all zero is fine */
int64_t history_line_bytes(int64_t samples); /* of a step at most, or of an update */

#endif
