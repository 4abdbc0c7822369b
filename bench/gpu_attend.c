/* gpu_attend.c - how fast attention runs on the GPU by each provider, and how far their numbers are apart.
 *
 *   make CUDA=1 build/cuda1-debug0/bench-gpu_attend
 *   build/cuda1-debug0/bench-gpu_attend [bf16|fp16]
 *
 * Causal, 16,384 tokens in rows of one document each, heads as in Qwen2.5 0.5B and 7B. One JSON line per shape,
 * provider and direction: the median of several rounds; operations are counted as half of the square (forward: two
 * products, backward: five). `apart` is ||x - own|| / ||own|| of o or dqkv. When cuDNN does not serve, the line
 * says so, and its reason stands on standard error; CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stderr makes the library
 * tell more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cudnn.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/units.h"

enum { TOKENS = 16384, ROUNDS = 7, EACH = 10 };

static Backend *gpu;
static char *pool;
static int64_t used;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void finish(void) {
    Err e = {0};
    if (gpu->sync(gpu, &e)) return;
    fprintf(stderr, "%s\n", e.text);
    exit(1);
}

static void *take(int64_t bytes) {
    void *p = pool + used;
    used = units_round_up(used + bytes, 256);
    return p;
}

static void fill(const Program *p, Tid id, void *at, uint64_t key) {
    int64_t n = prog_elements(p, id), rows = prog_rows(p, id), cols = prog_cols(p, id);
    float *x = mem_alloc(n * 4);
    char *bytes = mem_alloc(prog_bytes(p, id));
    for (int64_t i = 0; i < n; i++) x[i] = (float)((int)(rng_u32(key, (uint64_t)i) % 2001) - 1000) * 0.0017f;
    format_table[prog_t(p, id)->format].encode(bytes, x, rows, cols, 0, rows);
    gpu->put(gpu, at, bytes, prog_bytes(p, id));
    mem_free(bytes);
    mem_free(x);
}

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double seconds_of(const Args *a) { /* one run */
    double all[ROUNDS];
    Kernel *kernel = gpu->kernels[a->step->op];
    for (int i = 0; i < 3; i++) kernel(gpu, QUEUE_COMPUTE, a);
    finish();
    for (int r = 0; r < ROUNDS; r++) {
        double t = now();
        for (int i = 0; i < EACH; i++) kernel(gpu, QUEUE_COMPUTE, a);
        finish();
        all[r] = (now() - t) / EACH;
    }
    qsort(all, ROUNDS, sizeof *all, by_size);
    return all[ROUNDS / 2];
}

typedef struct Shape {
    int heads, kv_heads, dim;
    int64_t seq;
} Shape;

typedef struct Tensors {
    Program p;
    Tid qkv, docs, o, lse, d_o, dqkv;
    void *at[8];
} Tensors;

static void *at(const Tensors *t, Tid id) { return id ? t->at[id] : NULL; }

static Operand operand(const Tensors *t, Tid id) {
    return (Operand){at(t, id), id ? prog_t(&t->p, id) : NULL};
}

static Args args_of(const Tensors *t, const Step *s) {
    Args a = {.step = s};
    Machine m = {0};
    gpu->describe(gpu, &m);
    for (int i = 0; i < MAX_IN; i++) a.in[i] = operand(t, s->in[i]);
    for (int i = 0; i < MAX_OUT; i++) a.out[i] = operand(t, s->out[i]);
    a.workspace_bytes = op_row(s->op)->workspace(&t->p, s, &m);
    return a;
}

static float *numbers(const Tensors *t, Tid id) {
    int64_t rows = prog_rows(&t->p, id), bytes = prog_bytes(&t->p, id);
    char *raw = mem_alloc(bytes);
    float *x = mem_alloc(prog_elements(&t->p, id) * 4);
    gpu->get(gpu, raw, at(t, id), bytes);
    finish();
    format_table[prog_t(&t->p, id)->format].decode(x, raw, rows, prog_cols(&t->p, id), 0, rows);
    mem_free(raw);
    return x;
}

static double apart(const float *x, const float *y, int64_t n) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++)
        off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]), all += (double)y[i] * y[i];
    return sqrt(off / all);
}

