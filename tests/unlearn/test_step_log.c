/* test_step_log.c - the light log from outside: every state of a run comes back bit for bit, and a log that is not
 * whole, not this run's or was edited is refused by name. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/unlearn/logged_run.h"
#include "tests/world.h"

#define TRAIN "train --model %s --data %s --out %s --seq 48 --global-batch 8 --lr 3e-3 --threads 2 --log-steps 1 "

static Ran train(const char *out, const char *flags) {
    return snug_run(TRAIN "--step-log --step-log-stride 4 %s", test_path("m"), test_path("rows.jsonl"),
                    test_path(out), flags);
}

static bool must_train(const char *out, const char *flags) {
    Ran r = train(out, flags);
    bool ok = EXPECT(r.code == 0);
    if (!ok) test_note("%s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return ok;
}

static bool same_bytes(const char *a, const char *b) {
    Str x = {0}, y = {0};
    bool same = file_read(a, &x, 0, NULL) && file_read(b, &y, 0, NULL) && x.len == y.len &&
                !memcmp(x.data, y.data, (size_t)x.len);
    str_free(&x);
    str_free(&y);
    return same;
}

/* Every checkpoint of the run (every three steps) against a replay to that step. */
static void expect_replayed(const char *out, const char *what, const char *file, int steps) {
    for (int at = 3; at <= steps; at += 3) {
        char a[600], b[600];
        Ran r = snug_run("unlearn --run %s --method replay --at %d --out %s --overwrite --threads 1", test_path(out),
                         at, test_path("r"));
        snprintf(a, sizeof a, "%s/checkpoint-%d/%s", test_path(out), at, strchr(file, '/') + 1);
        snprintf(b, sizeof b, "%s/%s", test_path("r"), file);
        if (!EXPECT(r.code == 0 && same_bytes(a, b)))
            test_note("    %s, after %d updates: %s", what, at, str_text(&r.err));
        ran_free(&r);
    }
}

static double peak_of_run(const char *flags) {
    Ran r = snug_run("train --model %s --data %s --out %s --overwrite --seq 48 --global-batch 8 --steps 2 --threads 1 "
                     "%s",
                     test_path("m"), test_path("rows.jsonl"), test_path("o"), flags);
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    double bytes = json_number_value(json_object_get(j, "process_peak_bytes"));
    json_decref(j);
    ran_free(&r);
    return bytes;
}

/* The binary, by which a log knows who wrote it, has tens of megabytes with its libraries linked in. */
TEST(a_step_log_does_not_hold_the_program_in_memory) {
    if (test_sanitized()) {
        test_skip("the sanitizers' own memory is in no command's plan");
        return;
    }
    snug_make_job((SnugJob){2, 32, 48});
    double without = peak_of_run(""), with = peak_of_run("--step-log");
    if (!EXPECT(without > 0 && with > 0 && with - without < 4e6)) test_note("    %.0f, with a log %.0f", without, with);
}

TEST(replayed_weights_are_those_of_the_run_bit_for_bit) {
    static const struct {
        const char *what, *flags, *file;
    } table[] = {
        {"sgd", "--optimizer sgd --clip 0 --weight-decay 0", "model/model.safetensors"},
        {"sgd with momentum", "--optimizer sgd --momentum 0.9 --schedule linear --warmup-steps 2",
         "model/model.safetensors"},
        {"adamw", "--micro-batch 2", "model/model.safetensors"},
        {"adamw in bf16, rounded at random", "--precision bf16 --micro-batch 2 --accum 4", "model/model.safetensors"},
        {"adamw, fp32 twins", "--precision bf16 --master fp32", "model/model.safetensors"},
        {"adapters with dropout", "--mode lora --lora-rank 4 --lora-dropout 0.1",
         "adapter/adapter_model.safetensors"},
    };
    snug_make_job((SnugJob){2, 32, 48});
    int n = (int)(sizeof table / sizeof *table);
    for (int i = 0; i < n; i += test_brief() ? 3 : 1) {
        char flags[300];
        snprintf(flags, sizeof flags, "--steps 9 --save-steps 3 --overwrite %s", table[i].flags);
        if (must_train("o", flags)) expect_replayed("o", table[i].what, table[i].file, 9);
    }
}

