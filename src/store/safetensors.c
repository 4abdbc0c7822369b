/* safetensors.c - what makes a safetensors header trustworthy, and where each tensor's bytes lie.
 *
 * A header is believed only when
 *   S1  its length fits the file and is at most HEADER_LIMIT,
 *   S2  it is one JSON object without repeated keys,
 *   S3  each entry has a known dtype, at most ST_MAX_RANK dimensions, and as many bytes as its shape says,
 *   S4  the entries, sorted by place, cover the data area exactly: no overlap, no hole, no rest.
 * No allocation is larger than a small multiple of the file's own header. */
#include "store/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "store/jsonfile.h"

#define HEADER_LIMIT ((int64_t)100000000)
#define INDEX_NAME "model.safetensors.index.json"

static const struct {
    const char *name;
    int bytes;
} dtypes[ST_DTYPE_COUNT] = {
    [ST_F64] = {"F64", 8},         [ST_F32] = {"F32", 4},         [ST_F16] = {"F16", 2}, [ST_BF16] = {"BF16", 2},
    [ST_I64] = {"I64", 8},         [ST_I32] = {"I32", 4},         [ST_I16] = {"I16", 2}, [ST_I8] = {"I8", 1},
    [ST_U8] = {"U8", 1},           [ST_BOOL] = {"BOOL", 1},       [ST_U64] = {"U64", 8}, [ST_U32] = {"U32", 4},
    [ST_U16] = {"U16", 2},         [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_F8_E5M2] = {"F8_E5M2", 1},
};

const char *st_dtype_name(StDtype dtype) { return dtypes[dtype].name; }

int st_dtype_bytes(StDtype dtype) { return dtypes[dtype].bytes; }

static bool find_dtype(const char *name, StDtype *dtype) { /* false: not one of ours */
    for (int i = 0; i < ST_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name)) continue;
        *dtype = (StDtype)i;
        return true;
    }
    return false;
}

int64_t st_tensor_bytes(const StTensor *t) {
    int64_t bytes = 1;
    for (int i = 0; i < t->rank; i++) bytes = mem_mul(bytes, t->dim[i]);
    return mem_mul(bytes, st_dtype_bytes(t->dtype));
}

static bool entry_shape(StTensor *t, const json_t *shape, const char *path, Err *e) {
    if (!json_is_array(shape)) return fail(e, ERR_FAIL, "%s: tensor '%s' has no shape", path, t->name);
    if (json_array_size(shape) > ST_MAX_RANK)
        return fail(e, ERR_FAIL, "%s: tensor '%s' has %zu dimensions, at most %d are supported", path, t->name,
                    json_array_size(shape), ST_MAX_RANK);
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return fail(e, ERR_FAIL, "%s: tensor '%s': dimension %d is not a whole number", path, t->name, i);
        t->dim[i] = json_integer_value(d);
    }
    return true;
}

/* Leaves t->offset within the data area. */
static bool entry_range(StTensor *t, const json_t *range, int64_t data_bytes, const char *path, Err *e) {
    const json_t *begin = json_array_get(range, 0), *end = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fail(e, ERR_FAIL, "%s: tensor '%s': data_offsets must be two whole numbers", path, t->name);
    int64_t from = json_integer_value(begin), to = json_integer_value(end), want = st_tensor_bytes(t);
    if (from < 0 || to < from || to > data_bytes)
        return fail(e, ERR_FAIL,
                    "%s: tensor '%s' lies at bytes %lld to %lld of a data area of %lld. "
                    "Was the copy cut short?",
                    path, t->name, (long long)from, (long long)to, (long long)data_bytes);
    if (want < 0) return fail(e, ERR_FAIL, "%s: tensor '%s': its shape is too large", path, t->name);
    if (want != to - from)
        return fail(e, ERR_FAIL, "%s: tensor '%s': its shape takes %lld bytes, its data_offsets %lld", path,
                    t->name, (long long)want, (long long)(to - from));
    t->offset = from;
    t->bytes = want;
    return true;
}

