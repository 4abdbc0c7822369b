/* make.c - models made without a run: drawn at random, quantised, or merged with an adapter. One tensor at a time. */
#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "ir/fill.h"
#include "store/adapter.h"
#include "weights/weights.h"
#include "weights/weights_int.h"

enum { DRAWN = 1 << 14 /* numbers, by one thread */, STRETCH = 1 << 22 /* by all of them, then written */ };

/* ---- random ---- */

typedef struct Names { /* the file tensors of a model, from the same recording that a run uses */
    Program p;
    Tid *id;
    StTensor *entry;
    int64_t n, capacity_id, capacity_entry;
} Names;

/* What model_homes quantises, and the head where it is meant. */
static Format stored_as(const ModelConfig *c, const Tensor *t) {
    if (c->quant != QUANT_OWN || t->rank != 2) return c->dtype;
    if (t->layer >= 0) return c->quant_format;
    bool is_head = c->tied || !strcmp(t->file_name, "lm_head.weight");
    return c->quant_head && is_head ? FMT_INT8 : c->dtype;
}

static void names_of(Names *s, const ModelConfig *c) {
    prog_init(&s->p);
    Model m;
    model_weights(&s->p, &m, &(ModelSpec){.config = *c, .activations = c->dtype}, NULL);
    for (Tid id = 1; id < s->p.n_t; id++) {
        const Tensor *t = prog_t(&s->p, id);
        if (!t->file_name) continue;
        s->id = mem_grow(s->id, &s->capacity_id, s->n + 1, sizeof *s->id);
        s->entry = mem_grow(s->entry, &s->capacity_entry, s->n + 1, sizeof *s->entry);
        s->id[s->n] = id;
        StTensor *e = &s->entry[s->n++];
        *e = (StTensor){.name = t->file_name, .rank = t->rank, .dtype = weights_dtype(c->dtype)};
        for (int i = 0; i < t->rank; i++) e->dim[i] = t->dim[i];
        if (stored_as(c, t) == c->dtype) continue;
        e->dtype = ST_U8;
        e->dim[1] = format_row_bytes(stored_as(c, t), t->dim[1]);
    }
}

static void names_free(Names *s) {
    mem_free(s->id);
    mem_free(s->entry);
    prog_free(&s->p);
}

typedef struct Drawing { /* a stretch of a tensor, drawn by all threads before it is written */
    AttrFill fill;
    Format format;
    int64_t first, n; /* its numbers */
    char *raw;
} Drawing;

static void draw_piece(void *context, int64_t piece, int worker) {
    (void)worker;
    const Drawing *d = context;
    float value[DRAWN];
    int64_t from = piece * DRAWN, n = MIN2(DRAWN, d->n - from);
    for (int64_t k = 0; k < n; k++) value[k] = fill_number(&d->fill, d->first + from + k);
    format_table[d->format].encode(d->raw + from * format_item_bytes(d->format), value, 1, n, 0, 1);
}

static bool write_drawn(StWriter *w, Drawing *d, Threads *threads, int64_t numbers, Err *e) {
    for (d->first = 0; d->first < numbers; d->first += d->n) {
        d->n = MIN2(STRETCH, numbers - d->first);
        threads_for(threads, (d->n + DRAWN - 1) / DRAWN, draw_piece, d);
        if (!st_write_data(w, d->raw, d->n * format_item_bytes(d->format), e)) return false;
    }
    return true;
}

