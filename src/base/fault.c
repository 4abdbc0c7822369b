/* fault.c - how calls are counted, and what a failing one looks like. */
#include "base/fault.h"

#ifdef FAULTS

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int error;
} kinds[FAULT_KINDS] = {
    [FAULT_ALLOC] = {"alloc", ENOMEM},       [FAULT_MAP] = {"map", ENOMEM},
    [FAULT_OPEN] = {"open", EACCES},         [FAULT_READ] = {"read", EIO},
    [FAULT_WRITE] = {"write", ENOSPC},       [FAULT_CUT] = {"cut", EIO},
    [FAULT_FLUSH] = {"flush", EIO},          [FAULT_RENAME] = {"rename", EACCES},
    [FAULT_EXCHANGE] = {"exchange", EINVAL}, [FAULT_MAKE] = {"make", ENOSPC},
    [FAULT_REMOVE] = {"remove", EACCES},     [FAULT_LOCK] = {"lock", ENOLCK},
    [FAULT_THREAD] = {"thread", EAGAIN},     [FAULT_PROCESS] = {"process", EAGAIN},
};

static atomic_llong calls[FAULT_KINDS];
static long long nth[FAULT_KINDS]; /* the call that is treated specially; 0: none */
static bool stops[FAULT_KINDS], tells[FAULT_KINDS];

bool fault_here(FaultKind kind, const char *what) {
    long long n = atomic_fetch_add(&calls[kind], 1) + 1;
    if (tells[kind]) fprintf(stderr, "fault: %s %lld is: %s\n", kinds[kind].name, n, what);
    if (n != nth[kind]) return false;
    fprintf(stderr, "fault: %s %lld %s: %s\n", kinds[kind].name, nth[kind], stops[kind] ? "stops" : "fails", what);
    if (stops[kind]) raise(SIGSTOP);
    errno = kinds[kind].error;
    return !stops[kind];
}

bool fault_set(const char *text, Err *e) {
    for (int k = 0; k < FAULT_KINDS; k++) {
        size_t n = strlen(kinds[k].name);
        char *end = NULL;
        if (strncmp(text, kinds[k].name, n) || text[n] != ':') continue;
        nth[k] = strtoll(text + n + 1, &end, 10);
        stops[k] = !strcmp(end, ":stop");
        tells[k] = !strcmp(end, ":tell");
        if (nth[k] >= 0 && end > text + n + 1 && (!*end || stops[k] || tells[k])) return true;
    }
    return fail(e, ERR_USAGE, "--fault %s: KIND:N, KIND:N:stop or KIND:0:tell is expected", text);
}

void fault_report(void) {
    fprintf(stderr, "fault: calls");
    for (int k = 0; k < FAULT_KINDS; k++) fprintf(stderr, " %s=%lld", kinds[k].name, (long long)calls[k]);
    fputc('\n', stderr);
}

#else
typedef int FaultUnused; /* a translation unit may not be empty */
#endif
