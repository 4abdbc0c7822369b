/* test_attend.c - attention in tiles against the plain softmax over each token's own slots, its gradient against
 * the plain walk back and against differences; the cache against the same softmax; the scratch a library needs. */
#include "base/rng.h"
#include "base/units.h"
#include "ir/block_device.h"
#include "tests/ops/bench.h"
#include "tests/prompts.h"

typedef struct Att { /* all in doubles */
    AttrHeads a;
    int64_t tokens;
    const int32_t *begin;  /* (tokens) */
    const int32_t *prefix; /* (tokens, 2); NULL: none */
    double *qkv, *d_o;
    double *o, *lse;
} Att;

static int64_t width_of(const AttrHeads *a) { return (a->heads + 2 * a->kv_heads) * a->head_dim; }

/* Probabilities of token i and head h over its row's slots; gives the log-sum-exp (0 when it sees nothing). */
static double probabilities(const Att *k, int64_t i, int64_t h, double *p) {
    int64_t dim = k->a.head_dim, width = width_of(&k->a), row = i / k->a.seq * k->a.seq;
    int64_t g = h / (k->a.heads / k->a.kv_heads);
    double top = -INFINITY, sum = 0;
    for (int64_t s = 0; s < k->a.seq; s++) {
        p[s] = -INFINITY;
        bool ahead = k->prefix && s >= k->prefix[2 * i] && s < k->prefix[2 * i + 1];
        if ((s < k->begin[i] || s > i - row) && !ahead) continue;
        const double *q = k->qkv + i * width + h * dim, *key = k->qkv + (row + s) * width + (k->a.heads + g) * dim;
        double dot = 0;
        for (int64_t d = 0; d < dim; d++) dot += q[d] * key[d];
        p[s] = dot * k->a.scale;
        top = fmax(top, p[s]);
    }
    for (int64_t s = 0; s < k->a.seq; s++) sum += p[s] = top > -INFINITY ? exp(p[s] - top) : 0;
    for (int64_t s = 0; s < k->a.seq; s++) p[s] /= sum > 0 ? sum : 1;
    return sum > 0 ? top + log(sum) : 0;
}

static void forward(const Att *k) {
    int64_t dim = k->a.head_dim, width = width_of(&k->a);
    double *p = mem_alloc(k->a.seq * (int64_t)sizeof *p);
    for (int64_t i = 0; i < k->tokens; i++)
        for (int64_t h = 0; h < k->a.heads; h++) {
            int64_t g = h / (k->a.heads / k->a.kv_heads);
            double *o = k->o + (i * k->a.heads + h) * dim;
            k->lse[i * k->a.heads + h] = probabilities(k, i, h, p);
            memset(o, 0, (size_t)dim * sizeof *o);
            for (int64_t s = 0; s < k->a.seq; s++) {
                int64_t at = (i / k->a.seq * k->a.seq + s) * width + (k->a.heads + k->a.kv_heads + g) * dim;
                for (int64_t d = 0; d < dim && p[s] > 0; d++) o[d] += p[s] * k->qkv[at + d];
            }
        }
    mem_free(p);
}

static double loss(void *context) {
    const Att *k = context;
    double sum = 0;
    forward(k);
    for (int64_t i = 0; i < k->tokens * k->a.heads * k->a.head_dim; i++) sum += k->o[i] * k->d_o[i];
    return sum;
}

/* o: as it was stored, which is what backward is given */
static void backward(const Att *k, const double *o, double *dqkv) {
    int64_t dim = k->a.head_dim, width = width_of(&k->a);
    double *p = mem_alloc(k->a.seq * (int64_t)sizeof *p);
    for (int64_t i = 0; i < k->tokens; i++)
        for (int64_t h = 0; h < k->a.heads; h++) {
            int64_t g = h / (k->a.heads / k->a.kv_heads), at = i * width + h * dim;
            const double *d_o = k->d_o + (i * k->a.heads + h) * dim;
            double delta = 0;
            for (int64_t d = 0; d < dim; d++) delta += d_o[d] * o[(i * k->a.heads + h) * dim + d];
            probabilities(k, i, h, p);
            for (int64_t s = 0; s < k->a.seq; s++) {
                if (p[s] == 0) continue;
                int64_t key = (i / k->a.seq * k->a.seq + s) * width + (k->a.heads + g) * dim;
                int64_t v = key + k->a.kv_heads * dim;
                double dp = 0;
                for (int64_t d = 0; d < dim; d++) dp += d_o[d] * k->qkv[v + d];
                double ds = p[s] * (dp - delta) * k->a.scale;
                for (int64_t d = 0; d < dim; d++) {
                    dqkv[v + d] += p[s] * d_o[d];
                    dqkv[at + d] += ds * k->qkv[key + d];
                    dqkv[key + d] += ds * k->qkv[at + d];
                }
            }
        }
    mem_free(p);
}

