/* product.c - how one tile of a product is computed: what is staged, and in which order numbers are summed. */
#include "backend/cpu/product.h"

Matrix product_matrix(Operand x) {
    return x.data ? (Matrix){.data = x.data, .format = x.t->format, .ld = cpu_cols(x.t)} : (Matrix){0};
}

/* ---- staging ---- */

CPU_VECTOR static void drop_numbers(float *x, int64_t n, uint64_t key, uint64_t first, float p) {
    float scale = 1.0f / (1.0f - p);
    for (int64_t i = 0; i < n; i++) x[i] = rng_uniform(key, first + (uint64_t)i) >= p ? x[i] * scale : 0.0f;
}

void product_drop(float *x, const Drop *d, int64_t token, int64_t channel, int64_t n) {
    drop_numbers(x, n, d->key, (uint64_t)((d->first_token + token) * d->channels + channel), d->p);
}

/* Numbers [col, col+n) of a row stored as int8. */
CPU_VECTOR static void load_int8(float *restrict to, const int8_t *restrict code, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = scale * (float)code[i];
}

static void load_row(float *to, const Matrix *m, int64_t row, int64_t col, int64_t n) {
    if (m->format != FMT_INT8) {
        cpu_load(to, m->data, m->format, m->first + row * m->ld + col, n);
        return;
    }
    CHECK(m->first == 0);
    const char *stored = (const char *)m->data + row * format_row_bytes(FMT_INT8, m->ld);
    load_int8(to, (const int8_t *)stored + col, *(const float *)(stored + format_row_scale(FMT_INT8, m->ld)), n);
}

static bool is_staged(const Matrix *m, const Drop *drop) { return m->format != FMT_F32 || drop->p > 0; }

const float *product_stage(float *scratch, int64_t *ld, const Matrix *m, const Drop *drop, Block at) {
    if (!is_staged(m, drop)) {
        *ld = m->ld;
        return (const float *)m->data + m->first + at.row * m->ld + at.col;
    }
    CHECK(scratch);
    *ld = units_round_up(at.cols, PRODUCT_GRAIN) + PRODUCT_GRAIN;
    for (int64_t r = 0; r < at.rows; r++) {
        load_row(scratch + r * *ld, m, at.row + r, at.col, at.cols);
        if (drop->p > 0) product_drop(scratch + r * *ld, drop, at.row + r, at.col, at.cols);
    }
    return scratch;
}

/* ---- one tile ---- */

typedef struct Tile {
    Block at;               /* its place in C */
    float *a, *b;           /* scratch of staged blocks */
    float *c;               /* where C is computed: in place or in scratch */
    int64_t ldc;
    bool c_staged;
} Tile;

static ProductStage stages(const Product *p) {
    return (ProductStage){is_staged(&p->a, &p->drop_a), is_staged(&p->b, &p->drop_b), p->c.format != FMT_F32};
}

static void load_c(const Tile *t, const Matrix *from, int64_t row_step) {
    for (int64_t r = 0; r < t->at.rows; r++)
        cpu_load(t->c + r * t->ldc, from->data, from->format, from->first + (t->at.row + r) * row_step + t->at.col,
                 t->at.cols);
}

static void add_bias(const Tile *t, const Matrix *bias) { /* to what C starts from */
    float row[PRODUCT_WIDE + PRODUCT_GRAIN];
    CHECK(t->at.cols <= COUNT_OF(row));
    const float *x = cpu_view(row, bias->data, bias->format, bias->first + t->at.col, t->at.cols);
    for (int64_t r = 0; r < t->at.rows; r++) cpu_accumulate(t->c + r * t->ldc, FMT_F32, 0, x, t->at.cols, 1.0f, 0);
}

/* Brings what C starts from into place; gives what the first panel must scale it by. */
static float begin_part(const Product *p, const Tile *t, bool first) {
    if (!first) {
        if (t->c_staged) load_c(t, &p->c, p->c.ld);
        return 1.0f;
    }
    bool adds = p->add.data && p->beta != 0.0f;
    if (p->bias.data && !adds) {
        load_c(t, &p->bias, 0);
        return 1.0f;
    }
    if (!adds) return 0.0f;
    bool in_place = p->add.data == p->c.data && p->add.first == p->c.first && !t->c_staged;
    if (!in_place) load_c(t, &p->add, p->add.ld);
    if (p->bias.data) add_bias(t, &p->bias);
    return p->beta;
}

