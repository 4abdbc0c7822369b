/* test_saving.c - checkpoints made by the clock, what of them is kept and how large they are; runs that are
 * lengthened, shortened or asked to leave before and inside an update; what stands on a terminal and in a file
 * meanwhile. */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"
#include "tests/world.h"

#define IN "train --model ../model --data ../rows.jsonl --seq 16 --threads 1 --log-steps 1 --budget 1GiB " \
    "--global-batch 1 "

/* Runs in "w"; what it said is in *err. */
static bool ran(Str *err, const char *arguments) {
    bool ok = world_must("w", arguments);
    world_said(NULL, err, "w");
    return ok;
}

static bool has_checksum_of(const char *other) { /* the process that ran last in "w" */
    char now[24], then[24];
    bool same = world_checksum(now, "w") && world_checksum(then, other) && !strcmp(now, then);
    if (!same) test_note("    checksum %s against %s", now, then);
    return same;
}

/* The checkpoints of a run folder, "3 6 12". */
static const char *checkpoints(const char *folder) {
    static char text[200];
    int at = 0;
    text[0] = 0;
    for (int step = 0; step <= 2000; step++)
        if (file_is_dir(world_path("%s/checkpoint-%d", folder, step)))
            at += snprintf(text + at, sizeof text - (size_t)at, at ? " %d" : "%d", step);
    return text;
}

/* ---- by the clock ---- */

TEST(a_run_with_default_flags_that_is_killed_goes_on_from_a_checkpoint_made_by_the_clock) {
    Str err = {0};
    if (!world_make(world_binary()) ||
        !EXPECT(world_run("calm", world_binary(), NULL, IN "--steps 1500 --out out") == 0))
        return;
    EXPECT_STR(checkpoints("calm/out"), "1500");
    for (int kills = 0; kills < 3; kills++) { /* as after ten minutes, but sooner */
        pid_t pid = world_start("w", world_binary(), NULL,
                                kills ? IN "--steps 1500 --out out --save-minutes 0.0001 --resume"
                                      : IN "--steps 1500 --out out --save-minutes 0.0001");
        EXPECT(world_says("w", "saved out/checkpoint-"));
        kill(pid, SIGKILL);
        int code = world_wait(pid);
        EXPECT(code == 128 + SIGKILL || code == 0);
    }
    ran(&err, IN "--steps 1500 --out out --resume");
    EXPECT(has_checksum_of("calm"));
    EXPECT_STR(checkpoints("w/out"), "1500");
    str_free(&err);
}

TEST(of_the_checkpoints_made_by_the_clock_the_newest_stays) {
    static const struct {
        const char *flags, *stay;
    } runs[] = {{"--save-minutes 0.0000001", "12"},
                {"--save-minutes 0.0000001 --save-steps 5", "5 10 12"},
                {"--save-minutes 0.0000001 --save-steps 5 --save-total-limit 1", "10 12"},
                {"--save-minutes 0.0000001 --save-total-limit 3", "10 11 12"},
                {"--save-minutes 0 --save-steps 4", "4 8 12"},
                {"--save-minutes 0", "12"}};
    Str err = {0};
    if (!world_make(world_binary())) return;
    for (int i = 0; i < COUNT_OF(runs); i++) {
        char command[400];
        snprintf(command, sizeof command, IN "--steps 12 --out out --overwrite %s", runs[i].flags);
        if (ran(&err, command)) EXPECT_STR(checkpoints("w/out"), runs[i].stay);
    }
    ran(&err, IN "--steps 15 --out out --resume"); /* the last one of a shorter run gives way too */
    EXPECT_STR(checkpoints("w/out"), "15");
    str_free(&err);
}

static int64_t folder_bytes(const char *folder) {
    char **names;
    int64_t n, sum = 0, bytes;
    if (!EXPECT(file_list(folder, &names, &n, NULL))) return -1;
    for (int64_t i = 0; i < n; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        sum += file_size(path, &bytes, NULL) ? bytes : 0;
        mem_free(names[i]);
    }
    mem_free(names);
    return sum;
}

static int64_t of(const json_t *saving, const char *key) {
    return (int64_t)json_integer_value(json_object_get(saving, key));
}

