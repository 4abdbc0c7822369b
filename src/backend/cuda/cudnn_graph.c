/* cudnn_graph.c - causal attention, forward and backward, as graphs of cuDNN's backend API.
 *
 * The library knows a graph of small operations by its pattern and answers with one fused kernel, so the graphs below
 * are the formulas, in the order the library looks for (its attention node without a graph has no causal mask).
 * Tensors have four dimensions: row of the batch, head, token, and what is summed or stored. Scores and everything
 * made from them are virtual: they exist inside the kernel only. The first refusal sticks in the maker and names
 * the descriptor and the attribute; what follows does nothing. */
#include "backend/cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <float.h>
#include <string.h>

#include "base/str.h"

/* ---- the library ---- */

#ifndef CUDA_LIBRARIES
#define CUDA_LIBRARIES "/usr/local/cuda/lib64"
#endif

bool cudnn_load(Cudnn *c, Err *e) {
    static const char *const folders[] = {"", CUDA_LIBRARIES "/", "/usr/local/cuda/lib64/"};
    enum { FIRST_VERSION = 90600 }; /* older ones want the sums of dq zeroed by the caller */
    *c = (Cudnn){0};
    for (int f = 0; f < COUNT_OF(folders) && !c->file; f++) {
        Str path = {0};
        str_addf(&path, "%slibcudnn.so.9", folders[f]);
        c->file = dlopen(str_text(&path), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* it opens others */
        str_free(&path);
    }
    if (!c->file)
        return fail(e, ERR_FAIL,
                    "libcudnn.so.9 was not found, neither on the system's paths nor in %s. Install cuDNN 9, "
                    "name its folder in LD_LIBRARY_PATH, or use --attention own",
                    CUDA_LIBRARIES);
    const char *lacks = NULL;
#define CUDNN_FIND(type, name, args)             \
    *(void **)&c->name = dlsym(c->file, #name); \
    if (!c->name) lacks = #name;
    CUDNN_CALLS(CUDNN_FIND)
#undef CUDNN_FIND
    if (lacks) fail(e, ERR_FAIL, "libcudnn.so.9 has no %s: it is too old", lacks);
    else if ((c->version = c->cudnnGetVersion()) >= FIRST_VERSION) return true;
    else fail(e, ERR_FAIL, "libcudnn.so.9 is version %zu, the first that serves is %d", c->version, FIRST_VERSION);
    cudnn_unload(c);
    return false;
}

void cudnn_unload(Cudnn *c) {
    if (c->file) dlclose(c->file);
    *c = (Cudnn){0};
}

/* ---- descriptors ---- */

enum { MOST_OPS = 48, MOST_CHOICES = 16, ALIGNMENT = 16 };

enum { /* tensors with an address, by their numbers; those inside a kernel are numbered from UID_INSIDE on */
    UID_Q = 1, UID_K, UID_V, UID_O, UID_LSE, UID_D_O, UID_DQ, UID_DK, UID_DV, UID_DQ_SUMS, UID_SUMS,
    UID_SCALE, UID_HIDDEN, UID_ONE, UID_INSIDE = 100
};

typedef struct Maker {
    const Cudnn *c;
    CudnnPlan *p;
    CudnnDescriptor op[MOST_OPS];
    int n_ops;
    int64_t uid; /* of the next tensor inside */
    bool failed;
    Err *e;
} Maker;

typedef struct Node { /* a tensor of the graph */
    CudnnDescriptor d;
    int type;
    int64_t dim[4], stride[4];
} Node;

static bool refuse(const Cudnn *c, int status, const char *what, const char *of, Err *e) {
    char text[600] = "";
    c->cudnnGetLastErrorString(text, sizeof text);
    return fail(e, ERR_FAIL, "cuDNN %zu: %s %s: %s. %s", c->version, what, of, c->cudnnGetErrorString(status), text);
}

static void check(Maker *m, int status, const char *what, const char *of) {
    if (status == CUDNN_SUCCESS || m->failed) return;
    m->failed = true;
    refuse(m->c, status, what, of, m->e);
}

static CudnnDescriptor make(Maker *m, int kind, const char *name) {
    CudnnDescriptor d = NULL;
    if (m->failed) return NULL;
    CHECK(m->p->n_made < CUDNN_DESCRIPTORS);
    check(m, m->c->cudnnBackendCreateDescriptor(kind, &d), "creating", name);
    if (d) m->p->made[m->p->n_made++] = d;
    return d;
}

static void set(Maker *m, CudnnDescriptor d, int name, int type, int64_t n, const void *values, const char *text) {
    if (!m->failed) check(m, m->c->cudnnBackendSetAttribute(d, name, type, n, values), "setting", text);
}

static void finish(Maker *m, CudnnDescriptor d, const char *name) {
    if (!m->failed) check(m, m->c->cudnnBackendFinalize(d), "finishing", name);
}

#define MAKE(m, kind) make(m, CUDNN_BACKEND_##kind##_DESCRIPTOR, #kind)
#define FINISH(m, d, kind) finish(m, d, #kind)
#define SET(m, d, name, type, n, values) set(m, d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, n, values, #name)
#define SET_WORD(m, d, name, type, word) SET(m, d, name, type, 1, &(int32_t){word})
#define SET_INT(m, d, name, number) SET(m, d, name, INT64, 1, &(int64_t){number})
#define SET_FLAG(m, d, name) SET(m, d, name, BOOLEAN, 1, &(bool){true})
#define SET_DESC(m, d, name, other) SET(m, d, name, BACKEND_DESCRIPTOR, 1, &(CudnnDescriptor){other})

/* ---- tensors ---- */

typedef enum Kind { REAL, INSIDE, VALUE } Kind;

static Node tensor(Maker *m, Kind kind, int64_t uid, int type, const int64_t dim[4], const int64_t stride[4]) {
    Node n = {.type = type};
    memcpy(n.dim, dim, sizeof n.dim);
    memcpy(n.stride, stride, sizeof n.stride);
    CudnnDescriptor d = n.d = MAKE(m, TENSOR);
    SET_INT(m, d, TENSOR_UNIQUE_ID, uid);
    SET_WORD(m, d, TENSOR_DATA_TYPE, DATA_TYPE, type);
    SET(m, d, TENSOR_DIMENSIONS, INT64, 4, dim);
    SET(m, d, TENSOR_STRIDES, INT64, 4, stride);
    SET_INT(m, d, TENSOR_BYTE_ALIGNMENT, kind == VALUE ? 4 : ALIGNMENT);
    if (kind == INSIDE) SET_FLAG(m, d, TENSOR_IS_VIRTUAL);
    if (kind == VALUE) SET_FLAG(m, d, TENSOR_IS_BY_VALUE);
    FINISH(m, d, TENSOR);
    return n;
}

static Node inside(Maker *m, int type, int64_t rows, int64_t heads, int64_t tokens, int64_t last) {
    return tensor(m, INSIDE, m->uid++, type, (int64_t[]){rows, heads, tokens, last},
                  (int64_t[]){heads * tokens * last, tokens * last, last, 1});
}

static Node like(Maker *m, const Node *x, int type) {
    return inside(m, type, x->dim[0], x->dim[1], x->dim[2], x->dim[3]);
}

static Node value(Maker *m, int64_t uid) {
    return tensor(m, VALUE, uid, CUDNN_DATA_FLOAT, (int64_t[]){1, 1, 1, 1}, (int64_t[]){1, 1, 1, 1});
}

/* The last two dimensions change places; the bytes stay. */
static Node transposed(Maker *m, Kind kind, int64_t uid, const Node *x, int type) {
    return tensor(m, kind, uid, type, (int64_t[]){x->dim[0], x->dim[1], x->dim[3], x->dim[2]},
                  (int64_t[]){x->stride[0], x->stride[1], x->stride[3], x->stride[2]});
}

/* ---- operations ---- */

static void add_op(Maker *m, CudnnDescriptor op, const char *name) {
    finish(m, op, name);
    CHECK(m->n_ops < MOST_OPS);
    m->op[m->n_ops++] = op;
}

/* to = a b, the last two dimensions being matrices */
static void multiply(Maker *m, Node to, Node a, Node b) {
    CudnnDescriptor how = MAKE(m, MATMUL), op = MAKE(m, OPERATION_MATMUL);
    SET_WORD(m, how, MATMUL_COMP_TYPE, DATA_TYPE, CUDNN_DATA_FLOAT);
    FINISH(m, how, MATMUL);
    SET_DESC(m, op, OPERATION_MATMUL_ADESC, a.d);
    SET_DESC(m, op, OPERATION_MATMUL_BDESC, b.d);
    SET_DESC(m, op, OPERATION_MATMUL_CDESC, to.d);
    SET_DESC(m, op, OPERATION_MATMUL_DESC, how);
    add_op(m, op, "OPERATION_MATMUL");
}

typedef struct Pointwise {
    int mode, precision;
    int64_t axis;           /* of an index */
    Node x;
    const Node *b, *choose; /* NULL: the operation has none */
} Pointwise;

static void each_to(Maker *m, Node to, Pointwise w) {
    CudnnDescriptor how = MAKE(m, POINTWISE), op = MAKE(m, OPERATION_POINTWISE);
    SET_WORD(m, how, POINTWISE_MODE, POINTWISE_MODE, w.mode);
    SET_WORD(m, how, POINTWISE_MATH_PREC, DATA_TYPE, w.precision);
    if (w.mode == CUDNN_POINTWISE_GEN_INDEX) SET_INT(m, how, POINTWISE_AXIS, w.axis);
    FINISH(m, how, POINTWISE);
    SET_DESC(m, op, OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    SET_DESC(m, op, OPERATION_POINTWISE_XDESC, w.x.d);
    if (w.b) SET_DESC(m, op, OPERATION_POINTWISE_BDESC, w.b->d);
    if (w.choose) SET_DESC(m, op, OPERATION_POINTWISE_TDESC, w.choose->d);
    SET_DESC(m, op, OPERATION_POINTWISE_YDESC, to.d);
    add_op(m, op, "OPERATION_POINTWISE");
}

static Node each(Maker *m, int mode, Node x) {
    Node y = like(m, &x, CUDNN_DATA_FLOAT);
    each_to(m, y, (Pointwise){.mode = mode, .x = x});
    return y;
}

static Node both(Maker *m, int mode, Node x, Node b) {
    Node y = like(m, &x, CUDNN_DATA_FLOAT);
    each_to(m, y, (Pointwise){.mode = mode, .x = x, .b = &b});
    return y;
}

static void reduce_to(Maker *m, Node to, int mode, Node x) {
    CudnnDescriptor how = MAKE(m, REDUCTION), op = MAKE(m, OPERATION_REDUCTION);
    SET_WORD(m, how, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, mode);
    SET_WORD(m, how, REDUCTION_COMP_TYPE, DATA_TYPE, CUDNN_DATA_FLOAT);
    FINISH(m, how, REDUCTION);
    SET_DESC(m, op, OPERATION_REDUCTION_XDESC, x.d);
    SET_DESC(m, op, OPERATION_REDUCTION_YDESC, to.d);
    SET_DESC(m, op, OPERATION_REDUCTION_DESC, how);
    add_op(m, op, "OPERATION_REDUCTION");
}

static Node reduce(Maker *m, int mode, Node x) { /* over the last dimension */
    Node y = inside(m, CUDNN_DATA_FLOAT, x.dim[0], x.dim[1], x.dim[2], 1);
    reduce_to(m, y, mode, x);
    return y;
}

/* x seen with its last two dimensions the other way round */
static Node transpose(Maker *m, Node x, int type) {
    Node y = transposed(m, INSIDE, m->uid++, &x, type);
    CudnnDescriptor op = MAKE(m, OPERATION_RESHAPE);
    SET_DESC(m, op, OPERATION_RESHAPE_XDESC, x.d);
    SET_DESC(m, op, OPERATION_RESHAPE_YDESC, y.d);
    add_op(m, op, "OPERATION_RESHAPE");
    return y;
}

/* ---- the formulas ---- */

/* Heads of a matrix whose rows are `width` numbers of one token. */
static Node heads_of(Maker *m, int64_t uid, const CudnnShape *s, int type, int64_t heads, int64_t width) {
    return tensor(m, REAL, uid, type, (int64_t[]){s->rows, heads, s->seq, s->dim},
                  (int64_t[]){s->seq * width, s->dim, width, 1});
}

static int64_t width_of(const CudnnShape *s) { return (int64_t)(s->heads + 2 * s->kv_heads) * s->dim; }

static Node per_token(Maker *m, int64_t uid, const CudnnShape *s) {
    return tensor(m, REAL, uid, CUDNN_DATA_FLOAT, (int64_t[]){s->rows, s->heads, s->seq, 1},
                  (int64_t[]){s->heads * s->seq, s->seq, 1, 1});
}

static Node masked(Maker *m, Node s) { /* a token sees itself and what stands before it */
    Node row = like(m, &s, CUDNN_DATA_INT32), col = like(m, &s, CUDNN_DATA_INT32);
    Node sees = like(m, &s, CUDNN_DATA_BOOLEAN), y = like(m, &s, CUDNN_DATA_FLOAT), hidden = value(m, UID_HIDDEN);
    each_to(m, row, (Pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, s, NULL, NULL});
    each_to(m, col, (Pointwise){CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, s, NULL, NULL});
    each_to(m, sees, (Pointwise){CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, row, &col, NULL});
    each_to(m, y, (Pointwise){CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, s, &hidden, &sees});
    return y;
}

static Node scores(Maker *m, const CudnnShape *s, Node q, Node k_transposed, Node scale) { /* scale q k^T */
    Node x = inside(m, CUDNN_DATA_FLOAT, s->rows, s->heads, s->seq, s->seq);
    multiply(m, x, q, k_transposed);
    return both(m, CUDNN_POINTWISE_MUL, x, scale);
}

/* o = softmax(scores) v, lse = log(sum(exp(scores))) */
static void forward(Maker *m, const CudnnShape *s, int type) {
    Node q = heads_of(m, UID_Q, s, type, s->heads, width_of(s));
    Node k = heads_of(m, UID_K, s, type, s->kv_heads, width_of(s));
    Node kt = transposed(m, REAL, UID_K, &k, type);
    Node v = heads_of(m, UID_V, s, type, s->kv_heads, width_of(s));
    Node o = heads_of(m, UID_O, s, type, s->heads, (int64_t)s->heads * s->dim), lse = per_token(m, UID_LSE, s);
    Node x = masked(m, scores(m, s, q, kt, value(m, UID_SCALE)));
    Node top = reduce(m, CUDNN_REDUCE_TENSOR_MAX, x);
    Node e = each(m, CUDNN_POINTWISE_EXP, both(m, CUDNN_POINTWISE_SUB, x, top));
    Node sum = reduce(m, CUDNN_REDUCE_TENSOR_ADD, e), log_sum = each(m, CUDNN_POINTWISE_LOG, sum);
    each_to(m, lse, (Pointwise){.mode = CUDNN_POINTWISE_ADD, .x = top, .b = &log_sum});
    Node p = like(m, &e, type);
    each_to(m, p, (Pointwise){.mode = CUDNN_POINTWISE_DIV, .x = e, .b = &sum});
    multiply(m, o, p, v);
}

/* The gradient of a KV head: the sum over the query heads that use it. */
static void multiply_group(Maker *m, const CudnnShape *s, int64_t uid, int type, Node a, Node b) {
    Node to = heads_of(m, uid, s, type, s->kv_heads, width_of(s));
    if (s->heads == s->kv_heads) {
        multiply(m, to, a, b);
        return;
    }
    Node full = inside(m, type, s->rows, s->heads, s->seq, s->dim);
    multiply(m, full, a, b);
    reduce_to(m, to, CUDNN_REDUCE_TENSOR_ADD, full);
}

/* sums = rowsum(d_o * o);  p = exp(scores - lse);  dv = p^T d_o
 * ds = scale * p * (d_o v^T - sums);  dk = ds^T q;  dq = ds k */
static void backward(Maker *m, const CudnnShape *s, int type) {
    Node q = heads_of(m, UID_Q, s, type, s->heads, width_of(s));
    Node k = heads_of(m, UID_K, s, type, s->kv_heads, width_of(s)), kt = transposed(m, REAL, UID_K, &k, type);
    Node v = heads_of(m, UID_V, s, type, s->kv_heads, width_of(s)), vt = transposed(m, REAL, UID_V, &v, type);
    Node o = heads_of(m, UID_O, s, type, s->heads, (int64_t)s->heads * s->dim);
    Node d_o = heads_of(m, UID_D_O, s, type, s->heads, (int64_t)s->heads * s->dim);
    Node lse = per_token(m, UID_LSE, s), sums = per_token(m, UID_SUMS, s);
    Node scale = value(m, UID_SCALE), one = value(m, UID_ONE);

    Node sum = reduce(m, CUDNN_REDUCE_TENSOR_ADD, both(m, CUDNN_POINTWISE_MUL, d_o, o));
    each_to(m, sums, (Pointwise){.mode = CUDNN_POINTWISE_MUL, .x = sum, .b = &one}); /* where dropout would scale */

    Node x = masked(m, both(m, CUDNN_POINTWISE_SUB, scores(m, s, q, kt, scale), lse));
    Node p = each(m, CUDNN_POINTWISE_EXP, x);
    multiply_group(m, s, UID_DV, type, transpose(m, p, type), d_o);

    Node dp = inside(m, CUDNN_DATA_FLOAT, s->rows, s->heads, s->seq, s->seq);
    multiply(m, dp, d_o, vt);
    Node ds = both(m, CUDNN_POINTWISE_MUL, both(m, CUDNN_POINTWISE_SUB, dp, sums), p);
    ds = both(m, CUDNN_POINTWISE_MUL, ds, scale);
    multiply_group(m, s, UID_DK, type, transpose(m, ds, type), q);

    Node dq_sums = tensor(m, REAL, UID_DQ_SUMS, CUDNN_DATA_FLOAT, (int64_t[]){s->rows, s->heads, s->seq, s->dim},
                          (int64_t[]){s->heads * s->seq * s->dim, s->seq * s->dim, s->dim, 1});
    multiply(m, dq_sums, ds, transpose(m, kt, type));
    each_to(m, heads_of(m, UID_DQ, s, type, s->heads, width_of(s)),
            (Pointwise){.mode = CUDNN_POINTWISE_IDENTITY, .x = dq_sums});
}

/* ---- plans ---- */

/* Engine configurations for the graph, the library's favourite first; gives their number. */
static int propose(Maker *m, CudnnDescriptor choice[MOST_CHOICES], CudnnDescriptor graph) {
    CudnnDescriptor ask = MAKE(m, ENGINEHEUR);
    int64_t n = 0;
    SET_DESC(m, ask, ENGINEHEUR_OPERATION_GRAPH, graph);
    SET_WORD(m, ask, ENGINEHEUR_MODE, HEUR_MODE, CUDNN_HEUR_MODE_A);
    FINISH(m, ask, ENGINEHEUR);
    for (int i = 0; i < MOST_CHOICES; i++) choice[i] = MAKE(m, ENGINECFG);
    if (m->failed) return 0;
    check(m, m->c->cudnnBackendGetAttribute(ask, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                            MOST_CHOICES, &n, choice), "reading", "ENGINEHEUR_RESULTS");
    if (!n && !m->failed) check(m, 3000, "a graph nobody takes:", "ENGINEHEUR_RESULTS"); /* not supported */
    return (int)MIN2(n, MOST_CHOICES);
}

static bool try_choice(Maker *m, CudnnDescriptor choice, CudnnHandle handle, int64_t most_bytes) {
    CudnnDescriptor plan = MAKE(m, EXECUTION_PLAN);
    int64_t bytes = 0, n;
    SET(m, plan, EXECUTION_PLAN_HANDLE, HANDLE, 1, &handle);
    SET_DESC(m, plan, EXECUTION_PLAN_ENGINE_CONFIG, choice);
    FINISH(m, plan, EXECUTION_PLAN);
    if (m->failed) return false;
    check(m, m->c->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                            &bytes), "reading", "EXECUTION_PLAN_WORKSPACE_SIZE");
    if (m->failed) return false;
    if (bytes > most_bytes) {
        m->failed = true;
        return fail(m->e, ERR_FAIL, "cuDNN %zu: it asks for %lld bytes of workspace, planned are %lld", m->c->version,
                    (long long)bytes, (long long)most_bytes);
    }
    m->p->plan = plan;
    m->p->workspace_bytes = bytes;
    return true;
}

bool cudnn_plan_make(CudnnPlan *p, const Cudnn *c, CudnnHandle handle, CudnnShape shape, bool backwards,
                     int64_t most_bytes, Err *e) {
    CudnnDescriptor choice[MOST_CHOICES];
    *p = (CudnnPlan){.shape = shape, .backward = backwards};
    Maker m = {.c = c, .p = p, .uid = UID_INSIDE, .e = e};
    int type = shape.format == FMT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    if (backwards) backward(&m, &shape, type);
    else forward(&m, &shape, type);
    CudnnDescriptor graph = MAKE(&m, OPERATIONGRAPH);
    SET(&m, graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, m.n_ops, m.op);
    SET(&m, graph, OPERATIONGRAPH_HANDLE, HANDLE, 1, &handle);
    FINISH(&m, graph, OPERATIONGRAPH);
    int n = propose(&m, choice, graph);
    for (int i = 0; i < n && !p->plan; i++) {
        m.failed = false; /* a refused choice is not the end while there are others */
        try_choice(&m, choice[i], handle, most_bytes);
    }
    if (p->plan) return true;
    cudnn_plan_free(p, c);
    return false;
}

void cudnn_plan_free(CudnnPlan *p, const Cudnn *c) {
    while (p->n_made > 0) c->cudnnBackendDestroyDescriptor(p->made[--p->n_made]);
    p->plan = NULL;
}

/* ---- running ---- */

enum { MOST_TENSORS = 16, NUMBER_BYTES = 2 };

typedef struct Pack { /* which tensor stands where */
    int64_t uid[MOST_TENSORS];
    void *at[MOST_TENSORS];
    int64_t n;
} Pack;

static void place(Pack *k, int64_t uid, void *at) {
    k->uid[k->n] = uid;
    k->at[k->n++] = at;
}

/* q, k, v (or their gradients) side by side in one row */
static void place_qkv(Pack *k, int64_t uid_q, const CudnnShape *s, char *qkv) {
    int64_t q_bytes = (int64_t)s->heads * s->dim * NUMBER_BYTES, k_bytes = (int64_t)s->kv_heads * s->dim * NUMBER_BYTES;
    place(k, uid_q, qkv);
    place(k, uid_q + 1, qkv + q_bytes);
    place(k, uid_q + 2, qkv + q_bytes + k_bytes);
}

static bool run_pack(const CudnnPlan *p, const Cudnn *c, CudnnHandle handle, const Pack *k, void *workspace, Err *e) {
    CudnnPlan own = {0}; /* for its list of descriptors */
    Maker m = {.c = c, .p = &own, .e = e};
    CudnnDescriptor d = MAKE(&m, VARIANT_PACK);
    SET(&m, d, VARIANT_PACK_UNIQUE_IDS, INT64, k->n, k->uid);
    SET(&m, d, VARIANT_PACK_DATA_POINTERS, VOID_PTR, k->n, k->at);
    SET(&m, d, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace);
    FINISH(&m, d, VARIANT_PACK);
    if (!m.failed)
        check(&m, c->cudnnBackendExecute(handle, p->plan, d), "running", p->backward ? "backward" : "forward");
    cudnn_plan_free(&own, c);
    return !m.failed;
}

bool cudnn_plan_run(const CudnnPlan *p, const Cudnn *c, CudnnHandle handle, const CudnnAddresses *at, Err *e) {
    float scale = p->shape.scale, hidden = -FLT_MAX, one = 1; /* read while the call lasts */
    Pack k = {.n = 0};
    place_qkv(&k, UID_Q, &p->shape, at->qkv);
    place(&k, UID_O, at->o);
    place(&k, UID_LSE, at->lse);
    place(&k, UID_SCALE, &scale);
    place(&k, UID_HIDDEN, &hidden);
    if (p->backward) {
        place(&k, UID_D_O, at->d_o);
        place_qkv(&k, UID_DQ, &p->shape, at->dqkv);
        place(&k, UID_DQ_SUMS, at->dq_sums);
        place(&k, UID_SUMS, at->sums);
        place(&k, UID_ONE, &one);
    }
    return run_pack(p, c, handle, &k, at->workspace, e);
}
