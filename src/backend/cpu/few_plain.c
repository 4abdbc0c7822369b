/* few_plain.c - the vector of few_body.h and many_body.h on any x86-64: four numbers, codes decoded one by one. */
#include <string.h>

#include "backend/cpu/few.h"
#include "base/half.h"

#define FEW_TARGET __attribute__((CPU_O3))
#define KERNELS few_plain
#define MANY many_plain
enum { LANES = 4, MANY_ROWS = 4 };
typedef float Vec __attribute__((vector_size(16)));
typedef uint32_t Codes __attribute__((vector_size(16)));
typedef float VecAnywhere __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t CodesAnywhere __attribute__((vector_size(16), aligned(1), may_alias));

static inline Vec vec_zero(void) { return (Vec){0}; }
static inline Vec vec_load(const float *at) { return *(const VecAnywhere *)at; }
static inline Vec vec_all(float x) { return (Vec){x, x, x, x}; }
static inline void vec_store(float *at, Vec v) { *(VecAnywhere *)at = v; }
static inline Vec vec_product(Vec x, Vec y) { return x * y; }
static inline Vec vec_sum_of(Vec x, Vec y) { return x + y; }
static inline Vec vec_add_product(Vec a, Vec x, Vec y) { return a + x * y; }
static inline float vec_sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
static inline Vec vec_bf16(const uint16_t *at) {
    return (Vec){half_from_bf16(at[0]), half_from_bf16(at[1]), half_from_bf16(at[2]), half_from_bf16(at[3])};
}
static inline Vec vec_f16(const uint16_t *at) {
    return (Vec){half_from_f16(at[0]), half_from_f16(at[1]), half_from_f16(at[2]), half_from_f16(at[3])};
}
static inline Vec vec_int8(const int8_t *at) { return (Vec){at[0], at[1], at[2], at[3]}; }
static inline Codes codes_gather(const uint8_t *first, const int32_t *offset) {
    Codes codes;
    for (int i = 0; i < LANES; i++) memcpy((uint32_t *)&codes + i, first + offset[i], sizeof(uint32_t));
    return codes;
}
static inline Vec codes_int8(Codes codes, int k) {
    Codes byte = codes >> (uint32_t)(8 * k);
    return (Vec){(int8_t)byte[0], (int8_t)byte[1], (int8_t)byte[2], (int8_t)byte[3]};
}
static inline Codes codes_load(const uint8_t *at) { return *(const CodesAnywhere *)at; }
static inline Vec codes_level(Codes codes, int k) {
    Codes code = codes >> (uint32_t)(4 * k) & 15;
    return (Vec){format_nf4_levels[code[0]], format_nf4_levels[code[1]], format_nf4_levels[code[2]],
                 format_nf4_levels[code[3]]};
}
static inline Vec vec_most(const uint8_t *block) {
    float one = *block;
    return (Vec){one, one, one, one};
}

static inline void transpose_block(float *to, int64_t width, const float *from, int64_t ld, float alpha) {
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) to[i * width + j] = alpha * from[j * ld + i];
}

#include "backend/cpu/few_body.h"
#include "backend/cpu/many_body.h"
