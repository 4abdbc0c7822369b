/* block.h - how a grid of threads is played on one processor. A thread of a block is a fiber; it runs until it needs
 * others, so what happens between two such places is up to the scheduler: warps and the lanes of a warp go on in a
 * drawn order (host_draw), and what lacks a barrier reads poison or old numbers in some order.
 *
 *   H1  Shared memory is poison (0xff) when a block begins. Bytes between variables are poison when it ends, and what
 *       lies behind the last byte of dynamic memory cannot be touched.
 *   H2  A barrier that only a part of its threads reaches, and a warp instruction that other lanes reach than its mask
 *       names, end the grid with an error: which, where, and who is missing.
 *   H3  Bytes of copy_async arrive between the commit of their group and the wait for it, at a drawn time. */
#ifndef TESTS_CUDA_ON_HOST_BLOCK_H
#define TESTS_CUDA_ON_HOST_BLOCK_H

#include <functional>

#include "tests/cuda_on_host/cuda_runtime_api.h"

enum { HOST_WARP = 32 };

struct HostPlace { /* in a kernel */
    const char *file;
    int line;
};
/* Parameters of what a kernel calls: where it does. */
#define HOST_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define HOST_HERE HostPlace{file, line}

struct uint3 {
    unsigned x, y, z;
};
struct HostThread {
    uint3 index;
    int number, warp, lane;
};
struct HostBlock {
    uint3 index;
    dim3 grid, dim;
};
extern HostThread *host_thread; /* the one that runs */
extern HostBlock host_block;    /* its block */

/* Every block of a grid, one after the other. False: it ended with an error, and host_error() says which. */
struct HostGrid {
    dim3 grid, block;
    size_t shared;
    HostPlace from; /* where it was launched */
};
bool host_run(const HostGrid &g, const std::function<void()> &kernel);
const char *host_error(void);

uint32_t host_draw(uint32_t below); /* [0, below); CUDA_HOST_SEED=N begins another sequence */

/* ---- called by threads ---- */

/* All threads of the block: whether any of them says yes. */
bool host_sync_block(bool yes, HostPlace at);
/* `threads` threads of the block, at barrier `number` of 16. */
void host_sync_some(int number, int threads, HostPlace at);

/* The lanes of the mask, less those that have ended where `some` may have: once all are here, `combine` is called once
 * with what each brought (NULL: not there). */
typedef void HostCombine(void *const *of_lane);
void host_converge(uint32_t mask, bool some, void *mine, HostCombine *combine, HostPlace at);

/* Shared memory: of the launch, and a variable, known by the address of its site. 32-bit addresses as kernels' PTX has
 * them, from byte 0 of what the block has. */
void *host_shared_memory(void);
int host_shared_most(void); /* bytes a block may have in all: 163 KiB, or CUDA_HOST_SHARED=KIB */
void *host_shared_variable(const void *site, size_t bytes, size_t align);
uint32_t host_shared_address(const void *p);
void *host_shared_at(uint32_t address, int bytes, HostPlace at);

/* from NULL: zeros. */
void host_copy_async(void *to, const void *from, int bytes);
void host_copies_commit(void);
void host_copies_wait(int left);

[[noreturn]] void host_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* ends the grid */

#endif