bool weights_write_random(const ModelConfig *c, const char *folder, uint64_t seed, int n_threads, Err *e) {
    Names names = {0};
    names_of(&names, c);
    Threads *threads = NULL;
    StWriter *w = NULL;
    Drawing d = {.format = c->dtype, .raw = MEM_NEW(char, STRETCH * 4)};
    bool begun = threads_open(&threads, n_threads, e) &&
                 st_write_folder_begin(&w, folder, names.entry, names.n, (int64_t)5 * 1000000000, NULL, e), ok = begun;
    for (int64_t i = 0; i < names.n && ok; i++) {
        const StTensor *t = &names.entry[i];
        d.fill = weights_fill(c, t->name, seed);
        ok = write_drawn(w, &d, threads, st_tensor_bytes(t) / st_dtype_bytes(t->dtype), e);
    }
    if (begun && ok) ok = st_write_end(w, e);
    else if (begun) st_write_abort(w);
    threads_close(threads);
    mem_free(d.raw);
    names_free(&names);
    return ok;
}

/* ---- quantised ---- */

static bool write_on(void *context, const void *data, int64_t at, int64_t bytes, Err *e) {
    (void)at; /* comes from the first byte to the last */
    return st_write_data(context, data, bytes, e);
}

static bool write_quantised(StWriter *w, const ModelConfig *c, const StSet *s, const Tensor *t, Piece *piece, Err *e) {
    Source from;
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return source_open(&from, s, t->file_name, t->rank, t->dim, e) &&
           source_convert(&from, piece, stored_as(c, t), n, t->dim[t->rank - 1], write_on, w, e);
}

bool weights_quantise(const ModelConfig *c, const char *model_folder, const char *out_folder, Err *e) {
    StSet s;
    if (!st_open(&s, model_folder, e)) return false;
    Names names = {0};
    names_of(&names, c);
    Piece *piece = MEM_NEW(Piece, 1);
    StWriter *w;
    const char *const meta[] = {QUANTISED_KEY, format_name(c->quant_format), c->quant_head ? QUANTISED_HEAD_KEY : NULL,
                                format_name(FMT_INT8), NULL};
    bool begun = st_write_folder_begin(&w, out_folder, names.entry, names.n, (int64_t)5 * 1000000000, meta, e), ok = begun;
    for (int64_t i = 0; i < names.n && ok; i++) ok = write_quantised(w, c, &s, prog_t(&names.p, names.id[i]), piece, e);
    if (begun && ok) ok = st_write_end(w, e);
    else if (begun) st_write_abort(w);
    mem_free(piece);
    names_free(&names);
    st_close(&s);
    return ok;
}

/* ---- merge ---- */

typedef struct Merge {
    StSet base, adapter;
    AdapterConfig config;
    Threads *threads;
    float *a, *b;     /* (r,K), (M,r) of the tensor at hand */
    float *w;         /* (M,K) */
    void *raw;        /* the same as stored */
    int64_t rows, cols;
    float scale;
} Merge;

static void merge_row(void *context, int64_t row, int worker) { /* w_row += scale * sum_r b[row][r] * a[r] */
    (void)worker;
    const Merge *m = context;
    float *w = m->w + row * m->cols;
    for (int r = 0; r < m->config.rank; r++) {
        float s = m->scale * m->b[row * m->config.rank + r];
        const float *a = m->a + (int64_t)r * m->cols;
        for (int64_t k = 0; k < m->cols; k++) w[k] += s * a[k];
    }
}

static bool read_f32(const StSet *s, const StTensor *t, float *to, void *raw, Err *e) {
    Format f = t->dtype == ST_F32 ? FMT_F32 : t->dtype == ST_F16 ? FMT_F16 : FMT_BF16;
    if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
        return fail(e, ERR_FAIL, "%s: %s has dtype %s, which cannot be merged", s->path[t->file], t->name,
                    st_dtype_name(t->dtype));
    if (!st_read(s, t, raw, 0, t->bytes, e)) return false;
    int64_t n = t->bytes / st_dtype_bytes(t->dtype);
    format_table[f].decode(to, raw, 1, n, 0, 1);
    return true;
}

/* "model.layers.3.mlp.up_proj.weight" -> the names of its A and B */
static void adapter_names(char *a, char *b, size_t size, const char *name) {
    CHECK(name);
    int stem = MAX2((int)strlen(name) - (int)strlen(".weight"), 0);
    snprintf(a, size, "base_model.model.%.*s.lora_A.weight", stem, name);
    snprintf(b, size, "base_model.model.%.*s.lora_B.weight", stem, name);
}

