/* gpu_attend_sweep.cu - which cut of the attention kernels is right, and which is fastest, on the card that is here:
 * every variant on every shape against the plain kernels (attend_plain.cu).
 *
 *   make CUDA=1 attend-sweep && ./build/attend-sweep [PART-OF-A-VARIANT'S-NAME] > sweep.jsonl
 *
 * One JSON line a measurement: rel = |out - ref| / |ref|, max = the largest difference, missing = numbers not written
 * or not finite, moved = numbers that differ between two runs (0: deterministic), tflops = of the products the kernel
 * has to compute (forward 4*D a pair seen, dkv 8*D, dq 6*D, both of them as one backward 10*D). The last lines, kind
 * "best", are the best forward and the best backward (delta + dkv + dq) of each shape.
 *
 * A child process does the work: a variant that faults or hangs ends it, is marked, and the next child goes on behind
 * it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/attend_grad_sm90.cuh"

/* ---- shapes ---- */

enum { SEED = 7, REPEATS = 5, MOST_VARIANTS = 64, MOST_SHAPES = 32, STALL_S = 20, LIMIT_S = 150 };

typedef struct Problem {
    int rows, seq, heads, kv_heads, dim, doc; /* doc: documents of up to so many tokens; 0: one a row */
    bool timed;
} Problem;