/* Documents of random lengths; the last of each row is followed by tokens that see only themselves, or nothing. */
static void documents(int32_t *begin, int64_t tokens, int64_t seq, int64_t longest, bool blind_tail) {
    for (int64_t i = 0, from = 0, left = 0; i < tokens; i++) {
        int64_t t = i % seq;
        if (t == 0 || left == 0) from = t, left = 1 + (int64_t)(rng_u32(11, (uint64_t)i) % (uint64_t)longest);
        left--;
        begin[i] = (int32_t)from;
        if (blind_tail && t >= seq - seq / 4) begin[i] = (int32_t)seq; /* sees nothing */
    }
}

typedef struct Case {
    int64_t rows, seq;
    int heads, kv_heads, head_dim;
    int64_t longest; /* document */
    bool blind_tail;
} Case;

/* prompt: in front of documents, at most; 0: they have none. */
static void attend_case(Format f, Case c, int64_t prompt, bool differences) {
    Bench b;
    AttrHeads a = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .seq = c.seq,
                   .scale = (float)(1 / sqrt(c.head_dim))};
    int64_t n = c.rows * c.seq, width = width_of(&a), wide = (int64_t)c.heads * c.head_dim;
    bench_open(&b, "attend %s, %lld rows of %lld, %d/%d heads of %d, documents up to %lld%s, prompts up to %lld",
               format_name(f), (long long)c.rows, (long long)c.seq, c.heads, c.kv_heads, c.head_dim,
               (long long)c.longest, c.blind_tail ? ", blind tail" : "", (long long)prompt);
    Tid qkv = bench_matrix(&b, f, n, width), docs = bench_vector(&b, FMT_I32, n), o = bench_matrix(&b, f, n, wide);
    Tid lse = bench_matrix(&b, FMT_F32, n, c.heads);
    int32_t *begin = ARENA_NEW(&b.arena, int32_t, n);
    int32_t *ahead = prompt ? ARENA_NEW(&b.arena, int32_t, 2 * n) : NULL;
    Tid prefix = ahead ? bench_matrix(&b, FMT_I32, n, 2) : NONE;
    if (ahead)
        shared_prompts(begin, ahead, n, c.seq, c.longest, prompt);
    else
        documents(begin, n, c.seq, c.longest, c.blind_tail);
    bench_set_i32(&b, docs, begin);
    if (ahead) bench_set_i32(&b, prefix, ahead);
    bench_normal(&b, qkv, 1, 1.5);
    Tid d_o = bench_matrix(&b, f, n, wide), o_in = bench_matrix(&b, f, n, wide);
    Tid lse_in = bench_matrix(&b, FMT_F32, n, c.heads);
    Tid dqkv = bench_matrix(&b, f, n, width);
    bench_normal(&b, d_o, 2, 1);
    Att k = {a,
             n,
             begin,
             ahead,
             bench_initial(&b, qkv),
             bench_initial(&b, d_o),
             bench_doubles(&b, n * wide),
             bench_doubles(&b, n * c.heads)};
    forward(&k);
    bench_check(&b,
                (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs, prefix}, .out = {o, lse}}, .attr.heads = a});
    bench_expect(&b, o, k.o, 1e-5);
    bench_expect(&b, lse, k.lse, 1e-5);

    bench_set(&b, o_in, k.o);
    bench_set(&b, lse_in, k.lse);
    double *want = bench_doubles(&b, n * width);
    backward(&k, bench_initial(&b, o_in), want);
    bench_check(
        &b,
        (Step){.op = OP_ATTEND_GRAD,
               .attend_grad =
                   {.in = {.d_o = d_o, .qkv = qkv, .o = o_in, .lse = lse_in, .doc_begin = docs, .prefix = prefix},
                    .out = {dqkv}},
               .attr.heads = a});
    bench_expect(&b, dqkv, want, 2e-5 * sqrt((double)c.heads / c.kv_heads));
    if (differences) bench_differences(&b, "dqkv", k.qkv, bench_now(&b, dqkv), n * width, loss, &k, 2e-5);
    bench_close(&b);
}

