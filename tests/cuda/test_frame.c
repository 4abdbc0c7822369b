/* test_frame.c - the GPU as a device: its pools, the ways in and out, queues, graphs, and what it says when it
 * cannot. */
#include "base/rng.h"
#include "base/units.h"
#include "tests/cuda/cuda_test.h"

static void fill_bytes(unsigned char *m, int64_t n, uint64_t key) {
    for (int64_t i = 0; i < n; i++) m[i] = (unsigned char)rng_u32(key, (uint64_t)i);
}

TEST(devices_that_are_not_there_are_refused) {
    static const char *const names[] = {"cuda:x", "cuda:", "cuda:-1", "cuda:1 ", "cuda:900", "gpu"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        Backend *b = NULL;
        Err e = {0};
        EXPECT(!backend_open(&b, names[i], (BackendOptions){.threads = 0}, &e) && e.code != ERR_NONE && e.text[0] &&
               !b);
    }
}

TEST(the_gpu_describes_itself) {
    if (!cuda_test_ready()) return;
    Machine m = {0};
    Backend *b = cuda_test_device();
    b->describe(b, &m);
    test_note("    %s: %s, %s free, context %s, runtime %s, %.0f TFLOP/s (%s)", b->name, m.name,
              units_bytes(m.free_bytes[POOL_DEVICE]).s, units_bytes(m.context_bytes).s,
              units_bytes(m.runtime_bytes).s, m.matrix_flops / 1e12, m.source);
    EXPECT(m.kind == MACHINE_CUDA && m.name[0] && m.align_bytes == 256 && m.page_bytes == 2 * MIB &&
           !b->host_memory);
    EXPECT(m.total_bytes[POOL_DEVICE] > GIB && m.free_bytes[POOL_DEVICE] > 0 &&
           m.free_bytes[POOL_DEVICE] <= m.total_bytes[POOL_DEVICE]);
    EXPECT(m.context_bytes > 50 * MIB && m.context_bytes < 4 * GIB && m.matrix_flops > 1e12 &&
           m.memory_bytes_per_s > 1e11);
}

TEST(pools_are_zeroed_and_bytes_come_back) {
    if (!cuda_test_ready()) return;
    Backend *b = cuda_test_device();
    static const Pool kinds[] = {POOL_DEVICE, POOL_PINNED, POOL_HOST};
    static const struct {
        int64_t at, n;
    } pieces[] = {
        {0, 1}, {3, 5}, {1000, 4096}, {77777, 1000001}, {4 * MIB - 1, 4 * MIB + 3}, {20 * MIB, 21 * MIB + 5}};
    const int64_t bytes = 48 * MIB;
    unsigned char *want = mem_alloc(bytes), *got = mem_alloc(bytes);
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        Err e = {0};
        char *pool = b->pool(b, kinds[k], bytes, &e);
        EXPECT(pool != NULL);
        if (!pool) continue;
        memset(want, 0, (size_t)bytes);
        for (int i = 0; i < COUNT_OF(pieces); i++) {
            fill_bytes(want + pieces[i].at, pieces[i].n, (uint64_t)(10 * k + i));
            b->put(b, pool + pieces[i].at, want + pieces[i].at, pieces[i].n);
        }
        for (int i = 0; i < 5000; i++) { /* many small ones; the last to a place wins */
            unsigned char word[24];
            fill_bytes(word, sizeof word, (uint64_t)i);
            b->put(b, pool + 45 * MIB + i % 7 * 24, word, sizeof word);
            memcpy(want + 45 * MIB + i % 7 * 24, word, sizeof word);
        }
        b->get(b, got, pool, bytes);
        EXPECT(b->sync(b, &e) && !memcmp(got, want, (size_t)bytes));
        b->get(b, got, pool + 77778, 1234);
        EXPECT(!memcmp(got, want + 77778, 1234));
        b->release(b, kinds[k]);
    }
    mem_free(want);
    mem_free(got);
}

