/* lora.c - the adapter beside a linear layer and its gradients (the contract stands in ir/op_linear.c) on the GPU.
 * Reference: cpu/lora.c.
 *
 * Groups are views of u, y and b. Dropout goes through scratch: a panel of tokens of x with zeros where they are
 * dropped (1/(1-p) is the product's alpha); or, for the gradient of x, a panel of each group's product, masked
 * when added. */
#include "backend/cuda/product.h"

static float kept_scale(const AttrLora *l) { return l->dropout > 0 ? 1.0f / (1.0f - l->dropout) : 1.0f; }

/* ---- x as a group sees it ---- */

typedef struct Seen {
    CudaMatrix x;
    CudaDrop drop;  /* p 0: nothing is dropped, one panel */
    int64_t tokens; /* of a panel */
    void *stage;
} Seen;

static Seen open_seen(CudaWork *w, CudaMatrix x, Operand clock) {
    float p = w->a->step->attr.lora.dropout;
    Seen s = {.x = x, .tokens = x.rows};
    if (p <= 0) return s;
    CHECK_MSG(clock.data, "%s: dropout needs the clock", op_name(w->a->step->op));
    s.drop = (CudaDrop){.p = p, .key = cuda_key(w->a, clock, 0), .channels = x.cols};
    s.tokens = device_panel_rows(x.rows, x.cols, format_item_bytes(x.format));
    s.stage = cuda_work_take(w, device_panel_bytes(x.rows, x.cols, format_item_bytes(x.format)));
    return s;
}

static CudaMatrix seen_by(const CudaWork *w, Seen *s, int group, int64_t token) {
    CudaMatrix part = cuda_part_rows(s->x, token, MIN2(s->tokens, s->x.rows - token));
    if (!s->stage) return part;
    s->drop.key.part = group;
    s->drop.first_row = token;
    cuda_launch_drop(cuda_work_stream(w), (CudaNumbers){s->stage, part.format}, part.data, part.rows, &s->drop);
    part.data = s->stage;
    return part;
}

/* ---- forward ---- */

static void compute_u(CudaWork w, CudaMatrix u, CudaMatrix x, CudaMatrix down) { /* u_g = drop(x) a_g^T */
    const AttrLora *l = &w.a->step->attr.lora;
    int64_t rank = lora_rank_on_x(l);
    Seen s = open_seen(&w, x, w.a->lora.in.clock);
    for (int g = 0; g < lora_products_on_x(l); g++)
        for (int64_t token = 0; token < x.rows; token += s.tokens) {
            CudaMatrix part = seen_by(&w, &s, g, token);
            CudaMatrix to = cuda_part_cols(cuda_part_rows(u, token, part.rows), g * rank, rank);
            cuda_work_multiply(w, (CudaProduct){.a = part,
                                                .b = cuda_part_rows(down, g * rank, rank),
                                                .b_transposed = true,
                                                .c = to,
                                                .alpha = kept_scale(l)});
        }
}

static bool covers(const AttrLora *l, int64_t cols) { /* do the groups write every column? they never overlap */
    int64_t n = 0;
    for (int g = 0; g < l->groups; g++) n += l->rows[g];
    return n == cols;
}

void cuda_lora(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix y0 = cuda_matrix(a->lora.in.y0), x = cuda_matrix(a->lora.in.x);
    CudaMatrix y = cuda_matrix(a->lora.out.y), u = cuda_matrix(a->lora.out.u);
    CudaMatrix down = cuda_cast(&w, cuda_matrix(a->lora.in.a), x.format);
    CudaMatrix up = cuda_cast(&w, cuda_matrix(a->lora.in.b), u.format);
    compute_u(w, u, x, down);
    if (y0.data && y.data != y0.data && !covers(l, y.cols)) {
        b->copy(b, q, y.data, y0.data, y.rows * y.cols * format_item_bytes(y.format));
        y0 = y;
    }
    int64_t row = 0, step, n;
    for (int g = 0; g < l->groups; row += n * l->rows[g], g += (int)n) { /* y_g = y0_g + scale u_g b_g^T */
        n = lora_alike(l, g, &step);
        cuda_work_multiply(w, (CudaProduct){.a = cuda_part_cols(u, g * l->rank, l->rank),
                                            .b = cuda_part_rows(up, row, l->rows[g]),
                                            .b_transposed = true,
                                            .c = cuda_part_cols(y, l->col[g], l->rows[g]),
                                            .add = y0.data ? cuda_part_cols(y0, l->col[g], l->rows[g]) : y0,
                                            .alpha = l->scale,
                                            .times = (int)n,
                                            .a_step = l->rank,
                                            .b_step = l->rows[g] * l->rank,
                                            .c_step = step,
                                            .add_step = step});
    }
}

