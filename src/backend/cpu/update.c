/* update.c - from gradients to new weights: the gradient norm, the verdict whether the update is taken, AdamW and SGD.
 *
 * Numbers are walked in tiles of TILE_NUMBERS and chunks of CHUNK. fp32 tensors are changed in place; others are
 * decoded into a buffer, changed and stored again: bf16 at random (P6), 8-bit moments by their block's scale.
 * The bits are those of rng_u16: a word for four neighbours, rotated by 16 bits for each of weight and moments. */
#include <math.h>
#include <string.h>

#include "backend/cpu/carry.h"
#include "backend/cpu/cpu.h"
#include "backend/update.h"
#include "base/half.h"

enum { CHUNK = 1024, BLOCK = FORMAT_MOMENT_BLOCK, TILE_NUMBERS = 1 << 14, LANES = 16 };
_Static_assert(CHUNK % FORMAT_MOMENT_BLOCK == 0, "a chunk is whole blocks of 8-bit moments");

/* ---- norm and verdict ---- */

CPU_VECTOR static double chunk_squares(const float *x, int64_t n) {
    double s[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i + l < n; l++) s[l] += (double)x[i + l] * (double)x[i + l];
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) s[l] += s[l + width];
    return s[0];
}

static void squares_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    float buffer[CHUNK];
    double sum = 0;
    int64_t end = MIN2((tile + 1) * TILE_NUMBERS, cpu_count(a->sum_squares.in.g.t));
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        sum += chunk_squares(cpu_read(buffer, a->sum_squares.in.g, i, n), n);
    }
    ((double *)a->workspace)[tile] = sum;
}

void cpu_sum_squares(Backend *b, Queue q, const Args *a) {
    int64_t tiles = (cpu_count(a->sum_squares.in.g.t) + TILE_NUMBERS - 1) / TILE_NUMBERS;
    CHECK(a->workspace_bytes >= tiles * (int64_t)sizeof(double));
    threads_for(cpu_threads(b), tiles, squares_tile, (void *)a);
    double sum = 0;
    for (int64_t i = 0; i < tiles; i++) sum += ((const double *)a->workspace)[i];
    *(double *)a->sum_squares.out.part.data = sum;
}

void cpu_clip(Backend *b, Queue q, const Args *a) {
    Operand parts = a->clip.in.parts, loss = a->clip.in.loss, max_norm = a->clip.in.max_norm;
    const float *scale = a->clip.in.unscale.data, *limits = a->clip.in.limits.data;
    double sum = 0, *verdict = a->clip.out.verdict.data, most = *(const float *)max_norm.data;
    CHECK(parts.t->format == FMT_F64 && loss.t->format == FMT_F64 && max_norm.t->format == FMT_F32);
    for (int64_t i = 0; i < cpu_count(parts.t); i++) sum += ((const double *)parts.data)[i];
    double unscale = scale ? *scale : 1.0, norm = sqrt(sum) * unscale;
    verdict[VERDICT_SCALE] = (most > 0 ? fmin(1.0, most / (norm + 1e-6)) : 1.0) * unscale;
    verdict[VERDICT_NORM] = norm;
    double at = *(const double *)loss.data;
    bool within = !limits || (at <= (double)limits[LIMIT_LOSS] && norm <= (double)limits[LIMIT_NORM]);
    verdict[VERDICT_OK] = isfinite(norm) && isfinite(at) && within;
}

/* ---- numbers that are rounded at random ---- */

enum { WORDS = CHUNK / 4 }; /* of a chunk: the first element's index is a multiple of 4 */

CPU_VECTOR static void draw_words(uint64_t *restrict words, uint64_t key, int64_t first, int64_t n) {
    for (int64_t i = 0; i < (n + 3) / 4; i++) words[i] = rng_fold(key, (uint64_t)(first / 4 + i));
}

