/* few.c - a product with a handful of rows (the next token of a few texts): bound by reading the weights, so each
 * row of them is read once, bf16 decoded in registers (other formats in the first-level cache), and multiplied with
 * every row of x. */
#include "backend/cpu/few.h"

#include "ir/op.h"

enum { PIECE = FEW_PIECE, STEP = FEW_STEP };

CPU_VECTOR static void add_all_dots(Lanes *total, const void *w, bool bf16, const float *x, int64_t ldx, int64_t rows,
                                    int64_t n) {
#define ADD_BF16(r, count) few_add(total + (r), w, true, x + (r) * ldx, ldx, count, n)
#define ADD_F32(r, count) few_add(total + (r), w, false, x + (r) * ldx, ldx, count, n)
    if (bf16) FEW_EACH_ROWS(rows, ADD_BF16);
    else FEW_EACH_ROWS(rows, ADD_F32);
}

/* n numbers of one row of w from `k` on, followed by zeros up to a whole step. */
static const void *row_piece(float *buffer, bool *bf16, const Matrix *w, int64_t row, int64_t k, int64_t n) {
    int64_t first = w->first + row * w->ld + k;
    *bf16 = w->format == FMT_BF16 && n % STEP == 0;
    if (*bf16) return (const uint16_t *)w->data + first;
    if (w->format == FMT_F32 && n % STEP == 0) return (const float *)w->data + first;
    cpu_load(buffer, w->data, w->format, first, n);
    for (int64_t i = n; i % STEP; i++) buffer[i] = 0;
    return buffer;
}

CPU_VECTOR static void add_sums(float *out, const Lanes (*total)[PRODUCT_FEW], int64_t row, int64_t count) {
    for (int64_t j = 0; j < count; j++) out[j] += few_sum(&total[j][row]);
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
    float buffer[PIECE], out[FEW_ROWS_A_TILE];
    Lanes total[FEW_ROWS_A_TILE][PRODUCT_FEW];
    int64_t begin = tile * FEW_ROWS_A_TILE, count = MIN2(FEW_ROWS_A_TILE, p->cols - begin);
    for (int64_t j = 0; j < count; j++) memset(total[j], 0, (size_t)p->rows * sizeof(Lanes));
    for (int64_t k = 0; k < p->inner; k += PIECE) {
        int64_t n = MIN2(PIECE, p->inner - k);
        for (int64_t j = 0; j < count; j++) {
            bool bf16;
            const void *w = row_piece(buffer, &bf16, &p->b, begin + j, k, n);
            add_all_dots(total[j], w, bf16, f->x + k, f->ldx, p->rows, units_round_up(n, STEP));
        }
    }
    for (int64_t r = 0; r < p->rows; r++) {
        memset(out, 0, sizeof out);
        if (p->bias.data) cpu_load(out, p->bias.data, p->bias.format, p->bias.first + begin, count);
        add_sums(out, (const Lanes(*)[PRODUCT_FEW])total, r, count);
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
    threads_for(cpu_threads(b), product_parts(p->cols, FEW_ROWS_A_TILE), few_tile, &f);
}

void product_weight(Backend *b, const Args *a, Product *p) {
    p->cut = product_cut(p->rows, p->cols, p->inner);
    if (!format_table[p->b.format].plain) product_few_stored(b, a, p);
    else if (p->rows <= PRODUCT_FEW) product_few(b, a, p);
    else product_run(b, a, p, 1, 0);
}
