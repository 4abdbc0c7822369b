/* outside.h - every command as a process seen from outside: under limits, with what the kernel counted when it
 * ended. */
#ifndef TESTS_BUDGET_OUTSIDE_H
#define TESTS_BUDGET_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/str.h"

typedef struct OutsideCommand {
    const char *name;
    const char *arguments; /* run in a folder of its own below test_tmp(); inputs are in the folder above it */
    const char *input;     /* file of standard input, in the folder above; NULL: empty */
    bool on_device;        /* it has a plan of a device */
} OutsideCommand;

extern const OutsideCommand outside_command[];
extern const int outside_commands;

/* Below test_tmp(): a model whose embedding takes embedding_mib as bf16, tally, and texts. */
bool outside_make(int embedding_mib);
/* And what only sweeps over all commands need: a logged run, an adapter, shards, a sparse model. */
bool outside_make_all(int embedding_mib);

typedef struct OutsideLimit { /* all 0: none */
    int resource;             /* RLIMIT_... */
    int64_t bytes;            /* 0: none */
    const char *group;        /* a control group to enter: the file that takes process ids; NULL: stay */
    const char *environment;  /* "NAME=VALUE ..." in front of the command; NULL: nothing */
} OutsideLimit;

typedef struct Outside {
    int code; /* exit code; 128 + signal when a signal ended it: never what a command should come to */
    bool signalled;
    int64_t peak_bytes; /* ru_maxrss of wait4 */
    Str out, err;
} Outside;

/* Ends a process that computes for more than a minute: one that hangs does. */
Outside outside_run(const char *folder, const char *arguments, const char *input, const OutsideLimit *limit);
void outside_free(Outside *o);

/* A process whose standard input stays open; and its end. */
pid_t outside_start(const char *folder, const char *arguments, int *input);
Outside outside_wait(pid_t pid, const char *folder);

int64_t outside_number(const Outside *o, const char *key); /* of the last JSON line; -1: absent */

#endif
