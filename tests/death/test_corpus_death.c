/* test_corpus_death.c - a corpus in the hands of runs that die: a killed preparation goes on to the same shards,
 * and a training that reads shards goes on with the very next row. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "obs/sensors.h"
#include "tests/test.h"
#include "tests/world.h"

#define PREPARE "prepare --tokenizer ../reader --out out --shard-tokens 20000 --threads 2 ../a.jsonl ../b.txt"
#define TRAIN                                                                                            \
    "train --model ../reader --data ../tokens:3 --data ../others:1 --out out --seq 24 --global-batch 4 " \
    "--micro-batch 2 --mode full --steps 24 --save-steps 3 --log-steps 1 --threads 1 --budget 1GiB "     \
    "--val-split 0.001 --eval-steps 6 --eval-batches 2"

enum { ROUNDS = 16 };

typedef struct Plan {
    const char *binary, *command, *again; /* again: what goes on once there is something to go on with */
    double seconds;                       /* of the undisturbed run */
} Plan;

static void put_text(const char *name, int rows, uint64_t key, bool json) {
    static const char *const words[] = {"the ", "river ", "runs ", "on ", "and on, ", "stone. "};
    Str s = {0};
    Err e = {0};
    for (int r = 0; r < rows; r++) {
        if (json) str_add(&s, "{\"text\": \"");
        for (uint64_t i = 0; i < 3 + rng_fold(key, (uint64_t)r) % 60; i++)
            str_add(&s, words[rng_fold(key + (uint64_t)r, i) % COUNT_OF(words)]);
        str_add(&s, json ? "\"}\n" : "\n");
    }
    EXPECT_OK(file_write_all(world_path("%s", name), s.data, s.len, &e));
    str_free(&s);
}

static bool make_world(Plan *p, const char *command, const char *again) {
    char cwd[400], arguments[1000];
    *p = (Plan){.binary = getenv("SNUG") ? getenv("SNUG") : "./snug", .command = command, .again = again};
    if (!world_make(p->binary) || !getcwd(cwd, sizeof cwd)) return false;
    snprintf(
        arguments, sizeof arguments,
        "init --model llama-3.2-1b --out ../reader --tokenizer %s/tests/data/tok_smollm2 --dtype fp32 --set "
        "num_hidden_layers=2 --set hidden_size=32 --set num_attention_heads=2 --set num_key_value_heads=1 --set "
        "intermediate_size=32 --set vocab_size=424 --set eos_token_id=2",
        cwd);
    put_text("a.jsonl", 30000, 1, true);
    put_text("b.txt", 2000, 2, false);
    return EXPECT(
        world_run("made", p->binary, NULL, arguments) == 0 &&
        world_run("made", p->binary, NULL,
                  "prepare --tokenizer ../reader --out ../tokens --shard-tokens 60000 ../a.jsonl") == 0 &&
        world_run("made", p->binary, NULL, "prepare --tokenizer ../reader --out ../others ../b.txt") == 0);
}

static bool run_whole(Plan *p) {
    double began = sensors_seconds();
    bool ok = world_run("whole", p->binary, NULL, p->command) == 0;
    p->seconds = sensors_seconds() - began;
    return EXPECT(ok);
}

static bool ended_alike(const char *folder, int round) {
    Str why = {0};
    const char *out = world_path("%s/out", folder);
    bool ok = world_check_tree(&why, out, world_path("whole/out"), NULL, true) && !world_temporaries(out) &&
              !file_exists(world_path("%s/out/progress.json", folder));
    if (!ok) world_complain(folder, round, why.len ? str_text(&why) : "something is left over");
    str_free(&why);
    return ok;
}

static const char *next_command(const Plan *p, const char *folder) {
    return world_has_checkpoint(world_path("%s/out", folder)) ? p->again : p->command;
}

/* Killed once in every round, in every second one twice. */
static bool killed_round(void *context, int worker, int round) {
    const Plan *p = context;
    char folder[40];
    int code = -1;
    snprintf(folder, sizeof folder, "kill%d", worker);
    file_remove_tree(world_path("%s", folder), NULL);
    double at = (0.05 + 0.9 * rng_uniform(78, (uint64_t)round)) * p->seconds;
    for (int times = 0; times < 1 + round % 2 && code; times++, at *= 0.5) {
        pid_t pid = world_start(folder, p->binary, NULL, next_command(p, folder));
        world_sleep(at);
        kill(pid, SIGKILL);
        code = world_wait(pid);
        if (code && code != 128 + SIGKILL) return world_complain(folder, round, "another end than by the signal");
    }
    if (getenv("VERBOSE"))
        printf("  round %d: %s%s\n", round, code ? "killed" : "done",
               file_exists(world_path("%s/out/progress.json", folder)) ? " behind a shard" : "");
    if (code && world_run(folder, p->binary, NULL, next_command(p, folder)))
        return world_complain(folder, round, "cannot go on");
    return ended_alike(folder, round);
}

TEST(a_preparation_killed_at_any_moment_goes_on_to_the_same_shards) {
    Plan p;
    if (make_world(&p, PREPARE, PREPARE) && run_whole(&p)) EXPECT(world_share(killed_round, &p, ROUNDS));
}

TEST(rows_that_are_packed_when_the_process_is_killed_are_packed_by_the_next) {
    Plan p;
    const char *command = PREPARE " --pack-rows 40";
    if (make_world(&p, command, command) && run_whole(&p)) EXPECT(world_share(killed_round, &p, ROUNDS));
}

TEST(a_training_from_shards_killed_at_any_moment_goes_on_with_the_next_row) {
    Plan p;
    if (make_world(&p, TRAIN, TRAIN " --resume") && run_whole(&p)) EXPECT(world_share(killed_round, &p, ROUNDS));
}

static bool has_checkpoint(const void *folder) { return world_has_checkpoint(folder); }

/* Waits for the first checkpoint, writes to a shard and gives how the run ended. */
static int change_under(pid_t pid, const char *shard) {
    char out[1200];
    snprintf(out, sizeof out, "%s", world_path("changed/out"));
    EXPECT(world_until(has_checkpoint, out));
    FILE *f = fopen(shard, "a");
    if (f) fputc('x', f), fclose(f);
    return world_wait(pid);
}

TEST(a_training_whose_shard_changes_stops_and_says_so) {
    Plan p;
    Str err = {0};
    if (!make_world(&p, TRAIN, TRAIN)) return;
    char shard[1200];
    snprintf(shard, sizeof shard, "%s", world_path("tokens/shard-00000.bin"));
    int code = change_under(
        world_start("changed", p.binary, NULL, TRAIN " --steps 1000000 --val-split 0 --save-total-limit 2"),
        shard);
    world_said(NULL, &err, "changed");
    if (!EXPECT(code == 1 && strstr(str_text(&err), "shard-00000.bin: was changed while the run reads it")))
        test_note("    exit %d: %s", code, str_text(&err));
    EXPECT(world_has_checkpoint(world_path("changed/out")) && !world_temporaries(world_path("changed/out")));
    str_free(&err);
}
