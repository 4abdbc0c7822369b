/* test_hessian.c - gradients and Hessian products of a small decoder against torch in fp64
 * (tools/make_unlearn_golden.py). */
#include <stdlib.h>

#include "tests/snug.h"
#include "tests/test.h"
#include "tests/unlearn/logged_run.h"
#include "unlearn/gradnorm.h"
#include "unlearn/propagate.h"
#include "unlearn/vec.h"

#define FIXTURE "tests/unlearn/hvp/"

static bool train_fixture(const char *flags) {
    Ran r = snug_run("train --model " FIXTURE "model --data " FIXTURE
                     "rows.jsonl --out %s --seq 16 --global-batch 6 --steps 2 "
                     "--optimizer sgd --clip 0 --weight-decay 0 --lr 0.01 --threads 2 --step-log %s",
                     test_path("o"), flags);
    bool ok = EXPECT(r.code == 0);
    if (!ok) test_note("%s", str_text(&r.err));
    ran_free(&r);
    return ok;
}

static void expect_alike(const char *what, const float *a, const float *b, int64_t n, double tolerance) {
    double dot = vec_dot(NULL, a, b, n), x = vec_norm(NULL, a, n), y = vec_norm(NULL, b, n), off = 0;
    for (int64_t i = 0; i < n; i++) off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    off = sqrt(off) / y;
    if (!EXPECT(off <= tolerance && dot / (x * y) >= 0.9999))
        test_note("    %s: relative error %.3g, cosine %.9g", what, off, dot / (x * y));
    else if (getenv("VERBOSE"))
        test_note("    %s: relative error %.3g, cosine 1 - %.3g", what, off, 1 - dot / (x * y));
}

TEST(hessian_products_are_those_of_double_backward) {
    LoggedRun l;
    Err e = {0};
    if (!train_fixture("")) return;
    if (logged_run_open(&l, "o", "fisher")) {
        int64_t n = l.walk.n;
        float *v = logged_run_vector(&l, FIXTURE "v"), *g = logged_run_vector(&l, FIXTURE "gradient");
        float *hv = logged_run_vector(&l, FIXTURE "hv"), *out = MEM_NEW(float, n), *scratch = MEM_NEW(float, n);
        l.run.replay.astray = true; /* the slots hold anything: the walk must load its start */
        EXPECT_OK(l.walk.seek(l.walk.user, 0, &e));
        EXPECT_OK(l.walk.gradient(l.walk.user, out, WALK_ALL, NULL, 0, &e));
        expect_alike("gradient", out, g, n, 1e-5);
        for (double d = PROPAGATE_DIFFERENCE / 4; d < 3 * PROPAGATE_DIFFERENCE; d *= 2) {
            PropagateOptions o = {.hessian = HESSIAN_EXACT, .difference = d};
            char what[40];
            snprintf(what, sizeof what, "exact, difference %.2e", d);
            EXPECT_OK(hessian_product(&l.walk, &o, WALK_ALL, v, out, scratch, &e));
            expect_alike(what, out, hv, n, 1e-3);
        }
        EXPECT_OK(l.walk.gradient(l.walk.user, out, WALK_ALL, NULL, 0, &e)); /* theta came back to the bit */
        expect_alike("gradient again", out, g, n, 1e-5);
        EXPECT_OK(replay_seek(&l.run.replay, 2, &e));
        mem_free(v), mem_free(g), mem_free(hv), mem_free(out), mem_free(scratch);
    }
    logged_run_close(&l);
}

static void expect_as_vectors(LoggedRun *l, const PropagateOptions *o, bool held) {
    Err e = {0};
    int64_t n = l->walk.n, touched[] = {0};
    float *pieces = MEM_NEW(float, n), *early = MEM_NEW(float, n), *vectors = MEM_NEW(float, n);
    PropagateReport by_piece, by_vector;
    Walk plain = l->walk;
    plain.fisher = NULL;
    plain.remove = NULL;
    pieces[0] = early[0] = 7; /* what v held before is of no account */
    EXPECT_OK(propagate(&l->walk, o, touched, 1, pieces, &by_piece, &e));
    EXPECT(!l->run.replay.theta); /* not even theta was held as a vector */
    l->run.replay.device_seconds = 1e9; /* as if the device took long: all of v takes its step meanwhile */
    EXPECT_OK(propagate(&l->walk, o, touched, 1, early, &by_piece, &e));
    EXPECT(!memcmp(pieces, early, sizeof *pieces * (size_t)n));
    EXPECT_OK(propagate(&plain, o, touched, 1, vectors, &by_vector, &e));
    expect_alike("correction", pieces, vectors, n, 1e-6);
    EXPECT(by_piece.hvp_calls == by_vector.hvp_calls && by_piece.window_used == by_vector.window_used);
    EXPECT(by_piece.guarded == by_vector.guarded && (by_vector.guarded > 0) == held);
    EXPECT(fabs(by_piece.norm - by_vector.norm) <= 1e-6 * by_vector.norm && by_vector.norm > 0);
    EXPECT(fabs(by_piece.largest_norm - by_vector.largest_norm) <= 1e-6 * by_vector.largest_norm);
    mem_free(pieces), mem_free(early), mem_free(vectors);
    mem_free(l->run.replay.theta), l->run.replay.theta = NULL;
    l->run.replay.has_theta = false;
}

