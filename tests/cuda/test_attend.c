/* test_attend.c - attention on the GPU against the CPU, forward and backward, by every family of kernels: packed
 * documents, shared prompts, blind tokens, grouped heads, every head size with a kernel of its own and some without,
 * ragged rows, caches; and cuDNN's attention, where the library is there. */
#include "base/rng.h"
#include "ir/block_device.h"
#include "tests/cuda/cuda_test.h"
#include "tests/prompts.h"
#ifdef HAVE_CUDA
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn.h"
#endif

typedef struct Case {
    int64_t rows, seq;
    int heads, kv_heads, dim;
    int64_t longest; /* document */
    bool blind_tail; /* the last quarter of a row sees nothing */
} Case;

typedef struct Shared { /* documents that are answers to prompts */
    int64_t prompt;     /* tokens in front of them, at most, which they see too; 0: they are none */
    int64_t answers;    /* to each prompt; it and they are then exactly so long; 0: drawn */
} Shared;

static int64_t width_of(const AttrHeads *h) {
    return (int64_t)(h->heads + 2 * h->kv_heads) * h->head_dim;
}

static void set_documents(CudaTest *t, Tid id, const Case *c) {
    int64_t n = c->rows * c->seq, from = 0, left = 0;
    int32_t *begin = mem_alloc(n * 4);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i % c->seq;
        if (at == 0 || left == 0) from = at, left = 1 + (int64_t)(rng_u32(11, (uint64_t)i) % (uint64_t)c->longest);
        left--;
        begin[i] = (int32_t)from;
        if (c->blind_tail && at >= c->seq - c->seq / 4) begin[i] = (int32_t)c->seq;
    }
    cuda_test_set_i32(t, id, begin);
    mem_free(begin);
}

static void set_shared_prompts(CudaTest *t, Tid docs, Tid prefix, const Case *c, Shared p) {
    int64_t n = c->rows * c->seq;
    int32_t *begin = mem_alloc(n * 4), *ahead = mem_alloc(n * 8);
    if (p.answers)
        even_prompts(begin, ahead, n, c->seq, p.prompt, c->longest, p.answers);
    else
        shared_prompts(begin, ahead, n, c->seq, c->longest, p.prompt);
    for (int64_t i = 0; c->blind_tail && i < n; i++)
        if (i % c->seq >= c->seq - c->seq / 4) begin[i] = (int32_t)c->seq, ahead[2 * i + 1] *= (int32_t)(i % 2);
    cuda_test_set_i32(t, docs, begin);
    cuda_test_set_i32(t, prefix, ahead);
    mem_free(begin);
    mem_free(ahead);
}

/* Both compute the same sums; probabilities and score gradients are rounded once to 16 bits for their products. */
static double slack(Format f, double largest) {
    return f == FMT_F32 ? 2e-5 * largest : f == FMT_F16 ? 2e-3 * largest : 1.2e-2 * largest;
}

/* The whole tensor: ||gpu - cpu|| / ||cpu||, which sees what is a little wrong everywhere. */
static void expect_norm(CudaTest *t, Tid id, double most) {
    int64_t rows = prog_rows(&t->p, id), cols = prog_cols(&t->p, id), n = rows * cols;
    const FormatRow *f = &format_table[prog_t(&t->p, id)->format];
    float *x = mem_alloc(n * 4), *y = mem_alloc(n * 4);
    f->decode(x, t->gpu[id], rows, cols, 0, rows);
    f->decode(y, t->cpu[id], rows, cols, 0, rows);
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++)
        off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]), all += (double)y[i] * y[i];
    if (!(sqrt(off) <= most * sqrt(all))) {
        EXPECT(!"the GPU's numbers are the CPU's on the whole");
        test_note("    %s\n    tensor %d is off by %.3g of %.3g", t->about, (int)id, sqrt(off), sqrt(all));
    }
    mem_free(x);
    mem_free(y);
}

static double whole_slack(Format f) {
    return f == FMT_F32 ? 4e-6 : f == FMT_F16 ? 8e-4 : 5e-3;
}

