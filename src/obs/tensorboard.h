/* tensorboard.h - scalar curves in the event file that TensorBoard reads. Allocates nothing.
 *
 *     tensorboard_begin(&t, now, step);
 *     tensorboard_scalar(&t, "train/loss", loss);
 *     tensorboard_end(&t, &e);                      // one record, written whole */
#ifndef OBS_TENSORBOARD_H
#define OBS_TENSORBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { TENSORBOARD_RECORD_BYTES = 8192 };

typedef struct Tensorboard {
    int fd; /* -1: closed; owns */
    char path[1024];
    int64_t bytes;                            /* whole records in the file */
    uint8_t record[TENSORBOARD_RECORD_BYTES]; /* length, checksum, event, checksum; built in place */
    int64_t used;                             /* of record */
    int64_t values_at;                        /* where the scalars of this record begin; -1: none yet */
    bool too_long;                            /* the event did not fit: refused at the end */
} Tensorboard;

/* Creates events.out.tfevents.<seconds>.<host>.<pid>.<n> in the folder. A run that goes on after `resumed_step`
 * tells the reader to forget later points of earlier files; 0: a new run. */
bool tensorboard_open(Tensorboard *t, const char *folder, double wall_seconds, int64_t resumed_step, Err *e);
void tensorboard_close(Tensorboard *t);
bool tensorboard_is_file(const char *name); /* the name of such a file, whoever wrote it */

void tensorboard_begin(Tensorboard *t, double wall_seconds, int64_t step);
void tensorboard_scalar(Tensorboard *t, const char *tag, double value);
bool tensorboard_end(Tensorboard *t, Err *e);

#endif
