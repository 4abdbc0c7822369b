/* test_death.c - a run that is killed at any moment goes on with --resume to the same losses and the same weights;
 * a run that is asked to leave saves first; two runs do not share a folder.
 *
 * Moments are drawn by a seed (SEED=N) and spread over the length of an undisturbed run, which is measured;
 * nothing timed is asserted. Moments that matter most (between two names, between writing and flushing) are also
 * met one by one, with the fault flavour. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "obs/sensors.h"
#include "tests/test.h"
#include "tests/world.h"

#define RUN                                                                                                   \
    "train --model ../model --data ../rows.jsonl --out out --seq 16 --steps 24 --save-steps 3 --log-steps 1 " \
    "--threads 1 "                                                                                            \
    "--budget 1GiB --val-split 0.75 --eval-steps 2"

enum { KILLS = 100, SIGNALS = 36, SPREAD = 60, BRIEF_KILLS = 24, BRIEF_SIGNALS = 12, BRIEF_SPREAD = 6 };

typedef struct Plan {
    const char *binary;
    char checksum[24]; /* of the undisturbed run */
    double seconds;    /* which took this long */
    uint64_t seed;
} Plan;

static double draw(const Plan *p, int round, int what) { /* 0 to 1 */
    return (double)(rng_fold(rng_fold(p->seed, (uint64_t)round), (uint64_t)what) >> 11) * 0x1p-53;
}

/* Inputs, an undisturbed run in "whole" and its length. */
static bool make_plan(Plan *p, const char *binary) {
    *p = (Plan){.binary = binary, .seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 1};
    if (!world_make(binary)) return false;
    bool ok = true;
    for (int i = 0; i < 3 && ok; i++) { /* the quickest of three: others use this machine too */
        file_remove_tree(world_path("whole"), NULL);
        double began = sensors_seconds();
        ok = world_run("whole", binary, NULL, RUN) == 0 && world_checksum(p->checksum, "whole");
        double took = sensors_seconds() - began;
        p->seconds = i && p->seconds < took ? p->seconds : took;
    }
    return EXPECT(ok);
}

static bool complain(const char *folder, int round, double at, const char *what) {
    Str err = {0};
    world_said(NULL, &err, folder);
    const char *text = str_text(&err), *end = strlen(text) > 1500 ? text + strlen(text) - 1500 : text;
    fprintf(stderr, "  round %d, %.1f ms: %s\n%s\n", round, at * 1e3, what, end);
    str_free(&err);
    return false;
}

static int go_on(const Plan *p, const char *folder) {
    return world_run(folder, p->binary, NULL,
                     world_has_checkpoint(world_path("%s/out", folder)) ? RUN " --resume" : RUN);
}

/* The run went on to its end: losses, weights and checksum are those of the undisturbed run, and nothing is left
 * over. */
static bool ended_alike(const Plan *p, const char *folder, bool checkpoints_too, int round, double at) {
    char checksum[24];
    Str why = {0};
    const char *out = world_path("%s/out", folder);
    bool ok = world_checksum(checksum, folder) && !strcmp(checksum, p->checksum);
    if (!ok) complain(folder, round, at, "another checksum");
    if (!checkpoints_too) { /* a stopped run has saved in between */
        Str a = {0}, b = {0};
        world_metrics(&a, world_path("%s/out/metrics.jsonl", folder));
        world_metrics(&b, world_path("whole/out/metrics.jsonl"));
        if (strcmp(str_text(&a), str_text(&b))) ok = complain(folder, round, at, "other losses");
        str_free(&a), str_free(&b);
        ok = ok &&
             world_check_tree(&why, world_path("%s/out/model", folder), world_path("whole/out/model"), NULL, true);
    } else {
        ok = ok && world_check_tree(&why, out, world_path("whole/out"), NULL, true);
    }
    if (ok && world_temporaries(out)) ok = (str_add(&why, "a temporary remains"), false);
    if (why.len) complain(folder, round, at, str_text(&why));
    str_free(&why);
    return ok;
}

/* ---- killed ---- */

