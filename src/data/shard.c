/* shard.c - which byte of a token file means what. */
#include "data/shard.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

static const char magic[8] = {'S', 'N', 'U', 'G', 'T', 'O', 'K', '\n'};
enum { BUFFER_BYTES = 1 << 18, CHECK_BYTES = 1 << 18 };

/* ---- CRC-32 as zlib, gzip and PNG have it, so that other programs can check a shard ---- */

enum { LANES = 8 }; /* bytes at a time: lane k is what a byte does to the sum k bytes later */
static uint32_t lane[LANES][256];
static pthread_once_t lanes_made = PTHREAD_ONCE_INIT;

static void make_lanes(void) {
    const uint32_t polynomial = 0xedb88320;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? polynomial : 0);
        lane[0][i] = c;
    }
    for (int k = 1; k < LANES; k++)
        for (int i = 0; i < 256; i++) lane[k][i] = lane[k - 1][i] >> 8 ^ lane[0][lane[k - 1][i] & 255];
}

/* Goes on from crc; begin with 0. */
static uint32_t crc32(uint32_t crc, const void *bytes, int64_t n) {
    const unsigned char *b = bytes;
    pthread_once(&lanes_made, make_lanes);
    crc = ~crc;
    for (; n >= LANES; n -= LANES, b += LANES) {
        uint32_t sum = 0;
        for (int k = 0; k < LANES; k++) sum ^= lane[LANES - 1 - k][b[k] ^ (k < 4 ? crc >> 8 * k & 255 : 0)];
        crc = sum;
    }
    for (; n > 0; n--, b++) crc = crc >> 8 ^ lane[0][(crc ^ *b) & 255];
    return ~crc;
}

/* ---- the header ---- */

typedef struct Cursor {
    unsigned char *at;
} Cursor;

static void put(Cursor *c, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) *c->at++ = (unsigned char)(v >> 8 * i);
}

static uint64_t get(Cursor *c, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)*c->at++ << 8 * i;
    return v;
}

static void write_header(unsigned char h[SHARD_HEADER_BYTES], const ShardFacts *f) {
    memset(h, 0, SHARD_HEADER_BYTES);
    memcpy(h, magic, sizeof magic);
    Cursor c = {h + sizeof magic};
    put(&c, SHARD_VERSION, 4);
    put(&c, (uint64_t)f->bytes_per_token, 4);
    put(&c, (uint64_t)f->tokens, 8);
    put(&c, (uint64_t)f->documents, 8);
    put(&c, f->tokenizer, 8);
    put(&c, (uint64_t)f->vocab, 8);
    put(&c, (uint32_t)f->eos, 4);
    put(&c, f->tokens_crc, 4);
    put(&c, f->index_crc, 4);
    put(&c, crc32(0, h, c.at - h), 4);
}

int64_t shard_index_at(const ShardFacts *f) {
    return mem_round_up(mem_add(SHARD_HEADER_BYTES, mem_mul(f->tokens, f->bytes_per_token)), 8);
}

static int64_t file_bytes(const ShardFacts *f) {
    return mem_add(shard_index_at(f), mem_mul(mem_add(f->documents, 1), 8));
}

bool shard_read(ShardFacts *f, bool *found, int fd, const char *path, Err *e) {
    unsigned char h[SHARD_HEADER_BYTES];
    int64_t bytes = file_facts(fd).bytes;
    *found = false;
    *f = (ShardFacts){0};
    if (bytes < (int64_t)sizeof magic) return true;
    if (!file_pread(fd, h, MIN2(bytes, SHARD_HEADER_BYTES), 0, path, e)) return false;
    if (memcmp(h, magic, sizeof magic)) return true;
    *found = true;
    if (bytes < SHARD_HEADER_BYTES)
        return fail(e, ERR_FAIL, "%s: is a token shard that ends inside its header. Was the copy cut short?",
                    path);
    Cursor c = {h + sizeof magic};
    uint64_t version = get(&c, 4);
    f->bytes_per_token = (int32_t)get(&c, 4);
    f->tokens = (int64_t)get(&c, 8);
    f->documents = (int64_t)get(&c, 8);
    f->tokenizer = get(&c, 8);
    f->vocab = (int64_t)get(&c, 8);
    f->eos = (int32_t)(uint32_t)get(&c, 4);
    f->tokens_crc = (uint32_t)get(&c, 4);
    f->index_crc = (uint32_t)get(&c, 4);
    uint32_t crc = crc32(0, h, c.at - h);
    if (version != SHARD_VERSION)
        return fail(e, ERR_FAIL, "%s: is a token shard of version %llu; this version reads %d", path,
                    (unsigned long long)version, SHARD_VERSION);
    bool sane = f->tokens >= 0 && f->documents >= 0 && f->documents <= f->tokens &&
                (f->bytes_per_token == 2 || f->bytes_per_token == 4);
    if (crc != get(&c, 4) || !sane || file_bytes(f) < 0)
        return fail(e, ERR_FAIL, "%s: is a token shard whose header is damaged. Prepare it again", path);
    if (bytes != file_bytes(f))
        return fail(e, ERR_FAIL,
                    "%s: is a token shard of %lld bytes, its header says %lld. Was the copy cut short?", path,
                    (long long)bytes, (long long)file_bytes(f));
    return true;
}

