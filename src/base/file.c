/* file.c - how bytes reach the disk so that a half-written file never carries its final name. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { COPY_BYTES = 1 << 16, DEEPEST = 64 };

static bool refused(Err *e, const char *path, const char *doing) {
    return fail(e, ERR_FAIL, "%s: cannot %s: %s", path, doing, strerror(errno));
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_size(const char *path, int64_t *bytes, Err *e) {
    struct stat st;
    if (stat(path, &st)) return refused(e, path, "open");
    *bytes = (int64_t)st.st_size;
    return true;
}

bool file_open_read(const char *path, int *fd, Err *e) {
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return refused(e, path, "open");
    struct stat st;
    if (fstat(*fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return fail(e, ERR_FAIL, "%s: is a folder, a file was expected", path);
    }
    return true;
}

void file_close(int fd) {
    if (fd >= 0) close(fd);
}

bool file_pread(int fd, void *to, int64_t bytes, int64_t offset, const char *path, Err *e) {
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, (size_t)MIN2(bytes - done, 1 << 30), (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refused(e, path, "read");
        if (n == 0)
            return fail(e, ERR_FAIL, "%s: ends at byte %lld, %lld were expected. Was the copy cut short?", path,
                        (long long)(offset + done), (long long)(offset + bytes));
        done += n;
    }
    return true;
}

bool file_write(int fd, const void *from, int64_t bytes, const char *path, Err *e) {
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)from + done, (size_t)MIN2(bytes - done, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refused(e, path, "write");
        done += n;
    }
    return true;
}

bool file_read(const char *path, Str *out, int64_t limit_bytes, Err *e) {
    int fd;
    if (!file_open_read(path, &fd, e)) return false;
    char *block = mem_alloc(COPY_BYTES);
    bool ok = true;
    for (;;) {
        ssize_t n = read(fd, block, COPY_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) ok = refused(e, path, "read");
        if (n <= 0) break;
        str_add_bytes(out, block, n);
        if (limit_bytes && out->len > limit_bytes) {
            ok = fail(e, ERR_FAIL, "%s: is larger than the %lld bytes allowed here", path, (long long)limit_bytes);
            break;
        }
    }
    mem_free(block);
    file_close(fd);
    return ok;
}

bool file_begin(FileOut *f, const char *path, Err *e) {
    f->fd = -1;
    if (strlen(path) >= sizeof f->path) return fail(e, ERR_FAIL, "%s: the path is too long", path);
    snprintf(f->path, sizeof f->path, "%s", path);
    snprintf(f->temporary, sizeof f->temporary, "%s.tmp-%d", path, (int)getpid());
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return f->fd >= 0 || refused(e, f->temporary, "create");
}

void file_abort(FileOut *f) {
    if (f->fd < 0) return;
    close(f->fd);
    unlink(f->temporary);
    f->fd = -1;
}

bool file_commit(FileOut *f, Err *e) {
    if (fsync(f->fd)) {
        refused(e, f->temporary, "flush");
        file_abort(f);
        return false;
    }
    close(f->fd);
    f->fd = -1;
    if (file_rename(f->temporary, f->path, e)) return true;
    unlink(f->temporary);
    return false;
}

bool file_write_all(const char *path, const void *data, int64_t bytes, Err *e) {
    FileOut f;
    if (!file_begin(&f, path, e)) return false;
    if (!file_write(f.fd, data, bytes, f.temporary, e)) {
        file_abort(&f);
        return false;
    }
    return file_commit(&f, e);
}

bool file_make_dirs(const char *path, Err *e) {
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part) return fail(e, ERR_FAIL, "%s: the path is too long", path);
    for (int64_t i = 1, n = (int64_t)strlen(path); i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, (size_t)i);
        part[i] = 0;
        if (mkdir(part, 0755) && errno != EEXIST) return refused(e, part, "create the folder");
    }
    if (!file_is_dir(path)) return fail(e, ERR_FAIL, "%s: is a file, a folder was expected", path);
    return true;
}

static bool remove_tree(const char *path, int depth, Err *e) {
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT || refused(e, path, "remove");
    if (!S_ISDIR(st.st_mode)) return unlink(path) == 0 || refused(e, path, "remove");
    if (depth > DEEPEST) return fail(e, ERR_FAIL, "%s: folders are nested too deeply to remove", path);
    char **names = NULL, inner[PATH_MAX];
    int64_t n = 0;
    if (!file_list(path, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        ok = ok && snprintf(inner, sizeof inner, "%s/%s", path, names[i]) < (int)sizeof inner &&
             remove_tree(inner, depth + 1, e);
        mem_free(names[i]);
    }
    mem_free(names);
    return ok && (rmdir(path) == 0 || refused(e, path, "remove"));
}

bool file_remove_tree(const char *path, Err *e) { return remove_tree(path, 0, e); }

bool file_sync_dir(const char *path, Err *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return refused(e, path, "open the folder");
    bool ok = fsync(fd) == 0 || errno == EINVAL; /* some file systems do not flush folders */
    if (!ok) refused(e, path, "flush the folder");
    close(fd);
    return ok;
}

bool file_rename(const char *from, const char *to, Err *e) {
    if (rename(from, to)) return fail(e, ERR_FAIL, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", to);
    char *slash = strrchr(parent, '/');
    if (!slash) return file_sync_dir(".", e);
    slash[slash == parent] = 0;
    return file_sync_dir(parent, e);
}

bool file_copy(const char *from, const char *to, Err *e) {
    int fd;
    FileOut out;
    if (!file_open_read(from, &fd, e)) return false;
    if (!file_begin(&out, to, e)) {
        file_close(fd);
        return false;
    }
    char *block = mem_alloc(COPY_BYTES);
    bool ok = true;
    for (;;) {
        ssize_t n = read(fd, block, COPY_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) ok = refused(e, from, "read");
        if (n <= 0) break;
        if (!(ok = file_write(out.fd, block, n, out.temporary, e))) break;
    }
    mem_free(block);
    file_close(fd);
    if (ok) return file_commit(&out, e);
    file_abort(&out);
    return false;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

bool file_list(const char *path, char ***names, int64_t *n, Err *e) {
    DIR *dir = opendir(path);
    if (!dir) return refused(e, path, "list the folder");
    char **list = NULL;
    int64_t capacity = 0, count = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        list = mem_grow(list, &capacity, count + 1, sizeof *list);
        list[count++] = mem_strdup(d->d_name);
    }
    closedir(dir);
    if (count) qsort(list, (size_t)count, sizeof *list, by_name);
    *names = list;
    *n = count;
    return true;
}
