/* bench.c - how a single step is given memory, run and looked at. */
#include "tests/ops/bench.h"

#include <stdarg.h>

#include "base/rng.h"

enum { GUARD_BYTES = 64, GUARD = 0xa5, POISON = 0xff, MOST_THREADS = 3 };

Backend *bench_backend(int threads) {
    static Backend *open[MOST_THREADS + 1];
    CHECK(threads >= 1 && threads <= MOST_THREADS);
    if (!open[threads]) {
        Err e = {0};
        bool ok = backend_open(&open[threads], "cpu", (BackendOptions){.threads = threads}, &e);
        CHECK_MSG(ok, "%s", e.text);
    }
    return open[threads];
}

void bench_open(Bench *b, const char *fmt, ...) {
    *b = (Bench){0};
    prog_init(&b->p);
    arena_init(&b->arena, "bench");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->about, sizeof b->about, fmt, ap);
    va_end(ap);
}

void bench_close(Bench *b) {
    for (int i = 0; i < BENCH_TENSORS; i++) {
        mem_free(b->initial[i]);
        mem_free(b->now[i]);
    }
    prog_free(&b->p);
    arena_free(&b->arena);
}

static unsigned char *guarded(int64_t bytes) {
    unsigned char *m = mem_alloc(bytes + GUARD_BYTES);
    memset(m, POISON, (size_t)bytes);
    memset(m + bytes, GUARD, GUARD_BYTES);
    return m;
}

static bool guard_stands(const void *m, int64_t bytes) {
    for (int i = 0; i < GUARD_BYTES; i++)
        if (((const unsigned char *)m)[bytes + i] != GUARD) return false;
    return true;
}

static Tid add_tensor(Bench *b, Format f, int rank, const int64_t *dim) {
    char name[16];
    snprintf(name, sizeof name, "t%d", (int)b->p.n_t);
    Tid t = prog_tensor(&b->p, name, ROLE_ACTIVATION, f, rank, dim);
    CHECK(t < BENCH_TENSORS);
    b->initial[t] = guarded(prog_bytes(&b->p, t));
    b->now[t] = guarded(prog_bytes(&b->p, t));
    return t;
}

Tid bench_vector(Bench *b, Format f, int64_t n) { return add_tensor(b, f, 1, DIMS(n)); }
Tid bench_matrix(Bench *b, Format f, int64_t rows, int64_t cols) { return add_tensor(b, f, 2, DIMS(rows, cols)); }
Tid bench_cube(Bench *b, Format f, int64_t n, int64_t rows, int64_t cols) {
    return add_tensor(b, f, 3, DIMS(n, rows, cols));
}

Tid bench_clock(Bench *b, int64_t key) {
    Tid t = bench_vector(b, FMT_I64, CLOCK_WORDS);
    int64_t *w = b->initial[t];
    memset(w, 0, CLOCK_WORDS * sizeof *w);
    w[CLOCK_KEY] = key;
    return t;
}

Tid bench_number(Bench *b, Format f, double x) {
    Tid t = bench_vector(b, f, 1);
    bench_set(b, t, &x);
    return t;
}

void bench_set(Bench *b, Tid t, const double *values) {
    Format f = prog_t(&b->p, t)->format;
    int64_t n = prog_elements(&b->p, t);
    if (f == FMT_F64) {
        memcpy(b->initial[t], values, (size_t)n * sizeof *values);
        return;
    }
    float *x = mem_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)values[i];
    format_table[f].encode(b->initial[t], x, prog_rows(&b->p, t), prog_cols(&b->p, t), 0, prog_rows(&b->p, t));
    mem_free(x);
}

void bench_set_i32(Bench *b, Tid t, const int32_t *values) {
    memcpy(b->initial[t], values, (size_t)prog_elements(&b->p, t) * sizeof *values);
}

void bench_normal(Bench *b, Tid t, uint64_t key, double std) {
    int64_t n = prog_elements(&b->p, t);
    double *x = mem_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = std * rng_normal(key, (uint64_t)i);
    bench_set(b, t, x);
    mem_free(x);
}

Tid bench_draw(Bench *b, Format f, int64_t rows, int64_t cols, uint64_t key) {
    Tid t = bench_matrix(b, f, rows, cols);
    bench_normal(b, t, key, 1);
    return t;
}

double *bench_doubles(Bench *b, int64_t n) { return ARENA_NEW(&b->arena, double, MAX2(n, 1)); }

static double *as_doubles(Bench *b, Tid t, const void *bytes) {
    Format f = prog_t(&b->p, t)->format;
    int64_t n = prog_elements(&b->p, t);
    double *d = bench_doubles(b, n);
    if (f == FMT_F64) return memcpy(d, bytes, (size_t)n * sizeof *d);
    float *x = mem_alloc(n * (int64_t)sizeof *x);
    format_table[f].decode(x, bytes, prog_rows(&b->p, t), prog_cols(&b->p, t), 0, prog_rows(&b->p, t));
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    mem_free(x);
    return d;
}

double *bench_initial(Bench *b, Tid t) { return as_doubles(b, t, b->initial[t]); }
double *bench_now(Bench *b, Tid t) { return as_doubles(b, t, b->now[t]); }

static void complain(Bench *b, const char *what) {
    if (b->failures++) return;
    test_expect(false, __FILE__, __LINE__, what);
    test_note("    %s", b->about);
}

