/* cuda_test.c - how a single step is given memory on two devices, run and compared. */
#include "tests/cuda/cuda_test.h"

#include <stdarg.h>

#include "base/half.h"
#include "base/rng.h"
#include "base/units.h"

enum { GUARD_BYTES = 256, GUARD = 0xa5, POISON = 0xff, PLAYS = 3 };

static Backend *cpu, *gpu;

bool cuda_test_ready_for_runs(void) {
#ifdef CUDA_ON_HOST
    test_skip("whole runs take too long where the processor plays the kernels");
    return false;
#else
    return cuda_test_ready();
#endif
}

bool cuda_test_ready(void) {
    static bool tried;
    static Err e;
    if (!tried) {
        tried = true;
        if (backend_open(&gpu, "cuda", (BackendOptions){.threads = 0}, &e)) {
            bool ok = backend_open(&cpu, "cpu", (BackendOptions){.threads = 0}, &e);
            CHECK_MSG(ok, "%s", e.text);
        }
    }
    if (gpu) return true;
    test_skip(e.text);
    return false;
}

Backend *cuda_test_device(void) { return gpu; }

/* ---- cases that are left out ----
 *
 * Where the processor plays the kernels (tests/cuda_on_host) they take a thousand times as long as on a card: large
 * cases are left out there; in brief also most of a test's later ones, and the others are played twice, in two drawn
 * orders. */

#ifdef CUDA_ON_HOST
enum { MOST_BYTES = 2 << 20, MOST_BYTES_IN_BRIEF = 208 << 10, PLAYS_IN_BRIEF = 1 };
enum { FIRST_CASES = 6, CASES_APART = 5, LISTED_APART = 4 };

/* fmt: what the test calls its cases. */
static bool is_late_case(const char *fmt) {
    static const char *last;
    static int cases;
    cases = fmt == last ? cases + 1 : 0;
    last = fmt;
    return test_brief() && cases >= FIRST_CASES && cases % CASES_APART;
}

static bool is_left_out(const CudaTest *t) {
    int64_t bytes = 0;
    for (Tid id = 1; id < t->p.n_t; id++) bytes += prog_bytes(&t->p, id);
    if (t->whole) return false;
    return t->late || bytes > (test_brief() ? MOST_BYTES_IN_BRIEF : MOST_BYTES);
}
static int plays(void) { return test_brief() ? PLAYS_IN_BRIEF : PLAYS; }
int cuda_test_apart(void) { return test_brief() ? LISTED_APART : 1; }
#else
static bool is_late_case(const char *fmt) { return false; }
static bool is_left_out(const CudaTest *t) { return false; }
static int plays(void) { return PLAYS; }
int cuda_test_apart(void) { return 1; }
#endif

/* ---- tensors ---- */

int64_t cuda_test_place(Program *p, Backend *b) {
    Machine m = {0};
    b->describe(b, &m);
    for (int i = 0; i < p->n_s; i++) {
        const OpRow *row = op_row(p->s[i].op);
        int64_t bytes = row->workspace ? row->workspace(p, &p->s[i], &m) : 0;
        if (bytes) p->s[i].workspace = prog_tensor(p, "scratch", ROLE_SCRATCH, FMT_I32, 1, DIMS((bytes + 3) / 4));
        for (int q = 0; q < QUEUE_COUNT; q++) p->s[i].wait[q] = -1;
    }
    int64_t at = 0;
    for (Tid i = 1; i < p->n_t; i++) p->t[i].offset = at, at += units_round_up(prog_bytes(p, i), 256);
    return at;
}

void cuda_test_open(CudaTest *t, const char *fmt, ...) {
    *t = (CudaTest){.late = is_late_case(fmt)};
    prog_init(&t->p);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->about, sizeof t->about, fmt, ap);
    va_end(ap);
}

void cuda_test_close(CudaTest *t) {
    for (int i = 0; i < CUDA_TEST_TENSORS; i++) {
        mem_free(t->initial[i]);
        mem_free(t->cpu[i]);
        mem_free(t->gpu[i]);
    }
    prog_free(&t->p);
}

static unsigned char *guarded(int64_t bytes) {
    unsigned char *m = mem_alloc(bytes + GUARD_BYTES);
    memset(m, POISON, (size_t)bytes);
    memset(m + bytes, GUARD, GUARD_BYTES);
    return m;
}

static bool guard_stands(const unsigned char *m, int64_t bytes) {
    for (int i = 0; i < GUARD_BYTES; i++)
        if (m[bytes + i] != GUARD) return false;
    return true;
}

