/* cmd_tokenize.c - snug tokenize: {"text":...} per line in, {"ids":[...]} per line out. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/share.h"
#include "data/tokenizer.h"

/* LINE_SHARE: heap for each byte of the longest line: the text as read, as JSON and as it is split, its ids, and
 * those as text. Half of what a tokenizer is read from may still be there beside its tables. */
enum { READ_BYTES = 1 << 16, LINE_SHARE = 40 };

static void print_ids(const TokenIds *t) {
    Str line = {0};
    str_add(&line, "{\"ids\":[");
    for (int64_t i = 0; i < t->n; i++) str_addf(&line, i ? ",%d" : "%d", t->ids[i]);
    str_add(&line, "]}\n");
    fwrite(line.data, 1, (size_t)line.len, stdout);
    str_free(&line);
}

typedef struct Counts {
    int64_t lines, tokens, longest; /* line, in bytes */
} Counts;

static bool one_line(Counts *n, const Tokenizer *t, const char *line, int64_t bytes, int64_t number, Err *e) {
    json_error_t je;
    json_t *row = json_loadb(line, (size_t)bytes, JSON_ALLOW_NUL, &je);
    if (!row) return fail(e, ERR_FAIL, "standard input, line %lld: is not JSON: %s", (long long)number, je.text);
    const json_t *text = json_object_get(row, "text");
    TokenIds ids = {0};
    bool ok = json_is_string(text)
                  ? tokenizer_encode(t, &ids, json_string_value(text), (int64_t)json_string_length(text), TOKENIZE_PLAIN, e)
                  : fail(e, ERR_FAIL, "line has no field \"text\" that is a string");
    n->lines++;
    n->tokens += ids.n;
    n->longest = MAX2(n->longest, bytes);
    if (ok) print_ids(&ids);
    else fail_within(e, "standard input, line %lld", (long long)number);
    token_ids_free(&ids);
    json_decref(row);
    return ok;
}

typedef struct Lines { /* standard input, a line at a time */
    char *text;
    int64_t begin, end, room;
    bool at_end;
} Lines;

/* The next line without its end; *line is NULL behind the last one. */
static bool next_line(Lines *in, const char **line, int64_t *bytes, Err *e) {
    for (int64_t looked = 0, got;;) {
        char *from = in->text + in->begin, *stop = memchr(from + looked, '\n', (size_t)(in->end - in->begin - looked));
        if (stop || in->at_end) {
            *line = stop || in->begin < in->end ? from : NULL;
            *bytes = stop ? stop - from : in->end - in->begin;
            in->begin += *bytes + (stop != NULL);
            return true;
        }
        looked = in->end - in->begin;
        memmove(in->text, from, (size_t)looked);
        in->begin = 0;
        in->text = mem_grow(in->text, &in->room, looked + READ_BYTES, 1);
        if (!file_read_some(STDIN_FILENO, in->text + looked, &got, READ_BYTES, "standard input", e)) return false;
        in->at_end = got == 0;
        in->end = looked + got;
    }
}

bool cmd_tokenize(const Options *o, Err *e) {
    Tokenizer *t;
    Counts n = {0};
    char own[SHARE_PATH];
    if (!tokenizer_open(&t, share_find(own, "models", opt_text(o, OPT_TOKENIZER)), e)) return false;
    Lines in = {.text = mem_alloc(READ_BYTES), .room = READ_BYTES};
    const char *line;
    int64_t bytes;
    bool ok = true;
    for (int64_t number = 1; (ok = next_line(&in, &line, &bytes, e)) && line; number++) {
        bool blank = true;
        for (int64_t i = 0; i < bytes && blank; i++) blank = strchr(" \t\r", line[i]) && line[i];
        if (!blank && !(ok = one_line(&n, t, line, bytes, number, e))) break;
    }
    mem_free(in.text);
    int64_t planned = process_runtime_bytes(1) + 2 * tokenizer_bytes(t) + LINE_SHARE * n.longest;
    tokenizer_close(t);
    return ok && peak_finish(json_pack("{s:I, s:I}", "lines", (json_int_t)n.lines, "tokens", (json_int_t)n.tokens),
                             planned, o, e);
}