/* 9.0 has kernels of its own for these; the others then serve only when told to. */
static bool has_two_kernels(const Case *c, Format f) {
#ifdef HAVE_CUDA
    const CudaBackend *b = cuda_backend(cuda_test_device());
    return b->major == 9 && b->minor == 0 && f != FMT_F32 && (c->dim == 64 || c->dim == 128);
#else
    return false;
#endif
}
static void keep_to_mma(bool yes) {
#ifdef HAVE_CUDA
    cuda_backend(cuda_test_device())->keeps_to_mma = yes;
#endif
}

static void try_kernels(Case c, Shared p, Format f, const char *by) {
    CudaTest t;
    AttrHeads h = {.heads = c.heads,
                   .kv_heads = c.kv_heads,
                   .head_dim = c.dim,
                   .seq = c.seq,
                   .scale = (float)(1 / sqrt(c.dim))};
    int64_t n = c.rows * c.seq, wide = (int64_t)c.heads * c.dim;
    cuda_test_open(&t, "attend%s %s, %lld rows of %lld, %d/%d heads of %d, documents up to %lld%s, prompts up to %lld",
                   by, format_name(f), (long long)c.rows, (long long)c.seq, c.heads, c.kv_heads, c.dim,
                   (long long)c.longest, c.blind_tail ? ", blind tail" : "", (long long)p.prompt);
    Tid qkv = cuda_test_matrix(&t, f, n, width_of(&h)), docs = cuda_test_vector(&t, FMT_I32, n);
    Tid prefix = p.prompt ? cuda_test_matrix(&t, FMT_I32, n, 2) : NONE;
    Tid o = cuda_test_matrix(&t, f, n, wide), lse = cuda_test_matrix(&t, FMT_F32, n, c.heads);
    cuda_test_normal(&t, qkv, 1, 1.5);
    if (p.prompt)
        set_shared_prompts(&t, docs, prefix, &c, p);
    else
        set_documents(&t, docs, &c);
    cuda_test_run(&t, (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs, prefix}, .out = {o, lse}}, .attr.heads = h},
                  false);
    cuda_test_expect(&t, o, slack(f, 3));
    cuda_test_expect(&t, lse, 2e-5);
    expect_norm(&t, o, whole_slack(f));

    /* backward from what the CPU's forward gave */
    Tid d_o = cuda_test_matrix(&t, f, n, wide), dqkv = cuda_test_matrix(&t, f, n, width_of(&h));
    cuda_test_normal(&t, d_o, 2, 1);
    memcpy(t.initial[o], t.cpu[o], (size_t)prog_bytes(&t.p, o));
    memcpy(t.initial[lse], t.cpu[lse], (size_t)prog_bytes(&t.p, lse));
    cuda_test_run(&t,
                  (Step){.op = OP_ATTEND_GRAD,
                         .attend_grad = {.in = {.d_o = d_o, .qkv = qkv, .o = o, .lse = lse, .doc_begin = docs,
                                                .prefix = prefix},
                                         .out = {dqkv}},
                         .attr.heads = h},
                  false);
    cuda_test_expect(&t, dqkv, slack(f, 8 * sqrt((double)c.heads / c.kv_heads)));
    expect_norm(&t, dqkv, whole_slack(f));
    cuda_test_close(&t);
}

static void try_attend(Case c, Format f) {
    bool two = has_two_kernels(&c, f);
    try_kernels(c, (Shared){0}, f, two ? " by wgmma" : "");
    if (!two) return;
    keep_to_mma(true);
    try_kernels(c, (Shared){0}, f, " by mma.sync");
    keep_to_mma(false);
}

TEST(attention_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Case cases[] = {
        {1, 1, 1, 1, 64, 1, false},     {2, 3, 2, 1, 128, 3, false},
        {1, 63, 2, 2, 64, 63, false},   {1, 64, 4, 1, 80, 64, false},
        {2, 65, 3, 1, 96, 200, false},  {1, 128, 2, 1, 128, 128, false},
        {1, 129, 6, 2, 64, 40, true},   {2, 130, 5, 1, 128, 30, true},
        {1, 257, 7, 1, 64, 100, false}, {1, 200, 2, 2, 80, 20, false},
        {1, 300, 2, 1, 96, 300, true},  {3, 192, 4, 2, 128, 1000, false},
        {1, 1, 1, 1, 1, 1, false},      {2, 33, 2, 1, 5, 10, false},
        {1, 70, 3, 1, 48, 70, true},    {1, 65, 2, 1, 256, 65, false},
        {1, 100, 2, 2, 160, 30, true},  {2, 31, 4, 2, 112, 31, false},
        {4, 8, 14, 2, 64, 8, true},     {520, 2, 4, 2, 64, 2, false},
        {300, 3, 3, 1, 128, 3, false}, /* heads share a block */
        {2, 333, 6, 2, 64, 70, true},   {1, 191, 7, 1, 128, 191, false},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        try_attend(cases[i], FMT_BF16);
        try_attend(cases[i], FMT_F32);
        if (i % 3 == 0 || cases[i].dim == 64 || cases[i].dim == 128) try_attend(cases[i], FMT_F16);
    }
}