TEST(attention_is_its_formula) {
    static const Case cases[] = {
        {1, 1, 1, 1, 1, 1, false},     {2, 3, 2, 1, 5, 3, false},      {3, 63, 4, 2, 16, 63, false},
        {1, 64, 3, 3, 8, 64, false},   {2, 65, 6, 2, 32, 200, false},  {1, 200, 3, 1, 64, 40, false},
        {2, 130, 5, 1, 17, 30, true},  {1, 129, 7, 1, 24, 129, false}, {1, 70, 2, 1, 256, 70, false},
        {1, 257, 9, 3, 64, 100, true}, {4, 8, 14, 2, 64, 8, true},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        attend_case(FMT_F32, cases[i], 0, false);
        attend_case(FMT_BF16, cases[i], 0, false);
    }
    attend_case(FMT_F16, cases[4], 0, false);
}

TEST(attention_gradient_follows_differences) {
    attend_case(FMT_F32, (Case){2, 7, 4, 2, 3, 4, false}, 0, true);
    attend_case(FMT_F32, (Case){1, 9, 6, 1, 4, 9, false}, 0, true);
    attend_case(FMT_F32, (Case){1, 70, 2, 1, 2, 50, true}, 0, true);
}

/* Prompts that end inside a tile, at its border, and before tiles that no token of a later answer sees. */
TEST(attention_over_a_shared_prompt_is_its_formula) {
    static const Case cases[] = {
        {1, 5, 1, 1, 1, 2, false},     {2, 63, 4, 2, 16, 9, false},    {1, 64, 3, 3, 8, 30, false},
        {2, 65, 6, 2, 32, 1, false},   {1, 400, 3, 1, 64, 70, false},  {2, 333, 5, 1, 17, 150, false},
        {1, 700, 9, 3, 8, 200, false}, {3, 129, 14, 2, 24, 33, false},
    };
    static const int64_t prompt[COUNT_OF(cases)] = {2, 20, 64, 40, 64, 100, 1, 129};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        attend_case(FMT_F32, cases[i], prompt[i], false);
        attend_case(FMT_BF16, cases[i], prompt[i], false);
    }
    attend_case(FMT_F16, cases[4], prompt[4], false);
}

TEST(attention_over_a_shared_prompt_has_a_gradient_that_follows_differences) {
    attend_case(FMT_F32, (Case){2, 9, 4, 2, 3, 2, false}, 3, true);
    attend_case(FMT_F32, (Case){1, 140, 2, 1, 2, 40, false}, 30, true);
}

static void attend_bits(float *o, float *lse, float *d_qkv, const int32_t *ahead, Case c) {
    Bench b;
    AttrHeads a = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .seq = c.seq, .scale = 0.3f};
    int64_t n = c.rows * c.seq, width = width_of(&a), wide = (int64_t)c.heads * c.head_dim;
    bench_open(&b, "bits of %lld rows of %lld%s", (long long)c.rows, (long long)c.seq,
               ahead ? ", with a prefix" : "");
    Tid qkv = bench_draw(&b, FMT_F32, n, width, 1), docs = bench_vector(&b, FMT_I32, n);
    Tid prefix = ahead ? bench_matrix(&b, FMT_I32, n, 2) : NONE, to = bench_matrix(&b, FMT_F32, n, wide);
    Tid sums = bench_matrix(&b, FMT_F32, n, c.heads), d_o = bench_draw(&b, FMT_F32, n, wide, 2);
    Tid o_in = bench_draw(&b, FMT_F32, n, wide, 3), lse_in = bench_draw(&b, FMT_F32, n, c.heads, 4);
    Tid dqkv = bench_matrix(&b, FMT_F32, n, width);
    int32_t *begin = ARENA_NEW(&b.arena, int32_t, n);
    documents(begin, n, c.seq, c.longest, c.blind_tail);
    bench_set_i32(&b, docs, begin);
    if (ahead) bench_set_i32(&b, prefix, ahead);
    bench_run(&b,
              (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs, prefix}, .out = {to, sums}}, .attr.heads = a},
              2, false);
    memcpy(o, b.now[to], (size_t)(n * wide) * 4);
    memcpy(lse, b.now[sums], (size_t)(n * c.heads) * 4);
    bench_run(&b,
              (Step){.op = OP_ATTEND_GRAD,
                     .attend_grad = {.in = {d_o, qkv, o_in, lse_in, docs, prefix}, .out = {dqkv}},
                     .attr.heads = a},
              2, false);
    memcpy(d_qkv, b.now[dqkv], (size_t)(n * width) * 4);
    bench_close(&b);
}

