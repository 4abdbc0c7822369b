/* test_folder.c - folders appear and are replaced as a whole; models are found in folders and the hub's cache. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "store/folder.h"
#include "store/hf.h"
#include "tests/store/store_test.h"
#include "tests/test.h"

static void put_in(const FolderOut *f, const char *name, const char *text) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", f->temporary, name);
    put_text(path, text);
}

/* Is the first line of the file `name` this text? */
static bool holds(const char *name, const char *text) {
    Str s = {0};
    bool same = file_read(tmp_path(name), &s, 1000, NULL) && !strcmp(str_text(&s), text);
    str_free(&s);
    return same;
}

TEST(folder_appears_at_the_commit) {
    Err e = {0};
    FolderOut f;
    EXPECT_OK(folder_begin(&f, tmp_path("deep/out//"), &e));
    put_in(&f, "config.json", "one");
    EXPECT(!file_exists(tmp_path("deep/out")));
    EXPECT_OK(folder_commit(&f, &e));
    EXPECT(holds("deep/out/config.json", "one"));
    EXPECT(count_names(tmp_path("deep")) == 1);
}

TEST(folder_abort_leaves_nothing) {
    Err e = {0};
    FolderOut f;
    EXPECT_OK(folder_begin(&f, tmp_path("out"), &e));
    put_in(&f, "config.json", "one");
    folder_abort(&f);
    folder_abort(&f);
    EXPECT(count_names(test_tmp()) == 0);
}

static void commit_text(const char *name, const char *text) {
    Err e = {0};
    FolderOut f;
    EXPECT_OK(folder_begin(&f, tmp_path(name), &e));
    put_in(&f, "config.json", text);
    EXPECT_OK(folder_commit(&f, &e));
}