/* To the byte: all but the trainer's state, whose log grows, and which is given as what it comes to at most. */
TEST(the_plan_says_what_a_checkpoint_and_the_result_take_to_the_byte) {
    static const char *const kinds[] = {"",
                                        "--precision bf16",
                                        "--master fp32 --precision bf16",
                                        "--moments 8bit",
                                        "--optimizer sgd",
                                        "--mode lora",
                                        "--mode lora --lora-targets q,v --adapter-dtype bf16",
                                        "--model ../words --data ../text.jsonl"};
    Str err = {0}, out = {0};
    if (!world_make(world_binary())) return;
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        char command[500];
        snprintf(command, sizeof command, IN "--steps 6 --out out --overwrite %s", kinds[i]);
        if (!ran(&err, command)) continue;
        json_t *plan = json_load_file(world_path("w/out/plan.json"), 0, NULL),
               *saving = json_object_get(plan, "saving");
        int64_t state = 0, whole = folder_bytes(world_path("w/out/checkpoint-6"));
        EXPECT(file_size(world_path("w/out/checkpoint-6/trainer_state.json"), &state, NULL));
        bool lora = strstr(kinds[i], "lora") != NULL;
        bool ok = of(saving, "result_bytes") == folder_bytes(world_path(lora ? "w/out/adapter" : "w/out/model")) &&
                  of(saving, "checkpoint_bytes") - of(saving, "state_bytes") == whole - state &&
                  of(saving, "state_bytes") >= state && of(saving, "state_bytes") < state + 8192 &&
                  of(saving, "kept") == 1 && of(saving, "disk_bytes") >= 2 * whole;
        if (!EXPECT(ok))
            test_note("    %s: planned %lld, %lld on disk, %lld of it state", kinds[i],
                      (long long)of(saving, "checkpoint_bytes"), (long long)whole, (long long)state);
        EXPECT(strstr(str_text(&err), "in out, kept: 1; saved every 10 minutes, and at the end"));
        snprintf(command, sizeof command,
                 "plan --json --model ../model --data ../rows.jsonl --seq 16 --threads 1 --log-steps 1 "
                 "--steps 6 %s",
                 kinds[i]);
        EXPECT(world_run("w", world_binary(), NULL, command) == 0);
        world_said(&out, NULL, "w");
        json_t *told = json_loads(str_text(&out), 0, NULL), *before = json_object_get(told, "saving");
        EXPECT(of(before, "result_bytes") == of(saving, "result_bytes") &&
               of(before, "optimizer_bytes") == of(saving, "optimizer_bytes"));
        json_decref(plan), json_decref(told);
    }
    str_free(&err), str_free(&out);
}

/* As many checkpoints as stand at one time while one is written: one too many would refuse disks that do. */
TEST(the_room_asked_for_is_that_of_the_checkpoints_that_stand_at_one_time) {
    static const struct {
        const char *flags;
        int64_t checkpoints;
    } cases[] = {
        {"", 2},
        {"--save-minutes 0", 1},
        {"--save-total-limit 2", 3},
        {"--save-steps 1 --save-total-limit 2", 3},
        {"--save-steps 3 --save-total-limit 1", 3}, /* kept, of the clock, the next of the clock or to be kept */
        {"--save-steps 3 --save-total-limit 1 --save-minutes 0", 2},
        {"--save-steps 3 --save-total-limit 2", 4},
        {"--save-steps 3 --save-total-limit 1 --val-split 0.1 --eval-steps 1 --save-best", 4},
    };
    Str out = {0};
    if (!world_make(world_binary())) return;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char command[400];
        snprintf(command, sizeof command, "plan --json --model tally --budget 1GiB --steps 16 --seq 64 %s",
                 cases[i].flags);
        EXPECT(world_run("w", world_binary(), NULL, command) == 0);
        world_said(&out, NULL, "w");
        json_t *told = json_loads(str_text(&out), 0, NULL), *saving = json_object_get(told, "saving");
        int64_t each = MAX2(of(saving, "checkpoint_bytes"), 1), room = of(saving, "disk_bytes");
        if (!EXPECT(room >= cases[i].checkpoints * each && room / each == cases[i].checkpoints))
            test_note("    %s: %.2f checkpoints", cases[i].flags, (double)room / (double)each);
        json_decref(told);
    }
    str_free(&out);
}

/* ---- longer and shorter ---- */

