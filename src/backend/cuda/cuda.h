/* cuda.h - the GPU as a device, seen from inside its room: the backend's inside and what kernel functions use.
 *
 * Rules
 *   G1  a kernel function (cuda_<op>) queues work on the stream of its queue and returns: it never waits, never
 *       allocates. The exceptions are outside a capture: the first product of a shape is timed (cublas.c), the
 *       first attention of a shape by the library is planned (cudnn.c).
 *   G2  dials (clock, beta, divisor, verdict, positions) are device memory and are read by kernels, never by the
 *       host (P7): the step is captured once and repeated as a graph.
 *   G3  kernels compute in fp32 whatever the storage and store once: to nearest, except gradients and weights in
 *       bf16, which are rounded at random with the numbers the CPU draws (P6). No sum depends on the order of
 *       threads, but for keys, values and index keys of long rows (gathered_grad.cu, index_gathered.cu), where the
 *       backend is not deterministic.
 *   G4  scratch is the step's workspace, sized by the op's row for MACHINE_CUDA.
 *   G5  the first error sticks (cuda_fail) and surfaces at sync. The frame looks for launch errors after every
 *       kernel function and names the op, so kernel functions need not. */
#ifndef BACKEND_CUDA_CUDA_H
#define BACKEND_CUDA_CUDA_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cuda/launch.h"
#include "backend/disk.h"
#include "base/units.h"

_Static_assert((int)CUDA_CLOCK_KEY == CLOCK_KEY && (int)CUDA_CLOCK_FIRST_TOKEN == CLOCK_FIRST_TOKEN &&
                   (int)CUDA_CLOCK_MICRO == CLOCK_MICRO && (int)CUDA_CLOCK_STEP == CLOCK_STEP,
               "launch.h repeats the clock's words");

typedef struct CudaPool {
    char *data; /* owns; NULL: not made */
    int64_t bytes;
} CudaPool;

/* Small puts go through pinned memory, so that the host goes on at once: two halves, one being filled while the
 * other is in flight. */
typedef struct CudaRing {
    char *data;          /* owns: pinned, 2 * CUDA_RING_BYTES */
    int half;            /* the one being filled ... */
    int64_t used;        /* ... up to here */
    cudaEvent_t copied[2]; /* a half is free again */
} CudaRing;
#define CUDA_RING_BYTES (4 * MIB)

typedef struct CudaNotes { /* numbers being copied to the host */
    char *data;            /* owns: pinned, BACKEND_NOTE_BYTES a slot */
    cudaEvent_t written[BACKEND_NOTES];
} CudaNotes;

typedef struct CudaGraph { /* of one program id */
    int plays;             /* begun so far */
    cudaGraphExec_t exec;  /* owns; NULL: not captured, every play is issued step by step */
} CudaGraph;

typedef enum CudaCallKind { CUDA_CALL_STEP, CUDA_CALL_SIGNAL, CUDA_CALL_WAIT } CudaCallKind;
typedef struct CudaCall { /* what a play was made of: issued again when its capture fails */
    CudaCallKind kind;
    Queue queue;
    int event;
    const Args *args; /* keeps: Args stand as long as their Exec */
} CudaCall;

typedef struct CudaProducts CudaProducts; /* cublas.c: the library and the choices made */
typedef struct CudaAttention CudaAttention; /* cudnn.c: the library and the plans made */

typedef struct CudaDiskMove CudaDiskMove;   /* cuda_disk.c: a read or write in flight */

