/* test_fit.c - the search against trying every point, on drawn problems that keep to F1 to F3. */
#include "base/mem.h"
#include "base/rng.h"
#include "fit/fit.h"
#include "tests/test.h"

enum { MOST = 9, PROBLEMS = 4000 };
static const int64_t stops[] = {0, 3, 5, 8};

typedef struct Problem {
    FitSpace s;
    int64_t bytes[FIT_AXES][MOST]; /* that a setting leaves */
    double factor[FIT_AXES][MOST]; /* of time */
    int64_t piece, outer,
        buffers; /* of the ladder: each piece's bytes, what leaves with the last one, what visits need */
    double piece_seconds, disk_seconds;
    int64_t fixed, trials;
    bool fine;
} Problem;

static int64_t relief(void *user, const FitPoint *at, int64_t rung) {
    const Problem *p = user;
    return rung * p->piece + (rung && rung == p->s.rungs ? p->outer : 0);
}

static int64_t disk_rungs(void *user, const FitPoint *at) { return at->rung; }

static int64_t disk_relief(void *user, const FitPoint *at, int64_t disk) {
    const Problem *p = user;
    return disk * p->piece + (disk && disk == p->s.rungs ? p->outer : 0);
}

static bool cost(void *user, const FitPoint *at, FitCost *out) {
    Problem *p = user;
    double seconds = 1;
    int64_t bytes = p->fixed + p->s.rungs * p->piece + p->outer;
    for (int a = 0; a < p->s.axes; a++) bytes += p->bytes[a][at->at[a]], seconds *= p->factor[a][at->at[a]];
    bytes += (at->rung > 0) * p->buffers - relief(p, at, at->rung);
    int64_t left = relief(p, at, at->rung), on_disk = disk_relief(p, at, at->disk);
    *out = (FitCost){.device_bytes = bytes, .host_bytes = 100 + left - on_disk + (at->disk > 0) * p->buffers / 2,
                     .disk_bytes = on_disk,
                     .seconds = seconds + (double)at->rung * p->piece_seconds + (double)at->disk * p->disk_seconds};
    p->trials++;
    return true;
}

static Problem draw(uint64_t key) {
    Problem p = {
        .s = {.axes = 1 + (int)(rng_u32(key, 0) % 4), .rungs = rng_u32(key, 1) % 13, .disk = rng_u32(key, 2) % 2}};
    uint64_t i = 3;
    for (int a = 0; a < p.s.axes; a++) {
        p.s.settings[a] = 1 + rng_u32(key, i++) % 5;
        p.bytes[a][0] = 200 + rng_u32(key, i++) % 2000;
        p.factor[a][0] = 1;
        for (int k = 1; k < MOST; k++) {
            p.bytes[a][k] = p.bytes[a][k - 1] * (rng_u32(key, i++) % 100) / 100;
            p.factor[a][k] = p.factor[a][k - 1] * (1 + 0.3 * rng_uniform(key, i++));
        }
    }
    p.piece = 20 + rng_u32(key, i++) % 200;
    p.outer = rng_u32(key, i++) % 300;
    p.buffers = rng_u32(key, i++) % (2 * (uint32_t)p.piece);
    p.piece_seconds = 0.2 * rng_uniform(key, i++);
    p.disk_seconds = 0.5 * rng_uniform(key, i++);
    p.fixed = rng_u32(key, i++) % 500;
    p.fine = rng_u32(key, i++) % 2;
    return p;
}

static void begin(Problem *p) {
    p->s.user = p;
    if (p->fine) p->s.settings[p->s.axes - 1] = MOST, p->s.stops = stops, p->s.n_stops = COUNT_OF(stops);
    p->s.cost = cost;
    p->s.relief = relief;
    p->s.disk_rungs = disk_rungs;
    p->s.disk_relief = disk_relief;
}

static int64_t most_rungs(const Problem *p, const FitPoint *at) { /* between two stops: none */
    bool stop = !p->s.stops;
    for (int i = 0; i < p->s.n_stops; i++) stop |= p->s.stops[i] == at->at[p->s.axes - 1];
    return stop ? p->s.rungs : 0;
}

static double best_of_all(Problem *p, FitLimits l) { /* 0: nothing fits */
    double best = 0;
    FitPoint at = {0};
    for (;;) {
        for (at.rung = 0; at.rung <= most_rungs(p, &at); at.rung++)
            for (at.disk = 0; at.disk <= (p->s.disk ? at.rung : 0); at.disk++) {
                FitCost c;
                cost(p, &at, &c);
                if (fit_holds(&l, &c) && (best <= 0 || c.seconds < best)) best = c.seconds;
            }
        int a = p->s.axes - 1;
        while (a >= 0 && ++at.at[a] == p->s.settings[a]) at.at[a--] = 0;
        if (a < 0) return best;
    }
}

static FitLimits draw_limits(Problem *p, uint64_t key) {
    FitCost c;
    cost(p, &(FitPoint){0}, &c);
    int64_t state = relief(p, &(FitPoint){0}, p->s.rungs);
    return (FitLimits){
        .device_bytes = 1 + (int64_t)((double)c.device_bytes * rng_uniform(key, 0)),
        .host_bytes = rng_u32(key, 1) % 3 ? 50 + (int64_t)((double)(state + 200) * rng_uniform(key, 2)) : 0,
        .disk_bytes = rng_u32(key, 3) % 2 ? (int64_t)((double)state * rng_uniform(key, 4)) : 0};
}

static double search(Problem *p, FitLimits l) {
    Fit f;
    double seconds = fit_search(&f, &p->s, l) ? f.trial[f.best].c.seconds : 0;
    fit_free(&f);
    return seconds;
}

TEST(the_search_finds_what_trying_everything_finds) {
    int64_t tried = 0, all = 0;
    for (uint64_t seed = 1; seed <= (uint64_t)test_number("problems", PROBLEMS); seed++) {
        Problem p = draw(rng_fold(5, seed));
        begin(&p);
        FitLimits l = draw_limits(&p, rng_fold(6, seed));
        p.trials = 0;
        double found = search(&p, l);
        tried += p.trials;
        p.trials = 0;
        double best = best_of_all(&p, l);
        all += p.trials;
        if (!EXPECT((found > 0) == (best > 0) && found <= best * (1 + FIT_SAME_TIME) + 1e-12))
            test_note("    problem %llu: found %.6g, best %.6g", (unsigned long long)seed, found, best);
    }
    test_note("    %lld trials instead of %lld", (long long)tried, (long long)all);
}

TEST(more_room_is_never_slower) {
    for (uint64_t seed = 1; seed <= PROBLEMS; seed++) {
        Problem p = draw(rng_fold(7, seed));
        begin(&p);
        FitLimits l = draw_limits(&p, rng_fold(8, seed)), more = l;
        double less = search(&p, l);
        if (seed % 3 == 0) more.device_bytes += 1 + more.device_bytes / 7;
        if (seed % 3 == 1 && more.host_bytes) more.host_bytes += 1 + more.host_bytes / 7;
        if (seed % 3 == 2) p.s.disk = true;
        double found = search(&p, more);
        EXPECT(less <= 0 || (found > 0 && found <= less * (1 + FIT_SAME_TIME)));
    }
}

static bool impossible(void *user, const FitPoint *at, FitCost *out) { return false; }

TEST(a_space_without_points_fits_nothing) {
    Problem p = draw(3);
    begin(&p);
    p.s.cost = impossible;
    EXPECT(search(&p, (FitLimits){.device_bytes = INT64_MAX}) <= 0);
}
