/* prepare_job.c - what a preparation remembers between runs, and what it leaves for others to read. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "data/prepare_int.h"

enum { FORMAT = 1 };

void prepare_shard_path(char *to, size_t size, const PrepareJob *j, int64_t shard) {
    snprintf(to, size, "%s/shard-%05lld.bin", j->out, (long long)shard);
}

static void path_in(char *to, size_t size, const PrepareJob *j, const char *name) {
    snprintf(to, size, "%s/%s", j->out, name);
}

/* ---- as JSON ---- */

static json_t *hex(uint64_t v) {
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)v);
    return json_string(text);
}

static json_t *input_json(const PrepareInput *in, bool counts) {
    json_t *j = json_pack("{s:s, s:I, s:I}", "path", in->path, "bytes", (json_int_t)in->facts.bytes, "changed_ns",
                          (json_int_t)in->facts.changed_ns);
    if (counts)
        json_object_update_new(j, JSON_COUNTS({"rows", in->rows}, {"documents", in->documents},
                                              {"dropped", in->dropped}, {"tokens", in->tokens}));
    return j;
}

/* What two runs must agree on for one to go on with the other's shards. */
static json_t *settings_json(const PrepareJob *j) {
    json_t *inputs = json_array();
    for (int64_t i = 0; i < j->n_inputs; i++) json_array_append_new(inputs, input_json(&j->input[i], false));
    return json_pack("{s:i, s:o, s:I, s:i, s:I, s:I, s:s, s:o}", "format", FORMAT, "tokenizer",
                     hex(j->like.tokenizer), "vocab", (json_int_t)j->like.vocab, "eos", (int)j->like.eos,
                     "shard_tokens", (json_int_t)j->o->shard_tokens, "max_document",
                     (json_int_t)j->o->max_document, "text_field", j->o->text_field ? j->o->text_field : "",
                     "inputs", inputs);
}

static json_t *shard_json(const PrepareJob *j, int64_t i) {
    const ShardFacts *f = &j->shard[i];
    char path[1200], crc[2][12];
    prepare_shard_path(path, sizeof path, j, i);
    snprintf(crc[0], sizeof crc[0], "%08x", f->tokens_crc);
    snprintf(crc[1], sizeof crc[1], "%08x", f->index_crc);
    return json_pack("{s:s, s:I, s:I, s:s, s:s}", "file", strrchr(path, '/') + 1, "tokens", (json_int_t)f->tokens,
                     "documents", (json_int_t)f->documents, "tokens_crc32", crc[0], "index_crc32", crc[1]);
}

static json_t *counts_json(const PrepareJob *j) {
    json_t *inputs = json_array();
    for (int64_t i = 0; i < j->n_inputs; i++) json_array_append_new(inputs, input_json(&j->input[i], true));
    return inputs;
}

static json_t *shards_json(const PrepareJob *j) {
    json_t *shards = json_array();
    for (int64_t i = 0; i < j->n_shards; i++) json_array_append_new(shards, shard_json(j, i));
    return shards;
}

static bool write_json(json_t *root, const PrepareJob *j, const char *name, Err *e) {
    char path[1200];
    Str text = {0};
    path_in(path, sizeof path, j, name);
    json_print(&text, root, JSON_INDENT(1));
    json_decref(root);
    return file_write_str(path, &text, e);
}

bool prepare_job_save(const PrepareJob *j, Err *e) {
    json_t *root = json_pack("{s:o, s:o, s:o, s:{s:I, s:I, s:I}}", "settings", settings_json(j), "shards",
                             shards_json(j), "counts", counts_json(j), "next", "input", (json_int_t)j->place.input,
                             "at", (json_int_t)j->place.at, "line", (json_int_t)j->place.line);
    return write_json(root, j, "progress.json", e);
}

bool prepare_job_finish(const PrepareJob *j, Err *e) {
    char path[1200];
    int64_t tokens = 0, documents = 0;
    for (int64_t i = 0; i < j->n_shards; i++) {
        tokens += j->shard[i].tokens;
        documents += j->shard[i].documents;
    }
    json_t *root = json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "made_by", "snug prepare", "dtype",
                             j->like.bytes_per_token == 2 ? "uint16" : "uint32", "tokens", (json_int_t)tokens,
                             "documents", (json_int_t)documents, "settings", settings_json(j), "shards",
                             shards_json(j), "inputs", counts_json(j));
    path_in(path, sizeof path, j, "progress.json");
    return write_json(root, j, "manifest.json", e) && file_remove_tree(path, e);
}

/* ---- going on ---- */

