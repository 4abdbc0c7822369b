/* threads.c - how a team waits for work and shares it out.
 *
 * Tiles are claimed one by one, by the caller and by every worker that is awake (dynamic scheduling). A loop ends when
 * its tiles are done; it never waits for a worker that has not been scheduled, which on a busy machine may take
 * milliseconds, while a training step has thousands of short loops. Between loops a worker spins for about as long as
 * sleeping and waking up would take, then sleeps on a condition variable: on a busy machine a longer spin would only
 * take the processor from the caller. */
#include "base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/process.h"

enum { SPINS = 5000 /* about 0.1 ms; most loops begin 10 us after the last */, MOST_THREADS = 1024 };

/* `claims` holds a loop's number above and the count of its unclaimed tiles below. Who takes one off reads the loop's
 * fields afterwards: they do not change before that tile is done. */
enum { TILE_BITS = 32 };

struct Threads {
    int n, started;
    pthread_t *ids; /* owns; n - 1 workers */
    TileFn *fn;     /* the current loop ... */
    void *context;
    int64_t tiles;
    atomic_ullong claims;
    atomic_llong done; /* tiles of the current loop */
    atomic_int leave;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

typedef struct Worker {
    Threads *team;
    int index;
} Worker;

static uint32_t unclaimed(unsigned long long claims) { return (uint32_t)claims; }
static uint32_t loop_of(unsigned long long claims) { return (uint32_t)(claims >> TILE_BITS); }

static void take_tiles(Threads *t, int worker) {
    unsigned long long claims = atomic_load(&t->claims);
    while (unclaimed(claims)) {
        if (!atomic_compare_exchange_weak(&t->claims, &claims, claims - 1)) continue;
        t->fn(t->context, t->tiles - unclaimed(claims), worker);
        atomic_fetch_add(&t->done, 1);
        claims = atomic_load(&t->claims);
    }
}

static bool is_idle(Threads *t, uint32_t seen) {
    return loop_of(atomic_load(&t->claims)) == seen && !atomic_load(&t->leave);
}

/* Returns when there is another loop than `seen`, or none will come. */
static uint32_t await_loop(Threads *t, uint32_t seen) {
    for (int i = 0; i < SPINS && is_idle(t, seen); i++) __builtin_ia32_pause();
    if (is_idle(t, seen)) {
        pthread_mutex_lock(&t->lock);
        while (is_idle(t, seen)) pthread_cond_wait(&t->wake, &t->lock);
        pthread_mutex_unlock(&t->lock);
    }
    return loop_of(atomic_load(&t->claims));
}

static void *work(void *arg) {
    Worker me = *(Worker *)arg;
    mem_free(arg);
    for (uint32_t seen = 0;;) {
        seen = await_loop(me.team, seen);
        if (atomic_load(&me.team->leave)) return NULL;
        take_tiles(me.team, me.index);
    }
}

static void begin_loop(Threads *t, uint32_t tiles) {
    uint32_t loop = loop_of(atomic_load(&t->claims)) + 1;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->claims, (unsigned long long)loop << TILE_BITS | tiles);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

void threads_for(Threads *t, int64_t tiles, TileFn *fn, void *context) {
    CHECK(tiles <= UINT32_MAX);
    if (!t || t->n == 1 || tiles <= 1) {
        for (int64_t i = 0; i < tiles; i++) fn(context, i, 0);
        return;
    }
    t->fn = fn;
    t->context = context;
    t->tiles = tiles;
    atomic_store(&t->done, 0);
    begin_loop(t, (uint32_t)tiles);
    take_tiles(t, 0);
    for (int spins = 0; atomic_load(&t->done) < tiles; spins++) /* who has the last ones may be descheduled */
        if (spins > SPINS) sched_yield();
}

enum { COPY_BYTES = 1 << 20 };

typedef struct Copying {
    char *to;
    const char *from;
    int64_t bytes;
} Copying;

static void copy_tile(void *context, int64_t tile, int worker) {
    const Copying *c = context;
    int64_t at = tile * COPY_BYTES;
    memcpy(c->to + at, c->from + at, (size_t)MIN2(COPY_BYTES, c->bytes - at));
}

void threads_copy(Threads *t, void *to, const void *from, int64_t bytes) {
    threads_for(t, (bytes + COPY_BYTES - 1) / COPY_BYTES, copy_tile, &(Copying){to, from, bytes});
}

int thread_start(pthread_t *id, int64_t stack_bytes, void *(*fn)(void *), void *context, const char *what) {
    sigset_t all, before;
    pthread_attr_t small;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&small);
    int status = pthread_attr_setstacksize(&small, (size_t)stack_bytes);
    if (!status) status = fault_here(FAULT_THREAD, what) ? EAGAIN : pthread_create(id, &small, fn, context);
    pthread_attr_destroy(&small);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

bool threads_open(Threads **out, int n, Err *e) {
    if (n < 1 || n > MOST_THREADS) return fail(e, ERR_USAGE, "threads: %d is not between 1 and %d", n, MOST_THREADS);
    Threads *t = MEM_NEW(Threads, 1);
    t->n = n;
    t->ids = MEM_NEW(pthread_t, n);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    for (int i = 1; i < n; i++) {
        Worker *w = MEM_NEW(Worker, 1);
        *w = (Worker){t, i};
        int rc = thread_start(&t->ids[i], THREAD_STACK_BYTES, work, w, "thread");
        if (rc) {
            mem_free(w);
            threads_close(t);
            ProcessRefusal no = process_refusal();
            return fail(e, no.code, "threads: the system refused thread %d of %d: %s%s. Give fewer --threads",
                        i + 1, n, strerror(rc), no.why);
        }
        t->started++;
    }
    *out = t;
    return true;
}

void threads_close(Threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->leave, 1);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int i = 1; i <= t->started; i++) pthread_join(t->ids[i], NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    mem_free(t->ids);
    mem_free(t);
}

int threads_count(const Threads *t) { return t->n; }

int threads_available(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}
