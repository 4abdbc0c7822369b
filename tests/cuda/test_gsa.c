/* test_gsa.c - gated sparse attention on the GPU against the CPU: gates, selections by every rule with and without a
 * cache, attention over selected keys and its gradient, the indexer's loss and its gradient, reports. Selections may
 * differ where two scores are as good as equal: such tokens are counted. */
#include "base/rng.h"
#include "ir/sparse.h"
#include "tests/cuda/cuda_test.h"
#ifdef HAVE_CUDA
#include "backend/cuda/cuda.h"
#include "backend/cuda/sparse_kernels.h"
#endif

typedef struct Shape {
    Format f;
    int64_t rows, seq, doc;
    int heads, kv_heads, dim, index_heads, index_dim;
    int64_t k;
} Shape;

static const Shape shapes[] = {
    {FMT_F32, 2, 40, 40, 4, 2, 16, 2, 8, 9},        {FMT_F32, 1, 300, 77, 8, 2, 64, 4, 64, 130},
    {FMT_F32, 3, 17, 5, 3, 1, 20, 5, 12, 6},        {FMT_BF16, 2, 257, 257, 8, 2, 64, 4, 64, 64},
    {FMT_BF16, 1, 129, 60, 16, 4, 128, 4, 64, 33},  {FMT_F16, 2, 64, 64, 6, 6, 32, 1, 16, 16},
    {FMT_BF16, 1, 70, 70, 4, 1, 256, 4, 32, 20},    {FMT_BF16, 2, 321, 100, 4, 4, 96, 8, 64, 50},
    {FMT_F16, 1, 200, 200, 6, 2, 64, 4, 64, 100},   {FMT_BF16, 3, 63, 63, 2, 1, 64, 4, 64, 31},
    {FMT_BF16, 1, 1000, 640, 8, 2, 64, 4, 64, 300}, {FMT_BF16, 2, 333, 100, 8, 2, 128, 4, 64, 70},
    {FMT_F16, 1, 299, 200, 6, 2, 128, 4, 64, 120},
};

static AttrSparse sparse_of(const Shape *c, KeepBy keep, SelectBy by) {
    return (AttrSparse){.heads = {.heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .head_dim = c->dim,
                                  .seq = c->seq,
                                  .scale = 1.0f / sqrtf((float)c->dim)},
                        .index_heads = c->index_heads,
                        .index_dim = c->index_dim,
                        .by = by,
                        .keep = keep,
                        .k_base = c->k,
                        .k_min = MAX2(c->k / 2, 1),
                        .k_max = 2 * c->k,
                        .temperature = 1,
                        .key = 5};
}

static double slack(Format f) { return f == FMT_F32 ? 2e-5 : f == FMT_F16 ? 4e-3 : 2e-2; }

static Tid normal(CudaTest *t, Format f, int64_t rows, int64_t cols, uint64_t key) {
    Tid x = cuda_test_matrix(t, f, rows, cols);
    cuda_test_normal(t, x, key, 1);
    return x;
}

static Tid documents(CudaTest *t, const Shape *c) {
    int64_t n = c->rows * c->seq;
    int32_t *begin = MEM_NEW(int32_t, n);
    Tid id = cuda_test_vector(t, FMT_I32, n);
    for (int64_t i = 0; i < n; i++) begin[i] = (int32_t)(i % c->seq / c->doc * c->doc);
    cuda_test_set_i32(t, id, begin);
    mem_free(begin);
    return id;
}

/* Some of what each token sees, itself among them, ascending, then -1. */
static Tid some_keys(CudaTest *t, const Shape *c, int64_t most) {
    int64_t n = c->rows * c->seq;
    int32_t *keys = MEM_NEW(int32_t, n * most);
    Tid id = cuda_test_matrix(t, FMT_I32, n, most);
    for (int64_t i = 0; i < n; i++) {
        int64_t put = 0, at = i % c->seq;
        for (int64_t s = at / c->doc * c->doc; s < at && put < most - 1; s++)
            if (rng_u32(3, (uint64_t)(i * 4096 + s)) % 2) keys[i * most + put++] = (int32_t)s;
        keys[i * most + put++] = (int32_t)at;
        while (put < most) keys[i * most + put++] = -1;
    }
    cuda_test_set_i32(t, id, keys);
    mem_free(keys);
    return id;
}

/* One of `thin` of the keys that a token sees, itself among them; every seventh token has none. */
static Tid thin_keys(CudaTest *t, const Shape *c, int64_t from, uint32_t thin) {
    int64_t n = c->rows * c->seq, most = c->k;
    int32_t *keys = MEM_NEW(int32_t, n * most);
    Tid id = cuda_test_matrix(t, FMT_I32, n, most);
    for (int64_t i = 0; i < n; i++) {
        int64_t put = 0, at = i % c->seq;
        for (int64_t s = at / c->doc * c->doc; s <= at && put < most && at >= from && i % 7 != 3; s++)
            if (s == at || (put < most - 1 && rng_u32(3, (uint64_t)(i * 16384 + s)) % thin == 0))
                keys[i * most + put++] = (int32_t)s;
        while (put < most) keys[i * most + put++] = -1;
    }
    cuda_test_set_i32(t, id, keys);
    mem_free(keys);
    return id;
}