TEST(an_empty_prefix_gives_the_bits_of_none) {
    static const Case cases[] = {
        {2, 130, 5, 1, 17, 30, true}, {1, 257, 6, 3, 32, 100, false}, {3, 7, 2, 2, 8, 3, false}};
    static const int32_t empty[][2] = {{0, 0}, {3, 3}, {5, 2}, {-4, 0}, {60, 60}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Case c = cases[i];
        int64_t n = c.rows * c.seq, width = (c.heads + 2 * c.kv_heads) * c.head_dim,
                all = n * (c.heads * c.head_dim + c.heads + width);
        float *bits[2] = {MEM_NEW(float, all), MEM_NEW(float, all)};
        int32_t *ahead = MEM_NEW(int32_t, 2 * n);
        for (int64_t t = 0; t < n; t++) memcpy(ahead + 2 * t, empty[t % COUNT_OF(empty)], 8);
        for (int k = 0; k < 2; k++) {
            float *lse = bits[k] + n * c.heads * c.head_dim;
            attend_bits(bits[k], lse, lse + n * c.heads, k ? ahead : NULL, c);
        }
        EXPECT(!memcmp(bits[0], bits[1], (size_t)all * 4));
        mem_free(bits[0]), mem_free(bits[1]), mem_free(ahead);
    }
}

/* Arithmetic is that of the keys tokens see, not of the whole row. */
TEST(a_shared_prompt_counts_the_keys_that_are_seen) {
    enum { PROMPT = 40, ANSWER = 25, N = 6, SEQ = PROMPT + N * ANSWER };
    Program p;
    AttrHeads a = {.heads = 4, .kv_heads = 2, .head_dim = 8, .seq = SEQ, .scale = 1};
    prog_init(&p);
    Tid qkv = prog_tensor(&p, "qkv", ROLE_ACTIVATION, FMT_F32, 2, DIMS(3 * SEQ, width_of(&a)));
    Step s = {.op = OP_ATTEND, .attend.in.qkv = qkv, .attr.heads = a};
    EXPECT_NEAR(op_flops(&p, &s), 3.0 * SEQ * (SEQ + 1) / 2 * 4 * 8 * 4, 1);
    s.attr.heads.prefix = PROMPT, s.attr.heads.document = ANSWER;
    int64_t pairs = 0;
    for (int t = 0; t < SEQ; t++) pairs += t < PROMPT ? t + 1 : PROMPT + (t - PROMPT) % ANSWER + 1;
    EXPECT_NEAR(op_flops(&p, &s), 3.0 * (double)pairs * 4 * 8 * 4, 1);
    EXPECT_NEAR(op_row(OP_ATTEND)->size(&p, &s).x, 2.0 * (double)pairs / SEQ - 1, 1e-9);
    prog_free(&p);
}

/* Puts k and v into the cache as they are: no angle at all. */
static Step put_step(Bench *b, Tid qkv, Tid at, Tid rows, Tid cache, AttrHeads a) {
    Tid freq = bench_vector(b, FMT_F32, MAX2(a.head_dim / 2, 1));
    Tid y = bench_matrix(b, prog_t(&b->p, qkv)->format, prog_rows(&b->p, qkv), width_of(&a));
    bench_set(b, freq, bench_doubles(b, MAX2(a.head_dim / 2, 1)));
    a.scale = 1;
    return (Step){
        .op = OP_ROPE_PUT,
        .rope_put = {.in = {.qkv = qkv, .positions = at, .inv_freq = freq, .rows = rows}, .out = {y, cache}},
        .attr.heads = a};
}