static Tid add_tensor(CudaTest *t, Format f, int rank, const int64_t *dim) {
    char name[16];
    snprintf(name, sizeof name, "t%d", (int)t->p.n_t);
    Tid id = prog_tensor(&t->p, name, ROLE_ACTIVATION, f, rank, dim);
    CHECK(id < CUDA_TEST_TENSORS);
    int64_t bytes = prog_bytes(&t->p, id);
    t->initial[id] = guarded(bytes), t->cpu[id] = guarded(bytes), t->gpu[id] = guarded(bytes);
    return id;
}

Tid cuda_test_vector(CudaTest *t, Format f, int64_t n) { return add_tensor(t, f, 1, DIMS(n)); }
Tid cuda_test_matrix(CudaTest *t, Format f, int64_t rows, int64_t cols) {
    return add_tensor(t, f, 2, DIMS(rows, cols));
}
Tid cuda_test_cube(CudaTest *t, Format f, int64_t n, int64_t rows, int64_t cols) {
    return add_tensor(t, f, 3, DIMS(n, rows, cols));
}

Tid cuda_test_clock(CudaTest *t, int64_t key, int64_t first_token, int64_t micro) {
    Tid id = cuda_test_vector(t, FMT_I64, CLOCK_WORDS);
    int64_t *w = t->initial[id];
    memset(w, 0, CLOCK_WORDS * sizeof *w);
    w[CLOCK_KEY] = key, w[CLOCK_FIRST_TOKEN] = first_token, w[CLOCK_MICRO] = micro;
    return id;
}

Tid cuda_test_number(CudaTest *t, Format f, double x) {
    Tid id = cuda_test_vector(t, f, 1);
    cuda_test_set(t, id, &x);
    return id;
}

void cuda_test_set(CudaTest *t, Tid id, const double *values) {
    Format f = prog_t(&t->p, id)->format;
    int64_t n = prog_elements(&t->p, id);
    if (f == FMT_F64) {
        memcpy(t->initial[id], values, (size_t)n * sizeof *values);
        return;
    }
    float *x = mem_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)values[i];
    format_table[f].encode(t->initial[id], x, prog_rows(&t->p, id), prog_cols(&t->p, id), 0, prog_rows(&t->p, id));
    mem_free(x);
}

void cuda_test_set_i32(CudaTest *t, Tid id, const int32_t *values) {
    memcpy(t->initial[id], values, (size_t)prog_elements(&t->p, id) * sizeof *values);
}

void cuda_test_normal(CudaTest *t, Tid id, uint64_t key, double std) {
    int64_t n = prog_elements(&t->p, id);
    if (is_left_out(t)) { /* nobody compares them: a small number in every format */
        memset(t->initial[id], 0x3c, (size_t)prog_bytes(&t->p, id));
        return;
    }
    double *x = mem_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = std * rng_normal(key, (uint64_t)i);
    cuda_test_set(t, id, x);
    mem_free(x);
}

void cuda_test_pattern(CudaTest *t, Tid id, uint32_t seed) {
    Format f = prog_t(&t->p, id)->format;
    int64_t n = prog_elements(&t->p, id);
    CHECK(f == FMT_F32 || f == FMT_BF16);
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = ((uint32_t)i + seed) * 2654435761u;
        float x = ((float)(word >> 25) - 64.0f) / 64.0f;
        if (f == FMT_F32)
            ((float *)t->initial[id])[i] = x;
        else
            ((uint16_t *)t->initial[id])[i] = half_to_bf16(x);
    }
}

/* ---- running ---- */

static void complain(CudaTest *t, const char *what) {
    if (t->failures++) return;
    test_expect(false, __FILE__, __LINE__, what);
    test_note("    %s", t->about);
}

typedef struct Place { /* of the tensors on one device */
    Backend *b;
    void *at[CUDA_TEST_TENSORS];
    Args args;
    void *scratch;
    char *base; /* GPU: the pool */
} Place;

bool cuda_test_shares(const Step *s) {
    const OpRow *row = op_row(s->op);
    return row->share != SHARE_NONE && s->in[row->share_in] && s->out[row->share_out];
}

static int64_t scratch_bytes(const CudaTest *t, const Step *s, Backend *b) {
    Machine m = {0};
    b->describe(b, &m);
    WorkspaceRule *rule = op_row(s->op)->workspace;
    return rule ? rule(&t->p, s, &m) : 0;
}

