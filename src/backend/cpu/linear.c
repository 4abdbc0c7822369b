/* linear.c - linear and its three gradients (the contract stands in ir/op_linear.c) as products. */
#include "backend/cpu/product.h"

void cpu_linear(Backend *b, Queue q, const Args *a) {
    Product p = {.rows = cpu_rows(a->ti[0]), .cols = cpu_rows(a->ti[1]), .inner = cpu_cols(a->ti[0]), .alpha = 1,
                 .a = product_input(a, 0), .b = product_input(a, 1), .b_flip = true, .c = product_output(a, 0),
                 .bias = product_input(a, 2), .add = product_input(a, 3), .beta = 1};
    if (!a->in[3]) {
        product_weight(b, a, &p);
        return;
    }
    p.cut = product_cut(p.rows, p.cols, p.inner);
    product_run(b, a, &p, 1, 0);
}

void cpu_linear_swiglu(Backend *b, Queue q, const Args *a) { backend_linear_swiglu(b, q, a, cpu_linear, cpu_swiglu); }

void cpu_linear_dx(Backend *b, Queue q, const Args *a) {
    Product p = {.rows = cpu_rows(a->ti[0]), .cols = cpu_cols(a->ti[1]), .inner = cpu_cols(a->ti[0]), .alpha = 1,
                 .a = product_input(a, 0), .b = product_input(a, 1), .c = product_output(a, 0),
                 .add = product_input(a, 2), .beta = 1};
    p.cut = product_cut(p.rows, p.cols, p.inner);
    product_run(b, a, &p, 1, 0);
}

void cpu_linear_dw(Backend *b, Queue q, const Args *a) {
    Product p = {.rows = cpu_cols(a->ti[0]), .cols = cpu_cols(a->ti[1]), .inner = cpu_rows(a->ti[0]), .alpha = 1,
                 .a = product_input(a, 0), .a_flip = true, .b = product_input(a, 1), .c = product_output(a, 0),
                 .add = product_output(a, 0), .beta = cpu_beta(a, 2), .random = !op_is_fresh(a->step),
                 .key = cpu_draw_key(a, 3)};
    p.cut = product_cut(p.rows, p.cols, p.inner);
    product_run(b, a, &p, 1, 0);
}

/* ---- column sums ---- */

enum { COLS_A_TILE = 128, ROWS_A_SUM = 64 };

typedef struct Sums {
    const Args *args;
    float beta;
    uint64_t key;
} Sums;

/* Rows are summed in blocks of ROWS_A_SUM, the blocks' sums in their order. */
static void sum_columns(void *context, int64_t tile, int worker) {
    const Sums *s = context;
    const Tensor *t = s->args->ti[0];
    int64_t rows = cpu_rows(t), cols = cpu_cols(t), begin = tile * COLS_A_TILE;
    int64_t n = MIN2(COLS_A_TILE, cols - begin);
    float total[COLS_A_TILE] = {0}, block[COLS_A_TILE], row[COLS_A_TILE];
    for (int64_t first = 0; first < rows; first += ROWS_A_SUM) {
        cpu_load(block, s->args->in[0], t->format, first * cols + begin, n);
        for (int64_t r = first + 1; r < MIN2(first + ROWS_A_SUM, rows); r++) {
            const float *x = cpu_view(row, s->args->in[0], t->format, r * cols + begin, n);
            cpu_accumulate(block, FMT_F32, 0, x, n, 1.0f, 0);
        }
        cpu_accumulate(total, FMT_F32, 0, block, n, 1.0f, 0);
    }
    cpu_accumulate(s->args->out[0], s->args->to[0]->format, begin, total, n, s->beta, s->key);
}

void cpu_linear_db(Backend *b, Queue q, const Args *a) {
    Sums s = {a, cpu_beta(a, 1), cpu_draw_key(a, 2)};
    threads_for(cpu_threads(b), product_parts(cpu_cols(a->ti[0]), COLS_A_TILE), sum_columns, &s);
}