static bool entry_read(StTensor *t, const json_t *entry, int64_t data_bytes, const char *path, Err *e) {
    if (!json_is_object(entry)) return fail(e, ERR_FAIL, "%s: tensor '%s' is not an object", path, t->name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return fail(e, ERR_FAIL, "%s: tensor '%s' has no dtype", path, t->name);
    if (!find_dtype(dtype, &t->dtype))
        return fail(e, ERR_FAIL, "%s: tensor '%s': dtype '%s' is not supported", path, t->name, dtype);
    return entry_shape(t, json_object_get(entry, "shape"), path, e) &&
           entry_range(t, json_object_get(entry, "data_offsets"), data_bytes, path, e);
}

static bool metadata_read(StSet *s, const json_t *meta, const char *path, Err *e) {
    if (json_is_null(meta)) return true;
    if (!json_is_object(meta)) return fail(e, ERR_FAIL, "%s: __metadata__ is not an object", path);
    bool keep = s->n_files == 1; /* of the first file */
    if (keep) s->meta = ARENA_NEW(&s->arena, StPair, (int64_t)json_object_size(meta));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)meta, key, value) {
        if (!json_is_string(value)) return fail(e, ERR_FAIL, "%s: __metadata__ '%s' is not text", path, key);
        if (keep)
            s->meta[s->n_meta++] = (StPair){arena_strdup(&s->arena, key),
                                            arena_strdup(&s->arena, json_string_value(value))};
    }
    return true;
}

static int by_place(const void *va, const void *vb) {
    const StTensor *a = va, *b = vb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool check_coverage(const StTensor *t, int64_t n, int64_t data_bytes, const char *path, Err *e) { /* S4 */
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (t[i].offset < at)
            return fail(e, ERR_FAIL, "%s: tensor '%s' overlaps the one before it", path, t[i].name);
        if (t[i].offset > at)
            return fail(e, ERR_FAIL, "%s: %lld bytes before tensor '%s' belong to no tensor", path,
                        (long long)(t[i].offset - at), t[i].name);
        at += t[i].bytes;
    }
    if (at == data_bytes) return true;
    return fail(e, ERR_FAIL, "%s: the header describes %lld bytes of data, the file has %lld", path, (long long)at,
                (long long)data_bytes);
}

static bool header_entries(StSet *s, const json_t *root, int64_t data_at, int64_t data_bytes, Err *e) {
    int file = s->n_files - 1;
    const char *path = s->path[file];
    int64_t first = s->n;
    s->tensor = mem_grow(s->tensor, &s->capacity, s->n + (int64_t)json_object_size(root) + 1, sizeof *s->tensor);
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)root, key, entry) {
        if (!strcmp(key, "__metadata__")) {
            if (!metadata_read(s, entry, path, e)) return false;
            continue;
        }
        StTensor *t = &s->tensor[s->n++];
        *t = (StTensor){.name = arena_strdup(&s->arena, key), .file = file};
        if (!entry_read(t, entry, data_bytes, path, e)) return false;
    }
    StTensor *added = s->tensor + first;
    int64_t n = s->n - first;
    qsort(added, (size_t)n, sizeof *added, by_place);
    if (!check_coverage(added, n, data_bytes, path, e)) return false;
    for (int64_t i = 0; i < n; i++) added[i].offset += data_at;
    s->total_bytes = mem_add(s->total_bytes, data_bytes);
    return s->total_bytes >= 0 || fail(e, ERR_FAIL, "%s: all files together are too large", path);
}

