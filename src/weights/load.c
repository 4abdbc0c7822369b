/* load.c - which bytes of a file belong in which slot. */
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/work.h"
#include "weights/weights_int.h"

enum { READ_BYTES = 64 << 20 /* of a slot at a time */, TILE_BYTES = 512 << 10 /* of these, by a thread at a time */ };

typedef struct Loading { /* the tensors of a folder on their way into their slots */
    Exec *x;
    StSet s;
    Piece *piece; /* owns */
    Tid id;       /* the tensor at hand */
    int64_t done; /* bytes of slots filled before it */
    Threads *team; /* owns; NULL: one thread reads */
    const StTensor *f; /* what is read straight into the slot ... */
    char *to;          /* ... there ... */
    int64_t at, bytes; /* ... of it */
    _Atomic bool refused; /* a thread was */
    bool ok;
    Err *e;
    Work work;
} Loading;

static void read_tile(void *context, int64_t tile, int worker) {
    Loading *l = context;
    Err e = {0};
    int64_t at = tile * TILE_BYTES;
    (void)worker;
    if (!st_read(&l->s, l->f, l->to + at, l->at + at, MIN2(TILE_BYTES, l->bytes - at), &e)) l->refused = true;
}

/* By all threads; what they are refused is asked for once more, to say why. */
static bool read_stretch(Loading *l, char *to, int64_t at, int64_t bytes) {
    l->to = to;
    l->at = at;
    l->bytes = bytes;
    if (l->team) threads_for(l->team, (bytes + TILE_BYTES - 1) / TILE_BYTES, read_tile, l);
    if ((!l->team || l->refused) && !st_read(&l->s, l->f, to, at, bytes, l->e)) return false;
    l->refused = false;
    return work_on(&l->work, l->done + at + bytes, l->e);
}

static void read_piece(void *context, void *piece, int64_t at, int64_t bytes) {
    Loading *l = context;
    for (int64_t from = 0; from < bytes && l->ok; from += READ_BYTES)
        l->ok = read_stretch(l, (char *)piece + from, at + from, MIN2(READ_BYTES, bytes - from));
}

/* The same bytes, into the slot or the device's staging memory. */
static bool load_bytes(Loading *l, const StTensor *f, Err *e) {
    l->f = f;
    l->e = e;
    l->ok = true;
    exec_store(l->x, l->id, read_piece, l);
    return l->ok;
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
    if (as_it_is && base->home.pool == POOL_DISK && base->in_file) return link_one(l, &from, e);
    if (!as_it_is || !format_table[t->format].plain) return convert_one(l, &from, put_in_slot, e);
    return load_bytes(l, from.f, e);
}

static bool is_of(const Tensor *t, const char *model) {
    return model ? t->model && !strcmp(t->model, model) : !t->model;
}

/* A tensor that no step reads has no place: the head of a model whose hidden states are all that is looked at. */
static bool is_loaded(const Program *p, Tid id, const char *model, Role role) {
    const Tensor *t = prog_t(p, id);
    return t->role == role && t->file_name && is_of(t, model) && prog_t(p, prog_base(p, id))->offset >= 0;
}

static int64_t bytes_to_load(const Program *p, const char *model, Role role) {
    int64_t sum = 0;
    for (Tid id = 1; id < p->n_t; id++)
        if (is_loaded(p, id, model, role)) sum += prog_bytes(p, id);
    return sum;
}

bool weights_load(Exec *x, const char *model, Role role, const char *folder, Err *e) {
    Loading l = {.x = x};
    if (!st_open(&l.s, folder, e)) return false;
    l.piece = MEM_NEW(Piece, 1);
    l.team = weights_team(bytes_to_load(x->p, model, role));
    work_begin(&l.work, WORK_BYTES, bytes_to_load(x->p, model, role), "loading %s", folder);
    bool ok = true;
    for (l.id = 1; l.id < x->p->n_t && ok; l.id++) {
        if (!is_loaded(x->p, l.id, model, role)) continue;
        ok = load_one(&l, e);
        l.done += prog_bytes(x->p, l.id);
    }
    work_end(&l.work);
    threads_close(l.team);
    mem_free(l.piece);
    st_close(&l.s);
    return ok;
}

void weights_start_masters(Exec *x) {
    Piece *piece = MEM_NEW(Piece, 1);
    for (Tid master = 1; master < x->p->n_t; master++) {
        if (x->p->t[master].role != ROLE_MASTER || x->p->t[master].base) continue;
        char name[128]; /* "layers.3.qkv_w.master" is the twin of "layers.3.qkv_w" */
        snprintf(name, sizeof name, "%.*s", (int)(strlen(x->p->t[master].name) - strlen(".master")),
                 x->p->t[master].name);
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
    Work work;
    int64_t done = 0;
    work_begin(&work, WORK_BYTES, s.total_bytes, "loading %s", path);
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
            ok = ok && work_on(&work, done + at + m, e);
        }
        done += bytes;
    }
    work_end(&work);
    mem_free(piece);
    st_close(&s);
    return ok;
}
