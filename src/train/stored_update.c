/* stored_update.c - how an update is taken from two states, tile by tile, and read back. */
#include "train/stored_update.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "weights/weights.h"

static const struct {
    const char *name;
    Format format;
} formats[] = {{"fp32", FMT_F32}, {"bf16", FMT_BF16}, {"int8", FMT_MOM8}};

bool stored_format(Format *f, const char *name) {
    for (int i = 0; i < COUNT_OF(formats); i++) {
        if (strcmp(name, formats[i].name)) continue;
        *f = formats[i].format;
        return true;
    }
    return false;
}

const char *stored_format_name(Format f) {
    for (int i = 0; i < COUNT_OF(formats); i++)
        if (formats[i].format == f) return formats[i].name;
    return "";
}

/* ---- layout ---- */

static int64_t tile_bytes(Format f, int64_t n) { return format_bytes(f, n, 1); }

static int64_t tensor_bytes(Format f, int64_t count) {
    int64_t whole = count / STORED_TILE, rest = count % STORED_TILE;
    return whole * tile_bytes(f, STORED_TILE) + (rest ? tile_bytes(f, rest) : 0);
}

static Tid theta_of(const Program *p, Tid weight) {
    char name[160];
    snprintf(name, sizeof name, "%s.master", p->t[weight].name);
    Tid master = prog_find(p, name);
    return master ? master : weight;
}

static void lay_out_tensor(StoredUpdate *s, const Program *p, Tid weight) {
    StoredTensor *t = &s->tensor[s->n];
    StTensor *entry = &s->entry[s->n++];
    *t = (StoredTensor){.theta = theta_of(p, weight), .count = prog_elements(p, weight),
                        .at = s->image_bytes, .before = s->before_bytes, .first_tile = s->tiles};
    int64_t bytes = tensor_bytes(s->format, t->count);
    bool plain = format_table[s->format].plain;
    *entry = (StTensor){.name = p->t[weight].name, .rank = 1, .bytes = bytes};
    entry->dtype = s->format == FMT_F32 ? ST_F32 : s->format == FMT_BF16 ? ST_BF16 : ST_U8;
    entry->dim[0] = plain ? t->count : bytes;
    s->image_bytes += bytes;
    s->before_bytes += prog_bytes(p, t->theta);
    s->tiles += (t->count + STORED_TILE - 1) / STORED_TILE;
}

void stored_lay_out(StoredUpdate *s, const Program *p, Format f) {
    int n = 0;
    for (Tid t = 1; t < p->n_t; t++) n += p->t[t].trainable && !p->t[t].base;
    *s = (StoredUpdate){.format = f, .tensor = MEM_NEW(StoredTensor, n), .entry = MEM_NEW(StTensor, n)};
    for (Tid t = 1; t < p->n_t; t++)
        if (p->t[t].trainable && !p->t[t].base) lay_out_tensor(s, p, t);
}

void stored_free(StoredUpdate *s) {
    mem_free(s->tensor);
    mem_free(s->entry);
    mem_free(s->before);
    mem_free(s->image);
    mem_free(s->tile);
    *s = (StoredUpdate){0};
}

int64_t stored_host_bytes(const StoredUpdate *s) {
    return s->before_bytes + s->image_bytes + s->tiles * (int64_t)sizeof(StoredTile);
}

bool stored_file_bytes(const StoredUpdate *s, int64_t *bytes, Err *e) {
    StSizes sizes;
    if (!st_write_sizes(&sizes, s->entry, s->n, false, 0, e)) return false;
    *bytes = sizes.bytes;
    return true;
}

static StoredTile sum_tiles(const StoredTile *tile, int64_t n) {
    StoredTile all = {0};
    for (int64_t i = 0; i < n; i++) {
        all.digest = weights_digest_mix(all.digest, tile[i].digest);
        all.uu += tile[i].uu;
        all.dd += tile[i].dd;
    }
    return all;
}