/* ---- the upper half's gradients ---- */

void cuda_lora_du(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix dy = cuda_matrix(a->lora_du.in.dy), du = cuda_matrix(a->lora_du.out.du);
    CudaMatrix up = cuda_cast(&w, cuda_matrix(a->lora_du.in.b), dy.format);
    int64_t row = 0, step, n;
    for (int g = 0; g < l->groups; row += n * l->rows[g], g += (int)n) {
        n = lora_alike(l, g, &step);
        cuda_work_multiply(w, (CudaProduct){.a = cuda_part_cols(dy, l->col[g], l->rows[g]),
                                            .b = cuda_part_rows(up, row, l->rows[g]),
                                            .c = cuda_part_cols(du, g * l->rank, l->rank),
                                            .alpha = l->scale,
                                            .times = (int)n,
                                            .a_step = step,
                                            .b_step = l->rows[g] * l->rank,
                                            .c_step = l->rank});
    }
}

/* All groups' sums in one place, rounded in one pass. */
static void db_at_once(CudaWork w, const CudaGradient *db, CudaMatrix dy, CudaMatrix u) {
    const AttrLora *l = &w.a->step->attr.lora;
    CudaMatrix add, sum = cuda_gradient_begin(&w, db, &add);
    int64_t row = 0, step, n;
    for (int g = 0; g < l->groups; row += n * l->rows[g], g += (int)n) {
        n = lora_alike(l, g, &step);
        cuda_work_multiply(w, (CudaProduct){.a = cuda_part_cols(dy, l->col[g], l->rows[g]),
                                            .a_transposed = true,
                                            .b = cuda_part_cols(u, g * l->rank, l->rank),
                                            .c = cuda_part_rows(sum, row, l->rows[g]),
                                            .add = add.data ? cuda_part_rows(add, row, l->rows[g]) : add,
                                            .alpha = l->scale,
                                            .times = (int)n,
                                            .a_step = step,
                                            .b_step = l->rank,
                                            .c_step = l->rows[g] * l->rank,
                                            .add_step = l->rows[g] * l->rank});
    }
    cuda_gradient_end(w, db, sum);
}

void cuda_lora_db(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    CudaMatrix dy = cuda_matrix(a->lora_db.in.dy), u = cuda_matrix(a->lora_db.in.u);
    CudaMatrix db = cuda_matrix(a->lora_db.out.db);
    CudaGradient all = {.dw = db, .tensor = db.data, .alpha = l->scale, .beta = a->lora_db.in.beta.data,
                        .fresh = op_is_fresh(a->step), .key = cuda_key(a, a->lora_db.in.clock, 0)};
    if (all.fresh || device_stage_rows(db.rows, db.cols) == db.rows) { /* the sums are one panel */
        db_at_once(cuda_work(b, q, a), &all, dy, u);
        return;
    }
    for (int64_t g = 0, row = 0; g < l->groups; row += l->rows[g++]) {
        CudaGradient part = all;
        part.dw = cuda_part_rows(db, row, l->rows[g]);
        cuda_add_gradient(cuda_work(b, q, a), &part, cuda_part_cols(dy, l->col[g], l->rows[g]),
                          cuda_part_cols(u, g * l->rank, l->rank));
    }
}

/* ---- the lower half's gradients ---- */

