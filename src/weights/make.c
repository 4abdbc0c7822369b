/* make.c - models made without a run: drawn at random, completed, quantised, or merged with an adapter. One tensor
 * at a time. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/threads.h"
#include "base/work.h"
#include "ir/fill.h"
#include "store/adapter.h"
#include "store/jsonfile.h"
#include "weights/weights.h"
#include "weights/weights_int.h"

enum { DRAWN = 1 << 14 /* numbers, by one thread */, STRETCH = 1 << 20 /* by all of them, then written */ };

/* ---- random ---- */

typedef struct Names { /* the file tensors of a model, from the same recording that a run uses */
    Program p;
    Chosen of;
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
        StTensor *e = chosen_add(&s->of, &s->p, id, t->file_name, weights_dtype(c->dtype));
        if (stored_as(c, t) == c->dtype) continue;
        e->dtype = ST_U8;
        e->dim[1] = format_row_bytes(stored_as(c, t), t->dim[1]);
    }
}

static void names_free(Names *s) {
    chosen_free(&s->of);
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

/* ---- quantised ---- */

static bool write_on(void *context, const void *data, int64_t at, int64_t bytes, Err *e) {
    (void)at; /* comes from the first byte to the last */
    return st_write_data(context, data, bytes, e);
}

static bool write_stored(StWriter *w, const ModelConfig *c, const StSet *s, const Tensor *t, Piece *piece, Err *e) {
    Source from;
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return source_open(&from, s, t->file_name, t->rank, t->dim, e) &&
           source_convert(&from, piece, stored_as(c, t), n, t->dim[t->rank - 1], write_on, w, e);
}

bool weights_check_quantise(const ModelConfig *c, const char *model_folder, int64_t *bytes, Err *e) {
    StSet s;
    if (!st_open(&s, model_folder, e)) return false;
    Names names = {0};
    names_of(&names, c);
    bool ok = true;
    for (int64_t i = 0; i < names.of.n && ok; i++) {
        const Tensor *t = prog_t(&names.p, names.of.id[i]);
        Source from;
        ok = source_open(&from, &s, t->file_name, t->rank, t->dim, e);
    }
    StSizes sizes = {0};
    ok = ok && st_write_sizes(&sizes, names.of.entry, names.of.n, true, st_shard_bytes(), e);
    *bytes = sizes.bytes;
    names_free(&names);
    st_close(&s);
    return ok;
}

/* ---- whole models, drawn or read ---- */

static bool is_there(const StSet *s, const char *name) { /* also where it was saved without the head's wrapper */
    return s && (st_find(s, name) || (!strncmp(name, "model.", 6) && st_find(s, name + 6)));
}

/* s: what is read from; NULL: nothing. drawn: counts what it lacks, which is drawn; NULL: nothing may be lacking. */
static bool write_model(const ModelConfig *c, const StSet *s, const char *folder, uint64_t seed, int n_threads,
                        int64_t *drawn, const char *const *meta, Err *e) {
    Names names = {0};
    names_of(&names, c);
    const Chosen *of = &names.of;
    Threads *threads = NULL;
    StWriter *w = NULL;
    Piece *piece = MEM_NEW(Piece, 1);
    Drawing d = {.format = c->dtype, .raw = MEM_NEW(char, STRETCH * 4)};
    bool begun = threads_open(&threads, n_threads, e) &&
                 st_write_folder_begin(&w, folder, of->entry, of->n, st_shard_bytes(), meta, e),
         ok = begun;
    Work work;
    if (begun) st_write_interruptible(w);
    work_begin(&work, WORK_COUNT, of->n, "%s tensors", !drawn ? "quantising" : s ? "writing" : "drawing");
    for (int64_t i = 0; i < of->n && ok; i++) {
        const Tensor *t = prog_t(&names.p, of->id[i]);
        bool there = !drawn || is_there(s, t->file_name);
        d.fill = weights_fill(c, t->file_name, seed);
        if (!there) ++*drawn;
        ok = (there ? write_stored(w, c, s, t, piece, e)
                    : write_drawn(w, &d, threads, prog_elements(&names.p, of->id[i]), e)) &&
             work_on(&work, i + 1, e);
    }
    work_end(&work);
    if (begun) ok = st_write_close(w, ok, e);
    threads_close(threads);
    mem_free(d.raw);
    mem_free(piece);
    names_free(&names);
    return ok;
}

bool weights_quantise(const ModelConfig *c, const char *model_folder, const char *out_folder, Err *e) {
    const char *const meta[] = {QUANTISED_KEY, format_name(c->quant_format), c->quant_head ? QUANTISED_HEAD_KEY : NULL,
                                format_name(FMT_INT8), NULL};
    StSet s;
    if (!st_open(&s, model_folder, e)) return false;
    bool ok = write_model(c, &s, out_folder, 0, 1, NULL, meta, e);
    st_close(&s);
    return ok;
}

bool weights_write_random(const ModelConfig *c, const char *folder, uint64_t seed, int threads, Err *e) {
    int64_t drawn = 0;
    return write_model(c, NULL, folder, seed, threads, &drawn, NULL, e);
}

bool weights_complete(const ModelConfig *c, const char *model_folder, const char *out_folder, uint64_t seed,
                      int threads, int64_t *drawn, Err *e) {
    StSet s;
    *drawn = 0;
    if (!st_open(&s, model_folder, e)) return false;
    bool ok = write_model(c, &s, out_folder, seed, threads, drawn, NULL, e);
    st_close(&s);
    return ok;
}

/* ---- merge ---- */

typedef struct Merge {
    StSet base, adapter;
    AdapterConfig config;
    Threads *threads;
    float *a, *b;        /* (r,K), (M,r) of the tensor at hand */
    int64_t first, cols; /* the rows at hand begin there */
    float *w;            /* STRETCH numbers of the tensor: whole rows, or one row where that is longer */
    char *raw;           /* the same as stored */
    int64_t capacity;    /* of both, in numbers */
    float scale;
} Merge;

static void merge_row(void *context, int64_t row, int worker) { /* w_row += scale * sum_r b[row][r] * a[r] */
    (void)worker;
    const Merge *m = context;
    float *w = m->w + row * m->cols;
    for (int r = 0; r < m->config.rank; r++) {
        float s = m->scale * m->b[(m->first + row) * m->config.rank + r];
        const float *a = m->a + (int64_t)r * m->cols;
        for (int64_t k = 0; k < m->cols; k++) w[k] += s * a[k];
    }
}

static bool format_to_merge(Format *f, const StSet *s, const StTensor *t, Err *e) {
    if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
        return fail(e, ERR_FAIL, "%s: %s has dtype %s, which cannot be merged", s->path[t->file], t->name,
                    st_dtype_name(t->dtype));
    *f = t->dtype == ST_F32 ? FMT_F32 : t->dtype == ST_F16 ? FMT_F16 : FMT_BF16;
    return true;
}

static void merge_room(Merge *m, int64_t numbers) { /* for so many at a time */
    if (numbers <= m->capacity) return;
    m->capacity = numbers;
    m->w = mem_resize(m->w, mem_mul(numbers, 4));
    m->raw = mem_resize(m->raw, mem_mul(numbers, 4));
}

/* A matrix of the adapter, whole: its shorter side is the rank. Gives: mem_free. */
static float *read_f32(Merge *m, const StTensor *t, Err *e) {
    Format f = FMT_F32;
    if (!format_to_merge(&f, &m->adapter, t, e)) return NULL;
    int64_t n = t->bytes / st_dtype_bytes(t->dtype);
    float *to = mem_alloc(mem_mul(n, 4));
    merge_room(m, STRETCH);
    for (int64_t at = 0; at < n; at += STRETCH) {
        int64_t some = MIN2(n - at, STRETCH), item = st_dtype_bytes(t->dtype);
        if (!st_read(&m->adapter, t, m->raw, at * item, some * item, e)) {
            mem_free(to);
            return NULL;
        }
        format_table[f].decode(to + at, m->raw, 1, some, 0, 1);
    }
    return to;
}

/* "model.layers.3.mlp.up_proj.weight" -> the names of its A and B */
static void adapter_names(char *a, char *b, size_t size, const char *name) {
    CHECK(name);
    int stem = MAX2((int)strlen(name) - (int)strlen(".weight"), 0);
    snprintf(a, size, "base_model.model.%.*s.lora_A.weight", stem, name);
    snprintf(b, size, "base_model.model.%.*s.lora_B.weight", stem, name);
}

/* Rows at a time: they do not know of each other. */
static bool merge_rows(Merge *m, StWriter *w, const StTensor *t, Err *e) {
    Format f = FMT_F32;
    if (!format_to_merge(&f, &m->base, t, e)) return false;
    int64_t item = st_dtype_bytes(t->dtype), step = MAX2(STRETCH / m->cols, 1), rows = t->dim[0];
    merge_room(m, step * m->cols);
    for (m->first = 0; m->first < rows; m->first += step) {
        int64_t n = MIN2(step, rows - m->first) * m->cols;
        if (!st_read(&m->base, t, m->raw, m->first * m->cols * item, n * item, e)) return false;
        format_table[f].decode(m->w, m->raw, 1, n, 0, 1);
        threads_for(m->threads, n / m->cols, merge_row, m);
        format_table[f].encode(m->raw, m->w, 1, n, 0, 1);
        if (!st_write_data(w, m->raw, n * item, e)) return false;
    }
    return true;
}

static void find_adapter(const Merge *m, const StTensor *t, const StTensor **a, const StTensor **b) { /* NULL: none */
    char a_name[512], b_name[512];
    adapter_names(a_name, b_name, sizeof a_name, t->name);
    *a = st_find(&m->adapter, a_name);
    *b = st_find(&m->adapter, b_name);
}

static bool check_tensor(const Merge *m, const StTensor *t, const StTensor *a, const StTensor *b, Err *e) {
    int rank = m->config.rank;
    Format f;
    if (t->rank != 2 || a->rank != 2 || b->rank != 2 || a->dim[0] != rank || a->dim[1] != t->dim[1] ||
        b->dim[0] != t->dim[0] || b->dim[1] != rank)
        return fail(e, ERR_FAIL, "%s: does not fit %s. Was the adapter made for another model?", a->name, t->name);
    return format_to_merge(&f, &m->base, t, e) && format_to_merge(&f, &m->adapter, a, e) &&
           format_to_merge(&f, &m->adapter, b, e);
}

static bool check_all(const Merge *m, Err *e) {
    int64_t used = 0;
    for (int64_t i = 0; i < m->base.n; i++) {
        const StTensor *a, *b;
        find_adapter(m, &m->base.tensor[i], &a, &b);
        if (!a || !b) continue;
        if (!check_tensor(m, &m->base.tensor[i], a, b, e)) return false;
        used += 2;
    }
    return used == m->adapter.n ||
           fail(e, ERR_FAIL, "%s: %lld of its %lld tensors have no counterpart in the model", m->adapter.path[0],
                (long long)(m->adapter.n - used), (long long)m->adapter.n);
}

static bool merge_tensor(Merge *m, StWriter *w, const StTensor *t, const StTensor *a, const StTensor *b, Err *e) {
    m->cols = t->dim[1];
    m->a = read_f32(m, a, e);
    m->b = m->a ? read_f32(m, b, e) : NULL;
    bool ok = m->b && (!m->cols || merge_rows(m, w, t, e));
    mem_free(m->a);
    mem_free(m->b);
    return ok;
}

static bool copy_tensor(Merge *m, StWriter *w, const StTensor *t, Err *e) {
    merge_room(m, STRETCH);
    for (int64_t at = 0; at < t->bytes; at += STRETCH) {
        int64_t some = MIN2(t->bytes - at, STRETCH);
        if (!st_read(&m->base, t, m->raw, at, some, e) || !st_write_data(w, m->raw, some, e)) return false;
    }
    return true;
}

static bool merge_all(Merge *m, StWriter *w, Err *e) {
    Work work;
    int64_t done = 0;
    bool ok = true;
    work_begin(&work, WORK_BYTES, m->base.total_bytes, "merging");
    for (int64_t i = 0; i < m->base.n && ok; i++) {
        const StTensor *t = &m->base.tensor[i], *a, *b;
        find_adapter(m, t, &a, &b);
        ok = (a && b ? merge_tensor(m, w, t, a, b, e) : copy_tensor(m, w, t, e)) && work_on(&work, done += t->bytes, e);
    }
    work_end(&work);
    return ok;
}

static bool merge_open(Merge *m, const char *model_folder, const char *adapter_folder, Err *e) {
    *m = (Merge){0};
    if (!adapter_config_read(&m->config, adapter_folder, e)) return false;
    m->scale = (float)adapter_scale(&m->config);
    if (!st_open(&m->base, model_folder, e)) return false;
    bool has_adapter = st_open(&m->adapter, adapter_folder, e);
    if (has_adapter && check_all(m, e)) return true;
    if (has_adapter) st_close(&m->adapter);
    st_close(&m->base);
    return false;
}

static void merge_close(Merge *m) {
    threads_close(m->threads);
    mem_free(m->raw);
    mem_free(m->w);
    st_close(&m->adapter);
    st_close(&m->base);
}

bool weights_check_merge(const char *model_folder, const char *adapter_folder, Err *e) {
    Merge m;
    bool ok = merge_open(&m, model_folder, adapter_folder, e);
    if (ok) merge_close(&m);
    return ok;
}

bool weights_merge(const char *model_folder, const char *adapter_folder, const char *out_folder, int threads, Err *e) {
    Merge m;
    StWriter *w = NULL;
    if (!merge_open(&m, model_folder, adapter_folder, e)) return false;
    bool ok = threads_open(&m.threads, threads, e) &&
              st_write_folder_begin(&w, out_folder, m.base.tensor, m.base.n, st_shard_bytes(), NULL, e);
    if (ok) st_write_interruptible(w);
    ok = ok && st_write_close(w, merge_all(&m, w, e), e);
    merge_close(&m);
    return ok;
}

bool weights_write_config(const ModelConfig *c, const char *folder, Err *e) {
    json_t *j = config_to_json(c);
    bool ok = jsonfile_write(file_in(folder, "config.json").s, j, e);
    json_decref(j);
    return ok;
}

/* ---- memory ---- */

bool weights_make_bytes(int64_t *bytes, const ModelConfig *c, const char *adapter_folder, Err *e) {
    enum { NAMED = 2048 }; /* a tensor's entries here, in the writer and in a header, as text and as a tree */
    Names names = {0};
    StSet s;
    int64_t pair = 0;
    if (adapter_folder && !st_open(&s, adapter_folder, e)) return false;
    for (int64_t i = 0; adapter_folder && i < s.n; i++)
        pair = MAX2(pair, 2 * 4 * (s.tensor[i].bytes / st_dtype_bytes(s.tensor[i].dtype)));
    names_of(&names, c);
    *bytes = STRETCH * 8 + (int64_t)sizeof(Piece) + pair + (names.of.n + (adapter_folder ? s.n : 0)) * NAMED;
    names_free(&names);
    if (adapter_folder) st_close(&s);
    return true;
}
