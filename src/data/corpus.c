/* corpus.c - which files hold which tokens, and how they are read one row at a time. */
#include "data/corpus.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "data/shard.h"

enum { MOST_OPEN = 64 };    /* files; the one that was not used for longest is closed */
enum { INDEX_BLOCK = 512 }; /* places of documents read at a time */

typedef struct CorpusFile {
    char *path;
    int fd;          /* -1: not open now */
    int users;       /* reading now */
    int64_t used;    /* when it was last asked for */
    FileFacts facts; /* when the corpus was opened */
    int64_t header_bytes, tokens, first_token;
    int32_t bytes_per_token;
    int64_t documents, index_at; /* index_at 0: not listed */
    uint64_t mark;               /* of its content, for the fingerprint */
} CorpusFile;

struct Corpus {
    CorpusFile *file; /* owns */
    int64_t n, capacity;
    CorpusOptions o;
    int64_t tokens, documents;
    bool listed, eos_first; /* documents are listed; the end-of-text token comes before its document */
    char text[120];
    pthread_mutex_t lock; /* of the files' descriptors and the error */
    int n_open;
    int64_t clock;
    Err err;
};

/* ---- telling formats apart ---- */

typedef enum BinFormat { BIN_NONE, BIN_SHARD, BIN_LLM_C_16, BIN_LLM_C_32, BIN_LLMQ } BinFormat;

static int32_t word_at(const unsigned char *h, int i) {
    return (int32_t)((uint32_t)h[4 * i] | (uint32_t)h[4 * i + 1] << 8 | (uint32_t)h[4 * i + 2] << 16 |
                     (uint32_t)h[4 * i + 3] << 24);
}

static BinFormat tell_format(const unsigned char *h, int64_t n) {
    if (n >= 8 && !memcmp(h, "SNUGTOK\n", 8)) return BIN_SHARD;
    if (n >= 28 && !memcmp(h, "BIN.TOK\n", 8)) return BIN_LLMQ;
    if (n >= 12 && word_at(h, 0) == 20240520 && word_at(h, 1) == 1) return BIN_LLM_C_16;
    if (n >= 12 && word_at(h, 0) == 20240801 && word_at(h, 1) == 7) return BIN_LLM_C_32;
    return BIN_NONE;
}

static BinFormat format_of(const char *path) {
    unsigned char h[32];
    int fd;
    int64_t n = 0;
    if (!file_open_read(path, &fd, NULL)) return BIN_NONE;
    if (!file_read_some(fd, h, &n, sizeof h, path, NULL)) n = 0;
    file_close(fd);
    return tell_format(h, n);
}

static const char *path_in(Str *to, const char *folder, const char *name) {
    str_clear(to);
    str_addf(to, "%s/%s", folder, name);
    return to->data;
}

static bool holds(const char *folder, const char *name) {
    Str p = {0};
    bool there = file_exists(path_in(&p, folder, name));
    str_free(&p);
    return there;
}

/* Where both are there, shards are what a killed preparation had still to remove. */
static bool is_packed(const char *folder) {
    return holds(folder, "metadata.json") && holds(folder, "train.bin");
}

bool corpus_is(const char *path) {
    if (!file_is_dir(path)) return str_ends(path, ".bin") && format_of(path) != BIN_NONE;
    return is_packed(path) || holds(path, "manifest.json") || holds(path, "progress.json");
}

/* ---- opening ---- */

static CorpusFile *add_file(Corpus *c, const char *path, Err *e) {
    int fd;
    if (!file_open_read(path, &fd, e)) return NULL;
    c->file = mem_grow(c->file, &c->capacity, c->n + 1, sizeof *c->file);
    CorpusFile *f = &c->file[c->n++];
    *f = (CorpusFile){.path = mem_strdup(path), .fd = fd, .facts = file_facts(fd)};
    c->n_open++;
    return f;
}

/* Two places of its content, for files that bring no checksum. */
static bool mark_file(CorpusFile *f, Err *e) {
    unsigned char part[1024];
    int64_t bytes = f->facts.bytes, n = MIN2(bytes, (int64_t)sizeof part);
    f->mark = rng_fold(0, (uint64_t)bytes);
    for (int k = 0; k < 2; k++) {
        if (!file_pread(f->fd, part, n, k ? bytes - n : 0, f->path, e)) return false;
        for (int64_t i = 0; i + 8 <= n; i += 8) {
            uint64_t word;
            memcpy(&word, part + i, 8);
            f->mark = rng_fold(f->mark, word);
        }
    }
    return true;
}