/* A document that begins in the middle of a far tile: whole tiles of keys are passed over. */
TEST(attention_over_long_packed_rows_on_the_gpu) {
    if (!cuda_test_ready()) return;
    try_attend((Case){1, 700, 2, 1, 64, 90, false}, FMT_BF16);
    try_attend((Case){1, 515, 3, 1, 128, 150, true}, FMT_BF16);
    try_attend((Case){1, 640, 1, 1, 128, 640, false}, FMT_BF16);
    try_attend((Case){1, 1003, 2, 1, 64, 300, false}, FMT_F16);
    try_attend((Case){1, 771, 2, 1, 128, 260, false}, FMT_F16);
}

/* Prompts of a token and of several tiles, answers of a token and of several tiles, several groups a row, groups that
 * end inside a tile, tiles that no query of a block sees; and padding behind the last answer. */
TEST(attention_over_shared_prompts_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const struct {
        Case c;
        int64_t prompt;
    } cases[] = {
        {{1, 5, 1, 1, 64, 1, false}, 2},      {{2, 63, 4, 2, 64, 9, false}, 20},
        {{1, 64, 3, 3, 80, 30, false}, 64},   {{2, 65, 6, 2, 96, 1, false}, 40},
        {{1, 400, 3, 1, 128, 70, false}, 64}, {{2, 333, 5, 1, 64, 150, true}, 100},
        {{1, 700, 4, 2, 64, 300, false}, 1},  {{3, 129, 14, 2, 80, 33, false}, 129},
        {{1, 901, 2, 1, 128, 40, false}, 400}, {{1, 1003, 4, 2, 64, 90, false}, 300},
        {{1, 771, 2, 1, 96, 1, true}, 190},   {{2, 515, 7, 1, 80, 20, false}, 260},
        {{1, 70, 2, 1, 5, 9, false}, 20},     {{1, 333, 2, 2, 160, 40, true}, 90},
        {{1, 100, 2, 1, 256, 12, false}, 40},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Shared p = {.prompt = cases[i].prompt};
        try_kernels(cases[i].c, p, FMT_BF16, " behind prompts");
        try_kernels(cases[i].c, p, FMT_F32, " behind prompts");
        if (i % 3 == 0) try_kernels(cases[i].c, p, FMT_F16, " behind prompts");
    }
}

/* Prompts that end, and answers that begin, at a tile's border and a token off it. */
TEST(attention_over_prompts_that_end_at_a_tile_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int64_t off = -1; off <= 1; off++)
        for (int64_t answer = 63; answer <= 129; answer += 66) {
            Case c = {1, 2 * (64 + off) + 4 * answer, 2, 1, answer == 63 ? 64 : 128, answer, false};
            Shared p = {.prompt = 64 + off, .answers = 2};
            try_kernels(c, p, FMT_BF16, " behind prompts");
            if (off == 1) try_kernels(c, p, FMT_F32, " behind prompts");
        }
}

/* o, lse and dqkv of the GPU's kernels, one behind the other; returns the bytes, to NULL: only that. */
static int64_t take_bits(const CudaTest *t, const Tid *from, int n, char *to) {
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = prog_bytes(&t->p, from[i]);
        if (to) memcpy(to + at, t->gpu[from[i]], (size_t)bytes);
        at += bytes;
    }
    return at;
}

