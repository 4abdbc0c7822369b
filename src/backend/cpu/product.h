/* product.h - matrix products on stored numbers, tile by tile: what linear, lora and head are made of.
 *
 *     C(rows,cols) = start + alpha * A(rows,inner) B(inner,cols)
 *
 * The tiles are those of ir/product.h. Operands in fp32 are read where they lie; others (also int8, whole matrices),
 * and those with dropout, are staged in the worker's scratch. C is computed where it lies when fp32, else in scratch
 * and rounded once. */
#ifndef BACKEND_CPU_PRODUCT_H
#define BACKEND_CPU_PRODUCT_H

#include "backend/cpu/cpu.h"
#include "ir/product.h"

typedef struct Matrix { /* element (r,c) is number first + r*ld + c of data; data NULL: no matrix */
    void *data;         /* borrows */
    Format format;
    int64_t first, ld;
} Matrix;

typedef struct Drop { /* of a (token, channel) matrix: keyed by the token's place in the global batch (P6) */
    float p;          /* 0: nothing is dropped, nothing is drawn */
    uint64_t key;
    int64_t first_token, channels;
} Drop;

typedef struct Product {
    int64_t rows, cols, inner;
    ProductCut cut;
    int64_t part;        /* so many of the inner dimension are summed and rounded at a time; 0: all */
    int64_t first_part;  /* number of the first part, for the key */
    Matrix a, b, c;
    bool a_transposed, b_transposed; /* stored as (inner,rows), (cols,inner) */
    float alpha;
    Matrix add;          /* start = beta * add, which may be c itself; beta 0 never reads it */
    float beta;
    Matrix bias;         /* start = one row for all; beside add: on top of it, beta 1 */
    Drop drop_a, drop_b; /* the stored matrix is (token, channel) */
    bool random;         /* c is rounded at random, by key and element */
    uint64_t key;
} Product;

/* Plays the products side by side; their outputs are disjoint. `scratch`: first free byte of the workspace. */
void product_run(Backend *b, const Args *a, const Product *list, int n, int64_t scratch);

Matrix product_matrix(Operand x); /* the whole tensor; no matrix where the step has NONE */
static inline Matrix product_columns(Matrix m, int64_t col) { return m.first += col, m; }
static inline Matrix product_rows_from(Matrix m, int64_t row) { return m.first += row * m.ld, m; }

/* The block at (row,col) as fp32: where it lies, or in `scratch` (product_block numbers). */
typedef struct Block {
    int64_t row, col, rows, cols;
} Block;
const float *product_stage(float *scratch, int64_t *ld, const Matrix *m, const Drop *drop, Block at);

/* x[i] = kept ? x[i] / (1-p) : 0 for n channels of a token from `channel` on. */
void product_drop(float *x, const Drop *drop, int64_t token, int64_t channel, int64_t n);

/* C = A B^T + bias for a weight B, by whichever of these suits its format and the number of rows. */
void product_weight(Backend *b, const Args *a, Product *p);

/* The same result (other bits) for a whole B of at most PRODUCT_FEW rows of A, as dot products: B is read once. B
 * quantised: for at most LINEAR_DIRECT_ROWS, and read as it is stored. Needs product_few_bytes of workspace. */
void product_few(Backend *b, const Args *a, const Product *p);

/* The same for a quantised B and more rows. Needs product_many_x_bytes, and product_many_tile_bytes per worker. */
void product_many(Backend *b, const Args *a, const Product *p);

#endif
