/* stem.c - which endings go, under which condition on what is left.
 *
 * The *measure* of a stem is how often a vowel is followed by a consonant in it. In every step the first ending of a
 * table that the word has decides; where its condition does not hold, the step changes nothing. */
#include "unlearn/stem.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/str.h"

typedef struct Rule {
    const char *ending, *to;
} Rule;

static bool is_consonant(const char *w, int i) {
    if (strchr("aeiou", w[i])) return false;
    return w[i] != 'y' || i == 0 || !is_consonant(w, i - 1);
}

static int measure(const char *w, int n) {
    int m = 0;
    for (int i = 1; i < n; i++) m += !is_consonant(w, i - 1) && is_consonant(w, i);
    return m;
}

static bool has_vowel(const char *w, int n) {
    bool found = false;
    for (int i = 0; i < n; i++) found |= !is_consonant(w, i);
    return found;
}

static bool ends_double(const char *w, int n) { return n >= 2 && w[n - 1] == w[n - 2] && is_consonant(w, n - 1); }

/* Consonant, vowel, consonant other than w, x, y; or a word of vowel and consonant. */
static bool ends_short(const char *w, int n) {
    if (n == 2) return !is_consonant(w, 0) && is_consonant(w, 1);
    return n >= 3 && is_consonant(w, n - 3) && !is_consonant(w, n - 2) && is_consonant(w, n - 1) &&
           !strchr("wxy", w[n - 1]);
}

static int stem_length(const char *w, const char *ending) { return (int)(strlen(w) - strlen(ending)); }

/* Into a word's own bytes, from that place on; what is put there is never longer than STEM_BYTES has room for. */
static void put(char *w, int at, const char *to) {
    size_t bytes = strlen(to) + 1;
    CHECK((size_t)at + bytes <= STEM_BYTES);
    memcpy(w + at, to, bytes);
}

static void replace(char *w, const char *ending, const char *to) { put(w, stem_length(w, ending), to); }

/* The first ending of the table that the word has; NULL: none. */
static const Rule *find(const Rule *rules, int n, const char *w) {
    for (int i = 0; i < n; i++)
        if (str_ends(w, rules[i].ending)) return &rules[i];
    return NULL;
}

static void apply(char *w, const Rule *rules, int n, int least) {
    const Rule *r = find(rules, n, w);
    if (r && measure(w, stem_length(w, r->ending)) >= least) replace(w, r->ending, r->to);
}

/* ---- the steps ---- */

static void plurals(char *w) {
    static const Rule rules[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
    if (str_ends(w, "ies") && strlen(w) == 4)
        w[3] = 0; /* dies: die */
    else
        apply(w, rules, COUNT_OF(rules), 0);
}

static void mend(char *w) { /* after -ed or -ing has gone */
    static const Rule rules[] = {{"at", "ate"}, {"bl", "ble"}, {"iz", "ize"}};
    int n = (int)strlen(w);
    const Rule *r = find(rules, COUNT_OF(rules), w);
    if (r)
        replace(w, r->ending, r->to);
    else if (ends_double(w, n))
        w[n - 1] = strchr("lsz", w[n - 1]) ? w[n - 1] : 0;
    else if (measure(w, n) == 1 && ends_short(w, n))
        put(w, n, "e");
}

static void past_and_progressive(char *w) {
    if (str_ends(w, "ied")) {
        replace(w, "ied", strlen(w) == 4 ? "ie" : "i");
        return;
    }
    if (str_ends(w, "eed")) {
        if (measure(w, stem_length(w, "eed")) > 0) replace(w, "eed", "ee");
        return;
    }
    static const Rule endings[] = {{"ed", ""}, {"ing", ""}};
    const Rule *r = find(endings, 2, w);
    if (!r || !has_vowel(w, stem_length(w, r->ending))) return;
    replace(w, r->ending, "");
    mend(w);
}

static void y_to_i(char *w) {
    int n = (int)strlen(w) - 1;
    if (n > 1 && w[n] == 'y' && is_consonant(w, n - 1)) w[n] = 'i';
}

static void double_suffixes(char *w) {
    static const Rule rules[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
                                 {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
                                 {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
                                 {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
                                 {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
                                 {"fulli", "ful"}};
    if (str_ends(w, "alli") && measure(w, stem_length(w, "alli")) > 0) {
        replace(w, "alli", "al");
        double_suffixes(w);
        return;
    }
    if (str_ends(w, "logi")) {
        if (measure(w, stem_length(w, "ogi")) > 0) replace(w, "logi", "log"); /* the l counts */
        return;
    }
    apply(w, rules, COUNT_OF(rules), 1);
}

static void derivations(char *w) {
    static const Rule rules[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                 {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
    apply(w, rules, COUNT_OF(rules), 1);
}

static void suffixes(char *w) {
    static const Rule rules[] = {{"al", ""},   {"ance", ""}, {"ence", ""}, {"er", ""},    {"ic", ""},
                                 {"able", ""}, {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""},
                                 {"ent", ""},  {"ion", ""},  {"ou", ""},   {"ism", ""},   {"ate", ""},
                                 {"iti", ""},  {"ous", ""},  {"ive", ""},  {"ize", ""}};
    const Rule *r = find(rules, COUNT_OF(rules), w);
    if (!r) return;
    int n = stem_length(w, r->ending);
    if (!strcmp(r->ending, "ion") && (n < 1 || !strchr("st", w[n - 1]))) return;
    if (measure(w, n) > 1) w[n] = 0;
}

static void final_e(char *w) {
    int n = (int)strlen(w) - 1;
    if (w[n] != 'e') return;
    int m = measure(w, n);
    if (m > 1 || (m == 1 && !ends_short(w, n))) w[n] = 0;
}

static void final_l(char *w) {
    int n = (int)strlen(w);
    if (str_ends(w, "ll") && measure(w, n - 1) > 1) w[n - 1] = 0;
}

void stem_word(char w[STEM_BYTES]) {
    static const Rule irregular[] = {
        {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
        {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
        {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};
    for (int i = 0; i < COUNT_OF(irregular); i++)
        if (!strcmp(w, irregular[i].ending)) {
            put(w, 0, irregular[i].to);
            return;
        }
    if (strlen(w) <= 2) return;
    plurals(w);
    past_and_progressive(w);
    y_to_i(w);
    double_suffixes(w);
    derivations(w);
    suffixes(w);
    final_e(w);
    final_l(w);
}
