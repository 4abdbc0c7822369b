/* cpu.h - what the kernels of the CPU share: the backend's inside, stored numbers as fp32, products, exponentials.
 *
 * Rules
 *   C1  a tile's bits depend on its number and the logical shapes alone: never on threads, workers or addresses.
 *   C2  kernels compute in fp32 (sums that need it in fp64) whatever the storage; they store once, rounded to
 *       nearest, except gradients and weights in bf16, which are rounded at random by key and element (P6).
 *   C3  scratch is the step's workspace, sized by the op's row; a kernel allocates nothing.
 *   C4  products are batch-invariant: a number of C is summed in the order of the inner dimension, part by part,
 *       wherever its row and column stand. How many rows or columns a call has decides no bit. */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/disk.h"
#include "base/courier.h"
#include "base/rng.h"
#include "base/threads.h"

typedef struct CpuPool {
    void *data; /* owns; NULL: not made */
    int64_t bytes;
} CpuPool;

typedef struct CpuBackend {
    Backend base; /* first: a Backend * is a CpuBackend * */
    Threads *threads;
    int n_threads;
    CpuPool pool[POOL_COUNT];
    const char *offload_dir; /* keeps */
    Disk disk;
    Courier *courier;        /* owns: reads and writes of the disk queues; NULL: there is no disk pool */
    int64_t errand;          /* the number of the last */
    int64_t *errand_of;      /* owns: per event, what was sent up to its signal */
    int64_t n_events;
    char note[BACKEND_NOTES][BACKEND_NOTE_BYTES];
} CpuBackend;

bool cpu_open(Backend **b, BackendOptions options, Err *e); /* gives: b->close */

static inline Threads *cpu_threads(Backend *b) { return ((CpuBackend *)b)->threads; }
static inline int cpu_thread_count(Backend *b) { return ((CpuBackend *)b)->n_threads; }

/* One kernel per op of ops.def: a missing one does not link. */
#define OP(NAME, name, ins, outs) extern Kernel cpu_##name;
#include "ir/ops.def"
extern Kernel *const cpu_kernels[OP_COUNT];

#ifdef __clang__ /* which vectorises at O2 */
#define CPU_O3
#else
#define CPU_O3 optimize("O3")
#endif

/* For loops the compiler should turn into vectors: built for plain x86-64, AVX2+FMA and AVX-512, chosen by the
 * processor at start. Not for static functions that are inlined into one: they inherit it. Clang knows no such clones;
 * ThreadSanitizer is not there yet when one is chosen. */
#if defined __clang__ || defined __SANITIZE_THREAD__
#define CPU_VECTOR
#else
#define CPU_VECTOR __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4"), CPU_O3))
#endif

/* ---- shapes of a step's tensors ---- */
static inline int64_t cpu_cols(const Tensor *t) { return t->dim[t->rank - 1]; }
static inline int64_t cpu_rows(const Tensor *t) { /* all dimensions but the last, together */
    int64_t n = 1;
    for (int i = 0; i < t->rank - 1; i++) n *= t->dim[i];
    return n;
}
static inline int64_t cpu_count(const Tensor *t) { return cpu_rows(t) * cpu_cols(t); }

/* A worker's part of the step's workspace: `each` bytes per worker from byte `first` on. */
void *cpu_scratch(const Args *a, int64_t first, int64_t each, int worker);

/* ---- stored numbers (fp32, bf16, fp16) as fp32: elements [first, first+n) of src or dst ---- */
void cpu_load(float *dst, const void *src, Format f, int64_t first, int64_t n);
void cpu_store(void *dst, Format f, int64_t first, const float *src, int64_t n); /* to nearest, ties to even */
/* bf16: up or down at random, by key and element index first+i; fp32: plain; fp16: to nearest. */
void cpu_store_random(void *dst, Format f, int64_t first, const float *src, int64_t n, uint64_t key);
/* A gradient: dst = beta*dst + src, stored as by cpu_store_random. beta 0 never reads dst. */
void cpu_accumulate(void *dst, Format f, int64_t first, const float *src, int64_t n, float beta, uint64_t key);

/* The same numbers without a copy when they are fp32 already: gives src itself or `scratch` filled. */
static inline const float *cpu_view(float *scratch, const void *src, Format f, int64_t first, int64_t n) {
    if (f == FMT_F32) return (const float *)src + first;
    cpu_load(scratch, src, f, first, n);
    return scratch;
}

/* An operand's numbers [first, first+n): as fp32, in `scratch` where they are not; and stored to nearest. */
static inline const float *cpu_read(float *scratch, Operand x, int64_t first, int64_t n) {
    return cpu_view(scratch, x.data, x.t->format, first, n);
}
static inline void cpu_write(Operand y, int64_t first, const float *src, int64_t n) {
    cpu_store(y.data, y.t->format, first, src, n);
}

uint64_t cpu_draw_key(const Args *a, Operand clock); /* what the roundings of this step and play are keyed by */
float cpu_beta(Operand beta);                        /* the beta dial; 1 where there is none */

/* ---- vector mathematics, a few units in the last place ---- */
void cpu_exp(float *dst, const float *src, float minus, int64_t n); /* dst = e^(src - minus); dst may be src */
float cpu_max(const float *x, int64_t n);                           /* -infinity for n = 0; NaNs are passed over */
double cpu_sum(const float *x, int64_t n);                          /* in fp64, in one order */

/* ---- products of fp32 blocks, single-threaded: call inside a tile ---- */
/* C(rows,cols) = alpha * A B + beta * C, row-major; A is (rows,inner), or (inner,rows) when a_transposed; B is
 * (inner,cols), or (cols,inner) when b_transposed. beta 0 never reads C. */
typedef struct CpuBlock {
    int64_t rows, cols, inner;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    bool a_transposed, b_transposed;
    float alpha, beta;
} CpuBlock;
void cpu_multiply(const CpuBlock *m);

#endif
