/* product.h - how a product is cut into tiles on the CPU: known here, because the cut gives the scratch bytes, and
 * a plan must know those without a backend.
 *
 * C(rows,cols) = A(rows,inner) B(inner,cols). A tile is one call of cpu_multiply, or one per panel of the
 * inner dimension when an operand has to be staged: decoded to fp32 in the worker's scratch. The borders depend on
 * the shape alone, and no bit on the borders of rows and columns (backend/cpu/cpu.h, C4). */
#ifndef IR_PRODUCT_H
#define IR_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/units.h"
#include "ir/attr.h"

enum {
    PRODUCT_FEW = 8,     /* rows of x up to which a linear layer is dot products, not tiles */
    PRODUCT_WIDE = 512,  /* the most rows or columns of a tile: wide tiles spend less time packing */
    PRODUCT_TILES = 6,   /* tiles there should be at least, so that threads have something to share out */
    PRODUCT_SLIM = 64,   /* but no tile is split below this */
    PRODUCT_PANEL = 640, /* of the inner dimension, when staged: two blocks stay in a second-level cache */
    PRODUCT_GRAIN = 16,  /* borders are multiples of it; also the padding of a staged row */
};

static inline int64_t product_parts(int64_t n, int64_t part) { return (n + part - 1) / part; }

/* Bytes of workspace for dot products: x in fp32, its rows padded. */
enum { PRODUCT_FEW_PAD = 128 };
static inline int64_t product_few_bytes(int64_t rows, int64_t inner) {
    return rows * units_round_up(inner, PRODUCT_FEW_PAD) * 4;
}

/* Many rows of x and a quantised weight (backend/cpu/many.c). A tile is some rows and a strip of columns; of x the
 * rows are staged, of the weight a panel of the strip. */
enum {
    PRODUCT_MANY_ROWS = 256,
    PRODUCT_STRIP = 144, /* the most columns: with them a panel of the weight is a part of a second-level cache */
    PRODUCT_SLIVER = 48, /* a strip is a multiple of it: what the registers of AVX-512 take at a time */
    PRODUCT_BLOCKS = 64, /* a panel is a multiple of it: whole blocks of nf4 */
};
static inline int64_t product_many_strip(int64_t cols) {
    return MIN2(PRODUCT_STRIP, units_round_up(product_parts(cols, PRODUCT_TILES), PRODUCT_SLIVER));
}
static inline int64_t product_many_panel(int64_t inner) {
    return units_round_up(product_parts(inner, product_parts(inner, PRODUCT_PANEL)), PRODUCT_BLOCKS);
}
static inline int64_t product_many_ld(int64_t inner) { return units_round_up(inner, PRODUCT_GRAIN) + PRODUCT_GRAIN; }
static inline int64_t product_many_x_bytes(int64_t rows, int64_t inner) {
    return units_round_up(rows * product_many_ld(inner) * 4, 256);
}
static inline int64_t product_many_tile_bytes(int64_t rows, int64_t cols, int64_t inner) { /* a worker's */
    return units_round_up(
        product_many_strip(cols) * (product_many_panel(inner) + MIN2(rows, PRODUCT_MANY_ROWS)) * 4, 256);
}

typedef struct ProductCut {
    int64_t rows, cols, inner; /* of one tile; the last ones may be smaller */
    int64_t block;             /* rows of one call inside a tile: all of them, except in a head */
} ProductCut;

/* `parts` nearly equal parts of n, each a multiple of the grain. */
static inline int64_t product_part(int64_t n, int64_t parts) {
    return units_round_up((n + parts - 1) / parts, PRODUCT_GRAIN);
}

static inline int64_t product_panel(int64_t inner) {
    return inner <= 0 ? PRODUCT_GRAIN : product_part(inner, product_parts(inner, PRODUCT_PANEL));
}

static inline ProductCut product_cut(int64_t rows, int64_t cols, int64_t inner) {
    int64_t down = product_parts(rows, PRODUCT_WIDE), across = product_parts(cols, PRODUCT_WIDE);
    while (down * across < PRODUCT_TILES) {
        int64_t tall = rows / down, wide = cols / across;
        if (MAX2(tall, wide) <= PRODUCT_SLIM) break;
        if (tall >= wide)
            down++;
        else
            across++;
    }
    int64_t tall = product_part(rows, down);
    return (ProductCut){tall, product_part(cols, across), product_panel(inner), tall};
}

typedef struct ProductStage { /* what lies in scratch while a tile is computed */
    bool a, b, c;
} ProductStage;

/* fp32 numbers of one staged block of either orientation. */
static inline int64_t product_block(int64_t rows, int64_t cols) {
    return (rows + PRODUCT_GRAIN) * (cols + PRODUCT_GRAIN);
}

/* Bytes of scratch one worker needs. */
static inline int64_t product_bytes(ProductCut cut, ProductStage stage) {
    int64_t floats = 0;
    if (stage.a) floats += product_block(cut.block, cut.inner);
    if (stage.b) floats += product_block(cut.cols, cut.inner);
    if (stage.c) floats += product_block(cut.rows, cut.cols);
    return units_round_up(floats * 4, 256);
}

/* A head's rows are cut every HEAD_TILE, its columns whatever the chunk: no bit depends on the chunk. */
static inline ProductCut product_head_cut(int64_t vocabulary, int64_t width) { /* logits = x w^T */
    int64_t cols = product_part(vocabulary, product_parts(vocabulary, PRODUCT_WIDE));
    return (ProductCut){PRODUCT_WIDE, cols, product_panel(width), HEAD_TILE};
}

static inline ProductCut product_head_dx_cut(int64_t vocabulary, int64_t width) { /* dx = dlogits w */
    int64_t fewest = product_parts(width, PRODUCT_WIDE), most = product_parts(width, HEAD_TILE);
    int64_t across = MAX2(fewest, MIN2(PRODUCT_TILES, most));
    return (ProductCut){HEAD_TILE, product_part(width, across), product_panel(vocabulary), HEAD_TILE};
}

static inline ProductCut product_head_dw_cut(int64_t vocabulary, int64_t width) { /* dw = dlogits^T x */
    return product_cut(vocabulary, width, HEAD_TILE);
}

/* The same for the gradient of an adapter's input under dropout: two blocks of C, and one group of A and B. */
static inline int64_t product_drop_bytes(ProductCut cut, int64_t rank) {
    int64_t floats = 2 * product_block(cut.rows, cut.cols) + product_block(cut.rows, rank + PRODUCT_GRAIN) +
                     product_block(rank + PRODUCT_GRAIN, cut.cols);
    return units_round_up(floats * 4, 256);
}

#endif
