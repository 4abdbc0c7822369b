/* cmd_unlearn.c - snug unlearn: a logged run opened again, and what a method makes of it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/show.h"
#include "cli/unlearn_run.h"
#include "obs/sensors.h"
#include "unlearn/baseline.h"
#include "unlearn/lmcleaner.h"
#include "unlearn/vec.h"
#include "weights/weights.h"

enum { MOST_REQUESTS = 64 };

typedef struct Removal {
    UnlearnRun run;
    CleanOptions how;
    CleanRequest request[MOST_REQUESTS];
    int n_requests;
    bool *removed;  /* owns; of all requests */
    int64_t first;  /* the first touched update */
    float *sum, *v; /* own */
    double correction_norm, noise_norm;
    double asked_norm, applied_norm; /* of both; what rounding left of that */
    double oracle_error, random_error; /* against retraining; NaN: not asked for */
    double began;
} Removal;

/* What a result is written with: files beside its weights, and the method's last line, of which a copy stands there as
 * EFFICIENCY.json for `unlearn-eval`. */
typedef struct Finished {
    UnlearnRun *r;
    json_t *line; /* owns */
    double began, writes_since;
    char path[1100];
    Peak peak;
} Finished;

static json_t *parts_json(const Finished *f, double now) {
    const UnlearnRun *r = f->r;
    const WalkSeconds *s = &r->replay.spent;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "open", r->open_seconds, "load", s->load, "check",
                     s->check, "replay", s->replay, "transfer", s->transfer, "vectors", s->vectors, "apply",
                     r->apply_seconds, "write", now - f->writes_since);
}

/* UnlearnMeasure: what every method's last line ends with, once the weights are written. */
static void measure(void *user, Str *out) {
    Finished *f = user;
    UnlearnRun *r = f->r;
    Ring *ring = &r->base.ring;
    ring_measure(ring);
    f->peak = peak_of_job(&r->base.machine, ring_process_bytes(ring), ring_host_bytes(ring), ring->peak_bytes);
    double now = sensors_seconds();
    json_set_number(f->line, "seconds", now - f->began);
    if (r->replaying) json_object_set_new(f->line, "seconds_by_part", parts_json(f, now));
    peak_add_ring(f->line, ring, &f->peak);
    json_object_set_new(f->line, "result", json_string(f->path));
    str_add(out, json_print(out, f->line, JSON_INDENT(2)) ? "\n" : "{}\n");
}

/* Writes the result. Takes over line. */
static bool write_result(Finished *f, UnlearnRun *r, double began, json_t *line, const UnlearnText *texts, int n,
                         Err *e) {
    *f = (Finished){.r = r, .line = line, .began = began, .writes_since = sensors_seconds()};
    unlearn_run_result_path(r, f->path, sizeof f->path);
    if (unlearn_run_write(r, texts, n, measure, f, e)) return true;
    json_decref(line);
    return false;
}

/* Says the last line. */
static bool finish(Finished *f, Err *e) {
    show_print_json(f->line);
    return peak_settle(&f->peak, f->r->o, e);
}

static void set_checksum(json_t *to, UnlearnRun *r) {
    json_set_hex(to, "checksum", weights_checksum(&r->base.ring.x, job_trained_role(&r->base.job)));
}

/* ---- replay ---- */

static bool replay(Removal *m, Err *e) {
    UnlearnRun *r = &m->run;
    Finished f;
    int64_t end = r->history.n_steps, at = opt_given(r->o, OPT_AT) ? opt_int(r->o, OPT_AT) : end;
    if (at > end) return fail(e, ERR_USAGE, "--at %" PRId64 ": the run has %" PRId64 " updates", at, end);
    if (!unlearn_run_check_out(r, e) || !replay_seek(&r->replay, at, e)) return false;
    json_t *line = json_pack("{s:s, s:I, s:I}", "method", "replay", "at", (json_int_t)at, "replayed_updates",
                             (json_int_t)r->replay.passes);
    set_checksum(line, r);
    if (!write_result(&f, r, m->began, line, NULL, 0, e)) return false;
    log_line("the weights after %s updates: %s", units_count(at).s, f.path);
    return finish(&f, e);
}