TEST(a_replayed_update_is_the_difference_of_two_states_to_the_bit) {
    LoggedRun l;
    WalkRate rate;
    Err e = {0};
    char before[600], after[600];
    snug_make_job((SnugJob){2, 32, 48});
    if (!must_train("o", "--steps 6 --save-steps 1 --optimizer sgd --momentum 0.5")) return;
    snprintf(before, sizeof before, "%s/checkpoint-4", test_path("o"));
    snprintf(after, sizeof after, "%s/checkpoint-5", test_path("o"));
    if (logged_run_open(&l, "o", "fisher")) {
        float *a = logged_run_vector(&l, before), *b = logged_run_vector(&l, after), *u = MEM_NEW(float, l.walk.n);
        l.run.replay.astray = true;
        EXPECT_OK(l.walk.seek(l.walk.user, 4, &e));
        EXPECT_OK(l.walk.advance(l.walk.user, u, NULL, &rate, &e));
        int64_t same = 0, moved = 0;
        for (int64_t i = 0; i < l.walk.n; i++) same += u[i] == b[i] - a[i], moved += u[i] != 0;
        EXPECT(same == l.walk.n && moved > l.walk.n / 2); /* never all zero */
        mem_free(a), mem_free(b), mem_free(u);
    }
    logged_run_close(&l);
}

TEST(a_resumed_run_goes_on_in_its_log) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must_train("o", "--steps 6 --save-steps 3")) return;
    Ran r = train("o", "--steps 9 --save-steps 3 --schedule-steps 6 --resume checkpoint-3"); /* lines beyond it go */
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    expect_replayed("o", "resumed", "model/model.safetensors", 9);
    r = train("o", "--steps 12 --save-steps 3 --schedule-steps 6 --resume --micro-batch 1");
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "micro-batch"));
    ran_free(&r);
}

static void expect_killed_goes_on(const char *flags) {
    char words[2000];
    snprintf(words, sizeof words, TRAIN "--steps 300 --save-steps 3 --step-log --step-log-stride 4 --overwrite %s",
             test_path("m"), test_path("rows.jsonl"), test_path("o"), flags);
    pid_t pid = world_start("k", world_binary(), NULL, words);
    EXPECT(world_says("k", "checkpoint-6 "));
    EXPECT(kill(pid, SIGKILL) == 0 && world_wait(pid) == 128 + SIGKILL);
    Ran r = snug_run("train --config %s/config.yaml --resume --steps 12 --schedule-steps 300", test_path("o"));
    bool stands_beyond = r.code == 2; /* it was quick: the run is further than that */
    if (!EXPECT(r.code == 0 || stands_beyond)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    if (stands_beyond) r = snug_run("train --config %s/config.yaml --resume", test_path("o"));
    if (stands_beyond && !EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    if (stands_beyond) ran_free(&r);
    expect_replayed("o", "killed and resumed", "model/model.safetensors", 12);
}

TEST(a_killed_run_leaves_a_log_to_go_on_with) {
    snug_make_job((SnugJob){2, 32, 48});
    expect_killed_goes_on("");
    expect_killed_goes_on("--step-log-states copied --step-log-updates int8"); /* jobs wait to be written then */
}

/* ---- refusals ---- */

static void edit(const char *path, const char *from, const char *to) {
    Str text = {0}, changed = {0};
    EXPECT(file_read(path, &text, 0, NULL));
    char *at = strstr(text.data, from);
    if (!EXPECT(at)) return;
    str_add_bytes(&changed, text.data, at - text.data);
    str_add(&changed, to);
    str_add(&changed, at + strlen(from));
    EXPECT(file_write_all(path, changed.data, changed.len, NULL));
    str_free(&text);
    str_free(&changed);
}

static void expect_refused(const char *says) {
    Ran r = snug_run("unlearn --run %s --method replay --at 3 --out %s", test_path("o"), test_path("r"));
    if (!EXPECT(r.code == 1 && strstr(str_text(&r.err), says)))
        test_note("    wanted '%s', got %d: %s", says, r.code, str_text(&r.err));
    EXPECT(!file_exists(test_path("r")));
    ran_free(&r);
}

static char log_path[600];

static bool restore(const Str *log) { return EXPECT(file_write_all(log_path, log->data, log->len, NULL)); }

TEST(a_log_that_was_edited_cut_short_or_is_anothers_is_refused) {
    Str log = {0};
    snug_make_job((SnugJob){2, 32, 48});
    if (!must_train("o", "--steps 6 --optimizer sgd --clip 0")) return;
    snprintf(log_path, sizeof log_path, "%s/step-log/steps.jsonl", test_path("o"));
    EXPECT(file_read(log_path, &log, 0, NULL));

    edit(log_path, "\"samples\":[", "\"samples\":[1,");
    expect_refused("hash chain");
    restore(&log);
    char *line = strstr(log.data, "{\"step\":3"), *next = strchr(line, '\n') + 1;
    Str without = {0}; /* a line is taken out */
    str_add_bytes(&without, log.data, line - log.data);
    str_add(&without, next);
    EXPECT(file_write_all(log_path, without.data, without.len, NULL));
    expect_refused("hash chain");
    restore(&log);
    EXPECT(truncate(log_path, line - log.data) == 0);
    expect_refused("is cut short");
    restore(&log);
    EXPECT(truncate(log_path, line + 20 - log.data) == 0); /* in the middle of a line, as by a kill */
    expect_refused("is cut short");
    restore(&log);

    if (must_train("p", "--steps 6 --optimizer sgd --clip 0 --seed 7")) {
        char other[600];
        snprintf(other, sizeof other, "%s/step-log/steps.jsonl", test_path("p"));
        EXPECT(file_copy(other, log_path, NULL));
        expect_refused("belongs to another run: seed is 7 there, 42 here");
    }
    restore(&log);
    edit(test_path("rows.jsonl"), "{\"ids\":[", "{\"ids\":[5,");
    expect_refused("data is");
    str_free(&log);
    str_free(&without);
}

/* The log names the binary that wrote it by its hash, so a byte behind its end makes another one. */
TEST(a_log_of_another_build_says_how_to_go_on) {
    char line[900];
    const char *other = test_path("other-snug");
    snug_make_job((SnugJob){2, 32, 48});
    if (!EXPECT(file_copy(world_binary(), other, NULL)) || !EXPECT(chmod(other, 0755) == 0)) return;
    FILE *f = fopen(other, "a");
    EXPECT(f && fputc(0, f) == 0 && fclose(f) == 0);
    snprintf(line, sizeof line, TRAIN "--step-log --steps 3 --optimizer sgd --clip 0", test_path("m"),
             test_path("rows.jsonl"), test_path("o"));
    if (!EXPECT(world_run("k", other, NULL, line) == 0)) return;
    expect_refused("Give --other-binary");
    Ran r = snug_run("unlearn --run %s --method replay --at 3 --out %s --other-binary", test_path("o"), test_path("r"));
    EXPECT(r.code == 0);
    ran_free(&r);
}

TEST(a_state_of_the_log_that_was_changed_is_refused) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must_train("o", "--steps 6 --step-log-stride 2 --optimizer sgd --clip 0")) return;
    char path[600];
    snprintf(path, sizeof path, "%s/step-log/state-2/model.safetensors", test_path("o"));
    Str text = {0};
    EXPECT(file_read(path, &text, 0, NULL));
    text.data[text.len - 3] ^= 1;
    EXPECT(file_write_all(path, text.data, text.len, NULL));
    str_free(&text);
    expect_refused("are not those that were logged");
}

