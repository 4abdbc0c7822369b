/* backend.h - what a device must be able to do: own memory and queues, and run one step. It decides nothing.
 *
 * Hot calls return nothing: the first error sticks and surfaces at sync. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/err.h"
#include "ir/op.h"

typedef struct Backend Backend;

/* A step with its addresses: resolved once when a program is opened, read-only afterwards. */
typedef struct Args {
    void *in[MAX_IN], *out[MAX_OUT];          /* NULL where the step has NONE */
    const Tensor *ti[MAX_IN], *to[MAX_OUT];   /* their shapes and formats */
    void *workspace;
    int64_t workspace_bytes;
    const Step *step;
} Args;

typedef void Kernel(Backend *b, Queue q, const Args *a);

/* n steps of one op that follow each other on one queue, a[0] to a[n-1]. None touches bytes that another writes, so
 * they may run in any order or at once; the bits are those of n kernels. */
typedef void KernelRun(Backend *b, Queue q, const Args *a, int n);

struct Backend {
    const char *name;
    bool host_memory;                                                    /* pools lie in memory the host can touch */
    void (*close)(Backend *b);
    void (*describe)(Backend *b, Machine *m);                            /* pools, rates, fixed bytes */
    void *(*pool)(Backend *b, Pool kind, int64_t bytes, Err *e);         /* once per pool, before sealing; zeroed; owned by b */
    int64_t (*in_use)(Backend *b);                                       /* device bytes this process holds, as the system sees it; -1: not known */
    void (*release)(Backend *b, Pool kind);                              /* gives the pool back to the system */
    void (*copy)(Backend *b, Queue q, void *dst, const void *src, int64_t bytes);
    void (*signal)(Backend *b, Queue q, int event);                      /* everything queued on q so far */
    void (*wait)(Backend *b, Queue q, int event);                        /* q goes on after that signal */
    /* One play of program `id` stands between begin and end. A device may keep what was queued (a graph) and repeat
     * it: replay gives true when it did, false when the steps must be issued again. The CPU keeps nothing. */
    void (*begin)(Backend *b, int id);
    void (*end)(Backend *b, int id);
    bool (*replay)(Backend *b, int id);
    bool (*sync)(Backend *b, Err *e);                                    /* all queues idle; surfaces the sticky error */
    void (*put)(Backend *b, void *device, const void *host, int64_t bytes); /* host memory to a pool, now */
    void (*get)(Backend *b, void *host, const void *device, int64_t bytes);
    Kernel *const *kernels;                                              /* OP_COUNT rows; NULL: it cannot */
    KernelRun *const *runs;                                              /* OP_COUNT rows, or NULL; a NULL row: one by one */
};

typedef struct BackendOptions {
    int threads; /* 0: as many as the process may use */
} BackendOptions;

/* "cpu". Gives: b->close. */
bool backend_open(Backend **b, const char *device, BackendOptions options, Err *e);

/* The first step whose op has no kernel there, or -1: found before anything runs. */
int backend_lacks(const Backend *b, const Program *p);

#endif
