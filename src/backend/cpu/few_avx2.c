/* few_avx2.c - the vector of few_body.h and many_body.h in AVX2: eight numbers, and a level from two halves of the
 * table. */
#include <immintrin.h>

#include "backend/cpu/few.h"

#define FEW_TARGET __attribute__((target("avx2,fma,f16c"), CPU_O3))
#define KERNELS few_avx2
#define MANY many_avx2
enum { LANES = 8, MANY_ROWS = 4 };
typedef __m256 Vec;
typedef __m256i Codes;

#define vec_zero() _mm256_setzero_ps()
#define vec_load(at) _mm256_loadu_ps(at)
#define vec_all(x) _mm256_set1_ps(x)
#define vec_store(at, v) _mm256_storeu_ps(at, v)
#define vec_product(x, y) _mm256_mul_ps(x, y)
#define vec_sum_of(x, y) _mm256_add_ps(x, y)
#define vec_add_product(a, x, y) _mm256_fmadd_ps(x, y, a)
#define vec_bf16(at) \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(at))), 16))
#define vec_f16(at) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at)))
#define vec_int8(at) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(at))))
#define codes_load(at) _mm256_loadu_si256((const __m256i *)(at))
#define codes_gather(first, offset) \
    _mm256_i32gather_epi32((const int *)(first), _mm256_loadu_si256((const __m256i *)(offset)), 1)
#define codes_int8(codes, k) _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(codes, 24 - 8 * (k)), 24))
#define vec_most(block) _mm256_set1_ps((float)*(block))

FEW_TARGET static inline __attribute__((always_inline)) float vec_sum(__m256 v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

FEW_TARGET static inline __attribute__((always_inline)) __m256 codes_level(__m256i codes, int k) {
    /* the lookup takes its lowest three bits, the fourth chooses the half */
    __m256i code = _mm256_srli_epi32(codes, 4 * k);
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(format_nf4_levels), code);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(format_nf4_levels + 8), code);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

#include "backend/cpu/transpose_avx.h"

#include "backend/cpu/few_body.h"
#include "backend/cpu/many_body.h"
