/* tokenizer_speed.c - how fast a tokenizer loads, encodes and decodes, on one core: one JSON line per measurement.
 *
 * usage: tokenizer_speed TOKENIZER TEXT [REPEATS]    (bench/tokenizer_speed.sh builds and runs it) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "data/tokenizer.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int complain(const Err *e) {
    fprintf(stderr, "tokenizer_speed: %s\n", e->text);
    return 1;
}

/* Encodes the text as one, or line by line, by itself or through a stream, and returns the seconds. */
static double encode_s(const Tokenizer *t, TokenStream *s, TokenIds *ids, const Str *text, bool by_line, Err *e) {
    double start = now_s();
    ids->n = 0;
    for (int64_t from = 0; from < text->len;) {
        const char *end = by_line ? memchr(text->data + from, '\n', (size_t)(text->len - from)) : NULL;
        int64_t to = end ? end - text->data + 1 : text->len;
        bool ok = s ? token_stream_put(s, ids, text->data + from, to - from, e) && token_stream_end(s, ids, e)
                    : tokenizer_encode(t, ids, text->data + from, to - from, TOKENIZE_PLAIN, e);
        if (!ok) return -1;
        from = to;
    }
    return now_s() - start;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: tokenizer_speed TOKENIZER TEXT [REPEATS]\n"), 2;
    int repeats = argc > 3 ? atoi(argv[3]) : 5;
    Err e = {0};
    Tokenizer *t = NULL;
    Str text = {0}, back = {0};
    TokenIds ids = {0};
    double load = 1e9;
    if (!file_read(argv[2], &text, 0, &e)) return complain(&e);
    for (int i = 0; i < repeats; i++) {
        double start = now_s();
        tokenizer_close(t);
        if (!tokenizer_open(&t, argv[1], &e)) return complain(&e);
        load = now_s() - start < load ? now_s() - start : load;
    }
    printf("{\"what\": \"load\", \"ms\": %.1f, \"kept_bytes\": %lld}\n", load * 1e3,
           (long long)tokenizer_bytes(t));
    TokenStream *stream = token_stream_open(t, TOKENIZE_PLAIN);
    for (int way = 0; way < 4; way++) {
        bool by_line = way % 2, streamed = way > 1;
        double best = 1e9;
        for (int i = 0; i < repeats; i++) {
            double s = encode_s(t, streamed ? stream : NULL, &ids, &text, by_line, &e);
            if (s < 0) return complain(&e);
            best = s < best ? s : best;
        }
        printf("{\"what\": \"%s %s\", \"MB_per_s\": %.1f, \"ids\": %lld}\n", streamed ? "stream" : "encode",
               by_line ? "lines" : "whole", (double)text.len / best / 1e6, (long long)ids.n);
    }
    token_stream_close(stream);
    double start = now_s();
    if (!tokenizer_decode(t, &back, ids.ids, ids.n, false, &e)) return complain(&e);
    printf("{\"what\": \"decode\", \"MB_per_s\": %.1f}\n", (double)back.len / (now_s() - start) / 1e6);
    str_free(&text);
    str_free(&back);
    token_ids_free(&ids);
    tokenizer_close(t);
    return 0;
}
