/* lora.c - the adapter beside a linear layer and its gradients (the contract stands in ir/op_linear.c) as
 * products, one per group of stacked weights.
 *
 * Dropout: group g keeps number (token, channel) of x when
 *     rng_uniform(key_g, (first_token + token) * K + channel) >= p;
 * forward, lora_da and lora_dx carry the same step key and so draw the same. */
#include <string.h>

#include "backend/cpu/product.h"

static Drop group_drop(const Args *a, Operand clock, int group, int64_t channels) {
    const AttrLora *l = &a->step->attr.lora;
    if (l->dropout <= 0) return (Drop){0};
    const int64_t *word = clock.data;
    CHECK_MSG(word, "%s: dropout needs the clock", op_name(a->step->op));
    uint64_t key = rng_fold(rng_fold((uint64_t)word[CLOCK_KEY], a->step->key), (uint64_t)group);
    return (Drop){l->dropout, key, word[CLOCK_FIRST_TOKEN], channels};
}

void cpu_lora(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    Operand y0 = a->lora.in.y0, x = a->lora.in.x, y = a->lora.out.y;
    Matrix down = product_matrix(a->lora.in.a), up = product_matrix(a->lora.in.b), u = product_matrix(a->lora.out.u);
    int64_t tokens = cpu_rows(x.t), channels = cpu_cols(x.t), rank = lora_rank_on_x(l);
    Product list[LORA_GROUPS];
    for (int g = 0; g < lora_products_on_x(l); g++) { /* u_g = drop(x) a_g^T */
        list[g] = (Product){.rows = tokens, .cols = rank, .inner = channels, .alpha = 1,
            .cut = product_cut(tokens, rank, channels), .a = product_matrix(x),
            .drop_a = group_drop(a, a->lora.in.clock, g, channels), .b = product_rows_from(down, g * rank),
            .b_transposed = true, .c = product_columns(u, g * rank)};
    }
    product_run(b, a, list, lora_products_on_x(l), 0);
    if (y0.data && y.data != y0.data) /* columns outside the groups, and what the groups add to */
        b->copy(b, q, y.data, y0.data, cpu_count(y.t) * format_item_bytes(y.t->format));
    for (int64_t g = 0, row = 0; g < l->groups; row += l->rows[g++]) { /* y_g += scale u_g b_g^T */
        Matrix part = product_columns(product_matrix(y), l->col[g]);
        list[g] = (Product){.rows = tokens, .cols = l->rows[g], .inner = l->rank,
            .cut = product_cut(tokens, l->rows[g], l->rank), .a = product_columns(u, g * l->rank),
            .b = product_rows_from(up, row), .b_transposed = true, .c = part, .add = part, .beta = y0.data ? 1 : 0,
            .alpha = l->scale};
    }
    product_run(b, a, list, l->groups, 0);
}

void cpu_lora_du(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    Matrix dy = product_matrix(a->lora_du.in.dy), up = product_matrix(a->lora_du.in.b);
    Matrix du = product_matrix(a->lora_du.out.du);
    int64_t tokens = cpu_rows(a->lora_du.in.dy.t);
    Product list[LORA_GROUPS];
    for (int64_t g = 0, row = 0; g < l->groups; row += l->rows[g++])
        list[g] = (Product){.rows = tokens, .cols = l->rank, .inner = l->rows[g],
            .cut = product_cut(tokens, l->rank, l->rows[g]), .a = product_columns(dy, l->col[g]),
            .b = product_rows_from(up, row), .c = product_columns(du, g * l->rank), .alpha = l->scale};
    product_run(b, a, list, l->groups, 0);
}

void cpu_lora_db(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    Matrix dy = product_matrix(a->lora_db.in.dy), u = product_matrix(a->lora_db.in.u);
    int64_t tokens = cpu_rows(a->lora_db.in.dy.t);
    Product list[LORA_GROUPS];
    for (int64_t g = 0, row = 0; g < l->groups; row += l->rows[g++]) {
        Matrix db = product_rows_from(product_matrix(a->lora_db.out.db), row);
        list[g] = (Product){.rows = l->rows[g], .cols = l->rank, .inner = tokens,
            .cut = product_cut(l->rows[g], l->rank, tokens), .a = product_columns(dy, l->col[g]),
            .a_transposed = true, .b = product_columns(u, g * l->rank), .c = db, .add = db,
            .beta = cpu_beta(a->lora_db.in.beta), .alpha = l->scale, .random = !op_is_fresh(a->step),
            .key = cpu_draw_key(a, a->lora_db.in.clock)};
    }
    product_run(b, a, list, l->groups, 0);
}

