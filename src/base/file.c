/* file.c - how bytes reach the disk so that a half-written file never carries its final name. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/stop.h"

enum { COPY_BYTES = 1 << 16, DEEPEST = 64 };

static bool refused(Err *e, const char *path, const char *doing) {
    return fail_system(e, errno, "%s: cannot %s: %s", path, doing, strerror(errno));
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode);
}

bool file_of_program(char *path, size_t size) {
    ssize_t n = readlink("/proc/self/exe", path, size);
    if (n <= 0 || (size_t)n >= size) return false;
    path[n] = 0;
    return true;
}

bool file_size(const char *path, int64_t *bytes, Err *e) {
    struct stat st;
    if (stat(path, &st)) return refused(e, path, "open");
    *bytes = (int64_t)st.st_size;
    return true;
}

FilePath file_in(const char *folder, const char *name) {
    FilePath path;
    snprintf(path.s, sizeof path.s, "%s/%s", folder, name);
    return path;
}

const char *file_last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool file_is_within(const char *path, const char *folder) {
    char p[PATH_MAX], f[PATH_MAX];
    if (!realpath(path, p) || !realpath(folder, f)) return false;
    size_t n = strlen(f);
    return !strncmp(p, f, n) && (!p[n] || p[n] == '/' || n == 1);
}

/* The one place that opens: -1 with errno set, as open says it. */
static int open_here(const char *path, int flags) {
    return fault_here(FAULT_OPEN, path) ? -1 : open(path, flags | O_CLOEXEC, 0644);
}

/* Until a pipe or a terminal has something to read; files always have. A signal may come just before the wait or to
 * another thread, so its flag is looked at again and again. False: the process was asked to leave. */
static bool wait_to_read(int fd) {
    enum { LOOK_MS = 100 };
    struct pollfd input = {.fd = fd, .events = POLLIN};
    for (;;) {
        int ready = poll(&input, 1, LOOK_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
        if (stop_asked()) return false;
    }
}

/* Up to `bytes` bytes from the offset, or from where the file stands (-1); 0 at its end, -1 with errno set: EINTR when
 * the process was asked to leave before there were any. */
static ssize_t read_here(int fd, void *to, int64_t bytes, int64_t offset, const char *path) {
    for (;;) {
        if (fault_here(FAULT_READ, path)) return -1;
        if (offset < 0 && !wait_to_read(fd)) return errno = EINTR, -1;
        size_t part = (size_t)MIN2(bytes, 1 << 30);
        ssize_t n = offset < 0 ? read(fd, to, part) : pread(fd, to, part, (off_t)offset);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN)) return n;
    }
}

bool file_open_read(const char *path, int *fd, Err *e) {
    *fd = open_here(path, O_RDONLY | O_NONBLOCK); /* a pipe that nobody writes to is waited for where it is read */
    if (*fd < 0) return refused(e, path, "open");
    struct stat st;
    if (fstat(*fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return fail(e, ERR_FAIL, "%s: is a folder, a file was expected", path);
    }
    return true;
}

FileFacts file_facts(int fd) {
    struct stat st;
    if (fstat(fd, &st)) return (FileFacts){.bytes = -1, .at = -1};
    return (FileFacts){.bytes = (int64_t)st.st_size,
                       .changed_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                       .at = S_ISREG(st.st_mode) ? (int64_t)lseek(fd, 0, SEEK_CUR) : -1};
}

bool file_seek(int fd, int64_t at, const char *path, Err *e) {
    return lseek(fd, (off_t)at, SEEK_SET) == (off_t)at || refused(e, path, "seek in it");
}

bool file_open_append(const char *path, int *fd, Err *e) {
    *fd = open_here(path, O_RDWR | O_CREAT | O_APPEND);
    return *fd >= 0 || refused(e, path, "open");
}

void file_close(int fd) {
    if (fd >= 0) close(fd);
}

bool file_pread(int fd, void *to, int64_t bytes, int64_t offset, const char *path, Err *e) {
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = read_here(fd, (char *)to + done, bytes - done, offset + done, path);
        if (n < 0) return refused(e, path, "read");
        if (n == 0)
            return fail(e, ERR_FAIL, "%s: ends at byte %lld, %lld were expected. Was the copy cut short?", path,
                        (long long)(offset + done), (long long)(offset + bytes));
        done += n;
    }
    return true;
}