TEST(a_lengthened_run_is_the_longer_run_where_the_schedule_is_the_same) {
    static const struct {
        const char *first, *whole, *says;
    } cases[] = {
        {"--schedule constant --steps 5", "--schedule constant --steps 11",
         "lengthened from 5 to 11 steps: the learning rate is constant"},
        {"--schedule-steps 11 --steps 5", "--schedule-steps 11 --steps 11",
         "keeps its cosine schedule over 11 steps"},
        {"--schedule constant --epochs 1", "--schedule constant --epochs 3", "lengthened from 8 to 24 steps"},
        {"--schedule linear --schedule-steps 20 --warmup-ratio 0.2 --steps 6",
         "--schedule linear --schedule-steps 20 --warmup-ratio 0.2 --steps 9",
         "keeps its linear schedule over 20 steps"}};
    Str err = {0};
    if (!world_make(world_binary())) return;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char command[500];
        snprintf(command, sizeof command, IN "%s --out out --overwrite", cases[i].whole);
        EXPECT(world_run("whole", world_binary(), NULL, command) == 0);
        snprintf(command, sizeof command, IN "%s --out out --overwrite", cases[i].first);
        ran(&err, command);
        snprintf(command, sizeof command, IN "%s --out out --resume", cases[i].whole);
        ran(&err, command);
        if (!EXPECT(strstr(str_text(&err), cases[i].says) && has_checksum_of("whole")))
            test_note("    %s then %s\n%s", cases[i].first, cases[i].whole, str_text(&err));
    }
    str_free(&err);
}

TEST(a_lengthened_run_says_what_becomes_of_its_learning_rate) {
    Str err = {0};
    if (!world_make(world_binary()) || !ran(&err, IN "--steps 6 --out out --lr 1e-3")) return;
    ran(&err, "train --config out/config.yaml --resume --steps 12");
    EXPECT(strstr(str_text(&err),
                  "the run is lengthened from 6 to 12 steps: cosine now runs over 12 steps, so the rate of the "
                  "next step is 0.0005 and not 0 (--schedule-steps 6 keeps the old schedule)"));
    EXPECT(strstr(str_text(&err), "step 7/12") && strstr(str_text(&err), "lr 5.00e-04"));
    ran(&err, "train --config out/config.yaml --resume --epochs 2"); /* a flag beats the steps of the file */
    EXPECT(strstr(str_text(&err), "lengthened from 12 to 16 steps") && strstr(str_text(&err), "step 16/16"));
    ran(&err, "train --config out/config.yaml --resume --steps 20 --schedule-steps 16");
    EXPECT(strstr(str_text(&err), "keeps its cosine schedule over 16 steps") &&
           strstr(str_text(&err), "lr 0.00e+00"));
    str_free(&err);
}

TEST(adapters_that_go_on_upon_another_model_say_so) {
    Str err = {0};
    if (!world_make(world_binary()) || !ran(&err, IN "--mode lora --steps 2 --out out")) return;
    ran(&err, "train --config out/config.yaml --resume --steps 3");
    EXPECT(!strstr(str_text(&err), "were trained on"));
    EXPECT(world_copy_tree(world_path("model"), world_path("moved/model")) &&
           world_copy_tree(world_path("model"), world_path("other")));
    ran(&err, "train --config out/config.yaml --resume --steps 4 --model ../moved/model");
    EXPECT(!strstr(str_text(&err), "were trained on"));
    ran(&err, "train --config out/config.yaml --resume --steps 5 --model ../other");
    EXPECT(strstr(str_text(&err), "warning: --model ../other: the adapters of out/checkpoint-4 were trained on"));
    str_free(&err);
}

TEST(a_run_is_shortened_to_where_it_stands_at_most) {
    Str err = {0};
    if (!world_make(world_binary()) || !ran(&err, IN "--steps 9 --save-steps 3 --schedule constant --out out"))
        return;
    EXPECT(file_remove_tree(world_path("w/out/checkpoint-9"), NULL) &&
           file_remove_tree(world_path("w/out/model"), NULL));
    EXPECT(world_run("w", world_binary(), NULL, "train --config out/config.yaml --resume --steps 5") == 2);
    world_said(NULL, &err, "w");
    EXPECT(strstr(str_text(&err), "stands at step 6") && strstr(str_text(&err), "--steps 6 or more"));
    ran(&err, "train --config out/config.yaml --resume --steps 6"); /* ends here: the result is written */
    EXPECT(strstr(str_text(&err), "shortened from 9 to 6 steps") && file_is_dir(world_path("w/out/model")));
    EXPECT(world_same_file(world_path("w/out/model/model.safetensors"),
                           world_path("w/out/checkpoint-6/model.safetensors")));
    str_free(&err);
}

/* ---- curves ---- */

static int count_events(const char *folder) {
    char **names;
    int64_t n;
    int found = 0;
    if (!file_list(world_path("%s", folder), &names, &n, NULL)) return -1;
    for (int64_t i = 0; i < n; i++) {
        found += str_starts(names[i], "events.");
        mem_free(names[i]);
    }
    mem_free(names);
    return found;
}

