/* cublas.c - the binding to cuBLASLt: loaded at run time, given our row-major matrices, its algorithms chosen by
 * timing.
 *
 * The library is column-major: our C = A B is its C^T = B^T A^T with the same bytes. Accumulation is in fp32. fp32
 * operands use TF32 only when asked. Split-K partial sums are added in fp32 in a fixed order, so a chosen algorithm
 * gives the same bits every time.
 *
 * Choice of an algorithm: the first product of a shape, outside a capture, tries up to CANDIDATES algorithms, for long
 * sums also split-K ones. The best few then run by turns for some milliseconds without a pause, because other
 * algorithms are best on a card at its power limit, as in a step, than on a cool one. The median decides, but the
 * winner must be clearly faster than one that the library ranks before it, so that noise does not decide. A product
 * that adds in place and its twin that does not use the same algorithm, so the placement of a sum changes no bit.
 * Choices can be exported and imported, so that another process makes the same ones. When the device must be
 * deterministic, nothing is timed and the library's first choice is used.
 *
 * What the library cannot do (mixed formats, odd addresses, bf16 on cards without it) goes to cuda_launch_multiply. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "backend/cuda/product.h"

enum { CANDIDATES = 8, FINALISTS = 4, CHOICES = 2048, MOST_CHOICES = 1536, BIAS_ALIGN = 16 };
enum { FEWEST_ROUNDS = 5, MOST_ROUNDS = 15 }; /* of the best few */
static const float SUSTAINED_MS = 15;         /* what these rounds take together, within their bounds */
/* Split-K: long sums with a small output leave most of the card idle, so the first SPLIT_K_BASES algorithms are also
 * tried with so many splits. */
enum {
    SPLIT_K_BASES = 3,
    LONG_SUM = 4096,
    SMALL_OUTPUT = 1 << 21,
    MOST_PARTS = 3,
    MOST_TRIED = CANDIDATES + SPLIT_K_BASES * MOST_PARTS
};
static const int32_t split_k_tried[MOST_PARTS] = {4, 8, DEVICE_SPLITS};
/* What a candidate must gain over the best so far to be taken: so much of its time, and so many milliseconds. */
static const float GAIN_SHARE = 0.005f, GAIN_MS = 0.0005f;

/* clang-format off */
#define LIBRARY_CALLS(X)                     \
    X(cublasLtCreate)                        \
    X(cublasLtDestroy)                       \
    X(cublasLtGetStatusString)               \
    X(cublasLtGetVersion)                    \
    X(cublasLtMatmul)                        \
    X(cublasLtMatmulAlgoConfigSetAttribute)  \
    X(cublasLtMatmulAlgoCheck)               \
    X(cublasLtMatmulAlgoGetHeuristic)        \
    X(cublasLtMatmulDescInit_internal)       \
    X(cublasLtMatmulDescSetAttribute)        \
    X(cublasLtMatmulPreferenceInit_internal) \
    X(cublasLtMatmulPreferenceSetAttribute)  \
    X(cublasLtMatrixLayoutInit_internal)     \
    X(cublasLtMatrixLayoutSetAttribute)
/* clang-format on */

typedef struct Library { /* the entry points, under their own names */
#define LIBRARY_POINTER(name) __typeof__(&name) name;
    LIBRARY_CALLS(LIBRARY_POINTER)
#undef LIBRARY_POINTER
} Library;

enum { IN_TF32 = 64 }; /* fp32 numbers that may be shortened */

/* What a choice depends on. Compared as bytes: made from zeroed memory. */
typedef struct Key {
    int64_t rows, cols, inner, lda, ldb, ldc, ld_add, workspace_bytes;
    int32_t align_a, align_b, align_c, align_add;
    int8_t in /* a format, or IN_TF32 */, out, a_transposed, b_transposed;
    int8_t bias, adds, in_place;
    int8_t times; /* so many products at once */
} Key;

typedef struct Choice {
    Key key;
    bool used, plain; /* plain: not by the library */
    bool given;       /* put in from outside and not yet tried: one that is refused is chosen anew */
    cublasLtMatmulAlgo_t algo;
} Choice;

struct CudaProducts {
    void *file;
    Library call;
    cublasLtHandle_t handle;
    cudaEvent_t mark[MOST_TRIED + 1];
    int n_choices;
    Choice choice[CHOICES]; /* open addressing */
};

/* ---- opening ---- */