/* The addresses of a step whose tensors stand at place->at. */
static void resolve(const CudaTest *t, Place *place, const Step *s, bool in_place) {
    const OpRow *row = op_row(s->op);
    Args *a = &place->args;
    a->step = s;
    for (int i = 0; i < MAX_IN; i++)
        if (s->in[i]) a->in[i] = (Operand){place->at[s->in[i]], prog_t(&t->p, s->in[i])};
    for (int i = 0; i < MAX_OUT; i++)
        if (s->out[i]) a->out[i] = (Operand){place->at[s->out[i]], prog_t(&t->p, s->out[i])};
    if (in_place) a->out[row->share_out].data = a->in[row->share_in].data;
    a->workspace = a->workspace_bytes ? place->scratch : NULL;
}

static void run_cpu(CudaTest *t, const Step *s, bool in_place) {
    const OpRow *row = op_row(s->op);
    Place place = {.b = cpu};
    for (Tid id = 1; id < t->p.n_t; id++) {
        memcpy(t->cpu[id], t->initial[id], (size_t)prog_bytes(&t->p, id));
        place.at[id] = t->cpu[id];
    }
    place.args.workspace_bytes = scratch_bytes(t, s, cpu);
    place.scratch = guarded(place.args.workspace_bytes);
    resolve(t, &place, s, in_place);
    cpu->kernels[s->op](cpu, QUEUE_COMPUTE, &place.args);
    mem_free(place.scratch);
    if (in_place) {
        Tid out = s->out[row->share_out];
        memcpy(t->cpu[out], t->cpu[s->in[row->share_in]], (size_t)prog_bytes(&t->p, out));
    }
}

/* Every tensor and the scratch, each with its guard behind it, in one pool. */
static bool open_gpu(CudaTest *t, Place *place, const Step *s, bool in_place) {
    *place = (Place){.b = gpu, .args.workspace_bytes = MAX2(scratch_bytes(t, s, gpu), t->scratch)};
    int64_t offset[CUDA_TEST_TENSORS], bytes = 0;
    for (Tid id = 1; id < t->p.n_t; id++) {
        offset[id] = bytes;
        bytes += units_round_up(prog_bytes(&t->p, id) + GUARD_BYTES, 256);
    }
    Err e = {0};
    place->base = gpu->pool(gpu, POOL_DEVICE, bytes + place->args.workspace_bytes + GUARD_BYTES, &e);
    if (!place->base) {
        complain(t, e.text);
        return false;
    }
    for (Tid id = 1; id < t->p.n_t; id++) place->at[id] = place->base + offset[id];
    place->scratch = place->base + bytes;
    resolve(t, place, s, in_place);
    return true;
}

static void fill_gpu(CudaTest *t, Place *place) {
    for (Tid id = 1; id < t->p.n_t; id++)
        gpu->put(gpu, place->at[id], t->initial[id], prog_bytes(&t->p, id) + GUARD_BYTES);
    unsigned char *poison = guarded(place->args.workspace_bytes);
    gpu->put(gpu, place->scratch, poison, place->args.workspace_bytes + GUARD_BYTES);
    mem_free(poison);
}

/* What the GPU holds now; the first time it is kept, afterwards it must be the same. */
static void take_gpu(CudaTest *t, Place *place, const char *way, int play) {
    Err e = {0};
    bool first = t->loose ? play == t->shown : play == 0;
    if (!gpu->sync(gpu, &e)) complain(t, e.text);
    for (Tid id = 1; id < t->p.n_t; id++) {
        int64_t bytes = prog_bytes(&t->p, id);
        unsigned char *now = guarded(bytes), *kept = t->gpu[id];
        gpu->get(gpu, now, place->at[id], bytes + GUARD_BYTES);
        if (!guard_stands(now, bytes)) complain(t, "a tensor's guard stands on the GPU");
        if (first) memcpy(kept, now, (size_t)bytes);
        for (int64_t i = 0; i < bytes && !t->loose; i++) {
            if (now[i] == kept[i]) continue;
            complain(t, "every play gives the bits of the first");
            test_note("    %s: tensor %d differs first at byte %lld of %lld", way, (int)id, (long long)i,
                      (long long)bytes);
            break;
        }
        mem_free(now);
    }
    unsigned char guard[GUARD_BYTES];
    gpu->get(gpu, guard, (char *)place->scratch + place->args.workspace_bytes, GUARD_BYTES);
    if (!guard_stands(guard, 0)) complain(t, "the scratch's guard stands on the GPU");
}

static void play_gpu(Place *place, const Step *s) {
    if (gpu->replay(gpu, 0)) return;
    gpu->begin(gpu, 0);
    gpu->kernels[s->op](gpu, QUEUE_COMPUTE, &place->args);
    gpu->signal(gpu, QUEUE_COMPUTE, 0);
    gpu->end(gpu, 0);
}

