/* test_search.c - the search for a plan on real jobs: against trying every plan of its space on small models, and
 * never slower with more room or one more choice on drawn ones. */
#include "base/rng.h"
#include "base/stop.h"
#include "base/units.h"
#include "ir/cards.h"
#include "tests/test.h"
#include "train/search.h"

/* Two predictions this near to each other are the same. A smaller micro-batch may be predicted a hundredth faster
 * than a larger one, against F1 of fit/fit.h; the search then takes the larger. */
#define SAME 1.02

/* ---- jobs ---- */

static Machine small_gpu(void) { /* a GPU whose copies are slow enough to matter */
    Machine m = card_machine(card_named("h200"));
    m.copy_bytes_per_s = 2e10;
    m.context_bytes = m.code_bytes = m.runtime_bytes = 0;
    return m;
}

static JobSpec small_job(uint64_t key, int layers) {
    static const char *const presets[] = {"qwen2.5-0.5b", "llama-3.2-1b", "qwen3-0.6b"};
    JobSpec s = {.train = true,
                 .lora = rng_u32(key, 0) % 3 == 0,
                 .m.activations = FMT_BF16,
                 .weights = FMT_BF16,
                 .gradients = FMT_BF16,
                 .moments = (MomentKind)(rng_u32(key, 1) % 3),
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f},
                 .seq = 256 << rng_u32(key, 2) % 4,
                 .accum = 1,
                 .attend = ATTEND_FAST,
                 .attend_asked = ATTEND_FAST};
    EXPECT(config_from_preset(&s.m.config, presets[rng_u32(key, 3) % COUNT_OF(presets)]));
    s.m.config.layers = layers;
    s.m.config.vocab = 8192;
    s.micro_batch = 1 << rng_u32(key, 4) % 4;
    if (s.lora) s.m.adapter = (LoraSpec){.rank = 8, .alpha = 16, .targets = 127, .format = FMT_BF16};
    return s;
}

static const SearchFreedom all_free = {.recompute = true, .offload = true, .head_chunk = true, .ffn_chunks = true,
                                       .attention = true, .micro_batch = true, .update_in_backward = true};

typedef struct Found {
    bool fits;
    double seconds;
} Found;

static Found search(const JobSpec *asked, const Machine *m, SearchFreedom free, FitLimits limits) {
    Search *f = MEM_NEW(Search, 1);
    JobSpec s = *asked;
    Found found = {.fits = job_search(f, &s, m, NULL, free, limits)};
    if (found.fits) found.seconds = f->fit.trial[f->fit.best].c.seconds;
    search_free(f);
    mem_free(f);
    return found;
}

static FitCost planned(const JobSpec *s, const Machine *m) {
    Job *j = MEM_NEW(Job, 1);
    Ring *r = MEM_NEW(Ring, 1);
    FitCost c = {.device_bytes = INT64_MAX};
    JobSpec estimate = *s;
    estimate.estimate = true;
    if (job_plan(j, r, &estimate, m, NULL, NULL))
        c = (FitCost){ring_process_bytes(r), ring_host_bytes(r), ring_disk_bytes(r), ring_round_seconds(r, m)};
    ring_close(r);
    mem_free(r);
    mem_free(j);
    return c;
}

/* ---- everything, written out without the search's help ---- */

typedef struct Everything {
    const JobSpec *asked;
    const Machine *m;
    FitLimits limits;
    double best;
    int64_t plans;
} Everything;

static void try_plan(Everything *all, const JobSpec *s) {
    FitCost c = planned(s, all->m);
    all->plans++;
    if (fit_holds(&all->limits, &c) && (all->best <= 0 || c.seconds < all->best)) all->best = c.seconds;
}

/* State leaves in one order, layer by layer. */
static void try_ladder(Everything *all, JobSpec s) {
    static const OffloadKind order[] = {OFFLOAD_MOMENTS, OFFLOAD_GRADIENTS, OFFLOAD_WEIGHTS};
    int layers = s.m.config.layers;
    try_plan(all, &s);
    for (int k = 0; k < COUNT_OF(order); k++) {
        bool goes =
            order[k] == OFFLOAD_WEIGHTS || (!s.lora && !(order[k] == OFFLOAD_GRADIENTS && s.update_in_backward));
        for (int n = 1; goes && n <= layers; n++) {
            s.m.offload.layers[order[k]] = n;
            try_plan(all, &s);
        }
    }
}

static void try_recompute(Everything *all, JobSpec s) {
    int layers = s.m.config.layers;
    try_ladder(all, s);
    for (int blocks = 0; blocks <= layers; blocks++) {
        bool stop = blocks == 0 || blocks == layers / 4 || blocks == layers / 2 || blocks == 3 * layers / 4 ||
                    blocks == layers;
        for (int l = 0; l < layers; l++) s.recompute[l] = l < blocks ? RECOMPUTE_BLOCK : RECOMPUTE_NORM;
        if (stop) try_ladder(all, s);
        else try_plan(all, &s);
    }
    s.m.offload.layers[OFFLOAD_INPUTS] = MAX2(layers - 2, 1);
    try_ladder(all, s);
}