static char *attend_bits(Case c, Format f, bool empty, int64_t *bytes) {
    CudaTest t;
    AttrHeads h = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.dim, .seq = c.seq, .scale = 0.1f};
    int64_t n = c.rows * c.seq, wide = (int64_t)c.heads * c.dim;
    static const int32_t none[][2] = {{0, 0}, {3, 3}, {5, 2}, {-4, 0}, {60, 60}};
    cuda_test_open(&t, "bits of %lld rows of %lld, heads of %d%s", (long long)c.rows, (long long)c.seq, c.dim,
                   empty ? ", an empty prefix" : "");
    Tid qkv = cuda_test_matrix(&t, f, n, width_of(&h)), docs = cuda_test_vector(&t, FMT_I32, n);
    Tid prefix = empty ? cuda_test_matrix(&t, FMT_I32, n, 2) : NONE, d_o = cuda_test_matrix(&t, f, n, wide);
    Tid o = cuda_test_matrix(&t, f, n, wide), lse = cuda_test_matrix(&t, FMT_F32, n, c.heads);
    Tid dqkv = cuda_test_matrix(&t, f, n, width_of(&h)), all[] = {o, lse, dqkv};
    cuda_test_normal(&t, qkv, 1, 1.5);
    cuda_test_normal(&t, d_o, 2, 1);
    set_documents(&t, docs, &c);
    for (int64_t i = 0; empty && i < n; i++)
        memcpy((int32_t *)t.initial[prefix] + 2 * i, none[i % COUNT_OF(none)], sizeof none[0]);
    cuda_test_run(&t, (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs, prefix}, .out = {o, lse}}, .attr.heads = h},
                  false);
    memcpy(t.initial[o], t.gpu[o], (size_t)prog_bytes(&t.p, o));
    memcpy(t.initial[lse], t.gpu[lse], (size_t)prog_bytes(&t.p, lse));
    cuda_test_run(&t,
                  (Step){.op = OP_ATTEND_GRAD,
                         .attend_grad = {.in = {d_o, qkv, o, lse, docs, prefix}, .out = {dqkv}},
                         .attr.heads = h},
                  false);
    char *bits = mem_alloc(*bytes = take_bits(&t, all, COUNT_OF(all), NULL));
    take_bits(&t, all, COUNT_OF(all), bits);
    cuda_test_close(&t);
    return bits;
}

TEST(an_empty_prefix_gives_the_bits_of_none_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Case cases[] = {{2, 130, 5, 1, 128, 30, true}, {1, 257, 6, 3, 64, 100, false},
                                 {1, 300, 2, 2, 80, 300, false}, {3, 70, 3, 1, 48, 20, true}};
    keep_to_mma(true);
    for (int i = 0; i < 2 * COUNT_OF(cases); i++) {
        int64_t bytes = 0;
        char *bits[2];
        for (int k = 0; k < 2; k++) bits[k] = attend_bits(cases[i / 2], i % 2 ? FMT_F32 : FMT_BF16, k, &bytes);
        EXPECT(!memcmp(bits[0], bits[1], (size_t)bytes));
        mem_free(bits[0]), mem_free(bits[1]);
    }
    keep_to_mma(false);
}

/* ---- by cuDNN ---- */

#ifdef HAVE_CUDA
/* lse as our own kernels keep it, (rows*seq, heads), in the library's order, (rows, heads, seq). */
static void reorder_lse(float *to, const float *from, const Case *c) {
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t i = 0; i < c->seq; i++)
            for (int64_t h = 0; h < c->heads; h++)
                to[(r * c->heads + h) * c->seq + i] = from[(r * c->seq + i) * c->heads + h];
}

/* Runs the step by cuDNN, or by our own kernels where the library refuses the shape: true when it was cuDNN. The CPU's
 * results stay as they were. Forward gives the same bits in every play; cuDNN's backward adds in any order, so one of
 * its plays is held against the CPU. */
static bool run_by_library(CudaTest *t, Step s, Tid out, int shown) {
    int64_t bytes = prog_bytes(&t->p, out), runs = cuda_attention_state(cuda_test_device()).runs;
    void *cpu = mem_alloc(bytes);
    memcpy(cpu, t->cpu[out], (size_t)bytes);
    s.attr.heads.by = ATTEND_FAST;
    t->loose = s.op == OP_ATTEND_GRAD, t->shown = shown;
    keep_to_mma(true); /* Hopper's kernels would take short rows themselves */
    cuda_test_run(t, s, false);
    keep_to_mma(false);
    int64_t ran = cuda_attention_state(cuda_test_device()).runs - runs;
    EXPECT(ran == 3 || ran == 0); /* on its own, first, captured */
    t->loose = false;
    memcpy(t->cpu[out], cpu, (size_t)bytes);
    mem_free(cpu);
    return ran > 0;
}

