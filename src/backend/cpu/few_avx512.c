/* few_avx512.c - the vector of few_body.h and many_body.h in AVX-512: sixteen numbers, a level by its code in one
 * instruction. */
#include <immintrin.h>

#include "backend/cpu/few.h"

#define FEW_TARGET __attribute__((target("avx512f,avx512bw"), CPU_O3))
#define KERNELS few_avx512
#define MANY many_avx512
enum { LANES = 16, MANY_ROWS = 8 };
typedef __m512 Vec;
typedef __m512i Codes;

#define vec_zero() _mm512_setzero_ps()
#define vec_load(at) _mm512_loadu_ps(at)
#define vec_all(x) _mm512_set1_ps(x)
#define vec_store(at, v) _mm512_storeu_ps(at, v)
#define vec_product(x, y) _mm512_mul_ps(x, y)
#define vec_sum_of(x, y) _mm512_add_ps(x, y)
#define vec_add_product(a, x, y) _mm512_fmadd_ps(x, y, a)
#define vec_sum(v) _mm512_reduce_add_ps(v)
#define vec_bf16(at) \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(at))), 16))
#define vec_f16(at) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(at)))
#define vec_int8(at) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(at))))
#define codes_load(at) _mm512_loadu_si512(at)
#define codes_gather(first, offset) _mm512_i32gather_epi32(_mm512_loadu_si512(offset), first, 1)
#define codes_int8(codes, k) _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(codes, 24 - 8 * (k)), 24))
#define codes_level(codes, k) \
    _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * (k)), _mm512_loadu_ps(format_nf4_levels))
/* 128 columns are two blocks: eight words each */
#define vec_most(block) \
    _mm512_mask_blend_ps(0xff00, _mm512_set1_ps((float)(block)[0]), _mm512_set1_ps((float)(block)[1]))

#include "backend/cpu/transpose_avx.h"

#include "backend/cpu/few_body.h"
#include "backend/cpu/many_body.h"