/* ---- gates ---- */

TEST(gates_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    static const struct {
        int64_t cols, gates, first, group;
    } shape[] = {{7, 7, 0, 1}, {96, 32, 64, 1}, {37, 4, 2, 8}, {2051, 2050, 1, 1}};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int act = GATE_SIGMOID; act <= GATE_SILU; act++)
            for (int i = 0; i < COUNT_OF(shape); i++) {
                CudaTest t;
                AttrGate at = {(GateAct)act, shape[i].first, shape[i].group};
                cuda_test_open(&t, "gate %d, %s, %lld columns", act, format_name(formats[f]), (long long)shape[i].cols);
                Tid x = normal(&t, formats[f], 33, shape[i].cols, 1), z = normal(&t, formats[f], 33, shape[i].gates, 2);
                Tid dy = normal(&t, formats[f], 33, shape[i].cols, 3),
                    y = cuda_test_matrix(&t, formats[f], 33, shape[i].cols);
                Tid dx = cuda_test_matrix(&t, formats[f], 33, shape[i].cols),
                    dz = cuda_test_matrix(&t, formats[f], 33, shape[i].gates);
                cuda_test_run(&t, (Step){.op = OP_GATE, .gate = {.in = {x, z}, .out = {y}}, .attr.gate = at}, false);
                cuda_test_expect(&t, y, 1e-5);
                cuda_test_run(&t, (Step){.op = OP_GATE, .gate = {.in = {x, z}, .out = {y}}, .attr.gate = at}, true);
                cuda_test_run(
                    &t, (Step){.op = OP_GATE_GRAD, .gate_grad = {.in = {dy, x, z}, .out = {dx, dz}}, .attr.gate = at},
                    false);
                cuda_test_expect(&t, dx, 1e-5);
                cuda_test_expect(&t, dz, 2e-5);
                cuda_test_run(
                    &t, (Step){.op = OP_GATE_GRAD, .gate_grad = {.in = {dy, x, z}, .out = {dx, dz}}, .attr.gate = at},
                    true);
                cuda_test_expect(&t, dz, 2e-5);
                cuda_test_run(&t, (Step){.op = OP_MIX, .mix = {.in = {x, dy}, .out = {y}}, .attr.mix = {0.7f, 0.3f}},
                              false);
                cuda_test_expect(&t, y, 1e-6);
                Tid stat = cuda_test_vector(&t, FMT_F64, REPORT_WORDS), beta = cuda_test_number(&t, FMT_F32, 0);
                t.p.t[stat].role = ROLE_STATISTIC;
                cuda_test_run(
                    &t, (Step){.op = OP_GATE_REPORT, .gate_report = {.in = {z, beta}, .out = {stat}}, .attr.gate = at},
                    false);
                for (int w = 0; w < REPORT_WORDS; w++)
                    EXPECT_NEAR(((double *)t.gpu[stat])[w], ((double *)t.cpu[stat])[w],
                                1e-3 + (w == REPORT_SHUT ? 2 : 0));
                cuda_test_close(&t);
            }
}

/* ---- selections ---- */

/* Tokens whose keys differ are those with scores as good as equal: few. Their number of keys may differ by one. */
static void expect_keys(CudaTest *t, Tid keys, double share) {
    int64_t n = prog_rows(&t->p, keys), most = prog_cols(&t->p, keys), differ = 0;
    const int32_t *a = t->cpu[keys], *b = t->gpu[keys];
    for (int64_t i = 0; i < n; i++) {
        int64_t have = 0, want = 0, wrong = 0;
        while (have < most && b[i * most + have] >= 0) have++;
        while (want < most && a[i * most + want] >= 0) want++;
        for (int64_t k = 1; k < have; k++) wrong += b[i * most + k] <= b[i * most + k - 1];
        for (int64_t k = have; k < most; k++) wrong += b[i * most + k] != -1;
        if (!EXPECT(!wrong && have >= want - 1 && have <= want + 1))
            test_note("    %s: token %lld has %lld keys, the CPU %lld", t->about, (long long)i, (long long)have,
                      (long long)want);
        differ += memcmp(a + i * most, b + i * most, (size_t)most * 4) != 0;
    }
    if (!EXPECT((double)differ <= share * (double)n))
        test_note("    %s: %lld of %lld tokens differ", t->about, (long long)differ, (long long)n);
}

static void select_case(const Shape *c, KeepBy keep, SelectBy by, bool with_relu) {
    CudaTest t;
    AttrSparse at = sparse_of(c, keep, by);
    int64_t n = c->rows * c->seq;
    at.relu = with_relu;
    cuda_test_open(&t, "select by %d, keep %d, %s, rows of %lld", by, keep, format_name(c->f), (long long)c->seq);
    Tid index = normal(&t, c->f, n, sparse_index_width(&at), 1), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2),
        docs = documents(&t, c);
    Tid qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 3),
        keys = cuda_test_matrix(&t, FMT_I32, n, sparse_most_keys(&at));
    cuda_test_run(&t,
                  (Step){.op = OP_SELECT,
                         .select = {.in = {.index = index, .bias = bias, .doc_begin = docs, .qkv = qkv}, .out = {keys}},
                         .attr.sparse = at},
                  false);
    expect_keys(&t, keys, by == SELECT_RANDOM && keep == KEEP_FIXED ? 0 : 0.1);
    cuda_test_close(&t);
}

