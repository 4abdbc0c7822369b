/* save.c - slots back into files: trained weights as others read them, the optimizer's state bit for bit. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "weights/weights.h"
#include "weights/weights_int.h"

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
    *s = (StTensor){.name = name, .dtype = weights_dtype(t->format), .rank = t->rank};
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
        if (p->t[id].role == role && p->t[id].file_name && !p->t[id].model) choose(c, p, id, p->t[id].file_name, false);
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

static void choose_optimizer(Chosen *c, const Program *p) {
    static const Format order[] = {FMT_F32, FMT_BF16, FMT_MOM8,
                                   FMT_VAR8}; /* wide ones first: they must be aligned */
    for (int k = 0; k < COUNT_OF(order); k++)
        for (Tid id = 1; id < p->n_t; id++) {
            const Tensor *t = prog_t(p, id);
            if (weights_in_optimizer(t) && t->format == order[k])
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

uint64_t weights_checksum(Exec *x, Role role) {
    Piece *piece = MEM_NEW(Piece, 1);
    uint64_t sum = 0;
    for (Tid id = 1; id < x->p->n_t; id++) {
        const Tensor *t = prog_t(x->p, id);
        if (t->base || t->role != role || t->model) continue;
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
