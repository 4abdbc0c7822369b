/* test_runs.c - steps in few launches on the GPU: the bits of one launch a step, for many tensors of odd sizes. */
#include "base/rng.h"
#include "base/units.h"
#include "tests/cuda/cuda_test.h"

enum { STEPS = 150, PLACES = 5 }; /* more steps than a launch takes; w g m v master */

typedef struct Kinds {
    Format w, g, m, v;
    bool master;
} Kinds;

typedef struct Many { /* STEPS steps, their tensors and scratch in one pool */
    OpId op;
    Tensor t[STEPS][PLACES], small;
    Step step[STEPS];
    Args args[STEPS];
    char *pool;
    unsigned char *initial, *one_by_one, *together;
    int64_t bytes;
} Many;

static int64_t size_of(int i) {
    static const int64_t sizes[] = {1, 7, 255, 256, 257, 896, 2048, 8191, 8192, 8200, 16384, 16385, 65536, 100003};
    return sizes[i % COUNT_OF(sizes)];
}

static int64_t take_bytes(Many *t, int64_t bytes) {
    int64_t at = t->bytes;
    t->bytes += units_round_up(bytes, 256);
    return at;
}

static Tensor tensor_of(Format f, int64_t n) { return (Tensor){.name = "t", .format = f, .rank = 1, .dim = {n}}; }

/* Stored numbers of every format: encoded normals, squares of them where they must not be negative. */
static void put_numbers(Many *t, int64_t at, const Tensor *x, uint64_t key) {
    int64_t n = x->dim[0];
    float *v = mem_alloc(n * (int64_t)sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = 0.1f * rng_normal(key, (uint64_t)i), v[i] = key % PLACES == 3 ? v[i] * v[i] : v[i];
    format_table[x->format].encode(t->initial + at, v, 1, n, 0, 1);
    mem_free(v);
}

static void many_open(Many *t, OpId op, Kinds k, Kinds odd) {
    Backend *b = cuda_test_device();
    Err e = {0};
    int64_t at[STEPS][PLACES], scratch[STEPS], out[STEPS], words;
    *t = (Many){.op = op};
    words = take_bytes(t, 256); /* dials at 0, verdict at 64, clock at 128 */
    for (int i = 0; i < STEPS; i++) {
        Kinds f = i == STEPS / 2 ? odd : k; /* one in between takes other formats: a launch of its own */
        const Format formats[PLACES] = {f.w, f.g, f.m, f.v, FMT_F32};
        for (int p = 0; p < PLACES; p++) {
            t->t[i][p] = tensor_of(formats[p], size_of(i));
            at[i][p] = take_bytes(t, format_bytes(formats[p], 1, size_of(i)));
        }
        scratch[i] = take_bytes(t, (size_of(i) + 16383) / 16384 * 8);
        out[i] = take_bytes(t, 8);
    }
    t->initial = mem_alloc(t->bytes), t->one_by_one = mem_alloc(t->bytes), t->together = mem_alloc(t->bytes);
    memset(t->initial, 0xff, (size_t)t->bytes);
    memcpy(t->initial + words, (const float[]){1e-2f, 1.7f, 2.3f}, 12);
    memcpy(t->initial + words + 64, (const double[]){0.8, 3, 1}, 24);
    memcpy(t->initial + words + 128, (const int64_t[CLOCK_WORDS]){77}, CLOCK_WORDS * 8);
    t->pool = b->pool(b, POOL_DEVICE, t->bytes, &e);
    CHECK_MSG(t->pool, "%s", e.text);
    for (int i = 0; i < STEPS; i++) {
        void *x[PLACES];
        Tensor *n = t->t[i];
        bool master = (i == STEPS / 2 ? odd : k).master;
        for (int p = 0; p < PLACES; p++)
            put_numbers(t, at[i][p], &n[p], (uint64_t)(i * PLACES + p)), x[p] = t->pool + at[i][p];
        t->step[i] = (Step){.op = op, .key = (uint32_t)(100 + i),
                            .attr.update = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                            .weight_decay = i % 3 ? 0.1f : 0, .lr_mult = i % 2 ? 1 : 0.5f}};
        Args *a = &t->args[i];
        *a = (Args){.step = &t->step[i],
                    .workspace = t->pool + scratch[i],
                    .workspace_bytes = (size_of(i) + 16383) / 16384 * 8};
        char *dial = t->pool + words;
        Operand dials = {dial, NULL}, verdict = {dial + 64, NULL}, clock = {dial + 128, NULL};
        Operand w = {x[0], &n[0]}, g = {x[1], &n[1]}, m = {x[2], &n[2]}, v = {x[3], &n[3]}, behind = {0};
        if (master) behind = (Operand){x[4], &n[4]};
        if (op == OP_SUM_SQUARES) {
            a->sum_squares.in.g = g, a->sum_squares.out.part.data = t->pool + out[i];
        } else if (op == OP_ADAMW) {
            a->adamw.in.weight = a->adamw.out.weight = w, a->adamw.in.m = a->adamw.out.m = m;
            a->adamw.in.v = a->adamw.out.v = v, a->adamw.in.master = a->adamw.out.master = behind;
            a->adamw.in.g = g, a->adamw.in.dials = dials, a->adamw.in.verdict = verdict, a->adamw.in.clock = clock;
        } else {
            a->sgd.in.weight = a->sgd.out.weight = w, a->sgd.in.m = a->sgd.out.m = m;
            a->sgd.in.master = a->sgd.out.master = behind;
            a->sgd.in.g = g, a->sgd.in.dials = dials, a->sgd.in.verdict = verdict, a->sgd.in.clock = clock;
        }
    }
}

