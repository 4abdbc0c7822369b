/* safetensors_write.c - how a header is laid out before its data exists, and how a stream of bytes is cut into
 * tensors and shards. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/stop.h"
#include "base/process.h"
#include "base/str.h"
#include "base/units.h"
#include "store/jsonfile.h"
#include "store/safetensors.h"

struct StWriter {
    Arena arena;          /* owns the writer's copies of names */
    StTensor *tensor;
    int64_t n;
    int64_t at_tensor;    /* the tensor being filled; n when all are complete */
    int64_t at_byte;      /* within it */
    char *folder;         /* NULL: a single file under `path` */
    char *path;
    json_t *metadata;     /* owns */
    int file, n_files;    /* the file being written */
    FileOut out;          /* open between two calls unless everything is complete */
    bool interruptible;
};

/* ---- limits ---- */

enum { HEADER_BYTES = 1 << 18 }; /* of a model of a hundred layers, and a little */

int64_t st_shard_bytes(void) {
    int64_t most = (int64_t)5 * 1000000000, limit = process_limits().file_bytes;
    return limit < 0 ? most : MIN2(most, MAX2(limit - HEADER_BYTES, 1));
}

/* The files of the plan against the limit on one. */
static bool check_limit(const StWriter *w, Err *e) {
    int64_t limit = process_limits().file_bytes, filled = 0;
    for (int64_t i = 0; i < w->n && limit >= 0; i++) {
        filled =
            i && w->tensor[i].file == w->tensor[i - 1].file ? filled + w->tensor[i].bytes : w->tensor[i].bytes;
        if (filled <= limit) continue;
        fail(e, ERR_BUDGET,
             "%s: a file of %s is to be written (with '%s'), and files may have %s (ulimit -f). Raise that limit",
             w->folder ? w->folder : w->path, units_bytes(filled).s, w->tensor[i].name, units_bytes(limit).s);
        if (e) e->error = EFBIG; /* as the system would say it: a run waits for the limit to be raised */
        return false;
    }
    return true;
}