bool file_read_some(int fd, void *to, int64_t *got, int64_t room, const char *path, Err *e) {
    ssize_t n = read_here(fd, to, room, -1, path);
    *got = n;
    if (n < 0 && errno == EINTR) return stop_check(e);
    return n >= 0 || refused(e, path, "read");
}

bool file_write(int fd, const void *from, int64_t bytes, const char *path, Err *e) {
    for (int64_t done = 0; done < bytes;) {
        bool fault = fault_here(FAULT_WRITE, path);
        ssize_t n = fault ? -1 : write(fd, (const char *)from + done, (size_t)MIN2(bytes - done, 1 << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refused(e, path, "write");
        done += n;
    }
    return true;
}

bool file_cut(int fd, int64_t bytes, const char *path, Err *e) {
    if (!fault_here(FAULT_CUT, path) && ftruncate(fd, (off_t)bytes) == 0) return true;
    return refused(e, path, "cut");
}

/* The folder itself, or where it would be made. */
static void nearest_folder(char *to, size_t size, const char *folder) {
    snprintf(to, size, "%s", folder);
    while (!file_exists(to)) {
        char *slash = strrchr(to, '/');
        if (!slash || slash == to) {
            snprintf(to, size, "%s", slash ? "/" : ".");
            return;
        }
        *slash = 0;
    }
}

bool file_open_hidden(const char *wanted, int *fd, Err *e) {
    char folder[1024], path[1100];
    nearest_folder(folder, sizeof folder, wanted);
    *fd = open_here(folder, O_TMPFILE | O_RDWR);
    if (*fd >= 0) return true;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return refused(e, folder, "make a file in it");
    snprintf(path, sizeof path, "%s/.snug-%d", folder, (int)getpid()); /* a file system that knows no nameless files */
    *fd = open_here(path, O_CREAT | O_EXCL | O_RDWR);
    if (*fd < 0) return refused(e, path, "open");
    if (!fault_here(FAULT_REMOVE, path) && unlink(path) == 0) return true;
    close(*fd);
    return refused(e, path, "remove its name");
}

bool file_pwrite(int fd, const void *from, int64_t bytes, int64_t offset, const char *path, Err *e) {
    for (int64_t done = 0; done < bytes;) {
        bool fault = fault_here(FAULT_WRITE, path);
        size_t part = (size_t)MIN2(bytes - done, 1 << 30);
        ssize_t n = fault ? -1 : pwrite(fd, (const char *)from + done, part, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refused(e, path, "write");
        done += n;
    }
    return true;
}

bool file_reserve(int fd, int64_t at, int64_t bytes, const char *path, Err *e) {
    int status = fault_here(FAULT_WRITE, path) ? errno : posix_fallocate(fd, (off_t)at, (off_t)bytes);
    while (status == EINTR) status = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    if (!status) return true;
    return fail_system(e, status, "%s: cannot take %lld bytes on its disk: %s", path, (long long)bytes,
                       strerror(status));
}

bool file_flush(int fd, const char *path, Err *e) {
    if (!fault_here(FAULT_FLUSH, path) && fsync(fd) == 0) return true;
    return refused(e, path, "flush");
}

int64_t file_free_bytes(const char *path) {
    char at[1024];
    struct statvfs disk;
    nearest_folder(at, sizeof at, path);
    return statvfs(at, &disk) ? -1 : (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
}

bool file_same_disk(const char *a, const char *b) {
    char at[1024];
    struct stat one, other;
    nearest_folder(at, sizeof at, a);
    if (stat(at, &one)) return false;
    nearest_folder(at, sizeof at, b);
    return !stat(at, &other) && one.st_dev == other.st_dev;
}

int64_t file_tree_bytes(const char *path) {
    struct stat st;
    char **names, inner[PATH_MAX];
    int64_t n;
    if (lstat(path, &st)) return 0;
    int64_t bytes = (int64_t)st.st_blocks * 512;
    if (!S_ISDIR(st.st_mode) || !file_list(path, &names, &n, NULL)) return bytes;
    for (int64_t i = 0; i < n; i++) {
        if (snprintf(inner, sizeof inner, "%s/%s", path, names[i]) < (int)sizeof inner)
            bytes += file_tree_bytes(inner);
        mem_free(names[i]);
    }
    mem_free(names);
    return bytes;
}

bool file_read(const char *path, Str *out, int64_t limit_bytes, Err *e) {
    int fd;
    if (!file_open_read(path, &fd, e)) return false;
    char *block = mem_alloc(COPY_BYTES);
    int64_t before = out->len;
    bool ok = true;
    for (;;) {
        int64_t n;
        ok = file_read_some(fd, block, &n, COPY_BYTES, path, e);
        if (n <= 0) break;
        str_add_bytes(out, block, n);
        if (limit_bytes && out->len > limit_bytes) {
            ok = fail(e, ERR_FAIL, "%s: is larger than the %lld bytes allowed here", path, (long long)limit_bytes);
            break;
        }
    }
    mem_free(block);
    file_close(fd);
    if (!ok && before == 0) str_free(out);
    else if (!ok) out->data[out->len = before] = 0;
    return ok;
}

bool file_begin(FileOut *f, const char *path, Err *e) {
    f->fd = -1;
    if (strlen(path) >= sizeof f->path) return fail(e, ERR_FAIL, "%s: the path is too long", path);
    snprintf(f->path, sizeof f->path, "%s", path);
    snprintf(f->temporary, sizeof f->temporary, "%s.tmp-%d", path, (int)getpid());
    f->fd = open_here(f->temporary, O_WRONLY | O_CREAT | O_TRUNC);
    return f->fd >= 0 || refused(e, f->temporary, "create");
}

/* A file or an empty folder; false with errno set. */
static bool remove_here(const char *path) { return !fault_here(FAULT_REMOVE, path) && remove(path) == 0; }

void file_abort(FileOut *f) {
    if (f->fd < 0) return;
    close(f->fd);
    remove_here(f->temporary);
    f->fd = -1;
}

bool file_commit(FileOut *f, Err *e) {
    if (!file_flush(f->fd, f->temporary, e)) {
        file_abort(f);
        return false;
    }
    close(f->fd);
    f->fd = -1;
    if (file_rename(f->temporary, f->path, e)) return true;
    remove_here(f->temporary);
    return false;
}

bool file_end(FileOut *f, bool ok, Err *e) {
    if (!ok) file_abort(f);
    return ok && file_commit(f, e);
}

bool file_write_all(const char *path, const void *data, int64_t bytes, Err *e) {
    FileOut f;
    return file_begin(&f, path, e) && file_end(&f, file_write(f.fd, data, bytes, f.temporary, e), e);
}

bool file_write_str(const char *path, Str *text, Err *e) {
    bool ok = file_write_all(path, str_text(text), text->len, e);
    str_free(text);
    return ok;
}

bool file_replace(const char *path, const void *data, int64_t bytes, Err *e) {
    FileOut f;
    if (!file_begin(&f, path, e)) return false;
    bool ok = file_write(f.fd, data, bytes, f.temporary, e);
    close(f.fd);
    bool moved = ok && !fault_here(FAULT_RENAME, f.temporary) && rename(f.temporary, path) == 0;
    if (ok && !moved) refused(e, path, "replace");
    if (!moved) remove_here(f.temporary);
    return moved;
}

bool file_make_private(const char *path, Err *e) {
    struct stat st;
    if (lstat(path, &st) && (fault_here(FAULT_MAKE, path) || mkdir(path, 0700)) && errno != EEXIST)
        return refused(e, path, "create the folder");
    if (lstat(path, &st)) return refused(e, path, "open the folder");
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022)) return true;
    return fail(e, ERR_FAIL, "%s: is not a folder of this user alone", path);
}

bool file_make_dirs(const char *path, Err *e) {
    char part[PATH_MAX];
    if (strlen(path) >= sizeof part) return fail(e, ERR_FAIL, "%s: the path is too long", path);
    for (int64_t i = 1, n = (int64_t)strlen(path); i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, (size_t)i);
        part[i] = 0;
        if ((fault_here(FAULT_MAKE, part) || mkdir(part, 0755)) && errno != EEXIST)
            return refused(e, part, "create the folder");
    }
    if (!file_is_dir(path)) return fail_system(e, ENOTDIR, "%s: is a file, a folder was expected", path);
    return true;
}

bool file_make_parents(const char *path, Err *e) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return true;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return file_make_dirs(folder, e);
}

