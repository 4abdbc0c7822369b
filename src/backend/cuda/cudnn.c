/* cudnn.c - when cuDNN's attention runs instead of our own kernels, and the plans it has made so far.
 *
 * The library is loaded when a program first asks for it (AttrHeads.by), outside a capture: the first play of a
 * program is. A shape's two plans, forward and backward, are made together; if the library refuses one of them or
 * wants more scratch than ir/block_device.h planned, our own kernels serve both, and one line says so. That formula
 * is what it wants on compute capability 9.0 and 10.0; on 8.x and 12.0 it keeps dk and dv of every query head in
 * fp32, twice the bytes, so with shared KV heads our own kernels serve there. */
#include "backend/cuda/cudnn.h"

#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "backend/cuda/cudnn_graph.h"
#include "base/log.h"
#include "ir/block_device.h"

enum { MOST_PAIRS = 24, FIRST_MAJOR = 8 };

typedef struct Pair {
    CudnnShape shape;
    CudnnPlan forward, backward; /* without a plan: refused */
    bool ran[2];                 /* forward, backward: its code is on the card */
    char why[240];               /* refused: the library's words */
} Pair;

struct CudaAttention {
    Cudnn library;
    CudnnHandle handle; /* NULL: could not be opened */
    Err error;          /* why not */
    int64_t runs, device_bytes;
    int n_pairs;
    Pair pair[MOST_PAIRS];
};

/* ---- opening ---- */

static int64_t taken_bytes(void) { /* of the card, by anybody */
    size_t available = 0, total = 0;
    return cudaMemGetInfo(&available, &total) == cudaSuccess ? (int64_t)(total - available) : 0;
}

static CudaAttention *open_library(CudaBackend *c) {
    if (c->attention) return c->attention;
    CudaAttention *t = c->attention = MEM_NEW(CudaAttention, 1);
    int64_t before = taken_bytes();
    if (c->major < FIRST_MAJOR) {
        fail(&t->error, ERR_FAIL, "%s has compute capability %d.%d, cuDNN's attention begins at %d.0", c->name,
             c->major, c->minor, FIRST_MAJOR);
    } else if (cudnn_load(&t->library, &t->error)) {
        int status = t->library.cudnnCreate(&t->handle);
        if (status != CUDNN_SUCCESS) {
            t->handle = NULL;
            fail(&t->error, ERR_FAIL, "cuDNN %zu: opening it: %s", t->library.version,
                 t->library.cudnnGetErrorString(status));
        }
    }
    t->device_bytes += MAX2(taken_bytes() - before, 0);
    return t;
}

void cuda_attention_close(CudaBackend *c) {
    CudaAttention *t = c->attention;
    if (!t) return;
    for (int i = 0; i < t->n_pairs; i++) {
        cudnn_plan_free(&t->pair[i].forward, &t->library);
        cudnn_plan_free(&t->pair[i].backward, &t->library);
    }
    if (t->handle) t->library.cudnnDestroy(t->handle);
    cudnn_unload(&t->library);
    mem_free(t);
    c->attention = NULL;
}

bool cuda_attention_ready(Backend *b, Err *e) {
    CudaAttention *t = open_library(cuda_backend(b));
    if (t->handle) return true;
    *e = t->error;
    return false;
}

CudaAttentionState cuda_attention_state(Backend *b) {
    const CudaAttention *t = cuda_backend(b)->attention;
    CudaAttentionState s = {0};
    if (!t) return s;
    s = (CudaAttentionState){.version = (int64_t)t->library.version, .runs = t->runs, .device_bytes = t->device_bytes};
    for (int i = 0; i < t->n_pairs; i++) s.plans += t->pair[i].backward.plan ? 2 : 0;
    return s;
}

/* ---- plans ---- */

/* Before 9.16 the backward of rows that do not fill its tiles needs a mask of their lengths, which we do not give. */
static bool knows_odd_rows(const Cudnn *library, int64_t seq) {
    enum { FIRST = 91600, TILE = 128 };
    return library->version >= FIRST || seq % TILE == 0;
}

static bool same_shape(const CudnnShape *x, const CudnnShape *y) {
    return x->rows == y->rows && x->seq == y->seq && x->heads == y->heads && x->kv_heads == y->kv_heads &&
           x->dim == y->dim && x->scale == y->scale && x->format == y->format;
}

static bool make_plans(Pair *p, CudaAttention *t, const AttrHeads *h, Err *e) {
    const CudnnShape *s = &p->shape;
    int64_t backward_bytes = device_library_attend_grad(h, s->rows * s->seq).rest_bytes;
    if (!knows_odd_rows(&t->library, s->seq))
        return fail(e, ERR_FAIL, "cuDNN %zu: rows of %lld tokens", t->library.version, (long long)s->seq);
    return cudnn_plan_make(&p->forward, &t->library, t->handle, *s, false, DEVICE_LIBRARY_SLACK, e) &&
           cudnn_plan_make(&p->backward, &t->library, t->handle, *s, true, backward_bytes, e);
}

static Pair *make_pair(CudaBackend *c, CudaAttention *t, const CudnnShape *s, const AttrHeads *h) {
    Pair *p = &t->pair[t->n_pairs++];
    Err e = {0};
    int64_t before = taken_bytes();
    *p = (Pair){.shape = *s};
    bool made = make_plans(p, t, h, &e);
    t->device_bytes += MAX2(taken_bytes() - before, 0);
    if (made) return p;
    cudnn_plan_free(&p->forward, &t->library);
    memcpy(p->why, e.text, sizeof p->why - 1);
    log_line("cuda:%d: attention by our own kernels: %s", c->device, e.text);
    return p;
}