TEST(selections_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int keep = KEEP_FIXED; keep <= KEEP_ENTROPY; keep++)
            for (int by = SELECT_LEARNED; by <= SELECT_ORACLE; by++)
                for (int relu = 0; relu < 2; relu++) select_case(&shapes[i], (KeepBy)keep, (SelectBy)by, relu);
}

/* Tokens of a few kinds, so that most scores are equal; one kind: all are, and the latest keys are taken. */
static void equal_case(const Shape *c, KeepBy keep, SelectBy by, int64_t kinds) {
    CudaTest t;
    AttrSparse at = sparse_of(c, keep, by);
    int64_t n = c->rows * c->seq, width = sparse_index_width(&at);
    cuda_test_open(&t, "select by %d, keep %d, of %lld kinds %lld of %lld", by, keep, (long long)kinds, (long long)c->k,
                   (long long)c->seq);
    Tid index = cuda_test_matrix(&t, c->f, n, width), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2),
        docs = documents(&t, c), keys = cuda_test_matrix(&t, FMT_I32, n, sparse_most_keys(&at));
    double *x = MEM_NEW(double, n * width);
    for (int64_t i = 0; i < n * width; i++)
        x[i] = (double)(rng_u32(11, (uint64_t)((i / width) % kinds * width + i % width)) % 65) / 32 - 1;
    cuda_test_set(&t, index, x);
    mem_free(x);
    cuda_test_run(&t,
                  (Step){.op = OP_SELECT,
                         .select = {.in = {.index = index, .bias = bias, .doc_begin = docs}, .out = {keys}},
                         .attr.sparse = at},
                  false);
    expect_keys(&t, keys, kinds == 1 || (by == SELECT_RANDOM && keep == KEEP_FIXED) ? 0 : 0.05);
    cuda_test_close(&t);
}

TEST(of_equal_scores_the_latest_are_selected_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const int64_t most[] = {1, 2, 31, 33, 69, 70, 200};
    for (int i = 0; i < COUNT_OF(most); i++)
        for (int keep = KEEP_FIXED; keep <= KEEP_ENTROPY; keep++)
            for (int kinds = 1; kinds < 8; kinds += 3) {
                Shape c = {FMT_BF16, 2, 70, 50, 4, 2, 64, i % 2 ? 8 : 4, 64, most[i]};
                equal_case(&c, (KeepBy)keep, SELECT_LEARNED, kinds);
                equal_case(&c, (KeepBy)keep, SELECT_RANDOM, kinds);
            }
}

TEST(tokens_that_see_nothing_select_nothing_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        const Shape *c = &shapes[i];
        CudaTest t;
        AttrSparse at = sparse_of(c, KEEP_VARIANCE, SELECT_LEARNED);
        int64_t n = c->rows * c->seq, most = sparse_most_keys(&at);
        cuda_test_open(&t, "select of tokens that see nothing, %s, rows of %lld", format_name(c->f), (long long)c->seq);
        Tid index = normal(&t, c->f, n, sparse_index_width(&at), 1), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2),
            docs = documents(&t, c), keys = cuda_test_matrix(&t, FMT_I32, n, most);
        for (int64_t token = 0; token < n; token += 3) ((int32_t *)t.initial[docs])[token] = (int32_t)c->seq + 1;
        cuda_test_run(&t,
                      (Step){.op = OP_SELECT,
                             .select = {.in = {.index = index, .bias = bias, .doc_begin = docs}, .out = {keys}},
                             .attr.sparse = at},
                      false);
        for (int64_t token = 0; token < n; token += 3) EXPECT(((int32_t *)t.gpu[keys])[token * most] == -1);
        expect_keys(&t, keys, 0.1);
        cuda_test_close(&t);
    }
}

