/* source.c - which formats a weight may have in a file, and the check that quantising never hides a number that is not
 * finite. */
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "weights/weights_int.h"

static bool format_of(StDtype d, Format *f) {
    switch (d) {
        case ST_F32: *f = FMT_F32; return true;
        case ST_BF16: *f = FMT_BF16; return true;
        case ST_F16: *f = FMT_F16; return true;
        case ST_F64: *f = FMT_F64; return true;
        default: return false;
    }
}

static const StTensor *find_in_file(const StSet *s, const char *name) {
    const StTensor *t = st_find(s, name);
    if (!t && str_starts(name, "model.")) t = st_find(s, name + 6); /* saved without the head's wrapper */
    return t;
}

static bool check_shape(const Source *o, int have_rank, const int64_t *have_dim, int rank, const int64_t *dim, Err *e) {
    bool same = have_rank == rank;
    for (int i = 0; same && i < rank; i++) same = have_dim[i] == dim[i];
    if (same) return true;
    Str have = {0}, want = {0};
    for (int i = 0; i < have_rank; i++) str_addf(&have, i ? ",%lld" : "%lld", (long long)have_dim[i]);
    for (int i = 0; i < rank; i++) str_addf(&want, i ? ",%lld" : "%lld", (long long)dim[i]);
    fail(e, ERR_FAIL, "%s: %s is (%s), config.json makes it (%s). Do config and weights belong together?",
         o->s->path[o->f->file], o->f->name, str_text(&have), str_text(&want));
    str_free(&have);
    str_free(&want);
    return false;
}

/* Bytes: codes by bitsandbytes, or rows quantised by us. */
static bool open_coded(Source *o, int rank, const int64_t *dim, Err *e) {
    bool in_layer = strstr(o->f->name, "layers.") != NULL;
    const char *path = o->s->path[o->f->file], *ours = st_meta(o->s, in_layer ? QUANTISED_KEY : QUANTISED_HEAD_KEY);
    if (bnb_is_nf4(o->s, o->f)) {
        o->is_bnb = true;
        o->format = FMT_F32;
        return bnb_open(&o->bnb, o->s, o->f, e) && check_shape(o, o->bnb.rank, o->bnb.dim, rank, dim, e);
    }
    if (!ours || rank != 2)
        return fail(
            e, ERR_FAIL,
            "%s: %s has dtype %s, which is not a weight's. Quantised weights are read as bitsandbytes nf4 or as "
            "written by snug quantize",
            path, o->f->name, st_dtype_name(o->f->dtype));
    if (strcmp(ours, format_name(FMT_INT8)) && strcmp(ours, format_name(FMT_NF4)))
        return fail(e, ERR_FAIL, "%s: holds rows of '%s', which is not a format of this version", path, ours);
    o->format = strcmp(ours, format_name(FMT_NF4)) ? FMT_INT8 : FMT_NF4;
    const int64_t coded[] = {dim[0], format_row_bytes(o->format, dim[1])};
    return check_shape(o, o->f->rank, o->f->dim, 2, coded, e);
}

bool source_open(Source *o, const StSet *s, const char *name, int rank, const int64_t *dim, Err *e) {
    *o = (Source){.s = s, .f = find_in_file(s, name)};
    if (!o->f) return fail(e, ERR_FAIL, "%s: has no tensor '%s' that config.json asks for", s->path[0], name);
    if (o->f->dtype == ST_U8) return open_coded(o, rank, dim, e);
    if (!check_shape(o, o->f->rank, o->f->dim, rank, dim, e)) return false;
    return format_of(o->f->dtype, &o->format) || fail(e, ERR_FAIL, "%s: %s has dtype %s, which is not a weight's",
                                                      s->path[o->f->file], o->f->name, st_dtype_name(o->f->dtype));
}

static bool not_finite(const Source *o, int64_t row, Format to, Err *e) {
    return fail(e, ERR_FAIL,
                "%s: %s holds a number that is not finite in row %lld; %s would hide it. Is the file damaged?",
                o->s->path[o->f->file], o->f->name, (long long)row, format_name(to));
}

/* Rows that are already quantised as they shall be: the bytes, once their scales are seen to be sound. */
static bool pass_rows(const Source *o, Piece *piece, int64_t n, int64_t cols, SinkFn *sink, void *context, Err *e) {
    int64_t row_bytes = format_row_bytes(o->format, cols), scale = format_row_scale(o->format, cols);
    int64_t rows = n / cols, step = (int64_t)sizeof piece->raw / row_bytes;
    for (int64_t r = 0; r < rows; r += step) {
        int64_t m = MIN2(step, rows - r);
        if (!st_read(o->s, o->f, piece->raw, r * row_bytes, m * row_bytes, e)) return false;
        for (int64_t i = 0; i < m; i++) {
            float s;
            memcpy(&s, piece->raw + i * row_bytes + scale, 4);
            if (!isfinite(s)) return not_finite(o, r + i, o->format, e);
        }
        if (!sink(context, piece->raw, r * row_bytes, m * row_bytes, e)) return false;
    }
    return true;
}

static bool read_values(const Source *o, Piece *piece, int64_t at, int64_t n, Err *e) {
    if (o->is_bnb) return bnb_read(&o->bnb, piece->value, at, n, e);
    int64_t item = format_item_bytes(o->format);
    if (!st_read(o->s, o->f, piece->raw, at * item, n * item, e)) return false;
    format_table[o->format].decode(piece->value, piece->raw, 1, n, 0, 1);
    return true;
}

bool source_convert(const Source *o, Piece *piece, Format to, int64_t n, int64_t cols, SinkFn *sink, void *context,
                    Err *e) {
    bool plain = format_table[to].plain;
    if (plain) cols = MIN2(n, PIECE);
    if (cols > PIECE)
        return fail(e, ERR_FAIL, "%s: a row of %lld numbers cannot be stored as %s; at most %d", o->f->name,
                    (long long)cols, format_name(to), PIECE);
    if (!format_table[o->format].plain && o->format == to) return pass_rows(o, piece, n, cols, sink, context, e);
    if (!format_table[o->format].plain)
        return fail(e, ERR_FAIL,
                    "%s: %s is stored as %s and cannot become %s; begin from the model before it was quantised",
                    o->s->path[o->f->file], o->f->name, format_name(o->format), format_name(to));
    for (int64_t i = 0, step = PIECE / cols * cols; i < n; i += step) {
        int64_t m = MIN2(step, n - i), rows = plain ? 1 : m / cols, width = plain ? m : cols;
        if (!read_values(o, piece, i, m, e)) return false;
        for (int64_t k = 0; k < m && !plain; k++)
            if (!isfinite(piece->value[k])) return not_finite(o, (i + k) / cols, to, e);
        if (!plain)
            memset(piece->raw, 0, (size_t)format_bytes(to, rows, width)); /* what pads a row is the same every time */
        format_table[to].encode(piece->raw, piece->value, rows, width, 0, rows);
        int64_t at = plain ? i * format_item_bytes(to) : i / cols * format_row_bytes(to, cols);
        if (!sink(context, piece->raw, at, format_bytes(to, rows, width), e)) return false;
    }
    return true;
}