static bool read_state(json_t **root, const PrepareJob *j, const char *name, Err *e) {
    char path[1200];
    Str text = {0};
    json_error_t at;
    *root = NULL;
    path_in(path, sizeof path, j, name);
    if (!file_exists(path)) return true;
    bool ok = file_read(path, &text, (int64_t)1 << 28, e);
    *root = ok ? json_loadb(str_text(&text), (size_t)text.len, 0, &at) : NULL;
    str_free(&text);
    return !ok || *root ? ok : fail(e, ERR_FAIL, "%s:%d: %s. --overwrite begins anew", path, at.line, at.text);
}

static bool same_settings(const PrepareJob *j, const json_t *root, const char *name, Err *e) {
    json_t *now = settings_json(j);
    const json_t *was = json_object_get(root, "settings");
    const char *key, *differs = NULL;
    json_t *value;
    json_object_foreach(now, key, value) if (!differs && !json_equal(value, json_object_get(was, key))) differs =
        key;
    if (differs)
        fail(e, ERR_FAIL,
             "%s: holds a preparation with other %s (%s/%s). Choose another --out, or give --overwrite", j->out,
             !strcmp(differs, "inputs") ? "inputs, or inputs that were changed since" : differs, j->out, name);
    json_decref(now);
    return !differs;
}

/* The shards that are listed must be there, as they were written. */
static bool take_shards(PrepareJob *j, const json_t *list, Err *e) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        char path[1200];
        ShardFacts f;
        bool found;
        int fd;
        prepare_shard_path(path, sizeof path, j, (int64_t)i);
        if (!file_open_read(path, &fd, e)) return false;
        bool ok = shard_read(&f, &found, fd, path, e) &&
                  (found || fail(e, ERR_FAIL, "%s: is not a token shard", path)) && shard_check(&f, fd, path, e);
        file_close(fd);
        if (!ok) return false;
        j->shard = mem_grow(j->shard, &j->shard_capacity, j->n_shards + 1, sizeof *j->shard);
        j->shard[j->n_shards++] = f;
    }
    return true;
}

static void take_counts(PrepareJob *j, const json_t *list) {
    for (int64_t i = 0; i < j->n_inputs; i++) {
        const json_t *row = json_array_get(list, (size_t)i);
        PrepareInput *in = &j->input[i];
        in->rows = json_integer_value(json_object_get(row, "rows"));
        in->documents = json_integer_value(json_object_get(row, "documents"));
        in->dropped = json_integer_value(json_object_get(row, "dropped"));
        in->tokens = json_integer_value(json_object_get(row, "tokens"));
    }
}

static bool go_on(PrepareJob *j, bool *done, Err *e) {
    json_t *manifest, *progress = NULL;
    *done = false;
    bool ok =
        read_state(&manifest, j, "manifest.json", e) && (manifest || read_state(&progress, j, "progress.json", e));
    if (ok && manifest)
        *done = ok = same_settings(j, manifest, "manifest.json", e) &&
                     take_shards(j, json_object_get(manifest, "shards"), e);
    if (ok && manifest) take_counts(j, json_object_get(manifest, "inputs"));
    if (ok && progress) {
        const json_t *next = json_object_get(progress, "next");
        ok = same_settings(j, progress, "progress.json", e) &&
             take_shards(j, json_object_get(progress, "shards"), e);
        take_counts(j, json_object_get(progress, "counts"));
        j->place = (PreparePlace){json_integer_value(json_object_get(next, "input")),
                                  json_integer_value(json_object_get(next, "at")),
                                  json_integer_value(json_object_get(next, "line"))};
    }
    json_decref(manifest);
    json_decref(progress);
    return ok;
}

typedef enum Remove { REMOVE_UNFINISHED, REMOVE_SHARDS, REMOVE_ALL } Remove;

