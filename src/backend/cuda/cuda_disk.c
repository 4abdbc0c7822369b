/* cuda_disk.c - disk offload on a GPU: reads and writes of files as steps of a stream.
 *
 * A read or write is a host function on its queue's stream: the driver calls it, on a thread of its own, when the
 * steps in front of it are over, and the steps behind it wait. It is captured like any other step, so that a
 * replayed graph reads the files again. Between disk and device stand pinned buffers that the plan has placed. */
#include <string.h>

#include "backend/cuda/cuda_int.h"

struct CudaDiskMove { /* stands as long as the pool: a graph holds its address */
    CudaDiskMove *next;
    CudaBackend *c;
    void *to;
    const void *from;
    int64_t bytes;
};

enum { DISK_WELL, DISK_FAILING, DISK_FAILED };

static bool move_now(const Disk *d, void *to, const void *from, int64_t bytes, Err *e) {
    return disk_holds(d, from) ? disk_read(d, to, from, bytes, e) : disk_write(d, to, from, bytes, e);
}

/* Called by the driver, where no call into it is allowed. After a failure nothing more is moved. */
static void CUDART_CB move_in_turn(void *context) {
    const CudaDiskMove *m = context;
    CudaBackend *c = m->c;
    Err e = {0};
    int well = DISK_WELL;
    if (atomic_load(&c->disk_state) != DISK_WELL || move_now(&c->disk, m->to, m->from, m->bytes, &e)) return;
    if (!atomic_compare_exchange_strong(&c->disk_state, &well, DISK_FAILING)) return; /* another was first */
    c->disk_error = e;
    atomic_store(&c->disk_state, DISK_FAILED);
}

void cuda_disk_check(CudaBackend *c) {
    if (atomic_load(&c->disk_state) == DISK_FAILED && c->error.code == ERR_NONE) c->error = c->disk_error;
}

bool cuda_disk_holds(const CudaBackend *c, const void *p) {
    return disk_holds(&c->disk, p);
}

void cuda_disk_queue(Backend *b, Queue q, void *to, const void *from, int64_t bytes) {
    CudaBackend *c = cuda_backend(b);
    CudaDiskMove *m = c->disk_moves;
    while (m && (m->to != to || m->from != from || m->bytes != bytes)) m = m->next;
    if (!m) {
        m = MEM_NEW(CudaDiskMove, 1);
        *m = (CudaDiskMove){c->disk_moves, c, to, from, bytes};
        c->disk_moves = m;
    }
    cuda_ok(b, cudaLaunchHostFunc(cuda_stream(b, q), move_in_turn, m), "queueing a read or write");
}

void cuda_disk_move(Backend *b, void *to, const void *from, int64_t bytes) {
    CudaBackend *c = cuda_backend(b);
    Err e = {0};
    if (move_now(&c->disk, to, from, bytes, &e)) return;
    if (!disk_holds(&c->disk, to))
        memset(to, 0, (size_t)bytes); /* the error sticks; the caller must not see what was there */
    if (c->error.code == ERR_NONE) c->error = e;
}

/* ---- the pool ---- */

void *cuda_disk_open(CudaBackend *c, int64_t bytes, Err *e) {
    atomic_store(&c->disk_state, DISK_WELL);
    return disk_open(&c->disk, c->offload_dir, bytes, e) ? c->disk.base : NULL;
}

void cuda_disk_close(CudaBackend *c) { /* nothing is queued and no graph is left */
    for (CudaDiskMove *m = c->disk_moves, *next; m; m = next) {
        next = m->next;
        mem_free(m);
    }
    c->disk_moves = NULL;
    if (c->disk.base) disk_close(&c->disk);
}

bool cuda_disk_link(Backend *b, const void *at, const char *path, int64_t file_at, int64_t bytes, Err *e) {
    return disk_link(&cuda_backend(b)->disk, at, path, file_at, bytes, e);
}

bool cuda_disk_settle(Backend *b, int64_t *own_bytes, Err *e) {
    return disk_settle(&cuda_backend(b)->disk, own_bytes, e);
}
