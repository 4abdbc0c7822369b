/* weights.c - which bytes of a file belong in which slot, and back. */
#include "train/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/units.h"
#include "base/work.h"
#include "store/adapter.h"
#include "store/hf.h"
#include "train/job.h"
#include "train/weights_int.h"


static StDtype dtype_of(Format f) {
    switch (f) {
        case FMT_F32: return ST_F32;
        case FMT_BF16: return ST_BF16;
        case FMT_F16: return ST_F16;
        default: return ST_U8; /* blocked formats travel as bytes */
    }
}

/* ---- loading ---- */

enum { READ_BYTES = 64 << 20 }; /* straight into a slot at a time */

typedef struct Loading { /* the tensors of a folder on their way into their slots */
    Exec *x;
    StSet s;
    Piece *piece; /* owns */
    Tid id;       /* the tensor at hand */
    int64_t done; /* bytes of slots filled before it */
    Work work;
} Loading;

/* The same bytes, through host memory or straight into the slot. */
static bool load_bytes(Loading *l, const StTensor *f, Err *e) {
    bool straight = exec_is_touchable(l->x, l->id);
    int64_t most = straight ? READ_BYTES : (int64_t)sizeof l->piece->raw;
    for (int64_t at = 0; at < f->bytes; at += most) {
        int64_t m = MIN2(most, f->bytes - at);
        char *to = straight ? (char *)exec_address(l->x, l->id) + at : l->piece->raw;
        if (!st_read(&l->s, f, to, at, m, e)) return false;
        if (!straight) exec_put(l->x, l->id, to, at, m);
        if (!work_on(&l->work, l->done + at + m, e)) return false;
    }
    return true;
}

static bool put_in_slot(void *context, const void *data, int64_t at, int64_t bytes, Err *e) {
    Loading *l = context;
    exec_put(l->x, l->id, data, at, bytes);
    return work_on(&l->work, l->done + at + bytes, e);
}

static bool pass_over(void *context, const void *data, int64_t at, int64_t bytes, Err *e) {
    Loading *l = context;
    return work_on(&l->work, l->done + at + bytes, e);
}

static bool convert_one(Loading *l, const Source *from, SinkFn *sink, Err *e) {
    const Program *p = l->x->p;
    return source_convert(from, l->piece, prog_t(p, l->id)->format, prog_elements(p, l->id), prog_cols(p, l->id),
                          sink, l, e);
}

/* The model's own file is its home; rows that are quantised there are looked at first. */
static bool link_one(Loading *l, const Source *from, Err *e) {
    Exec *x = l->x;
    const StTensor *f = from->f;
    if (!format_table[prog_t(x->p, l->id)->format].plain && !convert_one(l, from, pass_over, e)) return false;
    return x->b->link(x->b, exec_address(x, l->id), from->s->path[f->file], f->offset, f->bytes, e);
}

static bool load_one(Loading *l, Err *e) {
    const Program *p = l->x->p;
    const Tensor *t = prog_t(p, l->id), *base = prog_t(p, prog_base(p, l->id));
    Source from;
    if (!source_open(&from, &l->s, t->file_name, t->rank, t->dim, e)) return false;
    bool as_it_is = from.format == t->format && !from.is_bnb;
    if (as_it_is && base->home.pool == POOL_DISK && !base->trainable) return link_one(l, &from, e);
    if (!as_it_is || !format_table[t->format].plain) return convert_one(l, &from, put_in_slot, e);
    return load_bytes(l, from.f, e);
}

bool weights_load(Exec *x, Role role, const char *folder, Err *e) { return weights_load_model(x, NULL, role, folder, e); }

static bool is_of(const Tensor *t, const char *model) {
    return model ? t->model && !strcmp(t->model, model) : !t->model;
}

static bool is_loaded(const Tensor *t, const char *model, Role role) {
    return t->role == role && t->file_name && is_of(t, model);
}

static int64_t bytes_to_load(const Program *p, const char *model, Role role) {
    int64_t sum = 0;
    for (Tid id = 1; id < p->n_t; id++)
        if (is_loaded(&p->t[id], model, role)) sum += prog_bytes(p, id);
    return sum;
}

