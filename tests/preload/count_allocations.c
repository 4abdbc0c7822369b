/* count_allocations.c - preloaded into a process, counts every malloc, calloc, realloc and anonymous mmap by
 * anyone in it, and writes the count to the file named by COUNT_FILE when the process ends. With TAKE_BYTES it
 * takes so much memory as the process begins, and keeps it: memory that no plan knows of. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static atomic_long count;

void *malloc(size_t n) {
    atomic_fetch_add(&count, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t each) {
    atomic_fetch_add(&count, 1);
    return __libc_calloc(n, each);
}

void *realloc(void *p, size_t n) {
    atomic_fetch_add(&count, 1);
    return __libc_realloc(p, n);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    if (flags & MAP_ANONYMOUS) atomic_fetch_add(&count, 1);
    return next(at, n, protection, flags, fd, offset);
}

__attribute__((constructor)) static void take(void) {
    const char *bytes = getenv("TAKE_BYTES");
    char *taken = bytes ? __libc_malloc((size_t)atoll(bytes)) : NULL;
    for (long long i = 0; taken && i < atoll(bytes); i += 4096) taken[i] = 1;
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("COUNT_FILE");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (fd < 0) return;
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", atomic_load(&count));
    if (write(fd, text, (size_t)n) != n) _exit(1);
    close(fd);
}
