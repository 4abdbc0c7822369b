/* rows.h - part of one row of a stored tensor as fp32, whatever its format: int8 has a scale a row. */
#ifndef BACKEND_CPU_ROWS_H
#define BACKEND_CPU_ROWS_H

#include "backend/cpu/cpu.h"

/* dst[0..n) = numbers [col, col+n) of that row. */
static inline void rows_load(float *dst, const void *src, const Tensor *t, int64_t row, int64_t col, int64_t n) {
    int64_t rows = cpu_rows(t), cols = cpu_cols(t);
    if (t->format != FMT_INT8) {
        cpu_load(dst, src, t->format, row * cols + col, n);
        return;
    }
    const int8_t *codes = (const int8_t *)src + row * cols + col;
    float scale = ((const float *)((const char *)src + format_scales_offset(FMT_INT8, rows, cols)))[row];
    for (int64_t i = 0; i < n; i++) dst[i] = (float)codes[i] * scale;
}

#endif