static bool merge_tensor(Merge *m, const StTensor *t, const StTensor *a, const StTensor *b, Err *e) {
    m->rows = t->dim[0];
    m->cols = t->rank == 2 ? t->dim[1] : 0;
    if (t->rank != 2 || a->rank != 2 || b->rank != 2 || a->dim[0] != m->config.rank || a->dim[1] != m->cols ||
        b->dim[0] != m->rows || b->dim[1] != m->config.rank)
        return fail(e, ERR_FAIL, "%s: does not fit %s. Was the adapter made for another model?", a->name, t->name);
    int64_t wide = MAX2(t->bytes, MAX2(a->bytes, b->bytes));
    m->raw = mem_resize(m->raw, wide);
    m->w = mem_resize(m->w, mem_mul(mem_mul(m->rows, m->cols), 4));
    m->a = mem_resize(m->a, mem_mul(mem_mul(m->config.rank, m->cols), 4));
    m->b = mem_resize(m->b, mem_mul(mem_mul(m->rows, m->config.rank), 4));
    if (!read_f32(&m->adapter, a, m->a, m->raw, e) || !read_f32(&m->adapter, b, m->b, m->raw, e) ||
        !read_f32(&m->base, t, m->w, m->raw, e))
        return false;
    threads_for(m->threads, m->rows, merge_row, m);
    Format f = t->dtype == ST_F32 ? FMT_F32 : t->dtype == ST_F16 ? FMT_F16 : FMT_BF16;
    format_table[f].encode(m->raw, m->w, 1, m->rows * m->cols, 0, 1);
    return true;
}

static bool merge_all(Merge *m, StWriter *w, Err *e) {
    int64_t used = 0;
    for (int64_t i = 0; i < m->base.n; i++) {
        const StTensor *t = &m->base.tensor[i];
        char a_name[512], b_name[512];
        adapter_names(a_name, b_name, sizeof a_name, t->name);
        const StTensor *a = st_find(&m->adapter, a_name), *b = st_find(&m->adapter, b_name);
        if (a && b) {
            if (!merge_tensor(m, t, a, b, e)) return false;
            used += 2;
        } else {
            m->raw = mem_resize(m->raw, MAX2(t->bytes, 1));
            if (!st_read(&m->base, t, m->raw, 0, t->bytes, e)) return false;
        }
        if (!st_write_data(w, m->raw, t->bytes, e)) return false;
    }
    if (used != m->adapter.n)
        return fail(e, ERR_FAIL, "%s: %lld of its %lld tensors have no counterpart in the model", m->adapter.path[0],
                    (long long)(m->adapter.n - used), (long long)m->adapter.n);
    return true;
}

bool weights_merge(const char *model_folder, const char *adapter_folder, const char *out_folder, int threads, Err *e) {
    Merge m = {0};
    StWriter *w = NULL;
    if (!adapter_config_read(&m.config, adapter_folder, e)) return false;
    m.scale = (float)adapter_scale(&m.config);
    if (!st_open(&m.base, model_folder, e)) return false;
    bool have_adapter = st_open(&m.adapter, adapter_folder, e);
    bool ok = have_adapter && threads_open(&m.threads, threads, e) &&
              st_write_folder_begin(&w, out_folder, m.base.tensor, m.base.n, (int64_t)5 * 1000000000, NULL, e);
    if (ok && merge_all(&m, w, e)) ok = st_write_end(w, e);
    else if (ok) {
        st_write_abort(w);
        ok = false;
    }
    threads_close(m.threads);
    mem_free(m.raw);
    mem_free(m.w);
    mem_free(m.a);
    mem_free(m.b);
    if (have_adapter) st_close(&m.adapter);
    st_close(&m.base);
    return ok;
}
