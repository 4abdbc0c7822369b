/* test_quadratic.c - where the recursion is exact: least squares trained by SGD, its removals against retraining.
 *
 * The loss of a batch is the sum over its rows of (a . theta - b)^2 / 2, divided by the rows of the whole batch.
 * Theta is kept in fp64; the vectors that pass through the walk are fp32, as in a real run. */
#include "base/mem.h"
#include "base/rng.h"
#include "tests/test.h"
#include "unlearn/propagate.h"
#include "unlearn/vec.h"

enum { N = 12, ROWS = 40, BATCH = 4, STEPS = 30 };

typedef struct Quadratic {
    double a[ROWS][N], b[ROWS];
    double theta[N], m[N], momentum, decay;
    int64_t step;
    bool gone[ROWS];  /* samples that are to be removed */
    bool skip[STEPS]; /* retraining: such an update is left out */
    bool without;     /* retraining: samples that are gone have weight 0 */
} Quadratic;

static const WalkSpan spans[] = {{0, N / 2, 1, 0}, {N / 2, N - N / 2, 0.5, 0}};

static double rate(int64_t step) { return 0.05 + 0.002 * (double)(step % 5); }
static int row_of(int64_t step, int k) { return (int)(rng_fold(77, (uint64_t)(step * BATCH + k)) % ROWS); }

static void gradient_at(const Quadratic *q, double *g, const double *theta, WalkRows rows) {
    for (int i = 0; i < N; i++) g[i] = 0;
    for (int k = 0; k < BATCH; k++) {
        int r = row_of(q->step, k);
        if ((rows == WALK_KEPT && q->gone[r]) || (rows == WALK_REMOVED && !q->gone[r])) continue;
        double residual = -q->b[r];
        for (int i = 0; i < N; i++) residual += q->a[r][i] * theta[i];
        for (int i = 0; i < N; i++) g[i] += q->a[r][i] * residual / BATCH;
    }
}

static void play(Quadratic *q) {
    double g[N];
    gradient_at(q, g, q->theta, q->without ? WALK_KEPT : WALK_ALL);
    for (int k = 0; k < 2 && !q->skip[q->step]; k++)
        for (int64_t i = spans[k].first; i < spans[k].first + spans[k].count; i++) {
            q->m[i] = q->momentum * q->m[i] + g[i] + q->decay * q->theta[i];
            q->theta[i] -= rate(q->step) * spans[k].mult * q->m[i];
        }
    q->step++;
}

static void start(Quadratic *q) {
    for (int i = 0; i < N; i++) q->theta[i] = (double)rng_normal(5, (uint64_t)i), q->m[i] = 0;
    q->step = 0;
}

static bool seek(void *user, int64_t step, Err *e) {
    Quadratic *q = user;
    if (step < q->step) start(q);
    while (q->step < step) play(q);
    return true;
}

static bool gradient(void *user, float *g, WalkRows rows, const float *along, double h, Err *e) {
    const Quadratic *q = user;
    double at[N], exact[N];
    for (int i = 0; i < N; i++) at[i] = q->theta[i] + (along ? h * (double)along[i] : 0);
    gradient_at(q, exact, at, rows);
    for (int i = 0; i < N; i++) g[i] = (float)exact[i];
    return true;
}

static bool advance(void *user, float *u, float *dm, WalkRate *r, Err *e) {
    Quadratic *q = user;
    double theta[N], m[N];
    memcpy(theta, q->theta, sizeof theta);
    memcpy(m, q->m, sizeof m);
    *r = (WalkRate){.lr = rate(q->step), .scale = 1};
    play(q);
    for (int i = 0; i < N; i++) {
        if (u) u[i] = (float)(q->theta[i] - theta[i]);
        if (dm) dm[i] = (float)(q->m[i] - m[i]);
    }
    return true;
}

static double norm(void *user) {
    double sum = 0;
    for (int i = 0; i < N; i++) sum += ((Quadratic *)user)->theta[i] * ((Quadratic *)user)->theta[i];
    return sqrt(sum);
}

