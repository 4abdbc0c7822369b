/* product_device.h - how much scratch products take on a GPU: known here, because a plan must know it without a
 * backend.
 *
 * The library sums a product in parts when its output is small, and wants room for them. What is kept in another
 * format than the product works in passes through scratch panel by panel: rows of the matrix, at most
 * DEVICE_PANEL_BYTES. */
#ifndef IR_PRODUCT_DEVICE_H
#define IR_PRODUCT_DEVICE_H

#include <stdint.h>

#include "base/check.h"
#include "base/units.h"
#include "ir/attr.h"
#include "ir/format.h"

#define DEVICE_LIBRARY_BYTES (32 * MIB)
#define DEVICE_PANEL_BYTES (128 * MIB)
enum {
    DEVICE_SPLITS = 16,    /* parts of a sum the library is given room for */
    DEVICE_GRAIN = 128,    /* rows of a panel come in these */
    DEVICE_LOGITS = 64,    /* a row of logits is padded to a multiple of it, so that rows are aligned */
    DEVICE_SUM_ROWS = 128, /* rows of dy summed into one part of a bias gradient */
    DEVICE_ALIGN = 256,    /* of every piece of scratch */
    DEVICE_PLAIN_ROWS = 4,   /* up to which a kernel of our own multiplies by weights that the library can read */
    DEVICE_FEW_ROWS = 8,     /* up to which a product with quantised weights needs no scratch */
    DEVICE_SOME_BLOCKS = 384,  /* above them: the most blocks that share out its sums ... */
    DEVICE_SOME_TALL = 128,    /* ... the most rows of the weight that a block sums up at a time ... */
    DEVICE_SOME_ROWS = 64,     /* ... and with how many rows of x */
};

static inline int64_t device_round(int64_t bytes) { return units_round_up(bytes, DEVICE_ALIGN); }

/* The library's own, for a product of that shape. */
static inline int64_t device_library_bytes(int64_t rows, int64_t cols) {
    return MIN2(DEVICE_LIBRARY_BYTES, device_round(rows * cols * 4 * DEVICE_SPLITS));
}

/* Rows of a panel of a (rows,cols) matrix of numbers of `item` bytes: nearly equal parts. */
static inline int64_t device_panel_rows(int64_t rows, int64_t cols, int64_t item) {
    int64_t most = MAX2(DEVICE_PANEL_BYTES / (cols * item), 1), parts = (rows + most - 1) / most;
    return MIN2(rows, units_round_up((rows + parts - 1) / parts, DEVICE_GRAIN));
}
static inline int64_t device_panel_bytes(int64_t rows, int64_t cols, int64_t item) {
    return device_round(device_panel_rows(rows, cols, item) * cols * item);
}

/* A panel of a weight in the product's format; a panel of a gradient's fp32 sums. */
static inline int64_t device_cast_bytes(int64_t rows, int64_t cols, Format from, Format to) {
    return from == to ? 0 : device_panel_bytes(rows, cols, format_item_bytes(to));
}

/* Rows of that panel of sums. Of several, each but the last is so many tiles of 128 x 256 that the 132
 * multiprocessors of an H100 or H200 all get equally many; another card does not mind. */
static inline int64_t device_stage_rows(int64_t rows, int64_t cols) {
    int64_t across = (cols + 255) / 256, most = DEVICE_PANEL_BYTES / (cols * 4), down = 1;
    while (down * across % 132) down++;
    int64_t even = most / (128 * down) * (128 * down);
    return rows <= most || !even ? device_panel_rows(rows, cols, 4) : even;
}
static inline int64_t device_stage_bytes(int64_t rows, int64_t cols, Format gradient) {
    return gradient == FMT_F32 ? 0 : device_round(device_stage_rows(rows, cols) * cols * 4);
}

/* Of a product that reads its quantised weights as they are stored: two tiles of sums for every block. */
static inline int64_t device_some_bytes(int64_t rows) {
    if (rows <= DEVICE_FEW_ROWS) return 0;
    return (int64_t)2 * DEVICE_SOME_BLOCKS * DEVICE_SOME_TALL * units_round_up(MIN2(rows, DEVICE_SOME_ROWS), 16) * 4;
}

static inline int64_t device_logits_ld(int64_t vocabulary) { return units_round_up(vocabulary, DEVICE_LOGITS); }
static inline Format device_logits_format(const AttrHead *a, Format hidden) { return a->fp32 ? FMT_F32 : hidden; }

static inline int64_t device_sum_bytes(int64_t rows, int64_t cols) { /* the parts of a bias gradient */
    return device_round((rows + DEVICE_SUM_ROWS - 1) / DEVICE_SUM_ROWS * cols * 4);
}

#endif
