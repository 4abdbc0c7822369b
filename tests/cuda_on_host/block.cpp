/* block.cpp - the scheduler of block.h: fibers by warps, barriers, and what is said when nobody can go on. */
#include "tests/cuda_on_host/block.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "tests/cuda_on_host/fiber.h"
#include "tests/cuda_on_host/shared.h"

enum { MOST_THREADS = 1024, MOST_WARPS = MOST_THREADS / HOST_WARP, BARRIERS = 16 };

struct AsyncCopy {
    void *to;
    const void *from; /* NULL: zeros */
    int bytes, group;
};

struct Thread : HostThread {
    bool ended;
    HostPlace at; /* where it waits */
    int barrier;  /* which one; -1: none */
    /* of a warp instruction */
    uint32_t mask;
    bool some;
    void *mine;
    HostCombine *combine;
    /* of asynchronous copies */
    std::vector<AsyncCopy> copies;
    int groups; /* committed so far */
};

struct Warp { /* a bit a lane */
    uint32_t alive, ready, waiting;
    int last;  /* the lane that ran */
    bool down; /* the next one is the one below */
};

struct Barrier {
    int there;
    HostPlace at;
    bool any, had; /* yes so far; of the one before */
};

HostThread *host_thread;
HostBlock host_block;

static Thread threads[MOST_THREADS];
static Fiber fibers[MOST_THREADS];
static Warp warps[MOST_WARPS];
static Barrier barriers[BARRIERS];
static Fiber home;
static int n_threads, n_warps, living;
static const HostGrid *grid;
static const std::function<void()> *kernel;
static bool failed;
static char error[600];
static uint64_t draws;

const char *host_error(void) { return error; }

uint32_t host_draw(uint32_t below) {
    if (!draws) {
        const char *seed = getenv("CUDA_HOST_SEED");
        draws = (seed ? strtoull(seed, nullptr, 10) : 1) * 0x9e3779b97f4a7c15ull | 1;
    }
    draws ^= draws << 13, draws ^= draws >> 7, draws ^= draws << 17;
    return (uint32_t)((draws >> 32) * below >> 32);
}

/* ---- errors ---- */

static const char *short_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

static void keep_error(const char *fmt, va_list ap) {
    failed = true;
    int n = snprintf(error, sizeof error, "kernel launched at %s:%d, block (%u,%u,%u) of %u threads: ",
                     short_name(grid->from.file), grid->from.line, host_block.index.x, host_block.index.y,
                     host_block.index.z, (unsigned)n_threads);
    vsnprintf(error + n, sizeof error - (size_t)n, fmt, ap);
}

static void set_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void set_error(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    keep_error(fmt, ap);
    va_end(ap);
}

static Thread *self() { return static_cast<Thread *>(host_thread); }

void host_fail(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    keep_error(fmt, ap);
    va_end(ap);
    fiber_switch(&fibers[self()->number], &home, true);
    abort();
}

/* Nobody is ready, and some are left: a barrier or a warp instruction that not all reach. */
static void say_who_waits() {
    const Thread *first = nullptr, *other = nullptr;
    int there = 0, ended = 0;
    for (int i = 0; i < n_threads; i++) {
        const Thread *t = &threads[i];
        ended += t->ended;
        if (t->ended) continue;
        if (!first || (first->barrier >= 0 && t->barrier < 0)) first = t;
    }
    for (int i = 0; i < n_threads; i++) {
        const Thread *t = &threads[i];
        if (t->ended) continue;
        bool same = t->at.line == first->at.line && t->at.file == first->at.file;
        there += same;
        if (!same && !other) other = t;
    }
    char rest[160] = "";
    if (other)
        snprintf(rest, sizeof rest, ", thread %d waits at %s:%d", other->number, short_name(other->at.file),
                 other->at.line);
    if (first->barrier >= 0)
        set_error("the barrier at %s:%d is reached by %d of %d threads; %d have ended%s", short_name(first->at.file),
                  first->at.line, there, n_threads, ended, rest);
    else
        set_error("the warp instruction at %s:%d waits in warp %d for lanes 0x%08x, there are 0x%08x of 0x%08x alive%s",
                  short_name(first->at.file), first->at.line, first->warp, first->mask, warps[first->warp].waiting,
                  warps[first->warp].alive, rest);
}

/* ---- taking turns ---- */