void cpu_lora_da(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    Operand du = a->lora_da.in.du, x = a->lora_da.in.x, clock = a->lora_da.in.clock;
    int64_t tokens = cpu_rows(du.t), channels = cpu_cols(x.t), rank = lora_rank_on_x(l);
    Product list[LORA_GROUPS];
    for (int g = 0; g < lora_products_on_x(l); g++) {
        Matrix da = product_rows_from(product_matrix(a->lora_da.out.da), g * rank);
        list[g] = (Product){.rows = rank, .cols = channels, .inner = tokens,
            .cut = product_cut(rank, channels, tokens),
            .a = product_columns(product_matrix(du), g * rank), .a_transposed = true, .b = product_matrix(x),
            .drop_b = group_drop(a, clock, g, channels), .c = da, .add = da, .beta = cpu_beta(a->lora_da.in.beta),
            .alpha = 1, .random = !op_is_fresh(a->step), .key = cpu_draw_key(a, clock)};
    }
    product_run(b, a, list, lora_products_on_x(l), 0);
}

/* ---- the gradient of x ---- */

typedef struct DxJob { /* with dropout: each group's product is masked before it is added */
    const Args *args;
    Product p;                  /* shapes and matrices of one group's product */
    Drop drop[LORA_GROUPS];
    int64_t each;               /* bytes of scratch per worker */
} DxJob;

static void dx_tile(void *context, int64_t i, int worker) {
    const DxJob *job = context;
    const Product *p = &job->p;
    const AttrLora *l = &job->args->step->attr.lora;
    int64_t across = product_parts(p->cols, p->cut.cols), block = product_block(p->cut.rows, p->cut.cols);
    int64_t row = i / across * p->cut.rows, col = i % across * p->cut.cols;
    int64_t rows = MIN2(p->cut.rows, p->rows - row), cols = MIN2(p->cut.cols, p->cols - col), ld = p->cut.cols;
    float *total = cpu_scratch(job->args, 0, job->each, worker), *one = total + block, *du = one + block;
    float *w = du + product_block(p->cut.rows, l->rank + PRODUCT_GRAIN);
    for (int64_t r = 0; r < rows; r++) {
        if (p->add.data)
            cpu_load(total + r * ld, p->add.data, p->add.format, (row + r) * p->add.ld + col, cols);
        else
            memset(total + r * ld, 0, (size_t)cols * sizeof *total);
    }
    for (int g = 0; g < l->groups; g++) {
        CpuBlock m = {.rows = rows, .cols = cols, .inner = l->rank, .c = one, .ldc = ld, .alpha = 1};
        m.a = product_stage(du, &m.lda, &p->a, &(Drop){0}, (Block){row, g * l->rank, rows, l->rank});
        m.b = product_stage(w, &m.ldb, &p->b, &(Drop){0}, (Block){g * l->rank, col, l->rank, cols});
        cpu_multiply(&m);
        for (int64_t r = 0; r < rows; r++) {
            product_drop(one + r * ld, &job->drop[g], row + r, col, cols);
            cpu_accumulate(total, FMT_F32, r * ld, one + r * ld, cols, 1.0f, 0);
        }
    }
    for (int64_t r = 0; r < rows; r++)
        cpu_store(p->c.data, p->c.format, (row + r) * p->c.ld + col, total + r * ld, cols);
}

void cpu_lora_dx(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    Operand du = a->lora_dx.in.du, down = a->lora_dx.in.a;
    int64_t tokens = cpu_rows(du.t), channels = cpu_cols(down.t), ranks = (int64_t)l->groups * l->rank;
    Product p = {.rows = tokens, .cols = channels, .inner = ranks, .cut = product_cut(tokens, channels, ranks),
                 .a = product_matrix(du), .b = product_matrix(down), .c = product_matrix(a->lora_dx.out.dx),
                 .add = product_matrix(a->lora_dx.in.so_far), .beta = 1, .alpha = 1};
    if (l->dropout <= 0) {
        product_run(b, a, &p, 1, 0);
        return;
    }
    DxJob job = {.args = a, .p = p, .each = product_drop_bytes(p.cut, l->rank)};
    for (int g = 0; g < l->groups; g++) job.drop[g] = group_drop(a, a->lora_dx.in.clock, g, channels);
    int64_t tiles = product_parts(tokens, p.cut.rows) * product_parts(channels, p.cut.cols);
    threads_for(cpu_threads(b), tiles, dx_tile, &job);
}
