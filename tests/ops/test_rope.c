/* test_rope.c - rotary positions against cosines and sines in doubles, at places up to a million; the way back. */
#include "tests/ops/bench.h"

typedef struct Turn {
    AttrHeads a;
    int64_t tokens;
    const int32_t *positions;
    double *x, *dy, *freq;
    double *y;
} Turn;

static void forward(const Turn *k) {
    int64_t dim = k->a.head_dim, half = dim / 2, heads = k->a.heads + 2 * k->a.kv_heads;
    int64_t turned = k->a.heads + k->a.kv_heads;
    memcpy(k->y, k->x, (size_t)(k->tokens * heads * dim) * sizeof *k->y);
    for (int64_t i = 0; i < k->tokens; i++)
        for (int64_t h = 0; h < turned; h++) {
            const double *x = k->x + (i * heads + h) * dim;
            double *y = k->y + (i * heads + h) * dim;
            for (int64_t d = 0; d < half; d++) {
                /* in fp32, as the models were trained */
                double angle = (float)k->positions[i] * (float)k->freq[d];
                double c = cos(angle) * k->a.scale, s = sin(angle) * k->a.scale * (k->a.inverse ? -1 : 1);
                y[d] = x[d] * c - x[d + half] * s;
                y[d + half] = x[d + half] * c + x[d] * s;
            }
        }
}

static double loss(void *context) {
    const Turn *k = context;
    double sum = 0;
    forward(k);
    for (int64_t i = 0; i < k->tokens * (k->a.heads + 2 * k->a.kv_heads) * k->a.head_dim; i++)
        sum += k->y[i] * k->dy[i];
    return sum;
}

static void turn_case(Format f, int64_t tokens, AttrHeads a, int32_t first, bool differences) {
    Bench b;
    int64_t dim = a.head_dim, width = (a.heads + 2 * a.kv_heads) * dim;
    bench_open(&b, "rope %s, %lld tokens from %d, %d+%d heads of %d, scale %g%s", format_name(f),
               (long long)tokens, first, a.heads, a.kv_heads, a.head_dim, a.scale, a.inverse ? ", back" : "");
    Tid x = bench_matrix(&b, f, tokens, width), y = bench_matrix(&b, f, tokens, width);
    Tid dy = bench_matrix(&b, f, tokens, width);
    Tid at = bench_vector(&b, FMT_I32, tokens), freq = bench_vector(&b, FMT_F32, MAX2(dim / 2, 1));
    int32_t positions[256];
    double *hz = bench_doubles(&b, dim / 2);
    for (int64_t i = 0; i < tokens; i++) positions[i] = first + (int32_t)(i * 7 % 101);
    for (int64_t i = 0; i < dim / 2; i++) hz[i] = pow(1e4, -2.0 * (double)i / (double)dim);
    bench_set_i32(&b, at, positions);
    bench_set(&b, freq, hz);
    bench_normal(&b, x, 1, 1);
    bench_normal(&b, dy, 2, 1);
    Turn k = {a, tokens, positions, bench_initial(&b, x), bench_initial(&b, dy), bench_initial(&b, freq),
              bench_doubles(&b, tokens * width)};
    forward(&k);
    bench_check(&b, (Step){.op = OP_ROPE, .rope = {.in = {x, at, freq}, .out = {y}}, .attr.heads = a});
    bench_expect(&b, y, k.y, 1e-6);
    if (differences) { /* the gradient is the same op, turned back */
        AttrHeads back = a;
        back.inverse = !a.inverse;
        bench_run(&b, (Step){.op = OP_ROPE, .rope = {.in = {dy, at, freq}, .out = {y}}, .attr.heads = back}, 1,
                  false);
        bench_differences(&b, "dx", k.x, bench_now(&b, y), tokens * width, loss, &k, 1e-5);
    }
    bench_close(&b);
}

