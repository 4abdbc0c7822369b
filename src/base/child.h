/* child.h - child processes behind two pipes: started without a shell, read and written without blocking, never left
 * behind.
 *
 * A child is the leader of a process group of its own, so that what it starts ends with it, and Ctrl-C on the
 * terminal does not reach it. It has our environment and working folder, and no file of ours. When this process is
 * killed, the child reads the end of its input. */
#ifndef BASE_CHILD_H
#define BASE_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct Child {
    int pid;     /* 0: none */
    int in, out; /* our ends of what it reads and writes; -1: closed */
} Child;

/* argv ends with NULL; argv[0] is looked for in PATH. err_fd: where its standard error goes; -1: where ours goes. A
 * program that is not there is refused here. */
bool child_start(Child *c, const char *const *argv, int err_fd, Err *e);

/* Bytes moved; 0: none just now; -1: the other end is closed. Neither waits. */
int64_t child_write(Child *c, const void *from, int64_t bytes);
int64_t child_read(Child *c, void *to, int64_t room);

void child_end_input(Child *c);

/* Waits up to so long for its end, then ends its whole group. how (may be NULL) says how it ended: "exit code 3",
 * "signal 9 (Killed)", or "ended by us". A child that is none is fine. */
enum { CHILD_HOW = 48 };
void child_stop(Child *c, double seconds, char how[CHILD_HOW]);

/* ---- a command in the foreground ---- */

/* It has our standard input, output and error, and what the terminal sends. */
bool child_run(int *pid, const char *const *argv, Err *e);

typedef struct ChildEnd {
    int code;           /* its exit code; 128 + the signal that ended it */
    int64_t peak_bytes; /* the most that one process of it ever had resident; at least our own memory, some 2 MB */
} ChildEnd;
bool child_ended(int pid, ChildEnd *end); /* does not wait; true once */
void child_send(int pid, int signal);

typedef struct ChildWait {
    const Child *c;  /* one without a process is passed over */
    bool wants_room; /* wait until it takes bytes, too */
    bool has_bytes;  /* out: it can be read, if only its end */
    bool has_room;   /* out */
} ChildWait;

enum { CHILD_WAIT_MOST = 64 };
/* Until something of n can be done, a signal comes, or so many milliseconds have passed. */
void child_wait(ChildWait *w, int n, int milliseconds);

#endif