/* ---- the request ---- */

/* Noise that anybody could draw again hides nothing: its key comes from the system unless a seed is given. */
static bool draw_key(NoiseOptions *n, const Options *o, Err *e) {
    static const char source[] = "/dev/urandom";
    int fd;
    int64_t got = 0;
    n->key_is_known = opt_given(o, OPT_NOISE_SEED);
    n->key = rng_fold(0x6e6f697365, (uint64_t)opt_int(o, OPT_NOISE_SEED));
    if (n->key_is_known || !(n->epsilon > 0)) return true;
    if (!file_open_read(source, &fd, e)) return false;
    bool ok = file_read_some(fd, &n->key, &got, sizeof n->key, source, e) &&
              (got == sizeof n->key || fail(e, ERR_FAIL, "%s: is empty", source));
    file_close(fd);
    return ok;
}

static bool read_window(Removal *m, const char *text, Err *e) {
    char *end;
    m->how.window_share = strcmp(text, "auto") ? 0 : 0.01;
    if (m->how.window_share > 0) return true;
    m->how.propagate.window = strtoll(text, &end, 10);
    return (end != text && !*end && m->how.propagate.window >= 0) ||
           fail(e, ERR_USAGE, "--window %s: is neither auto nor a number of updates from 0", text);
}

static bool read_how(Removal *m, const Options *o, Err *e) {
    PropagateOptions *p = &m->how.propagate;
    NoiseOptions *n = &m->how.noise;
    if (!read_window(m, opt_text(o, OPT_WINDOW), e)) return false;
    *p = (PropagateOptions){.window = p->window,
                            .damping = opt_real(o, OPT_DAMPING),
                            .guard = opt_flag(o, OPT_NORM_GUARD),
                            .difference = opt_real(o, OPT_DIFFERENCE)};
    p->hessian = (HessianKind)opt_which(o, OPT_HESSIAN, hessian_names, HESSIAN_KINDS);
    *n = (NoiseOptions){.epsilon = opt_real(o, OPT_EPSILON),
                        .delta = opt_real(o, OPT_DELTA),
                        .bound = opt_real(o, OPT_BOUND),
                        .beta = opt_real(o, OPT_NOISE_BETA),
                        .rank = (int)opt_int(o, OPT_PROJECTOR_RANK),
                        .projector_key = 42};
    n->kind = (NoiseKind)opt_which(o, OPT_NOISE, noise_names, NOISE_KINDS);
    m->how.each_step = opt_is(o, OPT_PASS_MODE, "each");
    bool measures = n->epsilon > 0 || m->how.window_share > 0 || opt_given(o, OPT_GAMMA_ITERATIONS);
    m->how.gamma_iterations = measures ? (int)opt_int(o, OPT_GAMMA_ITERATIONS) : 0;
    return draw_key(n, o, e);
}

/* Once the run's options are known. */
static bool settle_mode(Removal *m, Err *e) {
    const Options *o = m->run.o;
    PropagateOptions *p = &m->how.propagate;
    bool adaptive = m->run.base.spec.optimizer != OPTIMIZER_SGD, steps = opt_is(o, OPT_REMOVE, "steps");
    if (opt_is(o, OPT_REMOVE, "samples") && adaptive)
        return fail(
            e, ERR_USAGE,
            "--remove samples: what one sample did to an update of AdamW is not a sum over samples; give --remove "
            "steps, or train with --optimizer sgd");
    p->mode = steps || adaptive ? PROPAGATE_STEPS : PROPAGATE_SAMPLES;
    if (p->hessian == HESSIAN_EXACT && m->run.base.spec.weights != FMT_F32)
        return fail(
            e, ERR_USAGE,
            "--hessian exact: is made of differences, which %s weights are too coarse for; train with --precision "
            "fp32, or give --hessian fisher",
            format_name(m->run.base.spec.weights));
    return true;
}

/* Numbers of samples are places in the data only where every sample became a row, and no file but the last lost its
 * end. */