/* A word rotated by 16 bits holds, in memory, other bits for its four elements (little-endian, as all of snug). */
CPU_VECTOR static void round_bf16(uint16_t *restrict dst, const float *restrict x, const uint64_t *restrict words,
                                  int rotation, int64_t n) {
    uint64_t rotated[WORDS];
    uint16_t bits[CHUNK];
    int right = 16 * rotation, left = (64 - right) % 64;
    for (int64_t i = 0; i < (n + 3) / 4; i++) rotated[i] = words[i] >> right | words[i] << left;
    // cppcheck-suppress uninitvar ; as many as were rotated
    memcpy(bits, rotated, (size_t)((n + 3) / 4) * sizeof *rotated);
    for (int64_t i = 0; i < n; i++) dst[i] = half_to_bf16_random(x[i], bits[i]);
}

/* ---- 8-bit moments: the codes of one block, as ir/format.c writes them, in loops that become vectors ---- */

static inline float nearest_whole(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; } /* |x| < 2^22, ties to even */

CPU_VECTOR static void mom8_decode(float *restrict x, const int8_t *restrict codes, float scale, int64_t n) {
    float unit = scale / 127.0f;
    for (int64_t i = 0; i < n; i++) x[i] = (float)codes[i] * unit;
}

CPU_VECTOR static void var8_decode(float *restrict x, const uint8_t *restrict codes, float scale, int64_t n) {
    float unit = scale / 255.0f;
    for (int64_t i = 0; i < n; i++) {
        float root = (float)codes[i] * unit;
        x[i] = root * root;
    }
}

CPU_VECTOR static float block_top(const float *x, int64_t n) {
    float lane[LANES] = {0}, top = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
    for (int l = 0; i + l < n; l++) lane[l] = fmaxf(lane[l], fabsf(x[i + l]));
    for (int l = 0; l < LANES; l++) top = lane[l] > top ? lane[l] : top;
    return top;
}

CPU_VECTOR static float mom8_encode(int8_t *restrict codes, const float *restrict x, int64_t n) {
    float top = block_top(x, n), inverse = top > 0 ? 127.0f / top : 0;
    for (int64_t i = 0; i < n; i++) codes[i] = (int8_t)nearest_whole(x[i] * inverse);
    return top;
}

CPU_VECTOR static float var8_encode(uint8_t *restrict codes, const float *restrict x, int64_t n) {
    float top = sqrtf(block_top(x, n)), inverse = top > 0 ? 255.0f / top : 0;
    for (int64_t i = 0; i < n; i++) {
        float root = sqrtf(x[i]) * inverse, whole = nearest_whole(root);
        whole = whole < root ? whole + 1.0f : whole; /* up: a variance that was not zero stays so */
        codes[i] = (uint8_t)(whole > 255.0f ? 255.0f : whole);
    }
    return top;
}

/* ---- state that is changed in place ---- */

typedef struct State {
    void *data; /* NULL: there is none */
    Format f;
    float *scales; /* 8-bit moments: one a block */
    int rotation;  /* its random bits are the words rotated so often: ROTATE_* */
} State;

enum { ROTATE_WEIGHT, ROTATE_M, ROTATE_V, ROTATE_MASTER };

static State state_of(Operand x, int rotation) {
    if (!x.data) return (State){0};
    State s = {.data = x.data, .f = x.t->format, .rotation = rotation};
    if (s.f == FMT_MOM8 || s.f == FMT_VAR8)
        s.scales = (float *)((char *)s.data + format_scales_offset(s.f, cpu_rows(x.t), cpu_cols(x.t)));
    return s;
}

/* Numbers [first, first+n) as fp32: where they stand, or in the buffer. */
static float *load_state(State s, float *buffer, int64_t first, int64_t n) {
    if (s.f == FMT_F32) return (float *)s.data + first;
    if (!s.scales) {
        cpu_load(buffer, s.data, s.f, first, n);
        return buffer;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        float scale = s.scales[(first + i) / BLOCK];
        if (s.f == FMT_MOM8) mom8_decode(buffer + i, (const int8_t *)s.data + first + i, scale, MIN2(BLOCK, n - i));
        else var8_decode(buffer + i, (const uint8_t *)s.data + first + i, scale, MIN2(BLOCK, n - i));
    }
    return buffer;
}

