/* load.c - which bytes of a file belong in which slot. */
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

#include "weights/weights_int.h"

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
    if (as_it_is && base->home.pool == POOL_DISK && base->in_file) return link_one(x, id, &from, piece, e);
    if (!as_it_is || !format_table[t->format].plain)
        return source_convert(&from, piece, t->format, prog_elements(x->p, id), prog_cols(x->p, id), put_in_slot,
                              &(Slot){x, id}, e);
    if (exec_is_touchable(x, id)) return st_read(s, from.f, exec_address(x, id), 0, from.f->bytes, e);
    return load_bytes(x, id, s, from.f, piece, e);
}

static bool is_of(const Tensor *t, const char *model) {
    return model ? t->model && !strcmp(t->model, model) : !t->model;
}

bool weights_load(Exec *x, const char *model, Role role, const char *folder, Err *e) {
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

bool weights_load_optimizer(Exec *x, const char *path, Err *e) {
    StSet s;
    if (!st_open(&s, path, e)) return false;
    Piece *piece = MEM_NEW(Piece, 1);
    bool ok = true;
    for (Tid id = 1; id < x->p->n_t && ok; id++) {
        const Tensor *t = prog_t(x->p, id);
        if (!weights_in_optimizer(t)) continue;
        const StTensor *f = st_find(&s, t->name);
        int64_t bytes = prog_bytes(x->p, id);
        if (!f || f->bytes != bytes || f->dtype != weights_dtype(t->format)) {
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