static void many_play(Many *t, unsigned char *after, bool together) {
    Backend *b = cuda_test_device();
    Err e = {0};
    b->put(b, t->pool, t->initial, t->bytes);
    if (together) b->runs[t->op](b, QUEUE_COMPUTE, t->args, STEPS);
    for (int i = 0; i < STEPS && !together; i++) b->kernels[t->op](b, QUEUE_COMPUTE, &t->args[i]);
    EXPECT_OK(b->sync(b, &e));
    b->get(b, after, t->pool, t->bytes);
}

static void try_run(OpId op, Kinds k, Kinds odd) {
    Backend *b = cuda_test_device();
    Many *t = mem_alloc(sizeof *t);
    many_open(t, op, k, odd);
    many_play(t, t->one_by_one, false);
    many_play(t, t->together, true);
    EXPECT(memcmp(t->initial, t->one_by_one, (size_t)t->bytes)); /* something was done */
    for (int64_t i = 0; i < t->bytes; i++) {
        if (t->one_by_one[i] == t->together[i]) continue;
        EXPECT(!"a run gives the bits of its steps");
        test_note("    %s, weight %s, moments %s%s: first at byte %lld of %lld", op_name(op), format_name(k.w),
                  format_name(k.m), k.master ? ", master" : "", (long long)i, (long long)t->bytes);
        break;
    }
    b->release(b, POOL_DEVICE);
    mem_free(t->initial), mem_free(t->one_by_one), mem_free(t->together);
    mem_free(t);
}

TEST(runs_give_the_bits_of_their_steps_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Kinds kinds[] = {{FMT_BF16, FMT_BF16, FMT_BF16, FMT_BF16, false},
                                  {FMT_F32, FMT_F32, FMT_F32, FMT_F32, false},
                                  {FMT_BF16, FMT_BF16, FMT_MOM8, FMT_VAR8, false},
                                  {FMT_BF16, FMT_F32, FMT_F32, FMT_F32, true}};
    for (int i = 0; i < COUNT_OF(kinds); i += cuda_test_apart()) {
        const Kinds *odd = &kinds[(i + 1) % COUNT_OF(kinds)];
        try_run(OP_SUM_SQUARES, kinds[i], *odd);
        try_run(OP_ADAMW, kinds[i], *odd);
        try_run(OP_SGD, kinds[i], *odd);
    }
}
