/* threads.c - how a team waits for work and shares it out.
 *
 * Workers take tiles from one atomic counter. Between loops they spin briefly (a training step is thousands of
 * short loops), then sleep on a condition variable. */
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

enum { SPINS = 20000, MOST_THREADS = 1024 };

struct Threads {
    int n, started;
    pthread_t *ids;      /* owns; n - 1 workers */
    TileFn *fn;          /* the current loop ... */
    void *context;       /* ... written before `round` is raised */
    int64_t tiles;
    atomic_llong next;   /* the next tile nobody has taken */
    atomic_int round;    /* raised once per loop; -1: leave */
    atomic_int busy;     /* workers still inside the current loop */
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

typedef struct Worker {
    Threads *team;
    int index;
} Worker;

static void take_tiles(Threads *t, int worker) {
    for (;;) {
        int64_t tile = atomic_fetch_add(&t->next, 1);
        if (tile >= t->tiles) return;
        t->fn(t->context, tile, worker);
    }
}

static int await_round(Threads *t, int seen) {
    for (int i = 0; i < SPINS; i++) {
        int now = atomic_load(&t->round);
        if (now != seen) return now;
        __builtin_ia32_pause();
    }
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->round) == seen) pthread_cond_wait(&t->wake, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return atomic_load(&t->round);
}

static void *work(void *arg) {
    Worker me = *(Worker *)arg;
    mem_free(arg);
    for (int seen = 0;;) {
        seen = await_round(me.team, seen);
        if (seen < 0) return NULL;
        take_tiles(me.team, me.index);
        atomic_fetch_sub(&me.team->busy, 1);
    }
}

static void raise_round(Threads *t, int round) {
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->round, round);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

void threads_for(Threads *t, int64_t tiles, TileFn *fn, void *context) {
    if (t->n == 1 || tiles <= 1) {
        for (int64_t i = 0; i < tiles; i++) fn(context, i, 0);
        return;
    }
    t->fn = fn;
    t->context = context;
    t->tiles = tiles;
    atomic_store(&t->next, 0);
    atomic_store(&t->busy, t->n - 1);
    int round = atomic_load(&t->round);
    raise_round(t, round == INT32_MAX ? 1 : round + 1);
    take_tiles(t, 0);
    for (int spins = 0; atomic_load(&t->busy); spins++) /* workers may be descheduled: yield after a while */
        if (spins > SPINS) sched_yield();
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

int thread_run_within(int seconds, void *(*fn)(void *), void *context) {
    pthread_t id;
    struct timespec until;
    int status = thread_start(&id, THREAD_STACK_BYTES, fn, context, "thread");
    if (status) return status;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    status = pthread_timedjoin_np(id, NULL, &until);
    if (status) pthread_detach(id);
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
    raise_round(t, -1);
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
