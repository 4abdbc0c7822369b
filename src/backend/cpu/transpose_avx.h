/* transpose_avx.h - eight by eight numbers transposed in registers, for few_avx2.c and few_avx512.c. */
FEW_TARGET static inline __attribute__((always_inline)) void transpose_block(float *to, int64_t width,
                                                                             const float *from, int64_t ld,
                                                                             float alpha) {
    __m256 r[8], pair[8], by = _mm256_set1_ps(alpha);
    for (int i = 0; i < 8; i++) r[i] = _mm256_mul_ps(_mm256_loadu_ps(from + i * ld), by);
    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            r[i + 2 * k] = _mm256_shuffle_ps(pair[i + k], pair[i + k + 2], 0x44);
            r[i + 2 * k + 1] = _mm256_shuffle_ps(pair[i + k], pair[i + k + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