static void store_state(State s, const float *x, const uint64_t *words, int64_t first, int64_t n) {
    if (s.f == FMT_F32) return;
    if (s.f == FMT_BF16) round_bf16((uint16_t *)s.data + first, x, words, s.rotation, n);
    else if (!s.scales) cpu_store(s.data, s.f, first, x, n);
    for (int64_t i = 0; i < n && s.scales; i += BLOCK) {
        float *scale = &s.scales[(first + i) / BLOCK];
        if (s.f == FMT_MOM8) *scale = mom8_encode((int8_t *)s.data + first + i, x + i, MIN2(BLOCK, n - i));
        else *scale = var8_encode((uint8_t *)s.data + first + i, x + i, MIN2(BLOCK, n - i));
    }
}

typedef struct Update {
    Operand g;
    int64_t count;
    State w, m, v, master;
    bool draws;                     /* something is rounded at random */
    uint64_t key;
    float grad_scale, rate;         /* rate: lr * mult */
    float decay, beta1, beta2, eps; /* adamw: decay is 1 - rate*wd; sgd: wd itself */
    float correct1, correct2;
    CpuCarry carry; /* sgd_carry: v is the correction, ... */
    Operand last;   /* ... and the gradient of the update before */
} Update;

/* The weight's new fp32 numbers are in x (the master's place when there is one). */
static void store_weight(const Update *u, const float *x, const uint64_t *words, int64_t first, int64_t n) {
    if (u->master.data)
        cpu_store(u->w.data, u->w.f, first, x, n);
    else
        store_state(u->w, x, words, first, n);
}

static Update update_of(const Args *a, const UpdateOperands *o) {
    const AttrUpdate *k = &a->step->attr.update;
    const float *dial = o->dials.data;
    Update u = {.g = o->g, .count = cpu_count(o->weight.t), .w = state_of(o->weight, ROTATE_WEIGHT),
                .m = state_of(o->m, ROTATE_M), .v = state_of(o->v, ROTATE_V),
                .master = state_of(o->master, ROTATE_MASTER),
                .key = cpu_draw_key(a, o->clock),
                .beta1 = k->beta1, .beta2 = k->beta2, .eps = k->eps, .decay = k->weight_decay,
                .rate = dial[DIAL_LR] * k->lr_mult,
                .grad_scale = (float)((const double *)o->verdict.data)[VERDICT_SCALE],
                .correct1 = dial[DIAL_CORRECT1], .correct2 = dial[DIAL_CORRECT2]};
    u.draws = (u.w.f == FMT_BF16 && !u.master.data) || u.m.f == FMT_BF16 || u.v.f == FMT_BF16;
    CHECK_MSG(o->weight_in.data == o->weight.data, "a weight is updated where it stands%s", "");
    return u;
}

static bool may_write(Operand verdict) { return ((const double *)verdict.data)[VERDICT_OK] != 0; }

/* ---- AdamW ---- */

CPU_VECTOR static void adamw_chunk(float *restrict w, float *restrict m, float *restrict v,
                                   const float *restrict g, int64_t n, const Update *u) {
    const float scale = u->grad_scale, b1 = u->beta1, b2 = u->beta2, r1 = 1.0f - b1, r2 = 1.0f - b2, eps = u->eps;
    const float decay = u->decay, rate = u->rate * u->correct1, c2 = u->correct2;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * scale;
        float mi = m[i] * b1 + gi * r1;
        float vi = v[i] * b2 + gi * gi * r2;
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * decay - rate * mi / (sqrtf(vi * c2) + eps);
    }
}

static void adamw_tile(void *context, int64_t tile, int worker) {
    const Update *u = context;
    float bg[CHUNK], bw[CHUNK], bm[CHUNK], bv[CHUNK];
    uint64_t words[WORDS] = {0}; /* drawn only where something is rounded at random */
    int64_t end = MIN2((tile + 1) * TILE_NUMBERS, u->count);
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        float *w = load_state(u->master.data ? u->master : u->w, bw, i, n), *m = load_state(u->m, bm, i, n);
        float *v = load_state(u->v, bv, i, n);
        adamw_chunk(w, m, v, cpu_read(bg, u->g, i, n), n, u);
        if (u->draws) draw_words(words, u->key, i, n);
        store_state(u->m, m, words, i, n);
        store_state(u->v, v, words, i, n);
        store_weight(u, w, words, i, n);
    }
}