static const Problem problems[] = {
    {2, 1003, 14, 2, 64, 300, false}, {3, 515, 4, 4, 64, 0, false},      {5, 1, 2, 1, 64, 0, false},
    {1, 193, 7, 1, 64, 20, false},    {2, 1003, 14, 2, 128, 300, false}, {3, 515, 4, 4, 128, 0, false},
    {5, 1, 2, 1, 128, 0, false},      {1, 193, 7, 1, 128, 20, false},    {8, 1024, 14, 2, 64, 0, true},
    {16, 1024, 14, 2, 64, 0, true},   {8, 2048, 14, 2, 64, 0, true},     {4, 4096, 14, 2, 64, 0, true},
    {2, 8192, 14, 2, 64, 0, true},    {4, 4096, 14, 2, 64, 900, true},   {2, 2048, 28, 4, 128, 0, true},
    {16, 1024, 28, 4, 128, 0, true},  {8, 2048, 28, 4, 128, 0, true},    {4, 4096, 28, 4, 128, 0, true},
    {2, 8192, 28, 4, 128, 0, true},   {4, 4096, 28, 4, 128, 900, true},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* ---- variants ---- */

typedef enum Kind { FORWARD, DKV, DQ, BACKWARD } Kind; /* BACKWARD: both passes as one launcher gives them */
static const char *kind_names[] = {"forward", "dkv", "dq", "backward"};

typedef struct Variant {
    Kind kind;
    int dim; /* 0: any */
    const char *name;
    void (*forward)(cudaStream_t s, const CudaAttend *a);
    void (*back)(cudaStream_t s, const CudaAttendGrad *g);
    const void *kernel;
    int threads, bytes;
} Variant;

template <int D, typename C> static Variant forward_variant(const char *name) {
    return {FORWARD, D, name, launch_forward_sm90<Bf16, D, C>, NULL, (const void *)attend_sm90_kernel<Bf16, D, C>,
            C::THREADS, ForwardMemory<D, C>::BYTES};
}
template <int D, bool KEYS_OWN, typename C> static void launch_pass(cudaStream_t s, const CudaAttendGrad *g) {
    launch_back_sm90<Bf16, D, KEYS_OWN, C>(s, g);
    if (KEYS_OWN) cuda_launch_attend_join(s, g);
}
template <int D, bool KEYS_OWN, typename C> static Variant back_variant(const char *name) {
    return {KEYS_OWN ? DKV : DQ, D, name, NULL, launch_pass<D, KEYS_OWN, C>,
            (const void *)attend_grad_sm90_kernel<Bf16, D, KEYS_OWN, C>, C::THREADS, BackMemory<D, C>::BYTES};
}

/* ForwardCut<groups, keys, blocks>, BackCut<groups, other, stages, blocks>; the first of a kind and head size ships. */
#define F(D, G, K, B) forward_variant<D, ForwardCut<G, K, B>>("f" #D " g" #G " k" #K " b" #B)
#define KV(D, G, N, S, B) back_variant<D, true, BackCut<G, N, S, B>>("kv" #D " g" #G " n" #N " s" #S " b" #B)
#define Q(D, G, N, S, B) back_variant<D, false, BackCut<G, N, S, B>>("q" #D " g" #G " n" #N " s" #S " b" #B)

static const Variant variants[] = {
    {FORWARD, 0, "mma forward", cuda_launch_attend, NULL, NULL, 0, 0},
    {BACKWARD, 0, "mma backward", NULL, cuda_launch_attend_grad, NULL, 0, 0},
    F(64, 1, 128, 3),    F(64, 1, 64, 4),     F(64, 2, 64, 2),      F(128, 1, 64, 2),    F(128, 2, 128, 1),
    KV(64, 1, 128, 2, 2), KV(64, 1, 64, 2, 3), KV(128, 1, 64, 2, 2), KV(128, 2, 64, 2, 1),
    Q(64, 1, 64, 3, 3),  Q(64, 1, 64, 2, 3),  Q(128, 1, 64, 2, 2),  Q(128, 2, 128, 2, 1),
};
enum { VARIANTS = sizeof variants / sizeof *variants };
static_assert((int)VARIANTS <= (int)MOST_VARIANTS && (int)PROBLEMS <= (int)MOST_SHAPES, "the board has room");

/* ---- what parent and child both see ---- */

typedef struct Best {
    double ms;
    int variant, parts;
} Best;

typedef struct Board {
    volatile int at; /* the case in work: problem * VARIANTS + variant */
    volatile int bad[MOST_VARIANTS], shown[MOST_VARIANTS];
    Best best[MOST_SHAPES][4];
    double delta_ms[MOST_SHAPES], pairs[MOST_SHAPES];
} Board;
static Board *board;

/* ---- the data of a problem ---- */

typedef struct Data {
    Problem p;
    int64_t tokens;
    int width;
    Bf16 *qkv, *d_o, *o, *o_ref, *d_qkv, *d_ref, *copy;
    float *lse, *lse_ref, *lse_copy;
    int32_t *begin;
    char *scratch;
    double pairs;
} Data;

static bool failed(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return false;
    printf("{\"kind\": \"error\", \"what\": \"%s\", \"error\": \"%s\"}\n", what, cudaGetErrorString(error));
    fflush(stdout);
    return true;
}
static void must(cudaError_t error, const char *what) {
    if (failed(error, what)) _exit(4);
}

static void *take(int64_t bytes) {
    void *p = NULL;
    must(cudaMalloc(&p, (size_t)bytes + 256), "cudaMalloc");
    must(cudaMemset(p, 0xff, (size_t)bytes + 256), "cudaMemset");
    return p;
}

__global__ void random_kernel(Bf16 *x, int64_t n, uint64_t key, float scale) { /* twelve uniforms make a normal */
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = -6;
    for (int k = 0; k < 12; k++) sum += rng_uniform(key, (uint64_t)i * 12 + k);
    x[i] = __float2bfloat16_rn(sum * scale);
}

static void fill_random(Bf16 *x, int64_t n, int key, float scale) {
    random_kernel<<<(unsigned)((n + 255) / 256), 256>>>(x, n, (uint64_t)key, scale);
    must(cudaGetLastError(), "random_kernel");
}

/* Documents of uneven lengths; now and then a query that sees nothing. */
static void fill_begin(Data *d) {
    int32_t *host = NULL;
    must(cudaMallocHost((void **)&host, (size_t)d->tokens * 4), "cudaMallocHost");
    uint32_t state = SEED;
    d->pairs = 0;
    for (int64_t row = 0; row < d->p.rows; row++)
        for (int i = 0, first = 0, end = 0; i < d->p.seq; i++) {
            if (i == end) {
                state = state * 1664525u + 1013904223u;
                first = end;
                end = d->p.doc ? end + 1 + (int)((state >> 8) % (uint32_t)d->p.doc) : d->p.seq;
            }
            host[row * d->p.seq + i] = !d->p.timed && d->p.doc && i % 97 == 96 ? i + 1 : first;
            d->pairs += (double)(i + 1 - host[row * d->p.seq + i]) * d->p.heads;
        }
    must(cudaMemcpy(d->begin, host, (size_t)d->tokens * 4, cudaMemcpyHostToDevice), "begin");
    cudaFreeHost(host);
}

static CudaAttend attend_of(const Data *d, Bf16 *o, float *lse) {
    const Problem *p = &d->p;
    CudaAttend a = {};
    a.q = d->qkv, a.k = d->qkv + p->heads * p->dim;
    a.o = o, a.lse = lse, a.begin = d->begin, a.last = NULL;
    a.rows = p->rows, a.q_stride = a.kv_stride = d->width, a.o_stride = p->heads * p->dim;
    a.v_offset = p->kv_heads * p->dim, a.seq = a.keys = p->seq;
    a.heads = p->heads, a.kv_heads = p->kv_heads, a.dim = p->dim;
    a.scale = 1.0f / sqrtf((float)p->dim), a.format = FMT_BF16;
    return a;
}

static DeviceAttendGrad cut_of(const Data *d) {
    AttrHeads h = {};
    h.seq = d->p.seq, h.heads = d->p.heads, h.kv_heads = d->p.kv_heads, h.head_dim = d->p.dim;
    return device_attend_grad(&h, FMT_BF16, d->tokens, false);
}

/* The gradient of the reference's o, its sums cut into n_parts; 0: as a plan would. */
static CudaAttendGrad grad_of(const Data *d, Bf16 *d_qkv, int n_parts) {
    DeviceAttendGrad cut = cut_of(d);
    CudaAttendGrad g = {};
    g.a = attend_of(d, d->o_ref, d->lse_ref);
    g.d_o = d->d_o, g.dq = d_qkv, g.dk = d_qkv + d->p.heads * d->p.dim;
    g.lse2 = (float *)d->scratch, g.delta = (float *)(d->scratch + cut.delta),
    g.tiles = (int32_t *)(d->scratch + cut.tiles);
    g.parts = (float *)(d->scratch + cut.sums);
    g.n_parts = n_parts ? n_parts : cut.n_parts, g.padded = (int)cut.padded;
    return g;
}

static float time_of(void (*work)(void *), void *context);
static void run_delta(void *context) {
    cuda_launch_attend_delta(0, (const CudaAttendGrad *)context, false);
}

static void open_data(Data *d, int problem) {
    *d = (Data){problems[problem]};
    const Problem *p = &d->p;
    d->tokens = (int64_t)p->rows * p->seq;
    d->width = (p->heads + 2 * p->kv_heads) * p->dim;
    int64_t n_qkv = d->tokens * d->width, n_o = d->tokens * p->heads * p->dim, group = p->heads / p->kv_heads;
    d->qkv = (Bf16 *)take(n_qkv * 2), d->d_qkv = (Bf16 *)take(n_qkv * 2), d->d_ref = (Bf16 *)take(n_qkv * 2);
    d->copy = (Bf16 *)take(n_qkv * 2), d->d_o = (Bf16 *)take(n_o * 2), d->o = (Bf16 *)take(n_o * 2);
    d->o_ref = (Bf16 *)take(n_o * 2), d->lse = (float *)take(d->tokens * p->heads * 4);
    d->lse_ref = (float *)take(d->tokens * p->heads * 4), d->lse_copy = (float *)take(d->tokens * p->heads * 4);
    d->begin = (int32_t *)take(d->tokens * 4);
    d->scratch = (char *)take(cut_of(d).sums + group * d->tokens * 2 * p->kv_heads * p->dim * 4); /* the most parts */
    fill_random(d->qkv, n_qkv, SEED + 2 * problem, 1.0f);
    fill_random(d->d_o, n_o, SEED + 2 * problem + 1, 1.0f);
    fill_begin(d);
    CudaAttend a = attend_of(d, d->o_ref, d->lse_ref);
    CudaAttendGrad g = grad_of(d, d->d_ref, 1);
    cuda_launch_attend_plain(0, &a);
    cuda_launch_attend_delta(0, &g, false);
    cuda_launch_attend_grad_plain(0, &g);
    must(cudaGetLastError(), "the plain kernels");
    must(cudaDeviceSynchronize(), "the plain kernels");
    board->pairs[problem] = d->pairs;
    if (p->timed) board->delta_ms[problem] = time_of(run_delta, &g);
}

static void close_data(Data *d) {
    void *all[] = {d->qkv,  d->d_o, d->o,       d->o_ref,    d->d_qkv, d->d_ref,
                   d->copy, d->lse, d->lse_ref, d->lse_copy, d->begin, d->scratch};
    for (void *p : all) cudaFree(p);
}

/* ---- comparison ---- */

typedef struct Errors {
    double err2, ref2;
    float max;
    unsigned missing, moved;
    double numbers; /* compared */
} Errors;

/* Columns [from, upto) of rows of `width` numbers; again: a second run's. */
template <typename T> __global__ void compare_kernel(Errors *e, const T *x, const T *ref, const T *again, int64_t n,
                                                     int width, int from, int upto) {
    double err2 = 0, ref2 = 0;
    float most = 0;
    unsigned missing = 0, moved = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int col = (int)(i % width);
        if (col < from || col >= upto) continue;
        float a = to_float(x[i]), b = to_float(ref[i]), off = fabsf(a - b);
        missing += !isfinite(a);
        moved += __float_as_int(a) != __float_as_int(to_float(again[i]));
        if (isfinite(a)) err2 += (double)off * off, most = fmaxf(most, off);
        ref2 += (double)b * b;
    }
    if (missing) atomicAdd(&e->missing, missing);
    if (moved) atomicAdd(&e->moved, moved);
    for (int d = 16; d; d >>= 1) {
        err2 += __shfl_xor_sync(~0u, err2, d), ref2 += __shfl_xor_sync(~0u, ref2, d);
        most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    }
    if (threadIdx.x % 32) return;
    atomicAdd(&e->err2, err2), atomicAdd(&e->ref2, ref2);
    atomicMax((int *)&e->max, __float_as_int(most)); /* not negative: ordered as integers */
}