static void *open_file(void) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    static const char *const folders[] = {"", CUDA_LIBRARIES "/", CUDA_WHEELS "/", "/usr/local/cuda/lib64/"};
    for (int f = 0; f < COUNT_OF(folders); f++)
        for (int n = 0; n < COUNT_OF(names); n++) {
            Str path = {0};
            str_addf(&path, "%s%s", folders[f], names[n]);
            void *file = dlopen(str_text(&path), RTLD_NOW | RTLD_LOCAL);
            str_free(&path);
            if (file) return file;
        }
    return NULL;
}

bool cuda_products_open(CudaBackend *c, Err *e) {
    CudaProducts *p = c->products = MEM_NEW(CudaProducts, 1);
    p->file = open_file();
    if (!p->file)
        return fail(e, ERR_FAIL,
                    "cuda: the product library libcublasLt.so.13 (or .12) was not found, neither on the system's "
                    "paths nor in %s. Install cuBLAS, or name its folder in LD_LIBRARY_PATH",
                    CUDA_LIBRARIES);
#define LIBRARY_FIND(name)                           \
    *(void **)&p->call.name = dlsym(p->file, #name); \
    if (!p->call.name) return fail(e, ERR_FAIL, "cuda: the product library has no %s: it is too old", #name);
    LIBRARY_CALLS(LIBRARY_FIND)
#undef LIBRARY_FIND
    cublasStatus_t status = p->call.cublasLtCreate(&p->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        return fail(e, ERR_FAIL, "cuda:%d: opening the product library: %s", c->device,
                    p->call.cublasLtGetStatusString(status));
    for (int i = 0; i < COUNT_OF(p->mark); i++)
        if (cudaEventCreate(&p->mark[i]) != cudaSuccess)
            return fail(e, ERR_FAIL, "cuda:%d: events for timing products", c->device);
    return true;
}

void cuda_products_close(CudaBackend *c) {
    CudaProducts *p = c->products;
    if (!p) return;
    for (int i = 0; i < COUNT_OF(p->mark); i++)
        if (p->mark[i]) cudaEventDestroy(p->mark[i]);
    if (p->handle) p->call.cublasLtDestroy(p->handle);
    if (p->file) dlclose(p->file);
    mem_free(p);
    c->products = NULL;
}

/* ---- a product in the library's words ---- */

typedef struct Setup {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t a, b, add, c; /* of our matrices */
    cublasLtMatmulPreferenceOpaque_t want;
} Setup;

static cudaDataType type_of(Format f) {
    return f == FMT_F32 ? CUDA_R_32F : f == FMT_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Row-major (rows,cols) is column-major (cols,rows). */
static void describe_matrix(const Library *l, cublasLtMatrixLayoutOpaque_t *to, const CudaMatrix *m, int32_t times,
                            int64_t step) {
    l->cublasLtMatrixLayoutInit_internal(to, sizeof *to, type_of(m->format), (uint64_t)m->cols, (uint64_t)m->rows,
                                         m->ld);
    if (times <= 1) return;
    l->cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &times, sizeof times);
    l->cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
}

static void describe_product(const Library *l, Setup *s, const CudaProduct *p, const Key *key) {
    memset(s, 0, sizeof *s);
    bool adds = p->add.data;
    describe_matrix(l, &s->a, &p->a, p->times, p->a_step);
    describe_matrix(l, &s->b, &p->b, p->times, p->b_step);
    describe_matrix(l, &s->c, &p->c, p->times, p->c_step);
    describe_matrix(l, &s->add, adds ? &p->add : &p->c, p->times, adds ? p->add_step : p->c_step);
    cublasComputeType_t sums = key->in == IN_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    l->cublasLtMatmulDescInit_internal(&s->op, sizeof s->op, sums, CUDA_R_32F);
    int32_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
            second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    l->cublasLtMatmulDescSetAttribute(&s->op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    l->cublasLtMatmulDescSetAttribute(&s->op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (p->bias) {
        uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        int32_t type = type_of(p->c.format);
        l->cublasLtMatmulDescSetAttribute(&s->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        l->cublasLtMatmulDescSetAttribute(&s->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
        l->cublasLtMatmulDescSetAttribute(&s->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    size_t bytes = (size_t)key->workspace_bytes;
    uint32_t parts = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* and none, which is 0 */
    uint32_t align[] = {(uint32_t)key->align_b, (uint32_t)key->align_a, (uint32_t)key->align_add,
                        (uint32_t)key->align_c};
    static const cublasLtMatmulPreferenceAttributes_t align_name[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    l->cublasLtMatmulPreferenceInit_internal(&s->want, sizeof s->want);
    l->cublasLtMatmulPreferenceSetAttribute(&s->want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                            sizeof bytes);
    l->cublasLtMatmulPreferenceSetAttribute(&s->want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &parts,
                                            sizeof parts);
    for (int i = 0; i < COUNT_OF(align); i++)
        l->cublasLtMatmulPreferenceSetAttribute(&s->want, align_name[i], &align[i], sizeof align[i]);
}

typedef struct Call { /* everything one run of a product needs */
    CudaProducts *products;
    Setup *setup;
    const CudaProduct *p;
    void *workspace;
    int64_t workspace_bytes;
    cudaStream_t stream;
} Call;

static cublasStatus_t run(const Call *c, const cublasLtMatmulAlgo_t *algo, float alpha) {
    const CudaProduct *p = c->p;
    float beta = p->add.data ? 1.0f : 0.0f;
    Setup *s = c->setup;
    return c->products->call.cublasLtMatmul(c->products->handle, &s->op, &alpha, p->b.data, &s->b, p->a.data,
                                            &s->a, &beta, p->add.data ? p->add.data : p->c.data, &s->add,
                                            p->c.data, &s->c, algo, c->workspace, (size_t)c->workspace_bytes,
                                            c->stream);
}

/* ---- choosing ---- */

/* A timed product runs several times: when it adds to what is there, times the smallest normal number and without the
 * bias, so that what is there stays as it is, and the work is all done (a zero might be noticed). */
static float trial_alpha(const Call *c, const Key *key) { return key->in_place ? FLT_MIN : c->p->alpha; }

static void trial_setup(const Call *c, Setup *s, const Key *key) {
    uint32_t none = CUBLASLT_EPILOGUE_DEFAULT;
    *s = *c->setup;
    if (key->in_place && c->p->bias)
        c->products->call.cublasLtMatmulDescSetAttribute(&s->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &none, sizeof none);
}

typedef struct Tried {
    const cublasLtMatmulAlgo_t *algo;
    float ms; /* less than 0: refused */
} Tried;

/* Runs every one that is not refused once, back to back. The first runs twice, so that no clock starts on an idle
 * card. */
static void time_round(const Call *c, Tried *const *t, int n, float alpha) {
    cudaEvent_t *mark = c->products->mark;
    if (n > 0) run(c, t[0]->algo, alpha);
    for (int i = 0; i < n; i++) {
        cudaEventRecord(mark[i], c->stream);
        if (t[i]->ms >= 0 && run(c, t[i]->algo, alpha) != CUBLAS_STATUS_SUCCESS) t[i]->ms = -1;
    }
    cudaEventRecord(mark[n], c->stream);
    cudaEventSynchronize(mark[n]);
    for (int i = 0; i < n; i++) {
        float ms;
        bool timed = cudaEventElapsedTime(&ms, mark[i], mark[i + 1]) == cudaSuccess;
        if (t[i]->ms >= 0) t[i]->ms = timed ? ms : -1;
    }
    cudaGetLastError(); /* a refusal is not an error of the step */
}

static float median(float *x, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && x[k] < x[k - 1]; k--) {
            float swap = x[k];
            x[k] = x[k - 1], x[k - 1] = swap;
        }
    return x[n / 2];
}

/* Puts the fastest first, those refused behind; equals stay in their order. */
static void sort_tried(Tried **t, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && t[k]->ms >= 0 && (t[k - 1]->ms < 0 || t[k]->ms < t[k - 1]->ms); k--) {
            Tried *swap = t[k];
            t[k] = t[k - 1], t[k - 1] = swap;
        }
}

/* The best few by turns; each is left with its median. */
static void time_finalists(const Call *c, Tried **t, int n, float alpha) {
    float ms[FINALISTS][MOST_ROUNDS], once = 0;
    for (int i = 0; i < n; i++) once += t[i]->ms;
    int wanted = (int)MIN2(SUSTAINED_MS / MAX2(once, 1e-3f), (float)MOST_ROUNDS), rounds = MAX2(wanted, FEWEST_ROUNDS);
    for (int r = 0; r < rounds; r++) {
        time_round(c, t, n, alpha);
        for (int i = 0; i < n; i++) ms[i][r] = t[i]->ms;
    }
    for (int i = 0; i < n; i++)
        if (t[i]->ms >= 0) t[i]->ms = median(ms[i], rounds);
}

/* The number of the fastest; -1: none runs. The first round loads the code and is not counted. */
static int fastest(const Call *c, const Key *key, const cublasLtMatmulHeuristicResult_t *list, int n) {
    Tried tried[MOST_TRIED], *order[MOST_TRIED];
    float alpha = trial_alpha(c, key);
    Call trial = *c;
    Setup setup;
    trial_setup(c, &setup, key);
    trial.setup = &setup;
    for (int i = 0; i < n; i++) tried[i] = (Tried){.algo = &list[i].algo}, order[i] = &tried[i];
    time_round(&trial, order, n, alpha);
    time_round(&trial, order, n, alpha);
    sort_tried(order, n);
    int left = 0;
    while (left < MIN2(n, FINALISTS) && order[left]->ms >= 0) left++;
    time_finalists(&trial, order, left, alpha);
    for (int i = left; i < n; i++) order[i]->ms = -1;
    int winner = -1;
    for (int i = 0; i < n; i++) {
        if (tried[i].ms < 0) continue;
        float gain = winner < 0 ? FLT_MAX : tried[winner].ms - tried[i].ms;
        if (winner < 0 || (gain > tried[winner].ms * GAIN_SHARE && gain > GAIN_MS)) winner = i;
    }
    return winner;
}

/* Whether an algorithm from outside is one for this product. */
static bool library_takes(const Call *c, const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t says = {0};
    Setup *s = c->setup;
    return c->products->call.cublasLtMatmulAlgoCheck(c->products->handle, &s->op, &s->b, &s->a, &s->add, &s->c, algo,
                                                     &says) == CUBLAS_STATUS_SUCCESS &&
           (int64_t)says.workspaceSize <= c->workspace_bytes;
}

/* Puts the first algorithms in parts behind the list; gives its new length. Parts are added in fp32, in their order. */
static int add_split_k(const Call *c, const Key *key, cublasLtMatmulHeuristicResult_t *list, int n) {
    const Library *l = &c->products->call;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int whole = MIN2(n, SPLIT_K_BASES);
    if (key->inner < LONG_SUM || key->rows * key->cols > SMALL_OUTPUT) return n;
    for (int i = 0; i < whole * MOST_PARTS; i++) {
        cublasLtMatmulAlgo_t *algo = &list[n].algo;
        list[n] = list[i / MOST_PARTS];
        bool set = l->cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                           &split_k_tried[i % MOST_PARTS],
                                                           sizeof *split_k_tried) == CUBLAS_STATUS_SUCCESS &&
                   l->cublasLtMatmulAlgoConfigSetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                           sizeof scheme) == CUBLAS_STATUS_SUCCESS;
        if (set && library_takes(c, algo)) n++;
    }
    return n;
}

/* Fills the choice; *done: the product has been run on the way. */
static void choose(const Call *c, Choice *choice, bool may_time, bool *done) {
    cublasLtMatmulHeuristicResult_t list[MOST_TRIED];
    const Key *key = &choice->key;
    int n = 0, winner = -1;
    Setup *s = c->setup;
    const Library *l = &c->products->call;
    cublasStatus_t status = l->cublasLtMatmulAlgoGetHeuristic(c->products->handle, &s->op, &s->b, &s->a, &s->add,
                                                              &s->c, &s->want, CANDIDATES, list, &n);
    int good = 0;
    for (int i = 0; i < n && status == CUBLAS_STATUS_SUCCESS; i++)
        if (list[i].state == CUBLAS_STATUS_SUCCESS) list[good++] = list[i];
    n = good;
    if (may_time) n = add_split_k(c, key, list, n);
    if (may_time && n > 1) winner = fastest(c, key, list, n);
    if (winner < 0)
        for (int i = 0; i < n && !*done; i++) /* one that is refused launches nothing */
            if (run(c, &list[i].algo, c->p->alpha) == CUBLAS_STATUS_SUCCESS) *done = true, winner = i;
    choice->plain = winner < 0;
    if (winner >= 0) choice->algo = list[winner].algo;
}

/* ---- keys ---- */

static int32_t alignment(const void *p) { /* the largest power of two up to 256 that divides the address */
    uintptr_t low = (uintptr_t)p | 256;
    return (int32_t)(low & -low);
}

static int32_t alignment_of(const CudaMatrix *m, int64_t step) { /* of all matrices, a step of numbers apart */
    uintptr_t low = (uintptr_t)m->data | (uintptr_t)(step * format_item_bytes(m->format));
    return alignment((const void *)low);
}

static Key key_of(const CudaProduct *p, int64_t workspace_bytes, bool tf32) {
    Key k;
    memset(&k, 0, sizeof k);
    k.rows = p->c.rows, k.cols = p->c.cols, k.inner = p->a_transposed ? p->a.rows : p->a.cols;
    k.lda = p->a.ld, k.ldb = p->b.ld, k.ldc = p->c.ld, k.workspace_bytes = workspace_bytes;
    k.align_a = alignment_of(&p->a, p->a_step), k.align_b = alignment_of(&p->b, p->b_step);
    k.align_c = alignment_of(&p->c, p->c_step);
    k.align_add = k.align_c;
    k.in = tf32 && p->a.format == FMT_F32 ? IN_TF32 : (int8_t)p->a.format, k.out = (int8_t)p->c.format;
    k.a_transposed = p->a_transposed, k.b_transposed = p->b_transposed, k.bias = p->bias != NULL;
    k.times = (int8_t)MAX2(p->times, 1);
    if (!p->add.data) return k;
    k.adds = 1, k.in_place = p->add.data == p->c.data;
    k.ld_add = p->add.ld, k.align_add = alignment_of(&p->add, p->add_step);
    return k;
}

static uint64_t hash(const Key *k) {
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof *k; i++) h = (h ^ ((const unsigned char *)k)[i]) * 1099511628211ull;
    return h;
}

/* Its place in the table: used, or free for it. */
static Choice *find(CudaProducts *p, const Key *key) {
    for (uint64_t i = hash(key);; i++) {
        Choice *c = &p->choice[i % CHOICES];
        if (!c->used || !memcmp(&c->key, key, sizeof *key)) return c;
    }
}

/* The algorithm of the product that differs only in where its sum lies; false: it has not been chosen, or is no choice
 * here. */
static bool as_its_twin(const Call *c, Choice *choice) {
    Key key = choice->key;
    if (!key.adds) return false;
    key.in_place = !key.in_place;
    const Choice *twin = find(c->products, &key);
    if (!twin->used || (!twin->plain && !library_takes(c, &twin->algo))) return false;
    choice->plain = twin->plain;
    choice->algo = twin->algo;
    return true;
}

static bool library_can(const CudaProduct *p) {
    return p->a.format == p->b.format && (!p->bias || alignment(p->bias) >= BIAS_ALIGN);
}

static void check_shapes(const CudaProduct *p) {
    int64_t inner = p->a_transposed ? p->a.rows : p->a.cols;
    CHECK(p->c.rows == (p->a_transposed ? p->a.cols : p->a.rows) &&
          p->c.cols == (p->b_transposed ? p->b.rows : p->b.cols));
    CHECK(inner == (p->b_transposed ? p->b.cols : p->b.rows));
    CHECK(cuda_is_number(p->a.format) && cuda_is_number(p->b.format) && cuda_is_number(p->c.format));
    CHECK(p->times <= 1 || (!p->bias && p->times <= INT8_MAX));
    CHECK(!p->add.data || (p->add.rows == p->c.rows && p->add.cols == p->c.cols && p->add.format == p->c.format));
}

/* By our own kernel, one after the other. */
static void multiply_plain(cudaStream_t s, const CudaProduct *p) {
    CudaProduct one = *p;
    for (int i = 0; i < MAX2(p->times, 1); i++) {
        cuda_launch_multiply(s, &one);
        one.a.data = (char *)one.a.data + p->a_step * format_item_bytes(p->a.format);
        one.b.data = (char *)one.b.data + p->b_step * format_item_bytes(p->b.format);
        one.c.data = (char *)one.c.data + p->c_step * format_item_bytes(p->c.format);
        if (one.add.data) one.add.data = (char *)one.add.data + p->add_step * format_item_bytes(p->add.format);
    }
}

void cuda_multiply(Backend *b, Queue q, const CudaProduct *p, void *workspace, int64_t workspace_bytes) {
    check_shapes(p);
    CudaProducts *products = cuda_backend(b)->products;
    Call c = {.products = products, .p = p, .stream = cuda_stream(b, q)};
    if (workspace) c.workspace = workspace, c.workspace_bytes = workspace_bytes;
    if (!library_can(p)) {
        multiply_plain(c.stream, p);
        return;
    }
    Key key = key_of(p, c.workspace_bytes, cuda_backend(b)->tf32);
    Choice *choice = find(products, &key), unkept = {0};
    bool done = false, had = choice->used, keeps = products->n_choices < MOST_CHOICES;
    Setup setup;
    describe_product(&products->call, &setup, p, &key);
    c.setup = &setup;
    bool may_time = keeps && !cuda_is_capturing(b) && !cuda_backend(b)->deterministic;
    if (had && choice->given && !choice->plain) {
        done = library_takes(&c, &choice->algo) && run(&c, &choice->algo, p->alpha) == CUBLAS_STATUS_SUCCESS;
        if (!done) choose(&c, choice, may_time, &done);
    }
    choice->given = false;
    if (!had) {
        if (!keeps) choice = &unkept; /* a full table: the library's first choice, looked up each time */
        choice->key = key;
        if (!as_its_twin(&c, choice)) choose(&c, choice, may_time, &done);
        choice->used = true;
        products->n_choices += keeps;
    }
    if (choice->plain) {
        multiply_plain(c.stream, p);
    } else if (!done) {
        cublasStatus_t status = run(&c, &choice->algo, p->alpha);
        if (status != CUBLAS_STATUS_SUCCESS)
            cuda_fail(b, "%lld x %lld x %lld product: %s", (long long)key.rows, (long long)key.cols,
                      (long long)key.inner, products->call.cublasLtGetStatusString(status));
    }
}

/* ---- choices out and in ---- */

void cuda_products_version(const CudaBackend *c, char *text, int size) {
    unsigned v = c->products ? (unsigned)c->products->call.cublasLtGetVersion() : 0;
    snprintf(text, (size_t)size, "cublasLt %u, cc %d.%d", v, c->major, c->minor);
}

_Static_assert(sizeof(cublasLtMatmulAlgo_t) <= CHOICE_BYTES, "an algorithm fits a MachineChoice");

/* A key as numbers, in the order the machine file shows them (store/machinefile.c). */
static void numbers_of(int64_t *n, const Key *k) {
    const int64_t all[CHOICE_NUMBERS] = {
        k->rows,    k->cols,    k->inner,    k->lda,       k->ldb, k->ldc, k->ld_add,       k->workspace_bytes,
        k->align_a, k->align_b, k->align_c,  k->align_add, k->in,  k->out, k->a_transposed, k->b_transposed,
        k->bias,    k->adds,    k->in_place, k->times};
    memcpy(n, all, sizeof all);
}

static Key key_from(const int64_t *n) {
    Key k;
    memset(&k, 0, sizeof k);
    k.rows = n[0], k.cols = n[1], k.inner = n[2], k.lda = n[3], k.ldb = n[4], k.ldc = n[5], k.ld_add = n[6];
    k.workspace_bytes = n[7];
    k.align_a = (int32_t)n[8], k.align_b = (int32_t)n[9], k.align_c = (int32_t)n[10], k.align_add = (int32_t)n[11];
    k.in = (int8_t)n[12], k.out = (int8_t)n[13], k.a_transposed = (int8_t)n[14], k.b_transposed = (int8_t)n[15];
    k.bias = (int8_t)n[16], k.adds = (int8_t)n[17], k.in_place = (int8_t)n[18], k.times = (int8_t)n[19];
    return k;
}

int64_t cuda_choices(Backend *b, MachineChoice *out, int64_t room) {
    const CudaProducts *p = cuda_backend(b)->products;
    int64_t n = 0;
    for (int i = 0; i < CHOICES; i++) {
        const Choice *c = &p->choice[i];
        if (!c->used) continue;
        if (n < room) {
            MachineChoice *to = &out[n];
            *to = (MachineChoice){.n_bytes = c->plain ? 0 : (int)sizeof c->algo};
            numbers_of(to->number, &c->key);
            if (!c->plain) memcpy(to->algorithm, &c->algo, sizeof c->algo);
        }
        n++;
    }
    return n;
}

void cuda_choose(Backend *b, const MachineChoice *list, int64_t n) {
    CudaProducts *p = cuda_backend(b)->products;
    for (int64_t i = 0; i < n && p->n_choices < MOST_CHOICES; i++) {
        if (list[i].n_bytes && list[i].n_bytes != (int)sizeof(cublasLtMatmulAlgo_t)) continue; /* another library's */
        Key key = key_from(list[i].number);
        Choice *c = find(p, &key);
        if (c->used) continue;
        *c = (Choice){.key = key, .used = true, .plain = !list[i].n_bytes, .given = true};
        if (list[i].n_bytes) memcpy(&c->algo, list[i].algorithm, sizeof c->algo);
        p->n_choices++;
    }
}
