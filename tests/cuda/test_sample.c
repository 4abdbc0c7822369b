/* test_sample.c - the token drawn on the GPU is the CPU's: every cut, ties, flat and steep rows, rows that went wrong,
 * vocabularies of 1 to 262,144 tokens. */
#include "base/rng.h"
#include "tests/cuda/cuda_test.h"

enum { ROOM = 24 };

typedef enum Kind {
    STEEP, PLAIN, NARROW, EQUAL, TWO_LEVELS, FEW_POSSIBLE, WITH_NAN, INFINITE, NONE_POSSIBLE, HUGE, KINDS
} Kind;
static const char *const kind_names[KINDS] = {"steep",        "plain",      "narrow",   "equal",         "two levels",
                                              "few possible", "with a nan", "infinite", "none possible", "huge"};

static void fill_row(float *x, int64_t vocab, Kind kind, uint64_t key) {
    for (int64_t i = 0; i < vocab; i++) {
        float z = rng_normal(key, (uint64_t)i);
        switch (kind) {
            case STEEP: x[i] = 6 * z; break;
            case NARROW: x[i] = 1e-3f * z + 5; break;
            case EQUAL: x[i] = i % 2 ? 0.0f : -0.0f; break;
            case TWO_LEVELS: x[i] = i % 3 ? -1.5f : -0.25f; break;
            case FEW_POSSIBLE:
            case NONE_POSSIBLE: x[i] = kind == FEW_POSSIBLE && i % 997 == 996 % vocab ? z : -INFINITY; break;
            case HUGE: x[i] = 1e30f * z; break;
            default: x[i] = 2 * z;
        }
    }
    if (kind == WITH_NAN) x[vocab / 2] = NAN;
    if (kind == INFINITE) x[vocab / 3] = INFINITY;
}

static void expect_drawn(CudaTest *t, Tid drawn, int64_t slots) {
    const Drawn *gpu = t->gpu[drawn], *cpu = t->cpu[drawn];
    for (int64_t s = 0; s < slots; s++) {
        bool near = gpu[s].logp == cpu[s].logp /* of a forced id that cannot come: -inf */ ||
                    fabsf(gpu[s].logp - cpu[s].logp) <= 1e-5f + 1e-5f * fabsf(cpu[s].logp);
        bool same = gpu[s].id == cpu[s].id && near;
        if (EXPECT(same)) continue;
        test_note("    %s\n    slot %lld: gpu id %d logp %.9g, cpu id %d logp %.9g", t->about, (long long)s, gpu[s].id,
                  gpu[s].logp, cpu[s].id, cpu[s].logp);
        return;
    }
}

static void try_sample(int64_t rows, int64_t vocab, Kind kind, DrawHow how, uint64_t seed) {
    CudaTest t;
    int64_t slots = rows + 2;
    cuda_test_open(
        &t,
        "sample %lldx%lld, %s: temperature %g top-k %d top-p %g min-p %g penalty %g logp %d forced %d seed %lld",
        (long long)rows, (long long)vocab, kind_names[kind], how.temperature, how.top_k, how.top_p, how.min_p,
        how.repetition, how.want_logp, how.forced, (long long)seed);
    Tid logits = cuda_test_matrix(&t, FMT_F32, rows, vocab), slot = cuda_test_vector(&t, FMT_I32, rows),
        position = cuda_test_vector(&t, FMT_I32, rows), dial = cuda_test_matrix(&t, FMT_I32, slots, DRAW_WORDS),
        ids = cuda_test_matrix(&t, FMT_I32, slots, ROOM), drawn = cuda_test_matrix(&t, FMT_I32, slots, DRAWN_WORDS);
    memset(t.initial[drawn], 0, (size_t)prog_bytes(&t.p, drawn));
    for (int64_t n = 0; n < rows; n++) { /* the first of several is idle, the last has no room for its token */
        fill_row((float *)t.initial[logits] + n * vocab, vocab, kind, rng_fold(seed, (uint64_t)n));
        ((int32_t *)t.initial[slot])[n] = (int32_t)(slots - 1 - n);
        ((int32_t *)t.initial[position])[n] = n == 0 && rows > 2 ? -1 : n == rows - 1 ? ROOM - 1 : (int32_t)(n % ROOM);
    }
    for (int64_t s = 0; s < slots; s++) {
        how.key = rng_fold(seed, (uint64_t)(100 + s));
        how.first = (int32_t)(s % 3);
        ((DrawHow *)t.initial[dial])[s] = how;
        for (int i = 0; i < ROOM; i++) /* likely ones among them, and one that went wrong */
            ((int32_t *)t.initial[ids])[s * ROOM + i] =
                i == 5 ? -1 : (int32_t)(rng_u32(seed, (uint64_t)(s * ROOM + i)) % (uint32_t)vocab);
    }
    cuda_test_run(
        &t,
        (Step){.op = OP_SAMPLE,
               .sample = {.in = {.logits = logits, .slots = slot, .positions = position, .how = dial, .ids = ids},
                          .out = {drawn, ids}}},
        false);
    expect_drawn(&t, drawn, slots);
    cuda_test_same(&t, ids);
    cuda_test_close(&t);
}