/* Starts or resumes, and kills; gives how the process ended. What stands under a final name is whole. */
static bool kill_at(const Plan *p, const char *folder, double at, int *code, int round) {
    Str why = {0};
    bool resume = world_has_checkpoint(world_path("%s/out", folder));
    pid_t pid = world_start(folder, p->binary, NULL, resume ? RUN " --resume" : RUN);
    world_sleep(at);
    kill(pid, SIGKILL);
    *code = world_wait(pid);
    const char *out = world_path("%s/out", folder);
    bool ok = (*code == 128 + SIGKILL || *code == 0) &&
              world_check_tree(&why, out, world_path("whole/out"), NULL, false);
    if (!ok) complain(folder, round, at, why.len ? str_text(&why) : "another end than by the signal");
    if (getenv("VERBOSE"))
        printf("  %s %.1f ms after the start, %s, %d temporaries\n", *code ? "killed" : "ended", at * 1e3,
               world_has_checkpoint(out) ? "with checkpoints" : "before the first checkpoint",
               world_temporaries(out));
    str_free(&why);
    return ok;
}

/* Killed at a random moment, in every second round once more while it resumes; then left in peace. */
static bool killed_round(void *context, int worker, int round) {
    const Plan *p = context;
    char folder[40];
    int code = 0;
    double at = draw(p, round, 0) * p->seconds;
    snprintf(folder, sizeof folder, "kill%d", worker);
    for (int tries = 0; tries < 10 && code == 0; tries++, at *= 0.6) { /* an idle machine may be done already */
        file_remove_tree(world_path("%s", folder), NULL);
        if (!kill_at(p, folder, at, &code, round)) return false;
    }
    if (code == 0) return complain(folder, round, at, "always ends before it can be killed");
    at = draw(p, round, 1) * p->seconds / 2;
    if (round % 2 && !kill_at(p, folder, at, &code, round)) return false;
    return (go_on(p, folder) == 0 || complain(folder, round, at, "cannot go on")) &&
           ended_alike(p, folder, true, round, at);
}

TEST(a_run_killed_at_any_moment_goes_on_to_the_same_end) {
    Plan p;
    if (!make_plan(&p, world_binary())) return;
    int rounds = test_brief() ? BRIEF_KILLS : KILLS;
    if (!EXPECT(world_share(killed_round, &p, rounds))) test_note("    SEED=%llu", (unsigned long long)p.seed);
}

typedef struct Call {
    const char *kind;
    int n;
} Call;

typedef struct Calls {
    Plan plan;
    Call call[8 * (SPREAD + SPREAD / 5)];
    int n;
} Calls;

/* The run that was counted made a few calls more. */
static bool came_to_fewer(const char *folder, const Call *call) {
    Str err = {0};
    world_said(NULL, &err, folder);
    bool fewer = world_made_fewer(str_text(&err), call->kind, call->n);
    str_free(&err);
    return fewer;
}

static bool killed_before_call(void *context, int worker, int i) {
    const Calls *c = context;
    char folder[40], arguments[1000];
    Str why = {0};
    snprintf(folder, sizeof folder, "call%d", worker);
    snprintf(arguments, sizeof arguments, RUN " --fault %s:%d:stop", c->call[i].kind, c->call[i].n);
    file_remove_tree(world_path("%s", folder), NULL);
    pid_t pid = world_start(folder, c->plan.binary, NULL, arguments);
    int code = world_wait(pid);
    bool came = code == 256, ok = came || (code == 0 && came_to_fewer(folder, &c->call[i])) ||
                                  complain(folder, i, 0, "did not come to the call");
    if (came) {
        kill(pid, SIGKILL);
        world_wait(pid);
        ok = world_check_tree(&why, world_path("%s/out", folder), world_path("whole/out"), NULL, false) &&
             go_on(&c->plan, folder) == 0;
        if (!ok) complain(folder, i, 0, why.len ? str_text(&why) : "cannot go on");
    }
    ok = ok && ended_alike(&c->plan, folder, true, i, 0);
    if (!ok) fprintf(stderr, "  killed before %s %d\n", c->call[i].kind, c->call[i].n);
    str_free(&why);
    return ok;
}

