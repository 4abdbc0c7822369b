/* test_sparse.c - gates, the indexer's selection, attention over what it selects and the loss it learns by: against
 * plain loops in doubles, at lengths around every tile and block, and against central differences. */
#include "base/rng.h"
#include "backend/cpu/sparse.h"
#include "ir/sampling.h"
#include "ir/sparse.h"
#include "tests/ops/bench.h"

/* ---- gates ---- */

typedef struct Gates {
    AttrGate at;
    int64_t n, cols, gates;
    double *x, *z, *dy;
} Gates;

static double gate_value(GateAct act, double z) {
    return act == GATE_SIGMOID ? 1 / (1 + exp(-z)) : act == GATE_TANH ? (tanh(z) + 1) / 2 : z / (1 + exp(-z));
}

static double gated(const Gates *k, int64_t row, int64_t c) {
    int64_t g = c - k->at.first;
    double x = k->x[row * k->cols + c];
    return g < 0 || g >= k->gates * k->at.group ? x : x * gate_value(k->at.act, k->z[row * k->gates + g / k->at.group]);
}

static double gate_loss(void *context) {
    const Gates *k = context;
    double sum = 0;
    for (int64_t i = 0; i < k->n; i++)
        for (int64_t c = 0; c < k->cols; c++) sum += k->dy[i * k->cols + c] * gated(k, i, c);
    return sum;
}

static void gate_case(Format f, AttrGate at, int64_t n, int64_t cols, int64_t gates) {
    Bench b;
    bench_open(&b, "gate %d, %s, %lld x %lld, %lld gates of %lld from %lld", at.act, format_name(f), (long long)n,
               (long long)cols, (long long)gates, (long long)at.group, (long long)at.first);
    Tid x = bench_draw(&b, f, n, cols, 1), z = bench_draw(&b, f, n, gates, 2), dy = bench_draw(&b, f, n, cols, 3);
    Tid y = bench_matrix(&b, f, n, cols), dx = bench_matrix(&b, f, n, cols), dz = bench_matrix(&b, f, n, gates);
    Gates k = {at, n, cols, gates, bench_initial(&b, x), bench_initial(&b, z), bench_initial(&b, dy)};
    double *want = bench_doubles(&b, n * cols);
    for (int64_t i = 0; i < n * cols; i++) want[i] = gated(&k, i / cols, i % cols);
    bench_check(&b, (Step){.op = OP_GATE, .gate = {.in = {x, z}, .out = {y}}, .attr.gate = at});
    bench_expect(&b, y, want, 1e-5);
    bench_check(&b, (Step){.op = OP_GATE_GRAD, .gate_grad = {.in = {dy, x, z}, .out = {dx, dz}}, .attr.gate = at});
    if (f == FMT_F32) bench_differences(&b, "dx", k.x, bench_now(&b, dx), n * cols, gate_loss, &k, 1e-4);
    if (f == FMT_F32) bench_differences(&b, "dz", k.z, bench_now(&b, dz), n * gates, gate_loss, &k, 1e-4);
    bench_close(&b);
}

TEST(gates_multiply_their_columns) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int act = GATE_SIGMOID; act <= GATE_SILU; act++)
        for (int f = 0; f < COUNT_OF(formats); f++) {
            gate_case(formats[f], (AttrGate){(GateAct)act, 0, 1}, 5, 7, 7);
            gate_case(formats[f], (AttrGate){(GateAct)act, 24, 1}, 9, 40, 16); /* values behind queries and keys */
            gate_case(formats[f], (AttrGate){(GateAct)act, 2, 8}, 11, 37, 4);  /* a number a head */
            gate_case(formats[f], (AttrGate){(GateAct)act, 1, 1}, 3, 2051, 2050);
            gate_case(formats[f], (AttrGate){(GateAct)act, 0, 300}, 2, 1200, 4);
        }
}

TEST(mix_is_a_weighted_sum) {
    Bench b;
    bench_open(&b, "mix");
    Tid x = bench_draw(&b, FMT_F32, 33, 70, 1), y = bench_draw(&b, FMT_F32, 33, 70, 2),
        to = bench_matrix(&b, FMT_F32, 33, 70);
    double *want = bench_initial(&b, x), *other = bench_initial(&b, y);
    for (int i = 0; i < 33 * 70; i++) want[i] = 0.75 * want[i] + 0.25 * other[i];
    bench_check(&b, (Step){.op = OP_MIX, .mix = {.in = {x, y}, .out = {to}}, .attr.mix = {0.75f, 0.25f}});
    bench_expect(&b, to, want, 1e-6);
    bench_close(&b);
}