/* named: batch row r uses row rows - r of a cache of rows + 1. */
static void cache_of_rows(Format f, Format cf, int64_t rows, int64_t seq, AttrHeads a, const int32_t *positions,
                          bool named) {
    Bench b;
    a.seq = seq;
    a.scale = (float)(1 / sqrt(a.head_dim));
    int64_t n = rows * seq, width = width_of(&a), dim = a.head_dim, slot = 2 * a.kv_heads * dim;
    bench_open(&b, "cache %s of %s, %lld rows of %lld, %d/%d heads of %d, %lld slots", format_name(cf),
               format_name(f),
               (long long)rows, (long long)seq, a.heads, a.kv_heads, a.head_dim, (long long)a.slots);
    Tid qkv = bench_matrix(&b, f, n, width), at = bench_vector(&b, FMT_I32, n);
    Tid cache = bench_cube(&b, cf, rows + named, a.slots * 2 * a.kv_heads, dim);
    Tid to = named ? bench_vector(&b, FMT_I32, rows) : NONE;
    int32_t row[16];
    for (int64_t r = 0; r < rows; r++) row[r] = (int32_t)(named ? rows - r : r);
    if (named) bench_set_i32(&b, to, row);
    Tid o = bench_matrix(&b, f, n, a.heads * dim);
    bench_set_i32(&b, at, positions);
    bench_normal(&b, qkv, 1, 1.5);
    bench_normal(&b, cache, 2, 1.5);
    double *x = bench_initial(&b, qkv), *want = bench_initial(&b, cache);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < slot && positions[i] >= 0; c++)
            want[(row[i / seq] * a.slots + positions[i]) * slot + c] = x[i * width + a.heads * dim + c];
    Step put = put_step(&b, qkv, at, to, cache, a);
    bench_check(&b, put);
    bench_expect(&b, put.rope_put.out.rotated, x, 0);
    double most = 0; /* int8: half a step of the largest number of a head */
    for (int64_t i = 0; i < n * width; i++) most = MAX2(most, fabs(x[i]));
    bench_expect(&b, cache, want, cf == FMT_INT8 ? most / 254 * 1.0001 : 1e-7);

    bench_check(
        &b, (Step){.op = OP_ATTEND_CACHE,
                   .attend_cache = {.in = {.qkv = qkv, .cache = cache, .positions = at, .rows = to}, .out = {o}},
                   .attr.heads = a});
    double *kv = bench_initial(&b, cache), *want_o = bench_doubles(&b, n * a.heads * dim);
    for (int64_t i = 0; i < n; i++) /* the plain softmax */
        for (int64_t h = 0; h < a.heads && positions[i] >= 0; h++) {
            int64_t seen = positions[i] + 1, g = h / (a.heads / a.kv_heads);
            double p[512], sum = 0;
            for (int64_t s = 0; s < seen; s++) {
                double dot = 0;
                for (int64_t d = 0; d < dim; d++)
                    dot += x[i * width + h * dim + d] * kv[(row[i / seq] * a.slots + s) * slot + g * dim + d];
                sum += p[s] = exp(dot * a.scale);
            }
            for (int64_t s = 0; s < seen; s++)
                for (int64_t d = 0; d < dim; d++)
                    want_o[(i * a.heads + h) * dim + d] +=
                        p[s] / sum * kv[(row[i / seq] * a.slots + s) * slot + (a.kv_heads + g) * dim + d];
        }
    bench_expect(&b, o, want_o, 1e-5);
    bench_close(&b);
}

static void cache_case(Format f, Format cf, int64_t rows, int64_t seq, AttrHeads a, const int32_t *positions) {
    cache_of_rows(f, cf, rows, seq, a, positions, false);
    cache_of_rows(f, cf, rows, seq, a, positions, true);
}

TEST(attention_over_a_cache_is_its_formula) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int f = 0; f < COUNT_OF(formats); f++) {
        AttrHeads a = {.heads = 9, .kv_heads = 3, .head_dim = 64, .slots = 200};
        /* decode; one place is idle */
        cache_case(formats[f], formats[f], 4, 1, a, (const int32_t[]){0, 199, -1, 64});
        a = (AttrHeads){.heads = 5, .kv_heads = 1, .head_dim = 7, .slots = 9};
        /* several tokens a row */
        cache_case(formats[f], formats[f], 2, 3, a, (const int32_t[]){0, 1, 2, 6, 7, 8});
    }
    AttrHeads a = {.heads = 2, .kv_heads = 2, .head_dim = 3, .slots = 70};
    cache_case(FMT_F32, FMT_BF16, 1, 1, a, (const int32_t[]){69});
    cache_case(FMT_F32, FMT_INT8, 1, 1, a, (const int32_t[]){69});
    a = (AttrHeads){.heads = 9, .kv_heads = 3, .head_dim = 64, .slots = 200};
    cache_case(FMT_F32, FMT_INT8, 4, 1, a, (const int32_t[]){0, 199, -1, 64});
    cache_case(FMT_BF16, FMT_INT8, 2, 3, a, (const int32_t[]){0, 1, 2, 86, 87, 88});
}

