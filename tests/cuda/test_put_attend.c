/* test_put_attend.c - rope_put and attend_cache of one token a row in one launch: the bits of two, of what is
 * attended and of the cache, on every border of tiles and splits; and nothing is joined where a token could miss
 * another's key. */
#include "base/half.h"
#include "base/rng.h"
#include "base/units.h"
#include "exec/exec.h"
#ifdef HAVE_CUDA
#include "backend/cuda/cuda.h"
#endif
#include "tests/cuda/cuda_test.h"

enum { MOST_ROWS = 48, ROUNDS = 4 };

typedef struct Shape {
    Format f;
    int heads, kv_heads, dim;
    int64_t slots, rows;
    bool named; /* rows of the cache are */
} Shape;

typedef enum Twist { PLAIN, SHARED_ROWS, PUT_TWICE, TURNED_READ_AGAIN } Twist;

typedef struct Token { /* of each row: a norm, then what is tested */
    Shape s;
    Program p;
    Tid x, scale, inv_freq, positions, rows, cache, o;
    uint16_t *kept; /* the cache before a token; owns */
    Exec exec;
} Token;

static void record(Token *t, Shape s, Twist twist) {
    Program *p = &t->p;
    AttrHeads turn = {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.dim, .seq = 1, .scale = 1.25f,
                      .slots = s.slots, .distinct_cache_rows = twist != SHARED_ROWS}, see = turn;
    int64_t width = (int64_t)(s.heads + 2 * s.kv_heads) * s.dim;
    *t = (Token){.s = s};
    prog_init(p);
    see.scale = 0.125f;
    t->inv_freq = prog_tensor(p, "inv_freq", ROLE_TABLE, FMT_F32, 1, DIMS(s.dim / 2));
    t->scale = prog_tensor(p, "scale", ROLE_WEIGHT, s.f, 1, DIMS(width));
    t->cache = prog_tensor(p, "cache", ROLE_CACHE, s.f, 2, DIMS(s.rows * s.slots, (int64_t)2 * s.kv_heads * s.dim));
    prog_begin_phase(p, "token", 2);
    t->x = prog_tensor(p, "x", ROLE_INPUT, s.f, 2, DIMS(s.rows, width));
    t->positions = prog_tensor(p, "positions", ROLE_INPUT, FMT_I32, 1, DIMS(s.rows));
    t->rows = s.named ? prog_tensor(p, "rows", ROLE_INPUT, FMT_I32, 1, DIMS(s.rows)) : NONE;
    Tid qkv = op_rmsnorm(p, t->x, t->scale, 1e-6f);
    if (twist == PUT_TWICE) op_rope_put(p, t->cache, qkv, t->positions, t->inv_freq, t->rows, turn);
    Tid turned = op_rope_put(p, t->cache, qkv, t->positions, t->inv_freq, t->rows, turn);
    t->o = op_attend_cache(p, turned, t->cache, t->positions, t->rows, see);
    if (twist == TURNED_READ_AGAIN) op_add(p, "again", turned, turned);
    op_add(p, "after", t->o, t->o);
    prog_end_phase(p);
}

/* Every tensor has its own place, but o stands where told: NONE, or that tensor. */
static bool open_token(Token *t, Backend *b, Tid o_over, Err *e) {
    Program *p = &t->p;
    int64_t bytes = cuda_test_place(p, b);
    if (o_over) p->t[t->o].offset = p->t[o_over].offset;
    return exec_open(&t->exec, p, b, (int64_t[POOL_COUNT]){[POOL_DEVICE] = bytes}, e);
}

static int pairs_joined(const Token *t) {
    int n = 0;
    for (int i = 0; i < t->p.n_s; i++) n += t->exec.joined[i] && t->p.s[i].op == OP_ROPE_PUT && t->exec.run[i] == 2;
    return n;
}