/* ---- the indexer, in doubles ---- */

typedef struct Sparse {
    AttrSparse at;
    int64_t n;
    double *index, *bias, *qkv, *d_o, *lse, *weight;
    int32_t *doc, *keys; /* keys NULL: all that is seen */
    int64_t most;
} Sparse;

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double score(const Sparse *k, int64_t t, int64_t s) { /* tokens of the batch */
    int64_t heads = k->at.index_heads, dim = k->at.index_dim, width = sparse_index_width(&k->at);
    const double *q = k->index + t * width, *key = k->index + s * width + heads * dim, *w = q + heads * dim + dim;
    double sum = 0;
    for (int64_t j = 0; j < heads; j++) {
        double a = k->bias[heads + j];
        for (int64_t e = 0; e < dim; e++) a += q[j * dim + e] * key[e] / sqrt((double)dim);
        sum += sigmoid(w[j] + k->bias[j]) * (k->at.relu ? fmax(a, 0) : sigmoid(a));
    }
    return sum;
}

static double qk(const Sparse *k, int64_t t, int64_t s, int64_t h) {
    const AttrHeads *a = &k->at.heads;
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim, g = h / (a->heads / a->kv_heads);
    double sum = 0;
    for (int64_t d = 0; d < a->head_dim; d++)
        sum += k->qkv[t * width + h * a->head_dim + d] * k->qkv[s * width + (a->heads + g) * a->head_dim + d];
    return sum * a->scale;
}

static int64_t kept(const Sparse *k, const double *x, int64_t n) {
    double sum = 0, square = 0, var = 0, value = (double)k->at.k_base, top = -1e300, total = 0, entropy = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i], square += x[i] * x[i], top = fmax(top, x[i]);
    for (int64_t i = 0; i < n; i++)
        var += (x[i] - sum / (double)n) * (x[i] - sum / (double)n), total += exp(x[i] - top);
    for (int64_t i = 0; i < n; i++) entropy -= exp(x[i] - top) / total * log(exp(x[i] - top) / total);
    if (k->at.keep == KEEP_FIXED) return MIN2(k->at.k_base, n);
    var = n > 1 ? var / (double)(n - 1) : 0;
    if (k->at.keep == KEEP_VARIANCE)
        value *= 0.5 + 1 / (1 + k->at.temperature * var / (square / (double)n + 1e-8));
    else
        value *= 0.5 + k->at.temperature * entropy / log((double)n + 1);
    return MIN2((int64_t)fmin(fmax(value, (double)k->at.k_min), (double)k->at.k_max), n);
}

/* Whether `list` holds the k best of x[0..n), as far as fp32 can tell. */
static void expect_best(Bench *b, const int32_t *list, int64_t most, int64_t begin, const double *x, int64_t n,
                        int64_t k, int64_t token) {
    int64_t have = 0, wrong = 0;
    double least = 1e300, best_out = -1e300;
    while (have < most && list[have] >= 0) have++;
    for (int64_t i = have; i < most; i++) wrong += list[i] != -1;
    for (int64_t i = 0; i < have; i++)
        wrong += list[i] < begin || list[i] >= begin + n || (i && list[i] <= list[i - 1]);
    for (int64_t s = 0, at = 0; s < n && !wrong; s++) {
        bool in = at < have && list[at] == begin + s;
        at += in;
        if (in)
            least = fmin(least, x[s]);
        else
            best_out = fmax(best_out, x[s]);
    }
    if (!EXPECT(!wrong && have == MIN2(k, most) && least >= best_out - 2.0 / 4096))
        test_note("    %s: token %lld has %lld keys of %lld, wanted %lld; %g and %g", b->about, (long long)token,
                  (long long)have, (long long)n, (long long)k, least, best_out);
}

static Tid bench_docs(Bench *b, int32_t *doc, int64_t n, int64_t seq, int64_t doc_len) {
    Tid t = bench_vector(b, FMT_I32, n);
    for (int64_t i = 0; i < n; i++) doc[i] = (int32_t)(i % seq / doc_len * doc_len);
    bench_set_i32(b, t, doc);
    return t;
}