/* ---- taking ---- */

typedef struct Taking {
    StoredUpdate *s;
    const StoredTensor *t;
    Threads *team; /* NULL: one thread */
    Format theta;
    int64_t item;
    bool begins; /* nothing stands before */
    const char *piece;
    int64_t at, n; /* its numbers */
} Taking;

/* Numbers close to each other: in fp32, as a replay takes the difference. */
static void take_tile(void *context, int64_t number, int worker) {
    const Taking *k = context;
    StoredUpdate *s = k->s;
    float u[STORED_TILE], was[STORED_TILE];
    int64_t from = number * STORED_TILE, n = MIN2(STORED_TILE, k->n - from), tile = (k->at + from) / STORED_TILE;
    const char *now = k->piece + from * k->item;
    char *before = s->before + k->t->before + (k->at + from) * k->item;
    char *to = s->image + k->t->at + tile * tile_bytes(s->format, STORED_TILE);
    StoredTile *found = &s->tile[k->t->first_tile + tile];
    (void)worker;
    *found = (StoredTile){0};
    format_table[k->theta].decode(u, now, n, 1, 0, n);
    format_table[k->theta].decode(was, before, n, 1, 0, n);
    memcpy(before, now, (size_t)(n * k->item));
    for (int64_t i = 0; i < n; i++) u[i] -= was[i];
    format_table[s->format].encode(to, u, n, 1, 0, n);
    format_table[s->format].decode(was, to, n, 1, 0, n);
    for (int64_t i = 0; i < n; i++) {
        double off = (double)u[i] - (double)was[i];
        found->uu += (double)u[i] * (double)u[i];
        found->dd += off * off;
    }
    found->digest = weights_digest_block(to, tile_bytes(s->format, n));
}

static void take_piece(void *context, void *piece, int64_t at, int64_t bytes) {
    Taking *k = context;
    k->piece = piece;
    k->at = at / k->item;
    k->n = bytes / k->item;
    if (k->begins) {
        memcpy(k->s->before + k->t->before + at, piece, (size_t)bytes);
        return;
    }
    CHECK(k->at % STORED_TILE == 0);
    int64_t tiles = (k->n + STORED_TILE - 1) / STORED_TILE;
    threads_for(k->team, tiles, take_tile, k);
}

static void take_all(StoredUpdate *s, Exec *x, bool begins) {
    Taking k = {.s = s, .team = begins ? NULL : weights_team(s->before_bytes), .begins = begins};
    for (int i = 0; i < s->n; i++) {
        k.t = &s->tensor[i];
        k.theta = prog_t(x->p, k.t->theta)->format;
        k.item = format_item_bytes(k.theta);
        exec_fetch(x, k.t->theta, take_piece, &k);
    }
    threads_close(k.team);
}

void stored_begin(StoredUpdate *s, Exec *x) {
    s->before = mem_alloc_wide(s->before_bytes);
    s->image = mem_alloc_wide(s->image_bytes);
    s->tile = MEM_NEW(StoredTile, s->tiles);
    take_all(s, x, true);
}

HistoryUpdate stored_take(StoredUpdate *s, Exec *x, int64_t step) {
    take_all(s, x, false);
    StoredTile all = sum_tiles(s->tile, s->tiles);
    HistoryUpdate u = {.step = step, .norm = sqrt(all.uu), .error = all.uu > 0 ? sqrt(all.dd / all.uu) : 0,
                       .checksum = all.digest};
    snprintf(u.format, sizeof u.format, "%s", stored_format_name(s->format));
    return u;
}

bool stored_write(const StoredUpdate *s, const char *path, Err *e) {
    StWriter *w;
    bool ok = true;
    if (!st_write_begin(&w, path, s->entry, s->n, NULL, e)) return false;
    for (int i = 0; ok && i < s->n; i++) ok = st_write_data(w, s->image + s->tensor[i].at, s->entry[i].bytes, e);
    return st_write_close(w, ok, e);
}

