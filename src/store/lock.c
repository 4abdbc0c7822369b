/* lock.c - how a run folder is held: flock on a file that also says who holds it. */
#include "store/lock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"

enum { LOCKS_BYTES = 1 << 22 };

/* The process that holds a lock of the same file, as the system lists them ("1: FLOCK ADVISORY WRITE PID
 * DEVICE:INODE 0 EOF"): one that has only looked so far has not written its number. 0: not listed. */
static long listed_holder(int fd) {
    struct stat st;
    Str text = {0};
    long found = 0;
    if (fstat(fd, &st) || !file_read("/proc/locks", &text, LOCKS_BYTES, NULL)) return 0;
    for (char *save = NULL, *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        enum { KIND = 1, PID = 4, FILE_ID };
        const char *word[FILE_ID + 1] = {0};
        char *inner = NULL, *at = strtok_r(line, " ", &inner);
        for (int i = 0; i <= FILE_ID && at; i++, at = strtok_r(NULL, " ", &inner)) word[i] = at;
        const char *inode = word[FILE_ID] ? strrchr(word[FILE_ID], ':') : NULL;
        if (inode && !strcmp(word[KIND], "FLOCK") && strtoull(inode + 1, NULL, 10) == (unsigned long long)st.st_ino)
            found = MAX2(strtol(word[PID], NULL, 10), 0);
    }
    str_free(&text);
    return found;
}

static bool refuse_taken(int fd, const char *folder, Err *e) {
    char holder[128] = "";
    int64_t n;
    long pid = listed_holder(fd);
    holder[file_read_some(fd, holder, &n, sizeof holder - 1, folder, NULL) ? n : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
    if (pid && strtol(holder, NULL, 10) != pid) snprintf(holder, sizeof holder, "%ld on this machine", pid);
    return fail(e, ERR_FAIL,
                "%s: is in use by another run (process %s). Wait for it, stop it, or choose another folder.",
                folder, holder[0] ? holder : "unknown");
}

static bool write_holder(int fd, const char *path, Err *e) {
    char host[64] = "", text[128];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%d on %s\n", (int)getpid(), host);
    return file_cut(fd, 0, path, e) && file_write(fd, text, n, path, e);
}

static bool lock_path(char *path, size_t size, const char *folder, Err *e) {
    return snprintf(path, size, "%s/.lock", folder) < (int)size ||
           fail(e, ERR_FAIL, "%s: the path is too long", folder);
}

/* Takes over fd: it is closed when the lock cannot be had. */
static bool lock_file(RunLock *l, int fd, const char *path, const char *folder, Err *e) {
    bool ok = !fault_here(FAULT_LOCK, path) && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!ok && errno == EWOULDBLOCK) refuse_taken(fd, folder, e);
    else if (!ok)
        fail_system(e, errno, "%s: cannot lock: %s", path, strerror(errno));
    if (ok) l->fd = fd;
    else file_close(fd);
    return ok;
}

bool runlock_look(RunLock *l, const char *folder, Err *e) {
    char path[1100];
    int fd;
    *l = (RunLock){.fd = -1};
    if (!lock_path(path, sizeof path, folder, e)) return false;
    return !file_exists(path) || (file_open_append(path, &fd, e) && lock_file(l, fd, path, folder, e));
}

bool runlock_take(RunLock *l, const char *folder, Err *e) {
    char path[1100];
    int fd;
    if (!lock_path(path, sizeof path, folder, e)) return false;
    if (l->fd < 0 && (!file_open_append(path, &fd, e) || !lock_file(l, fd, path, folder, e))) return false;
    if (write_holder(l->fd, path, e)) return true;
    runlock_release(l);
    return false;
}

bool runlock_take_file(RunLock *l, const char *path, Err *e) {
    int fd;
    *l = (RunLock){.fd = -1};
    if (!file_open_read(path, &fd, e)) return false;
    if (!fault_here(FAULT_LOCK, path) && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        l->fd = fd;
        return true;
    }
    l->busy = errno == EWOULDBLOCK;
    if (l->busy) fail(e, ERR_FAIL, "%s: is in use by another run. Wait for it, or choose another name.", path);
    else fail(e, ERR_FAIL, "%s: cannot lock: %s", path, strerror(errno));
    file_close(fd);
    return false;
}

void runlock_release(RunLock *l) {
    if (l->fd < 0) return;
    file_close(l->fd); /* the file stays: removing it could take the lock from a run that has just opened it */
    l->fd = -1;
}