static AttrSparse sparse_of(int64_t seq, KeepBy keep, int64_t k) {
    AttrSparse a = {.heads = {.heads = 4, .kv_heads = 2, .head_dim = 6, .seq = seq, .scale = 0.4f},
                    .index_heads = 3,
                    .index_dim = 5,
                    .keep = keep,
                    .k_base = k,
                    .k_min = MAX2(k / 2, 1),
                    .k_max = 2 * k,
                    .temperature = 1,
                    .key = 7};
    return a;
}

static void select_case(int64_t seq, int64_t doc_len, AttrSparse at) {
    enum { ROWS = 2 };
    Bench b;
    int64_t n = ROWS * seq, width = sparse_index_width(&at);
    at.heads.seq = seq;
    int64_t most = sparse_most_keys(&at), qkv_width = (at.heads.heads + 2 * at.heads.kv_heads) * at.heads.head_dim;
    bench_open(&b, "select %d keep %d, rows of %lld, documents of %lld, k %lld", at.by, at.keep, (long long)seq,
               (long long)doc_len, (long long)at.k_base);
    int32_t *doc = MEM_NEW(int32_t, n);
    Tid index = bench_draw(&b, FMT_F32, n, width, 1), bias = bench_draw(&b, FMT_F32, 1, 2 * at.index_heads, 2);
    Tid qkv = bench_draw(&b, FMT_F32, n, qkv_width, 3), docs = bench_docs(&b, doc, n, seq, doc_len);
    Tid keys = bench_matrix(&b, FMT_I32, n, most);
    Sparse k = {.at = at,
                .n = n,
                .index = bench_initial(&b, index),
                .bias = bench_initial(&b, bias),
                .qkv = bench_initial(&b, qkv)};
    bench_check(&b,
                (Step){.op = OP_SELECT,
                       .select = {.in = {.index = index, .bias = bias, .doc_begin = docs, .qkv = qkv}, .out = {keys}},
                       .attr.sparse = at});
    double *x = bench_doubles(&b, seq);
    for (int64_t t = 0; t < n; t++) {
        int64_t row = t / seq * seq, begin = doc[t], count = t % seq + 1 - begin;
        const int32_t *list = (const int32_t *)b.now[keys] + t * most;
        for (int64_t s = 0; s < count; s++) x[s] = score(&k, t, row + begin + s);
        int64_t want = kept(&k, x, count);
        if (at.by == SELECT_ORACLE)
            for (int64_t s = 0; s < count; s++) x[s] = 0;
        for (int64_t h = 0; at.by == SELECT_ORACLE && h < at.heads.heads; h++) {
            double sum = 0;
            for (int64_t s = 0; s < count; s++) sum += exp(qk(&k, t, row + begin + s, h));
            for (int64_t s = 0; s < count; s++) x[s] += exp(qk(&k, t, row + begin + s, h)) / sum;
        }
        if (at.by == SELECT_RANDOM)
            for (int64_t s = 0; s < count; s++) x[s] = 0; /* any of them will do */
        expect_best(&b, list, most, begin, x, count, want, t);
    }
    mem_free(doc);
    bench_close(&b);
}

TEST(selections_are_the_best_of_what_a_token_sees) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 40, 127, 128, 129, 200};
    for (int l = 0; l < COUNT_OF(lengths); l++)
        for (int keep = KEEP_FIXED; keep <= KEEP_ENTROPY; keep++) {
            AttrSparse at = sparse_of(lengths[l], (KeepBy)keep, 9);
            select_case(lengths[l], lengths[l], at);
            if (lengths[l] > 16) select_case(lengths[l], 13, at);
            at.relu = true;
            select_case(lengths[l], 31, at);
        }
    for (int by = SELECT_RANDOM; by <= SELECT_ORACLE; by++) {
        AttrSparse at = sparse_of(50, KEEP_VARIANCE, 7);
        at.by = (SelectBy)by;
        select_case(50, 50, at);
        select_case(50, 21, at);
    }
}

