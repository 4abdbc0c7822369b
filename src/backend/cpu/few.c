/* few.c - GEMV: a product with a handful of rows (decode of a few requests). It is bound by reading the weights, so
 * each row of them is read once, decoded in registers and multiplied with every row of x. Quantised weights are read as
 * stored, their scales applied to sums:
 *     int8   y = scale * sum(code * x)
 *     nf4    y = scale * sum over blocks of 64 columns (most * sum(level[code] * x)) */
#include "backend/cpu/few.h"

#include <string.h>

#include "ir/op.h"

enum { PIECE = 2048, ROWS_A_TILE = 16, ROWS_AT_ONCE = LINEAR_DIRECT_ROWS };

typedef struct Few {
    const Product *p;
    const FewKernels *kernels;
    FewDots *dots;
    const float *x;     /* (rows, ldx), zeros behind inner; nf4: columns in the order of few.h */
    int64_t ldx;
    int64_t step;       /* columns are taken in multiples of it */
    int64_t row_bytes;  /* of the weight */
    const char *end;    /* of the weight: nothing is read behind it */
} Few;

/* ---- one row of the weight ---- */

static int64_t code_bytes(Format f, int64_t columns) {
    return f == FMT_NF4 ? (columns + 1) / 2 : columns * format_table[f].bits / 8;
}

/* n columns from k on, where they lie; or, where they are no whole steps, a copy followed by zeros. nf4: what is read
 * behind them meets zeros of x, so only the end of the weight matters. */
static const void *row_piece(const Few *f, char *copy, const char *row, int64_t k, int64_t n) {
    Format format = f->p->b.format;
    const char *at = row + code_bytes(format, k);
    int64_t bytes = code_bytes(format, n), whole = code_bytes(format, units_round_up(n, f->step));
    if (bytes == whole || (format == FMT_NF4 && at + whole <= f->end)) return at;
    memset(copy + bytes, 0, (size_t)(whole - bytes));
    return memcpy(copy, at, (size_t)bytes);
}

static float row_scale(const Few *f, const char *row) {
    Format format = f->p->b.format;
    if (format_table[format].plain) return 1;
    return *(const float *)(row + format_row_scale(format, f->p->inner));
}

/* ---- a tile: some rows of the weight ---- */

/* Piece by piece of the inner dimension: a piece of x stays in the first-level cache over the tile's rows. */
static void few_tile(void *context, int64_t tile, int worker) {
    const Few *f = context;
    const Product *p = f->p;
    char copy[PIECE * sizeof(float)];
    float sum[ROWS_A_TILE][ROWS_AT_ONCE] = {{0}}, out[ROWS_A_TILE];
    int64_t begin = tile * ROWS_A_TILE, count = MIN2(ROWS_A_TILE, p->cols - begin),
            blocks = format_nf4_blocks(p->inner);
    const char *first = (const char *)p->b.data + begin * f->row_bytes;
    for (int64_t k = 0; k < p->inner; k += PIECE) {
        int64_t n = MIN2(PIECE, p->inner - k);
        for (int64_t j = 0; j < count; j++) {
            const char *row = first + j * f->row_bytes;
            const uint8_t *most = (const uint8_t *)row + blocks + k / FORMAT_NF4_BLOCK;
            f->dots(sum[j], row_piece(f, copy, row, k, n), most, f->x + k, f->ldx, p->rows, units_round_up(n, f->step));
        }
    }
    for (int64_t r = 0; r < p->rows; r++) {
        memset(out, 0, sizeof out);
        if (p->bias.data) cpu_load(out, p->bias.data, p->bias.format, p->bias.first + begin, count);
        for (int64_t j = 0; j < count; j++) out[j] += sum[j][r] * row_scale(f, first + j * f->row_bytes);
        cpu_store(p->c.data, p->c.format, p->c.first + r * p->c.ld + begin, out, count);
    }
}

/* ---- all of them ---- */

static void every_eighth(float *x, int64_t n, int lanes) { /* few.h: the order of columns for nf4 */
    for (int64_t i = 0; i < n; i += (int64_t)8 * lanes) {
        float was[8 * 16];
        memcpy(was, x + i, (size_t)lanes * 8 * sizeof *was);
        for (int at = 0; at < 8 * lanes; at++) x[i + at % 8 * lanes + at / 8] = was[at];
    }
}

static FewDots *dots_of(const FewKernels *k, Format f) {
    return f == FMT_BF16 ? k->bf16 : f == FMT_F16 ? k->f16 : f == FMT_INT8 ? k->int8 : f == FMT_NF4 ? k->nf4 : k->f32;
}

void product_few(Backend *b, const Args *a, const Product *p) {
    Format format = p->b.format;
    CHECK(p->rows <= LINEAR_DIRECT_ROWS && p->b_transposed && !p->a_transposed && p->alpha == 1.0f);
    CHECK(!p->b.first && p->b.ld == p->inner);
    Few f = {.p = p, .kernels = few_kernels(), .row_bytes = format_row_bytes(format, p->inner)};
    f.dots = dots_of(f.kernels, format);
    f.step = format == FMT_NF4 ? MAX2(FEW_STEP, 8 * f.kernels->lanes) : FEW_STEP;
    f.ldx = units_round_up(p->inner, PRODUCT_FEW_PAD);
    f.end = (const char *)p->b.data + p->cols * f.row_bytes;
    float *x = cpu_scratch(a, 0, product_few_bytes(p->rows, p->inner), 0);
    for (int64_t r = 0; r < p->rows; r++) {
        float *row = x + r * f.ldx;
        cpu_load(row, p->a.data, p->a.format, p->a.first + r * p->a.ld, p->inner);
        memset(row + p->inner, 0, (size_t)(f.ldx - p->inner) * sizeof *row);
        if (format == FMT_NF4) every_eighth(row, f.ldx, f.kernels->lanes);
    }
    f.x = x;
    threads_for(cpu_threads(b), product_parts(p->cols, ROWS_A_TILE), few_tile, &f);
}

void product_weight(Backend *b, const Args *a, Product *p) {
    p->cut = product_cut(p->rows, p->cols, p->inner);
    bool quantised = !format_table[p->b.format].plain;
    if (p->rows <= (quantised ? LINEAR_DIRECT_ROWS : PRODUCT_FEW)) product_few(b, a, p);
    else if (quantised) product_many(b, a, p);
    else product_run(b, a, p, 1, 0);
}
