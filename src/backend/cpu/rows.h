/* rows.h - part of one row of a stored tensor as fp32, whatever its format: quantised rows carry their scales. */
#ifndef BACKEND_CPU_ROWS_H
#define BACKEND_CPU_ROWS_H

#include "backend/cpu/cpu.h"

/* dst[0..n) = numbers [col, col+n) of that row. */
static inline void rows_load(float *dst, const void *src, const Tensor *t, int64_t row, int64_t col, int64_t n) {
    int64_t cols = cpu_cols(t);
    if (t->format != FMT_INT8 && t->format != FMT_NF4) {
        cpu_load(dst, src, t->format, row * cols + col, n);
        return;
    }
    const char *at = (const char *)src + row * format_row_bytes(t->format, cols);
    float scale = *(const float *)(at + format_row_scale(t->format, cols));
    if (t->format == FMT_INT8) {
        const int8_t *codes = (const int8_t *)at + col;
        for (int64_t i = 0; i < n; i++) dst[i] = (float)codes[i] * scale;
        return;
    }
    const uint8_t *codes = (const uint8_t *)at, *blocks = codes + format_nf4_blocks(cols);
    for (int64_t i = col; i < col + n; i++) {
        uint8_t most = blocks[i / FORMAT_NF4_BLOCK];
        dst[i - col] = format_nf4_levels[codes[i / 2] >> 4 * (i % 2) & 15] * ((float)most * scale);
    }
}

#endif