TEST(an_arena_takes_its_size_and_gives_it_back) {
    if (!cuda_test_ready()) return;
    Backend *b = cuda_test_device();
    Machine before = {0}, with = {0}, after = {0};
    const int64_t bytes = 3 * GIB + 2 * MIB; /* more than one piece */
    Err e = {0};
    b->describe(b, &before);
    if (before.free_bytes[POOL_DEVICE] < 5 * GIB) {
        test_skip("less than 5 GiB are free on the GPU");
        return;
    }
    EXPECT(b->pool(b, POOL_DEVICE, bytes - 5, &e) != NULL);
    b->describe(b, &with); /* counts the arena as free: it is ours */
    b->release(b, POOL_DEVICE);
    b->describe(b, &after);
    EXPECT_NEAR((double)with.free_bytes[POOL_DEVICE], (double)before.free_bytes[POOL_DEVICE], (double)(64 * MIB));
    EXPECT_NEAR((double)after.free_bytes[POOL_DEVICE], (double)before.free_bytes[POOL_DEVICE], (double)(64 * MIB));
    EXPECT(!b->pool(b, POOL_DEVICE, before.total_bytes[POOL_DEVICE] + GIB, &e) && e.code == ERR_BUDGET);
    EXPECT(strstr(e.text, "free") != NULL);
    EXPECT(b->sync(b, &(Err){0})); /* a refusal does not stick */
}

/* Pinned to device on one queue, within the device on another, back on the third, three plays: the second is
 * captured, the third repeated. Missing waits or a missing fork would give the contents of the play before. */
TEST(queues_fork_and_join_also_in_a_graph) {
    if (!cuda_test_ready()) return;
    Backend *b = cuda_test_device();
    Err e = {0};
    const int64_t n = 8 * MIB;
    char *pinned = b->pool(b, POOL_PINNED, 2 * n, &e), *device = b->pool(b, POOL_DEVICE, 2 * n, &e);
    EXPECT(pinned && device);
    unsigned char *want = mem_alloc(n), *got = mem_alloc(n);
    for (int play = 0; play < 5 && pinned && device; play++) {
        fill_bytes(want, n, (uint64_t)(100 + play));
        b->put(b, pinned, want, n);
        if (!b->replay(b, 3)) {
            EXPECT(play < 2);
            b->begin(b, 3);
            b->copy(b, QUEUE_COPY_IN, device, pinned, n);
            b->signal(b, QUEUE_COPY_IN, 40);
            b->wait(b, QUEUE_COMPUTE, 40);
            b->copy(b, QUEUE_COMPUTE, device + n, device, n);
            b->signal(b, QUEUE_COMPUTE, 41);
            b->wait(b, QUEUE_COPY_OUT, 41);
            b->copy(b, QUEUE_COPY_OUT, pinned + n, device + n, n);
            b->signal(b, QUEUE_COPY_OUT, 42);
            b->wait(b, QUEUE_COMPUTE, 42);
            b->end(b, 3);
        }
        EXPECT(b->sync(b, &e));
        b->get(b, got, pinned + n, n);
        EXPECT(!memcmp(got, want, (size_t)n));
    }
    b->release(b, POOL_DEVICE);
    b->release(b, POOL_PINNED);
    mem_free(want);
    mem_free(got);
}

/* One linear_dw step, built by hand, whose dials change between plays (P7). */
typedef struct Dw {
    Program p;
    Step s;
    Args a;
    char *pool;
} Dw;

enum { N = 24, M = 16, K = 40, DY = 0, X = 4096, BETA = 8192, CLOCK = 8448, OUT = 16384, SCRATCH = 32768 };