/* Of our files those that a killed run was writing, which their names tell, or those that make up shards, or all. */
static bool remove_files(const PrepareJob *j, Remove what, Err *e) {
    char **names, path[1400];
    int64_t n;
    if (!file_list(j->out, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        const char *name = names[i];
        bool shards =
            str_starts(name, "shard-") || str_starts(name, "progress.json") || str_starts(name, "manifest.json");
        bool ours = shards || str_starts(name, "train.bin") || str_starts(name, "metadata.json");
        bool now = strstr(name, ".tmp-") || what == REMOVE_ALL || (what == REMOVE_SHARDS && shards);
        snprintf(path, sizeof path, "%s/%s", j->out, name);
        if (ok && ours && now) ok = file_remove_tree(path, e);
        mem_free(names[i]);
    }
    mem_free(names);
    return ok;
}

/* Packed rows of the same settings: all is done, but perhaps for shards that were still to be removed. */
static bool take_packed(PrepareJob *j, bool *done, Err *e) {
    json_t *meta;
    if (!read_state(&meta, j, "metadata.json", e)) return false;
    bool ours = j->o->pack_seq && j->o->pack_seq == json_integer_value(json_object_get(meta, "seq_len")) &&
                json_object_get(meta, "settings");
    bool ok =
        ours ||
        fail(e, ERR_FAIL,
             "%s: holds packed rows already (metadata.json). Choose another --out, or give --overwrite", j->out);
    ok = ok && same_settings(j, meta, "metadata.json", e) && remove_files(j, REMOVE_SHARDS, e);
    if (ok) take_counts(j, json_object_get(meta, "inputs"));
    json_decref(meta);
    return *done = j->packed = ok;
}

static bool list_inputs(PrepareJob *j, const char *const *names, int n, Err *e) {
    for (int k = 0; k < n; k++) {
        SourceFiles files;
        if (!source_files(&files, names[k], e)) return false;
        bool ok = true;
        for (int64_t i = 0; ok && i < files.n; i++) {
            int fd;
            ok = file_open_read(files.path[i], &fd, e);
            if (!ok) break;
            j->input = mem_grow(j->input, &j->capacity, j->n_inputs + 1, sizeof *j->input);
            j->input[j->n_inputs++] = (PrepareInput){.path = mem_strdup(files.path[i]), .facts = file_facts(fd)};
            file_close(fd);
        }
        source_files_free(&files);
        if (!ok) return false;
    }
    return true;
}

/* What this makes would be read by the next run. */
static bool check_inputs(const PrepareJob *j, Err *e) {
    size_t n = strlen(j->out);
    for (int64_t i = 0; i < j->n_inputs; i++)
        if (str_starts(j->input[i].path, j->out) && j->input[i].path[n] == '/')
            return fail(e, ERR_FAIL, "%s: is an input and lies in --out. Choose another --out", j->input[i].path);
    return true;
}

bool prepare_job_open(PrepareJob *j, bool *done, const char *const *names, int n, Err *e) {
    char packed[1200];
    path_in(packed, sizeof packed, j, "metadata.json");
    *done = false;
    if (!list_inputs(j, names, n, e) || !check_inputs(j, e)) return false;
    j->replaces = j->o->overwrite;
    if (j->replaces) return true;
    if (file_exists(packed)) return take_packed(j, done, e);
    return remove_files(j, REMOVE_UNFINISHED, e) && go_on(j, done, e);
}

bool prepare_job_clear(PrepareJob *j, Err *e) {
    if (j->replaces && !remove_files(j, REMOVE_ALL, e)) return false;
    j->replaces = false;
    return true;
}

void prepare_job_free(PrepareJob *j) {
    for (int64_t i = 0; i < j->n_inputs; i++) mem_free(j->input[i].path);
    mem_free(j->input);
    mem_free(j->shard);
}

/* ---- packed rows ---- */

static bool write_rows(FileOut *f, Corpus *c, int64_t tokens, Err *e) {
    enum { PIECE = 1 << 16 };
    uint32_t *piece = MEM_NEW(uint32_t, PIECE);
    bool ok = true;
    for (int64_t at = 0, n; ok && at < tokens; at += n) {
        n = MIN2(tokens - at, PIECE);
        corpus_read(c, at, n, piece, NULL);
        for (int64_t i = 0; i < n; i++) { /* little-endian, whatever we are */
            unsigned char *b = (unsigned char *)&piece[i];
            uint32_t v = piece[i];
            for (int k = 0; k < 4; k++) b[k] = (unsigned char)(v >> 8 * k);
        }
        ok = corpus_ok(c, e) && file_write(f->fd, piece, n * 4, f->path, e);
    }
    mem_free(piece);
    return ok;
}

bool prepare_pack(PrepareJob *j, Err *e) {
    Corpus *c;
    FileOut f;
    char path[1200];
    int64_t seq = j->o->pack_seq;
    CorpusOptions options = {.vocab = j->like.vocab, .eos = j->like.eos, .tokenizer = j->like.tokenizer};
    if (!corpus_open(&c, j->out, &options, e)) return false;
    int64_t rows = corpus_tokens(c) / seq;
    path_in(path, sizeof path, j, "train.bin");
    bool ok = rows > 0 || fail(e, ERR_FAIL,
                               "%s: its %lld tokens do not fill one row of %lld. Give shorter rows (--pack-rows) "
                               "or more text",
                               j->out, (long long)corpus_tokens(c), (long long)seq);
    ok = ok && file_begin(&f, path, e) && file_end(&f, write_rows(&f, c, rows * seq, e), e);
    corpus_close(c);
    if (!ok) return false;
    json_t *meta = json_pack("{s:I, s:I, s:I, s:s, s:o, s:o}", "num_sequences", (json_int_t)rows, "seq_len",
                             (json_int_t)seq, "total_tokens", (json_int_t)(rows * seq), "dtype", "uint32",
                             "settings", settings_json(j), "inputs", counts_json(j));
    j->packed = write_json(meta, j, "metadata.json", e) && remove_files(j, REMOVE_SHARDS, e);
    return j->packed;
}
