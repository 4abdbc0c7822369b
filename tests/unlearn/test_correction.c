/* test_correction.c - a correction that is state of the ring against the one in host memory: v and the corrected
 * weights in this process, and what the command says, takes and refuses from outside. */
#include <math.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/unlearn/logged_run.h"
#include "unlearn/propagate.h"
#include "unlearn/vec.h"
#include "weights/weights.h"

static bool train(const char *flags) {
    Ran r = snug_run(
        "train --model %s --data %s --out %s --seq 48 --micro-batch 8 --global-batch 8 --steps 12 --threads 2 "
        "--step-log --step-log-stride 5 --overwrite --optimizer sgd --clip 0 --lr 0.1 %s",
        test_path("m"), test_path("rows.jsonl"), test_path("o"), flags);
    bool ok = EXPECT(r.code == 0);
    if (!ok) test_note("    %s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return ok;
}

/* ---- in this process ---- */

typedef struct Corrected {
    float *v, *theta; /* own */
    int64_t n;
    double asked, applied;
    PropagateReport report;
} Corrected;

static void corrected_free(Corrected *c) {
    mem_free(c->v);
    mem_free(c->theta);
}

/* v as it is behind the step that it has still to take. */
static void read_correction(const LoggedRun *l, float *v) {
    const Replay *r = &l->run.replay;
    const JobCarry *c = &l->run.base.job.carry;
    const CorrectionStep *d = &r->due;
    Exec *x = (Exec *)&l->run.base.ring.x;
    for (int k = 0; k < r->params.n_tensors; k++) {
        const ParamTensor *t = &r->params.tensor[k];
        const WalkSpan *span = &r->params.span[k];
        Tid last = c->last[t->weight];
        Format f = prog_t(x->p, last)->format;
        char *raw = mem_alloc(prog_bytes(x->p, last));
        float *g = MEM_NEW(float, t->count), *to = v + t->first;
        exec_get(x, c->correction[t->weight], to, 0, 4 * t->count);
        exec_get(x, last, raw, 0, prog_bytes(x->p, last));
        vec_block_decode(g, raw, f, t->count);
        double lr = d->step.lr * span->mult, keep = 1 - lr * (span->decay + d->step.damping);
        vec_block_step(to, g, d->keep * keep, d->keep * lr * d->step.times, t->count);
        mem_free(raw);
        mem_free(g);
    }
}

static void add_to_end(LoggedRun *l, Corrected *c, bool on_ring) {
    Replay *r = &l->run.replay;
    Exec *x = &l->run.base.ring.x;
    Err e = {0};
    EXPECT_OK(unlearn_run_load_result(&l->run, &e));
    r->astray = true;
    r->has_theta = r->has_gradients = false;
    if (on_ring) {
        EXPECT_OK(replay_apply_correction(r, &c->asked, &c->applied, &e));
    } else {
        c->asked = vec_norm(NULL, c->v, c->n);
        c->applied = replay_add(r, c->v);
    }
    params_get(&r->params, x, PARAMS_THETA, c->theta);
}

/* Propagated, added to the weights at the end of the run, and once more: nothing of the first time counts. */
static bool correct(Corrected *c, bool on_ring, const PropagateOptions *o, const int64_t *touched, int64_t n) {
    LoggedRun l;
    Err e = {0};
    *c = (Corrected){0};
    bool ok = on_ring ? logged_run_open_on_ring(&l, "o") : logged_run_open(&l, "o", "fisher");
    if (ok) {
        c->n = l.walk.n;
        c->v = MEM_NEW(float, c->n);
        c->theta = MEM_NEW(float, c->n);
        for (int i = 0; ok && i < 2; i++) {
            ok = EXPECT(propagate(&l.walk, o, touched, n, on_ring ? NULL : c->v, &c->report, &e));
            if (ok && on_ring) read_correction(&l, c->v);
            if (ok) add_to_end(&l, c, on_ring);
        }
        const Ring *ring = &l.run.base.ring;
        for (int i = 0; i < ring->n_host; i++) EXPECT(!on_ring || strcmp(ring->host[i].name, "vectors"));
    }
    logged_run_close(&l);
    return ok;
}

static double distance(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* unit: the largest step of the format of theta near 1, relative. */
static void expect_weights(const Corrected *a, const Corrected *b, double unit) {
    int64_t bad = 0, apart = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double off = fabs((double)a->theta[i] - (double)b->theta[i]);
        bad += off > unit * fabs((double)b->theta[i]) + 1e-7;
        apart += off > 0;
    }
    if (!EXPECT(bad == 0 && apart < a->n / 10))
        test_note("    %lld of %lld weights differ, %lld by more than a rounding", (long long)apart, (long long)a->n,
                  (long long)bad);
}

static bool near(double a, double b, double relative) { return fabs(a - b) <= relative * fabs(b); }

static void expect_report(const PropagateReport *a, const PropagateReport *b) {
    EXPECT(a->hvp_calls == b->hvp_calls && a->window_used == b->window_used && a->guarded == b->guarded && !a->clipped);
    EXPECT(a->rate_low == b->rate_low && a->rate_high == b->rate_high);
    EXPECT(near(a->norm, b->norm, 1e-6) && near(a->largest_norm, b->largest_norm, 1e-6));
    EXPECT(near(a->added_norm, b->added_norm, 1e-6));
}

static void expect_alike(const Corrected *ring, const Corrected *host, double unit) {
    double norm = vec_norm(NULL, host->v, host->n), off = distance(ring->v, host->v, host->n);
    if (!EXPECT(norm > 0 && off <= 1e-6 * norm)) test_note("    v is off by %.3g of %.6g", off, norm);
    EXPECT(near(ring->asked, host->asked, 1e-6) && near(ring->applied, host->applied, 1e-4));
    expect_weights(ring, host, unit);
}

static void expect_same_correction(const PropagateOptions *o, const int64_t *touched, int64_t n, bool held,
                                   double unit) {
    Corrected ring, host;
    bool ok = correct(&ring, true, o, touched, n);
    if (correct(&host, false, o, touched, n) && ok) {
        expect_report(&ring.report, &host.report);
        EXPECT((host.report.guarded > 0) == held);
        expect_alike(&ring, &host, unit);
    }
    corrected_free(&ring);
    corrected_free(&host);
}

static const PropagateOptions usual = {
    .mode = PROPAGATE_STEPS, .hessian = HESSIAN_FISHER, .window = 4, .damping = 0.01, .guard = true};

TEST(a_correction_on_the_ring_is_the_one_in_host_memory) {
    static const int64_t touched[] = {1, 2, 5};
    static const struct {
        const char *flags;
        double unit;
    } runs[] = {{"", 1e-6},
                {"--weight-decay 0.1 --lr-mult norm=0.5", 1e-6},
                {"--precision bf16", 0x1p-7},
                {"--precision bf16 --master fp32", 1e-6},
                {"--recompute block --offload moments", 1e-6},
                {"--precision bf16 --offload moments=2,weights=1", 0x1p-7}};
    snug_make_job((SnugJob){3, 32, 48});
    for (int i = 0; i < COUNT_OF(runs); i++) {
        if (!train(runs[i].flags)) continue;
        expect_same_correction(&usual, touched, COUNT_OF(touched), false, runs[i].unit);
        if (!test_brief()) expect_same_correction(&usual, touched, 1, false, runs[i].unit);
    }
}

TEST(a_correction_on_the_ring_is_scaled_back_as_in_host_memory) {
    static const int64_t touched[] = {1, 4};
    PropagateOptions wild = usual, none = usual;
    snug_make_job((SnugJob){2, 32, 48});
    if (!train("")) return;
    wild.damping = 1e6; /* v grows far beyond what was removed, and is held behind every update */
    expect_same_correction(&wild, touched, COUNT_OF(touched), true, 1e-6);
    none.window = 0;
    expect_same_correction(&none, touched, 1, false, 1e-6);
}

/* By hand: the guard may take hold behind a removal too, and v on the ring is scaled with its next step. */
static bool scale(const LoggedRun *l, float *v, double by) {
    if (l->walk.scale)
        l->walk.scale(l->walk.user, by);
    else
        vec_scale(NULL, v, by, l->walk.n);
    return true;
}

static bool walk_by_hand(LoggedRun *l, Corrected *c, float *v) {
    Walk *w = &l->walk;
    Err e = {0};
    WalkRate rate;
    WalkFisher how = {.damping = 0.01};
    double *added = &c->report.added_norm, *norm = &c->report.norm;
    bool ok = w->seek(w->user, 1, &e) && w->remove(w->user, v, true, added, norm, &e) && scale(l, v, 0.5) &&
              w->fisher(w->user, v, &how, &rate, norm, &e) && w->remove(w->user, v, false, added, norm, &e) &&
              scale(l, v, 0.25) && w->remove(w->user, v, false, added, norm, &e) && scale(l, v, 0.75);
    if (!EXPECT(ok)) test_note("    %s", e.text);
    return ok;
}

static bool scale_between(Corrected *c, bool on_ring) {
    LoggedRun l;
    *c = (Corrected){0};
    bool ok = on_ring ? logged_run_open_on_ring(&l, "o") : logged_run_open(&l, "o", "fisher");
    if (ok) {
        c->n = l.walk.n;
        c->v = MEM_NEW(float, c->n);
        c->theta = MEM_NEW(float, c->n);
        ok = walk_by_hand(&l, c, on_ring ? NULL : c->v);
        if (ok && on_ring) read_correction(&l, c->v);
        if (ok) add_to_end(&l, c, on_ring);
    }
    logged_run_close(&l);
    return ok;
}

TEST(a_scale_that_waits_for_the_next_step_counts) {
    Corrected ring, host;
    snug_make_job((SnugJob){2, 32, 48});
    if (!train("--weight-decay 0.1")) return;
    bool ok = scale_between(&ring, true);
    if (scale_between(&host, false) && ok) {
        EXPECT(near(ring.report.norm, host.report.norm, 1e-6) &&
               near(ring.report.added_norm, host.report.added_norm, 1e-6));
        expect_alike(&ring, &host, 1e-6);
    }
    corrected_free(&ring);
    corrected_free(&host);
}

/* ---- from outside ---- */

static json_t *unlearn(const char *flags) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --overwrite --threads 2 --json --remove steps %s",
                     test_path("o"), test_path("forget.txt"), test_path("u"), flags);
    json_t *result = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(result != NULL)) test_note("    %s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return result;
}