/* Forward and backward of a case whose rows are one document each. */
static void open_both(CudaTest *t, Step *forward, Step *backward, const char *who, const Case *c, Format f) {
    AttrHeads h = {.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->dim, .seq = c->seq,
                   .scale = (float)(1 / sqrt(c->dim))};
    int64_t n = c->rows * c->seq, wide = (int64_t)c->heads * c->dim;
    cuda_test_open(t, "%s %s, %lld rows of %lld, %d/%d heads of %d", who, format_name(f), (long long)c->rows,
                   (long long)c->seq, c->heads, c->kv_heads, c->dim);
    Tid qkv = cuda_test_matrix(t, f, n, width_of(&h)), docs = cuda_test_vector(t, FMT_I32, n);
    Tid o = cuda_test_matrix(t, f, n, wide), lse = cuda_test_matrix(t, FMT_F32, n, c->heads);
    Tid d_o = cuda_test_matrix(t, f, n, wide), dqkv = cuda_test_matrix(t, f, n, width_of(&h));
    cuda_test_normal(t, qkv, 1, 1.5);
    cuda_test_normal(t, d_o, 2, 1);
    memset(t->initial[docs], 0, (size_t)prog_bytes(&t->p, docs));
    *forward = (Step){.op = OP_ATTEND, .attend = {.in = {qkv, docs}, .out = {o, lse}}, .attr.heads = h};
    *backward = (Step){
        .op = OP_ATTEND_GRAD,
        .attend_grad = {.in = {.d_o = d_o, .qkv = qkv, .o = o, .lse = lse, .doc_begin = docs}, .out = {dqkv}},
        .attr.heads = h};
}

static void try_library(Case c, Format f) {
    CudaTest t;
    Step forward, backward;
    open_both(&t, &forward, &backward, "cuDNN attend", &c, f);
    Tid o = forward.attend.out.o, lse = forward.attend.out.lse, dqkv = backward.attend_grad.out.d_qkv;
    int64_t lse_bytes = prog_bytes(&t.p, lse);
    float *lse_kept = mem_alloc(lse_bytes);
    cuda_test_run(&t, forward, false); /* our own: the reference */
    reorder_lse(lse_kept, t.cpu[lse], &c);
    bool served = run_by_library(&t, forward, o, 0);
    EXPECT(served || c.seq % 128); /* every version serves whole tiles */
    cuda_test_expect(&t, o, slack(f, 3));
    expect_norm(&t, o, whole_slack(f));
    memcpy(t.initial[o], t.cpu[o], (size_t)prog_bytes(&t.p, o));
    memcpy(t.initial[lse], t.cpu[lse], (size_t)lse_bytes); /* for our own backward */
    if (served) memcpy(t.cpu[lse], lse_kept, (size_t)lse_bytes);
    cuda_test_expect(&t, lse, 1e-4);

    cuda_test_run(&t, backward, false);
    if (served) memcpy(t.initial[lse], lse_kept, (size_t)lse_bytes);
    for (int shown = 0; shown <= 3; shown += 3) { /* on its own, and as a repeated graph */
        EXPECT(run_by_library(&t, backward, dqkv, shown) == served); /* lse is in its maker's order */
        cuda_test_expect(&t, dqkv, slack(f, 8 * sqrt((double)c.heads / c.kv_heads)));
        expect_norm(&t, dqkv, whole_slack(f));
    }
    mem_free(lse_kept);
    cuda_test_close(&t);
}

/* Runs the step by whoever is faster; gives how often that was the library. The CPU's result stays as it was. */
static int64_t library_runs(CudaTest *t, Step s, Tid out) {
    int64_t bytes = prog_bytes(&t->p, out), runs = cuda_attention_state(cuda_test_device()).runs;
    void *cpu = mem_alloc(bytes);
    memcpy(cpu, t->cpu[out], (size_t)bytes);
    s.attr.heads.by = ATTEND_FAST;
    cuda_test_run(t, s, false);
    memcpy(t->cpu[out], cpu, (size_t)bytes);
    mem_free(cpu);
    return cuda_attention_state(cuda_test_device()).runs - runs;
}