static Errors *errors_on_device;

template <typename T>
static Errors compare(const T *x, const T *ref, const T *again, int64_t n, int width, int from, int upto) {
    Errors e = {};
    if (!errors_on_device) errors_on_device = (Errors *)take(sizeof(Errors));
    cudaMemset(errors_on_device, 0, sizeof(Errors));
    compare_kernel<T><<<1024, 256>>>(errors_on_device, x, ref, again, n, width, from, upto);
    must(cudaMemcpy(&e, errors_on_device, sizeof e, cudaMemcpyDeviceToHost), "compare");
    e.numbers = (double)(n / width) * (upto - from);
    return e;
}

/* ---- a measurement ---- */

typedef struct Work {
    const Variant *v;
    CudaAttend a;
    CudaAttendGrad g;
} Work;

static void run_work(void *context) {
    const Work *w = (const Work *)context;
    if (w->v->kind == FORWARD)
        w->v->forward(0, &w->a);
    else
        w->v->back(0, &w->g);
}

/* Milliseconds of one launch: the median of REPEATS rounds. */
static float time_of(void (*work)(void *), void *context) {
    cudaEvent_t begin, end;
    float all[REPEATS], once = 0;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    for (int r = -1, n = 2; r < REPEATS; r++) {
        cudaEventRecord(begin);
        for (int i = 0; i < n; i++) work(context);
        cudaEventRecord(end);
        must(cudaEventSynchronize(end), "timing");
        cudaEventElapsedTime(&once, begin, end);
        if (r >= 0) all[r] = once / n;
        else n = once > 8 ? 1 : (int)(8 / (once / n + 0.001f)) / 2 + 1; /* about 4 ms a round */
    }
    cudaEventDestroy(begin), cudaEventDestroy(end);
    for (int i = 1; i < REPEATS; i++)
        for (int j = i; j > 0 && all[j] < all[j - 1]; j--) {
            float t = all[j];
            all[j] = all[j - 1], all[j - 1] = t;
        }
    return all[REPEATS / 2];
}

