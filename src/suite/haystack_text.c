/* haystack_text.c - prompts that hide something in a long text: numbers of names, chains of variables, words that
 * come often. Every text follows from a key and a number of units (sentences or words), so any length can be asked
 * for. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "suite/suite_int.h"

enum { NEEDLES_MOST = 16 };
enum {
    DRAW_PLACE = 1,
    DRAW_FILLER,
    DRAW_NAME,
    DRAW_NUMBER,
    DRAW_WORD,
    DRAW_ORDER
}; /* what random numbers are for */

static uint32_t draw(const Hay *h, int what, int64_t i, uint32_t below) {
    return (uint32_t)((uint64_t)rng_u32(rng_fold(h->key, (uint64_t)what), (uint64_t)i) * below >> 32);
}

static const char *const filler[] = {
    "The ferry left the pier a little after eight, as it did every morning.",
    "Rain had fallen all night and the gutters were still running.",
    "A baker across the street was setting loaves in the window.",
    "Two cyclists waited at the crossing and talked about the hill ahead.",
    "The library opens at nine and closes when the last reader leaves.",
    "Somebody had painted the bench green and forgotten the sign.",
    "In the afternoon the wind turned and the flags hung still.",
    "The train to the coast was late, but nobody seemed to mind.",
    "Children counted the steps of the tower and lost count twice.",
    "An old map of the valley hung beside the door of the station.",
    "The gardener moved the pots into the shade before noon.",
    "On market days the square smells of coffee and wet stone.",
    "A dog slept under the table while its owner read the paper.",
    "The bridge was built of oak and has been mended many times.",
    "Snow is rare here, and when it comes the schools stay open.",
    "The choir practised in the hall with all windows open.",
    "At low tide a path of sand leads over to the island.",
    "The clock above the town hall is three minutes slow.",
    "Fresh paint and sawdust: the workshop was ready for the winter.",
    "A letter lay on the counter, addressed to the floor above.",
};
static const char *const quality[] = {"amber", "brisk",  "copper", "dusty", "eager", "fabled", "gentle", "hollow",
                                      "ivory", "jovial", "kindly", "lunar", "misty", "nimble", "olive",  "plain"};
static const char *const thing[] = {"anchor", "bottle", "candle",  "dragon", "engine", "feather",
                                    "garden", "hammer", "island",  "jacket", "kettle", "lantern",
                                    "mirror", "needle", "orchard", "pebble"};

static void add_name(Str *out, const Hay *h, int i) { /* distinct for every i */
    int64_t at = rng_permuted(rng_fold(h->key, DRAW_NAME), COUNT_OF(quality) * COUNT_OF(thing), i);
    str_addf(out, "%s %s", quality[at / COUNT_OF(thing)], thing[at % COUNT_OF(thing)]);
}

static void want(Hay *h, const char *text) {
    CHECK(h->n_want < HAY_WANTED && strlen(text) < sizeof h->want[0]);
    snprintf(h->want[h->n_want++], sizeof h->want[0], "%s", text);
}

/* ---- sentences around needles ---- */

typedef struct Needles {
    Str text[NEEDLES_MOST];
    int64_t place[NEEDLES_MOST]; /* the sentence before which it stands */
    int n;
} Needles;

static void place_needles(const Hay *h, Needles *all, int64_t units) {
    for (int i = 0; i < all->n; i++)
        all->place[i] = h->depth >= 0 ? units * h->depth / 100 : draw(h, DRAW_PLACE, i, (uint32_t)units + 1);
}

static void add_haystack(Str *out, const Hay *h, Needles *all, int64_t units) {
    place_needles(h, all, units);
    for (int64_t i = 0; i <= units; i++) {
        for (int k = 0; k < all->n; k++)
            if (all->place[k] == i) str_addf(out, "%s ", str_text(&all->text[k]));
        if (i < units) str_addf(out, "%s ", filler[draw(h, DRAW_FILLER, i, COUNT_OF(filler))]);
    }
    for (int k = 0; k < all->n; k++) str_free(&all->text[k]);
}

static void needle_prompt(Str *out, Hay *h, int64_t units) {
    Needles all = {0};
    Str asked = {0};
    for (int k = 0; k < h->spec.keys; k++) {
        for (int v = 0; v < h->spec.values; v++) {
            char number[16];
            snprintf(number, sizeof number, "%u", 1000000 + draw(h, DRAW_NUMBER, k * 100 + v, 9000000));
            str_add(&all.text[all.n], "The secret number of the ");
            add_name(&all.text[all.n], h, k);
            str_addf(&all.text[all.n++], " is %s.", number);
            if (k < h->spec.asked) want(h, number);
        }
        if (k >= h->spec.asked) continue;
        str_add(&asked, !k ? "the " : k + 1 == h->spec.asked ? " and the " : ", the ");
        add_name(&asked, h, k);
    }
    const char *s = h->n_want > 1 ? "s" : "", *is = h->n_want > 1 ? "are" : "is";
    str_addf(out, "Somewhere in the text below secret numbers are mentioned. Remember them.\n\n");
    add_haystack(out, h, &all, units);
    str_addf(out, "\n\nQuestion: What %s the secret number%s of %s?\nAnswer: The secret number%s of %s %s", is, s,
             str_text(&asked), s, str_text(&asked), is);
    str_free(&asked);
}