/* A few tokens behind a cache that holds others' keys. */
static void cached_case(const Shape *c, Format cache_format) {
    enum { SLOTS = 96, CACHE_ROWS = 3 };
    CudaTest t;
    Shape one = *c;
    one.rows = CACHE_ROWS, one.seq = 2;
    AttrSparse at = sparse_of(&one, KEEP_VARIANCE, SELECT_LEARNED);
    at.heads.slots = SLOTS;
    int64_t n = one.rows * one.seq, width = sparse_index_width(&at), most = sparse_most_keys(&at);
    cuda_test_open(&t, "a cache in %s for %s", format_name(cache_format), format_name(c->f));
    Tid index = normal(&t, c->f, n, width, 1), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2);
    Tid cache = cuda_test_cube(&t, cache_format, CACHE_ROWS, SLOTS, c->index_dim),
        places = cuda_test_vector(&t, FMT_I32, n);
    Tid kv = cuda_test_cube(&t, cache_format, CACHE_ROWS, SLOTS * 2 * c->kv_heads, c->dim),
        rows = cuda_test_vector(&t, FMT_I32, CACHE_ROWS);
    Tid qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 3),
        keys = cuda_test_matrix(&t, FMT_I32, n, most);
    Tid o = cuda_test_matrix(&t, c->f, n, c->heads * c->dim);
    cuda_test_normal(&t, cache, 5, 1);
    cuda_test_normal(&t, kv, 6, 1);
    cuda_test_set_i32(&t, places, (int32_t[]){60, 61, 3, 4, -1, -1});
    cuda_test_set_i32(&t, rows, (int32_t[]){2, 0, 1});
    t.p.t[cache].role = t.p.t[kv].role = ROLE_CACHE;
    cuda_test_run(
        &t, (Step){.op = OP_INDEX_PUT, .index_put = {.in = {index, places, rows}, .out = {cache}}, .attr.sparse = at},
        false);
    cuda_test_near(&t, cache, 1e-6, 0.02);
    cuda_test_run(
        &t,
        (Step){.op = OP_SELECT,
               .select = {.in = {.index = index, .bias = bias, .positions = places, .rows = rows, .cache = cache},
                          .out = {keys}},
               .attr.sparse = at},
        false);
    expect_keys(&t, keys, 0.4);
    int32_t *list = MEM_NEW(int32_t, n * most);
    for (int64_t i = 0; i < n * most; i++) list[i] = i / most < 4 && i % most < 3 ? (int32_t)(i % most) : -1;
    cuda_test_set_i32(&t, keys, list);
    mem_free(list);
    cuda_test_run(&t,
                  (Step){.op = OP_ATTEND_SELECTED,
                         .attend_selected = {.in = {qkv, keys, kv, rows}, .out = {.o = o}},
                         .attr.heads = at.heads},
                  false);
    cuda_test_near(&t, o, slack(c->f), slack(c->f));
    cuda_test_close(&t);
}

TEST(caches_of_index_keys_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        cached_case(&shapes[i], shapes[i].f);
        cached_case(&shapes[i], FMT_INT8);
    }
}

/* Two tokens behind a cache of more keys than the blocks of short rows take. */
static void long_cache_case(KeepBy keep, SelectBy by, int64_t k) {
    enum { SLOTS = 8300 };
    CudaTest t;
    Shape c = {FMT_BF16, 1, 2, 2, 4, 2, 64, 4, 64, k};
    AttrSparse at = sparse_of(&c, keep, by);
    at.heads.slots = SLOTS;
    cuda_test_open(&t, "select by %d, keep %d, %lld of a cache of %d", by, keep, (long long)k, SLOTS);
    t.whole = true; /* no other case is as long */
    Tid index = normal(&t, c.f, 2, sparse_index_width(&at), 1), bias = normal(&t, c.f, 1, 2 * at.index_heads, 2),
        cache = cuda_test_cube(&t, c.f, 1, SLOTS, c.index_dim), places = cuda_test_vector(&t, FMT_I32, 2),
        rows = cuda_test_vector(&t, FMT_I32, 1), keys = cuda_test_matrix(&t, FMT_I32, 2, sparse_most_keys(&at));
    cuda_test_normal(&t, cache, 5, 1);
    cuda_test_set_i32(&t, places, (int32_t[]){8255, 8296});
    cuda_test_set_i32(&t, rows, (int32_t[]){0});
    t.p.t[cache].role = ROLE_CACHE;
    cuda_test_run(
        &t,
        (Step){.op = OP_SELECT,
               .select = {.in = {.index = index, .bias = bias, .positions = places, .rows = rows, .cache = cache},
                          .out = {keys}},
               .attr.sparse = at},
        false);
    expect_keys(&t, keys, by == SELECT_RANDOM && keep == KEEP_FIXED ? 0 : 0.5);
    cuda_test_close(&t);
}

TEST(keys_of_a_long_cache_are_selected_on_the_gpu_as_on_the_cpu) {
    if (!cuda_test_ready()) return;
    for (int keep = KEEP_FIXED; keep <= KEEP_ENTROPY; keep++)
        for (int by = SELECT_LEARNED; by <= SELECT_RANDOM; by++) {
            long_cache_case((KeepBy)keep, (SelectBy)by, 2900);
            long_cache_case((KeepBy)keep, (SelectBy)by, 8256);
        }
}

/* Ascending places from `position` on, row by row; the last few tokens of a row do not exist. */
static Tid places_from(CudaTest *t, int64_t rows, int64_t seq, const int32_t *position) {
    Tid id = cuda_test_vector(t, FMT_I32, rows * seq);
    int32_t *places = MEM_NEW(int32_t, rows * seq);
    for (int64_t i = 0; i < rows * seq; i++)
        places[i] = i % seq < seq - 3 ? position[i / seq] + (int32_t)(i % seq) : -1;
    cuda_test_set_i32(t, id, places);
    mem_free(places);
    return id;
}

/* Prompts behind a cache, whose tokens' selections are drawn: of every `thin` keys that a token sees one, so that the
 * unions of neighbours are short or longer than a block's list. */
