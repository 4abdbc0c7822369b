/* product.c - how a GEMM over a weight is split into panels, and where its scratch comes from. */
#include "backend/cuda/product.h"

/* ---- scratch ---- */

CudaWork cuda_work(Backend *b, Queue q, const Args *a) {
    return (CudaWork){.b = b, .q = q, .a = a, .at = a->workspace, .left = a->workspace_bytes};
}

void *cuda_work_take(CudaWork *w, int64_t bytes) {
    if (bytes == 0) return NULL;
    bytes = device_round(bytes);
    CHECK_MSG(bytes <= w->left, "%s: its row gives %lld bytes of workspace; %lld more are needed than are left",
              op_name(w->a->step->op), (long long)w->a->workspace_bytes, (long long)(bytes - w->left));
    void *piece = w->at;
    w->at += bytes;
    w->left -= bytes;
    return piece;
}

void cuda_work_multiply(CudaWork w, CudaProduct p) { cuda_multiply(w.b, w.q, &p, w.at, w.left); }

/* ---- matrices ---- */

CudaMatrix cuda_matrix(Operand x) {
    if (!x.data) return (CudaMatrix){0};
    int64_t cols = cuda_cols(x.t);
    return (CudaMatrix){.data = x.data, .format = x.t->format, .rows = cuda_rows(x.t), .cols = cols, .ld = cols};
}

CudaMatrix cuda_part_rows(CudaMatrix m, int64_t row, int64_t rows) {
    m.data = (char *)m.data + row * m.ld * format_item_bytes(m.format);
    m.rows = rows;
    return m;
}

CudaMatrix cuda_part_cols(CudaMatrix m, int64_t col, int64_t cols) {
    m.data = (char *)m.data + col * format_item_bytes(m.format);
    m.cols = cols;
    return m;
}

/* A dense matrix of the same shape as m at `data`, holding m's numbers in that format. */
static CudaMatrix cast_to(const CudaWork *w, CudaMatrix m, Format format, void *data) {
    CudaMatrix to = {.data = data, .format = format, .rows = m.rows, .cols = m.cols, .ld = m.cols};
    CHECK(m.ld == m.cols);
    cuda_launch_cast(cuda_work_stream(w), cuda_numbers(to), cuda_numbers(m), m.rows * m.cols);
    return to;
}

CudaMatrix cuda_cast(CudaWork *w, CudaMatrix m, Format format) {
    if (m.format == format) return m;
    return cast_to(w, m, format, cuda_work_take(w, m.rows * m.cols * format_item_bytes(format)));
}

/* ---- over a weight ---- */

typedef struct Panels { /* rows of a weight, in the product's format */
    CudaMatrix weight;
    Format format;
    int64_t rows; /* of a panel */
    void *stage;  /* NULL: the weight is in that format already, one panel */
} Panels;

static Panels panels_of(CudaWork *w, CudaMatrix weight, Format format) {
    Panels p = {weight, format, weight.rows, NULL};
    if (weight.format == format) return p;
    p.rows = device_panel_rows(weight.rows, weight.cols, format_item_bytes(format));
    p.stage = cuda_work_take(w, device_cast_bytes(weight.rows, weight.cols, weight.format, format));
    return p;
}

/* Rows of a quantised weight at `data`, as dense numbers. */
static CudaMatrix decode_to(const CudaWork *w, CudaMatrix m, Format format, int64_t row, int64_t rows, void *data) {
    CudaMatrix to = {.data = data, .format = format, .rows = rows, .cols = m.cols, .ld = m.cols};
    CudaRows r = {.table_rows = rows, .rows = rows, .cols = m.cols, .row_bytes = format_row_bytes(m.format, m.cols)};
    r.table = (CudaNumbers){(char *)m.data + row * r.row_bytes, m.format};
    r.scale_at = (int)format_row_scale(m.format, m.cols);
    r.blocks_at = (int)format_nf4_blocks(m.cols);
    cuda_launch_rows(cuda_work_stream(w), cuda_numbers(to), &r);
    return to;
}

static CudaMatrix panel_at(const CudaWork *w, const Panels *p, int64_t row) {
    int64_t rows = MIN2(p->rows, p->weight.rows - row);
    if (!format_table[p->weight.format].plain) return decode_to(w, p->weight, p->format, row, rows, p->stage);
    CudaMatrix part = cuda_part_rows(p->weight, row, rows);
    return p->stage ? cast_to(w, part, p->format, p->stage) : part;
}

/* That no step of a play writes: a weight at home on the device, or one that a load phase has put there. */
static bool is_state(const Tensor *t) {
    return t->home.pool == POOL_DEVICE && (t->role == ROLE_WEIGHT || t->home.load);
}

CudaFew cuda_few(CudaMatrix y, CudaMatrix x, Operand weight, Operand bias) {
    CHECK(x.ld == x.cols && y.ld == y.cols && x.cols <= INT32_MAX);
    Format f = weight.t->format;
    CudaFew few = {.y = cuda_numbers(y), .w = {weight.data, f}, .bias = cuda_numbers(cuda_matrix(bias)), .x = x.data,
                   .x_format = x.format, .rows = (int)x.rows, .inner = (int)x.cols, .cols = cuda_rows(weight.t),
                   .row_bytes = format_row_bytes(f, x.cols),
                   .early = is_state(weight.t) && (!bias.data || is_state(bias.t))};
    if (!format_table[f].plain) few.scale_at = (int)format_row_scale(f, x.cols);
    if (f == FMT_NF4) few.blocks_at = (int)format_nf4_blocks(x.cols);
    return few;
}