static bool check_tokenizer(const Corpus *c, uint64_t tokenizer, const char *path, Err *e) {
    if (!c->o.tokenizer || !tokenizer || tokenizer == c->o.tokenizer) return true;
    return fail(
        e, ERR_FAIL,
        "%s: was prepared with another tokenizer than the model's (%016llx, the model's is %016llx). Prepare "
        "the text again with --tokenizer of this model",
        path, (unsigned long long)tokenizer, (unsigned long long)c->o.tokenizer);
}

static bool take_shard(Corpus *c, CorpusFile *f, Err *e) {
    ShardFacts s;
    bool found;
    if (!shard_read(&s, &found, f->fd, f->path, e)) return false;
    if (!found) return fail(e, ERR_FAIL, "%s: is not a token shard", f->path);
    if (!check_tokenizer(c, s.tokenizer, f->path, e)) return false;
    if (s.vocab > c->o.vocab)
        return fail(
            e, ERR_FAIL,
            "%s: was prepared for a vocabulary of %lld ids, the model has %lld. Prepare the text again with "
            "--tokenizer of this model",
            f->path, (long long)s.vocab, (long long)c->o.vocab);
    f->header_bytes = SHARD_HEADER_BYTES;
    f->bytes_per_token = s.bytes_per_token;
    f->tokens = s.tokens;
    f->documents = s.documents;
    f->index_at = shard_index_at(&s);
    f->mark = rng_fold(s.tokens_crc, s.index_crc);
    c->listed = true;
    return true;
}

/* Files of llm.c and llmq: a header of 1,024 bytes, then tokens. */
static bool take_bin(Corpus *c, CorpusFile *f, BinFormat format, Err *e) {
    unsigned char h[32];
    if (!file_pread(f->fd, h, sizeof h, 0, f->path, e)) return false;
    bool llmq = format == BIN_LLMQ;
    f->header_bytes = 1024;
    f->bytes_per_token = format == BIN_LLM_C_16 ? 2 : 4;
    f->tokens = (int64_t)(uint32_t)word_at(h, llmq ? 4 : 2);
    c->eos_first = !llmq;
    if (llmq && word_at(h, 3) != 4)
        return fail(e, ERR_FAIL, "%s: has tokens of %d bytes, 4 were expected", f->path, (int)word_at(h, 3));
    if (llmq && word_at(h, 2) >= 2 && word_at(h, 6))
        return fail(e, ERR_FAIL,
                    "%s: holds samples with masks, not plain text. Give the rows they were made of as JSON lines",
                    f->path);
    if (f->header_bytes + f->tokens * f->bytes_per_token > f->facts.bytes)
        return fail(e, ERR_FAIL,
                    "%s: its header names %lld tokens, and the file ends before. Was the copy cut short?", f->path,
                    (long long)f->tokens);
    return mark_file(f, e);
}

static bool open_bin(Corpus *c, const char *path, Err *e) {
    BinFormat format = format_of(path);
    CorpusFile *f = add_file(c, path, e);
    if (!f) return false;
    static const char *const names[] = {"", "a token shard", "tokens of llm.c", "tokens of llm.c",
                                        "tokens of llmq"};
    bool ok = format == BIN_SHARD ? take_shard(c, f, e) : take_bin(c, f, format, e);
    if (ok) snprintf(c->text, sizeof c->text, "%s, uint%d", names[format], 8 * f->bytes_per_token);
    return ok;
}

static bool read_json(json_t **root, const char *path, Err *e) {
    Str text = {0};
    json_error_t at;
    bool ok = file_read(path, &text, (int64_t)1 << 28, e);
    *root = ok ? json_loadb(str_text(&text), (size_t)text.len, 0, &at) : NULL;
    str_free(&text);
    return !ok || *root ? ok : fail(e, ERR_FAIL, "%s:%d: %s. Was the copy cut short?", path, at.line, at.text);
}