void cpu_adamw(Backend *b, Queue q, const Args *a) {
    UpdateOperands o = adamw_operands(a);
    if (!may_write(o.verdict)) return;
    Update u = update_of(a, &o);
    u.decay = 1.0f - u.rate * u.decay;
    threads_for(cpu_threads(b), (u.count + TILE_NUMBERS - 1) / TILE_NUMBERS, adamw_tile, &u);
}

/* ---- SGD: the decay belongs to the gradient, then momentum; a correction takes its step beside ---- */

CPU_VECTOR static void sgd_chunk(float *restrict w, float *restrict m, const float *restrict g, int64_t n,
                                 const Update *u) {
    const float scale = u->grad_scale, decay = u->decay, momentum = u->beta1, rate = u->rate;
    for (int64_t i = 0; i < n; i++) {
        float mi = m[i] * momentum + (g[i] * scale + decay * w[i]);
        m[i] = mi;
        w[i] -= rate * mi;
    }
}

/* w: theta as it was computed, in the buffer where its format is not fp32. old: theta before, overwritten. */
static void carry_chunk(const Update *u, double *sums, const float *g, float *w, float *old, int64_t first, int64_t n) {
    State theta = u->master.data ? u->master : u->w;
    float *v = (float *)u->v.data + first, buffer[CHUNK];
    if (theta.f != FMT_F32) cpu_load(w, theta.data, theta.f, first, n);
    for (int64_t k = 0; k < n; k++) old[k] = w[k] - old[k];
    cpu_carry_step(v, cpu_read(buffer, u->last, first, n), old, n, &u->carry);
    cpu_carry_add(sums, v, u->carry.remove != 0 ? old : g, n);
    cpu_write(u->last, first, g, n);
}

static void sgd_tile(void *context, int64_t tile, int worker) {
    const Update *u = context;
    float bg[CHUNK], bw[CHUNK], bm[CHUNK], old[CHUNK];
    double sums[CARRY_SUMS] = {0};
    uint64_t words[WORDS] = {0}; /* drawn only where something is rounded at random */
    int64_t end = MIN2((tile + 1) * TILE_NUMBERS, u->count);
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        float *w = load_state(u->master.data ? u->master : u->w, bw, i, n), *m = bm;
        if (u->m.data) m = load_state(u->m, bm, i, n);
        else
            for (int64_t k = 0; k < n; k++) bm[k] = 0;
        const float *g = cpu_read(bg, u->g, i, n);
        if (u->carry.tiles) memcpy(old, w, (size_t)n * sizeof *w);
        sgd_chunk(w, m, g, n, u);
        if (u->draws) draw_words(words, u->key, i, n);
        if (u->m.data) store_state(u->m, m, words, i, n);
        store_weight(u, w, words, i, n);
        if (u->carry.tiles) carry_chunk(u, sums, g, w, old, i, n);
    }
    if (u->carry.tiles) memcpy(u->carry.tiles + tile * CARRY_SUMS, sums, sizeof sums);
}

void cpu_sgd(Backend *b, Queue q, const Args *a) {
    UpdateOperands o = sgd_operands(a);
    if (!may_write(o.verdict)) return;
    Update u = update_of(a, &o);
    threads_for(cpu_threads(b), (u.count + TILE_NUMBERS - 1) / TILE_NUMBERS, sgd_tile, &u);
}

void cpu_sgd_carry(Backend *b, Queue q, const Args *a) {
    UpdateOperands o = sgd_carry_operands(a);
    double *sums = a->sgd_carry.out.sums.data;
    int64_t tiles = (cpu_count(o.weight.t) + TILE_NUMBERS - 1) / TILE_NUMBERS;
    CHECK(o.v.t->format == FMT_F32 && a->workspace_bytes >= tiles * CARRY_SUMS * (int64_t)sizeof(double));
    cpu_carry_join(sums, NULL, 0);
    if (!may_write(o.verdict)) return;
    Update u = update_of(a, &o);
    u.beta1 = 0; /* no momentum */
    u.carry = cpu_carry_of(a, a->sgd_carry.in.carry);
    u.last = a->sgd_carry.out.last;
    threads_for(cpu_threads(b), tiles, sgd_tile, &u);
    cpu_carry_join(sums, u.carry.tiles, tiles);
}