static void try_short(Case c, Format f) {
    CudaTest t;
    Step forward, backward;
    open_both(&t, &forward, &backward, "attend by the faster", &c, f);
    Tid o = forward.attend.out.o, lse = forward.attend.out.lse, dqkv = backward.attend_grad.out.d_qkv;
    cuda_test_run(&t, forward, false); /* our own: the reference */
    int64_t by_library = library_runs(&t, forward, o);
    EXPECT((by_library > 0) == (c.dim != 64));
    cuda_test_expect(&t, o, slack(f, 3));
    memcpy(t.initial[o], t.cpu[o], (size_t)prog_bytes(&t.p, o));
    memcpy(t.initial[lse], t.cpu[lse], (size_t)prog_bytes(&t.p, lse));
    cuda_test_run(&t, backward, false);
    if (by_library) reorder_lse((float *)t.initial[lse], (const float *)t.cpu[lse], &c);
    EXPECT(library_runs(&t, backward, dqkv) == 0);
    cuda_test_expect(&t, dqkv, slack(f, 8 * sqrt((double)c.heads / c.kv_heads)));
    expect_norm(&t, dqkv, whole_slack(f));
    cuda_test_close(&t);
}
#endif

TEST(short_rows_are_attended_by_the_faster_on_a_hopper) {
    if (!cuda_test_ready()) return;
#ifdef HAVE_CUDA
    Err e = {0};
    const CudaBackend *c = cuda_backend(cuda_test_device());
    if (c->major != 9 || c->minor != 0 || !cuda_attention_ready(cuda_test_device(), &e)) {
        test_skip("no Hopper, or no cuDNN");
        return;
    }
    try_short((Case){2, 256, 4, 2, 128, 0, false}, FMT_BF16);
    try_short((Case){2, 256, 4, 2, 64, 0, false}, FMT_BF16);
    try_short((Case){1, 384, 3, 1, 128, 0, false}, FMT_F16);
#endif
}

TEST(attention_by_cudnn_on_the_gpu) {
    if (!cuda_test_ready()) return;
#ifdef HAVE_CUDA
    Err e = {0};
    if (!cuda_attention_ready(cuda_test_device(), &e)) {
        test_skip(e.text);
        return;
    }
    static const Case cases[] = {
        {1, 128, 2, 1, 64, 0, false},  {2, 256, 4, 2, 128, 0, false}, {1, 257, 7, 1, 64, 0, false},
        {3, 200, 4, 4, 128, 0, false}, {2, 130, 6, 2, 80, 0, false},  {1, 321, 3, 1, 96, 0, false},
        {1, 513, 14, 2, 64, 0, false}, {2, 384, 7, 1, 128, 0, false},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        try_library(cases[i], FMT_BF16);
        if (i % 2) try_library(cases[i], FMT_F16);
    }
#endif
}

/* ---- caches ---- */

