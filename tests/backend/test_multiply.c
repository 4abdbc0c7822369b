/* test_multiply.c - products of fp32 blocks: right at every edge in every instruction set, and batch-invariant (C4). */
#include <math.h>

#include "base/rng.h"
#include "tests/backend/sets.h"
#include "tests/test.h"

enum { LARGE = 96 * 700, GUARD = 3 };

static float a[LARGE], b[LARGE], c[LARGE], other[LARGE];

static void draw(void) {
    for (int i = 0; i < LARGE; i++) {
        a[i] = rng_normal(1, (uint64_t)i);
        b[i] = rng_normal(2, (uint64_t)i);
    }
}

/* Rows of A and B stand further apart than they are long, and so do those of C. */
static CpuBlock block(int rows, int cols, int inner, int transposed) {
    bool a_transposed = transposed & 1, b_transposed = transposed & 2;
    return (CpuBlock){.rows = rows, .cols = cols, .inner = inner, .a = a, .b = b, .c = c,
                      .lda = (a_transposed ? rows : inner) + 1, .ldb = (b_transposed ? inner : cols) + 2,
                      .ldc = cols + GUARD, .a_transposed = a_transposed, .b_transposed = b_transposed, .alpha = 1};
}

static float a_at(const CpuBlock *m, int64_t r, int64_t k) {
    return m->a[m->a_transposed ? k * m->lda + r : r * m->lda + k];
}
static float b_at(const CpuBlock *m, int64_t k, int64_t j) {
    return m->b[m->b_transposed ? j * m->ldb + k : k * m->ldb + j];
}

static void check(const Set *set, CpuBlock m, float alpha, float beta) {
    m.alpha = alpha, m.beta = beta;
    for (int64_t i = 0; i < m.rows * m.ldc; i++) c[i] = beta != 0 ? 2.0f : NAN; /* beta 0 never reads C */
    for (int64_t r = 0; r < m.rows; r++)
        for (int64_t j = m.cols; j < m.ldc; j++) c[r * m.ldc + j] = 77;
    many_multiply(set->k->many, &m);
    for (int64_t r = 0; r < m.rows; r++) {
        for (int64_t j = 0; j < m.cols; j++) {
            double want = beta != 0 ? 2.0 * beta : 0, size = 1;
            for (int64_t k = 0; k < m.inner; k++) {
                double one = (double)alpha * a_at(&m, r, k) * b_at(&m, k, j);
                want += one, size += fabs(one);
            }
            if (!EXPECT(fabs(c[r * m.ldc + j] - want) <= 4e-7 * size))
                test_note("    %s, %d x %d x %d, transposed %d%d, (%d,%d): %.8g against %.8g", set->name, (int)m.rows,
                          (int)m.cols, (int)m.inner, m.a_transposed, m.b_transposed, (int)r, (int)j,
                          c[r * m.ldc + j], want);
        }
        for (int64_t j = m.cols; j < m.ldc; j++) EXPECT(c[r * m.ldc + j] == 77.0f);
    }
}

TEST(products_are_right_at_every_edge_in_every_instruction_set) {
    static const int shape[][3] = {{1, 1, 1},    {7, 5, 3},    {8, 16, 8},    {9, 17, 255}, {13, 48, 257},
                                   {3, 49, 600}, {24, 64, 64}, {33, 100, 100}, {5, 95, 513}, {60, 33, 9}};
    draw();
    for (int i = 0; i < 3; i++) {
        Set set = set_at(i);
        for (int s = 0; s < COUNT_OF(shape) && set.is; s++)
            for (int flips = 0; flips < 4; flips++) {
                CpuBlock m = block(shape[s][0], shape[s][1], shape[s][2], flips);
                check(&set, m, 1, 0);
                check(&set, m, 1, 1);
                check(&set, m, 0.5f, -0.25f);
            }
    }
}

/* Some rows and columns of the product alone. */
static CpuBlock part_of(const CpuBlock *m, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    CpuBlock part = *m;
    part.a += m->a_transposed ? row : row * m->lda;
    part.b += m->b_transposed ? col * m->ldb : col;
    part.c = other;
    part.rows = rows, part.cols = cols;
    return part;
}

TEST(a_number_of_a_product_has_the_same_bits_wherever_its_row_and_column_stand) {
    draw();
    for (int i = 0; i < 3; i++) {
        Set set = set_at(i);
        for (int t = 0; t < 200 && set.is; t++) {
            CpuBlock m = block(61, 93, t % 2 ? 640 : 100, t % 4);
            many_multiply(set.k->many, &m);
            int64_t row = (int64_t)(rng_uniform(3, (uint64_t)t) * 60),
                    col = (int64_t)(rng_uniform(4, (uint64_t)t) * 92);
            int64_t rows = 1 + (int64_t)(rng_uniform(5, (uint64_t)t) * (float)(60 - row));
            int64_t cols = 1 + (int64_t)(rng_uniform(6, (uint64_t)t) * (float)(92 - col));
            CpuBlock part = part_of(&m, row, rows, col, cols);
            many_multiply(set.k->many, &part);
            bool same = true;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < cols; j++)
                    same &= other[r * part.ldc + j] == c[(row + r) * m.ldc + col + j];
            if (!EXPECT(same))
                test_note("    %s: rows %d to %d, columns %d to %d of 61 x 93 x %d", set.name, (int)row,
                          (int)(row + rows), (int)col, (int)(col + cols), (int)m.inner);
        }
    }
}

TEST(processors_with_avx2_and_with_avx512_give_a_product_the_same_bits) {
    if (!set_at(2).is || !set_at(1).is) {
        test_skip("this processor has not both");
        return;
    }
    draw();
    for (int flips = 0; flips < 4; flips++) {
        CpuBlock m = block(61, 93, 640, flips), again = m;
        again.c = other;
        many_multiply(&many_avx2, &m);
        many_multiply(&many_avx512, &again);
        for (int64_t r = 0; r < m.rows; r++)
            EXPECT(!memcmp(c + r * m.ldc, other + r * m.ldc, (size_t)m.cols * sizeof *c));
    }
}