/* rope_put against rope: q has its bits, the cache those of its k and of v, in the cache's format. */
static void put_case(Format f, Format stored, AttrHeads a, const int32_t *positions) {
    enum { ROWS = 3, MOST = 2048 };
    Bench b;
    int64_t dim = a.head_dim, heads = a.heads + 2 * a.kv_heads, width = heads * dim, n = ROWS * a.seq;
    bench_open(&b, "rope_put %s into %s, %d/%d heads of %d", format_name(f), format_name(stored), a.heads, a.kv_heads,
               a.head_dim);
    Tid x = bench_matrix(&b, f, n, width), y = bench_matrix(&b, f, n, width), put = bench_matrix(&b, f, n, width);
    Tid at = bench_vector(&b, FMT_I32, n), freq = bench_vector(&b, FMT_F32, MAX2(dim / 2, 1));
    Tid rows = bench_vector(&b, FMT_I32, ROWS), cache = bench_cube(&b, stored, ROWS + 1, a.slots * 2 * a.kv_heads, dim);
    double hz[128];
    for (int64_t i = 0; i < dim / 2; i++) hz[i] = pow(1e4, -2.0 * (double)i / (double)dim);
    bench_set_i32(&b, at, positions);
    bench_set_i32(&b, rows, (const int32_t[]){2, 0, 3});
    bench_set(&b, freq, hz);
    bench_normal(&b, x, 1, 1);
    bench_normal(&b, cache, 2, 1);
    bench_check(&b, (Step){.op = OP_ROPE, .rope = {.in = {x, at, freq}, .out = {y}}, .attr.heads = a});
    double *turned = bench_now(&b, y), *now = bench_initial(&b, x), *want = bench_initial(&b, cache);
    for (int64_t i = 0; i < n; i++) {
        memcpy(now + i * width, turned + i * width, (size_t)(a.heads * dim) * sizeof *now);
        for (int64_t h = 0; h < 2 * a.kv_heads && positions[i] >= 0; h++) {
            static const int row[] = {2, 0, 3};
            double *to = want + (((row[i / a.seq] * a.slots) + positions[i]) * 2 * a.kv_heads + h) * dim;
            const double *from = turned + i * width + (a.heads + h) * dim;
            float head[512], kept[512];
            char stored_head[MOST];
            for (int64_t c = 0; c < dim; c++) head[c] = (float)from[c];
            format_table[stored].encode(stored_head, head, 1, dim, 0, 1);
            format_table[stored].decode(kept, stored_head, 1, dim, 0, 1);
            for (int64_t c = 0; c < dim; c++) to[c] = kept[c];
        }
    }
    bench_check(&b, (Step){.op = OP_ROPE_PUT,
                           .rope_put = {.in = {.qkv = x, .positions = at, .inv_freq = freq, .rows = rows},
                                        .out = {put, cache}},
                           .attr.heads = a});
    const double *q = bench_now(&b, put), *kept = bench_now(&b, cache);
    EXPECT(!memcmp(q, now, (size_t)(n * width) * sizeof *q));
    EXPECT(!memcmp(kept, want, (size_t)prog_elements(&b.p, cache) * sizeof *kept));
    bench_close(&b);
}

TEST(rope_put_is_rope_and_a_copy) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    static const int32_t positions[] = {4, 5, 0, -1, 8, 2};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int s = 0; s < 4; s++) {
            Format stored = s < 3 ? formats[s] : FMT_INT8;
            AttrHeads a = {.heads = 6, .kv_heads = 2, .head_dim = 64, .seq = 2, .scale = 1.1f, .slots = 9};
            put_case(formats[f], stored, a, positions);
            a = (AttrHeads){.heads = 2, .kv_heads = 1, .head_dim = 7, .seq = 2, .scale = 1, .slots = 9};
            put_case(formats[f], stored, a, positions);
            a = (AttrHeads){.heads = 3, .kv_heads = 3, .head_dim = 256, .seq = 2, .scale = 1, .slots = 9};
            put_case(formats[f], stored, a, positions);
        }
}

TEST(rope_is_its_formula) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    static const int32_t from[] = {0, 4000, 999900};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int p = 0; p < COUNT_OF(from); p++) {
            AttrHeads a = {.heads = 9, .kv_heads = 3, .head_dim = 64, .seq = 17, .scale = 1};
            turn_case(formats[f], 34, a, from[p], false);
            a = (AttrHeads){.heads = 1, .kv_heads = 1, .head_dim = 2, .seq = 1, .scale = 1.25f, .inverse = true};
            turn_case(formats[f], 1, a, from[p], false);
            /* more than one chunk */
            a = (AttrHeads){.heads = 40, .kv_heads = 2, .head_dim = 256, .seq = 3, .scale = 1};
            turn_case(formats[f], 3, a, from[p], false);
        }
}

TEST(rope_gradient_follows_differences) {
    AttrHeads a = {.heads = 2, .kv_heads = 1, .head_dim = 6, .seq = 4, .scale = 1.3f};
    turn_case(FMT_F32, 4, a, 50, true);
    a.inverse = true;
    turn_case(FMT_F32, 4, a, 50, true);
    a.head_dim = 5; /* the odd last number stays */
    turn_case(FMT_F32, 4, a, 50, false);
}