static void prompt_case(const Shape *c, int64_t slots, uint32_t thin) {
    enum { ROWS = 2, CACHE_ROWS = 3 };
    CudaTest t;
    Shape some = *c;
    some.rows = ROWS, some.seq = 70;
    AttrSparse at = sparse_of(&some, KEEP_VARIANCE, SELECT_LEARNED);
    at.heads.slots = slots;
    at.k_max = slots;
    int64_t n = ROWS * some.seq, most = slots;
    int32_t position[ROWS] = {(int32_t)(slots - some.seq), 5};
    cuda_test_open(&t, "prompts behind a cache of %lld, %s, heads of %d", (long long)slots, format_name(c->f), c->dim);
    Tid index = normal(&t, c->f, n, sparse_index_width(&at), 1), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2);
    Tid cache = cuda_test_cube(&t, c->f, CACHE_ROWS, slots, c->index_dim),
        kv = cuda_test_cube(&t, c->f, CACHE_ROWS, slots * 2 * c->kv_heads, c->dim);
    Tid places = places_from(&t, ROWS, some.seq, position), rows = cuda_test_vector(&t, FMT_I32, ROWS);
    Tid qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 3),
        keys = cuda_test_matrix(&t, FMT_I32, n, most), o = cuda_test_matrix(&t, c->f, n, c->heads * c->dim);
    cuda_test_normal(&t, cache, 5, 1);
    cuda_test_normal(&t, kv, 6, 1);
    cuda_test_set_i32(&t, rows, (int32_t[]){2, 0});
    t.p.t[cache].role = t.p.t[kv].role = ROLE_CACHE;
    cuda_test_run(
        &t,
        (Step){.op = OP_SELECT,
               .select = {.in = {.index = index, .bias = bias, .positions = places, .rows = rows, .cache = cache},
                          .out = {keys}},
               .attr.sparse = at},
        false);
    expect_keys(&t, keys, 0.3);
    int32_t *list = MEM_NEW(int32_t, n * most);
    for (int64_t i = 0; i < n; i++) {
        int64_t put = 0, last = i % some.seq < some.seq - 3 ? position[i / some.seq] + i % some.seq : -1;
        for (int64_t s = 0; s <= last; s++)
            if (s == last || rng_u32(9, (uint64_t)(i * slots + s)) % thin == 0) list[i * most + put++] = (int32_t)s;
        while (put < most) list[i * most + put++] = -1;
    }
    cuda_test_set_i32(&t, keys, list);
    mem_free(list);
    cuda_test_run(&t,
                  (Step){.op = OP_ATTEND_SELECTED,
                         .attend_selected = {.in = {qkv, keys, kv, rows}, .out = {.o = o}},
                         .attr.heads = at.heads},
                  false);
    cuda_test_near(&t, o, slack(c->f), slack(c->f));
    cuda_test_close(&t);
}

TEST(prompts_behind_a_cache_select_and_attend_on_the_gpu_as_on_the_cpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++) prompt_case(&shapes[i], 400, 3);
    prompt_case(&shapes[3], 6000, 4);
    prompt_case(&shapes[4], 6000, 40);
    prompt_case(&shapes[11], 5003, 1);
}

static void keep_cpu(CudaTest *t, Tid id) { memcpy(t->initial[id], t->cpu[id], (size_t)prog_bytes(&t->p, id)); }

/* Attention over the keys and its gradient, which may differ by `by`, from the same o and lse on both devices. */
static void attend_and_back(CudaTest *t, const Shape *c, Tid qkv, Tid keys, bool ordered, double by) {
    AttrHeads heads = sparse_of(c, KEEP_FIXED, SELECT_LEARNED).heads;
    int64_t n = c->rows * c->seq;
    Tid d_o = normal(t, c->f, n, c->heads * c->dim, 2), o = cuda_test_matrix(t, c->f, n, c->heads * c->dim);
    Tid lse = cuda_test_matrix(t, FMT_F32, n, c->heads), d_qkv = cuda_test_matrix(t, c->f, n, prog_cols(&t->p, qkv));
    cuda_test_run(t,
                  (Step){.op = OP_ATTEND_SELECTED,
                         .attend_selected = {.in = {qkv, keys}, .out = {o, lse}},
                         .attr.heads = heads},
                  false);
    cuda_test_near(t, o, slack(c->f), slack(c->f));
    cuda_test_near(t, lse, 1e-4, 1e-4);
    keep_cpu(t, o);
    keep_cpu(t, lse);
    t->loose = !ordered;
    cuda_test_run(t,
                  (Step){.op = OP_ATTEND_SELECTED_GRAD,
                         .attend_selected_grad = {.in = {.d_o = d_o, .qkv = qkv, .o = o, .lse = lse, .keys = keys},
                                                  .out = {d_qkv}},
                         .attr.heads = heads},
                  false);
    cuda_test_near(t, d_qkv, by, slack(c->f));
    t->loose = false;
}

