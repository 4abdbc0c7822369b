/* test_file.c - where a path lies, what a tree takes, files without a name; and work that can be interrupted. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/work.h"
#include "tests/test.h"

TEST(file_lies_within_a_folder_whatever_its_spelling) {
    Err e = {0};
    EXPECT_OK(file_make_dirs(test_path("a/b"), &e));
    EXPECT_OK(file_make_dirs(test_path("ab"), &e));
    EXPECT_OK(file_write_all(test_path("a/b/f"), "x", 1, &e));
    EXPECT(symlink(test_path("a/b"), test_path("link")) == 0);
    EXPECT(file_is_within(test_path("a/b/f"), test_path("a")) && file_is_within(test_path("a"), test_path("a/")));
    EXPECT(file_is_within(test_path("link/f"), test_path("a")));
    EXPECT(file_is_within(test_path("ab/../a/b"), test_path("a")));
    EXPECT(!file_is_within(test_path("ab"), test_path("a")) && !file_is_within(test_path("a"), test_path("a/b")));
    EXPECT(!file_is_within(test_path("a/none"), test_path("a")) && file_is_within(test_path("a"), "/"));
}

TEST(file_last_name_is_the_last_part_of_a_path) {
    EXPECT_STR(file_last_name("runs/a/model"), "model");
    EXPECT_STR(file_last_name("model"), "model");
    EXPECT_STR(file_last_name("runs/a/"), "runs/a/");
}

TEST(file_tree_counts_what_is_taken_on_disk) {
    Err e = {0};
    char text[10000];
    memset(text, 'x', sizeof text);
    EXPECT(file_tree_bytes(test_path("none")) == 0);
    EXPECT_OK(file_make_dirs(test_path("t/u"), &e));
    int64_t empty = file_tree_bytes(test_path("t"));
    EXPECT_OK(file_write_all(test_path("t/u/one"), text, sizeof text, &e));
    EXPECT_OK(file_write_all(test_path("t/two"), text, sizeof text, &e));
    int64_t taken = file_tree_bytes(test_path("t")) - empty;
    EXPECT(taken >= 20000 && taken <= 2 * 65536);
}

TEST(file_without_a_name_needs_no_folder_and_leaves_nothing) {
    Err e = {0};
    int fd;
    char **names;
    int64_t n = -1;
    EXPECT_OK(file_open_hidden(test_path("not/there/yet"), &fd, &e));
    EXPECT_OK(file_write(fd, "x", 1, "hidden", &e));
    file_close(fd);
    EXPECT(file_list(test_tmp(), &names, &n, &e) && n == 0);
    EXPECT(file_same_disk(test_path("not/there/yet"), test_tmp()));
    EXPECT_OK(file_make_parents(test_path("p/q/file"), &e));
    EXPECT(file_is_dir(test_path("p/q")) && !file_exists(test_path("p/q/file")));
}

TEST(work_goes_on_until_somebody_asks_the_process_to_leave) {
    Err e = {0};
    Work w;
    work_begin(&w, WORK_BYTES, 100, "reading %s", "something");
    EXPECT(work_on(&w, 10, &e) && w.done == 10 && e.code == 0);
    stop_signal = 15;
    EXPECT(!work_on(&w, 20, &e) && stop_caused(&e) && strstr(e.text, "signal 15"));
    stop_signal = 0;
    work_end(&w);
    EXPECT(!fail(&e, ERR_FAIL, "something else") && !stop_caused(&e));
}

TEST(the_time_that_work_still_takes_follows_from_its_pace) {
    Work w;
    Err e = {0};
    work_begin(&w, WORK_COUNT, 200, "scoring");
    EXPECT(work_left_seconds(&w) < 0); /* nothing is done yet */
    w.began -= 30;
    EXPECT(work_on(&w, 50, &e));
    EXPECT_NEAR(work_left_seconds(&w), 90, 4);
    w.total = 0;
    EXPECT(work_left_seconds(&w) < 0);
    work_end(&w);
}

TEST(work_bar_fits_its_room) {
    char text[64];
    EXPECT(work_bar(text, sizeof text, 10, 0.45) == (int)strlen(text));
    EXPECT_STR(text, "[====>     ]  45%  ");
    work_bar(text, sizeof text, 10, 1.2);
    EXPECT(!strncmp(text, "[==========]", 12));
    EXPECT(work_bar(text, 8, 10, 0) == 7 && strlen(text) == 7);
}

/* What was said before there was a file is its beginning. */
TEST(log_begins_with_what_was_kept_for_it) {
    Err e = {0};
    Str text = {0};
    log_quiet(true);
    log_line("before");
    log_keep();
    log_line("first");
    log_warn("second");
    EXPECT_OK(log_open_file(test_path("log"), &e));
    log_line("third");
    log_close_file();
    log_line("after");
    log_quiet(false);
    EXPECT_OK(file_read(test_path("log"), &text, 0, &e));
    EXPECT_STR(str_text(&text), "first\nwarning: second\nthird\n");
    str_free(&text);
}

/* One that nobody writes to, and one whose writer is silent. */
TEST(file_reading_from_a_pipe_ends_when_the_process_is_asked_to_leave) {
    Err e = {0};
    Str text = {0};
    int ends[2];
    int64_t got;
    char byte;
    EXPECT(mkfifo(test_path("pipe"), 0600) == 0 && pipe(ends) == 0);
    stop_signal = SIGTERM;
    EXPECT(!file_read(test_path("pipe"), &text, 0, &e) && stop_caused(&e));
    EXPECT(!file_read_some(ends[0], &byte, &got, 1, "pipe", &e) && stop_caused(&e));
    EXPECT(write(ends[1], "x", 1) == 1 && file_read_some(ends[0], &byte, &got, 1, "pipe", &e) && got == 1);
    close(ends[1]);
    EXPECT(file_read_some(ends[0], &byte, &got, 1, "pipe", &e) && got == 0); /* its end is no wait */
    stop_signal = 0;
    close(ends[0]);
    EXPECT(file_write_all(test_path("file"), "abc", 3, &e));
    stop_signal = SIGTERM; /* what is saved on the way out reads files */
    EXPECT(file_read(test_path("file"), &text, 0, &e) && text.len == 3);
    stop_signal = 0;
    str_free(&text);
}
