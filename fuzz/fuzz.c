/* fuzz.c - runs a target on one input: its folder, and the count of the bytes it holds. */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

FuzzTarget fuzz_target[FUZZ_TARGETS_MAX];
int fuzz_n_targets;

void fuzz_register(FuzzTarget t) {
    CHECK(fuzz_n_targets < FUZZ_TARGETS_MAX);
    fuzz_target[fuzz_n_targets++] = t;
}

/* ---- files ---- */

static char folder[200];

static void remove_folder(void) { file_remove_tree(folder, NULL); }

const char *fuzz_folder(void) {
    if (folder[0]) return folder;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.150s/snug-fuzz-XXXXXX", root ? root : "/tmp");
    CHECK_MSG(mkdtemp(folder), "no folder like %s can be made", folder);
    atexit(remove_folder);
    return folder;
}

const char *fuzz_path(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    return path;
}

const char *fuzz_write(const char *name, const void *data, int64_t size) {
    const char *path = fuzz_path(name); /* not file_write_all: a flush for every input takes most of the time */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK_MSG(fd >= 0 && file_write(fd, data, size, path, NULL), "%s cannot be written", path);
    close(fd);
    return path;
}

/* ---- memory: a sanitizer's runtime tells of every allocation; without one nothing is counted ---- */

typedef void MallocHook(const volatile void *p, size_t bytes);
typedef void FreeHook(const volatile void *p);
__attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(MallocHook *on_malloc, FreeHook *on_free);
__attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void *p);

static atomic_llong held, limit; /* limit 0: not counting */

static void on_malloc(const volatile void *p, size_t bytes) {
    long long most = atomic_load(&limit), now;
    if (!most || !p) return;
    now = atomic_fetch_add(&held, (long long)bytes) + (long long)bytes;
    if (now <= most) return;
    atomic_store(&limit, 0); /* what follows allocates too */
    check_failed(__FILE__, __LINE__, "memory", "%lld bytes are held, %lld are allowed for an input of this size", now,
                 most);
}

static void on_free(const volatile void *p) {
    if (atomic_load(&limit) && p) atomic_fetch_sub(&held, (long long)__sanitizer_get_allocated_size(p));
}

void fuzz_run(const FuzzTarget *t, const uint8_t *data, int64_t size) {
    static bool prepared;
    if (!prepared && __sanitizer_install_malloc_and_free_hooks)
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    prepared = true;
    log_quiet(true);
    fuzz_folder();
    atomic_store(&held, 0);
    atomic_store(&limit, t->constant_bytes + t->times * size);
    t->fn(data, size);
    atomic_store(&limit, 0);
}
