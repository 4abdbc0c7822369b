/* courier.c - how errands are queued and waited for. */
#include "base/courier.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"

enum { STACK_BYTES = 256 * 1024 };

struct Courier {
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    ErrandFn *fn;
    void *context; /* keeps */
    Errand ring[COURIER_ROOM];
    int64_t sent, done; /* errands so far */
    bool leave;
    Err failed;
};

static void *work(void *context) {
    Courier *c = context;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (!c->leave && c->done == c->sent) pthread_cond_wait(&c->changed, &c->lock);
        if (c->done == c->sent) break;
        Errand errand = c->ring[c->done % COURIER_ROOM];
        Err e = {0};
        bool skip = c->failed.code != ERR_NONE;
        pthread_mutex_unlock(&c->lock);
        if (!skip) c->fn(c->context, &errand, &e);
        pthread_mutex_lock(&c->lock);
        if (e.code != ERR_NONE) c->failed = e;
        c->done++;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

bool courier_open(Courier **out, ErrandFn *fn, void *context, Err *e) {
    Courier *c = MEM_NEW(Courier, 1);
    c->fn = fn;
    c->context = context;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    int status = thread_start(&c->id, STACK_BYTES, work, c, "courier thread");
    if (!status) {
        *out = c;
        return true;
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
    return fail(e, ERR_FAIL, "the system refused a thread for reading and writing: %s", strerror(status));
}

void courier_close(Courier *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->leave = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->id, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

int64_t courier_send(Courier *c, Errand errand) {
    pthread_mutex_lock(&c->lock);
    while (c->sent - c->done == COURIER_ROOM) pthread_cond_wait(&c->changed, &c->lock);
    c->ring[c->sent % COURIER_ROOM] = errand;
    int64_t number = ++c->sent;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return number;
}

bool courier_await(Courier *c, int64_t number, Err *e) {
    pthread_mutex_lock(&c->lock);
    while (c->done < number) pthread_cond_wait(&c->changed, &c->lock);
    bool ok = c->failed.code == ERR_NONE;
    if (!ok && e) *e = c->failed;
    pthread_mutex_unlock(&c->lock);
    return ok;
}