void bench_run(Bench *b, Step s, int threads, bool in_place) {
    for (Tid t = 1; t < b->p.n_t; t++) memcpy(b->now[t], b->initial[t], (size_t)prog_bytes(&b->p, t));
    const char *wrong = op_wrong(&b->p, &s);
    CHECK_MSG(!wrong, "%s: %s", b->about, wrong);
    if (!s.key) s.key = 7;
    const OpRow *row = op_row(s.op);
    Args a = {.step = &s};
    for (int i = 0; i < MAX_IN; i++)
        if (s.in[i]) a.in[i] = (Operand){b->now[s.in[i]], prog_t(&b->p, s.in[i])};
    for (int i = 0; i < MAX_OUT; i++)
        if (s.out[i]) a.out[i] = (Operand){b->now[s.out[i]], prog_t(&b->p, s.out[i])};
    if (in_place) a.out[row->share_out].data = a.in[row->share_in].data;
    Machine m = machine_generic_cpu(threads);
    a.workspace_bytes = row->workspace ? row->workspace(&b->p, &s, &m) : 0;
    void *scratch = guarded(a.workspace_bytes);
    a.workspace = a.workspace_bytes ? scratch : NULL;

    Backend *backend = bench_backend(threads);
    CHECK_MSG(backend->kernels[s.op], "no kernel for %s", op_name(s.op));
    backend->kernels[s.op](backend, QUEUE_COMPUTE, &a);
    Err e = {0};
    if (!backend->sync(backend, &e)) complain(b, e.text);
    if (!guard_stands(scratch, a.workspace_bytes)) complain(b, "the scratch's guard stands");
    mem_free(scratch);
    for (Tid t = 1; t < b->p.n_t; t++)
        if (!guard_stands(b->now[t], prog_bytes(&b->p, t))) complain(b, "a tensor's guard stands");
    if (in_place)
        memcpy(b->now[s.out[row->share_out]], a.in[row->share_in].data,
               (size_t)prog_bytes(&b->p, s.out[row->share_out]));
}

/* Compares the outputs with those kept from the first run. */
static void same_bits(Bench *b, const Step *s, void *const *kept, const char *what) {
    for (int i = 0; i < MAX_OUT; i++) {
        if (!s->out[i]) continue;
        int64_t bytes = prog_bytes(&b->p, s->out[i]);
        const unsigned char *x = kept[i], *y = b->now[s->out[i]];
        for (int64_t k = 0; k < bytes; k++) {
            if (x[k] == y[k]) continue;
            complain(b, what);
            test_note("    %s differs first at byte %lld of %lld", op_places(s->op)->out[i].name, (long long)k,
                      (long long)bytes);
            break;
        }
    }
}

void bench_check(Bench *b, Step s) {
    const OpRow *row = op_row(s.op);
    void *kept[MAX_OUT] = {0};
    bench_run(b, s, 1, false);
    for (int i = 0; i < MAX_OUT; i++) {
        if (!s.out[i]) continue;
        kept[i] = mem_alloc(prog_bytes(&b->p, s.out[i]) + 1);
        memcpy(kept[i], b->now[s.out[i]], (size_t)prog_bytes(&b->p, s.out[i]));
    }
    bench_run(b, s, 2, false);
    same_bits(b, &s, kept, "2 threads give the bits of 1");
    bench_run(b, s, 3, false);
    same_bits(b, &s, kept, "3 threads give the bits of 1");
    if (row->share != SHARE_NONE && s.in[row->share_in] && s.out[row->share_out]) {
        bench_run(b, s, 2, true);
        same_bits(b, &s, kept, "in place gives the bits of out of place");
    }
    bench_run(b, s, 1, false);
    for (int i = 0; i < MAX_OUT; i++) mem_free(kept[i]);
}

/* Half a unit in the last place, relative. */
static double rounding(Format f) {
    switch (f) {
        case FMT_BF16: return 0x1p-8;
        case FMT_F16: return 0x1p-11;
        case FMT_F32: return 0x1p-23;
        default: return 0;
    }
}

static void expect_near(Bench *b, Tid t, const double *want, double tolerance, double relative) {
    const double *got = bench_now(b, t);
    int64_t n = prog_elements(&b->p, t), bad = 0, first = -1, cols = prog_cols(&b->p, t);
    for (int64_t i = 0; i < n; i++) {
        if (fabs(got[i] - want[i]) <= tolerance + relative * (fabs(want[i]) + tolerance)) continue;
        if (!bad++) first = i;
    }
    if (!bad) return;
    complain(b, "the kernel agrees with the formula");
    test_note("    tensor %d: %lld of %lld differ, first at [%lld][%lld]: %.9g against %.9g", (int)t,
              (long long)bad,
              (long long)n, (long long)(first / cols), (long long)(first % cols), got[first], want[first]);
}

void bench_expect(Bench *b, Tid t, const double *want, double tolerance) {
    expect_near(b, t, want, tolerance, rounding(prog_t(&b->p, t)->format));
}

void bench_expect_random(Bench *b, Tid t, const double *want, double tolerance) {
    expect_near(b, t, want, tolerance, 2 * rounding(prog_t(&b->p, t)->format));
}

void bench_differences(Bench *b, const char *what, double *x, const double *got, int64_t n, BenchLoss *f,
                       void *context, double tolerance) {
    enum { PLACES = 48 };
    const double h = 1e-4;
    int64_t places = MIN2(n, PLACES);
    for (int64_t k = 0; k < places; k++) {
        int64_t i = n <= PLACES ? k : (int64_t)(rng_u32(99, (uint64_t)k) % (uint64_t)n);
        double kept = x[i];
        x[i] = kept + h;
        double up = f(context);
        x[i] = kept - h;
        double down = f(context);
        x[i] = kept;
        double slope = (up - down) / (2 * h);
        if (fabs(slope - got[i]) <= tolerance * (1 + fabs(slope))) continue;
        complain(b, "the gradient agrees with differences");
        test_note("    %s[%lld]: %.9g against %.9g", what, (long long)i, got[i], slope);
        return;
    }
}