/* kept + (1 - kept) k/n of a query's keys are its neighbour's too. */
TEST(drawn_selections_share_what_they_state_with_their_neighbours) {
    static const double overlap[] = {0, 0.5, 0.9, 1};
    enum { N = 1000, QUERIES = 60, K = 100 };
    for (int o = 0; o < COUNT_OF(overlap); o++) {
        uint32_t kept = (uint32_t)(overlap[o] * 0x1p31);
        bool now[N], before[N];
        int64_t shared = 0;
        for (int q = 0; q < QUERIES; q++) {
            float rank[N];
            uint32_t order[N];
            int64_t above;
            for (int i = 0; i < N; i++) rank[i] = sparse_drawn(3, kept, N + q, i), order[i] = draw_order(rank[i]);
            uint32_t least = sparse_kth_largest(order, N, K, &above);
            for (int i = 0; i < N; i++) now[i] = order[i] >= least, shared += q > 0 && now[i] && before[i];
            memcpy(before, now, sizeof now);
        }
        double share = (double)shared / ((QUERIES - 1) * K), want = overlap[o] + (1 - overlap[o]) * K / N;
        EXPECT_NEAR(share, want, 0.02);
    }
}

TEST(of_equal_scores_the_latest_keys_are_selected) {
    enum { SEQ = 30, K = 8 };
    Bench b;
    AttrSparse at = sparse_of(SEQ, KEEP_FIXED, K);
    bench_open(&b, "equal scores");
    Tid index = bench_matrix(&b, FMT_F32, SEQ, sparse_index_width(&at)), bias = bench_matrix(&b, FMT_F32, 1, 6);
    Tid docs = bench_vector(&b, FMT_I32, SEQ), keys = bench_matrix(&b, FMT_I32, SEQ, K);
    bench_set(&b, index, bench_doubles(&b, SEQ * sparse_index_width(&at)));
    bench_set(&b, bias, bench_doubles(&b, 6));
    bench_set_i32(&b, docs, (int32_t[SEQ]){0});
    bench_check(&b, (Step){.op = OP_SELECT,
                           .select = {.in = {.index = index, .bias = bias, .doc_begin = docs}, .out = {keys}},
                           .attr.sparse = at});
    for (int t = 0; t < SEQ; t++)
        for (int i = 0; i < K; i++)
            EXPECT(((int32_t *)b.now[keys])[t * K + i] == (i > t ? -1 : t < K ? i : t - K + 1 + i));
    bench_close(&b);
}

/* One token at a time behind a cache of index keys selects what whole rows do. */
static void cached_case(Format cache_format, SelectBy by) {
    enum { SEQ = 70, SLOTS = 80, AT = 61 };
    Bench b;
    AttrSparse at = sparse_of(SEQ, KEEP_VARIANCE, 9), one;
    at.by = by;
    int64_t width = sparse_index_width(&at), most = sparse_most_keys(&at), differ = 0;
    int32_t positions[SEQ];
    bench_open(&b, "a cache in %s, by %d", format_name(cache_format), by);
    Tid index = bench_draw(&b, FMT_F32, SEQ, width, 1), bias = bench_draw(&b, FMT_F32, 1, 6, 2),
        docs = bench_vector(&b, FMT_I32, SEQ);
    Tid keys = bench_matrix(&b, FMT_I32, SEQ, most), places = bench_vector(&b, FMT_I32, SEQ),
        cache = bench_cube(&b, cache_format, 1, SLOTS, 5);
    Tid last = bench_matrix(&b, FMT_F32, 1, width), place = bench_vector(&b, FMT_I32, 1),
        got = bench_matrix(&b, FMT_I32, 1, most);
    for (int i = 0; i < SEQ; i++) positions[i] = i;
    bench_set_i32(&b, docs, (int32_t[SEQ]){0});
    bench_set_i32(&b, places, positions);
    bench_set_i32(&b, place, (int32_t[]){AT});
    b.p.t[cache].role = ROLE_CACHE;
    bench_check(&b, (Step){.op = OP_SELECT,
                           .select = {.in = {.index = index, .bias = bias, .doc_begin = docs}, .out = {keys}},
                           .attr.sparse = at});
    int32_t want[64];
    memcpy(want, (int32_t *)b.now[keys] + AT * most, (size_t)most * 4);
    bench_set(&b, last, bench_initial(&b, index) + AT * width);
    at.heads.slots = SLOTS;
    bench_run(&b, (Step){.op = OP_INDEX_PUT, .index_put = {.in = {index, places}, .out = {cache}}, .attr.sparse = at},
              1, false);
    memcpy(b.initial[cache], b.now[cache], (size_t)prog_bytes(&b.p, cache));
    one = at;
    one.heads.seq = 1;
    bench_check(
        &b, (Step){.op = OP_SELECT,
                   .select = {.in = {.index = last, .bias = bias, .positions = place, .cache = cache}, .out = {got}},
                   .attr.sparse = one});
    for (int64_t i = 0; i < most; i++) differ += ((int32_t *)b.now[got])[i] != want[i];
    if (!EXPECT(cache_format == FMT_F32 ? !differ : differ <= most))
        test_note("    %s: %lld differ", b.about, (long long)differ);
    bench_close(&b);
}

