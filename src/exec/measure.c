/* measure.c - how one step is timed: on random inputs, warmed up, many times in a play, plays back to back. */
#include "exec/measure.h"

#include <string.h>
#include <time.h>

#include "base/units.h"
#include "exec/exec.h"

enum { PLAY_STEPS = 32, ALIGN_BYTES = 256 };

static double now_seconds(void) { /* seconds, for durations */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Measure measure_on(Backend *b, double seconds) {
    Measure c = {.b = b, .seconds = seconds};
    b->describe(b, &c.m);
    return c;
}

/* ---- a bench: some tensors, placed one behind the other, and steps on them ---- */

typedef struct Bench {
    const Measure *c;
    Program p;
    Exec x;
    bool open;
} Bench;

static void bench_init(Bench *w, const Measure *c) {
    *w = (Bench){.c = c};
    prog_init(&w->p);
    prog_begin_phase(&w->p, "measured", 1);
}

static Tid bench_output(Bench *w, Format f, int64_t rows, int64_t cols) {
    return prog_tensor(&w->p, "out", ROLE_ACTIVATION, f, 2, DIMS(rows, cols));
}

static Tid bench_random(Bench *w, Format f, int64_t rows, int64_t cols) {
    Tid t = prog_tensor(&w->p, "in", ROLE_WEIGHT, f, 2, DIMS(rows, cols));
    op_fill(&w->p, t, (AttrFill){.kind = FILL_UNIFORM, .scale = 0.5f, .key = (uint64_t)t});
    return t;
}

/* Steps run one after the other, so their workspaces begin at the same place; each has its own size, as in a plan:
 * a library's choice depends on it. */
static bool bench_open(Bench *w, Err *e) {
    Program *p = &w->p;
    int64_t at[POOL_COUNT] = {0}, most = 0;
    prog_end_phase(p);
    for (Tid t = 1; t < p->n_t; t++) {
        int64_t *end = &at[p->t[t].home.pool];
        p->t[t].offset = *end;
        *end += units_round_up(prog_bytes(p, t), ALIGN_BYTES);
    }
    for (int64_t i = 0; i < p->n_s; i++) {
        WorkspaceRule *rule = op_row(p->s[i].op)->workspace;
        int64_t bytes = rule ? rule(p, &p->s[i], &w->c->m) : 0;
        if (!bytes) continue;
        p->s[i].workspace = prog_tensor(p, "scratch", ROLE_SCRATCH, FMT_I32, 1, DIMS((bytes + 3) / 4));
        prog_t(p, p->s[i].workspace)->offset = at[POOL_DEVICE];
        most = MAX2(most, bytes);
    }
    at[POOL_DEVICE] += units_round_up(most, ALIGN_BYTES);
    w->open = exec_open(&w->x, p, w->c->b, at, e);
    if (!w->open) return false;
    for (int i = 0; i < p->n_s; i++)
        if (p->s[i].op == OP_FILL) w->c->b->kernels[OP_FILL](w->c->b, QUEUE_COMPUTE, &w->x.args[i]);
    return exec_sync(&w->x, e);
}

static void bench_close(Bench *w) {
    if (w->open) exec_close(&w->x);
    prog_free(&w->p);
}

/* ---- timing ---- */

static void play(const Bench *w, int step, int times) { /* kept under the step's number */
    Backend *b = w->c->b;
    if (b->replay(b, step)) return;
    b->begin(b, step);
    for (int i = 0; i < times; i++) b->kernels[w->p.s[step].op](b, QUEUE_COMPUTE, &w->x.args[step]);
    b->end(b, step);
}

static bool time_plays(Bench *w, double *seconds, int step, int times, int plays, Err *e) {
    double began = now_seconds();
    for (int i = 0; i < plays; i++) play(w, step, times);
    bool ok = exec_sync(&w->x, e);
    *seconds = (now_seconds() - began) / (times * (double)plays);
    return ok;
}

/* Seconds of one run of the step. A device that queues is timed over kept plays, the host's own work as it is. */
static bool bench_time(Bench *w, double *seconds, int step, Err *e) {
    Backend *b = w->c->b;
    for (int warm = 0; warm < 2; warm++) { /* the first loads code and chooses algorithms */
        double began = now_seconds();
        b->kernels[w->p.s[step].op](b, QUEUE_COMPUTE, &w->x.args[step]);
        if (!exec_sync(&w->x, e)) return false;
        *seconds = now_seconds() - began;
    }
    double most = w->c->seconds;
    if (*seconds >= most) return true;
    int times = (int)MAX2(1, MIN2(PLAY_STEPS, most / 4 / *seconds));
    if (!b->host_memory && !time_plays(w, seconds, step, times, 2, e)) return false; /* issued, then kept */
    int plays = (int)MAX2(1, MIN2(1000, most / (times * MAX2(*seconds, 1e-7))));
    return time_plays(w, seconds, step, times, plays, e);
}

static bool bench_rate(Bench *w, double *flops, int step, Err *e) {
    double seconds;
    if (!bench_time(w, &seconds, step, e)) return false;
    *flops = op_flops(&w->p, &w->p.s[step]) / seconds;
    return true;
}

/* ---- figures ---- */

bool measure_product(const Measure *c, double flops[MACHINE_TABLES], Format f, int64_t rows, int64_t in,
                     int64_t out, Err *e) {
    Bench w;
    bench_init(&w, c);
    Tid x = bench_random(&w, f, rows, in), wt = bench_random(&w, f, out, in), dy = bench_random(&w, f, rows, out);
    Tid y = bench_output(&w, f, rows, out), dx = bench_output(&w, f, rows, in);
    Tid dw = prog_tensor(&w.p, "dw", ROLE_GRADIENT, f, 2, DIMS(out, in));
    Tid clock = prog_tensor(&w.p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    int step[MACHINE_TABLES];
    step[PASS_FORWARD] = prog_emit(&w.p, (Step){.op = OP_LINEAR, .linear = {.in = {x, wt}, .out = {y}}});
    step[PASS_DX] = prog_emit(&w.p, (Step){.op = OP_LINEAR_DX, .linear_dx = {.in = {dy, wt}, .out = {dx}}});
    step[PASS_DW] = prog_emit(&w.p, (Step){.op = OP_LINEAR_DW,
                                           .linear_dw = {.in = {.dy = dy, .x = x, .clock = clock}, .out = {dw}}});
    bool ok = bench_open(&w, e);
    for (int i = 0; i < MACHINE_TABLES && ok; i++) ok = bench_rate(&w, &flops[i], step[i], e);
    bench_close(&w);
    return ok;
}

bool measure_attention(const Measure *c, double flops[ATTEND_TABLES], Format f, int head_dim, int64_t seq,
                       int64_t tokens, Err *e) {
    Bench w;
    int heads = 2048 / head_dim, kv_heads = MAX2(heads / 4, 1);
    int64_t n = MAX2(tokens / seq, 1) * seq;
    AttrHeads a = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .seq = seq, .scale = 0.125f};
    bench_init(&w, c);
    Tid qkv = bench_random(&w, f, n, (int64_t)(heads + 2 * kv_heads) * head_dim);
    Tid doc_begin =
        prog_tensor(&w.p, "doc_begin", ROLE_INPUT, FMT_I32, 1, DIMS(n)); /* pools begin zeroed: one document */
    Tid o = bench_output(&w, f, n, (int64_t)heads * head_dim), lse = bench_output(&w, FMT_F32, n, heads);
    Tid d_o = bench_random(&w, f, n, (int64_t)heads * head_dim), d_qkv = prog_like(&w.p, "d_qkv", qkv);
    int forward =
        prog_emit(&w.p, (Step){.op = OP_ATTEND, .attend = {.in = {qkv, doc_begin}, .out = {o, lse}}, .attr.heads = a});
    int backward = prog_emit(
        &w.p, (Step){.op = OP_ATTEND_GRAD,
                      .attend_grad = {.in = {.d_o = d_o, .qkv = qkv, .o = o, .lse = lse, .doc_begin = doc_begin},
                                      .out = {d_qkv}},
                      .attr.heads = a});
    bool ok = bench_open(&w, e) && bench_rate(&w, &flops[ATTEND_FORWARD], forward, e) &&
              bench_rate(&w, &flops[ATTEND_BACKWARD], backward, e);
    bench_close(&w);
    return ok;
}

bool measure_pass(const Measure *c, double *bytes_per_s, int64_t tensor_bytes, Err *e) {
    Bench w;
    double seconds = 1;
    int64_t rows = MAX2(tensor_bytes / (4096 * 4), 1);
    bench_init(&w, c);
    Tid x = bench_random(&w, FMT_F32, rows, 4096), y = bench_random(&w, FMT_F32, rows, 4096);
    Tid z = bench_output(&w, FMT_F32, rows, 4096);
    int step = prog_emit(&w.p, (Step){.op = OP_ADD, .add = {.in = {x, y}, .out = {z}}});
    bool ok = bench_open(&w, e) && bench_time(&w, &seconds, step, e);
    *bytes_per_s = op_bytes_moved(&w.p, &w.p.s[step]) / seconds;
    bench_close(&w);
    return ok;
}

/* ---- copies ---- */

typedef struct Ends {
    char *device, *pinned; /* two halves each: one way in, one way out */
    int64_t bytes;         /* of a half */
} Ends;

static bool time_copies(const Measure *c, double *seconds, const Ends *at, bool in, bool out, Err *e) {
    enum { TIMES = 4 };
    double began = 0;
    for (int round = 0; round < 2; round++) { /* the first warms up */
        began = now_seconds();
        for (int i = 0; i < TIMES; i++) {
            if (in) c->b->copy(c->b, QUEUE_COPY_IN, at->device, at->pinned, at->bytes);
            if (out) c->b->copy(c->b, QUEUE_COPY_OUT, at->pinned + at->bytes, at->device + at->bytes, at->bytes);
        }
        if (!c->b->sync(c->b, e)) return false;
    }
    *seconds = (now_seconds() - began) / TIMES;
    return true;
}

bool measure_copies(const Measure *c, MeasuredCopies *out, int64_t bytes, Err *e) {
    double in_s = 1, out_s = 1, both_s = 1;
    Ends at = {.bytes = bytes};
    at.device = c->b->pool(c->b, POOL_DEVICE, 2 * bytes, e);
    if (!at.device) return false;
    at.pinned = c->b->pool(c->b, POOL_PINNED, 2 * bytes, e);
    bool ok = at.pinned && time_copies(c, &in_s, &at, true, false, e) &&
              time_copies(c, &out_s, &at, false, true, e) && time_copies(c, &both_s, &at, true, true, e);
    if (at.pinned) c->b->release(c->b, POOL_PINNED);
    c->b->release(c->b, POOL_DEVICE);
    double n = (double)bytes;
    *out = (MeasuredCopies){.in = n / in_s, .out = n / out_s, .in_both = n / both_s, .out_both = n / both_s};
    return ok;
}

/* ---- memory ---- */

static int64_t in_use(const Measure *c) {
    int64_t n = c->b->in_use(c->b);
    return n < 0 && c->process_bytes ? c->process_bytes() : n;
}

static int64_t grown(const Measure *c, int64_t since) { /* bytes since then; -1: not known */
    int64_t now = in_use(c);
    return now < 0 || since < 0 ? -1 : now - since;
}

bool measure_load(const Measure *c, MeasuredLoad *out, int64_t bytes, Err *e) {
    Bench w;
    const int64_t cols = 4096, most = GIB / 2;
    *out = (MeasuredLoad){.asked_bytes = units_round_up(bytes, c->m.page_bytes)};
    bench_init(&w, c);
    for (int64_t left = out->asked_bytes; left >= cols * 4; left -= most) /* in pieces that a step may have */
        bench_random(&w, FMT_F32, MIN2(left, most) / (cols * 4), cols);
    int64_t before = in_use(c), arena[POOL_COUNT] = {[POOL_DEVICE] = out->asked_bytes}, at = 0;
    for (Tid t = 1; t < w.p.n_t; t++) w.p.t[t].offset = at, at += prog_bytes(&w.p, t);
    prog_end_phase(&w.p);
    double t0 = now_seconds();
    w.open = exec_open(&w.x, &w.p, c->b, arena, e);
    double t1 = now_seconds();
    if (w.open)
        for (int i = 0; i < w.p.n_s; i++) c->b->kernels[OP_FILL](c->b, QUEUE_COMPUTE, &w.x.args[i]);
    bool ok = w.open && exec_sync(&w.x, e);
    double t2 = now_seconds();
    out->taken_bytes = grown(c, before);
    bench_close(&w);
    out->take_s = t1 - t0, out->fill_s = t2 - t1, out->release_s = now_seconds() - t2;
    out->left_bytes = grown(c, before);
    return ok;
}

bool measure_extras(const Measure *c, MeasuredExtras *out, int64_t pinned_bytes, Err *e) {
    enum { STEPS = 2000 };
    Bench w;
    *out = (MeasuredExtras){
        .graph_bytes = -1, .graph_steps = STEPS, .mapping_bytes = -1, .pinned_bytes = pinned_bytes};
    bench_init(&w, c);
    Tid x = bench_random(&w, FMT_F32, 64, 256), y = bench_random(&w, FMT_F32, 64, 256),
        z = bench_output(&w, FMT_F32, 64, 256);
    int step = prog_emit(&w.p, (Step){.op = OP_ADD, .add = {.in = {x, y}, .out = {z}}});
    bool ok = bench_open(&w, e);
    int64_t before = c->b->in_use(c->b);
    for (int i = 0; i < 3 && ok; i++) { /* issued, kept, repeated */
        play(&w, step, STEPS);
        ok = exec_sync(&w.x, e);
    }
    out->graph_bytes = grown(c, before);
    bench_close(&w);
    before = c->b->in_use(c->b);
    ok = ok && c->b->pool(c->b, POOL_PINNED, pinned_bytes, e);
    if (!ok) return false;
    out->mapping_bytes = grown(c, before);
    c->b->release(c->b, POOL_PINNED);
    return true;
}
