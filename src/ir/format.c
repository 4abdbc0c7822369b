/* format.c - the bytes of every storage format and how they turn into fp32 and back. */
#include "ir/format.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/units.h"

/* Quantiles of a standard normal distribution, scaled to [-1, 1], with an exact zero (Dettmers et al., QLoRA). */
const float format_nf4_levels[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};

int64_t format_nf4_blocks(int64_t cols) { return (cols + 1) / 2; }

int64_t format_row_scale(Format f, int64_t cols) {
    if (f == FMT_INT8) return units_round_up(cols, 4);
    return units_round_up(format_nf4_blocks(cols) + (cols + FORMAT_NF4_BLOCK - 1) / FORMAT_NF4_BLOCK, 4);
}

int64_t format_row_bytes(Format f, int64_t cols) {
    CHECK(format_table[f].by_rows);
    if (format_table[f].plain) return cols * format_table[f].bits / 8;
    return units_round_up(format_row_scale(f, cols) + 4, FORMAT_ROW_ALIGN);
}

int64_t format_scales_offset(Format f, int64_t rows, int64_t cols) {
    int64_t bits = mem_mul(mem_mul(rows, cols), format_table[f].bits);
    return bits < 0 ? -1 : mem_round_up(bits / 8, 4);
}

int64_t format_bytes(Format f, int64_t rows, int64_t cols) {
    bool by_rows = format_table[f].by_rows;
    int64_t n = mem_mul(rows, cols), blocks = mem_round_up(n, FORMAT_MOMENT_BLOCK) / FORMAT_MOMENT_BLOCK;
    CHECK_MSG(n >= 0 && cols <= INT64_MAX / 16, "a tensor of %lld x %lld", (long long)rows, (long long)cols);
    int64_t bytes = by_rows ? mem_mul(rows, format_row_bytes(f, cols))
                            : mem_add(format_scales_offset(f, rows, cols), mem_mul(blocks, 4));
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

static float *row_scale(const void *row, Format f, int64_t cols) {
    return (float *)((char *)row + format_row_scale(f, cols));
}

static void int8_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    for (int64_t r = 0; r < count; r++) {
        const int8_t *codes = (const int8_t *)src + (row + r) * format_row_bytes(FMT_INT8, cols);
        float scale = *row_scale(codes, FMT_INT8, cols);
        for (int64_t c = 0; c < cols; c++) dst[r * cols + c] = (float)codes[c] * scale;
    }
}

static void int8_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    for (int64_t r = 0; r < count; r++) {
        int8_t *codes = (int8_t *)dst + (row + r) * format_row_bytes(FMT_INT8, cols);
        const float *x = src + r * cols;
        float top = 0;
        for (int64_t c = 0; c < cols; c++) top = fmaxf(top, fabsf(x[c]));
        *row_scale(codes, FMT_INT8, cols) = top / 127.0f;
        float inverse = 127.0f / top;
        if (!isfinite(inverse)) inverse = 0; /* a row of zeros, or so small that it counts as one */
        for (int64_t c = 0; c < cols; c++) codes[c] = (int8_t)lrintf(x[c] * inverse);
    }
}

static void nf4_decode(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    for (int64_t r = 0; r < count; r++) {
        const uint8_t *codes = (const uint8_t *)src + (row + r) * format_row_bytes(FMT_NF4, cols);
        const uint8_t *blocks = codes + format_nf4_blocks(cols);
        float scale = *row_scale(codes, FMT_NF4, cols);
        for (int64_t c = 0; c < cols; c++) {
            uint8_t most = blocks[c / FORMAT_NF4_BLOCK];
            dst[r * cols + c] = format_nf4_levels[codes[c / 2] >> 4 * (c % 2) & 15] * ((float)most * scale);
        }
    }
}

static int nf4_nearest(float x) { /* of 15 borders halfway between two levels, how many lie below */
    int low = 0, high = 15;
    while (low < high) {
        int mid = (low + high) / 2;
        if (x > 0.5f * (format_nf4_levels[mid] + format_nf4_levels[mid + 1])) low = mid + 1;
        else high = mid;
    }
    return low;
}

static void nf4_encode_row(uint8_t *codes, const float *x, int64_t cols) {
    uint8_t *blocks = codes + format_nf4_blocks(cols);
    float top = 0;
    for (int64_t c = 0; c < cols; c++) top = fmaxf(top, fabsf(x[c]));
    float scale = top / 255.0f;
    *row_scale(codes, FMT_NF4, cols) = scale;
    for (int64_t c = 0; c < cols; c += FORMAT_NF4_BLOCK) {
        int64_t end = MIN2(c + FORMAT_NF4_BLOCK, cols);
        float most = 0;
        for (int64_t i = c; i < end; i++) most = fmaxf(most, fabsf(x[i]));
        int byte = scale > 0 ? (int)lrintf(most / scale) : 0;
        blocks[c / FORMAT_NF4_BLOCK] = (uint8_t)byte;
        float inverse = byte ? 1.0f / ((float)byte * scale) : 0; /* by the stored maximum: what decode will use */
        for (int64_t i = c; i < end; i++) {
            int code = nf4_nearest(x[i] * inverse);
            codes[i / 2] = i % 2 ? (uint8_t)(codes[i / 2] | code << 4) : (uint8_t)code;
        }
    }
}

static void nf4_encode(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count) {
    (void)rows;
    for (int64_t r = 0; r < count; r++)
        nf4_encode_row((uint8_t *)dst + (row + r) * format_row_bytes(FMT_NF4, cols), src + r * cols, cols);
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
    [FMT_F32]  = {"fp32", 32, true, true, true, f32_decode, f32_encode},
    [FMT_BF16] = {"bf16", 16, true, true, true, bf16_decode, bf16_encode},
    [FMT_F16]  = {"fp16", 16, true, true, true, f16_decode, f16_encode},
    [FMT_F64]  = {"fp64", 64, true, true, true, f64_decode, f64_encode},
    [FMT_I32]  = {"i32", 32, true, true, false, NULL, NULL},
    [FMT_I64]  = {"i64", 64, true, true, false, NULL, NULL},
    [FMT_INT8] = {"int8", 8, true, false, true, int8_decode, int8_encode},
    [FMT_NF4]  = {"nf4", 4, true, false, true, nf4_decode, nf4_encode},
    [FMT_MOM8] = {"8bit", 8, false, false, true, mom8_decode, mom8_encode},
    [FMT_VAR8] = {"8bit", 8, false, false, true, var8_decode, var8_encode},
};