static double best_of_all(const JobSpec *asked, const Machine *m, FitLimits limits, int64_t *plans) {
    Everything all = {.asked = asked, .m = m, .limits = limits};
    int64_t rows = asked->micro_batch * asked->accum;
    for (int64_t micro = rows;; micro = (micro + 1) / 2) {
        JobSpec s = *asked;
        s.micro_batch = micro;
        s.accum = (rows + micro - 1) / micro;
        try_recompute(&all, s);
        if (s.accum == 1) {
            s.update_in_backward = true;
            try_recompute(&all, s);
        }
        if (micro == 1) break;
    }
    *plans += all.plans;
    return all.best;
}

TEST(small_jobs_are_fitted_as_well_as_by_trying_everything) {
    Machine m = small_gpu();
    SearchFreedom free = {.recompute = true, .offload = true, .micro_batch = true, .update_in_backward = true};
    int64_t plans = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        JobSpec s = small_job(rng_fold(21, seed), 3);
        FitCost whole = planned(&s, &m);
        FitLimits limits = {.device_bytes =
                                (int64_t)((double)whole.device_bytes * (0.15 + 0.9 * rng_uniform(22, seed)))};
        if (seed % 3 == 0) limits.host_bytes = (int64_t)((double)whole.device_bytes * rng_uniform(23, seed));
        Found found = search(&s, &m, free, limits);
        double best = best_of_all(&s, &m, limits, &plans);
        /* placing may take a plan that fits by a hair over the limit */
        if (!EXPECT(found.fits == (best > 0) && (!found.fits || found.seconds <= best * SAME)))
            test_note("    job %llu: %.6g s found, %.6g s is the best", (unsigned long long)seed, found.seconds, best);
    }
    test_note("    %lld plans tried out", (long long)plans);
}

/* ---- more is never worse ---- */

static void expect_no_worse(Found less, Found more, uint64_t seed, const char *what) {
    if (!EXPECT(!less.fits || (more.fits && more.seconds <= less.seconds * SAME)))
        test_note("    job %llu, more %s: %.6g s with less, %s %.6g s with more", (unsigned long long)seed, what,
                  less.seconds, more.fits ? "fits," : "does not fit,", more.seconds);
}

TEST(more_room_or_one_more_choice_is_never_worse) {
    Machine m = small_gpu();
    int64_t jobs = test_number("jobs", test_brief() ? 40 : 250);
    for (uint64_t seed = 1; seed <= (uint64_t)jobs; seed++) {
        uint64_t key = rng_fold(31, seed);
        JobSpec s = small_job(key, 2 + (int)(rng_u32(key, 9) % 5));
        FitCost whole = planned(&s, &m);
        FitLimits l = {.device_bytes = (int64_t)((double)whole.device_bytes * (0.1 + 0.8 * rng_uniform(key, 10)))};
        if (rng_u32(key, 11) % 2) l.host_bytes = (int64_t)((double)whole.device_bytes * rng_uniform(key, 12));
        SearchFreedom less = all_free, more = all_free;
        Found before = search(&s, &m, less, l);
        FitLimits wider = l;
        wider.device_bytes += whole.device_bytes / 50;
        expect_no_worse(before, search(&s, &m, less, wider), seed, "memory on the device");
        wider = l;
        if (l.host_bytes) wider.host_bytes += whole.device_bytes / 20;
        if (l.host_bytes) expect_no_worse(before, search(&s, &m, less, wider), seed, "memory of the host");
        more.disk = true;
        expect_no_worse(before, search(&s, &m, more, l), seed, "choices: the disk");
        bool *choice[] = {&less.recompute, &less.head_chunk, &less.ffn_chunks, &less.attention, &less.micro_batch,
                          &less.update_in_backward};
        *choice[seed % COUNT_OF(choice)] = false;
        expect_no_worse(search(&s, &m, less, l), before, seed, "choices");
    }
}

/* The job of an issue: found with a disk that it did not use, refused without one. */
TEST(a_plan_that_uses_no_disk_is_found_without_one) {
    Machine m = card_machine(card_named("h200"));
    JobSpec s = {.train = true,
                 .m.activations = FMT_BF16,
                 .weights = FMT_BF16,
                 .gradients = FMT_BF16,
                 .moments = MOMENTS_8BIT,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f},
                 .seq = 2048,
                 .micro_batch = 4,
                 .accum = 1,
                 .attend = ATTEND_FAST,
                 .attend_asked = ATTEND_FAST};
    EXPECT(config_from_preset(&s.m.config, "qwen2.5-32b"));
    for (int host = 112; host <= 120; host += 4) {
        Found found = search(&s, &m, all_free, (FitLimits){.device_bytes = 24 * GIB, .host_bytes = host * GIB});
        EXPECT(found.fits && found.seconds < 4.5);
    }
}

/* Ctrl-C between the last trial and its placement: the search went round for ever, because nothing was planned any more
 * and the trial, which it remembered, still fitted. */
TEST(a_search_that_is_asked_to_stop_before_it_places_its_plan_ends) {
    Machine m = small_gpu();
    SearchMemo memo = {.machine = &m, .n_machines = 1};
    Search *f = MEM_NEW(Search, 1);
    JobSpec asked = small_job(7, 2), s = asked;
    FitLimits limits = {.device_bytes = 100 * GIB, .host_bytes = 100 * GIB};
    EXPECT(job_search_memo(f, &s, &memo, 0, NULL, all_free, limits));
    search_free(f);
    stop_signal = SIGINT;
    s = asked;
    EXPECT(!job_search_memo(f, &s, &memo, 0, NULL, all_free, limits));
    stop_signal = 0;
    search_free(f);
    search_memo_free(&memo);
    mem_free(f);
}