TEST(a_cache_of_index_keys_selects_as_whole_rows_do) {
    cached_case(FMT_F32, SELECT_LEARNED);
    cached_case(FMT_F32, SELECT_RANDOM);
    cached_case(FMT_INT8, SELECT_LEARNED);
}

/* ---- attention ---- */

static int64_t listed(const Sparse *k, int64_t t, int64_t i) { /* a token of the batch; -1: no more */
    int64_t seq = k->at.heads.seq, row = t / seq * seq,
            s = k->keys ? (i < k->most ? k->keys[t * k->most + i] : -1) : k->doc[t] + i;
    return s < 0 || row + s > t ? -1 : row + s;
}

static double attended(const Sparse *k, int64_t t, int64_t h, int64_t d, double *lse) {
    const AttrHeads *a = &k->at.heads;
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim, g = h / (a->heads / a->kv_heads), s;
    double sum = 0, o = 0;
    for (int64_t i = 0; (s = listed(k, t, i)) >= 0; i++) {
        double e = exp(qk(k, t, s, h));
        sum += e;
        o += e * k->qkv[s * width + (a->heads + a->kv_heads + g) * a->head_dim + d];
    }
    if (lse) *lse = log(sum);
    return o / sum;
}

static double attend_loss(void *context) {
    const Sparse *k = context;
    const AttrHeads *a = &k->at.heads;
    double sum = 0;
    for (int64_t t = 0; t < k->n; t++)
        for (int64_t c = 0; c < a->heads * a->head_dim; c++)
            sum += k->d_o[t * a->heads * a->head_dim + c] * attended(k, t, c / a->head_dim, c % a->head_dim, NULL);
    return sum;
}

static void draw_keys(Sparse *k, Bench *b, Tid keys) { /* a few of what each token sees, itself among them */
    for (int64_t t = 0; t < k->n; t++) {
        int64_t put = 0, at = t % k->at.heads.seq;
        for (int64_t s = k->doc[t]; s <= at; s++)
            if (put < k->most - 1 && s < at && rng_u32(11, (uint64_t)(t * 1000 + s)) % 3 == 0)
                k->keys[t * k->most + put++] = (int32_t)s;
        k->keys[t * k->most + put++] = (int32_t)at;
        while (put < k->most) k->keys[t * k->most + put++] = -1;
    }
    bench_set_i32(b, keys, k->keys);
}