static bool check_numbering(const UnlearnRun *r, Err *e) {
    int64_t dropped = dataset_report(r->base.data)->dropped;
    OptId cut = r->base.held_out ? OPT_VAL_SPLIT : OPT_MAX_SAMPLES;
    if (dropped)
        return fail(e, ERR_FAIL,
                    "--forget: %" PRId64
                    " samples of the data have nothing to learn and became no row, so the "
                    "numbers of the others are not their places in the file. Take them out and train again",
                    dropped);
    return dataset_parts(r->base.data) < 2 || !(r->base.held_out || opt_given(&r->given, cut)) ||
           fail(e, ERR_FAIL,
                "--forget: --%s left out the end of each of the %d files of the data, so numbers of samples are not "
                "their places in it. Train again on one file, or without it",
                option_rows[cut].name, dataset_parts(r->base.data));
}

/* What an earlier request takes out is not taken out again. */
static void leave_out_earlier(Removal *m, CleanRequest *q, bool whole_steps) {
    const History *h = &m->run.history;
    int64_t samples = q->set.n, steps = q->set.n_steps;
    for (const CleanRequest *earlier = m->request; earlier < q; earlier++)
        forget_leave_out(&q->set, &earlier->set, h, whole_steps);
    if (q->set.n < samples || q->set.n_steps < steps)
        log_line("--forget %s: of its %s samples an earlier request has %s, and %s updates are left to it", q->name,
                 units_count(samples).s, units_count(samples - q->set.n).s, units_count(q->set.n_steps).s);
}

static bool read_requests(Removal *m, Err *e) {
    UnlearnRun *r = &m->run;
    const char *const *list;
    int n = opt_list(r->o, OPT_FORGET, &list);
    int64_t rows = dataset_rows(r->base.data);
    if (!n)
        return fail(e, ERR_USAGE,
                    "--forget: which samples? Give a file of their numbers, or forget01, forget05, forget10");
    if (n > MOST_REQUESTS) return fail(e, ERR_USAGE, "--forget: %d requests, at most %d at a time", n, MOST_REQUESTS);
    if (!check_numbering(r, e)) return false;
    m->removed = MEM_NEW(bool, rows);
    m->first = r->history.n_steps;
    for (int i = 0; i < n; i++) {
        CleanRequest *q = &m->request[m->n_requests++];
        q->name = list[i];
        if (!forget_open(&q->set, list[i], rows, &r->history, e)) return false;
        for (int64_t k = 0; k < q->set.n; k++) m->removed[q->set.sample[k]] = true;
        m->first = MIN2(m->first, q->set.step[0]);
        log_line("--forget %s: %s samples, seen by %s of %s updates", list[i], units_count(q->set.n).s,
                 units_count(q->set.n_steps).s, units_count(r->history.n_steps).s);
        leave_out_earlier(m, q, m->how.propagate.mode == PROPAGATE_STEPS);
    }
    return true;
}

/* ---- against retraining ---- */

