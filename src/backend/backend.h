/* backend.h - what a device must be able to do: own memory and queues, and run one step. It decides nothing.
 *
 * Hot calls return nothing: the first error sticks and surfaces at sync. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/err.h"
#include "ir/op.h"

typedef struct Backend Backend;

enum { BACKEND_NOTES = 4, BACKEND_NOTE_BYTES = 8192 };

typedef struct Operand { /* of a step; NULLs where it has NONE */
    void *data;
    const Tensor *t; /* its shape and format */
} Operand;

/* A step with its addresses: resolved once when a program is opened, read-only afterwards. */
typedef struct Args {
    union { /* as in Step: by number for loops over all of them, by name in a kernel */
        struct {
            Operand in[MAX_IN], out[MAX_OUT];
        };
#define IN(operand, marks) Operand operand;
#define OUT(operand, marks) Operand operand;
#define OP(NAME, name, ins, outs)                     \
    struct {                                          \
        struct {                                      \
            ins Operand none[MAX_IN - N_IN_##name];   \
        } in;                                         \
        struct {                                      \
            outs Operand none[MAX_OUT - N_OUT_##name]; \
        } out;                                        \
    } name; /* args->linear.in.x.data, args->linear.out.y.t */
#include "ir/ops.def"
    };
    void *workspace;
    int64_t workspace_bytes;
    const Step *step;
    bool passes[MAX_OUT]; /* only the next step ever reads it */
    bool only_writer[MAX_OUT];   /* no other step of the phase writes it */
} Args;

typedef void Kernel(Backend *b, Queue q, const Args *a);

/* What a device says about itself beyond what planning needs: for people, and for a clear refusal. */
typedef struct DeviceHolder { /* a process that holds memory of the device */
    int64_t pid, bytes;       /* bytes -1: not told */
    char name[48];            /* "": not told */
} DeviceHolder;
enum { DEVICE_HOLDERS = 16, DEVICE_SLICES = 8 };
typedef struct DeviceFacts {
    char capability[48];                                  /* what it can compute */
    char driver[48], products[64], attention[64];         /* libraries with their versions, or what is missing */
    char partition[96];                                   /* whether it is cut into slices; "": it cannot be */
    char slice[DEVICE_SLICES][80];
    int n_slices;
    int64_t context_bytes;                                /* what opening took; 0: could not be seen */
    DeviceHolder holder[DEVICE_HOLDERS];                  /* others, not this process */
    int n_holders;
    int64_t others_bytes;                                 /* taken and not ours; -1: not known */
} DeviceFacts;

/* n steps of one op that follow each other on one queue, a[0] to a[n-1]. None touches bytes that another writes, so
 * they may run in any order or at once; the bits are those of n kernels. */
typedef void KernelRun(Backend *b, Queue q, const Args *a, int n);

/* Two stretches of memory have a byte in common; NULL: nothing is there. */
static inline bool backend_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
    return a && b && (const char *)a < (const char *)b + b_bytes && (const char *)b < (const char *)a + a_bytes;
}

/* Steps of several ops in one launch. Of the n from a[0] on, which follow each other on one queue and wait for no
 * other, the first so many may be handed to `run` together (fewer than 2: none). The bits are those of the steps one
 * by one; what passes from one to the next need not be written. */
typedef struct Joins {
    int (*of)(Backend *b, const Args *a, int n);
    KernelRun *run;
} Joins;

/* A piece of a tensor in host memory: `bytes` of it from byte `at` on; from the first to the last. */
typedef void StageFn(void *context, void *piece, int64_t at, int64_t bytes);

struct Backend {
    const char *name;
    bool host_memory;                                                    /* pools lie in memory the host can touch */
    bool asynchronous;                                                   /* queued work runs while the host goes on */
    void (*close)(Backend *b);
    void (*describe)(Backend *b, Machine *m);                            /* pools, rates, fixed bytes */
    /* once per pool, before sealing; zeroed; owned by b */
    void *(*pool)(Backend *b, Pool kind, int64_t bytes, Err *e);
    void (*facts)(Backend *b, DeviceFacts *f);                           /* slow: asks libraries */
    /* The GEMM algorithms chosen so far (gives how many there are, fills up to room), and those to choose. */
    int64_t (*choices)(Backend *b, MachineChoice *out, int64_t room);
    void (*choose)(Backend *b, const MachineChoice *list, int64_t n);
    /* device bytes this process holds, as the system sees it; -1: not known */
    int64_t (*in_use)(Backend *b);
    void (*release)(Backend *b, Pool kind);                              /* gives the pool back to the system */
    /* Gives the pages that lie wholly in [at, at + bytes) of the device pool back to the system, when all queues are
     * idle (gives how many bytes that were); restore takes them again: same addresses, any contents. */
    int64_t (*trim)(Backend *b, int64_t at, int64_t bytes);
    bool (*restore)(Backend *b, Err *e);
    /* Of the disk pool. link: those bytes are a part of that file, which is only read. settle, once all links are
     * made and before anything is played: takes the room of the rest on disk, or refuses (gives how many bytes those
     * are). */
    bool (*link)(Backend *b, const void *at, const char *path, int64_t file_at, int64_t bytes, Err *e);
    bool (*settle)(Backend *b, int64_t *own_bytes, Err *e);
    void (*copy)(Backend *b, Queue q, void *dst, const void *src, int64_t bytes);
    void (*signal)(Backend *b, Queue q, int event);                      /* everything queued on q so far */
    void (*wait)(Backend *b, Queue q, int event);                        /* q goes on after that signal */
    /* One play of program `id` stands between begin and end. A device may keep what was queued (a graph) and repeat
     * it: replay gives true when it did, false when the steps must be issued again. The CPU keeps nothing. */
    void (*begin)(Backend *b, int id);
    void (*end)(Backend *b, int id);
    bool (*replay)(Backend *b, int id);
    /* all queues idle; surfaces the sticky error */
    bool (*sync)(Backend *b, Err *e);
    /* Host memory to a pool, behind everything on the compute queue. The host may reuse its memory at once; it waits
     * only when more is in flight than the device's staging memory holds. */
    void (*put)(Backend *b, void *device, const void *host, int64_t bytes);
    void (*get)(Backend *b, void *host, const void *device, int64_t bytes); /* waits for what is queued */
    /* The same for large tensors, a piece at a time where they lie in the device's staging memory: fn reads (fetch) or
     * writes (store) a piece while the next one (the one before) is being copied. NULL: pools are host memory. */
    void (*fetch)(Backend *b, const void *device, int64_t bytes, StageFn *fn, void *context);
    void (*store)(Backend *b, void *device, int64_t bytes, StageFn *fn, void *context);
    /* A few numbers read late: note queues their copy behind everything on the compute queue, read_note waits for that
     * copy alone, whatever was queued since, and surfaces the sticky error. slot < BACKEND_NOTES. */
    void (*note)(Backend *b, int slot, const void *device, int64_t bytes);
    bool (*read_note)(Backend *b, int slot, void *host, int64_t bytes, Err *e);
    /* For a profiler: a named stretch of calls begins; name NULL: the innermost ends. NULL: not asked for. */
    void (*range)(Backend *b, const char *name);
    Kernel *const *kernels;                                              /* OP_COUNT rows; NULL: it cannot */
    /* OP_COUNT rows, or NULL; a NULL row: one by one */
    KernelRun *const *runs;
    Joins joins;                                                         /* zeros: it has none */
};

typedef struct BackendOptions {
    int threads; /* 0: as many as the process may use */
    bool deterministic; /* the same bits in every process: nothing is chosen by timing, no sum is by atomics */
    bool tf32;          /* GEMMs of fp32 numbers may use TF32 */
    bool ranges;        /* the device's profiler is told what the host is doing */
    const char *offload_dir; /* keeps; where the disk pool's file is made; NULL: there is none */
    bool trims;         /* pages of the device pool will be given back and taken again */
} BackendOptions;

/* "cpu", "cuda", "cuda:N"; "auto": the first GPU, or the CPU where there is none. A GPU that is there and cannot be
 * opened is an error, not a reason to go on slowly. Gives: b->close. */
bool backend_open(Backend **b, const char *device, BackendOptions options, Err *e);

/* The first step whose op has no kernel there, or -1: found before anything runs. */
int backend_lacks(const Backend *b, const Program *p);

/* linear_swiglu by a device's kernels for its two parts; what is between them stands in its workspace. */
void backend_linear_swiglu(Backend *b, Queue q, const Args *a, Kernel *linear_of, Kernel *swiglu_of);

/* "pid 4711 (python) holds 21.30 GiB; ...": who has the device's memory, as far as the system tells. */
void backend_holders(Str *out, const DeviceFacts *f);

#endif