static uint16_t *numbers(const Token *t, Tid id, uint64_t key) { /* gives */
    int64_t n = prog_bytes(&t->p, id) / 2;
    uint16_t *x = mem_alloc(n * 2);
    for (int64_t i = 0; i < n; i++) {
        float v = rng_normal(key, (uint64_t)i);
        x[i] = t->s.f == FMT_BF16 ? half_to_bf16(v) : half_to_f16(v);
    }
    return x;
}

static void put_numbers(Token *t, Tid id, uint64_t key) {
    uint16_t *x = numbers(t, id, key);
    exec_put(&t->exec, id, x, 0, prog_bytes(&t->p, id));
    mem_free(x);
}

static void put_tables(Token *t) {
    float inv_freq[256];
    for (int i = 0; i < t->s.dim / 2; i++) inv_freq[i] = powf(10000.0f, -2.0f * (float)i / (float)t->s.dim);
    exec_put(&t->exec, t->inv_freq, inv_freq, 0, t->s.dim / 2 * 4);
    put_numbers(t, t->scale, 2);
    t->kept = numbers(t, t->cache, 3);
}

/* Positions of a round: borders of tiles, of a block's tiles and of splits; idle; the last slot, and behind it. */
static void put_round(Token *t, int round) {
    const int64_t n = t->s.slots;
    const int64_t at[] = {0, n - 1, 15, 16, -1, 17, 31, 32, 33, 1, 127, 128, 129, n / 2 - 1, n / 2, n / 2 + 1, n / 4,
                          n / 4 - 1, n - 2, 63, 64, n - 16, n - 17, n, 95, 96, n / 16, n / 16 * 15, 255, 256, 257};
    int32_t positions[MOST_ROWS], rows[MOST_ROWS];
    for (int64_t i = 0; i < t->s.rows; i++) {
        int64_t p = at[(i * ROUNDS + round + i * ROUNDS / COUNT_OF(at)) % COUNT_OF(at)];
        positions[i] = (int32_t)MAX2(-1, MIN2(n, p)), rows[i] = (int32_t)(t->s.rows - 1 - i);
    }
    exec_put(&t->exec, t->positions, positions, 0, t->s.rows * 4);
    if (t->rows) exec_put(&t->exec, t->rows, rows, 0, t->s.rows * 4);
    put_numbers(t, t->x, 10 + (uint64_t)round);
    exec_put(&t->exec, t->cache, t->kept, 0, prog_bytes(&t->p, t->cache));
}

static void *got(Token *t, Tid id) {
    void *x = mem_alloc(prog_bytes(&t->p, id));
    exec_get(&t->exec, id, x, 0, prog_bytes(&t->p, id));
    return x;
}

static void try_round(Token *t, int round, Err *e) {
    double seconds[16];
    put_round(t, round);
    bool ok = exec_time(&t->exec, 0, 1, seconds, e); /* one by one */
    void *o = got(t, t->o), *cache = got(t, t->cache);
    put_round(t, round);
    exec_play(&t->exec, 0); /* round 0: step by step; 1: captured; then as a graph */
    ok = exec_sync(&t->exec, e) && ok;
    void *joined_o = got(t, t->o), *joined_cache = got(t, t->cache);
    bool same_o = !memcmp(o, joined_o, (size_t)prog_bytes(&t->p, t->o));
    bool same_cache = !memcmp(cache, joined_cache, (size_t)prog_bytes(&t->p, t->cache));
    if (!EXPECT(ok && same_o && same_cache))
        test_note("    %s, %d heads on %d of %d, %lld slots, %lld rows, round %d: o %s, cache %s %s",
                  format_name(t->s.f), t->s.heads, t->s.kv_heads, t->s.dim, (long long)t->s.slots,
                  (long long)t->s.rows, round, same_o ? "same" : "differs", same_cache ? "same" : "differs", e->text);
    if (t->s.rows > 2) EXPECT(memcmp(t->kept, cache, (size_t)prog_bytes(&t->p, t->cache))); /* something was put */
    mem_free(o), mem_free(cache), mem_free(joined_o), mem_free(joined_cache);
}