/* The layout of a packed pre-training set: rows of uint32, as many as the metadata say. */
static bool open_packed(Corpus *c, const char *folder, Err *e) {
    Str path = {0};
    json_t *meta = NULL;
    bool ok = read_json(&meta, path_in(&path, folder, "metadata.json"), e);
    CorpusFile *f = ok ? add_file(c, path_in(&path, folder, "train.bin"), e) : NULL;
    if (f) {
        const char *dtype = json_string_value(json_object_get(meta, "dtype"));
        int64_t rows = json_integer_value(json_object_get(meta, "num_sequences")),
                seq = json_integer_value(json_object_get(meta, "seq_len"));
        f->bytes_per_token = dtype && strstr(dtype, "uint16") ? 2 : 4;
        f->tokens = mem_mul(rows, seq);
        snprintf(c->text, sizeof c->text, "packed rows of %lld tokens (train.bin), %s", (long long)seq,
                 dtype ? dtype : "uint32");
        ok = !dtype || strstr(dtype, "uint16") || strstr(dtype, "uint32") ||
             fail(e, ERR_FAIL, "%s/metadata.json: dtype '%.20s'", folder, dtype);
        if (ok && (f->tokens <= 0 || mem_mul(f->tokens, f->bytes_per_token) != f->facts.bytes))
            ok = fail(e, ERR_FAIL,
                      "%s: train.bin has %lld bytes, metadata.json names %lld rows of %lld tokens. Was the copy "
                      "cut short?",
                      folder, (long long)f->facts.bytes, (long long)rows, (long long)seq);
        const char *tokenizer = json_string_value(json_object_get(json_object_get(meta, "settings"), "tokenizer"));
        ok = ok && check_tokenizer(c, tokenizer ? strtoull(tokenizer, NULL, 16) : 0, folder, e) && mark_file(f, e);
    }
    json_decref(meta);
    str_free(&path);
    return ok && f;
}

static bool open_shards(Corpus *c, const char *folder, Err *e) {
    Str path = {0};
    json_t *manifest = NULL, *shard;
    size_t i;
    if (!file_exists(path_in(&path, folder, "manifest.json"))) {
        str_free(&path);
        return fail(e, ERR_FAIL,
                    "%s: is not prepared to its end. Run `snug prepare` again: it goes on where it stopped",
                    folder);
    }
    bool ok = read_json(&manifest, path.data, e);
    const json_t *list = json_object_get(manifest, "shards");
    if (ok && !json_is_array(list))
        ok = fail(e, ERR_FAIL, "%s: is not a manifest of `snug prepare`. Name the files of the folder", path.data);
    json_array_foreach((json_t *)(ok ? list : NULL), i, shard) {
        const char *name = json_string_value(json_object_get(shard, "file"));
        CorpusFile *f = name ? add_file(c, path_in(&path, folder, name), e) : NULL;
        if (!name) fail(e, ERR_FAIL, "%s/manifest.json: shard %zu has no file", folder, i);
        ok = f && take_shard(c, f, e);
        if (ok && f->tokens != json_integer_value(json_object_get(shard, "tokens")))
            ok = fail(e, ERR_FAIL, "%s: has %lld tokens, the manifest says otherwise. Prepare it again", f->path,
                      (long long)f->tokens);
        if (!ok) break;
        if (c->n_open > MOST_OPEN / 2) {
            file_close(f->fd);
            f->fd = -1;
            c->n_open--;
        }
    }
    if (ok && !c->n) ok = fail(e, ERR_FAIL, "%s: holds no tokens", folder);
    if (ok)
        snprintf(c->text, sizeof c->text, "%lld token shard%s of snug prepare, uint%d", (long long)c->n,
                 c->n == 1 ? "" : "s", 8 * c->file[0].bytes_per_token);
    json_decref(manifest);
    str_free(&path);
    return ok;
}

bool corpus_open(Corpus **out, const char *path, const CorpusOptions *o, Err *e) {
    Corpus *c = MEM_NEW(Corpus, 1);
    c->o = *o;
    pthread_mutex_init(&c->lock, NULL);
    bool folder = file_is_dir(path);
    bool ok = !folder ? open_bin(c, path, e) : is_packed(path) ? open_packed(c, path, e) : open_shards(c, path, e);
    for (int64_t i = 0; ok && i < c->n; i++) {
        c->file[i].first_token = c->tokens;
        c->tokens += c->file[i].tokens;
        c->documents += c->file[i].documents;
    }
    if (ok && c->tokens < 2) ok = fail(e, ERR_FAIL, "%s: holds no tokens", path);
    *out = ok ? c : NULL;
    if (!ok) corpus_close(c);
    return ok;
}

