/* weights.c - which bytes of a file belong in which slot, and back. */
#include "train/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/units.h"
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

/* The same bytes, through host memory. */
static bool load_bytes(Exec *x, Tid id, const StSet *s, const StTensor *f, Piece *piece, Err *e) {
    for (int64_t at = 0; at < f->bytes; at += (int64_t)sizeof piece->raw) {
        int64_t m = MIN2((int64_t)sizeof piece->raw, f->bytes - at);
        if (!st_read(s, f, piece->raw, at, m, e)) return false;
        exec_put(x, id, piece->raw, at, m);
    }
    return true;
}

typedef struct Slot {
    Exec *x;
    Tid id;
} Slot;

static bool put_in_slot(void *context, const void *data, int64_t at, int64_t bytes, Err *e) {
    const Slot *slot = context;
    exec_put(slot->x, slot->id, data, at, bytes);
    return true;
}

static bool pass_over(void *context, const void *data, int64_t at, int64_t bytes, Err *e) { return true; }

/* The model's own file is its home; rows that are quantised there are looked at first. */
static bool link_one(Exec *x, Tid id, const Source *from, Piece *piece, Err *e) {
    const Tensor *t = prog_t(x->p, id);
    const StTensor *f = from->f;
    if (!format_table[t->format].plain &&
        !source_convert(from, piece, t->format, prog_elements(x->p, id), prog_cols(x->p, id), pass_over, NULL, e))
        return false;
    return x->b->link(x->b, exec_address(x, id), from->s->path[f->file], f->offset, f->bytes, e);
}

static bool load_one(Exec *x, Tid id, const StSet *s, Piece *piece, Err *e) {
    const Tensor *t = prog_t(x->p, id), *base = prog_t(x->p, prog_base(x->p, id));
    Source from;
    if (!source_open(&from, s, t->file_name, t->rank, t->dim, e)) return false;
    bool as_it_is = from.format == t->format && !from.is_bnb;
    if (as_it_is && base->home.pool == POOL_DISK && !base->trainable) return link_one(x, id, &from, piece, e);
    if (!as_it_is || !format_table[t->format].plain)
        return source_convert(&from, piece, t->format, prog_elements(x->p, id), prog_cols(x->p, id), put_in_slot,
                              &(Slot){x, id}, e);
    if (exec_is_touchable(x, id)) return st_read(s, from.f, exec_address(x, id), 0, from.f->bytes, e);
    return load_bytes(x, id, s, from.f, piece, e);
}

bool weights_load(Exec *x, Role role, const char *folder, Err *e) { return weights_load_model(x, NULL, role, folder, e); }

static bool is_of(const Tensor *t, const char *model) {
    return model ? t->model && !strcmp(t->model, model) : !t->model;
}

bool weights_load_model(Exec *x, const char *model, Role role, const char *folder, Err *e) {
    StSet s;
    if (!st_open(&s, folder, e)) return false;
    Piece *piece = MEM_NEW(Piece, 1);
    bool ok = true;
    for (Tid id = 1; id < x->p->n_t && ok; id++)
        if (x->p->t[id].role == role && x->p->t[id].file_name && is_of(&x->p->t[id], model))
            ok = load_one(x, id, &s, piece, e);
    mem_free(piece);
    st_close(&s);
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

bool weights_save(Exec *x, Role role, const char *folder, Err *e) {
    Chosen c = {0};
    for (Tid id = 1; id < x->p->n_t; id++)
        if (x->p->t[id].role == role && x->p->t[id].file_name) choose(&c, x->p, id, x->p->t[id].file_name, false);
    StWriter *w;
    char path[1200];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    bool ok = role == ROLE_ADAPTER ? st_write_begin(&w, path, c.entry, c.n, NULL, e)
                                   : st_write_folder_begin(&w, folder, c.entry, c.n, st_shard_bytes(), NULL, e);
    ok = ok && stream_out(x, w, &c, e);
    chosen_free(&c);
    return ok;
}

static bool in_optimizer(const Tensor *t) { return !t->base && (t->role == ROLE_MOMENT || t->role == ROLE_MASTER); }

bool weights_save_optimizer(Exec *x, const char *path, Err *e) {
    static const Format order[] = {FMT_F32, FMT_BF16, FMT_MOM8, FMT_VAR8}; /* wide ones first: they must be aligned */
    Chosen c = {0};
    for (int k = 0; k < COUNT_OF(order); k++)
        for (Tid id = 1; id < x->p->n_t; id++) {
            const Tensor *t = prog_t(x->p, id);
            if (in_optimizer(t) && t->format == order[k]) choose(&c, x->p, id, t->name, !format_table[t->format].plain);
        }
    StWriter *w;
    bool ok = st_write_begin(&w, path, c.entry, c.n, NULL, e) && stream_out(x, w, &c, e);
    chosen_free(&c);
    return ok;
}

bool weights_load_optimizer(Exec *x, const char *path, Err *e) {
    StSet s;
    if (!st_open(&s, path, e)) return false;
    Piece *piece = MEM_NEW(Piece, 1);
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
        }
    }
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
