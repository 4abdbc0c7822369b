/* reward_text.c - words of two texts compared: token F1 and BLEU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "grpo/reward_int.h"

/* ---- characters ---- */

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

int64_t text_length(const char *text) {
    int64_t n = 0;
    for (; *text; text++) n += !is_continuation(*text);
    return n;
}

const char *text_tail(const char *text, int64_t characters) {
    const char *at = text + strlen(text);
    while (at > text && characters > 0) characters -= !is_continuation(*--at);
    return at;
}

static bool is_space(utf8proc_int32_t c) {
    static const utf8proc_int32_t others[] = {0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
    if ((c >= 9 && c <= 13) || (c >= 28 && c <= 32) || (c >= 0x2000 && c <= 0x200a)) return true;
    for (int i = 0; i < COUNT_OF(others); i++)
        if (c == others[i]) return true;
    return false;
}

/* The character at *text, which moves behind it; a broken byte stands for itself and gives -1. */
static utf8proc_int32_t next_character(const char **text) {
    utf8proc_int32_t c;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)*text, -1, &c);
    *text += n > 0 ? n : 1;
    return n > 0 ? c : -1;
}

/* ---- words ---- */

void words_split(Words *w, const char *text, bool lower) {
    bool inside = false;
    for (const char *from = text; *text; from = text) {
        utf8proc_int32_t c = next_character(&text);
        if (c >= 0 && is_space(c)) {
            if (inside) str_add_bytes(&w->text, "", 1);
            inside = false;
            continue;
        }
        if (!inside) {
            w->at = mem_grow(w->at, &w->capacity, w->n + 1, sizeof *w->at);
            w->at[w->n++] = w->text.len;
        }
        inside = true;
        utf8proc_uint8_t bytes[4];
        if (lower && c >= 0)
            str_add_bytes(&w->text, (char *)bytes, utf8proc_encode_char(utf8proc_tolower(c), bytes));
        else
            str_add_bytes(&w->text, from, text - from);
    }
    if (inside) str_add_bytes(&w->text, "", 1);
}

void words_free(Words *w) {
    str_free(&w->text);
    mem_free(w->at);
    *w = (Words){0};
}

/* ---- n-grams ---- */

typedef struct Grams { /* the n-grams of a text, sorted */
    const Words *w;
    int64_t *first; /* owns; the word each begins with */
    int64_t count;
    int n;
} Grams;

static int compare_grams(const Words *a, int64_t i, const Words *b, int64_t j, int n) {
    int order = 0;
    for (int k = 0; k < n && !order; k++) order = strcmp(word_at(a, i + k), word_at(b, j + k));
    return order;
}

static int by_words(const void *a, const void *b, void *grams) {
    const Grams *g = grams;
    return compare_grams(g->w, *(const int64_t *)a, g->w, *(const int64_t *)b, g->n);
}

static void grams_make(Grams *g, const Words *w, int n) {
    *g = (Grams){.w = w, .n = n, .count = MAX2(0, w->n - n + 1)};
    g->first = MEM_NEW(int64_t, g->count);
    for (int64_t i = 0; i < g->count; i++) g->first[i] = i;
    if (g->count) qsort_r(g->first, (size_t)g->count, sizeof *g->first, by_words, g);
}

/* How many n-grams two texts share, each counted as often as in the text that has it less often. */
static int64_t shared_grams(const Words *a, const Words *b, int n) {
    Grams x, y;
    int64_t shared = 0;
    grams_make(&x, a, n);
    grams_make(&y, b, n);
    for (int64_t i = 0, j = 0; i < x.count && j < y.count;) {
        int order = compare_grams(a, x.first[i], b, y.first[j], n);
        shared += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    mem_free(x.first);
    mem_free(y.first);
    return shared;
}

int64_t words_types(const Words *w) {
    Grams g;
    grams_make(&g, w, 1);
    int64_t types = g.count > 0;
    for (int64_t i = 1; i < g.count; i++) types += strcmp(word_at(w, g.first[i]), word_at(w, g.first[i - 1])) != 0;
    mem_free(g.first);
    return types;
}

/* ---- the scores ---- */

double reward_token_f1(const char *text, const char *gold) {
    Words a = {0}, b = {0};
    words_split(&a, text, true);
    words_split(&b, gold, true);
    double shared = (double)shared_grams(&a, &b, 1), f1 = 0;
    if (!a.n && !b.n)
        f1 = 1;
    else if (shared > 0)
        f1 = 2 * shared / (double)(a.n + b.n); /* = 2 p r / (p + r) */
    words_free(&a);
    words_free(&b);
    return f1;
}

double reward_bleu(const char *text, const char *gold) {
    enum { ORDER = 4 };
    Words a = {0}, b = {0};
    double logs = 0, brevity = 1;
    words_split(&a, text, false);
    words_split(&b, gold, false);
    for (int n = 1; n <= ORDER; n++) {
        int smooth = n > 1;
        double matches = (double)(shared_grams(&a, &b, n) + smooth),
               total = (double)(MAX2(0, a.n - n + 1) + smooth);
        logs += matches > 0 ? log(matches / total) : -INFINITY;
    }
    if (a.n && a.n < b.n) brevity = exp(1 - (double)b.n / (double)a.n);
    words_free(&a);
    words_free(&b);
    return brevity * exp(logs / ORDER);
}