static void make(Quadratic *q, double momentum, double decay) {
    *q = (Quadratic){.momentum = momentum, .decay = decay};
    for (int r = 0; r < ROWS; r++) {
        q->b[r] = (double)rng_normal(2, (uint64_t)r);
        for (int i = 0; i < N; i++) q->a[r][i] = (double)rng_normal(3, (uint64_t)(r * N + i)) * 0.5;
    }
    start(q);
}

static Walk walk_of(Quadratic *q, WalkSpan own[2]) {
    for (int k = 0; k < 2; k++) own[k] = spans[k], own[k].decay = q->decay;
    return (Walk){.user = q,
                  .n = N,
                  .steps = STEPS,
                  .span = own,
                  .n_spans = 2,
                  .momentum = q->momentum,
                  .seek = seek,
                  .gradient = gradient,
                  .advance = advance,
                  .norm = norm};
}

static const PropagateOptions plain = {.hessian = HESSIAN_EXACT, .window = STEPS, .difference = 1};

/* |theta at the end + v - theta retrained| / |theta retrained - theta at the end|. */
static double error_of(const Quadratic *q, const float *v) {
    Quadratic with = *q, without = *q;
    memset(with.skip, 0, sizeof with.skip);
    with.without = false;
    without.without = true;
    start(&with);
    start(&without);
    for (int s = 0; s < STEPS; s++) play(&with), play(&without);
    double off = 0, moved = 0;
    for (int i = 0; i < N; i++) {
        off += pow(with.theta[i] + (double)v[i] - without.theta[i], 2);
        moved += pow(with.theta[i] - without.theta[i], 2);
    }
    EXPECT(moved > 0);
    return sqrt(off / moved);
}

/* Steps that saw a sample that is gone; or, of whole steps, those given. */
static int64_t touched_by(const Quadratic *q, int64_t *touched) {
    int64_t n = 0;
    for (int64_t s = 0; s < STEPS; s++) {
        bool hit = false;
        for (int k = 0; k < BATCH; k++) hit |= q->gone[row_of(s, k)];
        if (hit) touched[n++] = s;
    }
    return n;
}

/* Walks the run as it was: what is skipped in retraining is played here. */
static double remove_steps(Quadratic *q, const int64_t *steps, int64_t n, const PropagateOptions *o) {
    PropagateOptions by_step = *o;
    PropagateReport report;
    WalkSpan own[2];
    float v[N];
    Err e = {0};
    by_step.mode = PROPAGATE_STEPS;
    Walk w = walk_of(q, own);
    EXPECT_OK(propagate(&w, &by_step, steps, n, v, &report, &e));
    for (int64_t i = 0; i < n; i++) q->skip[steps[i]] = true;
    return error_of(q, v);
}

TEST(any_set_of_removed_steps_equals_retraining_in_one_pass) {
    static const int64_t sets[][8] = {{4}, {0, 1, 2}, {3, 9, 10, 20, 29}, {29}};
    static const int64_t sizes[] = {1, 3, 5, 1};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) { /* momentum and decay, off and on */
            Quadratic q;
            make(&q, k & 1 ? 0.8 : 0, k & 2 ? 0.05 : 0);
            EXPECT_NEAR(remove_steps(&q, sets[i], sizes[i], &plain), 0, 1e-6);
        }
}

TEST(requests_one_after_another_are_exact_for_one_step_only) {
    static const int64_t steps[] = {3, 9};
    PropagateOptions o = plain;
    PropagateReport report;
    WalkSpan own[2];
    Quadratic q;
    float v[N], sum[N] = {0};
    Err e = {0};
    o.mode = PROPAGATE_STEPS;
    make(&q, 0, 0);
    EXPECT_NEAR(remove_steps(&q, steps, 1, &plain), 0, 1e-6);
    make(&q, 0, 0);
    Walk w = walk_of(&q, own);
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(propagate(&w, &o, steps + i, 1, v, &report, &e));
        vec_add(NULL, sum, v, 1, N);
        q.skip[steps[i]] = false;
    }
    q.skip[3] = q.skip[9] = true;
    double error = error_of(&q, sum);
    EXPECT(error > 1e-3 && error < 1); /* the first deviation went through the removed step 9 */
}