/* Rows so long that the union of neighbours' selections is attended to instead of tiles of the whole row. */
TEST(selections_of_long_rows_are_attended_to_on_the_gpu_as_on_the_cpu) {
    if (!cuda_test_ready()) return;
    static const Shape shape[] = {{FMT_BF16, 1, 8261, 8261, 4, 2, 64, 4, 64, 40},
                                  {FMT_BF16, 1, 8200, 3000, 4, 1, 128, 4, 64, 30}};
    for (int i = 0; i < COUNT_OF(shape); i++) {
        const Shape *c = &shape[i];
        CudaTest t;
        int64_t n = c->rows * c->seq;
        cuda_test_open(&t, "attend_selected, rows of %lld", (long long)c->seq);
        t.whole = !test_brief(); /* no other case is as long */
        Tid qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 1), keys = some_keys(&t, c, c->k);
        attend_and_back(&t, c, qkv, keys, false, 5 * slack(c->f));
        cuda_test_close(&t);
    }
}

/* ---- attention ---- */

TEST(attention_over_selected_keys_on_the_gpu_is_the_cpus) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        const Shape *c = &shapes[i];
        CudaTest t;
        AttrSparse at = sparse_of(c, KEEP_FIXED, SELECT_LEARNED);
        int64_t n = c->rows * c->seq, width = (c->heads + 2 * c->kv_heads) * c->dim;
        cuda_test_open(&t, "attend_selected %s, rows of %lld, %lld keys", format_name(c->f), (long long)c->seq,
                       (long long)c->k);
        Tid qkv = normal(&t, c->f, n, width, 1), keys = some_keys(&t, c, c->k);
        attend_and_back(&t, c, qkv, keys, true, 5 * slack(c->f));
        Tid stat = cuda_test_vector(&t, FMT_F64, REPORT_WORDS), beta = cuda_test_number(&t, FMT_F32, 0),
            docs = documents(&t, c);
        t.p.t[stat].role = ROLE_STATISTIC;
        cuda_test_run(&t,
                      (Step){.op = OP_ATTEND_REPORT,
                             .attend_report = {.in = {qkv, keys, docs, beta}, .out = {stat}},
                             .attr.heads = at.heads},
                      false);
        for (int w = 0; w < REPORT_WORDS; w++)
            EXPECT_NEAR(((double *)t.gpu[stat])[w], ((double *)t.cpu[stat])[w], 1e-3 * (double)n);
        cuda_test_close(&t);
    }
}

/* Short rows are gathered as long ones are. */
static void gather_all(bool yes) {
#ifdef HAVE_CUDA
    cuda_backend(cuda_test_device())->gathers_all = yes;
#endif
}

/* Gives how it was. */
static bool be_deterministic(bool yes) {
    bool was = false;
#ifdef HAVE_CUDA
    CudaBackend *gpu = cuda_backend(cuda_test_device());
    was = gpu->deterministic, gpu->deterministic = yes;
#endif
    return was;
}

/* Backward of long rows, made to serve short ones; whole: also where the processor plays the kernels. */
static void gathered_case(const Shape *c, int64_t from, uint32_t thin, bool deterministic, bool whole, double by) {
    CudaTest t;
    AttrHeads heads = sparse_of(c, KEEP_FIXED, SELECT_LEARNED).heads;
    int64_t n = c->rows * c->seq;
    if (!sparse_device_gathers(&heads, c->f)) return;
    cuda_test_open(&t, "back over gathered keys, %s, %lld rows of %lld, heads of %d, 1 of %u keys%s", format_name(c->f),
                   (long long)c->rows, (long long)c->seq, c->dim, thin, deterministic ? ", deterministic" : "");
    t.whole = whole;
    t.scratch = sparse_device_gathered_grad_bytes(&heads, n);
    Tid qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 1), keys = thin_keys(&t, c, from, thin);
    bool was = be_deterministic(deterministic);
    gather_all(true);
    attend_and_back(&t, c, qkv, keys, deterministic, by);
    gather_all(false);
    be_deterministic(was);
    cuda_test_close(&t);
}

TEST(gradients_over_gathered_keys_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    static const Shape shape[] = {
        {FMT_BF16, 2, 77, 77, 4, 1, 64, 4, 64, 77},  {FMT_F16, 1, 90, 40, 4, 2, 128, 4, 64, 40},
        {FMT_BF16, 2, 131, 50, 2, 2, 64, 4, 64, 50}, {FMT_BF16, 1, 100, 100, 8, 1, 96, 4, 64, 60},
        {FMT_F16, 2, 65, 65, 2, 1, 80, 4, 64, 65},   {FMT_BF16, 1, 70, 70, 16, 4, 128, 4, 64, 70},
        {FMT_F16, 1, 41, 41, 16, 1, 64, 4, 64, 41},  {FMT_BF16, 1, 300, 300, 4, 4, 128, 4, 64, 300},
        {FMT_F16, 1, 64, 64, 32, 1, 64, 4, 64, 64},
    };
    enum { QUICK = 2 };
    for (int i = 0; i < COUNT_OF(shape); i++)
        for (uint32_t thin = 1; thin < 8; thin += 3)
            gathered_case(&shape[i], 0, thin, false, !test_brief() || (i < QUICK && thin == 4),
                          2 * slack(shape[i].f));
    for (int i = 0; i < COUNT_OF(shapes); i++) gathered_case(&shapes[i], 0, 3, false, false, 2 * slack(shapes[i].f));
}