static Thread *next_lane(Warp &w, int warp) {
    uint32_t above = w.last == 31 ? 0 : ~0u << (w.last + 1), below = (1u << w.last) - 1;
    uint32_t first = w.ready & (w.down ? below : above), all = first ? first : w.ready;
    w.last = w.down ? 31 - __builtin_clz(all) : __builtin_ctz(all);
    return &threads[warp * HOST_WARP + w.last];
}

/* The thread cannot go on now: another lane of its warp does, or the scheduler chooses. */
static void leave(Thread *t, bool ends) {
    Warp &w = warps[t->warp];
    Thread *next = w.ready ? next_lane(w, t->warp) : nullptr;
    if (next) host_thread = next;
    fiber_switch(&fibers[t->number], next ? &fibers[next->number] : &home, ends);
}

/* Another warp's turn, or another lane's, once in a while where order must not matter. */
static void perhaps_leave(Thread *t) {
    if (host_draw(16)) return;
    warps[t->warp].down = host_draw(2);
    fiber_switch(&fibers[t->number], &home, false);
}

static void settle_ended(Warp &w, int warp);

static void thread_main() {
    fiber_entered();
    (*kernel)();
    Thread *t = self();
    Warp &w = warps[t->warp];
    t->ended = true;
    living--;
    w.alive &= ~(1u << t->lane), w.ready &= ~(1u << t->lane);
    settle_ended(w, t->warp);
    leave(t, true);
    abort();
}

/* ---- warp instructions ---- */

static bool meets(const Thread *a, const Thread *b) {
    return a->mask == b->mask && a->combine == b->combine && a->at.line == b->at.line && a->at.file == b->at.file;
}

/* All lanes that t waits for are there: they go on. */
static bool combine_at(Warp &w, const Thread *t) {
    uint32_t needed = t->some ? t->mask & w.alive : t->mask;
    if ((w.waiting & needed) != needed) return false;
    void *of_lane[HOST_WARP] = {};
    Thread *lane = &threads[t->warp * HOST_WARP];
    for (int i = 0; i < HOST_WARP; i++) {
        if (!(needed >> i & 1)) continue;
        if (!meets(t, &lane[i])) return false;
        of_lane[i] = lane[i].mine;
    }
    t->combine(of_lane);
    w.waiting &= ~needed, w.ready |= needed;
    return true;
}

/* A lane has ended, which others may have waited for. */
static void settle_ended(Warp &w, int warp) {
    for (int i = 0; i < HOST_WARP && w.waiting; i++)
        if (w.waiting >> i & 1) combine_at(w, &threads[warp * HOST_WARP + i]);
}

void host_converge(uint32_t mask, bool some, void *mine, HostCombine *combine, HostPlace at) {
    Thread *t = self();
    Warp &w = warps[t->warp];
    uint32_t bit = 1u << t->lane;
    if (!(mask & bit))
        host_fail("the warp instruction at %s:%d is reached by lane %d, which its mask 0x%08x lacks",
                  short_name(at.file), at.line, t->lane, mask);
    t->mask = mask, t->some = some, t->mine = mine, t->combine = combine, t->at = at, t->barrier = -1;
    w.ready &= ~bit, w.waiting |= bit;
    if (combine_at(w, t)) perhaps_leave(t);
    else leave(t, false);
}

/* ---- barriers ---- */

static bool sync(int number, int count, bool yes, HostPlace at) {
    Thread *t = self();
    Barrier &b = barriers[number];
    warps[t->warp].ready &= ~(1u << t->lane);
    t->barrier = number, t->at = at;
    if (b.there && (b.at.line != at.line || b.at.file != at.file))
        host_fail("the barrier at %s:%d is reached by thread %d while others wait at %s:%d", short_name(at.file),
                  at.line, t->number, short_name(b.at.file), b.at.line);
    b.at = at, b.any |= yes;
    if (++b.there < count) {
        leave(t, false);
        return b.had;
    }
    for (int i = 0; i < n_threads; i++)
        if (!threads[i].ended && threads[i].barrier == number) {
            threads[i].barrier = -1;
            warps[threads[i].warp].ready |= 1u << threads[i].lane;
        }
    b.had = b.any, b.any = false, b.there = 0;
    warps[t->warp].down = host_draw(2);
    fiber_switch(&fibers[t->number], &home, false);
    return b.had;
}

bool host_sync_block(bool yes, HostPlace at) { return sync(0, n_threads, yes, at); }

void host_sync_some(int number, int count, HostPlace at) {
    if (number < 0 || number >= BARRIERS || count % HOST_WARP)
        host_fail("barrier %d of %d threads at %s:%d: there are 16, of whole warps", number, count, short_name(at.file),
                  at.line);
    sync(number, count, false, at);
}