static void end_part(const Product *p, const Tile *t, int64_t part) {
    if (!t->c_staged) return;
    uint64_t key = rng_fold(p->key, (uint64_t)part);
    for (int64_t r = 0; r < t->at.rows; r++) {
        int64_t first = p->c.first + (t->at.row + r) * p->c.ld + t->at.col;
        if (p->random)
            cpu_store_random(p->c.data, p->c.format, first, t->c + r * t->ldc, t->at.cols, key);
        else
            cpu_store(p->c.data, p->c.format, first, t->c + r * t->ldc, t->at.cols);
    }
}

/* Adds the inner numbers [k, k+n) to the tile, one call per block of rows. */
static void add_panel(const Product *p, const Tile *t, int64_t k, int64_t n, float beta) {
    CpuBlock m = {.cols = t->at.cols, .inner = n, .ldc = t->ldc, .alpha = p->alpha, .beta = beta,
                  .a_transposed = p->a_transposed, .b_transposed = p->b_transposed};
    Block b = p->b_transposed ? (Block){t->at.col, k, t->at.cols, n} : (Block){k, t->at.col, n, t->at.cols};
    m.b = product_stage(t->b, &m.ldb, &p->b, &p->drop_b, b);
    for (int64_t r = 0; r < t->at.rows; r += p->cut.block) {
        int64_t row = t->at.row + r;
        m.rows = MIN2(p->cut.block, t->at.rows - r);
        Block a = p->a_transposed ? (Block){k, row, n, m.rows} : (Block){row, k, m.rows, n};
        m.a = product_stage(t->a, &m.lda, &p->a, &p->drop_a, a);
        m.c = t->c + r * t->ldc;
        cpu_multiply(&m);
    }
}

static void compute_tile(const Product *p, Tile *t) {
    ProductStage stage = stages(p);
    int64_t part = p->part ? p->part : p->inner;
    for (int64_t begin = 0, i = 0; begin < p->inner; begin += part, i++) {
        int64_t end = MIN2(begin + part, p->inner), panel = stage.a || stage.b ? p->cut.inner : part;
        float beta = begin_part(p, t, begin == 0);
        for (int64_t k = begin; k < end; k += panel) {
            add_panel(p, t, k, MIN2(panel, end - k), beta);
            beta = 1.0f;
        }
        end_part(p, t, p->first_part + i);
    }
}

/* ---- all tiles ---- */

typedef struct Job {
    const Product *list;
    const Args *args;
    int64_t scratch, each; /* of the workspace: where it begins, bytes per worker */
} Job;

static int64_t tiles(const Product *p) {
    return product_parts(p->rows, p->cut.rows) * product_parts(p->cols, p->cut.cols);
}

static void run_tile(void *context, int64_t i, int worker) {
    const Job *job = context;
    const Product *p = job->list;
    for (; i >= tiles(p); p++) i -= tiles(p);
    /* neighbours in the order share their columns: the wide operand, a weight, is fetched once */
    int64_t down = product_parts(p->rows, p->cut.rows), row = i % down * p->cut.rows, col = i / down * p->cut.cols;
    Tile t = {.at = {row, col, MIN2(p->cut.rows, p->rows - row), MIN2(p->cut.cols, p->cols - col)}};
    ProductStage stage = stages(p);
    t.c_staged = stage.c;
    t.c = (float *)p->c.data + p->c.first + row * p->c.ld + col;
    t.ldc = p->c.ld;
    if (job->each) {
        t.a = cpu_scratch(job->args, job->scratch, job->each, worker);
        t.b = t.a + (stage.a ? product_block(p->cut.block, p->cut.inner) : 0);
        if (stage.c) t.c = t.b + (stage.b ? product_block(p->cut.cols, p->cut.inner) : 0);
        if (stage.c) t.ldc = p->cut.cols + PRODUCT_GRAIN;
    }
    compute_tile(p, &t);
}

void product_run(Backend *b, const Args *a, const Product *list, int n, int64_t scratch) {
    Job job = {.list = list, .args = a, .scratch = scratch};
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        total += tiles(&list[i]);
        job.each = MAX2(job.each, product_bytes(list[i].cut, stages(&list[i])));
    }
    threads_for(cpu_threads(b), total, run_tile, &job);
}
