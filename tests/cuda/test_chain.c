/* test_chain.c - kernels that come up before the ones in front have ended give the bits of kernels that are waited
 * for: a stack of small steps, played whole with another input each time, so that what a play before left in place
 * shows. */
#include "base/rng.h"
#include "base/units.h"
#include "exec/exec.h"
#include "tests/cuda/cuda_test.h"

enum { LAYERS = 12, WIDTH = 512, INNER = 1024, ROUNDS = 6, MOST_ROWS = 4 };

typedef struct Stack {
    Program p;
    Tid x, y;
    Exec exec;
} Stack;

static Tid filled(Program *p, const char *name, Format f, int64_t rows, int64_t cols, double scale) {
    Tid t = rows ? prog_tensor(p, name, ROLE_WEIGHT, f, 2, DIMS(rows, cols))
                 : prog_tensor(p, name, ROLE_WEIGHT, f, 1, DIMS(cols));
    op_fill(p, t, (AttrFill){.kind = FILL_UNIFORM, .scale = (float)scale, .key = (uint64_t)t});
    return t;
}

static void record(Stack *s, Format weights, int64_t rows) {
    Tid up[LAYERS], down[LAYERS], scale;
    prog_init(&s->p);
    prog_begin_phase(&s->p, "weights", 1);
    scale = filled(&s->p, "scale", FMT_BF16, 0, WIDTH, 2);
    for (int i = 0; i < LAYERS; i++) {
        up[i] = filled(&s->p, "up", weights, 2 * INNER, WIDTH, 0.1);
        down[i] = filled(&s->p, "down", weights, WIDTH, INNER, 0.1);
    }
    prog_end_phase(&s->p);
    prog_begin_phase(&s->p, "stack", 1);
    Tid h = s->x = prog_tensor(&s->p, "x", ROLE_INPUT, FMT_BF16, 2, DIMS(rows, WIDTH));
    for (int i = 0; i < LAYERS; i++) {
        Tid u = op_linear_direct(&s->p, "u", op_rmsnorm(&s->p, h, scale, 1e-6f), up[i], NONE);
        h = op_add(&s->p, "h", h, op_linear_direct(&s->p, "d", op_swiglu(&s->p, u), down[i], NONE));
    }
    s->y = h;
    prog_end_phase(&s->p);
}

static bool open_stack(Stack *s, Backend *b, Err *e) {
    Program *p = &s->p;
    int64_t bytes = cuda_test_place(p, b);
    return exec_open(&s->exec, p, b, (int64_t[POOL_COUNT]){[POOL_DEVICE] = bytes}, e);
}

static void put_input(Stack *s, int64_t rows, int round) {
    uint16_t x[MOST_ROWS * WIDTH];
    uint64_t key = rng_fold(5, (uint64_t)round);
    for (int64_t i = 0; i < rows * WIDTH; i++) /* bf16 between 1 and 2, either sign */
        x[i] = (uint16_t)(0x3f80 | (rng_u32(key, (uint64_t)i) & 0x807f));
    exec_put(&s->exec, s->x, x, 0, rows * WIDTH * 2);
}

static void try_stack(Format weights, int64_t rows) {
    static uint16_t want[ROUNDS][MOST_ROWS * WIDTH], got[MOST_ROWS * WIDTH];
    Stack s;
    Err e = {0};
    record(&s, weights, rows);
    double *seconds = mem_alloc(s.p.n_s * (int64_t)sizeof *seconds);
    bool ok = open_stack(&s, cuda_test_device(), &e);
    if (ok) exec_play(&s.exec, 0);
    for (int r = 0; r < ROUNDS && ok; r++) { /* every step waited for */
        put_input(&s, rows, r);
        ok = exec_time(&s.exec, 1, 1, seconds, &e);
        exec_get(&s.exec, s.y, want[r], 0, rows * WIDTH * 2);
    }
    for (int r = 0; r < ROUNDS && ok; r++) { /* step by step, captured, then as a graph */
        put_input(&s, rows, r);
        exec_play(&s.exec, 1);
        ok = exec_sync(&s.exec, &e);
        exec_get(&s.exec, s.y, got, 0, rows * WIDTH * 2);
        if (!EXPECT(ok && !memcmp(got, want[r], (size_t)rows * WIDTH * 2)))
            test_note("    %s, %lld rows: play %d", format_name(weights), (long long)rows, r);
    }
    EXPECT(ok && memcmp(want[0], want[1], (size_t)rows * WIDTH * 2)); /* the input matters */
    if (!ok) test_note("    %s", e.text);
    exec_close(&s.exec);
    mem_free(seconds);
    prog_free(&s.p);
}

TEST(kernels_that_come_up_early_wait_for_what_they_read) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_BF16, FMT_INT8, FMT_NF4};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int64_t rows = 1; rows <= MOST_ROWS; rows += 3) try_stack(formats[f], rows);
}
