/* save.c - slots written back into files: trained weights in the formats others read, optimizer state bit for bit. */
#include <string.h>

#include "base/file.h"
#include "base/units.h"
#include "weights/weights.h"
#include "weights/weights_int.h"

void chosen_free(Chosen *c) {
    mem_free(c->id);
    mem_free(c->entry);
}

StTensor *chosen_add(Chosen *c, const Program *p, Tid id, const char *name, StDtype dtype) {
    const Tensor *t = prog_t(p, id);
    c->id = mem_grow(c->id, &c->capacity_id, c->n + 1, sizeof *c->id);
    c->entry = mem_grow(c->entry, &c->capacity_entry, c->n + 1, sizeof *c->entry);
    c->id[c->n] = id;
    StTensor *s = &c->entry[c->n++];
    *s = (StTensor){.name = name, .dtype = dtype, .rank = t->rank};
    for (int i = 0; i < t->rank; i++) s->dim[i] = t->dim[i];
    return s;
}

typedef struct Writing {
    StWriter *w;
    bool ok;
    Err *e;
} Writing;

static void write_piece(void *context, void *piece, int64_t at, int64_t bytes) {
    Writing *o = context;
    (void)at; /* comes from the first byte to the last */
    o->ok = o->ok && st_write_data(o->w, piece, bytes, o->e);
}

static bool stream_out(Exec *x, StWriter *w, const Chosen *c, Err *e) {
    Writing out = {w, true, e};
    for (int64_t i = 0; i < c->n && out.ok; i++) exec_fetch(x, c->id[i], write_piece, &out);
    return st_write_close(w, out.ok, e);
}

static void choose_role(Chosen *c, const Program *p, Role role) {
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = prog_t(p, id);
        if (t->role == role && t->file_name && !t->model) chosen_add(c, p, id, t->file_name, weights_dtype(t->format));
    }
}

bool weights_save(Exec *x, Role role, const char *folder, Err *e) {
    Chosen c = {0};
    choose_role(&c, x->p, role);
    StWriter *w;
    FilePath adapter = file_in(folder, "adapter_model.safetensors");
    bool ok = role == ROLE_ADAPTER ? st_write_begin(&w, adapter.s, c.entry, c.n, NULL, e)
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
            if (!weights_in_optimizer(t) || t->format != order[k]) continue;
            StTensor *s = chosen_add(c, p, id, t->name, weights_dtype(t->format));
            if (!format_table[t->format].plain) s->rank = 1, s->dim[0] = prog_bytes(p, id);
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

static bool is_summed(const Tensor *t, Role role) { return !t->base && t->role == role && !t->model; }

uint64_t weights_checksum(Exec *x, Role role) {
    Piece *piece = MEM_NEW(Piece, 1);
    uint64_t sum = 0;
    for (Tid id = 1; id < x->p->n_t; id++) {
        const Tensor *t = prog_t(x->p, id);
        if (!is_summed(t, role)) continue;
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

/* ---- a digest that all threads make ---- */

enum { DIGEST_BLOCK = 64 << 10, DIGEST_BLOCKS = 64 }; /* bytes hashed alone; of them at a time */

typedef struct Digest {
    uint64_t sum, of_block[DIGEST_BLOCKS];
    const char *data;
    int64_t bytes;
    Threads *team; /* owns; NULL: one thread */
} Digest;

static uint64_t mix(uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    return sum ^ sum >> 29;
}

uint64_t weights_digest_mix(uint64_t sum, uint64_t of_block) { return mix(sum, of_block); }

uint64_t weights_digest_block(const void *data, int64_t bytes) {
    const char *from = data;
    int64_t whole = bytes / 32 * 32;
    uint64_t lane[4] = {1, 2, 3, 4}, word[4] = {0};
    for (int64_t i = 0; i < whole; i += 32) {
        memcpy(word, from + i, sizeof word);
        for (int k = 0; k < 4; k++) lane[k] = mix(lane[k], word[k]);
    }
    memset(word, 0, sizeof word);
    memcpy(word, from + whole, (size_t)(bytes - whole));
    for (int k = 0; k < 4; k++) lane[k] = mix(lane[k], word[k]);
    return mix(mix(lane[0], lane[1]), mix(lane[2], lane[3]));
}

static void digest_block(void *context, int64_t block, int worker) {
    Digest *d = context;
    (void)worker;
    d->of_block[block] = weights_digest_block(d->data + block * DIGEST_BLOCK,
                                              MIN2(DIGEST_BLOCK, d->bytes - block * DIGEST_BLOCK));
}

static void digest_piece(void *context, void *piece, int64_t at, int64_t bytes) {
    Digest *d = context;
    (void)at;
    for (int64_t from = 0; from < bytes; from += DIGEST_BLOCKS * DIGEST_BLOCK) {
        d->data = (const char *)piece + from;
        d->bytes = MIN2(DIGEST_BLOCKS * DIGEST_BLOCK, bytes - from);
        int64_t blocks = (d->bytes + DIGEST_BLOCK - 1) / DIGEST_BLOCK;
        threads_for(d->team, blocks, digest_block, d);
        for (int64_t i = 0; i < blocks; i++) d->sum = mix(d->sum, d->of_block[i]);
    }
}

uint64_t weights_digest(Exec *x, Role role) {
    int64_t bytes = 0;
    for (Tid id = 1; id < x->p->n_t; id++)
        if (is_summed(prog_t(x->p, id), role)) bytes += prog_bytes(x->p, id);
    Digest d = {.team = weights_team(bytes)};
    for (Tid id = 1; id < x->p->n_t; id++)
        if (is_summed(prog_t(x->p, id), role)) exec_fetch(x, id, digest_piece, &d);
    threads_close(d.team);
    return d.sum;
}

Threads *weights_team(int64_t bytes) {
    enum { LARGE = 1 << 30, MOST = 16 };
    Threads *team = NULL;
    Err e = {0};
    int n = MIN2(threads_available(), MOST);
    if (bytes < LARGE || n < 2 || !threads_open(&team, n, &e)) return NULL; /* one thread does the same */
    return team;
}
