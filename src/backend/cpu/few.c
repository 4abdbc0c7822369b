/* few.c - a product with a handful of rows (the next token of a few texts): bound by reading the weights, so each
 * row of them is read once, decoded in the first-level cache, and multiplied with every row of x. */
#include <string.h>

#include "backend/cpu/product.h"

enum { PIECE = 512, ROWS_A_TILE = 16, STEP = PRODUCT_FEW_PAD };

/* Sixteen sums side by side: the order of additions is the same on every processor. */
typedef float Lanes __attribute__((vector_size(64)));
typedef float LanesAnywhere __attribute__((vector_size(64), aligned(4), may_alias));

/* total[r] += w * x[r], lane by lane, for a constant number of rows (so that the sums stay in registers); two sums
 * a row, since an addition takes longer than a turn of the loop. n is a multiple of STEP. */
static inline __attribute__((always_inline)) void add_dots(Lanes *total, const float *w, const float *x,
                                                           int64_t ldx, const int rows, int64_t n) {
    Lanes even[4] = {{0}}, odd[4] = {{0}};
    for (int64_t i = 0; i < n; i += 32) {
        const LanesAnywhere *p = (const LanesAnywhere *)(w + i);
        for (int r = 0; r < rows; r++) {
            const LanesAnywhere *q = (const LanesAnywhere *)(x + r * ldx + i);
            even[r] += p[0] * q[0];
            odd[r] += p[1] * q[1];
        }
    }
    for (int r = 0; r < rows; r++) total[r] += even[r] + odd[r];
}

/* The order of a row's additions does not depend on how many rows there are. */
CPU_VECTOR static void add_all_dots(Lanes *total, const float *w, const float *x, int64_t ldx, int64_t rows,
                                    int64_t n) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) add_dots(total + r, w, x + r * ldx, ldx, 4, n);
    for (; r + 2 <= rows; r += 2) add_dots(total + r, w, x + r * ldx, ldx, 2, n);
    for (; r < rows; r++) add_dots(total + r, w, x + r * ldx, ldx, 1, n);
}

/* n numbers of one row of w from `k` on, followed by zeros up to a whole step. */
static const float *row_piece(float *buffer, const Matrix *w, int64_t row, int64_t k, int64_t n) {
    int64_t first = w->first + row * w->ld + k;
    if (w->format == FMT_F32 && n % STEP == 0) return (const float *)w->data + first;
    cpu_load(buffer, w->data, w->format, first, n);
    for (int64_t i = n; i % STEP; i++) buffer[i] = 0;
    return buffer;
}

typedef struct Few {
    const Product *p;
    const float *x; /* (rows, ldx), zeros behind inner */
    int64_t ldx;
} Few;

/* Piece by piece of the inner dimension: a piece of x stays in the first-level cache over the tile's rows. */
static void few_tile(void *context, int64_t tile, int worker) {
    const Few *f = context;
    const Product *p = f->p;
    float buffer[PIECE], out[ROWS_A_TILE];
    Lanes total[ROWS_A_TILE][PRODUCT_FEW] = {{{0}}};
    int64_t begin = tile * ROWS_A_TILE, count = MIN2(ROWS_A_TILE, p->cols - begin);
    for (int64_t k = 0; k < p->inner; k += PIECE) {
        int64_t n = MIN2(PIECE, p->inner - k);
        for (int64_t j = 0; j < count; j++) {
            const float *w = row_piece(buffer, &p->b, begin + j, k, n);
            add_all_dots(total[j], w, f->x + k, f->ldx, p->rows, units_round_up(n, STEP));
        }
    }
    for (int64_t r = 0; r < p->rows; r++) {
        memset(out, 0, sizeof out);
        if (p->bias.data) cpu_load(out, p->bias.data, p->bias.format, p->bias.first + begin, count);
        for (int64_t j = 0; j < count; j++)
            for (int k = 0; k < 16; k++) out[j] += total[j][r][k];
        cpu_store(p->c.data, p->c.format, p->c.first + r * p->c.ld + begin, out, count);
    }
}

void product_few(Backend *b, const Args *a, const Product *p) {
    CHECK(p->rows <= PRODUCT_FEW && p->b_flip && !p->a_flip && p->alpha == 1.0f);
    Few f = {.p = p, .ldx = units_round_up(p->inner, STEP)};
    float *x = cpu_scratch(a, 0, product_few_bytes(p->rows, p->inner), 0);
    for (int64_t r = 0; r < p->rows; r++) {
        cpu_load(x + r * f.ldx, p->a.data, p->a.format, p->a.first + r * p->a.ld, p->inner);
        for (int64_t i = p->inner; i < f.ldx; i++) x[r * f.ldx + i] = 0;
    }
    f.x = x;
    threads_for(cpu_threads(b), product_parts(p->cols, ROWS_A_TILE), few_tile, &f);
}
