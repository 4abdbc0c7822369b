/* test_reason_death.c - a `snug reason` killed or asked to leave at any moment goes on, with the same command, to
 * the results of an undisturbed one: no problem lost, none asked twice. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "obs/sensors.h"
#include "tests/test.h"
#include "tests/world.h"

#define RUN                                                                                               \
    "reason --model ../talker --num-examples 8 --max-iterations 2 --max-tokens 24 --judge-max-tokens 16 " \
    "--context 768 --slots 3 --invariant --threads 1 --budget 1GiB --out out/reason.json"

enum { ROUNDS = 10 };

typedef struct Plan {
    const char *binary;
    double seconds; /* of the undisturbed run */
} Plan;

static bool make_plan(Plan *p) {
    char cwd[400], arguments[1000];
    *p = (Plan){.binary = getenv("SNUG") ? getenv("SNUG") : "./snug"};
    if (!world_make(p->binary) || !getcwd(cwd, sizeof cwd)) return false;
    snprintf(
        arguments, sizeof arguments,
        "init --model llama-3.2-1b --out ../talker --tokenizer \"%s/tests/data/tok_smollm2\" --dtype fp32 --set "
        "num_hidden_layers=2 --set hidden_size=32 --set num_attention_heads=2 --set num_key_value_heads=1 --set "
        "intermediate_size=32 --set vocab_size=424",
        cwd);
    bool ok = world_run("made", p->binary, NULL, arguments) == 0;
    double began = sensors_seconds();
    ok = ok && world_run("whole", p->binary, NULL, RUN) == 0;
    p->seconds = sensors_seconds() - began;
    return EXPECT(ok);
}

static bool ended_alike(const char *folder, int round) {
    Str why = {0};
    bool ok = world_check_tree(&why, world_path("%s/out", folder), world_path("whole/out"), NULL, true) &&
              !file_exists(world_path("%s/out/reason.json.progress", folder));
    if (!ok) world_complain(folder, round, why.len ? str_text(&why) : "its progress is still there");
    str_free(&why);
    return ok;
}

/* Killed in every round once, in every second one twice; odd moments are drawn, and one is in the last writing. */
static bool disturbed_round(void *context, int worker, int round) {
    const Plan *p = context;
    char folder[40];
    int code = -1, number = round % 3 == 2 ? SIGTERM : SIGKILL;
    bool met = false;
    snprintf(folder, sizeof folder, "kill%d", worker);
    file_remove_tree(world_path("%s", folder), NULL);
    double at = (0.05 + 0.9 * rng_uniform(77, (uint64_t)round)) * p->seconds;
    for (int times = 0; times < 1 + round % 2 && code; times++, at *= 0.5) {
        pid_t pid = world_start(folder, p->binary, NULL, RUN);
        world_sleep(at);
        kill(pid, number);
        code = world_wait(pid);
        met |= code != 0;
        bool asked = number == SIGTERM && code == 1; /* it says where it goes on */
        if (code && !asked && code != 128 + number)
            return world_complain(folder, round, "another end than by the signal");
        if (code && file_exists(world_path("%s/out/reason.json", folder))) code = 0; /* met behind its last writing */
    }
    if (getenv("VERBOSE")) printf("  round %d: %s after %.0f ms\n", round, met ? "disturbed" : "done", at * 1e3);
    if (code && world_run(folder, p->binary, NULL, RUN)) return world_complain(folder, round, "cannot go on");
    return ended_alike(folder, round);
}

TEST(a_reasoning_killed_at_any_moment_goes_on_to_the_same_results) {
    Plan p;
    if (make_plan(&p)) EXPECT(world_share(disturbed_round, &p, ROUNDS));
}

/* Stopped before a write, when some replies are there, asked to leave and let go; gives how it ended. */
static int ask_to_leave(const char *folder, const char *binary) {
    pid_t pid = world_start(folder, binary, NULL, RUN " --fault write:20:stop");
    if (!EXPECT(world_wait(pid) == 256)) return -1;
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    return world_wait(pid);
}

TEST(a_reasoning_that_is_asked_to_leave_keeps_its_progress) {
    Plan p;
    Str err = {0};
    const char *faulty = world_faulty();
    if (!faulty || !make_plan(&p)) return;
    char progress[2000];
    snprintf(progress, sizeof progress, "%s", world_path("left/out/reason.json.progress"));
    int code = ask_to_leave("left", faulty);
    world_said(NULL, &err, "left");
    EXPECT(code == 1 && strstr(str_text(&err), "interrupted: ") &&
           strstr(str_text(&err), "goes on from out/reason.json.progress"));
    EXPECT(file_exists(progress) && !file_exists(world_path("left/out/reason.json")));
    EXPECT(world_run("left", p.binary, NULL, RUN " --seed 7") == 1); /* another job's */
    world_said(NULL, &err, "left");
    EXPECT(strstr(str_text(&err), "seed is 42 there, 7 here") != NULL);
    EXPECT(world_run("left", p.binary, NULL, RUN) == 0 && ended_alike("left", 0));
    world_said(NULL, &err, "left");
    EXPECT(strstr(str_text(&err), "problems were done") != NULL);
    str_free(&err);
}