void cuda_test_run(CudaTest *t, Step s, bool in_place) {
    static const char *const ways[PLAYS] = {"first play", "captured play", "repeated play"};
    const char *wrong = op_wrong(&t->p, &s);
    CHECK_MSG(!wrong, "%s: %s", t->about, wrong);
    if (!s.key) s.key = 7;
    run_cpu(t, &s, in_place);
    if (is_left_out(t)) {
        for (Tid id = 1; id < t->p.n_t; id++) memcpy(t->gpu[id], t->cpu[id], (size_t)prog_bytes(&t->p, id));
        return;
    }
    Place place;
    if (!open_gpu(t, &place, &s, in_place)) return;
    fill_gpu(t, &place);
    gpu->kernels[s.op](gpu, QUEUE_COMPUTE, &place.args);
    take_gpu(t, &place, "on its own", 0);
    for (int i = 0; i < plays(); i++) {
        fill_gpu(t, &place);
        play_gpu(&place, &s);
        take_gpu(t, &place, ways[i], i + 1);
    }
    gpu->release(gpu, POOL_DEVICE);
    const OpRow *row = op_row(s.op);
    if (in_place) {
        Tid out = s.out[row->share_out];
        memcpy(t->gpu[out], t->gpu[s.in[row->share_in]], (size_t)prog_bytes(&t->p, out));
    }
}

/* ---- comparing ---- */

static double *as_doubles(const CudaTest *t, Tid id, const void *bytes) {
    Format f = prog_t(&t->p, id)->format;
    int64_t n = prog_elements(&t->p, id);
    double *d = mem_alloc(MAX2(n, 1) * (int64_t)sizeof *d);
    if (f == FMT_F64) return memcpy(d, bytes, (size_t)n * sizeof *d);
    float *x = mem_alloc(MAX2(n, 1) * (int64_t)sizeof *x);
    format_table[f].decode(x, bytes, prog_rows(&t->p, id), prog_cols(&t->p, id), 0, prog_rows(&t->p, id));
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    mem_free(x);
    return d;
}

static bool agree(double got, double want, double tolerance, double relative) {
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= tolerance + relative * fabs(want);
}

void cuda_test_near(CudaTest *t, Tid id, double tolerance, double relative) {
    double *got = as_doubles(t, id, t->gpu[id]), *want = as_doubles(t, id, t->cpu[id]);
    int64_t n = prog_elements(&t->p, id), bad = 0, first = -1, cols = prog_cols(&t->p, id);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        if (agree(got[i], want[i], tolerance, relative)) continue;
        if (!bad++) first = i;
        if (isfinite(got[i]) && isfinite(want[i])) worst = fmax(worst, fabs(got[i] - want[i]));
    }
    if (bad) {
        complain(t, "the GPU agrees with the CPU");
        test_note(
            "    %s\n    tensor %d: %lld of %lld differ, first at [%lld][%lld]: gpu %.9g, cpu %.9g; worst by %.3g",
            t->about, (int)id, (long long)bad, (long long)n, (long long)(first / cols), (long long)(first % cols),
            got[first], want[first], worst);
    }
    mem_free(got);
    mem_free(want);
}

static double last_place(Format f) { /* a unit in it, relative to the number */
    switch (f) {
        case FMT_BF16: return 0x1p-7;
        case FMT_F16: return 0x1p-10;
        case FMT_F32: return 0x1p-22;
        case FMT_F64: return 0x1p-50;
        default: return 0;
    }
}

void cuda_test_expect(CudaTest *t, Tid id, double tolerance) {
    cuda_test_near(t, id, tolerance, last_place(prog_t(&t->p, id)->format));
}

void cuda_test_same(CudaTest *t, Tid id) {
    const unsigned char *x = t->gpu[id], *y = t->cpu[id];
    int64_t bytes = prog_bytes(&t->p, id);
    for (int64_t i = 0; i < bytes; i++) {
        if (x[i] == y[i]) continue;
        complain(t, "the GPU gives the CPU's bits");
        test_note("    %s\n    tensor %d differs first at byte %lld of %lld", t->about, (int)id, (long long)i,
                  (long long)bytes);
        return;
    }
}

void cuda_test_mostly_same(CudaTest *t, Tid id, double share) {
    const unsigned char *x = t->gpu[id], *y = t->cpu[id];
    int64_t n = prog_elements(&t->p, id), item = format_item_bytes(prog_t(&t->p, id)->format), same = 0;
    for (int64_t i = 0; i < n; i++) same += !memcmp(x + i * item, y + i * item, (size_t)item);
    if ((double)same >= share * (double)n) return;
    complain(t, "most numbers have the CPU's bits");
    test_note("    %s\n    tensor %d: %lld of %lld", t->about, (int)id, (long long)same, (long long)n);
}
