/* cmd_tokenize.c - snug tokenize: {"text":...} per line in, {"ids":[...]} per line out. */
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "data/tokenizer.h"

static void print_ids(const TokenIds *t) {
    Str line = {0};
    str_add(&line, "{\"ids\":[");
    for (int64_t i = 0; i < t->n; i++) str_addf(&line, i ? ",%d" : "%d", t->ids[i]);
    str_add(&line, "]}\n");
    fwrite(line.data, 1, (size_t)line.len, stdout);
    str_free(&line);
}

static bool one_line(const Tokenizer *t, const char *line, int64_t bytes, int64_t number, Err *e) {
    json_error_t je;
    json_t *row = json_loadb(line, (size_t)bytes, JSON_ALLOW_NUL, &je);
    if (!row) return fail(e, ERR_FAIL, "standard input, line %lld: is not JSON: %s", (long long)number, je.text);
    const json_t *text = json_object_get(row, "text");
    TokenIds ids = {0};
    bool ok = json_is_string(text)
                  ? tokenizer_encode(t, &ids, json_string_value(text), (int64_t)json_string_length(text), TOKENIZE_PLAIN, e)
                  : fail(e, ERR_FAIL, "line has no field \"text\" that is a string");
    if (ok) print_ids(&ids);
    else fail_within(e, "standard input, line %lld", (long long)number);
    token_ids_free(&ids);
    json_decref(row);
    return ok;
}

bool cmd_tokenize(const Options *o, Err *e) {
    Tokenizer *t;
    if (!tokenizer_open(&t, opt_text(o, OPT_TOKENIZER), e)) return false;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    bool ok = true;
    for (int64_t number = 1; ok && (n = getline(&line, &room, stdin)) >= 0; number++) {
        bool blank = true;
        for (ssize_t i = 0; i < n && blank; i++) blank = strchr(" \t\r\n", line[i]) && line[i];
        if (!blank) ok = one_line(t, line, n, number, e);
    }
    mem_free(line);
    tokenizer_close(t);
    return ok;
}