/* Whole updates removed, Fisher's matrix: with v as the only vector, and with vectors for everything. */
TEST(a_correction_made_a_piece_at_a_time_is_the_one_made_with_vectors) {
    LoggedRun l;
    if (!train_fixture("--steps 6")) return;
    if (logged_run_open(&l, "o", "fisher")) {
        PropagateOptions o = {.mode = PROPAGATE_STEPS, .hessian = HESSIAN_FISHER, .window = 4, .damping = 0.1};
        EXPECT(l.walk.fisher && l.walk.remove && !propagate_vectors(&o, 0));
        expect_as_vectors(&l, &o, false);
        o.guard = true;
        o.damping = 1e6; /* v grows far beyond what was removed */
        expect_as_vectors(&l, &o, true);
    }
    logged_run_close(&l);
}

/* Two micro-batches, so that the products of both are added up; the replay beside them keeps its bits. */
TEST(gauss_newton_products_are_those_of_forward_and_backward_mode) {
    LoggedRun l;
    Err e = {0};
    if (!train_fixture("--micro-batch 4")) return;
    if (logged_run_open(&l, "o", "gauss-newton")) {
        int64_t n = l.walk.n;
        float *v = logged_run_vector(&l, FIXTURE "v"), *want = logged_run_vector(&l, FIXTURE "gauss_newton");
        float *hv = logged_run_vector(&l, FIXTURE "hv"), *out = MEM_NEW(float, n), *part = MEM_NEW(float, n);
        bool removed[6] = {false, true, false, false, false, true};
        PropagateOptions o = {.hessian = HESSIAN_GAUSS_NEWTON, .difference = PROPAGATE_DIFFERENCE};
        l.run.replay.astray = true;
        EXPECT_OK(l.walk.seek(l.walk.user, 0, &e));
        EXPECT_OK(hessian_product(&l.walk, &o, WALK_ALL, v, out, part, &e));
        expect_alike("gauss-newton", out, want, n, 1e-3);
        EXPECT(vec_dot(NULL, out, v, n) > 0); /* positive semidefinite, which the Hessian is not */
        EXPECT(vec_dot(NULL, out, hv, n) < 0.9999 * vec_norm(NULL, out, n) * vec_norm(NULL, hv, n));
        l.run.replay.removed = removed; /* rows are added up: those that stay and those that go make the whole */
        EXPECT_OK(hessian_product(&l.walk, &o, WALK_KEPT, v, out, hv, &e));
        EXPECT_OK(hessian_product(&l.walk, &o, WALK_REMOVED, v, part, hv, &e));
        vec_add(NULL, out, part, 1, n);
        expect_alike("gauss-newton by rows", out, want, n, 1e-3);
        EXPECT_OK(replay_seek(&l.run.replay, 2, &e));
        mem_free(v), mem_free(want), mem_free(hv), mem_free(out), mem_free(part);
    }
    logged_run_close(&l);
}

TEST(gradient_norms_of_samples_are_those_of_autograd) {
    LoggedRun l;
    Err e = {0};
    double got[6];
    int64_t row[6] = {0, 1, 2, 3, 4, 5};
    if (!train_fixture("")) return;
    json_t *want = json_load_file(FIXTURE "gradient_norms.json", 0, NULL);
    if (EXPECT(want != NULL) && logged_run_open(&l, "o", "fisher")) {
        Run *run = &l.run.base.run;
        mem_free(logged_run_vector(&l, FIXTURE "model"));
        EXPECT_OK(gradnorm_make(got, run, l.run.base.data, row, 6, &e));
        for (int i = 0; i < 6; i++) {
            size_t sample = (size_t)dataset_row_at(l.run.base.data, 0, row[i]);
            EXPECT_NEAR(got[i] / json_number_value(json_array_get(want, sample)), 1, 1e-5);
        }
        logged_run_close(&l);
    }
    json_decref(want);
}