static double distance(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* m->v: the weights of retraining. theta: those at the end of the run. */
static void compare(Removal *m, const float *theta, int64_t n) {
    double moved = distance(theta, m->v, n), dot = 0, random = 0, off = 0;
    double norm = vec_norm(m->run.replay.team, m->sum, n);
    for (int64_t i = 0; i < n; i++) {
        double way = (double)m->v[i] - (double)theta[i], draw = (double)rng_normal(0x72616e64, (uint64_t)i);
        off += (way - (double)m->sum[i]) * (way - (double)m->sum[i]);
        dot += way * draw;
        random += draw * draw;
    }
    m->oracle_error = sqrt(off) / moved;
    m->random_error =
        sqrt(moved * moved - 2 * dot * norm / sqrt(random) + norm * norm) / moved; /* a correction of equal norm */
}

static bool retrain(Removal *m, Err *e) {
    Replay *p = &m->run.replay;
    p->removed = m->removed;
    return replay_retrain(p, m->first, m->how.propagate.mode == PROPAGATE_STEPS, e);
}

static bool retrain_only(Removal *m, Err *e) {
    UnlearnRun *r = &m->run;
    Finished f;
    if (!settle_mode(m, e) || !read_requests(m, e) || !unlearn_run_check_out(r, e) || !retrain(m, e)) return false;
    json_t *line = json_pack("{s:s, s:i, s:I, s:I}", "method", "retrain", "requests", m->n_requests, "from",
                             (json_int_t)m->first, "replayed_updates", (json_int_t)r->replay.passes);
    set_checksum(line, r);
    if (!write_result(&f, r, m->began, line, NULL, 0, e)) return false;
    log_line("retrained from update %s on without what is to be forgotten: %s", units_count(m->first).s, f.path);
    return finish(&f, e);
}

/* ---- lmcleaner ---- */

/* In a frozen warm-up the other weights have neither gradients nor updates, which a correction's step is made of. */
static bool check_warmup(const Removal *m, Err *e) {
    const JobSpec *s = &m->run.base.spec;
    return !s->warmup_frozen || m->first >= s->warmup_steps ||
           fail(e, ERR_FAIL,
                "--run %s: in its first %" PRId64
                " updates the indexer alone learned (--indexer-warmup frozen), and what is to be forgotten was seen "
                "there. --method retrain and the losses (--method npo, ...) take it out",
                m->run.folder, s->warmup_steps);
}

static bool carries_apart(const Removal *m) {
    const char *const *list;
    return clean_carries_apart(&m->how, opt_list(m->run.o, OPT_FORGET, &list)) || opt_flag(m->run.o, OPT_ORACLE);
}

/* Why the correction cannot be on the ring; NULL: it can. */
static const char *why_on_host(const Removal *m, int requests) {
    const UnlearnRun *r = &m->run;
    const PropagateOptions *p = &m->how.propagate;
    if (p->mode != PROPAGATE_STEPS) return "removed samples add a gradient of their own; it goes with --remove steps";
    if (p->hessian != HESSIAN_FISHER) return "its products are made of vectors; it goes with --hessian fisher";
    if (requests > 1 || m->how.each_step)
        return "several corrections are added up; it goes with one request and --pass one";
    if (m->how.gamma_iterations) return "noise and contractions are made of vectors (--epsilon, --window auto)";
    if (opt_flag(r->o, OPT_ORACLE)) return "--oracle holds it against the weights of retraining";
    if (opt_real(&r->given, OPT_CLIP) > 0)
        return "the run clips gradients by the norm of all of them; it goes with --clip 0";
    if (r->history.n_updates) return "the log has stored updates, which are read into host memory";
    for (int64_t i = 0; i < r->history.n_steps; i++)
        if (r->history.step[i].overflowed) return "an update of the run was left out, as its gradient was not finite";
    return correction_refusal(&r->base.spec);
}

/* Of host memory, what the method's vectors take; UnlearnVectors. */
static bool vector_bytes(void *user, const UnlearnRun *r, int64_t *bytes, const char **why_host, Err *e) {
    Removal *m = user;
    const char *const *list;
    int requests = opt_list(r->o, OPT_FORGET, &list);
    double momentum = r->base.spec.optimizer == OPTIMIZER_SGD ? r->base.spec.update.beta1 : 0;
    bool oracle = opt_flag(r->o, OPT_ORACLE);
    if (!settle_mode(m, e)) return false;
    *why_host = why_on_host(m, requests);
    int vectors = clean_vectors(&m->how, momentum, requests);
    vectors += carries_apart(m) && !clean_carries_apart(&m->how, requests);
    vectors += oracle || clean_looks_at_theta(&m->how, momentum);
    *bytes = vectors * replay_theta_bytes(&r->base.job) + replay_copy_bytes(&r->base.job);
    return true;
}

/* From here on the slots hold the end of the run, and no replay knows where it stands. */
static bool load_end(Removal *m, Err *e) {
    m->run.replay.moved = false;
    m->run.replay.astray = true;
    m->run.replay.has_theta = m->run.replay.has_gradients = false;
    return unlearn_run_load_result(&m->run, e);
}

static bool is_on_ring(const Removal *m) { return correction_is_on_ring(&m->run.base.job); }

static bool propagate_requests(Removal *m, const Walk *w, Err *e) {
    if (!is_on_ring(m)) m->sum = vec_new(w->n);
    if (carries_apart(m)) m->v = vec_new(w->n);
    for (int i = 0; i < m->n_requests; i++) {
        m->run.replay.removed = m->request[i].set.removed;
        if (!clean_request(w, &m->how, &m->request[i], m->sum, m->v, e)) return false;
    }
    if (m->sum) m->correction_norm = vec_norm(m->run.replay.team, m->sum, w->n);
    return true;
}

/* The same where v is on the ring. */
static bool apply_on_ring(Removal *m, const Walk *w, Err *e) {
    Replay *r = &m->run.replay;
    if (r->moved && !load_end(m, e)) return false;
    m->oracle_error = m->random_error = NAN;
    clean_cover(w, &m->how, &m->request[0], 0, NULL);
    double began = sensors_seconds();
    bool ok = replay_apply_correction(r, &m->asked_norm, &m->applied_norm, e);
    m->correction_norm = m->asked_norm;
    m->run.apply_seconds = sensors_seconds() - began;
    return ok;
}

static bool apply(Removal *m, const Walk *w, Err *e) {
    if (is_on_ring(m)) return apply_on_ring(m, w, e);
    Replay *r = &m->run.replay;
    Exec *x = &m->run.base.ring.x;
    bool oracle = opt_flag(m->run.o, OPT_ORACLE);
    m->oracle_error = m->random_error = NAN;
    if (oracle && !retrain(m, e)) return false;
    if (oracle) params_get(&r->params, x, PARAMS_THETA, m->v);
    if ((r->moved || oracle) && !load_end(m, e)) return false;
    if (oracle) compare(m, replay_theta(r), w->n);
    for (int i = 0; i < m->n_requests; i++) {
        clean_cover(w, &m->how, &m->request[i], i, m->sum);
        m->noise_norm = hypot(m->noise_norm, m->request[i].noise_norm);
    }
    double began = sensors_seconds(), vectors = r->spent.vectors;
    m->asked_norm = vec_norm(r->team, m->sum, w->n);
    m->applied_norm = replay_add(r, m->sum);
    bool ok = exec_sync(x, e);
    m->run.apply_seconds = sensors_seconds() - began - (r->spent.vectors - vectors);
    return ok;
}

static json_t *clean_json(const Removal *m) {
    PropagateReport all = {0};
    double gamma = NAN, truncation = 0, seconds = 0, epsilon[MOST_REQUESTS],
           delta = m->how.noise.delta * (m->n_requests + (m->n_requests > 1));
    const char *why_not = NULL;
    for (int i = 0; i < m->n_requests; i++) {
        const CleanRequest *q = &m->request[i];
        all.steps_touched += q->report.steps_touched;
        all.hvp_calls += q->report.hvp_calls;
        all.guarded += q->report.guarded;
        all.window_used = MAX2(all.window_used, q->report.window_used);
        if (!isnan(q->gamma)) gamma = isnan(gamma) ? q->gamma : fmax(gamma, q->gamma);
        truncation += q->truncation;
        seconds += q->seconds;
        epsilon[i] = m->how.noise.epsilon;
        if (q->why_not) why_not = q->why_not;
    }
    json_t *o =
        json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:b}", "method", "lmcleaner", "requests", m->n_requests,
                  "steps_touched", (json_int_t)all.steps_touched, "K_used", (json_int_t)all.window_used, "hvp_calls",
                  (json_int_t)all.hvp_calls, "guarded", (json_int_t)all.guarded, "certified", !why_not);
    json_object_set_new(o, "why_not", why_not ? json_string(why_not) : json_null());
    json_set_number(o, "correction_norm", m->correction_norm);
    json_set_number(o, "applied_norm", m->applied_norm);
    json_set_number(o, "noise_norm", m->noise_norm);
    json_set_number(o, "gamma", gamma);
    json_set_number(o, "truncation_bound", truncation);
    json_set_number(
        o, "epsilon_total",
        m->how.noise.epsilon > 0 ? certificate_compose(epsilon, m->n_requests, m->how.noise.delta) : (double)NAN);
    json_set_number(o, "delta_total", m->how.noise.epsilon > 0 ? delta : (double)NAN);
    json_set_number(o, "oracle_error", m->oracle_error);
    json_set_number(o, "random_error", m->random_error);
    json_object_set_new(o, "correction", json_string(is_on_ring(m) ? "device" : "host"));
    json_set_count(o, "passes", m->run.replay.passes);
    json_set_count(o, "updates_read", m->run.replay.updates_read);
    json_set_number(o, "request_seconds", seconds);
    return o;
}

