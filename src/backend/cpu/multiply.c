/* multiply.c - the batch-invariant product of fp32 blocks (GEMM; C4): what is packed, in which order numbers are
 * summed.
 *
 * A sliver of B (one to three vectors of columns) and PANEL of the inner dimension are packed on the stack, where they
 * stay in the first-level cache while all rows of A pass by. */
#include <string.h>

#include "backend/cpu/few.h"

enum { PANEL = 256, MOST_WIDE = PRODUCT_SLIVER, MOST_ROWS = 8 };

typedef struct Sliver { /* of B: columns [col, col+cols), inner numbers [k, k+n) */
    int64_t col, cols, k, n;
    int vectors;
    int64_t width; /* of all vectors: cols, rounded up */
} Sliver;

CPU_VECTOR static void pack_row(float *to, const float *from, int64_t n, float alpha) {
    for (int64_t j = 0; j < n; j++) to[j] = alpha * from[j];
}

/* to(n,width) = alpha * B; columns behind the last are 0. */
static void pack(float *to, const CpuBlock *m, const Sliver *s, const ManyKernels *kernels) {
    if (s->cols < s->width) memset(to, 0, (size_t)(s->n * s->width) * sizeof *to);
    if (m->b_transposed) {
        kernels->transpose(to, s->width, m->b + s->col * m->ldb + s->k, m->ldb, s->cols, s->n, m->alpha);
        return;
    }
    for (int64_t i = 0; i < s->n; i++)
        pack_row(to + i * s->width, m->b + (s->k + i) * m->ldb + s->col, s->cols, m->alpha);
}

CPU_VECTOR static void scale_rows(const CpuBlock *m) {
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t j = 0; j < m->cols; j++) m->c[r * m->ldc + j] *= m->beta;
}

/* A sliver that ends inside a vector: through a block beside C, so that nothing behind C's columns is touched. */
static void multiply_edge(const CpuBlock *m, const Sliver *s, const ManyKernels *kernels, const float *packed,
                          const float *a, bool add) {
    float block[MOST_ROWS * MOST_WIDE] = {0};
    ManyMultiply *multiply = m->a_transposed ? kernels->multiply_transposed : kernels->multiply;
    size_t bytes = (size_t)s->cols * sizeof *block;
    for (int64_t r = 0; r < m->rows; r += kernels->rows) {
        int64_t rows = MIN2(kernels->rows, m->rows - r);
        float *c = m->c + r * m->ldc + s->col;
        for (int64_t i = 0; i < rows && add; i++) memcpy(block + i * s->width, c + i * m->ldc, bytes);
        multiply(block, s->width, a + (m->a_transposed ? r : r * m->lda), m->lda, packed, s->vectors, rows, s->n,
                 add);
        for (int64_t i = 0; i < rows; i++) memcpy(c + i * m->ldc, block + i * s->width, bytes);
    }
}

static void multiply_sliver(const CpuBlock *m, const Sliver *s, const ManyKernels *kernels) {
    float packed[PANEL * MOST_WIDE] __attribute__((aligned(64)));
    const float *a = m->a + (m->a_transposed ? s->k * m->lda : s->k);
    bool add = s->k > 0 || m->beta != 0;
    pack(packed, m, s, kernels);
    if (s->cols < s->width)
        multiply_edge(m, s, kernels, packed, a, add);
    else
        (m->a_transposed ? kernels->multiply_transposed : kernels->multiply)(m->c + s->col, m->ldc, a, m->lda, packed,
                                                                          s->vectors, m->rows, s->n, add);
}

void many_multiply(const ManyKernels *kernels, const CpuBlock *m) {
    int64_t lanes = kernels->lanes, vectors = product_parts(m->cols, lanes);
    int64_t slivers = product_parts(vectors, kernels->width / lanes);
    CHECK(kernels->width <= MOST_WIDE && kernels->rows <= MOST_ROWS);
    if (m->beta != 0 && m->beta != 1) scale_rows(m);
    for (int64_t k = 0; k < m->inner; k += PANEL)
        for (int64_t i = 0; i < slivers; i++) { /* nearly equal ones: a single vector cannot fill the registers */
            int64_t first = i * vectors / slivers, end = (i + 1) * vectors / slivers;
            Sliver s = {.col = first * lanes, .k = k, .n = MIN2(PANEL, m->inner - k), .vectors = (int)(end - first)};
            s.width = s.vectors * lanes;
            s.cols = MIN2(s.width, m->cols - s.col);
            multiply_sliver(m, &s, kernels);
        }
}

void cpu_multiply(const CpuBlock *m) { many_multiply(few_kernels()->many, m); }