static bool remove_tree(const char *path, int depth, Err *e) {
    struct stat st;
    if (lstat(path, &st)) return errno == ENOENT || refused(e, path, "remove");
    if (!S_ISDIR(st.st_mode)) return remove_here(path) || refused(e, path, "remove");
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
    return ok && (remove_here(path) || refused(e, path, "remove"));
}

bool file_remove_tree(const char *path, Err *e) { return remove_tree(path, 0, e); }

bool file_sync_dir(const char *path, Err *e) {
    int fd = open_here(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return refused(e, path, "open the folder");
    bool flushed = !fault_here(FAULT_FLUSH, path) && fsync(fd) == 0;
    bool ok = flushed || errno == EINVAL; /* some file systems do not flush folders */
    if (!ok) refused(e, path, "flush the folder");
    close(fd);
    return ok;
}

/* Makes a change of the names beside `path` last. */
static bool sync_parent(const char *path, Err *e) {
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (!slash) return file_sync_dir(".", e);
    slash[slash == parent] = 0;
    return file_sync_dir(parent, e);
}

bool file_rename(const char *from, const char *to, Err *e) {
    if (fault_here(FAULT_RENAME, from) || rename(from, to))
        return fail_system(e, errno, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    return sync_parent(to, e);
}

bool file_exchange(const char *from, const char *to, bool *possible, Err *e) {
    *possible = true;
    if (!fault_here(FAULT_EXCHANGE, from) && !fault_here(FAULT_RENAME, from) &&
        renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return sync_parent(to, e);
    *possible = errno != EINVAL && errno != ENOSYS && errno != ENOTSUP;
    return *possible && fail_system(e, errno, "%s: cannot take the name %s: %s", from, to, strerror(errno));
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
        int64_t n;
        ok = file_read_some(fd, block, &n, COPY_BYTES, from, e);
        if (n <= 0) break;
        if (!(ok = file_write(out.fd, block, n, out.temporary, e))) break;
    }
    mem_free(block);
    file_close(fd);
    return file_end(&out, ok, e);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void file_list_free(char **names, int64_t n) {
    for (int64_t i = 0; i < n; i++) mem_free(names[i]);
    mem_free(names);
}

bool file_list(const char *path, char ***names, int64_t *n, Err *e) {
    DIR *dir = fault_here(FAULT_OPEN, path) ? NULL : opendir(path);
    if (!dir) return refused(e, path, "list the folder");
    char **list = NULL;
    int64_t capacity = 0, count = 0;
    for (;;) {
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d) break;
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        list = mem_grow(list, &capacity, count + 1, sizeof *list);
        list[count++] = mem_strdup(d->d_name);
    }
    bool ok = errno == 0 || refused(e, path, "list the folder"); /* half a list would pass for a whole one */
    closedir(dir);
    if (!ok) {
        file_list_free(list, count);
        return false;
    }
    if (count) qsort(list, (size_t)count, sizeof *list, by_name);
    *names = list;
    *n = count;
    return true;
}

bool file_clear(const char *folder, bool (*goes)(const char *name), Err *e) {
    char **names = NULL, path[PATH_MAX];
    int64_t n = 0;
    if (!file_list(folder, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        ok = ok && (!goes(names[i]) || file_remove_tree(path, e));
        mem_free(names[i]);
    }
    mem_free(names);
    return ok;
}
