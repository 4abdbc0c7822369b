/* test_choices.c - product algorithms taken out of one device and put into another: the same choices, the same
 * bits; and what is measured on a card is plausible. */
#include "base/rng.h"
#include "base/units.h"
#include "exec/exec.h"
#include "exec/measure.h"
#include "tests/cuda/cuda_test.h"

enum { ROWS = 700, WIDTH = 1024, MOST = 256 };

typedef struct Trial { /* a product on a device of its own */
    MachineChoice choice[MOST];
    int64_t n;
    uint16_t y[ROWS * WIDTH];
} Trial;

static bool run_trial(Trial *t, bool deterministic, const MachineChoice *given, int64_t n_given) {
    Backend *b = NULL;
    Err e = {0};
    if (!backend_open(&b, "cuda", (BackendOptions){.deterministic = deterministic}, &e)) return false;
    b->choose(b, given, n_given);
    Program p;
    prog_init(&p);
    prog_begin_phase(&p, "one", 1);
    Tid x = prog_tensor(&p, "x", ROLE_WEIGHT, FMT_BF16, 2, DIMS(ROWS, WIDTH));
    Tid w = prog_tensor(&p, "w", ROLE_WEIGHT, FMT_BF16, 2, DIMS(WIDTH, WIDTH));
    op_fill(&p, x, (AttrFill){.kind = FILL_UNIFORM, .scale = 1, .key = 1});
    op_fill(&p, w, (AttrFill){.kind = FILL_UNIFORM, .scale = 1, .key = 2});
    Tid y = op_linear(&p, "y", x, w, NONE);
    Machine m = {0};
    b->describe(b, &m);
    int64_t scratch = op_row(OP_LINEAR)->workspace(&p, &p.s[2], &m), at = 0;
    p.s[2].workspace = prog_tensor(&p, "scratch", ROLE_SCRATCH, FMT_I32, 1, DIMS((scratch + 3) / 4));
    prog_end_phase(&p);
    for (Tid i = 1; i < p.n_t; i++) p.t[i].offset = at, at += units_round_up(prog_bytes(&p, i), 256);
    for (int i = 0; i < p.n_s; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) p.s[i].wait[q] = -1;
    Exec exec;
    bool ok = exec_open(&exec, &p, b, (int64_t[POOL_COUNT]){[POOL_DEVICE] = at}, &e);
    for (int i = 0; i < 3 && ok; i++) exec_play(&exec, 0);
    ok = ok && exec_sync(&exec, &e);
    if (ok) exec_get(&exec, y, t->y, 0, sizeof t->y);
    t->n = b->choices(b, t->choice, MOST);
    if (!ok) test_note("    %s", e.text);
    exec_close(&exec);
    prog_free(&p);
    b->close(b);
    return ok;
}

TEST(choices_go_from_one_process_to_the_next) {
    if (!cuda_test_ready()) return;
    Trial *timed = mem_alloc(sizeof *timed), *given = mem_alloc(sizeof *given);
    EXPECT(run_trial(timed, false, NULL, 0) && timed->n >= 1);
    EXPECT(run_trial(given, true, timed->choice, timed->n));
    EXPECT(given->n == timed->n &&
           !memcmp(given->choice, timed->choice, (size_t)timed->n * sizeof *timed->choice));
    EXPECT(!memcmp(given->y, timed->y, sizeof timed->y));
    bool broken = timed->choice[0].n_bytes > 0; /* an algorithm that is not one is chosen anew, not an error */
    if (broken) memset(timed->choice[0].algorithm, 0, sizeof timed->choice[0].algorithm);
    EXPECT(run_trial(given, true, timed->choice, timed->n));
    mem_free(timed);
    mem_free(given);
}

TEST(a_deterministic_device_makes_the_same_choices_again) {
    if (!cuda_test_ready()) return;
    Trial *one = mem_alloc(sizeof *one), *two = mem_alloc(sizeof *two);
    EXPECT(run_trial(one, true, NULL, 0) && run_trial(two, true, NULL, 0));
    EXPECT(one->n == two->n && !memcmp(one->choice, two->choice, (size_t)one->n * sizeof *one->choice));
    EXPECT(!memcmp(one->y, two->y, sizeof one->y));
    mem_free(one);
    mem_free(two);
}

TEST(what_is_measured_is_plausible) {
    if (!cuda_test_ready()) return;
    Measure c = measure_on(cuda_test_device(), 0.01);
    Err e = {0};
    double product[MACHINE_TABLES], attention[ATTEND_TABLES], pass;
    MeasuredCopies copies;
    MeasuredLoad load;
    MeasuredExtras extras;
    EXPECT_OK(measure_product(&c, product, FMT_BF16, 2048, 2048, 2048, &e));
    EXPECT_OK(measure_attention(&c, attention, FMT_BF16, 128, 1024, 4096, &e));
    EXPECT_OK(measure_pass(&c, &pass, 64 * MIB, &e));
    EXPECT_OK(measure_copies(&c, &copies, 32 * MIB, &e));
    EXPECT_OK(measure_load(&c, &load, GIB + 5, &e));
    EXPECT_OK(measure_extras(&c, &extras, 64 * MIB, &e));
    test_note("    products %.1f %.1f %.1f, attention %.1f %.1f TFLOP/s, pass %.0f GB/s, copies %.1f %.1f GB/s",
              product[0] / 1e12, product[1] / 1e12, product[2] / 1e12, attention[0] / 1e12, attention[1] / 1e12,
              pass / 1e9, copies.in / 1e9, copies.out / 1e9);
    test_note("    load: asked %lld, taken %lld, left %lld; graph of %lld: %lld, pinned %lld: %lld",
              (long long)load.asked_bytes, (long long)load.taken_bytes, (long long)load.left_bytes,
              (long long)extras.graph_steps, (long long)extras.graph_bytes, (long long)extras.pinned_bytes,
              (long long)extras.mapping_bytes);
    for (int i = 0; i < MACHINE_TABLES; i++) EXPECT(product[i] > 1e11 && product[i] < 1e16);
    EXPECT(attention[0] > 1e10 && attention[0] < 1e16 && attention[1] > 1e10 && pass > 1e10 && pass < 1e14 &&
           copies.in > 1e8);
    if (load.taken_bytes >= 0) EXPECT(load.taken_bytes >= load.asked_bytes && load.left_bytes < 64 * MIB);
}
