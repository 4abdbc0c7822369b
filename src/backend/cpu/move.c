/* move.c - steps that put numbers where they were not: fills by key and element, copies, decoded weights. */
#include <math.h>
#include <string.h>

#include "backend/cpu/rows.h"

enum { CHUNK = 1024, TILE_NUMBERS = 1 << 14 };
_Static_assert(CHUNK % FORMAT_MOMENT_BLOCK == 0, "a chunk is whole blocks of 8-bit moments");

/* ---- fill ---- */

static void draw(float *dst, const AttrFill *k, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(first + i);
        switch (k->kind) {
            case FILL_CONSTANT: dst[i] = k->scale; break;
            case FILL_NORMAL: dst[i] = k->scale * rng_normal(k->key, at); break;
            case FILL_UNIFORM: dst[i] = k->scale * (2.0f * rng_uniform(k->key, at) - 1.0f); break;
        }
    }
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
    Format f = a->to[0]->format;
    float x[CHUNK];
    int64_t count = cpu_count(a->to[0]), end = MIN2((tile + 1) * TILE_NUMBERS, count);
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        draw(x, k, i, n);
        if (f == FMT_MOM8 || f == FMT_VAR8)
            format_table[f].encode(a->out[0], x, count, 1, i, n);
        else if (!set_words(a->out[0], f, i, x, n))
            cpu_store(a->out[0], f, i, x, n);
    }
}

/* An int8 row is drawn twice: for its largest number, then for its codes. */
static void fill_int8_row(void *context, int64_t row, int worker) {
    const Args *a = context;
    const AttrFill *k = &a->step->attr.fill;
    float x[CHUNK], top = 0;
    int64_t rows = cpu_rows(a->to[0]), cols = cpu_cols(a->to[0]);
    int8_t *codes = (int8_t *)a->out[0] + row * cols;
    for (int64_t c = 0; c < cols; c += CHUNK) {
        int64_t n = MIN2(CHUNK, cols - c);
        draw(x, k, row * cols + c, n);
        for (int64_t i = 0; i < n; i++) top = fmaxf(top, fabsf(x[i]));
    }
    float inverse = top > 0 ? 127.0f / top : 0;
    ((float *)((char *)a->out[0] + format_scales_offset(FMT_INT8, rows, cols)))[row] = top / 127.0f;
    for (int64_t c = 0; c < cols; c += CHUNK) {
        int64_t n = MIN2(CHUNK, cols - c);
        draw(x, k, row * cols + c, n);
        for (int64_t i = 0; i < n; i++) codes[c + i] = (int8_t)lrintf(x[i] * inverse);
    }
}

void cpu_fill(Backend *b, Queue q, const Args *a) {
    if (a->to[0]->format == FMT_INT8)
        threads_for(cpu_threads(b), cpu_rows(a->to[0]), fill_int8_row, (void *)a);
    else
        threads_for(cpu_threads(b), (cpu_count(a->to[0]) + TILE_NUMBERS - 1) / TILE_NUMBERS, fill_tile, (void *)a);
}

/* ---- copy and decode ---- */

void cpu_copy(Backend *b, Queue q, const Args *a) {
    b->copy(b, q, a->out[0], a->in[0], format_bytes(a->to[0]->format, cpu_rows(a->to[0]), cpu_cols(a->to[0])));
}

static void decode_row(void *context, int64_t row, int worker) {
    const Args *a = context;
    float x[CHUNK];
    int64_t cols = cpu_cols(a->ti[0]);
    for (int64_t c = 0; c < cols; c += CHUNK) {
        int64_t n = MIN2(CHUNK, cols - c);
        rows_load(x, a->in[0], a->ti[0], row, c, n);
        cpu_store(a->out[0], a->to[0]->format, row * cols + c, x, n);
    }
}

void cpu_decode(Backend *b, Queue q, const Args *a) {
    threads_for(cpu_threads(b), cpu_rows(a->ti[0]), decode_row, (void *)a);
}