TEST(curves_of_an_overwritten_run_go_with_it_and_a_resumed_run_adds_its_own) {
    Str err = {0};
    if (!world_make(world_binary()) || !ran(&err, IN "--steps 4 --save-steps 2 --out out")) return;
    EXPECT(count_events("w/out") == 1);
    file_write_all(world_path("w/out/events.out.tfevents.1.elsewhere"), "old", 3, NULL);
    file_write_all(world_path("w/out/notes.txt"), "mine", 4, NULL);
    ran(&err, IN "--steps 4 --save-steps 2 --out out --overwrite");
    EXPECT(count_events("w/out") == 1 && file_exists(world_path("w/out/notes.txt")));
    file_remove_tree(world_path("w/out/checkpoint-4"), NULL);
    ran(&err, IN "--steps 4 --save-steps 2 --out out --resume");
    EXPECT(count_events("w/out") == 2);
    file_remove_tree(world_path("w/out/checkpoint-2"),
                     NULL); /* a run that was killed before its first checkpoint */
    file_remove_tree(world_path("w/out/checkpoint-4"), NULL);
    file_remove_tree(world_path("w/out/model"), NULL);
    ran(&err, IN "--steps 4 --save-steps 2 --out out");
    EXPECT(count_events("w/out") == 1);
    str_free(&err);
}

/* ---- asked to leave ---- */

/* So many rows that an update of all of them lasts for a while. */
static void make_many_rows(void) {
    Str rows = {0}, many = {0};
    file_read(world_path("rows.jsonl"), &rows, 0, NULL);
    while (many.len < 16 << 20) str_add_bytes(&many, rows.data, rows.len);
    file_write_all(world_path("many.jsonl"), many.data, many.len, NULL);
    str_free(&rows), str_free(&many);
}

/* What leaves within a long update is answered in the middle of it. */
TEST(a_run_asked_to_leave_inside_an_update_leaves_before_its_end) {
    Str out = {0}, err = {0};
    if (!world_make(world_binary())) return;
    make_many_rows();
    pid_t pid = world_start("w", world_binary(), NULL,
                            IN "--data ../many.jsonl --steps 2 --global-batch 1000000 --pack off --out out");
    EXPECT(world_appears(world_path("w/out/metrics.jsonl")));
    world_sleep(0.1); /* the update takes sixty times as long where nothing else runs */
    kill(pid, SIGINT);
    EXPECT(world_wait(pid) == 0);
    world_said(&out, &err, "w");
    if (!EXPECT(strstr(str_text(&out), "\"steps\":0,") && strstr(str_text(&out), "\"stopped_by\":2") &&
                !strstr(str_text(&err), "step 1/2") && !world_has_checkpoint(world_path("w/out"))))
        test_note("    %s\n%s", str_text(&out), str_text(&err));
    ran(&err, IN "--steps 2 --out out"); /* nothing stands in its way */
    str_free(&out), str_free(&err);
}

static bool is_as_before(const Str *before) {
    Str now = {0};
    world_snapshot(&now, world_path("w"));
    bool same = !strcmp(str_text(before), str_text(&now));
    str_free(&now);
    return same;
}

/* Stopped at every second read before the first step, asked to leave, and let go: data, planning, weights,
 * checkpoint. */
TEST(a_run_asked_to_leave_before_its_first_step_leaves_at_once_and_writes_nothing) {
    Str out = {0}, err = {0}, before = {0};
    int asked = 0;
    const char *faulty = world_faulty();
    if (!faulty || !world_make(faulty) ||
        !EXPECT(world_run("w", faulty, NULL, IN "--steps 4 --save-steps 2 --out out") == 0))
        return;
    for (int resumes = 0; resumes < 2; resumes++) {
        str_clear(&before);
        world_snapshot(&before, world_path("w"));
        for (int n = 1; n < 400; n += 2) {
            char command[500];
            snprintf(command, sizeof command, IN "--steps 6 %s --fault read:%d:stop",
                     resumes ? "--out out --resume" : "--out new", n);
            pid_t pid = world_start("w", faulty, NULL, command);
            if (world_wait(pid) != 256) break;
            bool begun = !is_as_before(&before);
            kill(pid, SIGINT);
            kill(pid, SIGCONT);
            int code = world_wait(pid);
            if (begun) break; /* a read behind the first write */
            world_said(&out, &err, "w");
            asked++;
            bool ok = code == 0 && strstr(str_text(&out), "\"stopped_by\":2") &&
                      !strstr(str_text(&err), "step 5/6") && !strstr(str_text(&err), "step 1/6") &&
                      is_as_before(&before);
            if (!EXPECT(ok)) test_note("    %s: exit %d %s\n%s", command, code, str_text(&out), str_text(&err));
            if (!ok) break;
        }
        EXPECT(file_remove_tree(world_path("w/new"), NULL));
    }
    EXPECT(asked > 40);
    str_free(&out), str_free(&err), str_free(&before);
}