void cuda_lora_da(Backend *b, Queue q, const Args *a) {
    const AttrLora *l = &a->step->attr.lora;
    int64_t rank = lora_rank_on_x(l);
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix du = cuda_matrix(a->lora_da.in.du), x = cuda_matrix(a->lora_da.in.x);
    CudaMatrix da = cuda_matrix(a->lora_da.out.da);
    Seen s = open_seen(&w, x, a->lora_da.in.clock);
    /* da_g = beta da_g + du_g^T drop(x), summed over panels of tokens */
    for (int g = 0; g < lora_products_on_x(l); g++) {
        CudaWork here = w;
        CudaGradient part = {.dw = cuda_part_rows(da, g * rank, rank),
                             .tensor = da.data,
                             .beta = a->lora_da.in.beta.data,
                             .fresh = op_is_fresh(a->step),
                             .key = cuda_key(a, a->lora_da.in.clock, 0)};
        CudaMatrix add, sum = cuda_gradient_begin(&here, &part, &add);
        for (int64_t token = 0; token < x.rows; token += s.tokens) {
            CudaMatrix seen = seen_by(&here, &s, g, token);
            CudaMatrix d = cuda_part_cols(cuda_part_rows(du, token, seen.rows), g * rank, rank);
            cuda_work_multiply(here, (CudaProduct){.a = d,
                                                   .a_transposed = true,
                                                   .b = seen,
                                                   .c = sum,
                                                   .add = token ? sum : add,
                                                   .alpha = kept_scale(l)});
        }
        cuda_gradient_end(here, &part, sum);
    }
}

/* With dropout: each group's product of a panel of tokens in fp32, then one pass that masks and adds them. */
static void dropped_dx(CudaWork w, CudaMatrix dx, CudaMatrix du, CudaMatrix down, CudaMatrix so_far) {
    const AttrLora *l = &w.a->step->attr.lora;
    Operand clock = w.a->lora_dx.in.clock;
    CHECK_MSG(clock.data, "%s: dropout needs the clock", op_name(w.a->step->op));
    int64_t tokens = device_panel_rows(dx.rows, dx.cols, 4 * l->groups), item = format_item_bytes(dx.format);
    CudaDrop drop = {.p = l->dropout, .key = cuda_key(w.a, clock, 0), .channels = dx.cols};
    float *part = cuda_work_take(&w, device_panel_bytes(dx.rows, dx.cols, 4 * l->groups));
    for (int64_t token = 0; token < dx.rows; token += tokens) {
        int64_t n = MIN2(tokens, dx.rows - token), at = token * dx.cols * item;
        for (int g = 0; g < l->groups; g++) {
            CudaMatrix to = {
                .data = part + g * n * dx.cols, .format = FMT_F32, .rows = n, .cols = dx.cols, .ld = dx.cols};
            CudaMatrix d = cuda_part_cols(cuda_part_rows(du, token, n), (int64_t)g * l->rank, l->rank);
            cuda_work_multiply(
                w, (CudaProduct){
                       .a = d, .b = cuda_part_rows(down, (int64_t)g * l->rank, l->rank), .c = to, .alpha = 1});
        }
        drop.first_row = token;
        cuda_launch_drop_add(cuda_work_stream(&w), (CudaNumbers){(char *)dx.data + at, dx.format},
                             so_far.data ? (const char *)so_far.data + at : NULL, part, n, l->groups, &drop);
    }
}

void cuda_lora_dx(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix du = cuda_matrix(a->lora_dx.in.du), dx = cuda_matrix(a->lora_dx.out.dx);
    CudaMatrix so_far = cuda_matrix(a->lora_dx.in.so_far);
    CudaMatrix down = cuda_cast(&w, cuda_matrix(a->lora_dx.in.a), du.format);
    if (a->step->attr.lora.dropout > 0)
        dropped_dx(w, dx, du, down, so_far);
    else
        cuda_work_multiply(w, (CudaProduct){.a = du, .b = down, .c = dx, .add = so_far, .alpha = 1});
}
