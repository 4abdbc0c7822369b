/* product.c - how fast products run, beside a BLAS library on its own threads, and what memory they cost.
 *
 * It needs OpenBLAS (libopenblas-dev), which snug itself does not:
 *
 *   make B=build/peer build/peer/bench-product LDLIBS=-lopenblas
 *   build/peer/bench-product [threads]
 *
 * One JSON line per measurement, best of several rounds, in GFLOP/s; `blas` is one call of the library on as many
 * threads. The last line is the anonymous memory beside the pool, against what describe() declares. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "base/units.h"

enum { ROUNDS = 15 };

static Backend *backend;
static char *pool;
static int64_t pool_bytes, used;

/* On one thread the processor's own time is counted, so that a busy machine does not matter. */
static clockid_t watch = CLOCK_MONOTONIC;

static double now(void) {
    struct timespec t;
    clock_gettime(watch, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(int64_t bytes) {
    void *p = pool + used;
    used = units_round_up(used + bytes, 256);
    CHECK_MSG(used <= pool_bytes, "the pool of the bench is too small");
    return p;
}

static int64_t anonymous_bytes(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long long kib = 0;
    while (f && fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %lld", &kib);
    if (f) fclose(f);
    return kib * KIB;
}

/* Runs the only step of a program; gives the seconds of its best round. */
static double time_step(Program *p, const Step *s) {
    Machine m;
    backend->describe(backend, &m);
    Args a = {.step = s};
    used = 0;
    for (int i = 0; i < MAX_IN; i++)
        if (s->in[i]) a.in[i] = (Operand){take(prog_bytes(p, s->in[i])), prog_t(p, s->in[i])};
    for (int i = 0; i < MAX_OUT; i++)
        if (s->out[i]) a.out[i] = (Operand){take(prog_bytes(p, s->out[i])), prog_t(p, s->out[i])};
    a.workspace_bytes = op_row(s->op)->workspace ? op_row(s->op)->workspace(p, s, &m) : 0;
    a.workspace = take(a.workspace_bytes);
    double best = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        double t = now();
        backend->kernels[s->op](backend, QUEUE_COMPUTE, &a);
        best = fmin(best, now() - t);
    }
    return best;
}

static Tid matrix(Program *p, Format f, int64_t rows, int64_t cols) {
    return prog_tensor(p, "t", ROLE_ACTIVATION, f, 2, DIMS(rows, cols));
}

static void time_linear(OpId op, Format x, Format w, int64_t n, int64_t m, int64_t k) {
    Program p;
    prog_init(&p);
    Tid in = matrix(&p, x, n, k), weight = matrix(&p, w, m, k), out = matrix(&p, x, n, m);
    Step s = {.op = OP_LINEAR, .linear = {.in = {in, weight}, .out = {out}}};
    if (op == OP_LINEAR_DX) s = (Step){.op = op, .linear_dx = {.in = {out, weight}, .out = {in}}};
    if (op == OP_LINEAR_DW) s = (Step){.op = op, .linear_dw = {.in = {out, in}, .out = {weight}}};
    double seconds = time_step(&p, &s), flops = 2.0 * (double)n * (double)m * (double)k;
    double weight_bytes = (double)prog_bytes(&p, weight);
    printf(
        "{\"op\": \"%s\", \"n\": %lld, \"m\": %lld, \"k\": %lld, \"x\": \"%s\", \"w\": \"%s\", "
        "\"gflops\": %.1f, \"weight_gb_per_s\": %.1f}\n",
        op_name(op), (long long)n, (long long)m, (long long)k, format_name(x), format_name(w),
        flops / seconds * 1e-9, weight_bytes / seconds * 1e-9);
    prog_free(&p);
}

static void time_head(OpId op, Format f, int64_t n, int64_t v, int64_t c, int64_t chunk) {
    Program p;
    prog_init(&p);
    Tid x = matrix(&p, f, n, c), w = matrix(&p, f, v, c), dx = matrix(&p, f, n, c), dw = matrix(&p, f, v, c);
    Tid labels = prog_tensor(&p, "l", ROLE_ACTIVATION, FMT_I32, 1, DIMS(n));
    Tid dlogp = prog_tensor(&p, "d", ROLE_ACTIVATION, FMT_F32, 1, DIMS(n));
    Tid logp = prog_like(&p, "p", dlogp), lse = prog_like(&p, "e", dlogp);
    Step s = {.op = OP_HEAD_LOGP, .head_logp = {.in = {x, w, labels}, .out = {logp, lse}}, .attr.head = {chunk}};
    if (op == OP_HEAD_SWEEP)
        s = (Step){.op = op,
                   .head_sweep = {.in = {.x = x, .w = w, .labels = labels, .dlogp = dlogp},
                                  .out = {.logp = logp, .lse = lse, .dx = dx, .dw = dw}},
                   .attr.head = {chunk}};
    used = 0;
    take(prog_bytes(&p, x)), take(prog_bytes(&p, w)), take(prog_bytes(&p, labels));
    float *d = take(prog_bytes(&p, dlogp));
    for (int64_t i = 0; i < n; i++) d[i] = 1e-3f; /* every row has a gradient */
    double seconds = time_step(&p, &s);
    printf(
        "{\"op\": \"%s\", \"n\": %lld, \"v\": %lld, \"c\": %lld, \"chunk\": %lld, \"format\": \"%s\", "
        "\"gflops\": %.1f}\n",
        op_name(op), (long long)n, (long long)v, (long long)c, (long long)chunk, format_name(f),
        op_flops(&p, &s) / seconds * 1e-9);
    prog_free(&p);
}

static void time_blas(int threads, int64_t n, int64_t m, int64_t k) {
    openblas_set_num_threads(threads);
    used = 0;
    float *x = take(n * k * 4), *w = take(m * k * 4), *y = take(n * m * 4);
    double best = INFINITY, flops = 2.0 * (double)n * (double)m * (double)k;
    for (int i = 0; i < ROUNDS; i++) {
        double t = now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)m, (int)k, 1, x, (int)k, w, (int)k, 0, y,
                    (int)m);
        best = fmin(best, now() - t);
    }
    printf("{\"op\": \"blas\", \"n\": %lld, \"m\": %lld, \"k\": %lld, \"threads\": %d, \"gflops\": %.1f}\n",
           (long long)n, (long long)m, (long long)k, threads, flops / best * 1e-9);
    openblas_set_num_threads(1);
}

