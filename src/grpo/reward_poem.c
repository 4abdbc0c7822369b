/* reward_poem.c - how good a poem is, as far as counting goes.
 *
 *   rhyme       share of lines whose last word rhymes with another last word. Two words rhyme when they end alike from
 *               their last sounded vowels on ("light", "night"; a silent e does not sound: "home", "chrome")
 *   diversity   0.7 types / tokens + 0.3 min(1, types / 20), of words in lower case
 *   length      1 from 100 to 300 characters; below it chars / 100; above it falls to 0 at 600
 *   coherence   0.6 x distinct first words among the first 10 lines, as a share of them + 0.4 min(1, variance of the
 *               lines' lengths / 100)
 *   repetition  min(distinct lines / lines, 1 - min(0.5, (most frequent line's count - 1) / lines))
 *
 * Lines without a letter or digit do not count. Dashes read as blanks: em and en dashes, and two or more hyphens. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "grpo/reward_int.h"

enum { LINES_MOST = 1000, FIRST_LINES = 10, RICH_TYPES = 20, WORD_BYTES = 64 };

typedef struct Poem {
    Str line[LINES_MOST]; /* lower case words, one blank between them */
    int64_t length[LINES_MOST];
    char last[LINES_MOST][WORD_BYTES]; /* letters of the last word */
    int lines;
    Words words; /* of the whole text, letters and digits only */
    int64_t characters;
} Poem;

/* ---- reading ---- */

static int dash_bytes(const char *p) {
    if (p[0] == '-' && p[1] == '-') {
        int n = 2;
        while (p[n] == '-') n++;
        return n;
    }
    bool long_dash = (unsigned char)p[0] == 0xe2 && (unsigned char)p[1] == 0x80 && (unsigned char)p[2] >= 0x92 &&
                     (unsigned char)p[2] <= 0x95;
    return long_dash ? 3 : 0;
}

/* The text with dashes as blanks. */
static void undash(Str *out, const char *text) {
    for (int n; *text; text += n ? n : 1) {
        n = dash_bytes(text);
        str_add_char(out, n ? ' ' : *text);
    }
}

static bool is_letter(char c) {
    return isalnum((unsigned char)c) || (unsigned char)c >= 128;
}

/* Without the signs around it: "night," and "(night" are "night". */
static void add_bare(Str *out, const char *word) {
    const char *end = word + strlen(word);
    while (*word && !is_letter(*word)) word++;
    while (end > word && !is_letter(end[-1])) end--;
    str_add_bytes(out, word, end - word);
}

/* The words of one line; false: it holds none. */
static bool read_line(Poem *p, const char *line) {
    Words w = {0};
    Str bare = {0}, *to = &p->line[p->lines];
    words_split(&w, line, true);
    for (int64_t i = 0; i < w.n; i++) {
        str_clear(&bare);
        add_bare(&bare, word_at(&w, i));
        if (!bare.len) continue;
        str_addf(to, "%s%s", to->len ? " " : "", bare.data);
        snprintf(p->last[p->lines], WORD_BYTES, "%s", bare.data);
    }
    str_free(&bare);
    words_free(&w);
    return to->len > 0;
}

static void read_poem(Poem *p, const char *text) {
    Str plain = {0}, line = {0}, all = {0};
    undash(&plain, text);
    str_add_trimmed(&line, str_text(&plain));
    p->characters = text_length(str_text(&line));
    for (const char *at = str_text(&plain); *at && p->lines < LINES_MOST;) {
        size_t n = strcspn(at, "\n");
        str_clear(&line);
        str_add_bytes(&line, at, (int64_t)n);
        if (read_line(p, line.data)) {
            Str trimmed = {0};
            str_add_trimmed(&trimmed, line.data);
            p->length[p->lines] = text_length(str_text(&trimmed));
            str_addf(&all, "%s\n", p->line[p->lines++].data);
            str_free(&trimmed);
        }
        at += n + (at[n] == '\n');
    }
    words_split(&p->words, str_text(&all), false);
    str_free(&plain);
    str_free(&line);
    str_free(&all);
}

static void free_poem(Poem *p) {
    for (int i = 0; i < p->lines; i++) str_free(&p->line[i]);
    words_free(&p->words);
    mem_free(p);
}

/* ---- the parts ---- */

static bool is_vowel(char c) {
    return c && strchr("aeiouy", c);
}

/* Where the sound begins by which a word rhymes. */
static const char *rhyme_of(const char *word) {
    int64_t n = (int64_t)strlen(word), end = n;
    bool silent = n > 2 && word[n - 1] == 'e' && !is_vowel(word[n - 2]);
    for (int64_t i = 0; silent && i < n - 1; i++)
        if (is_vowel(word[i])) end = n - 2; /* another vowel sounds */
    int64_t at = end - 1;
    while (at >= 0 && !is_vowel(word[at])) at--;
    while (at > 0 && is_vowel(word[at - 1])) at--;
    return word + MAX2(0, at);
}

static double rhyme_share(const Poem *p) {
    int rhyming = 0;
    for (int i = 0; i < p->lines; i++) {
        bool found = false;
        for (int j = 0; j < p->lines && !found; j++)
            found = strcmp(p->last[i], p->last[j]) != 0 && !strcmp(rhyme_of(p->last[i]), rhyme_of(p->last[j]));
        rhyming += found;
    }
    return (double)rhyming / p->lines;
}

static double diversity(const Poem *p) {
    double types = (double)words_types(&p->words);
    return 0.7 * types / (double)p->words.n + 0.3 * fmin(1, types / RICH_TYPES);
}

static double length_score(int64_t characters) {
    if (characters < 100) return (double)characters / 100;
    return fmax(0, fmin(1, 1 - (double)(characters - 300) / 300));
}

static double coherence(const Poem *p) {
    int first = MIN2(p->lines, FIRST_LINES), distinct = 0;
    for (int i = 0; i < first; i++) {
        size_t n = strcspn(p->line[i].data, " ");
        bool new = true;
        for (int j = 0; j < i && new; j++)
            new = strcspn(p->line[j].data, " ") != n || memcmp(p->line[i].data, p->line[j].data, n) != 0;
        distinct += new;
    }
    double mean = 0, variance = 0;
    for (int i = 0; i < p->lines; i++) mean += (double)p->length[i] / p->lines;
    for (int i = 0; i < p->lines; i++)
        variance += ((double)p->length[i] - mean) * ((double)p->length[i] - mean) / p->lines;
    return 0.6 * distinct / first + 0.4 * fmin(1, variance / 100);
}

static double repetition(const Poem *p) {
    int distinct = 0, most = 0;
    for (int i = 0; i < p->lines; i++) {
        int same = 0, earlier = 0;
        for (int j = 0; j < p->lines; j++)
            if (!strcmp(p->line[i].data, p->line[j].data)) same++, earlier += j < i;
        distinct += !earlier;
        most = MAX2(most, same);
    }
    return fmin((double)distinct / p->lines, 1 - fmin(0.5, (double)(most - 1) / p->lines));
}

double reward_poem(const RewardInput *in) {
    Poem *p = MEM_NEW(Poem, 1);
    double score = 0;
    read_poem(p, in->answer);
    if (p->lines)
        score = (0.25 * rhyme_share(p) + 0.25 * diversity(p) + 0.20 * length_score(p->characters) +
                 0.30 * coherence(p)) *
                (0.3 + 0.7 * repetition(p));
    free_poem(p);
    return score;
}