static void attend_case(Format f, int64_t seq, int64_t doc_len, int64_t most, int heads, int kv_heads, int dim,
                        bool differences) {
    enum { ROWS = 2 };
    Bench b;
    AttrSparse at = sparse_of(seq, KEEP_FIXED, most);
    at.heads = (AttrHeads){.heads = heads, .kv_heads = kv_heads, .head_dim = dim, .seq = seq, .scale = 0.3f};
    int64_t n = ROWS * seq, width = (heads + 2 * kv_heads) * dim;
    bench_open(&b, "attend_selected %s, rows of %lld, %lld keys, %d/%d heads of %d", format_name(f), (long long)seq,
               (long long)most, heads, kv_heads, dim);
    Tid qkv = bench_draw(&b, f, n, width, 1), d_o = bench_draw(&b, f, n, heads * dim, 2),
        keys = bench_matrix(&b, FMT_I32, n, most);
    Tid o = bench_matrix(&b, f, n, heads * dim), lse = bench_matrix(&b, FMT_F32, n, heads),
        d_qkv = bench_matrix(&b, f, n, width);
    Sparse k = {.at = at, .n = n, .qkv = bench_initial(&b, qkv), .d_o = bench_initial(&b, d_o), .most = most};
    k.doc = MEM_NEW(int32_t, n);
    k.keys = MEM_NEW(int32_t, n * most);
    bench_docs(&b, k.doc, n, seq, doc_len);
    draw_keys(&k, &b, keys);
    double *want = bench_doubles(&b, n * heads * dim), *want_lse = bench_doubles(&b, n * heads);
    for (int64_t i = 0; i < n * heads * dim; i++)
        want[i] = attended(&k, i / (heads * dim), i / dim % heads, i % dim, &want_lse[i / dim]);
    bench_check(&b, (Step){.op = OP_ATTEND_SELECTED,
                           .attend_selected = {.in = {qkv, keys}, .out = {o, lse}},
                           .attr.heads = at.heads});
    bench_expect(&b, o, want, 2e-6);
    bench_expect(&b, lse, want_lse, 3e-6);
    memcpy(b.initial[o], b.now[o], (size_t)prog_bytes(&b.p, o));
    memcpy(b.initial[lse], b.now[lse], (size_t)prog_bytes(&b.p, lse));
    bench_check(&b, (Step){.op = OP_ATTEND_SELECTED_GRAD,
                           .attend_selected_grad = {.in = {.d_o = d_o, .qkv = qkv, .o = o, .lse = lse, .keys = keys},
                                                    .out = {d_qkv}},
                           .attr.heads = at.heads});
    if (differences) bench_differences(&b, "d_qkv", k.qkv, bench_now(&b, d_qkv), n * width, attend_loss, &k, 1e-4);
    mem_free(k.doc);
    mem_free(k.keys);
    bench_close(&b);
}

TEST(attention_over_selected_keys_is_its_formula) {
    attend_case(FMT_F32, 12, 12, 5, 4, 2, 6, true);
    attend_case(FMT_F32, 17, 6, 9, 3, 1, 5, true);
    attend_case(FMT_F32, 7, 7, 7, 2, 2, 4, true);
    attend_case(FMT_F32, 150, 150, 129, 4, 2, 16, false);
    attend_case(FMT_F32, 150, 40, 128, 8, 2, 8, false);
    attend_case(FMT_BF16, 40, 40, 17, 4, 1, 16, false);
    attend_case(FMT_F16, 40, 20, 17, 4, 4, 10, false);
}

/* ---- the loss ---- */

static double index_loss_of(void *context) {
    const Sparse *k = context;
    const AttrHeads *a = &k->at.heads;
    double loss = 0;
    for (int64_t t = 0; t < k->n; t++) {
        double sum = 0, kl = 0;
        int64_t s;
        for (int64_t i = 0; (s = listed(k, t, i)) >= 0; i++) sum += exp(score(k, t, s));
        for (int64_t i = 0; (s = listed(k, t, i)) >= 0; i++) {
            double p = 0;
            for (int64_t h = 0; h < a->heads; h++) p += exp(qk(k, t, s, h) - k->lse[t * a->heads + h]) / a->heads;
            kl += p * (log(p) - score(k, t, s) + log(sum));
        }
        loss += k->weight[t] * kl / 8;
    }
    return loss;
}