int main(int count, char **words) {
    static const int64_t shapes[][3] = {
        {512, 1536, 576}, {512, 576, 1536}, {512, 4864, 896}, {512, 896, 4864}, {2048, 2048, 2048}};
    static const Format kinds[][2] = {{FMT_F32, FMT_F32}, {FMT_F32, FMT_BF16}, {FMT_BF16, FMT_BF16}};
    static const OpId ops[] = {OP_LINEAR, OP_LINEAR_DX, OP_LINEAR_DW};
    Err e = {0};
    BackendOptions options = {.threads = count > 1 ? atoi(words[1]) : 0};
    if (!backend_open(&backend, "cpu", options, &e)) return puts(e.text), 1;
    Machine m;
    backend->describe(backend, &m);
    if (m.threads == 1) watch = CLOCK_PROCESS_CPUTIME_ID;
    printf("{\"machine\": \"%s\", \"blas\": \"%s\"}\n", m.name, openblas_get_corename());
    pool_bytes = 1200 * MIB;
    pool = backend->pool(backend, POOL_DEVICE, pool_bytes, &e);
    if (!pool) return puts(e.text), 1;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int o = 0; o < COUNT_OF(ops); o++)
            for (int k = 0; k < COUNT_OF(kinds); k++)
                time_linear(ops[o], kinds[k][0], kinds[k][1], shapes[i][0], shapes[i][1], shapes[i][2]);
    for (int64_t n = 1; n <= 8; n *= 2)
        for (int k = 0; k < COUNT_OF(kinds); k++) time_linear(OP_LINEAR, kinds[k][0], kinds[k][1], n, 9728, 2048);
    for (int64_t chunk = 128; chunk <= 512; chunk *= 4)
        for (int f = 0; f < 2; f++) {
            time_head(OP_HEAD_LOGP, f ? FMT_BF16 : FMT_F32, 512, 49152, 576, chunk);
            time_head(OP_HEAD_SWEEP, f ? FMT_BF16 : FMT_F32, 512, 49152, 576, chunk);
        }
    printf("{\"beside_the_pool_bytes\": %lld, \"declared_bytes\": %lld}\n",
           (long long)(anonymous_bytes() - pool_bytes), (long long)m.runtime_bytes);
    for (int i = 0; i < COUNT_OF(shapes); i++) time_blas(m.threads, shapes[i][0], shapes[i][1], shapes[i][2]);
    backend->close(backend);
    return 0;
}