static void say_errors(const char *of, Errors e) {
    printf(", \"%s\": {\"rel\": %.3g, \"max\": %.3g, \"missing\": %u, \"moved\": %u}", of,
           e.ref2 > 0 ? sqrt(e.err2 / e.ref2) : sqrt(e.err2), e.max, e.missing, e.moved);
}

/* Within 1 %, as bf16 operands land, or all but zero (the gradients of a softmax over one key are rounding alone). */
static bool is_right(Errors e) {
    return !e.missing && !e.moved && e.err2 <= 1e-4 * e.ref2 + 1e-8 * e.numbers;
}

static void show_resources(int v) {
    const Variant *x = &variants[v];
    if (!x->kernel || board->shown[v]) return;
    board->shown[v] = 1;
    cudaFuncAttributes at = {};
    int blocks = 0;
    cudaFuncSetAttribute(x->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, x->bytes);
    if (failed(cudaFuncGetAttributes(&at, x->kernel), x->name)) return;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, x->kernel, x->threads, (size_t)x->bytes);
    printf("{\"kind\": \"resources\", \"variant\": \"%s\", \"registers\": %d, \"shared\": %d, \"local\": %d, "
           "\"threads\": %d, \"blocks\": %d, \"binary\": %d}\n",
           x->name, at.numRegs, x->bytes, (int)at.localSizeBytes, x->threads, blocks, at.binaryVersion);
    fflush(stdout);
}