static bool open_dw(Dw *d, Backend *b) {
    Machine m = {0};
    Err e = {0};
    b->describe(b, &m);
    prog_init(&d->p);
    Tid dy = prog_tensor(&d->p, "dy", ROLE_ACTIVATION, FMT_F32, 2, DIMS(N, M)),
        x = prog_tensor(&d->p, "x", ROLE_ACTIVATION, FMT_F32, 2, DIMS(N, K));
    Tid beta = prog_tensor(&d->p, "beta", ROLE_DIAL, FMT_F32, 1, DIMS(1)),
        clock = prog_tensor(&d->p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    Tid dw = prog_tensor(&d->p, "dw", ROLE_GRADIENT, FMT_F32, 2, DIMS(M, K));
    d->s = (Step){.op = OP_LINEAR_DW,
                  .linear_dw = {.in = {.dy = dy, .x = x, .beta = beta, .clock = clock}, .out = {dw}}};
    int64_t scratch = op_row(OP_LINEAR_DW)->workspace(&d->p, &d->s, &m);
    d->pool = b->pool(b, POOL_DEVICE, SCRATCH + scratch, &e);
    if (!EXPECT(d->pool != NULL)) return false;
    d->a = (Args){.linear_dw = {.in = {.dy = {d->pool + DY, prog_t(&d->p, dy)},
                                       .x = {d->pool + X, prog_t(&d->p, x)},
                                       .beta = {d->pool + BETA, prog_t(&d->p, beta)},
                                       .clock = {d->pool + CLOCK, prog_t(&d->p, clock)}},
                                .out = {{d->pool + OUT, prog_t(&d->p, dw)}}},
                  .step = &d->s,
                  .workspace = d->pool + SCRATCH,
                  .workspace_bytes = scratch};
    float ones[N * K];
    for (int i = 0; i < N * K; i++) ones[i] = 1;
    b->put(b, d->pool + DY, ones, N * M * 4);
    b->put(b, d->pool + X, ones, N * K * 4);
    return true;
}

static void close_dw(Dw *d, Backend *b) {
    b->release(b, POOL_DEVICE);
    prog_free(&d->p);
}

TEST(a_repeated_graph_reads_its_dials_again) {
    if (!cuda_test_ready()) return;
    Backend *b = cuda_test_device();
    Dw d;
    Err e = {0};
    if (!open_dw(&d, b)) return;
    static const float betas[] = {0, 1, 1, 0.5f, 0, 1};
    double want = NAN;
    for (int play = 0; play < COUNT_OF(betas); play++) {
        float got[M * K];
        want = betas[play] == 0 ? N : betas[play] * want + N;
        b->put(b, d.pool + BETA, &betas[play], 4);
        if (!b->replay(b, 0)) {
            b->begin(b, 0);
            b->kernels[d.s.op](b, QUEUE_COMPUTE, &d.a);
            b->signal(b, QUEUE_COMPUTE, 0);
            b->end(b, 0);
        }
        EXPECT(b->sync(b, &e));
        b->get(b, got, d.pool + OUT, sizeof got);
        for (int i = 0; i < M * K; i++) EXPECT_NEAR(got[i], want, 1e-4);
    }
    close_dw(&d, b);
}

/* A note is what stood there when it was queued, whatever was queued since. */
TEST(notes_are_read_late) {
    if (!cuda_test_ready()) return;
    Backend *b = cuda_test_device();
    Err e = {0};
    EXPECT(b->asynchronous);
    char *pool = b->pool(b, POOL_DEVICE, MIB, &e);
    if (!EXPECT(pool != NULL)) return;
    for (int round = 0; round < 50; round++) {
        double value[BACKEND_NOTES], got;
        for (int slot = 0; slot < BACKEND_NOTES; slot++) {
            value[slot] = round * 10 + slot;
            b->put(b, pool + 64, &value[slot], sizeof value[slot]);
            b->note(b, slot, pool + 64, sizeof value[slot]);
        }
        for (int slot = BACKEND_NOTES - 1; slot >= 0; slot--)
            EXPECT(b->read_note(b, slot, &got, sizeof got, &e) && got == value[slot]);
    }
    b->release(b, POOL_DEVICE);
}

/* Waiting for the device is not possible inside a capture: it fails, and the play is issued step by step. */
TEST(a_play_that_cannot_be_captured_still_happens) {
    if (!cuda_test_ready()) return;
    Backend *b = cuda_test_device();
    Dw d;
    Err e = {0};
    if (!open_dw(&d, b)) return;
    float beta = 1, got[M * K];
    b->put(b, d.pool + BETA, &beta, 4);
    for (int play = 0; play < 4; play++) {
        EXPECT(!b->replay(b, 5));
        b->begin(b, 5);
        b->kernels[d.s.op](b, QUEUE_COMPUTE, &d.a);
        b->signal(b, QUEUE_COMPUTE, 0);
        if (play == 1) b->sync(b, &e);
        b->end(b, 5);
        EXPECT(b->sync(b, &e));
        b->get(b, got, d.pool + OUT, sizeof got);
        EXPECT_NEAR(got[M * K - 1], N * (play + 1),
                    1e-4); /* the pool began with zeros; every play happened once */
    }
    close_dw(&d, b);
}
