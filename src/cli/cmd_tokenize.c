/* cmd_tokenize.c - snug tokenize: {"text":...} per line in, {"ids":[...]} per line out. */
#include <stdio.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/share.h"
#include "data/rows.h"
#include "data/tokenizer.h"

/* Text encoded, and output held, at a time: a line of any length takes the memory of its text and no more. A
 * shorter one appears whole or not at all. */
enum { TEXT_BYTES = 1 << 16, HELD_BYTES = 1 << 20 };
/* Heap: SCRATCH_BYTES of windows, words and held output, and LINE_SHARE for each byte of the longest line (read and
 * decoded). Half of what a tokenizer is read from may still be there beside its tables. */
enum { SCRATCH_BYTES = 8 << 20, LINE_SHARE = 4 };

typedef struct Lines {
    TokenStream *stream;
    TokenIds ids;
    Str out;
    bool first; /* of the line's ids */
    int64_t lines, tokens, longest_bytes;
} Lines;

static void flush(Lines *l) {
    fwrite(str_text(&l->out), 1, (size_t)l->out.len, stdout);
    str_clear(&l->out);
}

static void add_ids(Lines *l) {
    for (int64_t i = 0; i < l->ids.n; i++, l->first = false) str_addf(&l->out, l->first ? "%d" : ",%d", l->ids.ids[i]);
    l->tokens += l->ids.n;
    l->ids.n = 0;
    if (l->out.len > HELD_BYTES) flush(l);
}

static bool one_line(Lines *l, Row *row, Err *e) {
    RowField *f = row_get(row, "text");
    if (!f || f->type != JSON_STRING) return fail(e, ERR_FAIL, "line has no field \"text\" that is a string");
    int64_t bytes;
    const char *text = row_text(f, &bytes);
    str_add(&l->out, "{\"ids\":[");
    l->first = true;
    for (int64_t at = 0; at < bytes; at += TEXT_BYTES) {
        if (!token_stream_put(l->stream, &l->ids, text + at, MIN2(bytes - at, TEXT_BYTES), e)) return false;
        add_ids(l);
    }
    if (!token_stream_end(l->stream, &l->ids, e)) return false;
    add_ids(l);
    str_add(&l->out, "]}\n");
    flush(l);
    return true;
}

static bool all_lines(Lines *l, Err *e) {
    RowReader in;
    bool found, ok;
    if (!dataset_reader_begin(&in, STDIN_FILENO, "standard input", e)) return false;
    Row *row = MEM_NEW(Row, 1);
    while ((ok = dataset_reader_row(&in, row, &found, e)) && found) {
        ok = one_line(l, row, e) || fail_within(e, "standard input, line %lld", (long long)in.row_line);
        row_free(row);
        if (!ok) break;
        l->lines++;
    }
    mem_free(row);
    l->longest_bytes = in.longest_bytes;
    dataset_reader_close(&in);
    return ok;
}

bool cmd_tokenize(const Options *o, Err *e) {
    Tokenizer *t;
    char own[SHARE_PATH];
    if (!tokenizer_open(&t, share_find(own, "models", opt_text(o, OPT_TOKENIZER)), e)) return false;
    Lines l = {.stream = token_stream_open(t, TOKENIZE_PLAIN)};
    bool ok = all_lines(&l, e);
    int64_t words = token_stream_bytes(l.stream);
    token_stream_close(l.stream);
    token_ids_free(&l.ids);
    str_free(&l.out);
    int64_t planned =
        process_runtime_bytes(1) + 2 * tokenizer_bytes(t) + SCRATCH_BYTES + words + LINE_SHARE * l.longest_bytes;
    tokenizer_close(t);
    return ok && peak_finish(json_pack("{s:I, s:I}", "lines", (json_int_t)l.lines, "tokens", (json_int_t)l.tokens),
                             planned, o, e);
}
