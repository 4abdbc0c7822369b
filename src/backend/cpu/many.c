/* many.c - quantised GEMM: a product of many rows (a prompt) with a weight stored in int8 or nf4. A strip of the weight
 * is decoded once, straight into the packed order of the microkernel, and stays in the second-level cache while all
 * rows of x pass by.
 *
 * A decoded weight never exists, and nothing is packed a second time, as cpu_multiply would. */
#include <string.h>

#include "backend/cpu/few.h"

typedef struct Many {
    const Product *p;
    const Args *args;
    const ManyKernels *kernels;
    ManyDecode *decode;
    float *x;             /* (rows, ldx) */
    int64_t ldx;
    int64_t row_bytes;    /* of the weight */
    int64_t strip, panel; /* columns of a tile, and of x at a time */
    int64_t scratch;      /* where the workers' begins */
} Many;

static void stage_row(void *context, int64_t row, int worker) {
    const Many *m = context;
    const Matrix *a = &m->p->a;
    cpu_load(m->x + row * m->ldx, a->data, a->format, a->first + row * a->ld, m->p->inner);
}

static ManySliver sliver_at(const Many *m, int64_t col) {
    const Product *p = m->p;
    Format f = p->b.format;
    ManySliver s = {.first = (const uint8_t *)p->b.data + col * m->row_bytes};
    if (f == FMT_NF4) s.blocks = format_nf4_blocks(p->inner);
    for (int64_t i = 0; i < m->kernels->width; i++) {
        int64_t offset = MIN2(i, p->cols - col - 1) * m->row_bytes;
        s.offset[i] = (int32_t)offset;
        memcpy(&s.scale[i], s.first + offset + format_row_scale(f, p->inner), sizeof(float));
    }
    return s;
}

/* Adds the columns of x from k on to a tile of C: x comes by once, a few rows at a time, for all slivers of the
 * strip. */
static void add_panel(const Many *m, float *c, float *strip, Block at, int64_t k, bool add) {
    int64_t n = MIN2(m->panel, m->p->inner - k), width = m->kernels->width;
    for (int64_t j = 0; j < at.cols; j += width) {
        ManySliver s = sliver_at(m, at.col + j);
        m->decode(strip + j * m->panel, &s, k, n);
    }
    for (int64_t r = 0; r < at.rows; r += m->kernels->rows) {
        int64_t rows = MIN2(m->kernels->rows, at.rows - r);
        const float *x = m->x + (at.row + r) * m->ldx + k;
        for (int64_t j = 0; j < at.cols; j += width)
            m->kernels->multiply(c + r * m->strip + j, m->strip, x, m->ldx, strip + j * m->panel, 3, rows, n, add);
    }
}

static void many_tile(void *context, int64_t tile, int worker) {
    const Many *m = context;
    const Product *p = m->p;
    int64_t down = product_parts(p->rows, PRODUCT_MANY_ROWS);
    int64_t row = tile % down * PRODUCT_MANY_ROWS, col = tile / down * m->strip;
    Block at = {row, col, MIN2(PRODUCT_MANY_ROWS, p->rows - row), MIN2(m->strip, p->cols - col)};
    float *strip = cpu_scratch(m->args, m->scratch, product_many_tile_bytes(p->rows, p->cols, p->inner), worker);
    float *c = strip + m->strip * m->panel;
    for (int64_t r = 0; r < at.rows && p->bias.data; r++)
        cpu_load(c + r * m->strip, p->bias.data, p->bias.format, p->bias.first + col, at.cols);
    for (int64_t k = 0; k < p->inner; k += m->panel) add_panel(m, c, strip, at, k, k > 0 || p->bias.data);
    for (int64_t r = 0; r < at.rows; r++)
        cpu_store(p->c.data, p->c.format, p->c.first + (row + r) * p->c.ld + col, c + r * m->strip, at.cols);
}

void product_many(Backend *b, const Args *a, const Product *p) {
    CHECK(p->b_transposed && !p->a_transposed && p->alpha == 1.0f && !p->b.first && p->b.ld == p->inner);
    Many m = {.p = p,
              .args = a,
              .kernels = few_kernels()->many,
              .row_bytes = format_row_bytes(p->b.format, p->inner),
              .ldx = product_many_ld(p->inner),
              .strip = product_many_strip(p->cols),
              .panel = product_many_panel(p->inner)};
    m.decode = p->b.format == FMT_NF4 ? m.kernels->nf4 : m.kernels->int8;
    m.scratch = product_many_x_bytes(p->rows, p->inner);
    m.x = cpu_scratch(a, 0, m.scratch, 0);
    threads_for(cpu_threads(b), p->rows, stage_row, &m);
    threads_for(cpu_threads(b), product_parts(p->rows, PRODUCT_MANY_ROWS) * product_parts(p->cols, m.strip),
                many_tile, &m);
}
