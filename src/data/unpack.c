/* unpack.c - the bindings to zlib and zstd. */
#include "data/unpack.h"

#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "base/mem.h"

enum { PACKED_BYTES = 1 << 16, WINDOW_LOG = 25 /* 32 MiB: what `zstd -19 --long=25` writes at most */ };

typedef struct Format {
    const char *name, *mark;
    int64_t mark_bytes;
    void *(*begin)(void); /* gives NULL: no memory */
    /* One call of the library: uses some of the packed bytes and writes some. False, with a reason: they are
     * damaged. */
    bool (*step)(Unpack *u, void *to, int64_t *got, int64_t room, const char **why);
    void (*end)(void *state);
} Format;

struct Unpack {
    int fd;
    const char *path;
    const Format *format;
    void *state;        /* of the library; owns */
    bool at_end;        /* of the file */
    bool between;       /* members, of which a file may hold several: one has ended, and none has begun */
    int64_t begin, end; /* of packed: what was read and not yet used */
    int64_t read_bytes;
    unsigned char packed[PACKED_BYTES];
};

/* ---- gzip ---- */

static void *gzip_alloc(void *unused, unsigned n, unsigned each) {
    return mem_alloc((int64_t)n * each);
}
static void gzip_free(void *unused, void *p) {
    mem_free(p);
}

static void *gzip_begin(void) {
    enum { GZIP_ONLY = 16 };
    z_stream *z = MEM_NEW(z_stream, 1);
    z->zalloc = gzip_alloc;
    z->zfree = gzip_free;
    if (inflateInit2(z, MAX_WBITS + GZIP_ONLY) == Z_OK) return z;
    mem_free(z);
    return NULL;
}

static void gzip_end(void *state) {
    inflateEnd(state);
    mem_free(state);
}

static bool gzip_step(Unpack *u, void *to, int64_t *got, int64_t room, const char **why) {
    z_stream *z = u->state;
    *why = "its data is damaged";
    if (u->between && inflateReset(z) != Z_OK) return false;
    unsigned most = (unsigned)MIN2(room, 1 << 30);
    z->next_in = u->packed + u->begin;
    z->avail_in = (unsigned)(u->end - u->begin);
    z->next_out = to;
    z->avail_out = most;
    int status = inflate(z, Z_NO_FLUSH);
    u->begin = u->end - z->avail_in;
    u->between = status == Z_STREAM_END;
    *got = most - z->avail_out;
    if (z->msg) *why = z->msg;
    return status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR;
}

/* ---- zstd ---- */

static void zstd_end(void *state) {
    ZSTD_freeDStream(state);
}

static void *zstd_begin(void) {
    ZSTD_DStream *s = ZSTD_createDStream();
    if (s && !ZSTD_isError(ZSTD_DCtx_setParameter(s, ZSTD_d_windowLogMax, WINDOW_LOG))) return s;
    zstd_end(s);
    return NULL;
}

static bool zstd_step(Unpack *u, void *to, int64_t *got, int64_t room, const char **why) {
    ZSTD_inBuffer in = {u->packed, (size_t)u->end, (size_t)u->begin};
    ZSTD_outBuffer out = {to, (size_t)room, 0};
    size_t status = ZSTD_decompressStream(u->state, &out, &in);
    u->begin = (int64_t)in.pos;
    u->between = status == 0;
    *got = (int64_t)out.pos;
    *why = ZSTD_getErrorName(status);
    return !ZSTD_isError(status);
}

/* ---- any ---- */

static const Format formats[] = {
    {"gzip", "\x1f\x8b", 2, gzip_begin, gzip_step, gzip_end},
    {"zstd", "\x28\xb5\x2f\xfd", 4, zstd_begin, zstd_step, zstd_end},
};

static const Format *find_format(const char *bytes, int64_t n) {
    for (int i = 0; i < COUNT_OF(formats); i++)
        if (n >= formats[i].mark_bytes && !memcmp(bytes, formats[i].mark, (size_t)formats[i].mark_bytes))
            return &formats[i];
    return NULL;
}

const char *unpack_format(const char *bytes, int64_t n) {
    const Format *f = find_format(bytes, n);
    return f ? f->name : NULL;
}

bool unpack_open(Unpack **out, int fd, const char *path, Err *e) {
    char mark[4];
    *out = NULL;
    FileFacts facts = file_facts(fd);
    if (facts.at < 0 || facts.bytes < (int64_t)sizeof mark) return true;
    if (!file_pread(fd, mark, sizeof mark, facts.at, path, e)) return false;
    const Format *f = find_format(mark, sizeof mark);
    if (!f) return true;
    void *state = f->begin();
    if (!state) return fail(e, ERR_FAIL, "%s: no memory to unpack it", path);
    Unpack *u = *out = MEM_NEW(Unpack, 1);
    u->fd = fd;
    u->path = path;
    u->format = f;
    u->state = state;
    return true;
}

void unpack_close(Unpack *u) {
    if (!u) return;
    u->format->end(u->state);
    mem_free(u);
}

int64_t unpack_packed_bytes(const Unpack *u) {
    return u->read_bytes - (u->end - u->begin);
}

static bool more_packed(Unpack *u, Err *e) {
    u->begin = 0;
    if (!file_read_some(u->fd, u->packed, &u->end, PACKED_BYTES, u->path, e)) return false;
    u->at_end = u->end == 0;
    u->read_bytes += u->end;
    return true;
}

bool unpack_read(Unpack *u, void *to, int64_t *got, int64_t room, Err *e) {
    *got = 0;
    while (!*got && room > 0) {
        const char *why;
        if (u->begin == u->end && !u->at_end && !more_packed(u, e)) return false;
        if (u->at_end && u->between) return true;
        bool ok = u->format->step(u, to, got, room, &why);
        bool cut = ok && !*got && u->at_end && !u->between;
        if (cut) why = "it ends in the middle";
        if (!ok || cut) {
            const char *hint = "Was the copy cut short?";
            if (strstr(why, "too much memory")) /* the library's words */
                hint = "It was packed with a window above 32 MiB (zstd --ultra or --long): pack it again without";
            return fail(e, ERR_FAIL, "%s: cannot be unpacked: %s. %s", u->path, why, hint);
        }
    }
    return true;
}

int64_t unpack_name_bytes(const char *path) {
    static const char *const endings[] = {".gz", ".zst", ".zstd"};
    size_t n = strlen(path);
    for (int i = 0; i < COUNT_OF(endings); i++) {
        size_t m = strlen(endings[i]);
        if (n > m && !strcasecmp(path + n - m, endings[i])) return (int64_t)(n - m);
    }
    return (int64_t)n;
}
