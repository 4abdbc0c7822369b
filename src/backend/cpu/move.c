/* move.c - fills by key and element, copies, and dequantisation. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "ir/fill.h"

enum { CHUNK = 1024, TILE_NUMBERS = 1 << 14 };
_Static_assert(CHUNK % FORMAT_MOMENT_BLOCK == 0, "a chunk is whole blocks of 8-bit moments");

/* ---- fill ---- */

static void draw(float *dst, const AttrFill *f, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = fill_number(f, first + i);
}

/* Whole numbers and fp64 are counters and statistics: they are set, not drawn. */
static bool set_words(void *dst, Format f, int64_t first, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (f == FMT_F64) ((double *)dst)[first + i] = x[i];
        else if (f == FMT_I64) ((int64_t *)dst)[first + i] = (int64_t)x[i];
        else if (f == FMT_I32) ((int32_t *)dst)[first + i] = (int32_t)x[i];
        else return false;
    }
    return true;
}

static void fill_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    const AttrFill *k = &a->step->attr.fill;
    Operand state = a->fill.out.state;
    Format f = state.t->format;
    float x[CHUNK];
    int64_t count = cpu_count(state.t), end = MIN2((tile + 1) * TILE_NUMBERS, count);
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        draw(x, k, i, n);
        if (f == FMT_MOM8 || f == FMT_VAR8)
            format_table[f].encode(state.data, x, count, 1, i, n);
        else if (!set_words(state.data, f, i, x, n))
            cpu_store(state.data, f, i, x, n);
    }
}

/* A quantised row is drawn whole, then encoded. */
static void fill_quantised_row(void *context, int64_t row, int worker) {
    const Args *a = context;
    Operand state = a->fill.out.state;
    int64_t cols = cpu_cols(state.t);
    float *x = (float *)a->workspace + worker * cols;
    draw(x, &a->step->attr.fill, row * cols, cols);
    format_table[state.t->format].encode(state.data, x, cpu_rows(state.t), cols, row, 1);
}

void cpu_fill(Backend *b, Queue q, const Args *a) {
    const Tensor *t = a->fill.out.state.t;
    if (t->format == FMT_INT8 || t->format == FMT_NF4)
        threads_for(cpu_threads(b), cpu_rows(t), fill_quantised_row, (void *)a);
    else
        threads_for(cpu_threads(b), (cpu_count(t) + TILE_NUMBERS - 1) / TILE_NUMBERS, fill_tile, (void *)a);
}

/* ---- copy and decode ---- */

void cpu_copy(Backend *b, Queue q, const Args *a) {
    Operand dst = a->copy.out.dst;
    b->copy(b, q, dst.data, a->copy.in.src.data, format_bytes(dst.t->format, cpu_rows(dst.t), cpu_cols(dst.t)));
}

typedef struct Pair {
    float even, odd;
} Pair;

typedef struct Decode {
    Operand stored, dense;
    Pair pair[256]; /* the two levels a byte of nf4 codes stands for */
} Decode;

CPU_VECTOR static void scale_int8(float *restrict dst, const int8_t *codes, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = (float)codes[i] * scale;
}

CPU_VECTOR static void scale_floats(float *x, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

/* Numbers as rows.h has them, n columns from c on, an even number unless they are the last ones. */
static void decode_nf4(const Decode *d, float *dst, const uint8_t *row, int64_t c, int64_t n) {
    int64_t cols = cpu_cols(d->stored.t);
    const uint8_t *most = row + format_nf4_blocks(cols);
    float scale = *(const float *)(row + format_row_scale(FMT_NF4, cols));
    for (int64_t i = 0; i + 2 <= n; i += 2) memcpy(dst + i, &d->pair[row[(c + i) / 2]], sizeof(Pair));
    if (n % 2) dst[n - 1] = d->pair[row[(c + n - 1) / 2]].even;
    for (int64_t i = 0; i < n; i += FORMAT_NF4_BLOCK) {
        const uint8_t *block = most + (c + i) / FORMAT_NF4_BLOCK;
        scale_floats(dst + i, (float)*block * scale, MIN2(FORMAT_NF4_BLOCK, n - i));
    }
}

static void decode_row(void *context, int64_t row, int worker) {
    const Decode *d = context;
    Format f = d->stored.t->format;
    float x[CHUNK];
    int64_t cols = cpu_cols(d->stored.t);
    const char *at = (const char *)d->stored.data + row * format_row_bytes(f, cols);
    for (int64_t c = 0; c < cols; c += CHUNK) {
        int64_t n = MIN2(CHUNK, cols - c);
        if (f == FMT_INT8) scale_int8(x, (const int8_t *)at + c, *(const float *)(at + format_row_scale(f, cols)), n);
        else if (f == FMT_NF4) decode_nf4(d, x, (const uint8_t *)at, c, n);
        else cpu_load(x, at, f, c, n);
        cpu_write(d->dense, row * cols + c, x, n);
    }
}

void cpu_decode(Backend *b, Queue q, const Args *a) {
    Decode d = {.stored = a->decode.in.stored, .dense = a->decode.out.dense};
    for (int i = 0; i < 256; i++) d.pair[i] = (Pair){format_nf4_levels[i & 15], format_nf4_levels[i >> 4]};
    threads_for(cpu_threads(b), cpu_rows(d.stored.t), decode_row, &d);
}
