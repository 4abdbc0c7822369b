/* test_disk.c - the disk is the trouble: it is full, a file ends before its time, a folder may not be written, or
 * is gone.
 *
 * A process of the fault flavour stops just before a chosen call; the test then changes the disk and lets it go
 * on. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"
#include "tests/world.h"

#define RUN                                                                                                  \
    "train --model ../model --data ../rows.jsonl --out out --seq 16 --steps 5 --save-steps 2 --log-steps 1 " \
    "--threads 1 "                                                                                           \
    "--budget 1GiB --micro-batch 2"

static bool make_world(const char **binary) {
    *binary = world_faulty();
    return *binary && world_make(*binary) && EXPECT(world_run("full", *binary, NULL, RUN) == 0);
}

/* The run goes on, undisturbed, to the same end. */
static void expect_resumes(const char *folder, const char *binary) {
    Str err = {0}, why = {0};
    bool resume = world_has_checkpoint(world_path("%s/out", folder));
    bool ok = world_run(folder, binary, NULL, resume ? RUN " --resume" : RUN) == 0 &&
              world_check_tree(&why, world_path("%s/out", folder), world_path("full/out"), NULL, true);
    world_said(NULL, &err, folder);
    if (!EXPECT(ok && !world_temporaries(world_path("%s/out", folder))))
        test_note("    %s\n%s", str_text(&why), str_text(&err));
    str_free(&err), str_free(&why);
}

/* Runs until the process stops before that call; false: it never came to it. */
static bool run_to(pid_t *pid, const char *folder, const char *binary, const char *command, const char *call) {
    char arguments[1000];
    snprintf(arguments, sizeof arguments, "%s --fault %s:stop", command, call);
    *pid = world_start(folder, binary, NULL, arguments);
    return world_wait(*pid) == 256;
}

static int let_go_on(pid_t pid) {
    kill(pid, SIGCONT);
    return world_wait(pid);
}

/* ---- too small from the beginning ---- */

/* Refused before anything is loaded: exit 3, in bytes, and nothing of the run on disk. */
static void expect_no_room(const char *folder, int code, const char *part) {
    Str err = {0};
    world_said(NULL, &err, folder);
    const char *message = strstr(str_text(&err), "snug: does not fit");
    bool ok = code == 3 && message && strstr(message, part) && strstr(message, "bytes) are missing") &&
              strstr(message, "Nothing was loaded") && !strstr(str_text(&err), "step 1/");
    if (!EXPECT(ok)) test_note("    exit %d\n%s", code, str_text(&err));
    str_free(&err);
}

TEST(a_limit_on_file_sizes_is_refused_before_the_first_step) {
    const char *binary;
    static const char script[] = "set -o pipefail; n=$1; shift; (ulimit -f $n; exec \"$@\" 2>&1) | cat >&2\n";
    if (!make_world(&binary)) return;
    file_write_all(world_path("limited.sh"), script, (int64_t)strlen(script), NULL);
    for (int kib = 1; kib <= 21; kib += 4) {
        char command[1000];
        snprintf(command, sizeof command, "../limited.sh %d \"%s\" " RUN, kib, binary);
        file_remove_tree(world_path("w"), NULL);
        expect_no_room("w", world_run("w", "/bin/bash", NULL, command), "ulimit -f");
        EXPECT(!file_exists(world_path("w/out")));
    }
    char command[1000];
    snprintf(command, sizeof command, "../limited.sh 24 \"%s\" " RUN, binary); /* the largest file has 22,160 bytes */
    EXPECT(world_run("w", "/bin/bash", NULL, command) == 0);
}

/* In a name space of its own the test may mount: a disk of `bytes`, its content copied out. */
static const char small_disk[] =
    "mkdir -p out after && mount -t tmpfs -o size=$1 none out || exit 77\n"
    "shift; \"$@\"; code=$?; cp -r out after/first; exit $code\n";