/* ---- asynchronous copies ---- */

static void land(Thread *t, int groups) { /* those in front of that one */
    size_t n = 0;
    for (; n < t->copies.size() && t->copies[n].group < groups; n++) {
        const AsyncCopy &c = t->copies[n];
        if (c.from) memcpy(c.to, c.from, (size_t)c.bytes);
        else memset(c.to, 0, (size_t)c.bytes);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)n);
}

void host_copy_async(void *to, const void *from, int bytes) {
    self()->copies.push_back({to, from, bytes, self()->groups});
}
void host_copies_commit(void) {
    Thread *t = self();
    t->groups++;
    if (!host_draw(4)) land(t, t->groups);
}
void host_copies_wait(int left) { land(self(), self()->groups - left); }

/* ---- a grid ---- */

static void begin_block(int64_t number) {
    const dim3 &g = grid->grid, &d = grid->block;
    unsigned x = (unsigned)(number % g.x), y = (unsigned)(number / g.x % g.y), z = (unsigned)(number / g.x / g.y);
    host_block = {{x, y, z}, g, d};
    living = n_threads;
    if (!fibers[0].stack) fiber_open(fibers, MOST_THREADS);
    memset(barriers, 0, sizeof barriers);
    for (int w = 0; w < n_warps; w++) {
        int lanes = n_threads - w * HOST_WARP;
        uint32_t all = lanes >= HOST_WARP ? ~0u : (1u << lanes) - 1;
        warps[w] = {all, all, 0, (int)host_draw(HOST_WARP), host_draw(2) != 0};
    }
    for (int i = 0; i < n_threads; i++) {
        Thread *t = &threads[i];
        unsigned n = (unsigned)i;
        t->index = {n % d.x, n / d.x % d.y, n / d.x / d.y};
        t->number = i, t->warp = i / HOST_WARP, t->lane = i % HOST_WARP;
        t->ended = false, t->barrier = -1, t->groups = 0;
        t->copies.clear();
        fiber_begin(&fibers[i], thread_main);
    }
    shared_begin(grid->shared);
}

static void play_block() {
    while (living && !failed) {
        int w = (int)host_draw((uint32_t)n_warps), seen = 0;
        for (; seen < n_warps && !warps[w].ready; seen++) w = (w + 1) % n_warps;
        if (seen == n_warps) {
            say_who_waits();
            return;
        }
        Thread *t = next_lane(warps[w], w);
        host_thread = t;
        fiber_switch(&home, &fibers[t->number], false);
    }
    if (failed) return;
    for (int i = 0; i < n_threads; i++)
        if (!fiber_fits(&fibers[i])) set_error("thread %d needs more than %d KiB of stack", i, FIBER_STACK >> 10);
    const char *wrong = shared_end();
    if (wrong) set_error("%s", wrong);
}

#ifndef __SANITIZE_ADDRESS__
static void say_where(int signal) {
    if (grid) {
        set_error("thread %d touches memory that is not there", host_thread ? host_thread->number : -1);
        if (write(STDERR_FILENO, error, strlen(error)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) _exit(1);
    }
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(signal, &usual, nullptr);
}
static void hear_faults() {
    static char stack[64 << 10];
    static bool done;
    if (done) return;
    done = true;
    stack_t other = {};
    other.ss_sp = stack, other.ss_size = sizeof stack;
    struct sigaction a = {};
    a.sa_handler = say_where, a.sa_flags = SA_ONSTACK;
    sigaltstack(&other, nullptr);
    sigaction(SIGSEGV, &a, nullptr);
    sigaction(SIGBUS, &a, nullptr);
}
#else
static void hear_faults() {}
#endif

bool host_run(const HostGrid &g, const std::function<void()> &fn) {
    int64_t blocks = (int64_t)g.grid.x * g.grid.y * g.grid.z;
    hear_faults();
    grid = &g, kernel = &fn, failed = false;
    n_threads = (int)(g.block.x * g.block.y * g.block.z), n_warps = (n_threads + HOST_WARP - 1) / HOST_WARP;
    int64_t first = host_draw((uint32_t)blocks), step = host_draw(2) ? 1 : blocks - 1;
    for (int64_t i = 0; i < blocks && !failed; i++) {
        begin_block((first + i * step) % blocks);
        play_block();
    }
    grid = nullptr, host_thread = nullptr;
    return !failed;
}