/* Also where no replay of the request would pass it: that of step 3 begins at state 2. */
TEST(a_state_of_the_log_that_is_cut_short_or_lost_is_refused_by_name_at_the_beginning) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must_train("o", "--steps 6 --step-log-stride 2 --optimizer sgd --clip 0")) return;
    static const char *const files[] = {"state-6/model.safetensors", "state-4/optimizer.safetensors"};
    for (int i = 0; i < COUNT_OF(files); i++) {
        char path[600], away[700];
        snprintf(path, sizeof path, "%s/step-log/%s", test_path("o"), files[i]);
        snprintf(away, sizeof away, "%s-away", path);
        Str text = {0};
        EXPECT(file_read(path, &text, 0, NULL));
        EXPECT(truncate(path, text.len - 1) == 0);
        expect_refused("a state that it names cannot be used");
        expect_refused(files[i]);
        EXPECT(rename(path, away) == 0);
        expect_refused("a state that it names cannot be used");
        EXPECT(file_write_all(path, text.data, text.len, NULL));
        str_free(&text);
    }
    char other[600], path[600];
    snprintf(other, sizeof other, "%s/step-log/state-2/optimizer.safetensors", test_path("o"));
    snprintf(path, sizeof path, "%s/step-log/state-6/model.safetensors", test_path("o"));
    EXPECT(file_copy(other, path, NULL));
    expect_refused("and the states before it");
}

TEST(a_step_log_that_has_no_room_is_refused_before_anything_is_written) {
    snug_make_job((SnugJob){2, 32, 48});
    Ran r = snug_run(TRAIN "--step-log %s --step-log-stride 1 --steps 1000000 --save-minutes 0", test_path("m"),
                     test_path("rows.jsonl"), test_path("o"), test_path("log"));
    if (!EXPECT(r.code == 3 && strstr(str_text(&r.err), "the step log may take")))
        test_note("%d: %s", r.code, str_text(&r.err));
    EXPECT(!file_exists(test_path("o")) && !file_exists(test_path("log")));
    ran_free(&r);
    r = snug_run(TRAIN "--step-log --pack on --steps 2", test_path("m"), test_path("rows.jsonl"), test_path("o"));
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "--pack update or off"));
    EXPECT(!file_exists(test_path("o")));
    ran_free(&r);
}
