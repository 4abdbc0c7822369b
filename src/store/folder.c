/* folder.c - the order of renames that keeps one whole folder on disk at every moment. */
#include "store/folder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

static const char *const markers[] = {"config.json", "adapter_config.json", "trainer_state.json"};

/* Copies a path without the slashes at its end: "out/" and "out" have the same siblings. */
static bool copy_path(char *to, size_t size, const char *path, Err *e) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n >= size) return fail(e, ERR_FAIL, "%s: the path is too long", path);
    memcpy(to, path, n);
    to[n] = 0;
    const char *slash = strrchr(to, '/'), *last = slash ? slash + 1 : to;
    if (!*last || !strcmp(last, ".") || !strcmp(last, ".."))
        return fail(e, ERR_FAIL, "'%s' cannot be written as a whole: give the folder a name of its own", path);
    return true;
}

static bool may_replace(const char *path, Err *e) {
    char inner[1100], **names;
    int64_t n;
    if (!file_exists(path)) return true;
    if (!file_list(path, &names, &n, e)) return false;
    file_list_free(names, n);
    for (int i = 0; i < COUNT_OF(markers) && n; i++) {
        snprintf(inner, sizeof inner, "%s/%s", path, markers[i]);
        if (file_exists(inner)) return true;
    }
    return n == 0 ||
           fail(e, ERR_FAIL, "%s: is there already and holds no model: remove it or choose another folder", path);
}

/* An F.old without an F is F: the process ended between two renames. With an F it is a leftover. */
static bool settle_old(const char *path, Err *e) {
    char old[1060];
    snprintf(old, sizeof old, "%s.old", path);
    if (!file_is_dir(old)) return true; /* a file of that name is somebody's own */
    return file_exists(path) ? file_remove_tree(old, e) : file_rename(old, path, e);
}

bool folder_check(const char *final_path, Err *e) {
    char path[1024], old[1060];
    if (!copy_path(path, sizeof path, final_path, e)) return false;
    snprintf(old, sizeof old, "%s.old", path);
    return may_replace(!file_exists(path) && file_is_dir(old) ? old : path, e);
}

/* The folder that holds `path`, and the last part of `path`. */
static const char *split_path(char *parent, size_t size, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) snprintf(parent, size, ".");
    else snprintf(parent, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return slash ? slash + 1 : path;
}

/* What a killed process left keeps its bytes; it may also be of one that is at work now, on this machine or another. */
static void tell_of_leftovers(const char *path) {
    char parent[1024], **names;
    int64_t n;
    const char *last = split_path(parent, sizeof parent, path);
    if (!file_is_dir(parent) || !file_list(parent, &names, &n, NULL)) return;
    for (int64_t i = 0; i < n; i++)
        if (str_starts(names[i], last) && str_starts(names[i] + strlen(last), ".tmp-"))
            log_warn("%s/%s: is left of a command that was killed, unless another one is writing %s now; remove it",
                     parent, names[i], path);
    file_list_free(names, n);
}

bool folder_begin(FolderOut *f, const char *final_path, Err *e) {
    *f = (FolderOut){0};
    char temporary[sizeof f->temporary];
    if (!folder_check(final_path, e) || !copy_path(f->path, sizeof f->path, final_path, e) || !settle_old(f->path, e))
        return false;
    snprintf(temporary, sizeof temporary, "%s.tmp-%d", f->path, (int)getpid());
    if (file_exists(temporary) && !file_remove_tree(temporary, e)) return false;
    tell_of_leftovers(f->path);
    if (!file_make_dirs(temporary, e)) return false;
    memcpy(f->temporary, temporary, sizeof temporary);
    return true;
}

void folder_abort(FolderOut *f) {
    if (f->temporary[0]) file_remove_tree(f->temporary, NULL);
    f->temporary[0] = 0;
}

static bool flush_file(const char *path, Err *e) {
    int fd;
    if (!file_open_read(path, &fd, e)) return false;
    bool ok = file_flush(fd, path, e);
    file_close(fd);
    return ok;
}

static bool flush_tree(const char *path, Err *e) {
    char **names, inner[2100];
    int64_t n;
    if (!file_list(path, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        if (snprintf(inner, sizeof inner, "%s/%s", path, names[i]) >= (int)sizeof inner)
            ok = fail(e, ERR_FAIL, "%s: the path is too long", inner);
        else if (strstr(names[i], ".tmp-")) ok = fail(e, ERR_FAIL, "%s: was begun but never completed", inner);
        else ok = file_is_dir(inner) ? flush_tree(inner, e) : flush_file(inner, e);
    }
    file_list_free(names, n);
    return ok && file_sync_dir(path, e);
}

/* The new folder has its name; whether the earlier one can be removed does not change that. */
static void drop_earlier(const char *path) {
    Err e = {0};
    if (!file_remove_tree(path, &e)) log_warn("an earlier folder remains: %s", e.text);
}

/* The plain way to replace: aside, in, and back again if that fails. */
static bool replace_by_two_renames(FolderOut *f, Err *e) {
    char old[1060];
    snprintf(old, sizeof old, "%s.old", f->path);
    bool ok = file_rename(f->path, old, e) && file_rename(f->temporary, f->path, e);
    if (!file_exists(f->path)) file_rename(old, f->path, NULL); /* a rename may be done and only its flush refused */
    else if (file_exists(old)) drop_earlier(old);
    return ok;
}

static bool take_name(FolderOut *f, Err *e) {
    bool possible;
    if (!file_exists(f->path)) return file_rename(f->temporary, f->path, e);
    bool ok = file_exchange(f->temporary, f->path, &possible, e);
    if (!possible) return replace_by_two_renames(f, e);
    if (ok) drop_earlier(f->temporary); /* which is the earlier folder now */
    return ok;
}

bool folder_commit(FolderOut *f, Err *e) {
    CHECK(f->temporary[0]);
    bool ok = flush_tree(f->temporary, e) && take_name(f, e);
    if (!ok) folder_abort(f);
    f->temporary[0] = 0;
    return ok;
}

bool folder_end(FolderOut *f, bool ok, Err *e) {
    if (!ok) folder_abort(f);
    return ok && folder_commit(f, e);
}

bool folder_remove(const char *path, Err *e) {
    char plain[1024], gone[1060];
    if (!copy_path(plain, sizeof plain, path, e)) return false;
    snprintf(gone, sizeof gone, "%s.gone", plain);
    if (!file_remove_tree(gone, e)) return false;
    if (!file_exists(plain)) return true;
    return file_rename(plain, gone, e) && file_remove_tree(gone, e);
}

bool folder_recover(const char *path, Err *e) {
    char plain[1024], parent[1024], inner[2100], **names;
    int64_t n;
    if (!copy_path(plain, sizeof plain, path, e) || !settle_old(plain, e)) return false;
    const char *last = split_path(parent, sizeof parent, plain);
    if (!file_list(parent, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        const char *rest = str_starts(names[i], last) ? names[i] + strlen(last) : "";
        if (!str_starts(rest, ".tmp-") && strcmp(rest, ".gone")) continue;
        snprintf(inner, sizeof inner, "%s/%s", parent, names[i]);
        ok = file_remove_tree(inner, e);
    }
    file_list_free(names, n);
    return ok;
}
