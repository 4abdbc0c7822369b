/* steplog.c - where in a file of lines a step ends. */
#include "obs/steplog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { BLOCK_BYTES = 1 << 16, HEAD_BYTES = 48 }; /* a line's step is within its head */

typedef struct Scan {   /* a file read block by block, of each line only its head kept */
    int64_t step;       /* lines beyond it are dropped */
    int64_t end;        /* bytes of the lines that are kept */
    int64_t line_bytes; /* of the current line, so far */
    char head[HEAD_BYTES];
    bool over;
} Scan;

static void end_line(Scan *s) {
    static const char mark[] = "{\"step\": ";
    s->head[MIN2(s->line_bytes, HEAD_BYTES - 1)] = 0;
    s->over = !str_starts(s->head, mark) || strtoll(s->head + sizeof mark - 1, NULL, 10) > s->step;
    if (!s->over) s->end += s->line_bytes;
    s->line_bytes = 0;
}

static void scan_block(Scan *s, const char *block, int64_t bytes) {
    for (const char *at = block, *end = block + bytes; at < end && !s->over;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline + 1 : end;
        for (const char *p = at; p < stop && s->line_bytes + (p - at) < HEAD_BYTES - 1; p++)
            s->head[s->line_bytes + (p - at)] = *p;
        s->line_bytes += stop - at;
        if (newline) end_line(s);
        at = stop;
    }
}

static bool find_end(StepLog *l, int64_t step, Err *e) {
    Scan s = {.step = step};
    char *block = mem_alloc(BLOCK_BYTES);
    int64_t got = 1;
    bool ok = true;
    while (ok && got && !s.over) {
        ok = file_read_some(l->fd, block, &got, BLOCK_BYTES, l->path, e);
        if (ok) scan_block(&s, block, got);
    }
    mem_free(block);
    l->bytes = s.end;
    return ok;
}

bool steplog_open(StepLog *l, const char *path, int64_t resumed_step, Err *e) {
    *l = (StepLog){.fd = -1};
    if (snprintf(l->path, sizeof l->path, "%s", path) >= (int)sizeof l->path)
        return fail(e, ERR_FAIL, "%s: the path is too long", path);
    if (!file_open_append(path, &l->fd, e)) return false;
    bool ok = (resumed_step <= 0 || find_end(l, resumed_step, e)) && file_cut(l->fd, l->bytes, l->path, e);
    if (!ok) steplog_close(l);
    return ok;
}

void steplog_close(StepLog *l) {
    file_close(l->fd);
    l->fd = -1;
}

bool steplog_write(StepLog *l, const Str *lines, Err *e) {
    if (!file_write(l->fd, str_text(lines), lines->len, l->path, e)) {
        if (!file_cut(l->fd, l->bytes, l->path, NULL)) fail_within(e, "half a line remains");
        return false;
    }
    l->bytes += lines->len;
    return true;
}

bool steplog_tail(const StepLog *l, Str *out, int64_t most_bytes, Err *e) {
    int64_t bytes = MIN2(l->bytes, most_bytes), from = l->bytes - bytes;
    char *text = mem_alloc(bytes + 1), *begin = text;
    bool ok = file_pread(l->fd, text, bytes, from, l->path, e);
    if (ok && from > 0) { /* the first line may be cut */
        char *newline = memchr(text, '\n', (size_t)bytes);
        begin = newline ? newline + 1 : text + bytes;
    }
    if (ok) str_add_bytes(out, begin, text + bytes - begin);
    mem_free(text);
    return ok;
}