static bool may_mount(void) {
    if (!system("unshare -rm mount -t tmpfs none /mnt 2>/dev/null")) return true;
    test_skip("this system lets nobody mount a small disk (unshare -rm)");
    return false;
}

static int run_on_disk(const char *binary, long long bytes, const char *arguments) {
    char command[1200];
    snprintf(command, sizeof command, "-rm sh ../disk.sh %lld \"%s\" %s", bytes, binary, arguments);
    file_remove_tree(world_path("w"), NULL);
    return world_run("w", "/usr/bin/env unshare", NULL, command);
}

static long long number_behind(const char *text, const char *mark) { /* with commas */
    const char *at = strstr(text, mark);
    long long n = 0;
    for (at = at ? at + strlen(mark) : ""; *at == ',' || (*at >= '0' && *at <= '9'); at++)
        if (*at != ',') n = 10 * n + (*at - '0');
    return n;
}

/* What is asked for is enough, and less is refused before the first step: no run ends in "No space left". */
TEST(a_small_disk_is_refused_before_the_first_step_and_what_is_asked_for_is_enough) {
    static const char *const kinds[] = {RUN, RUN " --mode lora --save-steps 1", RUN " --save-steps 0",
                                        RUN " --save-steps 1 --save-total-limit 2 --save-minutes 0.0001",
                                        RUN
                                        " --save-steps 3 --save-minutes 0.0001 --val-split 0.25 --eval-steps 2"};
    const char *binary;
    if (!make_world(&binary) || !may_mount()) return;
    file_write_all(world_path("disk.sh"), small_disk, (int64_t)strlen(small_disk), NULL);
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        Str err = {0};
        char **names;
        int64_t n = -1;
        expect_no_room("w", run_on_disk(binary, 65536, kinds[i]), "does not fit the disk");
        EXPECT(file_list(world_path("w/after/first"), &names, &n, NULL) && n == 0);
        world_said(NULL, &err, "w");
        long long need = number_behind(str_text(&err), "may write ");
        int code = run_on_disk(binary, (need + 4095) / 4096 * 4096, kinds[i]);
        world_said(NULL, &err, "w");
        if (!EXPECT(need > 65536 && code == 0 && !strstr(str_text(&err), "tries again")))
            test_note("    %s on %lld bytes: exit %d\n%s", kinds[i], need, code, str_text(&err));
        str_free(&err);
    }
}

TEST(a_model_that_the_disk_cannot_hold_is_not_begun) {
    static const char *const makes[] = {
        "init --model ../model --out out/m",
        "init --model qwen2.5-72b --out out/deeper/m",
        "convert --from dense ../model --out out/m",
        "merge --model ../model --adapter ../lora/out/adapter --out out/m",
        "quantize --model ../model --quantize nf4 --out out/m",
        "convert --from llama2c ../tiny.bin --out out/m",
    };
    const char *binary;
    if (!make_world(&binary) || !may_mount()) return;
    file_write_all(world_path("disk.sh"), small_disk, (int64_t)strlen(small_disk), NULL);
    EXPECT(world_run("lora", binary, NULL, RUN " --mode lora --lora-rank 4") == 0);
    for (int i = 0; i < COUNT_OF(makes); i++) {
        char **names;
        int64_t n = -1;
        expect_no_room("w", run_on_disk(binary, 4096, makes[i]), "does not fit the disk: the weights take");
        EXPECT(file_list(world_path("w/after/first"), &names, &n, NULL) && n == 0);
    }
}

/* ---- becomes too small ---- */

/* The disk fills up while the run stands before its second checkpoint; $1: what happens then. */
static const char filled_disk[] =
    "how=$1; shift; mkdir -p out after spare && mount -t tmpfs -o size=1m none out || exit 77\n"
    "\"$@\" & run=$!\n"
    "until grep -q '^State:.*T' /proc/$run/status; do sleep 0.05; done\n"
    "cat /dev/zero >out/filler 2>/dev/null\n"
    "kill -CONT $run\n"
    "if [ $how != spare ]; then until grep -q 'tries again' ../w.err; do sleep 0.05; done; fi\n"
    "[ $how = room ] && rm out/filler\n"
    "[ $how = leave ] && kill -INT $run\n"
    "wait $run; code=$?; rm -f out/filler; cp -r out after/first; exit $code\n";