static const DrawHow settings[] = {
    {.temperature = 0, .top_p = 1, .repetition = 1, .want_logp = 1},
    {.temperature = 0, .top_p = 1, .repetition = 1.5f, .want_logp = 1},
    {.temperature = 1, .top_p = 1, .repetition = 1, .want_logp = 1},
    {.temperature = 0.7f, .top_p = 0.95f, .repetition = 1},
    {.temperature = 1.3f, .top_p = 0.5f, .repetition = 1.2f},
    {.temperature = 1, .top_k = 1, .top_p = 1, .repetition = 1},
    {.temperature = 1, .top_k = 40, .top_p = 1, .repetition = 0.8f, .want_logp = 1},
    {.temperature = 0.6f, .top_k = 200, .top_p = 0.9f, .min_p = 0.01f, .repetition = 1.1f},
    {.temperature = 1, .top_p = 0, .repetition = 1},
    {.temperature = 1, .top_p = 1, .min_p = 0.3f, .repetition = 1},
    {.temperature = 1, .top_p = 0.9999f, .min_p = 1, .repetition = 1},
    {.temperature = 1e-6f, .top_p = 0.9f, .repetition = 1},
    {.temperature = 50, .top_p = 0.999f, .repetition = 1},
    {.temperature = 1, .top_p = 0.9f, .repetition = 1, .want_logp = 1, .forced = 9}, /* not drawn: they stand there */
    {.temperature = 0, .top_p = 1, .repetition = 1.3f, .want_logp = 1, .forced = ROOM},
};

TEST(tokens_drawn_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    static const int64_t vocabularies[] = {1, 2, 31, 33, 1000, 1025, 32000, 151936};
    for (int v = 0; v < COUNT_OF(vocabularies); v++)
        for (int i = 0; i < COUNT_OF(settings); i++)
            try_sample(vocabularies[v] > 2000 ? 3 : 5, vocabularies[v], PLAIN, settings[i],
                       1000 + (uint64_t)(v * 100 + i));
}

TEST(odd_rows_drawn_from_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < COUNT_OF(settings); i++) {
            try_sample(1, 700, (Kind)k, settings[i], 7 + (uint64_t)i);
            try_sample(2, 40000, (Kind)k, settings[i], 70 + (uint64_t)i);
        }
}

TEST(many_rows_and_large_vocabularies_drawn_from_on_the_gpu) {
    if (!cuda_test_ready()) return;
    try_sample(65, 5000, PLAIN, settings[3], 3);
    try_sample(40, 512, STEEP, settings[2], 4);
    for (int i = 0; i < COUNT_OF(settings); i++) try_sample(1, 262144, i % 2 ? STEEP : PLAIN, settings[i], 5);
}

TEST(ids_picked_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int64_t rows = 1; rows < 3000; rows = rows * 3 + 1) {
        CudaTest t;
        cuda_test_open(&t, "pick %lld", (long long)rows);
        Tid ids = cuda_test_matrix(&t, FMT_I32, rows + 1, ROOM), slot = cuda_test_vector(&t, FMT_I32, rows),
            position = cuda_test_vector(&t, FMT_I32, rows), to = cuda_test_vector(&t, FMT_I32, rows);
        for (int64_t i = 0; i < (rows + 1) * ROOM; i++)
            ((int32_t *)t.initial[ids])[i] = i % 7 == 3 ? -1 : (int32_t)(i * 31 % 1000);
        for (int64_t n = 0; n < rows; n++) {
            ((int32_t *)t.initial[slot])[n] = (int32_t)(rows - n);
            ((int32_t *)t.initial[position])[n] = (int32_t)(n % (ROOM + 1)) - 1;
        }
        cuda_test_run(&t, (Step){.op = OP_PICK, .pick = {.in = {ids, slot, position}, .out = {to}}}, false);
        cuda_test_same(&t, to);
        cuda_test_close(&t);
    }
}