static bool header_read(StSet *s, Err *e) {
    int fd = s->fd[s->n_files - 1];
    const char *path = s->path[s->n_files - 1];
    int64_t file_bytes;
    if (!file_size(path, &file_bytes, e)) return false;
    if (file_bytes < 8)
        return fail(e, ERR_FAIL, "%s: %lld bytes are too few for a safetensors file", path, (long long)file_bytes);
    unsigned char word[8];
    if (!file_pread(fd, word, 8, 0, path, e)) return false;
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | word[i];
    if (!memcmp(word, "version ", 8))
        return fail(e, ERR_FAIL, "%s: is Git LFS's pointer to the weights, not the weights. Fetch them with "
                    "`git lfs pull` in that folder", path);
    if (length > (uint64_t)HEADER_LIMIT) /* S1 */
        return fail(e, ERR_FAIL, "%s: its header would take %llu bytes, more than the %lld allowed. "
                    "Is it a safetensors file?", path, (unsigned long long)length, (long long)HEADER_LIMIT);
    int64_t bytes = (int64_t)length;
    if (bytes > file_bytes - 8)
        return fail(e, ERR_FAIL, "%s: its header takes %lld bytes, the file has %lld. Was the copy cut short?",
                    path, (long long)bytes, (long long)file_bytes);
    char *text = mem_alloc(bytes);
    json_t *root = NULL;
    bool ok = file_pread(fd, text, bytes, 8, path, e);
    if (ok && (bytes == 0 || text[0] != '{'))
        ok = fail(e, ERR_FAIL, "%s: its header does not begin with '{'. Is it a safetensors file?", path);
    ok = ok && jsonfile_parse(&root, text, bytes, path, e) && /* S2 */
         header_entries(s, root, 8 + bytes, file_bytes - 8 - bytes, e);
    json_decref(root);
    mem_free(text);
    return ok;
}

/* path and fd have room for it. */
static bool set_add_file(StSet *s, char *path, Err *e) {
    s->path[s->n_files] = path;
    if (!file_open_read(path, &s->fd[s->n_files], e)) return false;
    s->n_files++;
    return header_read(s, e);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp((*(StTensor *const *)a)->name, (*(StTensor *const *)b)->name);
}

static bool set_sort_names(StSet *s, Err *e) {
    s->by_name = ARENA_NEW(&s->arena, const StTensor *, s->n);
    for (int64_t i = 0; i < s->n; i++) s->by_name[i] = &s->tensor[i];
    qsort(s->by_name, (size_t)s->n, sizeof *s->by_name, by_tensor_name);
    for (int64_t i = 1; i < s->n; i++) {
        const StTensor *a = s->by_name[i - 1], *b = s->by_name[i];
        if (!strcmp(a->name, b->name))
            return fail(e, ERR_FAIL, "tensor '%s' is in both %s and %s", a->name, s->path[a->file],
                        s->path[b->file]);
    }
    return true;
}

static bool open_single(StSet *s, const char *path, Err *e) {
    s->path = ARENA_NEW(&s->arena, char *, 1);
    s->fd = ARENA_NEW(&s->arena, int, 1);
    return set_add_file(s, arena_strdup(&s->arena, path), e) && set_sort_names(s, e);
}

/* A shard is a file beside its index: a name that leads elsewhere is refused. */
static bool shard_name_is_plain(const char *name) { return name[0] && !strchr(name, '/') && !strstr(name, ".."); }

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The different file names in weight_map, sorted; names borrow from map. */
static bool index_files(const json_t *map, const char ***names, int *n, const char *path, Err *e) {
    const char **list = MEM_NEW(const char *, (int64_t)json_object_size(map));
    int64_t count = 0, distinct = 0;
    *names = list;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value) {
        const char *name = json_string_value(value);
        if (!name || !shard_name_is_plain(name))
            return fail(e, ERR_FAIL, "%s: tensor '%s' should name a file of the same folder, not '%s'", path, key,
                        name ? name : "(no text)");
        list[count++] = name;
    }
    qsort(list, (size_t)count, sizeof *list, by_text);
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || strcmp(list[i], list[distinct - 1])) list[distinct++] = list[i];
    if (distinct > ST_MAX_FILES)
        return fail(e, ERR_FAIL, "%s: names %lld files, at most %d are supported", path, (long long)distinct,
                    ST_MAX_FILES);
    *n = (int)distinct;
    return true;
}

/* Every tensor that the index promises is in the file it names. */
static bool index_check(const StSet *s, const json_t *map, const char *path, Err *e) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value) {
        const StTensor *t = st_find(s, key);
        const char *name = json_string_value(value), *slash = t ? strrchr(s->path[t->file], '/') : NULL;
        if (!t) return fail(e, ERR_FAIL, "%s: tensor '%s' is not in %s", path, key, name);
        const char *found = slash ? slash + 1 : s->path[t->file];
        if (strcmp(found, name))
            return fail(e, ERR_FAIL, "%s: tensor '%s' should be in %s but is in %s", path, key, name, found);
    }
    return true;
}