static bool lmcleaner(Removal *m, Err *e) {
    UnlearnRun *r = &m->run;
    Walk w = replay_walk(&r->replay);
    Finished f;
    Str audit = {0}, requeue = {0};
    if (!read_requests(m, e) || !check_warmup(m, e) || !unlearn_run_check_out(r, e) || !load_end(m, e) ||
        !propagate_requests(m, &w, e) || !apply(m, &w, e))
        return false;
    clean_records(&audit, m->request, m->n_requests, &m->how, &r->history);
    clean_requeue(&requeue, m->request, m->n_requests, &r->history, dataset_rows(r->base.data));
    const UnlearnText texts[] = {{"audit.jsonl", &audit}, {"requeue.json", &requeue}};
    bool ok = write_result(&f, r, m->began, clean_json(m), texts, m->how.propagate.mode == PROPAGATE_STEPS ? 2 : 1, e);
    str_free(&audit);
    str_free(&requeue);
    if (!ok) return false;
    if (fabs(m->applied_norm - m->asked_norm) > 0.1 * m->asked_norm)
        log_warn("the result's format is too coarse for this correction: of its norm of %.4g rounding left %.4g; train "
                 "with --precision fp32",
                 m->asked_norm, m->applied_norm);
    log_line("a correction of norm %.4g, made in %s passes over batches of the run: %s", m->correction_norm,
             units_count(r->replay.passes).s, f.path);
    return finish(&f, e);
}