static void loss_case(int64_t seq, int64_t doc_len, bool selected, bool with_relu) {
    enum { ROWS = 2, MOST = 6 };
    Bench b;
    AttrSparse at = sparse_of(seq, KEEP_FIXED, MOST);
    at.relu = with_relu;
    int64_t n = ROWS * seq, width = sparse_index_width(&at), heads = at.heads.heads;
    bench_open(&b, "index_loss, rows of %lld, documents of %lld%s%s", (long long)seq, (long long)doc_len,
               selected ? ", selected" : "", with_relu ? ", relu" : "");
    Tid index = bench_draw(&b, FMT_F32, n, width, 1), bias = bench_draw(&b, FMT_F32, 1, 2 * at.index_heads, 2);
    Tid qkv = bench_draw(&b, FMT_F32, n, (heads + 2 * at.heads.kv_heads) * at.heads.head_dim, 3),
        keys = bench_matrix(&b, FMT_I32, n, MOST);
    Tid lse = bench_matrix(&b, FMT_F32, n, heads), weight = bench_vector(&b, FMT_F32, n),
        divisor = bench_number(&b, FMT_F32, 8);
    Tid stat = bench_vector(&b, FMT_F64, 1), both = bench_vector(&b, FMT_F64, 1),
        d_index = bench_matrix(&b, FMT_F32, n, width),
        d_bias = bench_vector(&b, FMT_F32, 2 * at.index_heads);
    Tid beta = bench_number(&b, FMT_F32, 0), clock = bench_clock(&b, 1);
    Sparse k = {.at = at,
                .n = n,
                .index = bench_initial(&b, index),
                .bias = bench_initial(&b, bias),
                .qkv = bench_initial(&b, qkv),
                .most = MOST};
    k.doc = MEM_NEW(int32_t, n);
    Tid docs = bench_docs(&b, k.doc, n, seq, doc_len);
    k.keys = MEM_NEW(int32_t, n * MOST);
    draw_keys(&k, &b, keys);
    int32_t *drawn = k.keys;
    if (!selected) k.keys = NULL;
    k.lse = bench_doubles(&b, n * heads);
    k.weight = bench_doubles(&b, n);
    for (int64_t i = 0; i < n * heads; i++) attended(&k, i / heads, i % heads, 0, &k.lse[i]);
    for (int64_t i = 0; i < n; i++) k.weight[i] = (double)(i % 3);
    bench_set(&b, lse, k.lse);
    bench_set(&b, weight, k.weight);
    b.p.t[stat].role = b.p.t[both].role = ROLE_STATISTIC;
    Step s = {.op = OP_INDEX_LOSS, .attr.sparse = at};
    s.index_loss.in.index = index, s.index_loss.in.bias = bias, s.index_loss.in.qkv = qkv, s.index_loss.in.lse = lse;
    s.index_loss.in.keys = selected ? keys : NONE, s.index_loss.in.doc_begin = docs, s.index_loss.in.weight = weight;
    s.index_loss.in.divisor = divisor, s.index_loss.in.beta = beta, s.index_loss.out.stat = stat;
    bench_check(&b, s);
    double alone = *(double *)b.now[stat];
    EXPECT_NEAR(alone, index_loss_of(&k), 1e-4);
    s.op = OP_INDEX_LOSS_GRAD;
    s.index_loss_grad.in.clock = clock;
    s.index_loss_grad.out.d_index = d_index, s.index_loss_grad.out.d_bias = d_bias;
    b.p.t[d_bias].role = ROLE_GRADIENT;
    bench_check(&b, s);
    bench_differences(&b, "d_index", k.index, bench_now(&b, d_index), n * width, index_loss_of, &k, 2e-4);
    bench_differences(&b, "d_bias", k.bias, bench_now(&b, d_bias), 2 * at.index_heads, index_loss_of, &k, 2e-4);
    s.index_loss_grad.in.stat_beta = beta, s.index_loss_grad.out.stat = both;
    bench_check(&b, s); /* the loss beside its gradient */
    EXPECT(*(double *)b.now[both] == alone);
    mem_free(k.doc);
    mem_free(drawn);
    bench_close(&b);
}

TEST(the_loss_of_an_indexer_and_its_gradient) {
    for (int selected = 0; selected < 2; selected++) {
        loss_case(14, 14, selected, false);
        loss_case(19, 7, selected, false);
        loss_case(12, 12, selected, true);
    }
    if (!test_brief()) loss_case(140, 133, false, false);
}

/* ---- the report ---- */

