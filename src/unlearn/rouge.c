/* rouge.c - ROUGE-L: the longest common subsequence of stemmed words. */
#include <ctype.h>
#include <string.h>

#include "base/mem.h"
#include "unlearn/metrics.h"
#include "unlearn/stem.h"

typedef struct Words {
    char (*word)[STEM_BYTES + 2]; /* owns; a stem may be a letter longer */
    int64_t n, capacity;
} Words;

/* Runs of ASCII letters and digits, in lower case; those of more than three letters are stemmed. */
static Words split(const char *text) {
    Words w = {0};
    for (const char *at = text; *at;) {
        const char *end = at;
        while (isascii((unsigned char)*end) && isalnum((unsigned char)*end)) end++;
        int64_t n = MIN2(end - at, STEM_BYTES - 1);
        if (!n) {
            at++;
            continue;
        }
        w.word = mem_grow(w.word, &w.capacity, w.n + 1, sizeof *w.word);
        char *to = w.word[w.n++];
        for (int64_t i = 0; i < n; i++) to[i] = (char)tolower((unsigned char)at[i]);
        to[n] = 0;
        if (end - at > 3 && end - at < STEM_BYTES) stem_word(to);
        at = end;
    }
    return w;
}

static int64_t common(const Words *a, const Words *b) {
    int64_t *row = MEM_NEW(int64_t, b->n + 1);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = 0, diagonal = 0; j < b->n; j++) {
            int64_t above = row[j + 1];
            row[j + 1] = !strcmp(a->word[i], b->word[j]) ? diagonal + 1 : MAX2(above, row[j]);
            diagonal = above;
        }
    int64_t n = row[b->n];
    mem_free(row);
    return n;
}

RougeL metric_rouge_l(const char *reference, const char *answer) {
    Words a = split(reference), b = split(answer);
    RougeL r = {0};
    int64_t n = a.n && b.n ? common(&a, &b) : 0;
    if (n) {
        r.precision = (double)n / (double)b.n;
        r.recall = (double)n / (double)a.n;
        r.f = 2 * r.precision * r.recall / (r.precision + r.recall);
    }
    mem_free(a.word);
    mem_free(b.word);
    return r;
}