bool weights_load_model(Exec *x, const char *model, Role role, const char *folder, Err *e) {
    Loading l = {.x = x};
    if (!st_open(&l.s, folder, e)) return false;
    l.piece = MEM_NEW(Piece, 1);
    work_begin(&l.work, WORK_BYTES, bytes_to_load(x->p, model, role), "loading %s", folder);
    bool ok = true;
    for (l.id = 1; l.id < x->p->n_t && ok; l.id++) {
        if (!is_loaded(&x->p->t[l.id], model, role)) continue;
        ok = load_one(&l, e);
        l.done += prog_bytes(x->p, l.id);
    }
    work_end(&l.work);
    mem_free(l.piece);
    st_close(&l.s);
    return ok;
}

void weights_start_masters(Exec *x) {
    Piece *piece = MEM_NEW(Piece, 1);
    for (Tid master = 1; master < x->p->n_t; master++) {
        if (x->p->t[master].role != ROLE_MASTER || x->p->t[master].base) continue;
        char name[128]; /* "layers.3.qkv_w.master" is the twin of "layers.3.qkv_w" */
        snprintf(name, sizeof name, "%.*s", (int)(strlen(x->p->t[master].name) - strlen(".master")), x->p->t[master].name);
        Tid w = prog_find(x->p, name);
        CHECK_MSG(w, "%s", name);
        Format f = x->p->t[w].format;
        int64_t n = prog_elements(x->p, w), item = format_item_bytes(f);
        for (int64_t at = 0; at < n; at += PIECE) {
            int64_t m = MIN2(PIECE, n - at);
            exec_get(x, w, piece->raw, at * item, m * item);
            format_table[f].decode(piece->value, piece->raw, 1, m, 0, 1);
            exec_put(x, master, piece->value, at * 4, m * 4);
        }
    }
    mem_free(piece);
}

/* ---- saving ---- */

typedef struct Chosen { /* tensors of one file, in writing order */
    Tid *id;
    StTensor *entry;
    int64_t n, capacity_id, capacity_entry;
} Chosen;

static void chosen_free(Chosen *c) {
    mem_free(c->id);
    mem_free(c->entry);
}

static void choose(Chosen *c, const Program *p, Tid id, const char *name, bool as_bytes) {
    const Tensor *t = prog_t(p, id);
    c->id = mem_grow(c->id, &c->capacity_id, c->n + 1, sizeof *c->id);
    c->entry = mem_grow(c->entry, &c->capacity_entry, c->n + 1, sizeof *c->entry);
    StTensor *s = &c->entry[c->n];
    *s = (StTensor){.name = name, .dtype = dtype_of(t->format), .rank = t->rank};
    for (int i = 0; i < t->rank; i++) s->dim[i] = t->dim[i];
    if (as_bytes) {
        s->rank = 1;
        s->dim[0] = prog_bytes(p, id);
    }
    c->id[c->n++] = id;
}

static bool stream_out(Exec *x, StWriter *w, const Chosen *c, Err *e) {
    Piece *piece = MEM_NEW(Piece, 1);
    bool ok = true;
    for (int64_t i = 0; i < c->n && ok; i++) {
        int64_t bytes = prog_bytes(x->p, c->id[i]);
        if (exec_is_touchable(x, c->id[i])) {
            ok = st_write_data(w, exec_address(x, c->id[i]), bytes, e);
            continue;
        }
        for (int64_t at = 0; at < bytes && ok; at += (int64_t)sizeof piece->raw) {
            int64_t m = MIN2((int64_t)sizeof piece->raw, bytes - at);
            exec_get(x, c->id[i], piece->raw, at, m);
            ok = st_write_data(w, piece->raw, m, e);
        }
    }
    mem_free(piece);
    if (ok) return st_write_end(w, e);
    st_write_abort(w);
    return false;
}

static void choose_role(Chosen *c, const Program *p, Role role) {
    for (Tid id = 1; id < p->n_t; id++)
        if (p->t[id].role == role && p->t[id].file_name) choose(c, p, id, p->t[id].file_name, false);
}

bool weights_save(Exec *x, Role role, const char *folder, Err *e) {
    Chosen c = {0};
    choose_role(&c, x->p, role);
    StWriter *w;
    char path[1200];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    bool ok = role == ROLE_ADAPTER ? st_write_begin(&w, path, c.entry, c.n, NULL, e)
                                   : st_write_folder_begin(&w, folder, c.entry, c.n, st_shard_bytes(), NULL, e);
    ok = ok && stream_out(x, w, &c, e);
    chosen_free(&c);
    return ok;
}