static double remove_samples(Quadratic *q, const PropagateOptions *o, double sign) {
    int64_t touched[STEPS], n = touched_by(q, touched);
    PropagateReport report;
    WalkSpan own[2];
    float v[N];
    Err e = {0};
    Walk w = walk_of(q, own);
    EXPECT_OK(propagate(&w, o, touched, n, v, &report, &e));
    EXPECT(report.steps_touched == n && report.norm > 0); /* u and v are never all zero for want of a model */
    vec_scale(NULL, v, sign, N);
    return error_of(q, v);
}

TEST(removed_samples_equal_retraining_with_weight_zero) {
    for (int k = 0; k < 4; k++) {
        Quadratic q;
        make(&q, k & 1 ? 0.8 : 0, k & 2 ? 0.05 : 0);
        q.gone[5] = q.gone[17] = true;
        EXPECT_NEAR(remove_samples(&q, &plain, 1), 0, 1e-6);
    }
}

TEST(the_correction_of_samples_has_the_sign_that_takes_them_out) {
    Quadratic q;
    make(&q, 0, 0);
    q.gone[5] = true;
    double right = remove_samples(&q, &plain, 1), none = remove_samples(&q, &plain, 0),
           wrong = remove_samples(&q, &plain, -1);
    EXPECT(right < 1e-6);
    EXPECT_NEAR(none, 1, 1e-9);
    EXPECT_NEAR(wrong, 2, 1e-5); /* twice as far as no removal */
}

TEST(a_longer_window_is_nearer_to_retraining) {
    double before = 1e9;
    static const int64_t first[] = {2};
    for (int64_t window = 0; window <= STEPS; window += 10) {
        Quadratic q;
        PropagateOptions o = plain;
        make(&q, 0, 0.3);
        o.window = window;
        double error = remove_steps(&q, first, 1, &o);
        EXPECT(error < before);
        before = error;
    }
    EXPECT(before < 1e-6);
}

TEST(the_norm_guard_scales_back_and_takes_out_what_is_not_finite) {
    static const int64_t first[] = {2};
    Quadratic q;
    PropagateOptions o = plain;
    PropagateReport report;
    WalkSpan own[2];
    float v[N];
    Err e = {0};
    make(&q, 0, 0);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++) q.a[r][i] *= 40; /* steps that stretch */
    Walk w = walk_of(&q, own);
    o.mode = PROPAGATE_STEPS;
    o.window = 5;
    EXPECT_OK(propagate(&w, &o, first, 1, v, &report, &e));
    EXPECT(report.guarded == 0 && report.norm > 10 * report.added_norm);
    o.guard = true;
    EXPECT_OK(propagate(&w, &o, first, 1, v, &report, &e));
    EXPECT(report.guarded > 0 && report.norm <= 10.001 * report.added_norm);
    static const int64_t many[] = {1, 3, 5, 7, 9}; /* growth between removals does not compound */
    EXPECT_OK(propagate(&w, &o, many, COUNT_OF(many), v, &report, &e));
    EXPECT(report.guarded > 0 && report.norm <= 10.001 * report.added_norm);
}

/* ---- products and contraction ---- */

