/* shared.cpp - shared memory between two edges that cannot be touched; gaps between variables stay poison. */
#include "tests/cuda_on_host/shared.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_on_host/block.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

enum { ROOM = 256 << 10, EDGE = 64 << 10, GAP = 32, ALIGN = 128, POISON = 0xff, MOST_VARIABLES = 32 };

struct Variable {
    const void *site;
    char *at;
    size_t bytes;
};
static char *room;
static size_t used; /* by variables, with the gap behind each */
static char *dynamic_at;
static size_t dynamic_bytes;
static Variable variables[MOST_VARIABLES];
static int n_variables;

int host_shared_most(void) {
    static int most;
    const char *asked = getenv("CUDA_HOST_SHARED");
    if (!most) most = (asked ? atoi(asked) : 163) << 10;
    return most;
}

static void open_room() {
    char *all = (char *)mmap(nullptr, EDGE + ROOM + EDGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + EDGE, ROOM, PROT_READ | PROT_WRITE)) abort();
    room = all + EDGE;
}

void shared_begin(size_t bytes) {
    if (!room) open_room();
    size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    dynamic_at = room + ROOM - rounded, dynamic_bytes = bytes;
    used = 0, n_variables = 0;
    ASAN_UNPOISON_MEMORY_REGION(dynamic_at, rounded);
    memset(dynamic_at, POISON, rounded);
    ASAN_POISON_MEMORY_REGION(room, ROOM);
    ASAN_UNPOISON_MEMORY_REGION(dynamic_at, bytes);
}

static bool is_poison(const char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)p[i] != POISON) return false;
    return true;
}

const char *shared_end(void) {
    ASAN_UNPOISON_MEMORY_REGION(room, ROOM);
    for (int i = 0; i < n_variables; i++)
        if (!is_poison(variables[i].at + variables[i].bytes, GAP)) return "wrote behind a variable in shared memory";
    const char *end = dynamic_at + dynamic_bytes;
    return is_poison(end, (size_t)(room + ROOM - end)) ? nullptr : "wrote behind the launch's shared memory";
}

void *host_shared_memory(void) { return dynamic_at; }

void *host_shared_variable(const void *site, size_t bytes, size_t align) {
    for (int i = 0; i < n_variables; i++)
        if (variables[i].site == site) return variables[i].at;
    size_t at = (used + align - 1) / align * align, declared = bytes;
    for (int i = 0; i < n_variables; i++) declared += variables[i].bytes;
    if (declared + dynamic_bytes > (size_t)host_shared_most())
        host_fail("%zu bytes of shared memory beside the launch's %zu: a block has %d KiB here", declared,
                  dynamic_bytes, host_shared_most() >> 10);
    if (n_variables == MOST_VARIABLES || room + at + bytes + GAP > dynamic_at)
        host_fail("more shared memory than the %d KiB there are here", ROOM >> 10);
    ASAN_UNPOISON_MEMORY_REGION(room + used, at + bytes + GAP - used);
    memset(room + used, POISON, at + bytes + GAP - used);
    ASAN_POISON_MEMORY_REGION(room + used, at + bytes + GAP - used);
    ASAN_UNPOISON_MEMORY_REGION(room + at, bytes);
    used = at + bytes + GAP;
    variables[n_variables++] = {site, room + at, bytes};
    return room + at;
}

uint32_t host_shared_address(const void *p) { return (uint32_t)((const char *)p - room); }

void *host_shared_at(uint32_t address, int bytes, HostPlace at) {
    char *p = room + address;
    bool in_dynamic = address < ROOM && p >= dynamic_at && p + bytes <= dynamic_at + dynamic_bytes;
    if ((!in_dynamic && address + (size_t)bytes > used) || address % (unsigned)bytes)
        host_fail("%d bytes of shared memory at address %#x (%s:%d): %s", bytes, address, at.file, at.line,
                  address % (unsigned)bytes ? "not aligned" : "not the block's");
    return p;
}