static double number(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static bool says(const json_t *j, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(j, key));
    return text && !strcmp(text, value);
}

static void expect_command(const char *train_flags, const char *flags) {
    char words[300];
    if (!train(train_flags)) return;
    snprintf(words, sizeof words, "--correction host --window 5 %s", flags);
    json_t *host = unlearn(words);
    snprintf(words, sizeof words, "--correction device --window 5 %s", flags);
    json_t *ring = unlearn(words);
    if (host && ring) {
        EXPECT(says(ring, "correction", "device") && says(host, "correction", "host"));
        EXPECT(number(ring, "planned_bytes") == number(ring, "measured_bytes"));
        EXPECT(number(ring, "above_plan_bytes") == 0);
        EXPECT(near(number(ring, "correction_norm"), number(host, "correction_norm"), 1e-6));
        EXPECT(near(number(ring, "applied_norm"), number(host, "applied_norm"), 1e-4));
        EXPECT(number(ring, "hvp_calls") == number(host, "hvp_calls") && number(ring, "hvp_calls") > 0);
        EXPECT(number(ring, "passes") == number(host, "passes"));
        EXPECT(number(json_object_get(ring, "seconds_by_part"), "vectors") == 0);
    }
    json_decref(host);
    json_decref(ring);
}

static void forget(const char *text) {
    EXPECT(file_write_all(test_path("forget.txt"), text, (int64_t)strlen(text), NULL));
}

