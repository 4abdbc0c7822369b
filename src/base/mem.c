/* mem.c - the only file that allocates from the heap. */
#include "base/mem.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fault.h"

#ifndef DEBUG
#define DEBUG 0
#endif

/* Under the sanitizers each request is a chunk of its own: one byte beyond it is seen. */
enum { CHUNK_BYTES = DEBUG ? 0 : 256 * 1024 };

static atomic_llong requests;
static _Thread_local bool uncounted;
static MemHandler *exhausted;

/* The allocator's habits, made predictable. It would give every thread a heap of its own (64 MiB of addresses
 * each), and after the first large block that is freed keep later ones of that size in the heap: then neither can
 * be planned. A block of its own is also the one that realloc can move without copying. */
enum { OWN_BLOCK_BYTES = 1 << 20, KEPT_BYTES = 1 << 20 };

void mem_open(void) {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, OWN_BLOCK_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}

void mem_on_exhausted(MemHandler *handler) { exhausted = handler; }

static void count_request(void) {
    if (!uncounted) atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed);
}

void mem_count_no_more(void) { uncounted = true; }

static void *check_got(void *p, int64_t bytes) {
    if (p) return p;
    if (exhausted) exhausted(bytes);
    check_failed(__FILE__, __LINE__, "memory", "the system refused %lld bytes", (long long)bytes);
}

void *mem_alloc(int64_t bytes) {
    CHECK(bytes >= 0);
    count_request();
    return check_got(fault_here(FAULT_ALLOC, "heap") ? NULL : calloc(1, bytes ? (size_t)bytes : 1), bytes);
}

void *mem_alloc_wide(int64_t bytes) {
    enum { HUGE_BYTES = 2 << 20 };
    char *p = mem_alloc(bytes);
    uintptr_t begin = ((uintptr_t)p + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES, end = (uintptr_t)p + (uintptr_t)bytes;
    end -= end % HUGE_BYTES; /* whole pages inside alone: never more memory than was asked for */
    if (begin < end) madvise(p + (begin - (uintptr_t)p), end - begin, MADV_HUGEPAGE); /* a wish */
    return p;
}

void *mem_resize(void *p, int64_t bytes) {
    CHECK(bytes >= 0);
    count_request();
    return check_got(fault_here(FAULT_ALLOC, "heap") ? NULL : realloc(p, bytes ? (size_t)bytes : 1), bytes);
}

void mem_free(void *p) { free(p); }

char *mem_strdup(const char *s) {
    int64_t n = (int64_t)strlen(s) + 1;
    return memcpy(mem_alloc(n), s, (size_t)n);
}

int64_t mem_mul(int64_t n, int64_t each) {
    int64_t product;
    if (n < 0 || each < 0 || __builtin_mul_overflow(n, each, &product)) return -1;
    return product;
}

int64_t mem_add(int64_t a, int64_t b) {
    int64_t sum;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum)) return -1;
    return sum;
}

int64_t mem_round_up(int64_t n, int64_t to) {
    CHECK(to > 0);
    if (n < 0) return -1;
    return n % to ? mem_add(n, to - n % to) : n;
}

void *mem_grow(void *p, int64_t *capacity, int64_t need, int64_t each) {
    CHECK(need >= 0);
    if (need <= *capacity) return p;
    int64_t want = MAX2(mem_mul(*capacity, 2), MAX2(need, 16)), bytes = mem_mul(want, each);
    CHECK_MSG(bytes >= 0, "array of %lld x %lld bytes", (long long)want, (long long)each);
    p = mem_resize(p, bytes);
    *capacity = want;
    return p;
}

MemStats mem_stats(void) { return (MemStats){.requests = atomic_load(&requests)}; }

void mem_trim(void) { malloc_trim(0); }

struct ArenaChunk {
    ArenaChunk *next;
    int64_t size, used;
    _Alignas(64) char data[];
};

void arena_init(Arena *a, const char *name) { *a = (Arena){.name = name}; }

void arena_free(Arena *a) {
    for (ArenaChunk *c = a->head, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    *a = (Arena){.name = a->name};
}

static ArenaChunk *chunk_new(Arena *a, int64_t bytes) {
    int64_t size = MAX2(bytes, CHUNK_BYTES);
    void *raw = NULL;
    count_request();
    if (fault_here(FAULT_ALLOC, a->name) || posix_memalign(&raw, 64, sizeof(ArenaChunk) + (size_t)size)) raw = NULL;
    ArenaChunk *c = check_got(raw, size);
    *c = (ArenaChunk){.next = a->head, .size = size};
    return a->head = c;
}

void *arena_alloc(Arena *a, int64_t bytes) {
    CHECK_MSG(!a->sealed, "arena '%s' is sealed; %lld more bytes were asked for", a->name, (long long)bytes);
    CHECK(bytes >= 0);
    int64_t align = bytes >= 64 ? 64 : 16;
    ArenaChunk *c = a->head;
    int64_t at = c ? (c->used + align - 1) / align * align : 0;
    if (!c || at > c->size || bytes > c->size - at) {
        c = chunk_new(a, bytes);
        at = 0;
    }
    c->used = at + bytes;
    a->used_bytes += bytes;
    return memset(c->data + at, 0, (size_t)bytes);
}

char *arena_strdup(Arena *a, const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(arena_alloc(a, (int64_t)n), s, n);
}

char *arena_printf(Arena *a, const char *fmt, ...) {
    CHECK(fmt);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    char *s = arena_alloc(a, n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

void arena_seal(Arena *a) { a->sealed = true; }