/* ---- reading ---- */

static bool find_tensors(StoredSource *s, Err *e) {
    s->found = MEM_NEW(const StTensor *, s->layout.n);
    for (int i = 0; i < s->layout.n; i++) {
        const StTensor *want = &s->layout.entry[i], *has = s->found[i] = st_find(&s->set, want->name);
        if (!has || has->dtype != want->dtype || has->rank != 1 || has->dim[0] != want->dim[0])
            return fail(e, ERR_FAIL, "%s: holds no %s of %" PRId64 " numbers: it is no update of this run", s->path,
                        want->name, s->layout.tensor[i].count);
    }
    return true;
}

bool stored_open(StoredSource *s, const Program *p, const char *folder, const HistoryUpdate *known, Err *e) {
    Format f;
    *s = (StoredSource){.known = *known};
    if (!history_update_path(s->path, sizeof s->path, folder, known->step, e)) return false;
    if (!stored_format(&f, known->format))
        return fail(e, ERR_FAIL, "%s: is of format %s, which this build does not know", s->path, known->format);
    if (!st_open(&s->set, s->path, e)) return fail_within(e, "step log %s: update %" PRId64, folder, known->step);
    stored_lay_out(&s->layout, p, f);
    s->layout.tile = MEM_NEW(StoredTile, s->layout.tiles);
    if (find_tensors(s, e)) return true;
    stored_close(s);
    return false;
}

void stored_close(StoredSource *s) {
    st_close(&s->set);
    mem_free(s->found);
    stored_free(&s->layout);
}

typedef struct Reading {
    StoredSource *s;
    int tensor;
    StoredFn *fn;
    void *context;
    _Atomic bool refused; /* a thread was */
} Reading;

static bool read_tile(Reading *r, int64_t tile, Err *e) {
    StoredUpdate *s = &r->s->layout;
    const StoredTensor *t = &s->tensor[r->tensor];
    _Alignas(float) char raw[STORED_TILE_BYTES];
    float u[STORED_TILE];
    int64_t from = tile * STORED_TILE, n = MIN2(STORED_TILE, t->count - from), bytes = tile_bytes(s->format, n);
    if (!st_read(&r->s->set, r->s->found[r->tensor], raw, tile * tile_bytes(s->format, STORED_TILE), bytes, e))
        return false;
    s->tile[t->first_tile + tile].digest = weights_digest_block(raw, bytes);
    format_table[s->format].decode(u, raw, n, 1, 0, n);
    r->fn(r->context, r->tensor, tile, from, u, n);
    return true;
}

static void read_tile_of_team(void *context, int64_t tile, int worker) {
    Reading *r = context;
    Err e = {0};
    (void)worker;
    if (!read_tile(r, tile, &e)) r->refused = true;
}

static bool read_tensor(Reading *r, Threads *team, Err *e) {
    int64_t tiles = (r->s->layout.tensor[r->tensor].count + STORED_TILE - 1) / STORED_TILE;
    if (team) threads_for(team, tiles, read_tile_of_team, r);
    if (r->refused) return fail(e, ERR_FAIL, "%s: could not be read to its end", r->s->path);
    for (int64_t i = 0; i < tiles && !team; i++)
        if (!read_tile(r, i, e)) return false;
    return true;
}

bool stored_read(StoredSource *s, Threads *team, StoredFn *fn, void *context, Err *e) {
    Reading r = {.s = s, .fn = fn, .context = context};
    for (r.tensor = 0; r.tensor < s->layout.n; r.tensor++)
        if (!read_tensor(&r, team, e)) return false;
    return sum_tiles(s->layout.tile, s->layout.tiles).digest == s->known.checksum ||
           fail(e, ERR_FAIL, "%s: these are not the bytes that were logged. Was the file changed?", s->path);
}