TEST(the_command_carries_a_correction_on_the_ring_and_takes_what_was_planned) {
    char disk[300];
    snug_make_job((SnugJob){3, 32, 48});
    forget("5\n40\n");
    expect_command("", "");
    expect_command("--precision bf16", "--damping 1e6");
    snprintf(disk, sizeof disk, "--offload moments=disk --offload-dir %.200s", test_path("away"));
    EXPECT(file_make_dirs(test_path("away"), NULL));
    expect_command(disk, "");
    json_t *j = unlearn("--window 1"); /* auto: on the CPU v is in host memory either way */
    EXPECT(j && says(j, "correction", "host"));
    json_decref(j);
}

/* A budget below what v takes beside the weights: it goes where there is room, or is refused with what is missing. */
TEST(a_budget_sends_the_correction_to_the_disk_or_refuses_it) {
    char flags[300];
    snug_make_job((SnugJob){4, 128, 384});
    forget("5\n");
    snprintf(flags, sizeof flags, "--offload-dir %.200s", test_path("away"));
    EXPECT(file_make_dirs(test_path("away"), NULL));
    if (!train(flags)) return;
    json_t *whole = unlearn("--correction device --window 3");
    if (!whole) return;
    int64_t budget = (int64_t)number(whole, "process_planned_bytes") - (1 << 20);
    snprintf(flags, sizeof flags, "--correction device --window 3 --budget %lld", (long long)budget);
    json_t *less = unlearn(flags);
    if (less) {
        EXPECT(number(less, "process_planned_bytes") <= (double)budget && number(less, "above_plan_bytes") == 0);
        EXPECT(number(less, "planned_bytes") == number(less, "measured_bytes"));
        EXPECT(number(less, "correction_norm") == number(whole, "correction_norm"));
    }
    json_decref(whole);
    json_decref(less);
}