/* What the int8 cache may cost (docs/generate.md): with K and V the largest key and value, a score is off by at most
 * d = scale * |q| * K / 254 (|q|: the sum of its absolute numbers), so an output by V / 254 + V * (e^(2d) - 1). */
TEST(an_int8_cache_stays_within_its_bound) {
    enum { N = 70, H = 4, G = 2, D = 32, WIDTH = (H + 2 * G) * D };
    AttrHeads a = {.heads = H, .kv_heads = G, .head_dim = D, .seq = N, .scale = 0.17f, .slots = N};
    double *o[2], d = 0, top_k = 0, top_v = 0, off = 0;
    Bench b[2];
    for (int k = 0; k < 2; k++) {
        bench_open(&b[k], "%d tokens through a cache", N);
        Tid qkv = bench_matrix(&b[k], FMT_F32, N, WIDTH), at = bench_vector(&b[k], FMT_I32, N);
        Tid cache = bench_cube(&b[k], k ? FMT_INT8 : FMT_F32, 1, N * 2 * G, D);
        Tid out = bench_matrix(&b[k], FMT_F32, N, H * D);
        int32_t positions[N];
        for (int i = 0; i < N; i++) positions[i] = i;
        bench_set_i32(&b[k], at, positions);
        bench_normal(&b[k], qkv, 3, 0.8);
        bench_run(&b[k], put_step(&b[k], qkv, at, NONE, cache, a), 1, false);
        memcpy(b[k].initial[cache], b[k].now[cache], (size_t)prog_bytes(&b[k].p, cache));
        bench_run(
            &b[k],
            (Step){.op = OP_ATTEND_CACHE, .attend_cache = {.in = {qkv, cache, at}, .out = {out}}, .attr.heads = a},
            2, false);
        o[k] = bench_now(&b[k], out);
        const double *x = bench_initial(&b[k], qkv);
        for (int i = 0; i < N * WIDTH; i++) {
            int c = i % WIDTH;
            double *top = c < H * D ? NULL : c < (H + G) * D ? &top_k : &top_v;
            if (top) *top = MAX2(*top, fabs(x[i]));
        }
        for (int i = 0; i < N * H; i++) {
            double sum = 0;
            for (int c = 0; c < D; c++) sum += fabs(x[i / H * WIDTH + i % H * D + c]);
            d = MAX2(d, sum * a.scale * top_k / 254);
        }
    }
    for (int i = 0; i < N * H * D; i++) off = MAX2(off, fabs(o[0][i] - o[1][i]));
    EXPECT(off > 1e-4 && off <= top_v / 254 + top_v * (exp(2 * d) - 1) + 1e-5);
    EXPECT(off < 0.02 * top_v); /* and in fact far below it */
    bench_close(&b[0]);
    bench_close(&b[1]);
}

/* Tokens put into a cache one after another attend as the whole row does. */
TEST(cache_and_whole_row_agree) {
    Bench b;
    AttrHeads a = {.heads = 6, .kv_heads = 2, .head_dim = 16, .seq = 90, .scale = 0.25f, .slots = 96};
    bench_open(&b, "90 tokens through a cache");
    Tid qkv = bench_matrix(&b, FMT_F32, 90, width_of(&a)), docs = bench_vector(&b, FMT_I32, 90);
    Tid o = bench_matrix(&b, FMT_F32, 90, 96);
    Tid lse = bench_matrix(&b, FMT_F32, 90, 6), at = bench_vector(&b, FMT_I32, 90);
    Tid cache = bench_cube(&b, FMT_F32, 1, 96, 64);
    int32_t zero[90] = {0}, positions[90];
    for (int i = 0; i < 90; i++) positions[i] = i;
    bench_set_i32(&b, docs, zero);
    bench_set_i32(&b, at, positions);
    bench_normal(&b, qkv, 1, 1);
    bench_run(&b, (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs}, .out = {o, lse}}, .attr.heads = a}, 1,
              false);
    double *whole = bench_now(&b, o);
    bench_run(&b, put_step(&b, qkv, at, NONE, cache, a), 1, false);
    memcpy(b.initial[cache], b.now[cache], (size_t)prog_bytes(&b.p, cache));
    bench_run(&b,
              (Step){.op = OP_ATTEND_CACHE, .attend_cache = {.in = {qkv, cache, at}, .out = {o}}, .attr.heads = a},
              1, false);
    bench_expect(&b, o, whole, 1e-6);
    bench_close(&b);
}

