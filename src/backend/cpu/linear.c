/* linear.c - linear and its three gradients (the contract stands in ir/op_linear.c) as products. */
#include "backend/cpu/product.h"

void cpu_linear(Backend *b, Queue q, const Args *a) {
    Operand x = a->linear.in.x, w = a->linear.in.w, so_far = a->linear.in.so_far;
    Product p = {.rows = cpu_rows(x.t), .cols = cpu_rows(w.t), .inner = cpu_cols(x.t), .alpha = 1,
                 .a = product_matrix(x), .b = product_matrix(w), .b_transposed = true,
                 .c = product_matrix(a->linear.out.y),
                 .bias = product_matrix(a->linear.in.bias), .add = product_matrix(so_far), .beta = 1};
    if (!so_far.data) {
        product_weight(b, a, &p);
        return;
    }
    p.cut = product_cut(p.rows, p.cols, p.inner);
    product_run(b, a, &p, 1, 0);
}

void cpu_linear_swiglu(Backend *b, Queue q, const Args *a) { backend_linear_swiglu(b, q, a, cpu_linear, cpu_swiglu); }

void cpu_linear_dx(Backend *b, Queue q, const Args *a) {
    Operand dy = a->linear_dx.in.dy, w = a->linear_dx.in.w;
    Product p = {.rows = cpu_rows(dy.t), .cols = cpu_cols(w.t), .inner = cpu_cols(dy.t), .alpha = 1,
                 .a = product_matrix(dy), .b = product_matrix(w), .c = product_matrix(a->linear_dx.out.dx),
                 .add = product_matrix(a->linear_dx.in.so_far), .beta = 1};
    p.cut = product_cut(p.rows, p.cols, p.inner);
    product_run(b, a, &p, 1, 0);
}

void cpu_linear_dw(Backend *b, Queue q, const Args *a) {
    Operand dy = a->linear_dw.in.dy, x = a->linear_dw.in.x, dw = a->linear_dw.out.dw;
    Product p = {.rows = cpu_cols(dy.t), .cols = cpu_cols(x.t), .inner = cpu_rows(dy.t), .alpha = 1,
                 .a = product_matrix(dy), .a_transposed = true, .b = product_matrix(x), .c = product_matrix(dw),
                 .add = product_matrix(dw), .beta = cpu_beta(a->linear_dw.in.beta), .random = !op_is_fresh(a->step),
                 .key = cpu_draw_key(a, a->linear_dw.in.clock)};
    p.cut = product_cut(p.rows, p.cols, p.inner);
    product_run(b, a, &p, 1, 0);
}

/* ---- column sums ---- */

enum { COLS_A_TILE = 128, ROWS_A_SUM = 64 };

typedef struct Sums {
    Operand dy, db;
    float beta;
    uint64_t key;
} Sums;

/* Rows are summed in blocks of ROWS_A_SUM, the blocks' sums in their order. */
static void sum_columns(void *context, int64_t tile, int worker) {
    const Sums *s = context;
    int64_t rows = cpu_rows(s->dy.t), cols = cpu_cols(s->dy.t), begin = tile * COLS_A_TILE;
    int64_t n = MIN2(COLS_A_TILE, cols - begin);
    float total[COLS_A_TILE] = {0}, block[COLS_A_TILE], row[COLS_A_TILE];
    for (int64_t first = 0; first < rows; first += ROWS_A_SUM) {
        cpu_load(block, s->dy.data, s->dy.t->format, first * cols + begin, n);
        for (int64_t r = first + 1; r < MIN2(first + ROWS_A_SUM, rows); r++) {
            cpu_accumulate(block, FMT_F32, 0, cpu_read(row, s->dy, r * cols + begin, n), n, 1.0f, 0);
        }
        cpu_accumulate(total, FMT_F32, 0, block, n, 1.0f, 0);
    }
    cpu_accumulate(s->db.data, s->db.t->format, begin, total, n, s->beta, s->key);
}

void cpu_linear_db(Backend *b, Queue q, const Args *a) {
    Sums s = {.dy = a->linear_db.in.dy, .db = a->linear_db.out.db, .beta = cpu_beta(a->linear_db.in.beta),
              .key = cpu_draw_key(a, a->linear_db.in.clock)};
    threads_for(cpu_threads(b), product_parts(cpu_cols(s.dy.t), COLS_A_TILE), sum_columns, &s);
}
