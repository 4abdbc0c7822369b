/* run_folder.h - the folder of a run: looked at without changing anything, then begun with the first write.
 *
 * F1  run_folder_look takes the lock of a run that stands there and reads the checkpoint to go on from. It writes
 *     nothing.
 *
 * F2  run_folder_begin is the first write of a run. It comes when everything that can be refused was refused: options,
 *     data, budget, room on disk, weights, checkpoint. So a refused command leaves every file as it was. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include "store/lock.h"
#include "store/trainer_state.h"

typedef struct RunFolderAsk {
    const char *path;   /* --out */
    const char *resume; /* NULL: no; "newest"; checkpoint-N; a folder */
    bool overwrite;     /* the run that stands there goes when this one begins */
    /* When checkpoints are due, for the message when there is none to go on from. */
    double save_seconds;
    int64_t save_steps;
} RunFolderAsk;

typedef struct RunFolder {
    RunFolderAsk ask; /* keeps its texts */
    RunLock lock;
    char checkpoint[1024]; /* to go on from; "": a new run */
    TrainerState saved;    /* its state; owns */
    int64_t kept, passing; /* whole checkpoints that stand there (trainer_state.h: passing) */
    bool has_result;       /* a model or an adapter of an earlier run stands there */
    bool begun;
} RunFolder;

bool run_folder_look(RunFolder *f, const RunFolderAsk *ask, Err *e);
bool run_folder_begin(RunFolder *f, const char *config_yaml, const char *plan_json, Err *e);
bool run_folder_would_remove(const char *folder, const char *path); /* an overwriting run takes that path away */
int64_t run_folder_bytes(const char *folder);                       /* that it gets back so */
void run_folder_close(RunFolder *f); /* whether it was begun, only looked at, or neither (all zero) */

/* The folder of a run that goes on was removed under it: it is made again, with its lock and its log. */
bool run_folder_restore(RunFolder *f, Err *e);

static inline bool run_folder_resumes(const RunFolder *f) { return f->checkpoint[0] != 0; }

#endif