bool st_shard_plan(StTensor *tensors, int64_t n, int64_t max_shard_bytes, int *n_files, Err *e) {
    int64_t filled = 0;
    int file = 0;
    for (int64_t i = 0; i < n; i++) {
        StTensor *t = &tensors[i];
        t->bytes = st_tensor_bytes(t);
        if (t->bytes < 0) return fail(e, ERR_FAIL, "tensor '%s': its shape is not a possible one", t->name);
        bool full = max_shard_bytes > 0 && filled > 0 && t->bytes > max_shard_bytes - filled;
        if (full) {
            file++;
            filled = 0;
        }
        if (file >= ST_MAX_FILES)
            return fail(e, ERR_FAIL, "shards of %lld bytes would make more than %d files: raise the limit",
                        (long long)max_shard_bytes, ST_MAX_FILES);
        t->file = file;
        filled = mem_add(filled, t->bytes);
        if (filled < 0) return fail(e, ERR_FAIL, "tensor '%s': the file would be too large", t->name);
    }
    *n_files = file + 1;
    return true;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool names_differ(const StTensor *t, int64_t n, Err *e) {
    const char **names = MEM_NEW(const char *, n);
    for (int64_t i = 0; i < n; i++) names[i] = t[i].name;
    qsort(names, (size_t)n, sizeof *names, by_text);
    bool ok = true;
    for (int64_t i = 1; ok && i < n; i++)
        if (!strcmp(names[i - 1], names[i])) ok = fail(e, ERR_FAIL, "tensor '%s' is declared twice", names[i]);
    mem_free(names);
    return ok;
}

static bool check_declared(const StTensor *t, int64_t n, Err *e) {
    for (int64_t i = 0; i < n; i++) {
        if (!t[i].name || !strcmp(t[i].name, "__metadata__"))
            return fail(e, ERR_FAIL, "tensor %lld has no usable name", (long long)i);
        if ((int)t[i].dtype < 0 || t[i].dtype >= ST_DTYPE_COUNT || t[i].rank < 0 || t[i].rank > ST_MAX_RANK)
            return fail(e, ERR_FAIL, "tensor '%s': no such dtype or rank", t[i].name);
    }
    return names_differ(t, n, e);
}

/* "format" comes first, unless the pairs have it elsewhere. NULL: some text is not UTF-8. */
static json_t *metadata_object(const char *const *pairs) {
    json_t *meta = json_object();
    bool has_format = false;
    for (int i = 0; pairs && pairs[i]; i += 2) has_format = has_format || !strcmp(pairs[i], "format");
    if (!has_format) jsonfile_set(&meta, "format", json_string("pt"));
    for (int i = 0; pairs && pairs[i]; i += 2) jsonfile_set(&meta, pairs[i], json_string(pairs[i + 1]));
    return meta;
}

static json_t *header_entry(const StTensor *t, int64_t begin) {
    json_t *entry = json_object(), *shape = json_array();
    for (int d = 0; d < t->rank; d++) json_array_append_new(shape, json_integer(t->dim[d]));
    jsonfile_set(&entry, "dtype", json_string(st_dtype_name(t->dtype)));
    jsonfile_set(&entry, "shape", shape);
    jsonfile_set(&entry, "data_offsets", json_pack("[I, I]", (json_int_t)begin, (json_int_t)(begin + t->bytes)));
    return entry;
}

/* The header of the current file. NULL: a name is not UTF-8. */
static json_t *header_object(const StWriter *w) {
    json_t *root = json_object();
    int64_t at = 0;
    jsonfile_set(&root, "__metadata__", json_incref(w->metadata));
    for (int64_t i = w->at_tensor; i < w->n && w->tensor[i].file == w->file; i++) {
        jsonfile_set(&root, w->tensor[i].name, header_entry(&w->tensor[i], at));
        at += w->tensor[i].bytes;
    }
    return root;
}

static bool check_alignment(const StWriter *w, Err *e) {
    int64_t at = 0;
    for (int64_t i = w->at_tensor; i < w->n && w->tensor[i].file == w->file; i++) {
        const StTensor *t = &w->tensor[i];
        if (at % st_dtype_bytes(t->dtype))
            return fail(e, ERR_FAIL,
                        "tensor '%s' (%s) would begin at byte %lld of the data, which readers cannot map: "
                        "declare wider types first",
                        t->name, st_dtype_name(t->dtype), (long long)at);
        at += t->bytes;
    }
    return true;
}

/* Length and header of the current file as they stand before its data. */
static bool header_text(Str *text, const StWriter *w, Err *e) {
    json_t *root = header_object(w);
    str_add_bytes(text, "\0\0\0\0\0\0\0\0", 8); /* the length, known below */
    bool ok = json_print(text, root, JSON_COMPACT);
    json_decref(root);
    if (!ok) return fail(e, ERR_FAIL, "%s: a tensor's name is not UTF-8", w->out.path);
    while (text->len % 8) str_add_char(text, ' '); /* so that the data area begins at a multiple of 8 */
    for (int i = 0; i < 8; i++) text->data[i] = (char)((uint64_t)(text->len - 8) >> (8 * i));
    return true;
}

static bool header_write(StWriter *w, Err *e) {
    Str text = {0};
    bool ok = header_text(&text, w, e) && file_write(w->out.fd, text.data, text.len, w->out.temporary, e);
    str_free(&text);
    return ok;
}

static void shard_name(char *out, size_t size, int file, int n_files) {
    if (n_files == 1) snprintf(out, size, "model.safetensors");
    else snprintf(out, size, "model-%05d-of-%05d.safetensors", file + 1, n_files);
}

static bool file_start(StWriter *w, Err *e) {
    char shard[64], path[1024];
    shard_name(shard, sizeof shard, w->file, w->n_files);
    int n = w->folder ? snprintf(path, sizeof path, "%s/%s", w->folder, shard)
                      : snprintf(path, sizeof path, "%s", w->path);
    if (n >= (int)sizeof path) return fail(e, ERR_FAIL, "%s: the path is too long", path);
    return check_alignment(w, e) && file_begin(&w->out, path, e) && header_write(w, e);
}

/* Steps over complete tensors (empty ones too) and over the borders between files. */
static bool move_on(StWriter *w, Err *e) {
    for (;;) {
        if (w->at_tensor < w->n && w->tensor[w->at_tensor].file == w->file) {
            if (w->at_byte < w->tensor[w->at_tensor].bytes) return true;
            w->at_tensor++;
            w->at_byte = 0;
            continue;
        }
        if (w->at_tensor == w->n) return true; /* the last file is closed by st_write_end */
        if (!file_commit(&w->out, e)) return false;
        w->file++;
        if (!file_start(w, e)) return false;
    }
}

static void writer_free(StWriter *w) {
    json_decref(w->metadata);
    arena_free(&w->arena);
    mem_free(w);
}

/* A writer that knows its files and has begun none; w: st_write_abort in either case. */
static bool writer_plan(StWriter **out, const char *folder, const char *path, const StTensor *tensors, int64_t n,
                        int64_t max_shard_bytes, const char *const *meta_pairs, Err *e) {
    *out = NULL;
    if (!check_declared(tensors, n, e)) return false;
    StWriter *w = *out = MEM_NEW(StWriter, 1);
    arena_init(&w->arena, "safetensors writer");
    w->out.fd = -1;
    w->n = n;
    w->tensor = ARENA_NEW(&w->arena, StTensor, n);
    for (int64_t i = 0; i < n; i++) {
        w->tensor[i] = tensors[i];
        w->tensor[i].name = arena_strdup(&w->arena, tensors[i].name);
    }
    w->folder = folder ? arena_strdup(&w->arena, folder) : NULL;
    w->path = path ? arena_strdup(&w->arena, path) : NULL;
    w->metadata = metadata_object(meta_pairs);
    bool ok = w->metadata || fail(e, ERR_FAIL, "%s: metadata is not UTF-8", folder ? folder : path);
    return ok && st_shard_plan(w->tensor, n, max_shard_bytes, &w->n_files, e);
}

static bool writer_begin(StWriter **out, const char *folder, const char *path, const StTensor *tensors, int64_t n,
                         int64_t max_shard_bytes, const char *const *meta_pairs, Err *e) {
    StWriter *w;
    bool ok = writer_plan(&w, folder, path, tensors, n, max_shard_bytes, meta_pairs, e) && check_limit(w, e) &&
              file_start(w, e) && move_on(w, e);
    if (!ok) st_write_abort(w);
    *out = ok ? w : NULL;
    return ok;
}

bool st_write_begin(StWriter **w, const char *path, const StTensor *tensors, int64_t n,
                    const char *const *meta_pairs, Err *e) {
    return writer_begin(w, NULL, path, tensors, n, 0, meta_pairs, e);
}

bool st_write_folder_begin(StWriter **w, const char *folder, const StTensor *tensors, int64_t n,
                           int64_t max_shard_bytes, const char *const *meta_pairs, Err *e) {
    return writer_begin(w, folder, NULL, tensors, n, max_shard_bytes, meta_pairs, e);
}

void st_write_interruptible(StWriter *w) {
    w->interruptible = true;
}

bool st_write_data(StWriter *w, const void *data, int64_t bytes, Err *e) {
    if (w->interruptible && !stop_check(e)) return false;
    for (const char *from = data; bytes > 0;) {
        if (w->at_tensor == w->n)
            return fail(e, ERR_FAIL, "%s: %lld bytes more than declared", w->out.path, (long long)bytes);
        int64_t part = MIN2(bytes, w->tensor[w->at_tensor].bytes - w->at_byte);
        if (!file_write(w->out.fd, from, part, w->out.temporary, e)) return false;
        from += part;
        bytes -= part;
        w->at_byte += part;
        if (!move_on(w, e)) return false;
    }
    return true;
}

static json_t *index_object(const StWriter *w) {
    char shard[64];
    int64_t total = 0;
    json_t *map = json_object(), *meta = json_object(), *root = json_object();
    for (int64_t i = 0; i < w->n; i++) {
        shard_name(shard, sizeof shard, w->tensor[i].file, w->n_files);
        jsonfile_set(&map, w->tensor[i].name, json_string(shard));
        total += w->tensor[i].bytes;
    }
    jsonfile_set(&meta, "total_size", json_integer(total));
    jsonfile_set(&root, "metadata", meta);
    jsonfile_set(&root, "weight_map", map);
    return root;
}

static bool index_write(const StWriter *w, Err *e) {
    char path[1100];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", w->folder);
    json_t *root = index_object(w);
    bool ok = jsonfile_write(path, root, e);
    json_decref(root);
    return ok;
}

static void add_size(StSizes *s, int64_t bytes) {
    s->bytes += bytes;
    s->largest = MAX2(s->largest, bytes);
    s->files++;
}

bool st_write_sizes(StSizes *sizes, const StTensor *tensors, int64_t n, bool folder, int64_t max_shard_bytes,
                    Err *e) {
    StWriter *w;
    Str text = {0};
    *sizes = (StSizes){0};
    bool ok = writer_plan(&w, folder ? "" : NULL, "", tensors, n, max_shard_bytes, NULL, e);
    for (; ok && w->file < w->n_files; w->file++) {
        str_clear(&text);
        if (!(ok = header_text(&text, w, e))) break;
        int64_t bytes = text.len;
        for (; w->at_tensor < n && w->tensor[w->at_tensor].file == w->file; w->at_tensor++)
            bytes += w->tensor[w->at_tensor].bytes;
        add_size(sizes, bytes);
    }
    if (ok && w->n_files > 1) add_size(sizes, jsonfile_bytes(index_object(w)));
    str_free(&text);
    if (w) writer_free(w);
    return ok;
}

bool st_write_end(StWriter *w, Err *e) {
    bool ok = w->at_tensor == w->n;
    if (!ok) {
        const StTensor *t = &w->tensor[w->at_tensor];
        fail(e, ERR_FAIL, "%s: tensor '%s' received %lld of its %lld bytes", w->out.path, t->name,
             (long long)w->at_byte, (long long)t->bytes);
    }
    ok = ok && file_commit(&w->out, e);
    if (ok) w->file++; /* from here on the last shard stands under its name */
    ok = ok && (w->n_files == 1 || index_write(w, e));
    if (ok) writer_free(w);
    else st_write_abort(w);
    return ok;
}

bool st_write_close(StWriter *w, bool ok, Err *e) {
    if (ok) return st_write_end(w, e);
    st_write_abort(w);
    return false;
}

void st_write_abort(StWriter *w) {
    if (!w) return;
    file_abort(&w->out);
    char path[1100], shard[64];
    for (int i = 0; w->folder && w->n_files > 1 && i < w->file; i++) { /* shards already under their names */
        shard_name(shard, sizeof shard, i, w->n_files);
        snprintf(path, sizeof path, "%s/%s", w->folder, shard);
        file_remove_tree(path, NULL);
    }
    writer_free(w);
}