static int run_on_filled(const char *binary, const char *how, const char *more) {
    char command[1200];
    snprintf(command, sizeof command, "-rm sh ../filled.sh %s \"%s\" " RUN " %s --fault make:4:stop", how, binary,
             more);
    file_remove_tree(world_path("w"), NULL);
    return world_run("w", "/usr/bin/env unshare", NULL, command);
}

static bool make_filled(const char **binary) {
    if (!make_world(binary) || !may_mount()) return false;
    file_write_all(world_path("filled.sh"), filled_disk, (int64_t)strlen(filled_disk), NULL);
    return true;
}

TEST(a_disk_that_fills_up_later_is_waited_for_and_nothing_is_lost) {
    const char *binary;
    Str why = {0}, err = {0};
    if (!make_filled(&binary)) return;
    int code = run_on_filled(binary, "room", "");
    bool ok = code == 0 && world_check_tree(&why, world_path("w/after/first"), world_path("full/out"), NULL, true);
    world_said(NULL, &err, "w");
    if (!EXPECT(ok && strstr(str_text(&err), "No space left")))
        test_note("    exit %d, %s\n%s", code, str_text(&why), str_text(&err));
    str_free(&why), str_free(&err);
}

TEST(a_run_that_waits_for_room_is_ended_by_a_signal_and_its_last_checkpoint_stands) {
    const char *binary;
    Str why = {0}, err = {0};
    if (!make_filled(&binary)) return;
    int code = run_on_filled(binary, "leave", "");
    world_said(NULL, &err, "w");
    bool ok =
        code == 1 && world_check_tree(&why, world_path("w/after/first"), world_path("full/out"), NULL, false) &&
        strstr(str_text(&err), "checkpoint-2 stands") && file_is_dir(world_path("w/after/first/checkpoint-2"));
    if (!EXPECT(ok)) test_note("    exit %d, %s\n%s", code, str_text(&why), str_text(&err));
    EXPECT(world_copy_tree(world_path("w/after/first"), world_path("w/out")));
    expect_resumes("w", binary);
    str_free(&why), str_free(&err);
}

TEST(a_run_without_room_goes_on_in_its_spare_folder) {
    const char *binary;
    Str out = {0}, err = {0};
    if (!make_filled(&binary)) return;
    int code = run_on_filled(binary, "spare", "--spare-dir spare");
    world_said(&out, &err, "w");
    bool ok = code == 0 && strstr(str_text(&out), "\"result\":\"spare/out/model\"") &&
              file_is_dir(world_path("w/spare/out/checkpoint-4")) &&
              world_same_file(world_path("w/spare/out/model/model.safetensors"),
                              world_path("full/out/model/model.safetensors"));
    if (!EXPECT(ok)) test_note("    exit %d\n%s", code, str_text(&err));
    code = world_run("w", binary, NULL,
                     "train --model ../model --data ../rows.jsonl --out again --seq 16 --steps 5 --log-steps 1 "
                     "--threads 1 --budget 1GiB --micro-batch 2 --resume spare/out/checkpoint-4");
    EXPECT(code == 0 && world_same_file(world_path("w/again/model/model.safetensors"),
                                        world_path("full/out/model/model.safetensors")));
    str_free(&out), str_free(&err);
}

static int checkpoints_in(const char *folder) {
    char **names;
    int64_t n = 0;
    int found = 0;
    if (!file_list(folder, &names, &n, NULL)) return -1;
    for (int64_t i = 0; i < n; i++) {
        found += !strncmp(names[i], "checkpoint-", 11);
        mem_free(names[i]);
    }
    mem_free(names);
    return found;
}