/* named: batch row r uses row rows - r of a cache of rows + 1. */
static void try_cache_of_rows(AttrHeads h, int64_t rows, Format f, Format stored, const int32_t *positions,
                              bool named) {
    CudaTest t;
    int64_t n = rows * h.seq, slot = 2 * h.kv_heads * h.head_dim;
    bool int8 = stored == FMT_INT8; /* a head a row */
    h.scale = (float)(1 / sqrt(h.head_dim));
    cuda_test_open(&t, "cache %s of %s, %lld rows of %lld, %d/%d heads of %d, %lld slots", format_name(stored),
                   format_name(f), (long long)rows, (long long)h.seq, h.heads, h.kv_heads, h.head_dim,
                   (long long)h.slots);
    Tid qkv = cuda_test_matrix(&t, f, n, width_of(&h)), at = cuda_test_vector(&t, FMT_I32, n);
    Tid to = named ? cuda_test_vector(&t, FMT_I32, rows) : NONE;
    if (rows % 2) prog_t(&t.p, at)->role = ROLE_INPUT; /* read before what is in front has ended */
    if (rows % 2 && named) prog_t(&t.p, to)->role = ROLE_INPUT;
    Tid cache = int8 ? cuda_test_matrix(&t, stored, (rows + named) * h.slots * 2 * h.kv_heads, h.head_dim)
                     : cuda_test_cube(&t, stored, rows + named, h.slots, slot);
    Tid o = cuda_test_matrix(&t, f, n, h.heads * h.head_dim);
    cuda_test_normal(&t, qkv, 1, 1.5);
    cuda_test_normal(&t, cache, 2, 1.5);
    cuda_test_set_i32(&t, at, positions);
    int32_t row[16];
    for (int64_t r = 0; r < rows; r++) row[r] = (int32_t)(rows - r);
    if (named) cuda_test_set_i32(&t, to, row);
    Tid freq = cuda_test_vector(&t, FMT_F32, MAX2(h.head_dim / 2, 1)), y = cuda_test_matrix(&t, f, n, width_of(&h));
    cuda_test_set(&t, freq, (const double[128]){0}); /* no angle: put as they are */
    AttrHeads as_is = h;
    as_is.scale = 1;
    cuda_test_run(
        &t,
        (Step){.op = OP_ROPE_PUT,
               .rope_put = {.in = {.qkv = qkv, .positions = at, .inv_freq = freq, .rows = to}, .out = {y, cache}},
               .attr.heads = as_is},
        named);
    if (!named) cuda_test_same(&t, y);
    if (int8) cuda_test_near(&t, cache, 0, 0); /* what lies between a row's codes and the next is nobody's */
    else cuda_test_same(&t, cache);
    cuda_test_run(
        &t,
        (Step){.op = OP_ATTEND_CACHE,
               .attend_cache = {.in = {.qkv = qkv, .cache = cache, .positions = at, .rows = to}, .out = {o}},
               .attr.heads = h},
        false);
    cuda_test_expect(&t, o, h.seq >= 16 || device_cache_on_cores(f, h.head_dim) ? slack(f, 3) : 2e-5);
    cuda_test_close(&t);
}

/* On the GPU rope_put gives the bits of rope: q where it was, k and v in a cache of the same format. */
static void try_rope_put(AttrHeads h, Format f, const int32_t *positions, int64_t rows) {
    CudaTest t;
    int64_t n = rows * h.seq, width = width_of(&h), item = format_item_bytes(f), q = h.heads * h.head_dim;
    cuda_test_open(&t, "rope_put %s, %d/%d heads of %d", format_name(f), h.heads, h.kv_heads, h.head_dim);
    Tid x = cuda_test_matrix(&t, f, n, width), at = cuda_test_vector(&t, FMT_I32, n);
    Tid freq = cuda_test_vector(&t, FMT_F32, h.head_dim / 2), y = cuda_test_matrix(&t, f, n, width);
    Tid put = cuda_test_matrix(&t, f, n, width), cache = cuda_test_cube(&t, f, rows, h.slots, width - q);
    if (f == FMT_BF16) prog_t(&t.p, at)->role = ROLE_INPUT; /* read before what is in front has ended */
    double inv[128] = {1};
    for (int i = 0; i < h.head_dim / 2; i++) inv[i] = pow(10000.0, -2.0 * i / h.head_dim);
    cuda_test_set(&t, freq, inv);
    cuda_test_normal(&t, x, 1, 1);
    cuda_test_normal(&t, cache, 2, 1);
    cuda_test_set_i32(&t, at, positions);
    h.scale = 1.25f;
    cuda_test_run(&t, (Step){.op = OP_ROPE, .rope = {.in = {x, at, freq}, .out = {y}}, .attr.heads = h}, false);
    char *turned = mem_alloc(prog_bytes(&t.p, y));
    memcpy(turned, t.gpu[y], (size_t)prog_bytes(&t.p, y));
    cuda_test_run(
        &t, (Step){.op = OP_ROPE_PUT, .rope_put = {.in = {x, at, freq}, .out = {put, cache}}, .attr.heads = h},
        false);
    cuda_test_expect(&t, put, 1e-6);
    cuda_test_expect(&t, cache, 1e-6);
    for (int64_t i = 0; i < n; i++) {
        const char *from = turned + i * width * item, *to = (char *)t.gpu[put] + i * width * item;
        EXPECT(!memcmp(from, to, (size_t)(q * item)));
        if (positions[i] < 0) continue;
        const char *kept = (char *)t.gpu[cache] + (i / h.seq * h.slots + positions[i]) * (width - q) * item;
        EXPECT(!memcmp(from + q * item, kept, (size_t)((width - q) * item)));
    }
    mem_free(turned);
    cuda_test_close(&t);
}