/* ---- losses ---- */

static LossSpec read_loss(const Options *o) {
    LossSpec s = loss_defaults((LossKind)opt_which(o, OPT_METHOD, loss_names, LOSS_KINDS));
    if (opt_given(o, OPT_LOSS_GAMMA)) s.gamma = opt_real(o, OPT_LOSS_GAMMA);
    if (opt_given(o, OPT_LOSS_ALPHA)) s.alpha = opt_real(o, OPT_LOSS_ALPHA);
    if (opt_given(o, OPT_LOSS_BETA)) s.beta = opt_real(o, OPT_LOSS_BETA);
    if (opt_given(o, OPT_LOSS_BETA2)) s.beta2 = opt_real(o, OPT_LOSS_BETA2);
    if (opt_given(o, OPT_LOSS_DELTA)) s.delta = opt_real(o, OPT_LOSS_DELTA);
    s.divergence = opt_is(o, OPT_RETAIN_LOSS, "kl");
    return s;
}

/* The samples of all --forget together. */
static bool read_set(Removal *m, const LossSpec *loss, ForgetSet *f, Err *e) {
    UnlearnRun *r = &m->run;
    const char *const *list;
    int n = opt_list(r->o, OPT_FORGET, &list);
    if (n != 1)
        return fail(e, ERR_USAGE, "--forget: %s; a loss is tuned away from one set",
                    n ? "is given several times" : "is missing");
    int64_t rows = dataset_rows(r->base.data);
    if (!check_numbering(r, e) || !forget_open(f, list[0], rows, NULL, e)) return false;
    return f->n < rows || !loss_has_retain(loss) ||
           fail(e, ERR_FAIL,
                "--forget %s: names all samples, and nothing is left for the retain term; give --retain-alpha 0",
                list[0]);
}

static bool open_refusals(Removal *m, Dataset **d, const ForgetSet *f, Err *e) {
    UnlearnRun *r = &m->run;
    if (!opt_given(r->o, OPT_REFUSALS))
        return fail(e, ERR_USAGE,
                    "--method dpo: which answers are to be given instead? Give --refusals FILE, a row for every "
                    "sample to forget");
    r->given.value[OPT_REFUSALS] = r->o->value[OPT_REFUSALS];
    if (!setup_data(d, &r->given, &r->base.words, &r->base.model, OPT_REFUSALS, 0, e))
        return fail_within(
            e,
            "--refusals: a row like those of the data is needed for every sample to forget, with the "
            "refusal as its answer (docs/unlearning.md makes them of TOFU's idontknow.jsonl)");
    return dataset_rows(*d) == f->n ||
           fail(e, ERR_FAIL, "--refusals: has %" PRId64 " rows, and %" PRId64 " samples are to be forgotten",
                dataset_rows(*d), f->n);
}