static bool open_shards(StSet *s, const json_t *map, const char *index_path, Err *e) {
    const char **names, *slash = strrchr(index_path, '/');
    int n = 0, folder_length = slash ? (int)(slash + 1 - index_path) : 0;
    bool ok = index_files(map, &names, &n, index_path, e);
    if (ok && n == 0) ok = fail(e, ERR_FAIL, "%s: names no tensors", index_path);
    s->path = ARENA_NEW(&s->arena, char *, n);
    s->fd = ARENA_NEW(&s->arena, int, n);
    for (int i = 0; ok && i < n; i++) {
        char *path = arena_printf(&s->arena, "%.*s%s", folder_length, index_path, names[i]);
        ok = set_add_file(s, path, e) || fail_within(e, "%s", index_path);
    }
    mem_free(names);
    return ok && set_sort_names(s, e) && index_check(s, map, index_path, e);
}

static bool open_index(StSet *s, const char *path, Err *e) {
    json_t *root;
    if (!jsonfile_read(&root, path, HEADER_LIMIT, e)) return false;
    const json_t *map = json_object_get(root, "weight_map");
    bool ok = json_is_object(map) ? open_shards(s, map, path, e)
                                  : fail(e, ERR_FAIL, "%s: has no weight_map", path);
    json_decref(root);
    return ok;
}

static bool open_any(StSet *s, const char *path, Err *e) {
    if (!file_is_dir(path)) return str_ends(path, ".json") ? open_index(s, path, e) : open_single(s, path, e);
    const char *inner = arena_printf(&s->arena, "%s/model.safetensors", path);
    if (file_exists(inner)) return open_single(s, inner, e);
    inner = arena_printf(&s->arena, "%s/" INDEX_NAME, path);
    if (file_exists(inner)) return open_index(s, inner, e);
    inner = arena_printf(&s->arena, "%s/adapter_model.safetensors", path);
    if (file_exists(inner)) return open_single(s, inner, e);
    return fail(e, ERR_FAIL, "%s: has no model.safetensors, no " INDEX_NAME " and no adapter_model.safetensors. "
                "Weights in .bin or .pth form must be converted first.", path);
}

bool st_open(StSet *s, const char *folder_or_file, Err *e) {
    *s = (StSet){0};
    arena_init(&s->arena, "safetensors");
    if (open_any(s, folder_or_file, e)) return true;
    st_close(s);
    return false;
}

void st_close(StSet *s) {
    for (int i = 0; i < s->n_files; i++) file_close(s->fd[i]);
    mem_free(s->tensor);
    arena_free(&s->arena);
    *s = (StSet){0};
}

int64_t st_bytes_of(const char *folder) {
    StSet s;
    if (!st_open(&s, folder, NULL)) return 0;
    int64_t bytes = s.total_bytes;
    st_close(&s);
    return bytes;
}

const StTensor *st_find(const StSet *s, const char *name) {
    int64_t low = 0, high = s->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, s->by_name[middle]->name);
        if (order == 0) return s->by_name[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

const char *st_meta(const StSet *s, const char *key) {
    for (int i = 0; i < s->n_meta; i++)
        if (!strcmp(s->meta[i].key, key)) return s->meta[i].value;
    return NULL;
}

bool st_read(const StSet *s, const StTensor *t, void *to, int64_t at_byte, int64_t bytes, Err *e) {
    if (at_byte < 0 || bytes < 0 || at_byte > t->bytes || bytes > t->bytes - at_byte)
        return fail(e, ERR_FAIL, "%s: tensor '%s' has %lld bytes, %lld at %lld were asked for", s->path[t->file],
                    t->name, (long long)t->bytes, (long long)bytes, (long long)at_byte);
    return file_pread(s->fd[t->file], to, bytes, t->offset + at_byte, s->path[t->file], e);
}