static void try_shape(Shape s) {
    Token t;
    Err e = {0};
    record(&t, s, PLAIN);
    EXPECT_OK(open_token(&t, cuda_test_device(), NONE, &e));
    EXPECT(pairs_joined(&t) == 1);
    put_tables(&t);
    for (int r = 0; r < (s.rows == 1 ? 8 * ROUNDS : ROUNDS); r++) try_round(&t, r, &e);
    mem_free(t.kept);
    exec_close(&t.exec);
    prog_free(&t.p);
}

static bool has_cores(void) { /* the joined kernel is one of tensor cores */
#ifdef HAVE_CUDA
    return cuda_backend(cuda_test_device())->major >= 8;
#else
    return false;
#endif
}

static const Shape shapes[] = {
    {FMT_BF16, 28, 4, 128, 264, 1, true},  {FMT_BF16, 28, 4, 128, 64, 1, false},
    {FMT_BF16, 28, 4, 128, 1024, 1, true}, {FMT_BF16, 28, 4, 128, 4096, 1, true},
    {FMT_BF16, 28, 4, 128, 300, 7, true},  {FMT_BF16, 28, 4, 128, 2048, 8, true},
    {FMT_BF16, 14, 2, 64, 600, 5, true},   {FMT_F16, 14, 2, 64, 4096, 3, true},
    {FMT_F16, 12, 12, 64, 130, 48, true},  {FMT_BF16, 8, 2, 80, 777, 6, true},
    {FMT_F16, 32, 32, 96, 520, 2, false},  {FMT_BF16, 20, 2, 96, 90, 28, true},
    {FMT_BF16, 24, 1, 128, 1500, 9, true}, {FMT_F16, 9, 1, 80, 4100, 1, true},
    {FMT_BF16, 4, 2, 32, 97, 30, true},    {FMT_BF16, 16, 8, 128, 20, 48, false},
    {FMT_F16, 3, 3, 32, 1, 2, true},
};

TEST(a_token_puts_its_key_while_it_attends) {
    if (!cuda_test_ready() || !has_cores()) return;
    for (int i = 0; i < COUNT_OF(shapes); i += cuda_test_apart()) try_shape(shapes[i]);
}

/* The splits meet in memory and not in a cluster, as on cards before 9.0. */
TEST(a_token_puts_its_key_without_clusters) {
    if (!cuda_test_ready() || !has_cores()) return;
#ifdef HAVE_CUDA
    CudaBackend *c = cuda_backend(cuda_test_device());
    int major = c->major;
    if (major < 9) {
        test_skip("a card before 9.0 has no clusters in the first place");
        return;
    }
    c->major = 8;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        if (shapes[i].slots > 500) try_shape(shapes[i]);
    c->major = major;
#endif
}

static void expect_apart(const char *why, Shape s, Twist twist, bool o_over_qkv) {
    Token t;
    Err e = {0};
    record(&t, s, twist);
    Tid qkv = t.p.s[1].rope_put.in.qkv;
    EXPECT_OK(open_token(&t, cuda_test_device(), o_over_qkv ? qkv : NONE, &e));
    if (!EXPECT(pairs_joined(&t) == 0)) test_note("    %s", why);
    exec_close(&t.exec);
    prog_free(&t.p);
}

TEST(a_token_attends_apart_where_it_must) {
    if (!cuda_test_ready()) return;
    const Shape s = {FMT_BF16, 8, 2, 64, 64, 4, true};
    Shape wide = s;
    wide.dim = 48;
    expect_apart("rows of the cache may be the same", s, SHARED_ROWS, false);
    expect_apart("the cache is written twice in a play", s, PUT_TWICE, false);
    expect_apart("q turned is read again", s, TURNED_READ_AGAIN, false);
    expect_apart("o stands where qkv is read", s, PLAIN, true);
    expect_apart("no kernel for such heads", wide, PLAIN, false);
}
