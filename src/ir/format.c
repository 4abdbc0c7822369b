/* format.c - the bytes of every storage format and how they turn into fp32 and back. */
#include "ir/format.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/mem.h"

int64_t format_scales_offset(Format f, int64_t rows, int64_t cols) {
    int64_t bits = mem_mul(mem_mul(rows, cols), format_table[f].bits);
    return bits < 0 ? -1 : mem_round_up(bits / 8, 4);
}

int64_t format_bytes(Format f, int64_t rows, int64_t cols) {
    int64_t n = mem_mul(rows, cols), blocks = mem_round_up(n, FORMAT_MOMENT_BLOCK) / FORMAT_MOMENT_BLOCK;
    int64_t bytes = mem_mul(n, format_table[f].bits), scales = 0;
    if (bytes >= 0) bytes /= 8;
    if (f == FMT_INT8) scales = mem_mul(rows, 4);
    if (f == FMT_MOM8 || f == FMT_VAR8) scales = mem_mul(blocks, 4);
    if (scales) bytes = mem_add(format_scales_offset(f, rows, cols), scales);
    CHECK_MSG(bytes >= 0, "a tensor of %lld x %lld", (long long)rows, (long long)cols);
    return bytes;
}

static void f32_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    memcpy(dst, (const float *)src + row * cols, (size_t)(count * cols) * 4);
}

static void f32_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    memcpy((float *)dst + row * cols, src, (size_t)(count * cols) * 4);
}

static void bf16_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    const uint16_t *s = (const uint16_t *)src + row * cols;
    for (int64_t i = 0; i < count * cols; i++) dst[i] = half_from_bf16(s[i]);
}

static void bf16_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    uint16_t *d = (uint16_t *)dst + row * cols;
    for (int64_t i = 0; i < count * cols; i++) d[i] = half_to_bf16(src[i]);
}

static void f16_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    const uint16_t *s = (const uint16_t *)src + row * cols;
    for (int64_t i = 0; i < count * cols; i++) dst[i] = half_from_f16(s[i]);
}

static void f16_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    uint16_t *d = (uint16_t *)dst + row * cols;
    for (int64_t i = 0; i < count * cols; i++) d[i] = half_to_f16(src[i]);
}

static void f64_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    const double *s = (const double *)src + row * cols;
    for (int64_t i = 0; i < count * cols; i++) dst[i] = (float)s[i];
}

static void f64_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    double *d = (double *)dst + row * cols;
    for (int64_t i = 0; i < count * cols; i++) d[i] = src[i];
}

static void int8_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    const int8_t *codes = (const int8_t *)src + row * cols;
    const float *scale = (const float *)((const char *)src + format_scales_offset(FMT_INT8, rows, cols)) + row;
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < cols; c++) dst[r * cols + c] = (float)codes[r * cols + c] * scale[r];
}

static void int8_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    int8_t *codes = (int8_t *)dst + row * cols;
    float *scale = (float *)((char *)dst + format_scales_offset(FMT_INT8, rows, cols)) + row;
    for (int64_t r = 0; r < count; r++) {
        const float *x = src + r * cols;
        float top = 0;
        for (int64_t c = 0; c < cols; c++) top = fmaxf(top, fabsf(x[c]));
        scale[r] = top / 127.0f;
        float inverse = top > 0 ? 127.0f / top : 0;
        for (int64_t c = 0; c < cols; c++) codes[r * cols + c] = (int8_t)lrintf(x[c] * inverse);
    }
}

/* Moments are blocked over the flat tensor; rows and cols only give its length. A call must begin and end on
 * block borders (or at the tensor's end): the optimizer walks blocks. */
static void moment_range(int64_t rows, int64_t cols, int64_t row, int64_t count, int64_t *begin, int64_t *end) {
    *begin = row * cols;
    *end = (row + count) * cols;
    CHECK(*begin % FORMAT_MOMENT_BLOCK == 0 && (*end % FORMAT_MOMENT_BLOCK == 0 || *end == rows * cols));
}

static void mom8_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    int64_t begin, end;
    moment_range(rows, cols, row, count, &begin, &end);
    const int8_t *codes = src;
    const float *scale = (const float *)((const char *)src + format_scales_offset(FMT_MOM8, rows, cols));
    for (int64_t i = begin; i < end; i++)
        dst[i - begin] = (float)codes[i] * (scale[i / FORMAT_MOMENT_BLOCK] / 127.0f);
}

static void mom8_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    int64_t begin, end;
    moment_range(rows, cols, row, count, &begin, &end);
    int8_t *codes = dst;
    float *scale = (float *)((char *)dst + format_scales_offset(FMT_MOM8, rows, cols));
    for (int64_t b = begin; b < end; b += FORMAT_MOMENT_BLOCK) {
        int64_t stop = MIN2(b + FORMAT_MOMENT_BLOCK, end);
        float top = 0;
        for (int64_t i = b; i < stop; i++) top = fmaxf(top, fabsf(src[i - begin]));
        scale[b / FORMAT_MOMENT_BLOCK] = top;
        float inverse = top > 0 ? 127.0f / top : 0;
        for (int64_t i = b; i < stop; i++) codes[i] = (int8_t)lrintf(src[i - begin] * inverse);
    }
}

static void var8_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    int64_t begin, end;
    moment_range(rows, cols, row, count, &begin, &end);
    const uint8_t *codes = src;
    const float *scale = (const float *)((const char *)src + format_scales_offset(FMT_VAR8, rows, cols));
    for (int64_t i = begin; i < end; i++) {
        float root = (float)codes[i] * (scale[i / FORMAT_MOMENT_BLOCK] / 255.0f);
        dst[i - begin] = root * root;
    }
}

static void var8_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    int64_t begin, end;
    moment_range(rows, cols, row, count, &begin, &end);
    uint8_t *codes = dst;
    float *scale = (float *)((char *)dst + format_scales_offset(FMT_VAR8, rows, cols));
    for (int64_t b = begin; b < end; b += FORMAT_MOMENT_BLOCK) {
        int64_t stop = MIN2(b + FORMAT_MOMENT_BLOCK, end);
        float top = 0;
        for (int64_t i = b; i < stop; i++) top = fmaxf(top, src[i - begin]);
        top = sqrtf(top);
        scale[b / FORMAT_MOMENT_BLOCK] = top;
        float inverse = top > 0 ? 255.0f / top : 0;
        /* rounded up: a variance that was not zero must not become zero, or its weight would leap */
        for (int64_t i = b; i < stop; i++) codes[i] = (uint8_t)fminf(255.0f, ceilf(sqrtf(src[i - begin]) * inverse));
    }
}

const FormatRow format_table[FMT_COUNT] = {
    [FMT_F32]  = {"fp32", 32, true, true, f32_decode, f32_encode},
    [FMT_BF16] = {"bf16", 16, true, true, bf16_decode, bf16_encode},
    [FMT_F16]  = {"fp16", 16, true, true, f16_decode, f16_encode},
    [FMT_F64]  = {"fp64", 64, true, true, f64_decode, f64_encode},
    [FMT_I32]  = {"i32", 32, true, false, NULL, NULL},
    [FMT_I64]  = {"i64", 64, true, false, NULL, NULL},
    [FMT_INT8] = {"int8", 8, false, true, int8_decode, int8_encode},
    [FMT_MOM8] = {"8bit", 8, false, true, mom8_decode, mom8_encode},
    [FMT_VAR8] = {"8bit", 8, false, true, var8_decode, var8_encode},
};