static void expect_refused(const char *flags, int code, const char *text) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --correction device %s", test_path("o"),
                     test_path("forget.txt"), test_path("new"), flags);
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), text)))
        test_note("    %s: %d, %s", flags, r.code, str_text(&r.err));
    EXPECT(!file_exists(test_path("new")));
    ran_free(&r);
}

TEST(a_correction_that_cannot_be_on_the_ring_is_refused_with_the_reason) {
    snug_make_job((SnugJob){2, 32, 48});
    forget("5\n");
    if (!train("--precision fp32")) return;
    expect_refused("", 2, "goes with --remove steps");
    expect_refused("--remove steps --hessian diagonal", 2, "goes with --hessian fisher");
    expect_refused("--remove steps --pass each", 2, "goes with one request and --pass one");
    expect_refused("--remove steps --oracle", 2, "weights of retraining");
    expect_refused("--remove steps --epsilon 1", 2, "made of vectors");
    expect_refused("--remove steps --window auto", 2, "made of vectors");
    expect_refused("--remove steps --budget 1KiB", 3, "does not fit");
    expect_refused("--method npo", 2, "belongs to --method lmcleaner");
    if (train("--clip 1")) expect_refused("--remove steps", 2, "goes with --clip 0");
    if (train("--momentum 0.9")) expect_refused("--remove steps", 2, "has momentum");
    if (train("--optimizer adamw")) expect_refused("--remove steps", 2, "AdamW");
    if (train("--micro-batch 4")) expect_refused("--remove steps", 2, "several micro-batches");
    if (train("--step-log-updates bf16")) expect_refused("--remove steps", 2, "stored updates");
}