/* Of two rows of seq tokens every stride-th is looked at, and each row's last. */
static void report_case(int64_t seq, int64_t stride) {
    enum { ROWS = 2, MOST = 9 };
    Bench b;
    AttrSparse at = sparse_of(seq, KEEP_FIXED, MOST);
    int64_t n = ROWS * seq, heads = at.heads.heads;
    bench_open(&b, "attend_report");
    Tid qkv = bench_draw(&b, FMT_F32, n, (heads + 2 * at.heads.kv_heads) * at.heads.head_dim, 3),
        keys = bench_matrix(&b, FMT_I32, n, MOST);
    Tid stat = bench_vector(&b, FMT_F64, REPORT_WORDS), beta = bench_number(&b, FMT_F32, 0),
        z = bench_draw(&b, FMT_F32, 7, 33, 5);
    Sparse k = {.at = at,
                .n = n,
                .qkv = bench_initial(&b, qkv),
                .most = MOST,
                .doc = MEM_NEW(int32_t, n),
                .keys = MEM_NEW(int32_t, n * MOST)};
    Tid docs = bench_docs(&b, k.doc, n, seq, 23);
    draw_keys(&k, &b, keys);
    double want[REPORT_WORDS] = {0}, *p = MEM_NEW(double, seq);
    for (int64_t t = 0; t < n; t++) {
        int64_t row = t / seq * seq, begin = k.doc[t], count = t % seq + 1 - begin, kept_here = 0;
        if ((t % seq + 1) % stride && t % seq + 1 < seq) continue;
        memset(p, 0, (size_t)seq * sizeof *p);
        for (int64_t h = 0; h < heads; h++) {
            double sum = 0;
            for (int64_t s = 0; s < count; s++) sum += exp(qk(&k, t, row + begin + s, h));
            for (int64_t s = 0; s < count; s++) p[s] += exp(qk(&k, t, row + begin + s, h)) / sum / (double)heads;
        }
        for (; kept_here < MOST && k.keys[t * MOST + kept_here] >= 0; kept_here++)
            want[REPORT_MASS] += p[k.keys[t * MOST + kept_here] - begin];
        want[REPORT_TOKENS]++, want[REPORT_SEEN] += (double)count, want[REPORT_KEYS] += (double)kept_here;
        want[REPORT_KEYS_MOST] = fmax(want[REPORT_KEYS_MOST], (double)kept_here);
        want[REPORT_KEYS_LEAST] = fmax(want[REPORT_KEYS_LEAST], (double)(REPORT_FAR - kept_here));
        if (count > 1) want[REPORT_LATER]++, want[REPORT_FIRST] += p[0];
        for (int64_t i = 0; i < kept_here; i++) { /* the largest, one after another */
            int64_t best = 0;
            for (int64_t s = 1; s < count; s++) best = p[s] > p[best] ? s : best;
            want[REPORT_BEST] += p[best];
            p[best] = -1;
        }
    }
    b.p.t[stat].role = ROLE_STATISTIC;
    bench_check(&b, (Step){.op = OP_ATTEND_REPORT,
                           .attend_report = {.in = {qkv, keys, docs, beta}, .out = {stat}},
                           .attr.heads = at.heads});
    for (int i = 0; i < REPORT_WORDS; i++) EXPECT_NEAR(((double *)b.now[stat])[i], want[i], 1e-4);
    bench_check(&b, (Step){.op = OP_ATTEND_REPORT,
                           .attend_report = {.in = {qkv, NONE, docs, beta}, .out = {stat}},
                           .attr.heads = at.heads});
    for (int i = 0; i < REPORT_WORDS; i++) { /* without a selection: what does not ask for one */
        bool counted = i == REPORT_TOKENS || i == REPORT_SEEN || i == REPORT_FIRST || i == REPORT_LATER;
        EXPECT_NEAR(((double *)b.now[stat])[i], counted ? want[i] : 0, 1e-4);
    }
    bench_check(
        &b,
        (Step){.op = OP_GATE_REPORT, .gate_report = {.in = {z, beta}, .out = {stat}}, .attr.gate = {GATE_TANH, 0, 1}});
    double open = 0, most = 0, least = 1, *gates = bench_initial(&b, z);
    for (int i = 0; i < 7 * 33; i++) {
        double v = gate_value(GATE_TANH, gates[i]);
        open += v, most = fmax(most, v), least = fmin(least, v);
    }
    EXPECT_NEAR(((double *)b.now[stat])[REPORT_GATE_MOST] - 1, most, 1e-6);
    EXPECT_NEAR(REPORT_FAR - ((double *)b.now[stat])[REPORT_GATE_LEAST], least, 1e-6);
    EXPECT_NEAR(((double *)b.now[stat])[REPORT_OPEN], open, 1e-4);
    EXPECT(((double *)b.now[stat])[REPORT_GATES] == 7 * 33);
    mem_free(p);
    mem_free(k.doc);
    mem_free(k.keys);
    bench_close(&b);
}

TEST(a_report_counts_the_attention_that_selected_keys_hold) {
    report_case(40, 1);
    report_case(1100, 3); /* 366 tokens and the last: more than 512 are too many */
}