TEST(a_run_killed_before_a_rename_a_flush_or_a_write_goes_on_to_the_same_end) {
    static const char *const kinds[] = {"rename", "make", "cut", "remove", "flush", "write", "open", "lock"};
    Calls *c = MEM_NEW(Calls, 1);
    Str err = {0};
    const char *binary = world_faulty();
    bool ok = binary && make_plan(&c->plan, binary);
    world_said(NULL, &err, "whole");
    for (int k = 0; ok && k < 8; k++) {
        int most = test_brief() ? BRIEF_SPREAD : SPREAD;
        int calls = MAX2(world_calls(str_text(&err), kinds[k]), 0), takes = calls < most ? calls : most;
        for (int n = 1; calls > most && n <= most / 5; n++) c->call[c->n++] = (Call){kinds[k], n}; /* the start */
        for (int i = 0; i < takes; i++)
            c->call[c->n++] = (Call){kinds[k], takes > 1 ? 1 + i * (calls - 1) / (takes - 1) : 1};
    }
    if (ok) EXPECT(c->n > 20 && world_share(killed_before_call, c, c->n));
    str_free(&err);
    mem_free(c);
}

/* ---- asked to leave ---- */

static bool signalled_round(void *context, int worker, int round) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    const Plan *p = context;
    char folder[40], label[40];
    int number = signals[round % 3];
    double at = draw(p, round, 7) * p->seconds;
    Str out = {0}, err = {0};
    snprintf(folder, sizeof folder, "sign%d", worker);
    file_remove_tree(world_path("%s", folder), NULL);
    pid_t pid = world_start(folder, p->binary, NULL, RUN);
    world_sleep(at);
    kill(pid, number);
    int code = world_wait(pid);
    world_said(&out, &err, folder);
    snprintf(label, sizeof label, "\"stopped_by\":%d", number);
    bool began = err.len > 0; /* before that the system's own answer to a signal counts */
    bool ended = strstr(str_text(&out), "\"stopped_by\":0") != NULL,
         stopped = strstr(str_text(&out), label) != NULL;
    bool early = strstr(str_text(&out), "\"steps\":0,") != NULL; /* nothing was trained yet: nothing is saved */
    bool ok =
        (began ? code == 0 && (ended || (stopped && early == !world_has_checkpoint(world_path("%s/out", folder))))
               : code == 128 + number) ||
        complain(folder, round, at, "did not save and leave");
    if (ok && !ended) ok = go_on(p, folder) == 0 || complain(folder, round, at, "cannot go on");
    str_free(&out), str_free(&err);
    return ok && ended_alike(p, folder, false, round, at);
}

TEST(a_run_that_is_asked_to_leave_saves_and_goes_on_later_to_the_same_end) {
    Plan p;
    if (!make_plan(&p, world_binary())) return;
    int rounds = test_brief() ? BRIEF_SIGNALS : SIGNALS;
    if (!EXPECT(world_share(signalled_round, &p, rounds))) test_note("    SEED=%llu", (unsigned long long)p.seed);
}

/* ---- two at once ---- */

TEST(a_second_run_into_the_folder_is_refused_and_names_the_first) {
    static const char *const how[] = {RUN, RUN " --resume", RUN " --overwrite"};
    Plan p;
    const char *binary = world_faulty();
    if (!binary || !make_plan(&p, binary)) return;
    pid_t first =
        world_start("two", binary, NULL, RUN " --fault make:5:stop"); /* checkpoints are there, more to come */
    if (!EXPECT(world_wait(first) == 256)) return;
    char who[40];
    snprintf(who, sizeof who, "process %d ", (int)first);
    for (int i = 0; i < 3; i++) {
        Str err = {0};
        char command[1000];
        snprintf(command, sizeof command, "-c 'cd ../two && exec \"%s\" %s'", binary, how[i]);
        int code = world_run("second", "/bin/sh", NULL, command);
        world_said(NULL, &err, "second");
        if (!EXPECT(code == 1 && strstr(str_text(&err), who)))
            test_note("    %s: exit %d\n%s", how[i], code, str_text(&err));
        str_free(&err);
    }
    kill(first, SIGCONT);
    EXPECT(world_wait(first) == 0 && ended_alike(&p, "two", true, 0, 0));
}