typedef struct CudaBackend {
    Backend base; /* first: a Backend * is a CudaBackend * */
    int device;   /* its number, among the visible ones */
    char name[96], driver[48], bus_id[32];
    bool deterministic;               /* nothing is chosen by timing, every sum has one order */
    bool tf32, trims;                 /* see BackendOptions */
    int processors;                   /* multiprocessors */
    int major, minor;                 /* compute capability */
    int64_t shared_bytes;             /* of shared memory, what a launch may ask for beside a kernel's own words */
    bool keeps_to_mma;                /* attention does not use wgmma on 9.0: for tests of the mma.sync kernels */
    bool gathers_all;                 /* sparse rows of any length are gathered as long ones are: for tests */
    int64_t others_bytes;             /* of device memory, what was taken before opening; -1: could not be seen */
    int64_t context_bytes;            /* of device memory, what opening took; 0: could not be seen */
    int64_t host_bytes;               /* of this process's memory, likewise */
    cudaStream_t stream[QUEUE_COUNT]; /* own */
    cudaEvent_t *event;               /* own: one per step of the program, made when first signalled */
    int64_t n_events, cap_events;
    cudaEvent_t fork, join[QUEUE_COUNT];
    CudaPool pool[POOL_COUNT];
    bool *absent;                     /* owns: which pieces of the device pool were given back */
    const char *offload_dir;          /* keeps */
    Disk disk;
    CudaDiskMove *disk_moves;         /* owns */
    atomic_int disk_state;            /* what the driver's thread found ... */
    Err disk_error;                   /* ... the first failure */
    CudaRing ring;
    CudaNotes notes;
    CudaGraph graph[MAX_PHASES];
    int capturing;           /* program id whose play is being captured; -1: none */
    char capture_error[320]; /* the first of this capture; "": none so far */
    char graph_note[360];    /* why the last refused capture was refused; "": none was */
    CudaCall *call;          /* owns: what the running play was made of so far ... */
    int64_t n_calls, cap_calls;
    bool keeps_calls;       /* ... in a first play, so that the second, which is captured, finds room, and then */
    CudaProducts *products; /* owns */
    CudaAttention *attention; /* owns; NULL: no program has asked for it */
    Err error;              /* the first; code ERR_NONE: none */
} CudaBackend;

static inline CudaBackend *cuda_backend(Backend *b) { return (CudaBackend *)b; }
static inline cudaStream_t cuda_stream(Backend *b, Queue q) { return ((CudaBackend *)b)->stream[q]; }

/* A driver that sees a card; true also when it is of the wrong version. */
bool cuda_there(void);
/* "cuda" or "cuda:N". Gives: b->close. */
bool cuda_open(Backend **b, const char *device, BackendOptions options, Err *e);

/* ---- errors (G5) ---- */
void cuda_fail(Backend *b, const char *fmt, ...) PRINTF_LIKE(2, 3); /* sticks when it is the first */
bool cuda_ok(Backend *b, cudaError_t status, const char *what);     /* false: it stuck */
void cuda_check_launch(Backend *b, const char *op);                 /* the last launch error, if any */

/* ---- cuda_graph.c: plays, and the door through which every kernel function is called ---- */
void cuda_begin(Backend *b, int id);
void cuda_end(Backend *b, int id);
bool cuda_replay(Backend *b, int id);
void cuda_drop_graphs(CudaBackend *c);
void cuda_signal(Backend *b, Queue q, int event);
void cuda_wait(Backend *b, Queue q, int event);
static inline bool cuda_is_capturing(Backend *b) { return ((CudaBackend *)b)->capturing >= 0; }

/* ---- kernel functions: one per op of ops.def; a missing one does not link (table.c) ---- */
#define OP(NAME, name, ins, outs) extern Kernel cuda_##name;
#include "ir/ops.def"
extern Kernel *const cuda_functions[OP_COUNT];
extern Kernel *const cuda_kernels[OP_COUNT]; /* the table exec sees: every row goes through cuda_graph.c */

/* ---- runs of steps in few launches (backend.h); the rows of the others are NULL ---- */
extern KernelRun cuda_sum_squares_run, cuda_adamw_run, cuda_sgd_run;
extern KernelRun *const cuda_runs[OP_COUNT]; /* what exec sees: through cuda_graph.c likewise */

/* ---- steps of several ops in one launch (backend.h): join.c ---- */
int cuda_joins_of(Backend *b, const Args *a, int n);
extern KernelRun cuda_join_steps;
int cuda_put_attend_takes(Backend *b, const Args *a, int n); /* kernels.c: rope_put and attend_cache of a token a row */
extern KernelRun cuda_put_attend;
extern const Joins cuda_joins; /* what exec sees: through cuda_graph.c likewise */

/* ---- shapes of a step's tensors ---- */
static inline int64_t cuda_cols(const Tensor *t) { return t->dim[t->rank - 1]; }
static inline int64_t cuda_rows(const Tensor *t) { /* all dimensions but the last, together */
    int64_t n = 1;
    for (int i = 0; i < t->rank - 1; i++) n *= t->dim[i];
    return n;
}
static inline int64_t cuda_count(const Tensor *t) { return cuda_rows(t) * cuda_cols(t); }

/* What the roundings (draw_key) or the dropout (drop_key) of this step are keyed by. */
static inline CudaKey cuda_key(const Args *a, Operand clock, int64_t part) {
    return (CudaKey){.clock = clock.data, .step = a->step->key, .part = part};
}

/* fp32, bf16, fp16: what kernels read and write number by number. */
static inline bool cuda_is_number(Format f) { return f == FMT_F32 || f == FMT_BF16 || f == FMT_F16; }

#endif