void corpus_close(Corpus *c) {
    if (!c) return;
    for (int64_t i = 0; i < c->n; i++) {
        file_close(c->file[i].fd);
        mem_free(c->file[i].path);
    }
    mem_free(c->file);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* ---- questions ---- */

int64_t corpus_tokens(const Corpus *c) {
    return c->tokens;
}
int64_t corpus_documents(const Corpus *c) {
    return c->listed ? c->documents : -1;
}
const char *corpus_text(const Corpus *c) {
    return c->text;
}

int64_t corpus_bytes(const Corpus *c) {
    int64_t bytes = (int64_t)sizeof *c + c->capacity * (int64_t)sizeof *c->file;
    for (int64_t i = 0; i < c->n; i++) bytes += (int64_t)strlen(c->file[i].path) + 1;
    return bytes;
}

uint64_t corpus_fingerprint(const Corpus *c) {
    uint64_t h = rng_fold(rng_fold(0, (uint64_t)c->tokens), (uint64_t)c->n);
    for (int64_t i = 0; i < c->n; i++) h = rng_fold(rng_fold(h, c->file[i].mark), (uint64_t)c->file[i].tokens);
    return h;
}

bool corpus_ok(Corpus *c, Err *e) {
    pthread_mutex_lock(&c->lock);
    bool ok = !c->err.code;
    if (!ok && e) *e = c->err;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void keep_error(Corpus *c, const Err *e) {
    pthread_mutex_lock(&c->lock);
    if (!c->err.code) c->err = *e;
    pthread_mutex_unlock(&c->lock);
}

/* ---- reading ---- */

static void close_oldest(Corpus *c) {
    CorpusFile *oldest = NULL;
    for (int64_t i = 0; i < c->n; i++) {
        CorpusFile *f = &c->file[i];
        if (f->fd >= 0 && !f->users && (!oldest || f->used < oldest->used)) oldest = f;
    }
    if (!oldest) return;
    file_close(oldest->fd);
    oldest->fd = -1;
    c->n_open--;
}

/* Opens the file where it is not, and sees that it is the one it was. */
static bool begin_use(Corpus *c, CorpusFile *f, Err *e) {
    pthread_mutex_lock(&c->lock);
    bool ok = true;
    if (f->fd < 0) {
        if (c->n_open >= MOST_OPEN) close_oldest(c);
        ok = file_open_read(f->path, &f->fd, e);
        c->n_open += ok;
    }
    FileFacts now = ok ? file_facts(f->fd) : f->facts;
    if (now.bytes != f->facts.bytes || now.changed_ns != f->facts.changed_ns)
        ok = fail(e, ERR_FAIL,
                  "%s: was changed while the run reads it. Go on from the last checkpoint once it is as it was",
                  f->path);
    f->used = ++c->clock;
    f->users += ok;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void end_use(Corpus *c, CorpusFile *f) {
    pthread_mutex_lock(&c->lock);
    f->users--;
    pthread_mutex_unlock(&c->lock);
}

static int64_t file_of(const Corpus *c, int64_t token) {
    int64_t low = 0, high = c->n;
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (c->file[mid].first_token <= token)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Little-endian numbers become ours where they stand: two bytes lie at the end of the room and are widened from
 * the front. */
static bool read_tokens(Corpus *c, const CorpusFile *f, int64_t at, int64_t n, uint32_t *to, Err *e) {
    unsigned char *raw = (unsigned char *)to + (4 - f->bytes_per_token) * n;
    if (!file_pread(f->fd, raw, n * f->bytes_per_token, f->header_bytes + at * f->bytes_per_token, f->path, e))
        return false;
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *b = raw + i * f->bytes_per_token;
        uint32_t id = (uint32_t)b[0] | (uint32_t)b[1] << 8;
        if (f->bytes_per_token == 4) id |= (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        to[i] = id;
        largest = id > largest ? id : largest;
    }
    if (largest < c->o.vocab) return true;
    return fail(e, ERR_FAIL,
                "%s: holds the id %u among tokens %lld to %lld; the model's vocabulary has %lld ids. Is it "
                "another tokenizer's?",
                f->path, largest, (long long)at, (long long)(at + n - 1), (long long)c->o.vocab);
}

/* The places where documents begin, from entry i on. */
static bool read_index(const CorpusFile *f, int64_t i, int64_t n, uint64_t *to, Err *e) {
    unsigned char *raw = (unsigned char *)to;
    if (!file_pread(f->fd, raw, 8 * n, f->index_at + 8 * i, f->path, e)) return false;
    for (int64_t k = 0; k < n; k++) {
        uint64_t v = 0;
        for (int b = 7; b >= 0; b--) v = v << 8 | raw[8 * k + b];
        to[k] = v;
    }
    return true;
}

/* The first document of the file that begins behind token `at`. */
static bool first_behind(const CorpusFile *f, int64_t at, int64_t *doc, Err *e) {
    int64_t low = 0, high = f->documents; /* document low begins at or before it */
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        uint64_t begin;
        if (!read_index(f, mid, 1, &begin, e)) return false;
        if ((int64_t)begin <= at)
            low = mid;
        else
            high = mid;
    }
    *doc = high;
    return true;
}

/* Counts the documents that begin behind `at`, up to at + n - 1, and marks them. */
static bool find_starts(const CorpusFile *f, int64_t at, int64_t n, uint8_t *starts, int64_t *count, Err *e) {
    uint64_t begin[INDEX_BLOCK];
    int64_t doc;
    if (!first_behind(f, at, &doc, e)) return false;
    for (bool more = true; more && doc < f->documents;) {
        int64_t block = MIN2(f->documents - doc, INDEX_BLOCK);
        if (!read_index(f, doc, block, begin, e)) return false;
        for (int64_t i = 0; i < block && more; i++) {
            if ((int64_t)begin[i] <= at || begin[i] > (uint64_t)f->tokens)
                return fail(e, ERR_FAIL, "%s: its list of documents is damaged. Prepare it again", f->path);
            more = (int64_t)begin[i] < at + n;
            if (more && starts) starts[(int64_t)begin[i] - at] = 1;
            *count += more;
        }
        doc += block;
    }
    return true;
}

/* Without a list: by the end-of-text token. */
static void mark_by_eos(const Corpus *c, const uint32_t *token, int64_t n, uint8_t *starts, int64_t *count) {
    for (int64_t i = 1; i < n && c->o.eos >= 0; i++) {
        bool start = token[i - !c->eos_first] == (uint32_t)c->o.eos;
        if (start && starts) starts[i] = 1;
        *count += start;
    }
}

/* One file's part of what is asked for; a file's first token begins a document. */
static bool read_part(Corpus *c, CorpusFile *f, int64_t at, int64_t n, uint32_t *token, uint8_t *starts,
                      int64_t *count, Err *e) {
    if (!begin_use(c, f, e)) return false;
    bool ok = !token || read_tokens(c, f, at, n, token, e);
    if (ok && count && c->listed) ok = find_starts(f, at, n, starts, count, e);
    end_use(c, f);
    return ok;
}

static bool read_span(Corpus *c, int64_t begin, int64_t n, uint32_t *token, uint8_t *starts, int64_t *count,
                      Err *e) {
    CHECK(begin >= 0 && n >= 0 && begin + n <= c->tokens);
    bool want_tokens = token != NULL;
    for (int64_t done = 0, i = n ? file_of(c, begin) : 0; done < n; i++) {
        CorpusFile *f = &c->file[i];
        int64_t at = begin + done - f->first_token, part = MIN2(n - done, f->tokens - at);
        if (part <= 0) continue;
        if (!read_part(c, f, at, part, want_tokens ? token + done : NULL, starts ? starts + done : NULL, count, e))
            return false;
        if (done && count && c->listed) {
            if (starts) starts[done] = 1;
            ++*count;
        }
        done += part;
    }
    return true;
}

void corpus_read(Corpus *c, int64_t begin, int64_t n, uint32_t *token, uint8_t *starts) {
    Err e = {0};
    int64_t count = 0;
    if (starts) memset(starts, 0, (size_t)n);
    bool ok = read_span(c, begin, n, token, starts, starts ? &count : NULL, &e);
    if (ok && starts && !c->listed) mark_by_eos(c, token, n, starts, &count);
    if (ok) return;
    keep_error(c, &e);
    memset(token, 0, (size_t)n * sizeof *token);
}

int64_t corpus_count_starts(Corpus *c, int64_t begin, int64_t n, uint32_t *scratch) {
    Err e = {0};
    int64_t count = 0;
    bool ok = read_span(c, begin, n, c->listed ? NULL : scratch, NULL, &count, &e);
    if (ok && !c->listed) mark_by_eos(c, scratch, n, NULL, &count);
    if (!ok) keep_error(c, &e);
    return ok ? count : 0;
}