/* One direction by one provider; *own: what our own gave, made on the first call, freed on the second. */
static void measure(Tensors *t, const Shape *s, Step step, Tid result, AttendBy by, float **own) {
    step.attr.heads.by = by;
    Args a = args_of(t, &step);
    int64_t mark = used, runs = cuda_attention_state(gpu).runs;
    a.workspace = take(a.workspace_bytes);
    double seconds = seconds_of(&a), products = step.op == OP_ATTEND ? 4 : 10;
    double flops = products * TOKENS * (double)s->seq / 2 * s->heads * s->dim;
    CudaAttentionState state = cuda_attention_state(gpu);
    float *got = numbers(t, result);
    printf(
        "{\"op\": \"%s\", \"by\": \"%s\", \"served_by\": \"%s\", \"cudnn\": %lld, \"format\": \"%s\", \"dim\": "
        "%d, "
        "\"heads\": %d, \"kv_heads\": %d, \"rows\": %lld, \"seq\": %lld, \"ms\": %.4f, \"tflops\": %.1f, "
        "\"scratch_mib\": %.1f, \"cudnn_device_mib\": %.1f",
        op_name(step.op), by == ATTEND_OWN ? "own" : "cudnn", state.runs > runs ? "cudnn" : "own",
        (long long)state.version, format_name(prog_t(&t->p, t->qkv)->format), s->dim, s->heads, s->kv_heads,
        (long long)(TOKENS / s->seq), (long long)s->seq, seconds * 1e3, flops / seconds * 1e-12,
        (double)a.workspace_bytes / MIB, (double)state.device_bytes / MIB);
    if (*own) printf(", \"apart\": %.2e", apart(got, *own, prog_elements(&t->p, result)));
    printf("}\n");
    fflush(stdout);
    if (*own) mem_free(got), mem_free(*own), *own = NULL;
    else *own = got;
    used = mark;
}

static void try_shape(Shape s, Format f) {
    Tensors t = {0};
    prog_init(&t.p);
    int64_t wide = (int64_t)s.heads * s.dim, all = wide + 2 * (int64_t)s.kv_heads * s.dim;
    used = 0;
    t.qkv = prog_tensor(&t.p, "qkv", ROLE_ACTIVATION, f, 2, DIMS(TOKENS, all));
    t.docs = prog_tensor(&t.p, "docs", ROLE_ACTIVATION, FMT_I32, 1, DIMS(TOKENS));
    t.o = prog_tensor(&t.p, "o", ROLE_ACTIVATION, f, 2, DIMS(TOKENS, wide));
    t.lse = prog_tensor(&t.p, "lse", ROLE_ACTIVATION, FMT_F32, 2, DIMS(TOKENS, s.heads));
    t.d_o = prog_like(&t.p, "d_o", t.o);
    t.dqkv = prog_like(&t.p, "dqkv", t.qkv);
    for (Tid id = 1; id < t.p.n_t; id++) t.at[id] = take(prog_bytes(&t.p, id));
    int32_t *zero = mem_alloc(TOKENS * 4);
    gpu->put(gpu, at(&t, t.docs), zero, TOKENS * 4);
    mem_free(zero);
    fill(&t.p, t.qkv, at(&t, t.qkv), 1);
    fill(&t.p, t.d_o, at(&t, t.d_o), 2);
    AttrHeads h = {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.dim, .seq = s.seq,
                   .scale = 1 / sqrtf((float)s.dim)};
    Step forward = {.op = OP_ATTEND, .attend = {.in = {t.qkv, t.docs}, .out = {t.o, t.lse}}, .attr.heads = h};
    Step backward = {
        .op = OP_ATTEND_GRAD,
        .attend_grad = {.in = {.d_o = t.d_o, .qkv = t.qkv, .o = t.o, .lse = t.lse, .doc_begin = t.docs},
                        .out = {t.dqkv}},
        .attr.heads = h};
    float *own_o = NULL, *own_d = NULL;
    for (AttendBy by = ATTEND_OWN; by <= ATTEND_FAST; by++) {
        measure(&t, &s, forward, t.o, by, &own_o);
        measure(&t, &s, backward, t.dqkv, by, &own_d);
    }
    prog_free(&t.p);
}

int main(int count, char **words) {
    static const Shape kinds[] = {{14, 2, 64, 0}, {28, 4, 128, 0}};
    Format f = count > 1 && !strcmp(words[1], "fp16") ? FMT_F16 : FMT_BF16;
    Err e = {0};
    if (!backend_open(&gpu, "cuda", (BackendOptions){0}, &e) || !(pool = gpu->pool(gpu, POOL_DEVICE, 4 * GIB, &e)))
        return fprintf(stderr, "%s\n", e.text), 1;
    if (!cuda_attention_ready(gpu, &e)) fprintf(stderr, "%s\n", e.text);
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int64_t seq = 1024; seq <= 8192; seq *= 2) {
            Shape s = kinds[k];
            s.seq = seq;
            try_shape(s, f);
        }
    gpu->close(gpu);
    return 0;
}
