/* test_disk.c - the disk is the trouble: it is full, a file ends before its time, a folder may not be written, or
 * is gone.
 *
 * A process of the fault flavour stops just before a chosen call; the test then changes the disk and lets it go
 * on. */
#include <signal.h>
#include <stdlib.h>
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

/* Exit 1 with a last word that names `part`, and nothing half-done under a final name. */
static bool expect_refused(const char *folder, int code, const char *part, const char *before) {
    Str err = {0}, why = {0};
    world_said(NULL, &err, folder);
    const char *message = strstr(str_text(&err), "snug: ");
    bool ok = code == 1 && message && strstr(message, part) && !strstr(str_text(&err), "Sanitizer") &&
              world_check_tree(&why, world_path("%s/out", folder), world_path("full/out"), before, false);
    if (!EXPECT(ok))
        test_note("    exit %d, wanted '%s'; %s\n%s", code, part, str_text(&why),
                  message ? message : str_text(&err));
    str_free(&err), str_free(&why);
    return ok;
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

/* ---- full ---- */

TEST(a_limit_on_file_sizes_is_a_clear_refusal) {
    const char *binary;
    static const char script[] = "set -o pipefail; n=$1; shift; (ulimit -f $n; exec \"$@\" 2>&1) | cat >&2\n";
    static const struct {
        int kib;
        const char *part;
    } limit[] = {{1, "out/"}, /* config.yaml or plan.json, by how many options there are */
                 {2, "plan.json"},
                 {4, ".safetensors"},
                 {8, "model.safetensors"},
                 {13, "optimizer.safetensors"},
                 {20, "optimizer.safetensors"}};
    if (!make_world(&binary)) return;
    file_write_all(world_path("limited.sh"), script, (int64_t)strlen(script), NULL);
    for (int i = 0; i < 6; i++) {
        char command[1000];
        snprintf(command, sizeof command, "../limited.sh %d \"%s\" " RUN, limit[i].kib, binary);
        file_remove_tree(world_path("w"), NULL);
        if (!expect_refused("w", world_run("w", "/bin/bash", NULL, command), limit[i].part, NULL)) continue;
        expect_resumes("w", binary);
    }
}

/* In a name space of its own the test may mount: a disk of `kib`, later a larger one, its content copied out. */
static const char full_disk[] =
    "mkdir -p out after && mount -t tmpfs -o size=$1k none out || exit 77\n"
    "shift; \"$@\"; first=$?; cp -r out after/first\n"
    "mount -o remount,size=16m out || exit 77\n"
    "ls out | grep -q '^checkpoint-[0-9]*$' && resume=--resume\n"
    "\"$@\" $resume; second=$?; cp -r out after/second\n"
    "echo $first $second\n";

TEST(a_full_disk_while_saving_leaves_what_was_saved) {
    const char *binary;
    if (!make_world(&binary)) return;
    if (system("unshare -rm true 2>/dev/null")) {
        test_skip("this system lets nobody mount a small disk (unshare -rm)");
        return;
    }
    file_write_all(world_path("disk.sh"), full_disk, (int64_t)strlen(full_disk), NULL);
    int failed = 0;
    for (int kib = 16; kib <= 256 && failed < 6; kib += 24) {
        char command[1000];
        Str out = {0}, err = {0}, why = {0};
        snprintf(command, sizeof command, "-rm sh ../disk.sh %d \"%s\" " RUN, kib, binary);
        file_remove_tree(world_path("w"), NULL);
        int code = world_run("w", "/usr/bin/env unshare", NULL, command);
        if (code == 77) {
            test_skip("this system lets nobody mount a small disk");
            return;
        }
        world_said(&out, &err, "w");
        const char *codes = strstr(str_text(&out), "}\n") ? strrchr(str_text(&out), '}') + 2 : str_text(&out);
        failed += codes[0] == '1';
        bool ok =
            code == 0 && (!strcmp(codes, "1 0\n") || !strcmp(codes, "0 0\n")) &&
            (codes[0] == '0' || strstr(str_text(&err), "No space left")) &&
            world_check_tree(&why, world_path("w/after/first"), world_path("full/out"), NULL, codes[0] == '0') &&
            world_check_tree(&why, world_path("w/after/second"), world_path("full/out"), NULL, true);
        if (!EXPECT(ok))
            test_note("    a disk of %d KiB: exit %d, codes '%s'; %s\n%s", kib, code, codes, str_text(&why),
                      str_text(&err));
        str_free(&out), str_free(&err), str_free(&why);
    }
    EXPECT(failed >= 3); /* small disks were too small */
}

/* ---- cut short while being read ---- */

/* Every read of a file of the folder "m": the file loses its second half just before. */
static void cut_at_every_read(const char *binary, const char *command) {
    int cut = 0;
    for (int n = 1; n < 400; n++) {
        char call[40];
        pid_t pid;
        Str err = {0};
        world_copy_tree(world_path("model"), world_path("w/m"));
        world_copy_tree(world_path("full/out"), world_path("w/out"));
        snprintf(call, sizeof call, "read:%d", n);
        if (!run_to(&pid, "w", binary, command, call)) break;
        world_said(NULL, &err, "w");
        const char *at = strstr(str_text(&err), " stops: ");
        char path[300];
        snprintf(path, sizeof path, "%.*s", at ? (int)strcspn(at + 8, "\n") : 0, at ? at + 8 : "");
        int64_t bytes = 0;
        bool ours = str_ends(path, ".safetensors") && file_size(world_path("w/%s", path), &bytes, NULL);
        if (ours) EXPECT(truncate(world_path("w/%s", path), bytes / 4) == 0);
        int code = let_go_on(pid);
        world_said(NULL, &err, "w");
        const char *message = strstr(str_text(&err), "snug: "),
                   *name = strrchr(path, '/') ? strrchr(path, '/') : path;
        bool ok = ours ? code == 1 && message && strstr(message, name) : code == 0;
        cut += ours;
        if (!EXPECT(ok)) test_note("    read %d of %s: exit %d\n%s", n, path, code, message ? message : "");
        str_free(&err);
        if (!ok) break;
    }
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

TEST(a_run_folder_made_read_only_is_named_and_the_last_checkpoint_stands) {
    const char *binary;
    pid_t pid;
    if (!make_world(&binary) || !EXPECT(run_to(&pid, "w", binary, RUN, "make:4")))
        return; /* before the second checkpoint */
    EXPECT(file_exists(world_path("w/out/checkpoint-2")) && !file_exists(world_path("w/out/checkpoint-4")));
    EXPECT(chmod(world_path("w/out"), 0555) == 0);
    int code = let_go_on(pid);
    EXPECT(chmod(world_path("w/out"), 0755) == 0);
    if (code == 0) {
        test_skip("this user writes into read-only folders");
        return;
    }
    expect_refused("w", code, "checkpoint-4", NULL);
    expect_resumes("w", binary);
}

TEST(a_run_folder_replaced_by_a_file_is_named) {
    const char *binary;
    pid_t pid;
    if (!make_world(&binary) || !EXPECT(run_to(&pid, "w", binary, RUN, "make:4"))) return;
    EXPECT(rename(world_path("w/out"), world_path("w/away")) == 0);
    file_write_all(world_path("w/out"), "", 0, NULL);
    int code = let_go_on(pid);
    EXPECT(file_remove_tree(world_path("w/out"), NULL) && rename(world_path("w/away"), world_path("w/out")) == 0);
    expect_refused("w", code, "out", NULL);
    expect_resumes("w", binary);
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