TEST(rope_put_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    static const int32_t positions[] = {7, 8, 0, -1, 68, 69};
    for (int f = 0; f < COUNT_OF(formats); f++) {
        static const AttrHeads heads[] = {{.heads = 28, .kv_heads = 4, .head_dim = 128, .seq = 2, .slots = 70},
                                          {.heads = 3, .kv_heads = 3, .head_dim = 10, .seq = 2, .slots = 70},
                                          {.heads = 2, .kv_heads = 1, .head_dim = 7, .seq = 2, .slots = 70}};
        for (int i = 0; i < COUNT_OF(heads); i++) try_rope_put(heads[i], formats[f], positions, 3);
    }
}

static void try_cache(AttrHeads h, int64_t rows, Format f, const int32_t *positions) {
    try_cache_of_rows(h, rows, f, f, positions, false);
    try_cache_of_rows(h, rows, f, f, positions, true);
    try_cache_of_rows(h, rows, f, FMT_INT8, positions, true);
}

TEST(attention_over_a_cache_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    int32_t many[60];
    for (int i = 0; i < 60; i++)
        many[i] = i < 40 ? 100 + i : i < 58 ? i : -1; /* rows of 20: two go on, one begins and idles */
    for (int f = 0; f < COUNT_OF(formats); f++) {
        try_cache((AttrHeads){.heads = 9, .kv_heads = 3, .head_dim = 64, .seq = 1, .slots = 200}, 4, formats[f],
                  (const int32_t[]){0, 199, -1, 64});
        try_cache((AttrHeads){.heads = 5, .kv_heads = 1, .head_dim = 7, .seq = 3, .slots = 9}, 2, formats[f],
                  (const int32_t[]){0, 1, 2, 6, 7, 8});
        try_cache((AttrHeads){.heads = 28, .kv_heads = 4, .head_dim = 128, .seq = 1, .slots = 1100}, 2, formats[f],
                  (const int32_t[]){1099, 300});
        try_cache((AttrHeads){.heads = 2, .kv_heads = 2, .head_dim = 256, .seq = 2, .slots = 600}, 1, formats[f],
                  (const int32_t[]){598, 599});
        try_cache((AttrHeads){.heads = 10, .kv_heads = 1, .head_dim = 80, .seq = 1, .slots = 70}, 1, formats[f],
                  (const int32_t[]){69});
        try_cache((AttrHeads){.heads = 6, .kv_heads = 6, .head_dim = 32, .seq = 1, .slots = 500}, 3, formats[f],
                  (const int32_t[]){499, -1, 15});
        try_cache((AttrHeads){.heads = 12, .kv_heads = 1, .head_dim = 96, .seq = 3, .slots = 2000}, 1, formats[f],
                  (const int32_t[]){16, 17, 1999});
        try_cache((AttrHeads){.heads = 7, .kv_heads = 1, .head_dim = 128, .seq = 1, .slots = 128}, 16, formats[f],
                  (const int32_t[]){0, 1, 7, 8, 15, 16, 17, 31, 32, 63, 64, 65, 100, 126, 127, -1});
        try_cache((AttrHeads){.heads = 28, .kv_heads = 4, .head_dim = 128, .seq = 1, .slots = 300}, 8, formats[f],
                  (const int32_t[]){299, 0, 150, -1, 31, 32, 255, 256}); /* more blocks than multiprocessors */
        try_cache((AttrHeads){.heads = 14, .kv_heads = 2, .head_dim = 64, .seq = 2, .slots = 2100}, 4, formats[f],
                  (const int32_t[]){2098, 2099, 0, 1, 1000, 1001, 511, 512});
        try_cache((AttrHeads){.heads = 4, .kv_heads = 2, .head_dim = 64, .seq = 20, .slots = 160}, 3, formats[f],
                  many);
    }
}
