/* err.h - errors of the outside world (a file, a budget, a device, a user): what happened, where, and a hint, carried
 * back to the command line.
 *
 * A function that can be refused by a file, a budget or a device returns bool and takes an Err last:
 *     if (n != want)
 *         return fail(e, ERR_FAIL, "%s: header says %lld bytes, file has %lld. Was the copy cut short?", ...);
 *     if (!shard_open(&s, path, e)) return false;      // nothing to add: pass it on
 * Only cli/ prints an Err and turns its code into the exit status. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>

#include "base/check.h"

/* The values are the process's exit codes. */
typedef enum ErrCode { ERR_NONE = 0, ERR_FAIL = 1, ERR_USAGE = 2, ERR_BUDGET = 3 } ErrCode;

typedef struct Err {
    ErrCode code;
    int error; /* errno, where the system said no; EINTR: a signal asked the process to leave (stop.h); 0: neither */
    char text[1000];
} Err;

/* Fills e (when not NULL) and always returns false. */
bool fail(Err *e, ErrCode code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same with errno's value beside the text, for callers that wait or go on by the reason. */
bool fail_system(Err *e, int error, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Puts "context: " in front of an error that is already there; always returns false. */
bool fail_within(Err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
