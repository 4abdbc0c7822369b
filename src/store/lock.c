/* lock.c - how a run folder is held: flock on a file that also says who holds it. */
#include "store/lock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"

static bool refuse_taken(int fd, const char *folder, Err *e) {
    char holder[128] = "";
    int64_t n;
    holder[file_read_some(fd, holder, &n, sizeof holder - 1, folder, NULL) ? n : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
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

bool runlock_take(RunLock *l, const char *folder, Err *e) {
    char path[1100];
    *l = (RunLock){.fd = -1};
    if (snprintf(path, sizeof path, "%s/.lock", folder) >= (int)sizeof path)
        return fail(e, ERR_FAIL, "%s: the path is too long", folder);
    int fd;
    if (!file_open_append(path, &fd, e)) return false;
    bool ok = !fault_here(FAULT_LOCK, path) && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!ok && errno == EWOULDBLOCK) refuse_taken(fd, folder, e);
    else if (!ok) fail(e, ERR_FAIL, "%s: cannot lock: %s", path, strerror(errno));
    else ok = write_holder(fd, path, e);
    if (ok) l->fd = fd;
    else file_close(fd);
    return ok;
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