TEST(folder_is_replaced_whole) {
    Err e = {0};
    commit_text("out", "one");
    put_text(tmp_path("out/extra"), "x");
    FolderOut f;
    EXPECT_OK(folder_begin(&f, tmp_path("out"), &e));
    put_in(&f, "config.json", "two");
    EXPECT(holds("out/config.json", "one"));
    EXPECT_OK(folder_commit(&f, &e));
    EXPECT(holds("out/config.json", "two"));
    EXPECT(!file_exists(tmp_path("out/extra")));
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(folder_commit_refuses_unfinished_files_and_keeps_the_earlier) {
    Err e = {0};
    commit_text("out", "one");
    FolderOut f;
    EXPECT_OK(folder_begin(&f, tmp_path("out"), &e));
    put_in(&f, "model.safetensors.tmp-77", "half");
    EXPECT(!folder_commit(&f, &e));
    EXPECT(strstr(e.text, "never completed") != NULL);
    EXPECT(holds("out/config.json", "one"));
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(folder_does_not_replace_what_holds_no_model) {
    Err e = {0};
    FolderOut f;
    EXPECT_OK(file_make_dirs(tmp_path("home"), &e));
    EXPECT_OK(folder_begin(&f, tmp_path("home"), &e)); /* empty: fine */
    folder_abort(&f);
    put_text(tmp_path("home/thesis.tex"), "years of work");
    EXPECT(!folder_begin(&f, tmp_path("home"), &e));
    EXPECT(strstr(e.text, "holds no model") != NULL);
    EXPECT(holds("home/thesis.tex", "years of work"));
    EXPECT(!folder_begin(&f, tmp_path("home/."), &e));
    EXPECT(!folder_begin(&f, tmp_path("home/.."), &e));
    EXPECT(!folder_begin(&f, "/", &e));
    EXPECT(!folder_begin(&f, "", &e));
    put_text(tmp_path("file"), "x");
    EXPECT(!folder_begin(&f, tmp_path("file"), &e));
}

TEST(folder_put_aside_by_a_killed_process_comes_back) {
    Err e = {0};
    FolderOut f;
    commit_text("out", "one");
    EXPECT(rename(tmp_path("out"), tmp_path("out.old")) == 0); /* killed between the two renames */
    EXPECT_OK(folder_begin(&f, tmp_path("out"), &e));
    EXPECT(holds("out/config.json", "one"));
    folder_abort(&f);
    EXPECT_OK(file_make_dirs(tmp_path("out.old"), &e)); /* killed after them */
    EXPECT_OK(folder_recover(tmp_path("out/"), &e));
    EXPECT(holds("out/config.json", "one"));
    EXPECT(count_names(test_tmp()) == 1);
}

/* Two may write the same name, and only the last step decides; so another's beginnings are named and not touched. */
TEST(folder_begun_by_another_process_is_named_and_left) {
    Err e = {0};
    FolderOut f;
    Str log = {0};
    log_quiet(true);
    EXPECT_OK(file_make_dirs(tmp_path("out.tmp-1"), &e));
    EXPECT_OK(log_open_file(tmp_path("log"), &e));
    EXPECT_OK(folder_begin(&f, tmp_path("out"), &e));
    log_close_file();
    log_quiet(false);
    EXPECT(file_exists(tmp_path("out.tmp-1")) && file_read(tmp_path("log"), &log, 0, &e));
    EXPECT(strstr(str_text(&log), "out.tmp-1: is left of a command that was killed"));
    folder_abort(&f);
    str_free(&log);
}

TEST(folder_recover_removes_temporaries_of_this_folder_only) {
    Err e = {0};
    commit_text("out", "one");
    EXPECT_OK(file_make_dirs(tmp_path("out.tmp-12/deep"), &e));
    EXPECT_OK(file_make_dirs(tmp_path("out.gone"), &e));
    EXPECT_OK(file_make_dirs(tmp_path("output.tmp-12"), &e));
    EXPECT_OK(folder_recover(tmp_path("out"), &e));
    EXPECT(!file_exists(tmp_path("out.tmp-12")) && !file_exists(tmp_path("out.gone")));
    EXPECT(file_exists(tmp_path("output.tmp-12")));
    EXPECT(holds("out/config.json", "one"));
}

TEST(folder_remove_takes_a_folder_away) {
    Err e = {0};
    commit_text("out", "one");
    EXPECT_OK(file_make_dirs(tmp_path("out.gone/from/earlier"), &e));
    EXPECT_OK(folder_remove(tmp_path("out"), &e));
    EXPECT(count_names(test_tmp()) == 0);
    EXPECT_OK(folder_remove(tmp_path("out"), &e));
}

TEST(hf_resolves_a_folder_with_a_configuration) {
    Err e = {0};
    char path[512];
    bool found;
    EXPECT(!hf_resolve(path, sizeof path, &found, test_tmp(), NULL, &e));
    EXPECT(strstr(e.text, "no config.json") && !found);
    put_text(tmp_path("config.json"), "{}");
    EXPECT_OK(hf_resolve(path, sizeof path, &found, test_tmp(), NULL, &e));
    EXPECT(found);
    EXPECT_STR(path, test_tmp());
    EXPECT(!hf_resolve(path, 4, &found, test_tmp(), NULL, &e));
}

static void make_cache(const char *hub, const char *revision) {
    Err e = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s/models--Qwen--Qwen2.5-0.5B/refs", hub);
    EXPECT_OK(file_make_dirs(path, &e));
    strcat(path, "/main");
    put_text(path, revision);
    snprintf(path, sizeof path, "%s/models--Qwen--Qwen2.5-0.5B/snapshots/abc123", hub);
    EXPECT_OK(file_make_dirs(path, &e));
    strcat(path, "/config.json");
    put_text(path, "{}");
}

TEST(hf_resolves_a_hub_id_in_the_cache) {
    Err e = {0};
    char path[1024];
    bool found;
    make_cache(tmp_path("hf/hub"), "abc123\n");
    EXPECT_OK(hf_resolve(path, sizeof path, &found, "Qwen/Qwen2.5-0.5B", tmp_path("hf/hub"), &e));
    EXPECT(found);
    EXPECT_STR(path, tmp_path("hf/hub/models--Qwen--Qwen2.5-0.5B/snapshots/abc123"));
    EXPECT_OK(hf_resolve(path, sizeof path, &found, "Qwen/Qwen2.5-7B", tmp_path("hf/hub"), &e));
    EXPECT(!found);
    EXPECT_OK(hf_resolve(path, sizeof path, &found, "Qwen/Qwen2.5-0.5B", NULL, &e));
    EXPECT(!found);
}

TEST(hf_refuses_broken_cache_entries_and_ignores_odd_ids) {
    static const char *const odd[] = {"", "/", "../x", "a/../b", "a/b/c", "a/..", "/etc/x", "a b/c", "a/", "-x/y"};
    Err e = {0};
    char path[1024];
    bool found;
    for (int i = 0; i < 10; i++) {
        if (file_is_dir(odd[i])) continue; /* "/" is a folder, and without a configuration */
        EXPECT_OK(hf_resolve(path, sizeof path, &found, odd[i], test_tmp(), &e));
        EXPECT(!found);
    }
    make_cache(tmp_path("hf/hub"), "../../escape");
    EXPECT(!hf_resolve(path, sizeof path, &found, "Qwen/Qwen2.5-0.5B", tmp_path("hf/hub"), &e));
    EXPECT(strstr(e.text, "does not hold a revision") && !found);
    make_cache(tmp_path("hf/hub"), "def456");
    EXPECT(!hf_resolve(path, sizeof path, &found, "Qwen/Qwen2.5-0.5B", tmp_path("hf/hub"), &e));
    EXPECT(strstr(e.text, "no config.json") && !found);
    EXPECT(unlink(tmp_path("hf/hub/models--Qwen--Qwen2.5-0.5B/refs/main")) == 0);
    EXPECT(!hf_resolve(path, sizeof path, &found, "Qwen/Qwen2.5-0.5B", tmp_path("hf/hub"), &e));
    EXPECT(strstr(e.text, "refs/main") != NULL);
}

TEST(hf_copies_side_files_only) {
    Err e = {0};
    EXPECT_OK(file_make_dirs(tmp_path("from"), &e));
    EXPECT_OK(file_make_dirs(tmp_path("to"), &e));
    static const char *const names[] = {"tokenizer.json", "merges.txt", "chat_template.jinja", "config.json",
                                        "model.safetensors", "README.md"};
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "from/%s", names[i]);
        put_text(tmp_path(name), names[i]);
    }
    EXPECT_OK(hf_copy_side_files(tmp_path("from"), tmp_path("to"), &e));
    EXPECT(count_names(tmp_path("to")) == 3);
    EXPECT(holds("to/tokenizer.json", "tokenizer.json"));
    EXPECT(!hf_copy_side_files(tmp_path("from"), tmp_path("absent"), &e));
}
