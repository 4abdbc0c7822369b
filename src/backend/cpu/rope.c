/* rope.c - rotary position embeddings (RoPE): how a token's position becomes angles, and how they rotate the heads of q
 * and k.
 *
 * The angle is the fp32 product position * inv_freq (as the models were trained); its cosine and sine are right to
 * fp32's last place at any length, because the angle is reduced in fp64. They are worked out once per token. */
#include <string.h>

#include "backend/cpu/rope.h"

enum { CHUNK = 2048, TOKENS_A_TILE = 16 };

/* cosine[i], sine[i] of position * inv_freq[i], times scale. |angle| < 2^31. */
CPU_VECTOR static void rope_cos_sin(float *restrict cosine, float *restrict sine, const float *inv_freq,
                                   float position, float scale, int64_t n) {
    const double nearest = 0x1.8p52; /* adding and taking away rounds to a whole number */
    for (int64_t i = 0; i < n; i++) {
        double x = (double)(position * inv_freq[i]);
        double quarter = (x * 0.63661977236758134308 + nearest) - nearest;
        double r = x - quarter * 1.57079632679489662; /* |r| <= pi/4, right to 1e-10 for a million places */
        double z = r * r;
        double s = r * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 +
                   z * (-1.0 / 39916800))))));
        double c = 1 + z * (-1.0 / 2 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 +
                   z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
        int32_t k = (int32_t)quarter;
        double cos_x = k & 1 ? s : c, sin_x = k & 1 ? c : s;
        cosine[i] = (float)((k + 1) & 2 ? -cos_x : cos_x) * scale;
        sine[i] = (float)(k & 2 ? -sin_x : sin_x) * scale;
    }
}

/* Each head of `dim` numbers: (x_i, x_{i+half}) rotates by angle i; an odd last number stays. */
CPU_VECTOR static void rotate_heads(float *restrict y, const float *restrict x, const float *restrict cosine,
                                  const float *restrict sine, int64_t heads, int64_t dim) {
    int64_t half = dim / 2;
    for (int64_t h = 0; h < heads; h++, x += dim, y += dim) {
        for (int64_t i = 0; i < half; i++) {
            y[i] = x[i] * cosine[i] - x[i + half] * sine[i];
            y[i + half] = x[i + half] * cosine[i] + x[i] * sine[i];
        }
        if (dim % 2) y[dim - 1] = x[dim - 1];
    }
}

void rope_angles(RopeAngles *r, const AttrHeads *h, const float *inv_freq, int32_t position) {
    int64_t dim = h->head_dim, half = dim / 2;
    CHECK_MSG(dim <= ROPE_MOST_DIM, "heads of %d numbers", h->head_dim);
    rope_cos_sin(r->cosine, r->sine, inv_freq, (float)position, h->scale, half);
    if (h->inverse)
        for (int64_t i = 0; i < half; i++) r->sine[i] = -r->sine[i];
}

void rope_rotate(void *y, int64_t y_first, const void *x, int64_t x_first, Format f, int64_t heads, int64_t dim,
               const RopeAngles *r) {
    float from[CHUNK], to[CHUNK];
    int64_t at_once = CHUNK / dim;
    for (int64_t h = 0; h < heads; h += at_once) {
        int64_t n = MIN2(at_once, heads - h) * dim;
        cpu_load(from, x, f, x_first + h * dim, n);
        rotate_heads(to, from, r->cosine, r->sine, n / dim, dim);
        cpu_store(y, f, y_first + h * dim, to, n);
    }
}

typedef struct Rope {
    const Args *a;
    AttrHeads h;
    int64_t rows, cols;
} Rope;

static void rotate_token(const Rope *t, int64_t token) {
    Operand qkv = t->a->rope.in.qkv, rotated = t->a->rope.out.rotated;
    float x[CHUNK];
    RopeAngles angles;
    int64_t dim = t->h.head_dim, heads = t->h.heads + t->h.kv_heads, first = token * t->cols;
    const int32_t *positions = t->a->rope.in.positions.data;
    rope_angles(&angles, &t->h, t->a->rope.in.inv_freq.data, positions[token]);
    rope_rotate(rotated.data, first, qkv.data, first, qkv.t->format, heads, dim, &angles);
    if (rotated.data == qkv.data) return; /* v stands where it should already */
    for (int64_t c = heads * dim; c < t->cols; c += CHUNK) {
        int64_t k = MIN2(CHUNK, t->cols - c);
        cpu_write(rotated, first + c, cpu_read(x, qkv, first + c, k), k);
    }
}

static void rope_tile(void *context, int64_t tile, int worker) {
    const Rope *t = context;
    for (int64_t i = tile * TOKENS_A_TILE; i < MIN2((tile + 1) * TOKENS_A_TILE, t->rows); i++) rotate_token(t, i);
}

void cpu_rope(Backend *b, Queue q, const Args *a) {
    const Tensor *qkv = a->rope.in.qkv.t;
    Rope t = {.a = a, .h = a->step->attr.heads, .rows = cpu_rows(qkv), .cols = cpu_cols(qkv)};
    threads_for(cpu_threads(b), (t.rows + TOKENS_A_TILE - 1) / TOKENS_A_TILE, rope_tile, &t);
}