TEST(the_spare_folder_keeps_as_many_checkpoints_as_the_run_does) {
    const char *binary;
    Str err = {0};
    if (!make_filled(&binary)) return;
    int code = run_on_filled(binary, "spare", "--save-steps 1 --save-total-limit 1 --spare-dir spare");
    world_said(NULL, &err, "w");
    if (!EXPECT(code == 0 && checkpoints_in(world_path("w/spare/out")) == 1 &&
                file_is_dir(world_path("w/spare/out/checkpoint-5"))))
        test_note("    exit %d, %d checkpoints\n%s", code, checkpoints_in(world_path("w/spare/out")), str_text(&err));
    str_free(&err);
}

/* A limit that a running process is given, and relieved of. What it says goes through a pipe, which has no such
 * limit. */
TEST(a_limit_on_file_sizes_that_comes_later_is_waited_for) {
    const char *binary;
    char command[1000];
    struct rlimit all;
    Str why = {0};
    if (!make_world(&binary)) return;
    snprintf(command, sizeof command, "-c 'exec \"%s\" " RUN " --fault make:4:stop 2> >(cat >&2)'", binary);
    pid_t pid = world_start("w", "/bin/bash", NULL, command);
    if (!EXPECT(world_wait(pid) == 256 && getrlimit(RLIMIT_FSIZE, &all) == 0)) return;
    EXPECT(prlimit(pid, RLIMIT_FSIZE, &(struct rlimit){2048, all.rlim_max}, NULL) == 0);
    kill(pid, SIGCONT);
    EXPECT(world_says("w", "(ulimit -f). Raise that limit. The run keeps its state and tries again"));
    EXPECT(prlimit(pid, RLIMIT_FSIZE, &all, NULL) == 0);
    EXPECT(world_wait(pid) == 0 &&
           world_check_tree(&why, world_path("w/out"), world_path("full/out"), NULL, true));
    str_free(&why);
}

/* ---- cut short while being read ---- */

/* Before a read of weights in the folder "m" the file loses most of itself; true: it was such a read. */
static bool cut_at_read(const char *binary, const char *command, int n) {
    char call[40], path[300];
    pid_t pid;
    Str err = {0};
    int64_t bytes = 0;
    world_copy_tree(world_path("model"), world_path("w/m"));
    world_copy_tree(world_path("full/out"), world_path("w/out"));
    snprintf(call, sizeof call, "read:%d", n);
    if (!EXPECT(run_to(&pid, "w", binary, command, call))) return false;
    world_said(NULL, &err, "w");
    const char *at = strstr(str_text(&err), " stops: ");
    snprintf(path, sizeof path, "%.*s", at ? (int)strcspn(at + 8, "\n") : 0, at ? at + 8 : "");
    bool ours = str_ends(path, ".safetensors") && file_size(world_path("w/%s", path), &bytes, NULL);
    if (ours) EXPECT(truncate(world_path("w/%s", path), bytes / 4) == 0);
    int code = let_go_on(pid);
    world_said(NULL, &err, "w");
    const char *message = strstr(str_text(&err), "snug: "), *name = strrchr(path, '/') ? strrchr(path, '/') : path;
    if (!EXPECT(ours ? code == 1 && message && strstr(message, name) : code == 0))
        test_note("    read %d of %s: exit %d\n%s", n, path, code, message ? message : "");
    str_free(&err);
    return ours;
}