/* The union of the last tokens is longer than a block's list. */
TEST(long_unions_go_back_on_the_gpu_as_on_the_cpu) {
    if (!cuda_test_ready()) return;
    static const Shape shape[] = {{FMT_BF16, 1, 5003, 5003, 2, 1, 64, 4, 64, 400},
                                  {FMT_F16, 1, 3391, 3391, 4, 1, 128, 4, 64, 3391}};
    gathered_case(&shape[0], 4930, 20, false, !test_brief(), 1e-3); /* gradients are 0.01 and 0.003 */
    gathered_case(&shape[1], 3370, 1, false, !test_brief(), 1e-4);
}

TEST(a_deterministic_device_goes_back_over_selected_keys_in_one_order) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++) gathered_case(&shapes[i], 0, 3, true, false, 5 * slack(shapes[i].f));
}

/* ---- the loss ---- */

static void loss_case(const Shape *c, bool selected, bool with_relu) {
    CudaTest t;
    AttrSparse at = sparse_of(c, KEEP_FIXED, SELECT_LEARNED);
    AttrHeads heads = at.heads;
    int64_t n = c->rows * c->seq, width = sparse_index_width(&at);
    at.relu = with_relu;
    cuda_test_open(&t, "index_loss %s, rows of %lld%s", format_name(c->f), (long long)c->seq,
                   selected ? ", selected" : "");
    Tid index = normal(&t, c->f, n, width, 1), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2),
        docs = documents(&t, c);
    Tid qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 3), keys = some_keys(&t, c, c->k);
    Tid o = cuda_test_matrix(&t, c->f, n, c->heads * c->dim), lse = cuda_test_matrix(&t, FMT_F32, n, c->heads);
    Tid weight = cuda_test_vector(&t, FMT_F32, n), divisor = cuda_test_number(&t, FMT_F32, 8),
        beta = cuda_test_number(&t, FMT_F32, 0);
    Tid stat = cuda_test_vector(&t, FMT_F64, 1), both = cuda_test_vector(&t, FMT_F64, 1),
        d_index = cuda_test_matrix(&t, c->f, n, width);
    Tid d_bias = cuda_test_vector(&t, FMT_F32, 2 * at.index_heads), clock = cuda_test_clock(&t, 1, 0, 0);
    double *weights = MEM_NEW(double, n);
    for (int64_t i = 0; i < n; i++) weights[i] = (double)(i % 3);
    cuda_test_set(&t, weight, weights);
    mem_free(weights);
    t.p.t[stat].role = t.p.t[both].role = ROLE_STATISTIC;
    t.p.t[d_bias].role = ROLE_GRADIENT;
    if (selected)
        cuda_test_run(
            &t,
            (Step){
                .op = OP_ATTEND_SELECTED, .attend_selected = {.in = {qkv, keys}, .out = {o, lse}}, .attr.heads = heads},
            false);
    else
        cuda_test_run(&t, (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs}, .out = {o, lse}}, .attr.heads = heads},
                      false);
    keep_cpu(&t, lse);
    Step s = {.op = OP_INDEX_LOSS, .attr.sparse = at};
    s.index_loss.in.index = index, s.index_loss.in.bias = bias, s.index_loss.in.qkv = qkv, s.index_loss.in.lse = lse;
    s.index_loss.in.keys = selected ? keys : NONE, s.index_loss.in.doc_begin = docs, s.index_loss.in.weight = weight;
    s.index_loss.in.divisor = divisor, s.index_loss.in.beta = beta, s.index_loss.out.stat = stat;
    cuda_test_run(&t, s, false);
    double want = *(double *)t.cpu[stat];
    EXPECT_NEAR(*(double *)t.gpu[stat], want, 1e-4 * (1 + fabs(want)));
    s.op = OP_INDEX_LOSS_GRAD;
    s.index_loss_grad.in.clock = clock;
    s.index_loss_grad.out.d_index = d_index, s.index_loss_grad.out.d_bias = d_bias;
    s.index_loss_grad.in.stat_beta = beta, s.index_loss_grad.out.stat = both;
    cuda_test_run(&t, s, false);
    cuda_test_near(&t, d_index, slack(c->f), slack(c->f));
    cuda_test_near(&t, d_bias, 1e-3, 1e-3);
    EXPECT_NEAR(*(double *)t.gpu[both], want, 1e-4 * (1 + fabs(want)));
    cuda_test_close(&t);
}

TEST(the_loss_of_an_indexer_on_the_gpu_is_the_cpus) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int selected = 0; selected < 2; selected++)
            for (int relu = 0; relu < 2; relu++) loss_case(&shapes[i], selected, relu);
}

/* Otherwise tiles do it, whose pairs are rounded to 16 bits. */
static bool can_gather_losses(const AttrSparse *k) {
#ifdef HAVE_CUDA
    return cuda_index_gathered_shared(k, true) <= cuda_backend(cuda_test_device())->shared_bytes;
#else
    return false;
#endif
}

/* The loss over gathered keys: tokens of a row from `from` on count, but for some of weight 0. What attention summed to
 * is drawn. */
