/* process.h - what the kernel says about this process: the pages it holds, the addresses it has, the limits it is
 * under.
 *
 * Words: *resident* pages are in memory; *address space* is what is mapped, touched or not; a *limit* is one that
 * the system was told to hold this process to (ulimit, setrlimit). Nothing but process_tree touches the heap.
 * Unknown figures are -1. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct ProcessMemory { /* of /proc/self/status */
    int64_t anon_bytes;        /* resident and of no file: heap, stacks, pools (RssAnon) */
    int64_t peak_bytes;        /* the most that was ever resident, pages of files included (VmHWM) */
    int64_t address_bytes;     /* mapped (VmSize) */
    int64_t data_bytes;        /* mapped, private and writable (VmData) */
} ProcessMemory;

ProcessMemory process_memory(void);
ProcessMemory process_memory_at(const char *root); /* from <root>/proc/self/status */

/* Bytes of the files mapped here: the program's code and constants and those of its libraries. No more of them can
 * become resident, however much of the program is run. */
int64_t process_program_bytes(void);
int64_t process_program_bytes_at(const char *root);

/* What a process of ours has resident at most before it asks for anything by name: its program's pages, a heap of
 * small things, the stacks of so many threads (base/threads.h). */
int64_t process_runtime_bytes(int threads);

typedef struct ProcessLimits { /* -1: no limit */
    int64_t address_bytes;     /* RLIMIT_AS, ulimit -v */
    int64_t data_bytes;        /* RLIMIT_DATA, ulimit -d */
    int64_t locked_bytes;      /* RLIMIT_MEMLOCK, ulimit -l */
    int64_t file_bytes;        /* RLIMIT_FSIZE, ulimit -f: of one file */
} ProcessLimits;

ProcessLimits process_limits(void);

/* The stack that every command is sure to get along with, whatever is nested in its inputs: where `ulimit -s` is less
 * it is raised as far as it may be, for this process and those it starts; refused where that is not enough. */
bool process_need_stack(Err *e);

/* How a refusal of memory ends, and why: ERR_BUDGET with the limit that is set on addresses or data (" (ulimit -v
 * is 400.00 MiB, 390.12 MiB are taken)"); ERR_FAIL with "" where there is none. */
typedef struct ProcessRefusal {
    ErrCode code;
    char why[96];
} ProcessRefusal;
ProcessRefusal process_refusal(void);

/* ---- other processes ---- */

typedef struct ProcessFacts { /* of /proc/PID/stat */
    int pid, parent;
    int64_t start_ticks;    /* since the machine was started: with the pid, it names a process for good */
    int64_t resident_bytes; /* pages of files included */
    bool ended;             /* waits to be collected */
} ProcessFacts;
bool process_facts(ProcessFacts *f, int pid);               /* false: there is no such process */
void process_name(char *to, int size, int pid);             /* as it calls itself; "": none */
int64_t process_peak_bytes(int pid);                        /* the most that was ever resident (VmHWM); -1: unknown */

/* Every process below `root` (not itself), at most `room`; gives how many. */
int process_tree(ProcessFacts *list, int room, int root);

/* ---- small files of the system ---- */

enum { PROCESS_TEXT_BYTES = 8192 };
/* The file's first bytes behind a newline, so that every line of it can be searched as "\nname". */
bool process_read(char to[PROCESS_TEXT_BYTES], const char *path);
/* The number behind a label; -1: absent, or no number ("max"). */
int64_t process_number(const char *text, const char *label);
int64_t process_kilobytes(const char *text, const char *label); /* the same, given in kB, as bytes */

#endif