/* At every read of weights that the command says it makes. */
static void cut_at_every_read(const char *binary, const char *command) {
    int cut = 0;
    char arguments[1000], *save = NULL;
    Str err = {0};
    world_copy_tree(world_path("model"), world_path("w/m"));
    world_copy_tree(world_path("full/out"), world_path("w/out"));
    snprintf(arguments, sizeof arguments, "%s --fault read:0:tell", command);
    EXPECT(world_run("w", binary, NULL, arguments) == 0);
    world_said(NULL, &err, "w");
    for (char *line = err.len ? strtok_r(err.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        int n;
        if (sscanf(line, "fault: read %d is: ", &n) == 1 && str_ends(line, ".safetensors"))
            cut += cut_at_read(binary, command, n);
    }
    str_free(&err);
    EXPECT(cut >= 3);
}

TEST(a_file_cut_short_while_it_is_read_is_named) {
    const char *binary;
    if (!make_world(&binary)) return;
    cut_at_every_read(binary, "eval --model m --data ../rows.jsonl --seq 16 --threads 1 --budget 1GiB");
    cut_at_every_read(binary,
                      "train --model m --data ../rows.jsonl --out out --seq 16 --steps 5 --save-steps 2 "
                      "--log-steps 1 --threads 1 "
                      "--budget 1GiB --micro-batch 2 --resume checkpoint-2");
}

/* ---- may not be written ---- */

/* The run says what it cannot write and tries again; put right, it goes on to the same end. */
static void expect_waits(pid_t pid, const char *part) {
    Str why = {0}, err = {0};
    kill(pid, SIGCONT);
    EXPECT(world_says("w", part) && world_says("w", "tries again"));
    EXPECT(chmod(world_path("w/out"), 0755) == 0 || true);
    if (file_exists(world_path("w/away")))
        EXPECT(file_remove_tree(world_path("w/out"), NULL) &&
               rename(world_path("w/away"), world_path("w/out")) == 0);
    int code = world_wait(pid);
    bool ok = code == 0 && world_check_tree(&why, world_path("w/out"), world_path("full/out"), NULL, true) &&
              !world_temporaries(world_path("w/out"));
    world_said(NULL, &err, "w");
    if (!EXPECT(ok)) test_note("    exit %d; %s\n%s", code, str_text(&why), str_text(&err));
    str_free(&why), str_free(&err);
}

TEST(a_run_folder_made_read_only_is_named_and_waited_for) {
    const char *binary;
    pid_t pid;
    if (!make_world(&binary) || !EXPECT(run_to(&pid, "w", binary, RUN, "make:4")))
        return; /* before the second checkpoint */
    EXPECT(file_exists(world_path("w/out/checkpoint-2")) && !file_exists(world_path("w/out/checkpoint-4")));
    EXPECT(chmod(world_path("w/out"), 0555) == 0);
    expect_waits(pid, "checkpoint-4");
}

TEST(a_run_folder_replaced_by_a_file_is_named_and_waited_for) {
    const char *binary;
    pid_t pid;
    if (!make_world(&binary) || !EXPECT(run_to(&pid, "w", binary, RUN, "make:4"))) return;
    EXPECT(rename(world_path("w/out"), world_path("w/away")) == 0);
    file_write_all(world_path("w/out"), "", 0, NULL);
    expect_waits(pid, "a folder was expected");
}

/* ---- gone ---- */

TEST(a_run_folder_that_is_removed_in_mid_run_is_made_again_or_named) {
    static const char *const calls[] = {"make:2",   "open:30",  "write:20", "write:60",
                                        "flush:14", "rename:6", "cut:1",    "open:70"};
    const char *binary;
    if (!make_world(&binary)) return;
    for (int i = 0; i < 8; i++) {
        pid_t pid;
        Str err = {0};
        file_remove_tree(world_path("w"), NULL);
        if (!EXPECT(run_to(&pid, "w", binary, RUN, calls[i]))) continue;
        EXPECT(file_remove_tree(world_path("w/out"), NULL));
        int code = let_go_on(pid);
        world_said(NULL, &err, "w");
        const char *message = strstr(str_text(&err), "snug: ");
        bool ok = code == 1 ? message && strstr(message, "out")
                            : code == 0 && world_same_file(world_path("w/out/model/model.safetensors"),
                                                           world_path("full/out/model/model.safetensors"));
        if (!EXPECT(ok)) test_note("    removed before %s: exit %d\n%s", calls[i], code, str_text(&err));
        str_free(&err);
    }
}