static bool tune(Removal *m, const LossSpec *loss, const ForgetSet *f, Dataset *refusals, Err *e) {
    UnlearnRun *r = &m->run;
    BaselineReport report;
    Finished done;
    Baseline b = {.run = &r->base.run,
                  .loss = *loss,
                  .forget = f,
                  .refusals = refusals,
                  .epochs = opt_real(r->o, OPT_EPOCHS),
                  .batch = opt_int(r->o, OPT_GLOBAL_BATCH),
                  .seed = (uint64_t)opt_int(r->o, OPT_SEED),
                  .schedule = {.kind = SCHEDULE_LINEAR, .lr = opt_real(r->o, OPT_LR)}};
    if (!unlearn_run_check_out(r, e) || !baseline_run(&b, &report, e)) return false;
    json_t *result =
        json_pack("{s:s, s:i, s:I, s:I, s:I, s:I}", "method", loss_names[loss->kind], "requests", 1, "samples",
                  (json_int_t)f->n, "updates", (json_int_t)report.updates, "forward_passes",
                  (json_int_t)report.forward_passes, "backward_passes", (json_int_t)report.backward_passes);
    json_set_number(result, "first_loss", report.first_loss);
    json_set_number(result, "loss", report.loss);
    json_set_number(result, "forget_nll_before", report.forget_nll_before);
    json_set_number(result, "forget_nll_after", report.forget_nll_after);
    json_set_number(result, "unlearning_seconds", report.seconds);
    set_checksum(result, r);
    if (!write_result(&done, r, m->began, result, NULL, 0, e)) return false;
    log_line("%s: %s updates, loss of the forgotten answers %.4f -> %.4f a token: %s", loss_names[loss->kind],
             units_count(report.updates).s, report.forget_nll_before, report.forget_nll_after, done.path);
    return finish(&done, e);
}

static bool baseline(Removal *m, const Options *o, Err *e) {
    LossSpec loss = read_loss(o);
    ForgetSet f = {0};
    Dataset *refusals = NULL;
    bool dpo = loss.kind == LOSS_DPO;
    int64_t batch = opt_int(o, OPT_GLOBAL_BATCH), rows = baseline_rows(&loss, batch, dpo);
    bool ok = unlearn_run_open_result(&m->run, o, &loss, rows, dpo ? batch : 0, e) && read_set(m, &loss, &f, e) &&
              (!dpo || open_refusals(m, &refusals, &f, e)) && tune(m, &loss, &f, refusals, e);
    forget_free(&f);
    if (refusals) dataset_close(refusals);
    return ok;
}

/* ---- the command ---- */

static bool is_lmcleaner(const Options *o) { return opt_is(o, OPT_METHOD, "lmcleaner"); }

static bool reads_log(const Options *o) {
    return is_lmcleaner(o) || opt_is(o, OPT_METHOD, "retrain") || opt_is(o, OPT_METHOD, "replay");
}

bool cmd_unlearn(const Options *o, Err *e) {
    Removal *m = MEM_NEW(Removal, 1);
    m->began = sensors_seconds();
    bool ok =
        reads_log(o)
            ? read_how(m, o, e) && unlearn_run_open(&m->run, o, is_lmcleaner(o) ? vector_bytes : NULL, m, e)
            : baseline(m, o, e);
    if (ok && reads_log(o))
        ok = opt_is(o, OPT_METHOD, "replay")    ? replay(m, e)
             : opt_is(o, OPT_METHOD, "retrain") ? retrain_only(m, e)
                                                : lmcleaner(m, e);
    for (int i = 0; i < m->n_requests; i++) forget_free(&m->request[i].set);
    unlearn_run_close(&m->run);
    mem_free(m->removed);
    mem_free(m->sum);
    mem_free(m->v);
    mem_free(m);
    return ok;
}