static bool check_range(uint32_t want, int64_t from, int64_t to, int fd, const char *path, const char *what,
                        Err *e) {
    char *buffer = mem_resize(NULL, CHECK_BYTES);
    uint32_t crc = 0;
    bool ok = true;
    for (int64_t n; ok && from < to; from += n) {
        n = MIN2(to - from, CHECK_BYTES);
        ok = file_pread(fd, buffer, n, from, path, e);
        if (ok) crc = crc32(crc, buffer, n);
    }
    mem_free(buffer);
    if (ok && crc != want)
        return fail(e, ERR_FAIL, "%s: its %s do not have the checksum that was written. Prepare it again", path,
                    what);
    return ok;
}

bool shard_check(const ShardFacts *f, int fd, const char *path, Err *e) {
    int64_t end = SHARD_HEADER_BYTES + f->tokens * f->bytes_per_token;
    return check_range(f->tokens_crc, SHARD_HEADER_BYTES, end, fd, path, "tokens", e) &&
           check_range(f->index_crc, shard_index_at(f), file_bytes(f), fd, path, "documents", e);
}

/* ---- writing ---- */

bool shard_begin(ShardOut *s, const char *path, const ShardFacts *like, Err *e) {
    unsigned char h[SHARD_HEADER_BYTES] = {0};
    *s = (ShardOut){.facts = *like};
    s->facts.tokens = s->facts.documents = 0;
    s->facts.tokens_crc = s->facts.index_crc = 0;
    pile_init(&s->begin, sizeof(int64_t));
    if (!file_begin(&s->file, path, e)) return false;
    s->buffer = mem_resize(NULL, BUFFER_BYTES);
    if (file_write(s->file.fd, h, sizeof h, path, e)) return true;
    shard_abort(s);
    return false;
}

/* Writes what is in the buffer, which the checksum goes on with. */
static bool flush(ShardOut *s, uint32_t *crc, Err *e) {
    if (!file_write(s->file.fd, s->buffer, s->n, s->file.path, e)) return false;
    *crc = crc32(*crc, s->buffer, s->n);
    s->n = 0;
    return true;
}

static bool put_number(ShardOut *s, uint64_t v, int bytes, uint32_t *crc, Err *e) {
    if (s->n + bytes > BUFFER_BYTES && !flush(s, crc, e)) return false;
    put(&(Cursor){(unsigned char *)s->buffer + s->n}, v, bytes);
    s->n += bytes;
    return true;
}

bool shard_add(ShardOut *s, const int32_t *ids, int64_t n, bool ends_document, Err *e) {
    if (!s->in_document && n) pile_add(&s->begin, &s->facts.tokens, 1);
    for (int64_t i = 0; i < n; i++)
        if (!put_number(s, (uint32_t)ids[i], s->facts.bytes_per_token, &s->facts.tokens_crc, e)) return false;
    s->in_document = (s->in_document || n) && !ends_document;
    s->facts.tokens += n;
    return true;
}

static bool finish(ShardOut *s, Err *e) {
    ShardFacts *f = &s->facts;
    unsigned char h[SHARD_HEADER_BYTES], gap[8] = {0};
    int64_t end = SHARD_HEADER_BYTES + f->tokens * f->bytes_per_token;
    if (!flush(s, &f->tokens_crc, e) || !file_write(s->file.fd, gap, shard_index_at(f) - end, s->file.path, e))
        return false;
    f->documents = s->begin.n;
    pile_add(&s->begin, &f->tokens, 1);
    for (int64_t i = 0; i < s->begin.n; i++)
        if (!put_number(s, *(uint64_t *)pile_at(&s->begin, i), 8, &f->index_crc, e)) return false;
    if (!flush(s, &f->index_crc, e)) return false;
    write_header(h, f);
    return file_pwrite(s->file.fd, h, sizeof h, 0, s->file.path, e);
}

static void free_out(ShardOut *s) {
    mem_free(s->buffer);
    s->buffer = NULL;
    pile_free(&s->begin);
}

bool shard_commit(ShardOut *s, Err *e) {
    bool ok = finish(s, e);
    free_out(s);
    return file_end(&s->file, ok, e);
}

void shard_abort(ShardOut *s) {
    free_out(s);
    file_abort(&s->file);
}