/* ---- scratch on a GPU ---- */

static int64_t scratch_of(OpId op, AttendBy by, Format f, int64_t tokens, AttrHeads h) {
    Program p;
    prog_init(&p);
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    h.by = by;
    Tid qkv = prog_tensor(&p, "qkv", ROLE_ACTIVATION, f, 2, DIMS(tokens, width_of(&h)));
    Step s = {.op = op, .attr.heads = h};
    s.in[op == OP_ATTEND_GRAD] = qkv;
    int64_t bytes = op_row(op)->workspace(&p, &s, &m);
    prog_free(&p);
    return bytes;
}

/* What cuDNN 9.19 and 9.26 ask for on a card of compute capability 9.0, beside dq (fp32) and a sum per token and
 * head: dk and dv of every query head in 16 bits, where KV heads are shared, and 256 bytes. */
TEST(a_library_that_attends_finds_its_scratch_in_the_plan) {
    static const struct {
        int64_t rows, seq, heads, kv_heads, dim, asked;
    } cases[] = {{1, 16384, 14, 2, 64, 58720512}, {2, 8192, 28, 4, 128, 234881280}, {3, 257, 4, 2, 64, 789760},
                 {2, 1000, 7, 1, 96, 5376256},    {2, 130, 5, 5, 72, 256},          {2, 130, 4, 2, 80, 333056}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        AttrHeads h = {.heads = (int)cases[i].heads, .kv_heads = (int)cases[i].kv_heads, .head_dim = (int)cases[i].dim,
                       .seq = cases[i].seq};
        int64_t n = cases[i].rows * cases[i].seq, need = n * h.heads * (h.head_dim + 1) * 4 + cases[i].asked;
        int64_t own = scratch_of(OP_ATTEND_GRAD, ATTEND_OWN, FMT_BF16, n, h);
        int64_t fast = scratch_of(OP_ATTEND_GRAD, ATTEND_FAST, FMT_BF16, n, h);
        EXPECT(fast >= own && fast >= need && (fast == own || fast <= need + 128 * KIB));
        EXPECT(scratch_of(OP_ATTEND, ATTEND_OWN, FMT_F16, n, h) == 0);
        EXPECT(scratch_of(OP_ATTEND, ATTEND_FAST, FMT_F16, n, h) >= 256);
        for (int op = 0; op < 2; op++) { /* what a library does not do costs nothing */
            OpId id = op ? OP_ATTEND_CACHE : OP_ATTEND_GRAD;
            Format f = op ? FMT_BF16 : FMT_F32;
            EXPECT(scratch_of(id, ATTEND_FAST, f, n, h) == scratch_of(id, ATTEND_OWN, f, n, h));
        }
    }
}

/* Splits of a cache depend on the bucket and the cache's length alone, and fit a cluster where they have to be one. */
TEST(a_cache_is_split_for_few_tokens_and_not_for_many) {
    AttrHeads h = {.heads = 28, .kv_heads = 4, .head_dim = 128, .seq = 1};
    static const int64_t slots[] = {1, 33, 264, 600, 1100, 2048, 100000};
    static const int want[] = {1, 1, 1, 2, 4, 16, 16};
    for (int i = 0; i < COUNT_OF(slots); i++) {
        h.slots = slots[i];
        EXPECT(device_cache_splits(&h, FMT_BF16, 1) == want[i]);
        EXPECT(device_cache_splits(&h, FMT_BF16, 64) == 1 && device_cache_bytes(&h, FMT_BF16, 64) == 0);
        for (int64_t tokens = 1; tokens <= 64; tokens *= 2) {
            int splits = device_cache_splits(&h, FMT_BF16, tokens);
            EXPECT(splits <= DEVICE_CLUSTER && splits <= device_cache_splits(&h, FMT_BF16, (tokens + 1) / 2));
            if (splits > 1)
                EXPECT(scratch_of(OP_ATTEND_CACHE, ATTEND_OWN, FMT_BF16, tokens, h) >=
                       tokens * 28 * splits * (128 + 2) * 4);
        }
    }
    h.seq = DEVICE_CACHE_FEW;
    EXPECT(device_cache_splits(&h, FMT_BF16, DEVICE_CACHE_FEW) == 1);
}