TEST(the_contraction_found_by_power_iteration_is_the_largest_eigenvalue) {
    WalkSpan own[2], whole[] = {{0, N, 1, 0.2}};
    Quadratic q;
    float x[N], y[N], scratch[N];
    double gamma, want = 0;
    Err e = {0};
    make(&q, 0, 0.2);
    for (int r = 0; r < ROWS; r++) /* a diagonal Hessian: row r has one entry */
        for (int i = 0; i < N; i++) q.a[r][i] = i == r % N ? 1 + 0.3 * (double)(r % N) : 0;
    seek(&q, 3, &e);
    for (int i = 0; i < N; i++) {
        double h = 0.2;
        for (int k = 0; k < BATCH; k++)
            if (row_of(3, k) % N == i) h += q.a[row_of(3, k)][i] * q.a[row_of(3, k)][i] / BATCH;
        want = fmax(want, fabs(1 - 0.05 * h));
    }
    Walk w = walk_of(&q, own);
    w.span = whole, w.n_spans = 1;
    EXPECT_OK(contraction(&w, &plain, 0.05, 400, 9, x, y, scratch, &gamma, &e));
    EXPECT_NEAR(gamma, want, 1e-4);
    EXPECT(gamma < 1);
}

TEST(fisher_is_of_rank_one_and_the_diagonal_is_element_by_element) {
    Quadratic q;
    WalkSpan own[2];
    float v[N], g[N], out[N], scratch[N];
    Err e = {0};
    PropagateOptions o = plain;
    make(&q, 0, 0);
    Walk w = walk_of(&q, own);
    for (int i = 0; i < N; i++) v[i] = rng_normal(8, (uint64_t)i);
    gradient(&q, g, WALK_ALL, NULL, 0, &e);
    o.hessian = HESSIAN_FISHER;
    EXPECT_OK(hessian_product(&w, &o, WALK_ALL, v, out, scratch, &e));
    for (int i = 0; i < N; i++) EXPECT_NEAR((double)out[i], (double)g[i] * vec_dot(NULL, g, v, N), 1e-6);
    o.hessian = HESSIAN_DIAGONAL;
    EXPECT_OK(hessian_product(&w, &o, WALK_ALL, v, out, scratch, &e));
    for (int i = 0; i < N; i++) EXPECT_NEAR((double)out[i], (double)(g[i] * g[i] * v[i]), 1e-6);
}

TEST(sums_of_many_squares_are_in_fp64) {
    enum { MANY = 40000000 };
    float *x = mem_alloc(sizeof(float) * MANY);
    for (int64_t i = 0; i < MANY; i++) x[i] = 1e-3f;
    EXPECT_NEAR(vec_norm(NULL, x, MANY) / (1e-3 * sqrt((double)MANY)), 1,
                1e-6); /* in fp32 it would stop growing at 2^24 terms */
    mem_free(x);
}

TEST(vectors_come_to_the_same_bits_with_any_number_of_threads) {
    enum { MANY = 1000003 }; /* several tiles and a part of one */
    float *a = MEM_NEW(float, MANY), *b = MEM_NEW(float, MANY), *alone = MEM_NEW(float, MANY);
    for (int64_t i = 0; i < MANY; i++) a[i] = rng_normal(1, (uint64_t)i), alone[i] = rng_normal(2, (uint64_t)i);
    double dot = vec_dot(NULL, a, alone, MANY), norm = vec_norm(NULL, a, MANY);
    for (int threads = 1; threads <= 3; threads++) {
        Threads *team = NULL;
        Err e = {0};
        EXPECT_OK(threads_open(&team, threads, &e));
        for (int64_t i = 0; i < MANY; i++) b[i] = rng_normal(2, (uint64_t)i);
        EXPECT(vec_dot(team, a, b, MANY) == dot && vec_norm(team, a, MANY) == norm);
        vec_add(team, b, a, 0.3, MANY);
        vec_scale(team, b, 1.7, MANY);
        if (threads == 1) {
            vec_add(NULL, alone, a, 0.3, MANY);
            vec_scale(NULL, alone, 1.7, MANY);
        }
        EXPECT(!memcmp(alone, b, sizeof(float) * MANY));
        vec_zero(team, b, MANY);
        EXPECT(vec_norm(team, b, MANY) == 0);
        threads_close(team);
    }
    mem_free(a), mem_free(b), mem_free(alone);
}