/* One variant with one cut of the heads, checked, then timed; false: it must not be run again. */
static bool measure(Data *d, int problem, int v, int parts) {
    const Variant *x = &variants[v];
    const Problem *p = &d->p;
    int64_t n_qkv = d->tokens * d->width, n_o = d->tokens * p->heads * p->dim, n_lse = d->tokens * p->heads;
    int q_width = p->heads * p->dim;
    Work w = {x, attend_of(d, d->o, d->lse), grad_of(d, d->d_qkv, parts)};
    Errors e[2] = {};
    for (int run = 0; run < 2; run++) { /* poisoned, run, kept, run again */
        cudaMemset(d->o, 0xff, (size_t)n_o * 2), cudaMemset(d->lse, 0xff, (size_t)n_lse * 4);
        cudaMemset(d->d_qkv, 0xff, (size_t)n_qkv * 2);
        run_work(&w);
        cudaError_t launch = cudaGetLastError(), end = cudaDeviceSynchronize();
        if (failed(launch, x->name) || failed(end, x->name)) return false;
        if (run) continue;
        bool forward = x->kind == FORWARD;
        cudaMemcpy(d->copy, forward ? d->o : d->d_qkv, (size_t)(forward ? n_o : n_qkv) * 2, cudaMemcpyDeviceToDevice);
        if (forward) cudaMemcpy(d->lse_copy, d->lse, (size_t)n_lse * 4, cudaMemcpyDeviceToDevice);
    }
    if (x->kind == FORWARD) {
        e[0] = compare(d->o, d->o_ref, d->copy, n_o, q_width, 0, q_width);
        e[1] = compare(d->lse, d->lse_ref, d->lse_copy, n_lse, p->heads, 0, p->heads);
    } else {
        if (x->kind != DKV) e[0] = compare(d->d_qkv, d->d_ref, d->copy, n_qkv, d->width, 0, q_width);
        if (x->kind != DQ) e[1] = compare(d->d_qkv, d->d_ref, d->copy, n_qkv, d->width, q_width, d->width);
    }
    bool right = is_right(e[0]) && is_right(e[1]);
    float ms = p->timed ? time_of(run_work, &w) : 0;
    static const double flops[] = {4, 8, 6, 10};
    printf(
        "{\"kind\": \"%s\", \"variant\": \"%s\", \"right\": %s, \"dim\": %d, \"heads\": \"%d/%d\", \"rows\": %d, "
        "\"seq\": %d, \"doc\": %d",
        kind_names[x->kind], x->name, right ? "true" : "false", p->dim, p->heads, p->kv_heads, p->rows, p->seq,
        p->doc);
    if (x->kind == DKV || x->kind == BACKWARD) printf(", \"parts\": %d", w.g.n_parts);
    if (p->timed) printf(", \"ms\": %.4f, \"tflops\": %.1f", ms, flops[x->kind] * p->dim * d->pairs / ms * 1e-9);
    if (x->kind != DKV) say_errors(x->kind == FORWARD ? "o" : "dq", e[0]);
    if (x->kind != DQ) say_errors(x->kind == FORWARD ? "lse" : "dkv", e[1]);
    printf("}\n");
    fflush(stdout);
    Best *best = &board->best[problem][x->kind];
    if (right && p->timed && (best->ms == 0 || ms < best->ms)) *best = (Best){ms, v, w.g.n_parts};
    return true;
}