static void add_variable(char to[16], const Hay *h, int i) {
    for (int k = 0; k < 5; k++) to[k] = (char)('A' + draw(h, DRAW_NAME, i * 5 + k, 26));
    to[5] = 0;
}

/* A value handed on from variable to variable, in this order. */
static void chain_prompt(Str *out, Hay *h, int64_t units) {
    Needles all = {0};
    char name[16], before[16];
    unsigned value = 10000 + draw(h, DRAW_NUMBER, 0, 90000);
    for (int i = 0; i < h->spec.keys; i++) {
        add_variable(name, h, i);
        if (i)
            str_addf(&all.text[all.n++], "VAR %s = VAR %s.", name, before);
        else
            str_addf(&all.text[all.n++], "VAR %s = %u.", name, value);
        want(h, name);
        snprintf(before, sizeof before, "%s", name);
    }
    str_add(out, "Variables are assigned in the text below. Follow the assignments.\n\n");
    add_haystack(out, h, &all, units);
    str_addf(
        out,
        "\n\nQuestion: Which variables have the value %u?\nAnswer: The %d variables that have the value %u are",
        value, h->spec.keys, value);
}

/* ---- lists of words ---- */

/* Distinct for every i: three syllables of a permuted number. */
static void add_word(char to[16], const Hay *h, int64_t i) {
    static const char first[] = "bdfgklmnprstvz", second[] = "aeiou";
    int64_t syllables = (int64_t)(sizeof first - 1) * (int64_t)(sizeof second - 1);
    int64_t at = rng_permuted(rng_fold(h->key, DRAW_WORD), syllables * syllables * syllables, i);
    for (int k = 0; k < 3; k++, at /= syllables) {
        to[2 * k] = first[at % syllables / (int64_t)(sizeof second - 1)];
        to[2 * k + 1] = second[at % (int64_t)(sizeof second - 1)];
    }
    to[6] = 0;
}

/* Word number of the i-th of n places before they are mixed: the wanted ones have half of them, each of the others
 * comes a tenth as often. */
static int64_t common_word(const Hay *h, int64_t i, int64_t n) {
    int64_t often = MAX2(n / 2 / h->spec.keys, 1), seldom = MAX2(often / 10, 1), wanted = often * h->spec.keys;
    return i < wanted ? i / often : h->spec.keys + (i - wanted) / seldom;
}

/* Frequencies fall as 1 / rank^2: of n places the first word has about 6 in 10, the second 15 in 100, the third 7. */
static int64_t frequent_word(int64_t i, int64_t n) {
    double place = ((double)i + 0.5) / (double)n, sum = 0;
    int64_t word = 0;
    for (; word < 50; word++) {
        sum += 0.6152 / (double)((word + 1) * (word + 1)); /* 1 / (1 + 1/4 + ... + 1/51^2) */
        if (place < sum) break;
    }
    return word;
}

static void words_prompt(Str *out, Hay *h, int64_t units) {
    bool common = h->spec.form == HAY_COMMON;
    int64_t n = MAX2(units, 4 * h->spec.keys);
    uint64_t order = rng_fold(h->key, DRAW_ORDER);
    char word[16];
    str_add(out, "Below is a list of words. Some of them come more often than others.\n\n");
    for (int64_t i = 0; i < n; i++) {
        int64_t at = rng_permuted(order, n, i);
        add_word(word, h, common ? common_word(h, at, n) : frequent_word(at, n));
        str_addf(out, "%s ", word);
    }
    for (int i = 0; i < h->spec.keys; i++) {
        add_word(word, h, i);
        want(h, word);
    }
    str_addf(
        out,
        "\n\nQuestion: Which %d words come most often in the list?\nAnswer: The %d words that come most often are",
        h->spec.keys, h->spec.keys);
}

void hay_prompt(Str *out, Hay *h, int64_t units) {
    h->n_want = 0;
    if (h->spec.form == HAY_NEEDLE)
        needle_prompt(out, h, units);
    else if (h->spec.form == HAY_CHAIN)
        chain_prompt(out, h, units);
    else
        words_prompt(out, h, units);
}
