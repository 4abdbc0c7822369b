/* log_writer.h - a thread that writes a step log beside the steps.
 *
 * A step hands over its line, the update that was taken and, where host memory is planned for it, a copy of the state;
 * it waits only where no room is left: LOG_JOBS jobs, one update, one state. The order of lines is that of the jobs,
 * so that the files are those of a log written at once.
 *
 * What the system refuses stops the thread. The run hears of it with the next job: it then writes what is left itself,
 * waiting for room as it does for checkpoints (run_until_written), and goes on with a new thread. */
#ifndef TRAIN_LOG_WRITER_H
#define TRAIN_LOG_WRITER_H

#include "base/courier.h"
#include "exec/exec.h"
#include "train/stored_update.h"

enum { LOG_JOBS = 64, LOG_WRITER_STACK_BYTES = 256 << 10 };

typedef enum LogJobKind { LOG_STEP, LOG_UPDATE, LOG_STATE } LogJobKind;

typedef struct LogJob {
    LogJobKind kind;
    HistoryStep step; /* its samples: a place in LogWriter.samples */
    HistoryUpdate update;
    int64_t state; /* updates done */
    bool done;
} LogJob;

/* The bytes of a state as they stood, read as if they were still in their slots. */
typedef struct StateCopy {
    struct StatePart *part; /* owns; ascending addresses */
    int n;
    char *data; /* owns; NULL: there is none, states are written from their slots */
    int64_t bytes;
    Exec x; /* of which weights_save reads */
    Backend b;
} StateCopy;

int64_t state_copy_bytes(const Program *p, Role trained);
void state_copy_open(StateCopy *c, Exec *x, Role trained);
void state_copy_close(StateCopy *c); /* all zero is fine */
void state_copy_take(StateCopy *c, Exec *x);

typedef struct LogWriter {
    Courier *courier; /* owns; NULL: not open */
    LogJob job[LOG_JOBS];
    int64_t *samples; /* owns; most_samples for each */
    int64_t most_samples;
    int64_t sent, update, state; /* numbers of the last job, and of the last of these kinds */
    double seconds;              /* that steps took over handing over, waiting included */
    StateCopy copy;
} LogWriter;

int64_t log_writer_bytes(int64_t most_samples);

#endif