/* ---- child and parent ---- */

/* All cases from board->at on. Ends with 2 when a variant has spoiled the context. */
static void work(const char *only) {
    Data d = {};
    int open = -1;
    for (; board->at < PROBLEMS * VARIANTS; board->at = board->at + 1) {
        int problem = board->at / VARIANTS, v = board->at % VARIANTS;
        const Variant *x = &variants[v];
        if (board->bad[v] || (x->dim && x->dim != problems[problem].dim) || (only && !strstr(x->name, only))) continue;
        if (open != problem) {
            if (open >= 0) close_data(&d);
            open_data(&d, open = problem);
        }
        show_resources(v);
        int group = problems[problem].heads / problems[problem].kv_heads, last = 0;
        for (int parts = x->kind == DKV ? 1 : 0; parts <= (x->kind == DKV ? group : 0); parts++) {
            int share = parts ? (group + parts - 1) / parts : 0, whole = parts ? (group + share - 1) / share : 0;
            if (parts && whole == last) continue; /* the same cut */
            last = whole;
            if (!measure(&d, problem, v, whole)) {
                board->bad[v] = 1;
                _exit(2);
            }
        }
    }
    _exit(0);
}

static void show_best(void) {
    for (int i = 0; i < PROBLEMS; i++) {
        const Problem *p = &problems[i];
        const Best *f = &board->best[i][FORWARD], *kv = &board->best[i][DKV], *q = &board->best[i][DQ];
        if (!p->timed) continue;
        double work = p->dim * board->pairs[i] * 1e-9, passes = board->delta_ms[i] + kv->ms + q->ms;
        const Best *mma = &board->best[i][BACKWARD];
        printf("{\"kind\": \"best\", \"dim\": %d, \"rows\": %d, \"seq\": %d, \"doc\": %d", p->dim, p->rows, p->seq,
               p->doc);
        if (f->ms > 0) printf(", \"forward\": %.1f, \"by\": \"%s\"", 4 * work / f->ms, variants[f->variant].name);
        if (mma->ms > 0) printf(", \"backward_mma\": %.1f", 10 * work / (board->delta_ms[i] + mma->ms));
        if (kv->ms > 0 && q->ms > 0)
            printf(", \"backward\": %.1f, \"by_dkv\": \"%s\", \"parts\": %d, \"by_dq\": \"%s\", \"delta_ms\": %.4f",
                   10 * work / passes, variants[kv->variant].name, kv->parts, variants[q->variant].name,
                   board->delta_ms[i]);
        printf("}\n");
    }
}

int main(int argc, char **argv) {
    board = (Board *)mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    time_t start = time(NULL);
    while (board->at < PROBLEMS * VARIANTS && time(NULL) - start < LIMIT_S) {
        fflush(stdout);
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) work(argc > 1 ? argv[1] : NULL);
        int status = 0, seen = board->at;
        time_t moved = time(NULL);
        while (waitpid(child, &status, WNOHANG) == 0) {
            usleep(20000);
            if (board->at != seen) seen = board->at, moved = time(NULL);
            if (time(NULL) - moved < STALL_S && time(NULL) - start < LIMIT_S) continue;
            printf("{\"kind\": \"error\", \"what\": \"%s\", \"error\": \"no end in sight\"}\n",
                   variants[seen % VARIANTS].name);
            board->bad[seen % VARIANTS] = 1;
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            break;
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) == 4) return 1; /* no card, no memory, or the reference fails */
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        board->at = board->at + 1;
    }
    show_best();
    return 0;
}