static void gathered_loss_case(const Shape *c, int64_t from, uint32_t thin, bool with_relu) {
    CudaTest t;
    AttrSparse at = sparse_of(c, KEEP_FIXED, SELECT_LEARNED);
    int64_t n = c->rows * c->seq, width = sparse_index_width(&at);
    if (!can_gather_losses(&at)) return;
    at.relu = with_relu;
    cuda_test_open(&t, "gathered index_loss %s, %lld rows of %lld, %d heads of %d, %d of the indexer",
                   format_name(c->f), (long long)c->rows, (long long)c->seq, c->heads, c->dim, c->index_heads);
    t.whole = from > 0 && !test_brief(); /* no other case is as long */
    Tid index = normal(&t, c->f, n, width, 1), bias = normal(&t, c->f, 1, 2 * at.index_heads, 2),
        docs = documents(&t, c), qkv = normal(&t, c->f, n, (c->heads + 2 * c->kv_heads) * c->dim, 3),
        lse = normal(&t, FMT_F32, n, c->heads, 4), keys = thin_keys(&t, c, from, thin);
    Tid weight = cuda_test_vector(&t, FMT_F32, n), divisor = cuda_test_number(&t, FMT_F32, from ? 0.002 : 0.01),
        beta = cuda_test_number(&t, FMT_F32, 0), clock = cuda_test_clock(&t, 1, 0, 0);
    Tid stat = cuda_test_vector(&t, FMT_F64, 1), both = cuda_test_vector(&t, FMT_F64, 1),
        d_index = cuda_test_matrix(&t, c->f, n, width),
        d_bias = cuda_test_vector(&t, FMT_F32, 2 * at.index_heads);
    for (int64_t i = 0; i < n; i++) ((float *)t.initial[weight])[i] = i % c->seq < from ? 0 : (float)(i % 3);
    for (int64_t i = 0; i < n * c->heads; i++) ((float *)t.initial[lse])[i] += logf((float)c->k);
    t.p.t[stat].role = t.p.t[both].role = ROLE_STATISTIC;
    t.p.t[d_bias].role = ROLE_GRADIENT;
    gather_all(c->seq <= SPARSE_DEVICE_LONG);
    Step s = {.op = OP_INDEX_LOSS, .attr.sparse = at};
    s.index_loss.in.index = index, s.index_loss.in.bias = bias, s.index_loss.in.qkv = qkv, s.index_loss.in.lse = lse;
    s.index_loss.in.keys = keys, s.index_loss.in.doc_begin = docs, s.index_loss.in.weight = weight;
    s.index_loss.in.divisor = divisor, s.index_loss.in.beta = beta, s.index_loss.out.stat = stat;
    cuda_test_run(&t, s, false);
    double want = *(double *)t.cpu[stat];
    EXPECT_NEAR(*(double *)t.gpu[stat], want, 1e-4 * (1 + fabs(want)));
    s.op = OP_INDEX_LOSS_GRAD;
    s.index_loss_grad.in.clock = clock;
    s.index_loss_grad.out.d_index = d_index, s.index_loss_grad.out.d_bias = d_bias;
    s.index_loss_grad.in.stat_beta = beta, s.index_loss_grad.out.stat = both;
    t.loose = true; /* sums of keys have no fixed order */
    cuda_test_run(&t, s, false);
    cuda_test_near(&t, d_index, 10 * slack(c->f), slack(c->f)); /* they are 1 to 20 in the mean */
    cuda_test_near(&t, d_bias, 1e-2, 1e-3);
    EXPECT_NEAR(*(double *)t.gpu[both], want, 1e-4 * (1 + fabs(want)));
    gather_all(false);
    cuda_test_close(&t);
}

TEST(the_loss_of_an_indexer_over_gathered_keys_on_the_gpu_is_the_cpus) {
    if (!cuda_test_ready()) return;
    static const Shape shape[] = {
        {FMT_BF16, 2, 21, 21, 4, 2, 64, 4, 64, 15},    {FMT_F16, 1, 37, 20, 4, 1, 64, 8, 64, 20},
        {FMT_BF16, 2, 83, 83, 8, 2, 64, 4, 64, 50},    {FMT_F16, 2, 75, 40, 4, 4, 64, 8, 64, 33},
        {FMT_BF16, 1, 150, 150, 2, 1, 128, 8, 64, 60}, {FMT_F16, 1, 130, 50, 8, 2, 128, 4, 64, 40},
        {FMT_BF16, 1, 33, 33, 3, 3, 96, 4, 64, 20},    {FMT_F16, 3, 7, 7, 4, 1, 96, 8, 64, 9},
    };
    for (int i = 0; i < COUNT_OF(shape); i++)
        for (int relu = 0; relu < 2; relu++)
            for (uint32_t thin = 1; thin < 6; thin += 4) gathered_loss_case(&shape[i], 0, thin, relu);
    gathered_loss_case(&(Shape){FMT_BF16, 1, 3000, 3000, 2, 1, 64, 4, 64, 260}, 2950, 12, false);
    gathered_loss_case(&(Shape){FMT_BF16, 1, 8261, 8261, 2, 1, 64, 4, 64, 40}, 8220, 210, false);
}