bool weights_sizes(StSizes *s, const Program *p, Role role, Err *e) {
    Chosen c = {0};
    choose_role(&c, p, role);
    bool in_folder = role != ROLE_ADAPTER,
         ok = st_write_sizes(s, c.entry, c.n, in_folder, in_folder ? st_shard_bytes() : 0, e);
    chosen_free(&c);
    return ok;
}

static bool in_optimizer(const Tensor *t) { return !t->base && (t->role == ROLE_MOMENT || t->role == ROLE_MASTER); }

static void choose_optimizer(Chosen *c, const Program *p) {
    static const Format order[] = {FMT_F32, FMT_BF16, FMT_MOM8,
                                   FMT_VAR8}; /* wide ones first: they must be aligned */
    for (int k = 0; k < COUNT_OF(order); k++)
        for (Tid id = 1; id < p->n_t; id++) {
            const Tensor *t = prog_t(p, id);
            if (in_optimizer(t) && t->format == order[k])
                choose(c, p, id, t->name, !format_table[t->format].plain);
        }
}

bool weights_optimizer_sizes(StSizes *s, const Program *p, Err *e) {
    Chosen c = {0};
    choose_optimizer(&c, p);
    bool ok = st_write_sizes(s, c.entry, c.n, false, 0, e);
    chosen_free(&c);
    return ok;
}

bool weights_save_optimizer(Exec *x, const char *path, Err *e) {
    Chosen c = {0};
    choose_optimizer(&c, x->p);
    StWriter *w;
    bool ok = st_write_begin(&w, path, c.entry, c.n, NULL, e) && stream_out(x, w, &c, e);
    chosen_free(&c);
    return ok;
}

bool weights_load_optimizer(Exec *x, const char *path, Err *e) {
    StSet s;
    if (!st_open(&s, path, e)) return false;
    Piece *piece = MEM_NEW(Piece, 1);
    Work work;
    int64_t done = 0;
    work_begin(&work, WORK_BYTES, s.total_bytes, "loading %s", path);
    bool ok = true;
    for (Tid id = 1; id < x->p->n_t && ok; id++) {
        const Tensor *t = prog_t(x->p, id);
        if (!in_optimizer(t)) continue;
        const StTensor *f = st_find(&s, t->name);
        int64_t bytes = prog_bytes(x->p, id);
        if (!f || f->bytes != bytes || f->dtype != dtype_of(t->format)) {
            ok = fail(e, ERR_FAIL, "%s: %s is %s", path, t->name,
                      f ? "of another size or dtype than this run's" : "missing");
            break;
        }
        for (int64_t at = 0; at < bytes && ok; at += (int64_t)sizeof piece->raw) {
            int64_t m = MIN2((int64_t)sizeof piece->raw, bytes - at);
            ok = st_read(&s, f, piece->raw, at, m, e);
            if (ok) exec_put(x, id, piece->raw, at, m);
            ok = ok && work_on(&work, done + at + m, e);
        }
        done += bytes;
    }
    work_end(&work);
    mem_free(piece);
    st_close(&s);
    return ok;
}

uint64_t weights_checksum(Exec *x, Role role) {
    Piece *piece = MEM_NEW(Piece, 1);
    uint64_t sum = 0;
    for (Tid id = 1; id < x->p->n_t; id++) {
        const Tensor *t = prog_t(x->p, id);
        if (t->base || t->role != role) continue;
        int64_t bytes = prog_bytes(x->p, id);
        for (int64_t at = 0; at < bytes; at += (int64_t)sizeof piece->raw) {
            int64_t m = MIN2((int64_t)sizeof piece->raw, bytes - at);
            exec_get(x, id, piece->raw, at, m);
            memset(piece->raw + m, 0, (size_t)(units_round_up(m, 8) - m));
            for (int64_t i = 0; i < m; i += 8) { /* a word at a time: billions of weights in seconds */
                uint64_t word;
                memcpy(&word, piece->raw + i, sizeof word);
                sum = (sum ^ word) * 0x100000001b3ull;
                sum ^= sum >> 29;
            }
        }
    }
    mem_free(piece);
    return sum;
}