static CudnnShape shape_of(const AttrHeads *h, const Tensor *qkv) {
    return (CudnnShape){.rows = cuda_rows(qkv) / h->seq, .seq = h->seq, .heads = h->heads, .kv_heads = h->kv_heads,
                        .dim = h->head_dim, .scale = h->scale, .format = qkv->format};
}

/* Our own kernels serve, unless the user insists on the library. */
static Pair *refuse(Backend *b, const AttrHeads *h, const char *why) {
    if (h->by == ATTEND_LIBRARY) cuda_fail(b, "--attention cudnn: %s", why);
    return NULL;
}

/* The plans that serve a step; NULL: our own kernels do. */
static Pair *pair_of(Backend *b, const AttrHeads *h, const Tensor *qkv) {
    CudaBackend *c = cuda_backend(b);
    if (h->by == ATTEND_OWN) return NULL;
    if (!device_attend_by_library(h, qkv->format))
        return refuse(b, h, "it serves bf16 and fp16, heads of 64 to 128 numbers, rows of 128 tokens or more");
    if (!c->attention && cuda_is_capturing(b)) {
        cuda_fail(b, "attention is not loaded inside a capture"); /* the play is issued again without it */
        return NULL;
    }
    bool first = !c->attention;
    CudaAttention *t = open_library(c);
    if (!t->handle) {
        if (first && h->by == ATTEND_FAST)
            log_line("cuda:%d: attention by our own kernels: %s", c->device, t->error.text);
        return refuse(b, h, t->error.text);
    }
    CudnnShape s = shape_of(h, qkv);
    Pair *p = NULL;
    for (int i = 0; i < t->n_pairs && !p; i++)
        if (same_shape(&t->pair[i].shape, &s)) p = &t->pair[i];
    if (!p && cuda_is_capturing(b)) {
        cuda_fail(b, "attention of a new shape is not planned inside a capture");
        return NULL;
    }
    if (!p && t->n_pairs == MOST_PAIRS) return refuse(b, h, "too many shapes in one process");
    if (!p) p = make_pair(c, t, &s, h);
    return p->backward.plan ? p : refuse(b, h, p->why);
}

bool cuda_library_attends(Backend *b, const Args *a, Operand qkv) {
    return pair_of(b, &a->step->attr.heads, qkv.t) != NULL;
}

/* ---- running ---- */

/* Said of a direction when it first runs: where ours are faster, only the other one is the library's. */
static void tell(const CudaBackend *c, const Pair *p, bool backward) {
    const CudnnShape *s = &p->shape;
    log_line("cuda:%d: attention %s by cuDNN %zu: %lld x %lld tokens, %d/%d heads of %d, scratch %s", c->device,
             backward ? "backward" : "forward", c->attention->library.version, (long long)s->rows, (long long)s->seq,
             s->heads, s->kv_heads, s->dim,
             units_bytes(backward ? p->backward.workspace_bytes : p->forward.workspace_bytes).s);
}

static void run_plan(Backend *b, Queue q, Pair *pair, bool backward, const CudnnAddresses *at) {
    CudaAttention *t = cuda_backend(b)->attention;
    const CudnnPlan *p = backward ? &pair->backward : &pair->forward;
    Err e = {0};
    bool loads = !pair->ran[backward] && !cuda_is_capturing(b);
    int64_t before = loads ? taken_bytes() : 0;
    int status = t->library.cudnnSetStream(t->handle, cuda_stream(b, q));
    if (status != CUDNN_SUCCESS) cuda_fail(b, "cuDNN: choosing a queue: %s", t->library.cudnnGetErrorString(status));
    else if (!cudnn_plan_run(p, &t->library, t->handle, at, &e)) cuda_fail(b, "%s", e.text);
    if (loads) t->device_bytes += MAX2(taken_bytes() - before, 0);
    if (!pair->ran[backward]) tell(cuda_backend(b), pair, backward);
    pair->ran[backward] = true;
    t->runs++;
}

bool cuda_library_attend(Backend *b, Queue q, const Args *a) {
    Operand qkv = a->attend.in.qkv, o = a->attend.out.o;
    Pair *p = pair_of(b, &a->step->attr.heads, qkv.t);
    if (!p) return false;
    CHECK(a->workspace_bytes >= DEVICE_LIBRARY_SLACK && o.t->format == qkv.t->format);
    CudnnAddresses at = {.qkv = qkv.data, .o = o.data, .lse = a->attend.out.lse.data, .workspace = a->workspace};
    run_plan(b, q, p, false, &at);
    return true;
}

bool cuda_library_attend_grad(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    Operand qkv = a->attend_grad.in.qkv, d_qkv = a->attend_grad.out.d_qkv;
    Pair *p = pair_of(b, h, qkv.t);
    if (!p) return false;
    DeviceLibraryAttend d = device_library_attend_grad(h, cuda_rows(qkv.t));
    CHECK(a->workspace_bytes >= d.bytes && d_qkv.t->format == qkv.t->format);
    char *scratch = a->workspace;
    CudnnAddresses at = {.qkv = qkv.data,
                         .o = a->attend_grad.in.o.data,
                         .lse = a->attend_grad.in.lse.data,
                         .d_o = a->attend_grad.in.d_o.data,
                         .dqkv = d_qkv.data,
                         .dq_sums = (float *)scratch,
                         .sums = (float *)(scratch + d.sums),
                         .workspace = scratch + d.rest};
    run_plan(b, q, p, true, &at);
    return true;
}