bool cuda_times_weight_few(CudaWork w, CudaMatrix y, CudaMatrix x, Operand weight, Operand bias) {
    bool stored = weight.t->format == FMT_INT8 || weight.t->format == FMT_NF4;
    if (x.rows > (stored ? LINEAR_DIRECT_MOST : CUDA_FEW_PLAIN_ROWS)) return false;
    CudaFew few = cuda_few(y, x, weight, bias);
    _Static_assert((int)CUDA_SOME_BLOCKS == DEVICE_SOME_BLOCKS && (int)CUDA_SOME_TALL == DEVICE_SOME_TALL &&
                       (int)CUDA_SOME_ROWS == DEVICE_SOME_ROWS && (int)CUDA_FEW_PLAIN_ROWS == DEVICE_PLAIN_ROWS,
                   "what the plan gives");
    if (stored && x.rows > DEVICE_FEW_ROWS) {
        void *parts = cuda_work_take(&w, device_some_bytes(x.rows));
        if (cuda_launch_some(cuda_work_stream(&w), &few, parts)) return true;
    }
    return cuda_launch_few(cuda_work_stream(&w), &few);
}

void cuda_times_weight(CudaWork w, CudaMatrix y, CudaMatrix x, CudaMatrix weight, const void *bias, CudaMatrix so_far) {
    Panels p = panels_of(&w, weight, x.format);
    int64_t item = format_item_bytes(y.format);
    for (int64_t row = 0; row < weight.rows; row += p.rows) {
        CudaMatrix part = panel_at(&w, &p, row);
        cuda_work_multiply(w, (CudaProduct){.a = x,
                                            .b = part,
                                            .b_transposed = true,
                                            .c = cuda_part_cols(y, row, part.rows),
                                            .alpha = 1,
                                            .add = so_far.data ? cuda_part_cols(so_far, row, part.rows) : so_far,
                                            .bias = bias ? (const char *)bias + row * item : NULL});
    }
}

/* More than one panel: dx is rounded once a panel. */
void cuda_back_through(CudaWork w, CudaMatrix dx, CudaMatrix dy, CudaMatrix weight, CudaMatrix so_far) {
    Panels p = panels_of(&w, weight, dy.format);
    for (int64_t row = 0; row < weight.rows; row += p.rows) {
        CudaMatrix part = panel_at(&w, &p, row);
        cuda_work_multiply(w, (CudaProduct){.a = cuda_part_cols(dy, row, part.rows),
                                            .b = part,
                                            .c = dx,
                                            .alpha = 1,
                                            .add = row ? dx : so_far});
    }
}

/* ---- gradients ---- */

static int64_t place_in_tensor(const CudaGradient *g) { /* of dw's first number */
    return ((char *)g->dw.data - (char *)g->tensor) / format_item_bytes(g->dw.format);
}

/* fp32: the dial is applied to what is there first (0 must not read it), then products add to it in place. */
CudaMatrix cuda_gradient_begin(CudaWork *w, const CudaGradient *g, CudaMatrix *add) {
    CudaMatrix dw = g->dw;
    *add = (CudaMatrix){0};
    if (g->fresh) return dw;
    if (dw.format == FMT_F32) {
        if (g->beta) cuda_launch_scale(cuda_work_stream(w), cuda_numbers(dw), dw.rows * dw.cols, g->beta);
        return *add = dw;
    }
    void *stage = cuda_work_take(w, dw.rows * dw.cols * 4);
    return (CudaMatrix){.data = stage, .format = FMT_F32, .rows = dw.rows, .cols = dw.cols, .ld = dw.cols};
}

void cuda_gradient_end(CudaWork w, const CudaGradient *g, CudaMatrix sum) {
    if (g->dw.format == FMT_F32 || g->fresh) return;
    CudaNumbers tensor = {g->tensor, g->dw.format};
    cuda_launch_accumulate(cuda_work_stream(&w), tensor, place_in_tensor(g), sum.data, sum.rows * sum.cols,
                           g->beta, g->key);
}

void cuda_add_gradient(CudaWork w, const CudaGradient *g, CudaMatrix dy, CudaMatrix x) {
    CudaMatrix dw = g->dw;
    CHECK(dw.ld == dw.cols);
    int64_t panel = dw.format == FMT_F32 || g->fresh ? dw.rows : device_stage_rows(dw.rows, dw.cols);
    for (int64_t row = 0; row < dw.rows; row += panel) {
        CudaWork here = w; /* every panel stands in the same scratch */
        CudaGradient part = *g;
        part.dw = cuda_part_rows(dw, row, MIN2(panel, dw.rows - row));
        CudaMatrix add, sum = cuda_gradient_begin(&here, &part, &add);
        cuda_work_multiply(here, (CudaProduct){.a = cuda_part_cols(dy, row, part.dw.rows),
                                               .a_transposed = true,
                                               .b = x,
                                               .c = sum,
                                               .add = add,
                                               .alpha = g->alpha});
        cuda_gradient_end(here, &part, sum);
    }
}