TEST(a_second_signal_ends_the_process_at_once) {
    const char *faulty = world_faulty();
    if (!faulty || !world_make(faulty)) return;
    pid_t pid = world_start("w", faulty, NULL, IN "--steps 4 --out out --fault read:20:stop");
    EXPECT(world_wait(pid) == 256);
    kill(pid, SIGINT);
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    int code = world_wait(pid);
    EXPECT(code == 128 + SIGINT || code == 128 + SIGTERM); /* whichever the system hands over second */
    EXPECT(!file_exists(world_path("w/out")));
}

/* ---- what is shown ---- */

/* Everything the command writes to a terminal of its own as standard error. */
static bool run_on_terminal(Str *to, int master, const char *arguments) { /* closes master */
    int code = -1;
    char command[1200], piece[4096];
    snprintf(command, sizeof command, "-c 'exec \"%s\" %s 2>%s'", world_binary(), arguments, ptsname(master));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY); /* held, so that the end of the process is no hang-up */
    pid_t pid = world_start("w", "/bin/sh", NULL, command);
    fcntl(master, F_SETFL, O_NONBLOCK);
    for (int over = 0; over < 2;) { /* once more after the end */
        ssize_t n = read(master, piece, sizeof piece);
        if (n > 0) str_add_bytes(to, piece, n);
        int status;
        if (n <= 0 && code < 0 && waitpid(pid, &status, WNOHANG) == pid) code = WEXITSTATUS(status);
        if (n <= 0 && code >= 0) over++;
        if (n <= 0) world_sleep(0.01);
    }
    close(slave);
    close(master);
    return EXPECT(code == 0);
}

TEST(a_terminal_shows_work_before_the_first_step_and_a_file_has_plain_lines) {
    Str shown = {0}, err = {0};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master) || !ptsname(master) || access(ptsname(master), F_OK)) {
        test_skip("there are no pseudo terminals");
        return;
    }
    if (!world_make(world_binary())) return;
    if (!run_on_terminal(&shown, master, IN "--steps 3 --out out --ahead on")) test_note("%s", str_text(&shown));
    const char *text = str_text(&shown), *first = strstr(text, "step 1/3");
    EXPECT(strstr(text, "\r\033[K[") && strstr(text, "reading and tokenising ../rows.jsonl") &&
           strstr(text, "loading ../model") && strstr(text, "warming up"));
    EXPECT(first && strstr(text, "loading ../model") < first && strstr(text, "warming up") < first);
    ran(&err, IN "--steps 3 --out out --overwrite --ahead on");
    EXPECT(!strchr(str_text(&err), '\r') && !strchr(str_text(&err), '\033'));
    str_free(&shown), str_free(&err);
}

TEST(a_quiet_run_says_only_warnings_and_its_log_has_everything) {
    Str out = {0}, err = {0}, log = {0};
    if (!world_make(world_binary())) return;
    ran(&err, IN "--steps 3 --out out --quiet");
    EXPECT_STR(str_text(&err), "");
    EXPECT(file_read(world_path("w/out/train.log"), &log, 0, NULL) &&
           strstr(str_text(&log), "  seq               16") && strstr(str_text(&log), "planned bytes") &&
           strstr(str_text(&log), "step 3/3"));
    EXPECT(world_run("w", world_binary(), NULL, "--quiet " IN "--steps 3 --warmup-steps 9 --run-name second") ==
           0);
    world_said(&out, &err, "w");
    EXPECT(str_starts(str_text(&err), "warning: --warmup-steps 9: ") && !strchr(str_text(&err), '\n')[1]);
    EXPECT(strstr(str_text(&out), "\"run_name\":\"second\"") && file_is_dir(world_path("w/runs/second/model")));
    EXPECT(world_run("w", world_binary(), NULL, "--version") == 0);
    world_said(&out, &err, "w");
    EXPECT(str_starts(str_text(&out), "snug ") && !err.len);
    str_free(&out), str_free(&err), str_free(&log);
}
