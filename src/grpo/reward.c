/* reward.c - the table of rewards, and those that search an answer for the gold answer. */
#include "grpo/reward.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/choose.h"
#include "grpo/reward_int.h"
#include "reason/answer.h"

enum { TAIL = 50, CLASS_TAIL = 30, BRIEF = 128, LONG_ENOUGH = 100, NUMBER_BYTES = 64 };

static bool same_words(const char *a, const char *b) {
    Words x = {0}, y = {0};
    words_split(&x, a, true);
    words_split(&y, b, true);
    bool same = x.n == y.n && x.text.len == y.text.len &&
                !memcmp(str_text(&x.text), str_text(&y.text), (size_t)x.text.len);
    words_free(&x);
    words_free(&y);
    return same;
}

static bool has_gold(const RewardInput *in) {
    return in->item->gold[0] != 0;
}

static double accuracy(const RewardInput *in) {
    Str found = {0};
    if (!has_gold(in)) return NAN;
    answer_find(&found, in->answer);
    bool same = (found.len && answer_same(found.data, in->item->gold)) || same_words(in->answer, in->item->gold);
    str_free(&found);
    return same;
}

static double exact(const RewardInput *in) {
    return has_gold(in) ? same_words(in->answer, in->item->gold) : NAN;
}

/* ---- numbers ---- */

/* A number that began earlier goes on at p: "1,|080" */
static bool goes_on(const char *p, const char *text) {
    if (p > text && isdigit((unsigned char)p[-1])) return true;
    return p > text + 1 && (p[-1] == '.' || p[-1] == ',') && isdigit((unsigned char)p[-2]);
}

/* The number that begins at p: digits, separators of thousands, a fraction; its sign stands before it. Gives where it
 * ends; NULL: none begins here. */
static const char *read_number(double *value, const char *p, const char *text) {
    bool point = *p == '.' && isdigit((unsigned char)p[1]);
    if ((!isdigit((unsigned char)*p) && !point) || goes_on(p, text)) return NULL;
    char digits[NUMBER_BYTES];
    int n = 0;
    bool dot = false;
    const char *q = p;
    for (; isdigit((unsigned char)*q) || ((*q == ',' || (*q == '.' && !dot)) && isdigit((unsigned char)q[1]));
         q++) {
        dot |= *q == '.';
        if (*q != ',' && n < NUMBER_BYTES - 1) digits[n++] = *q;
    }
    digits[n] = 0;
    if (!answer_value(value, digits)) return NULL;
    bool minus = p > text && p[-1] == '-' && (p == text + 1 || !(isalnum((unsigned char)p[-2]) || p[-2] == ')'));
    if (minus) *value = -*value;
    return q;
}

/* The first number that begins at `at` or later. Gives where it ends; NULL: there is none. */
static const char *next_number(double *value, const char *at, const char *text) {
    const char *end = NULL;
    while (*at && !(end = read_number(value, at, text))) at++;
    return end;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

static bool last_number_of(double *value, const char *text) {
    bool found = false;
    for (const char *p = text; (p = next_number(value, p, text));) found = true;
    return found;
}

static double last_number(const RewardInput *in) {
    double gold, last;
    if (!last_number_of(&gold, in->item->gold)) return NAN;
    return last_number_of(&last, in->answer) && near(gold, last);
}

static double easy_math(const RewardInput *in) {
    double gold, value;
    if (!has_gold(in)) return NAN;
    Str text = {0};
    str_add_trimmed(&text, in->answer);
    const char *tail = text_tail(str_text(&text), TAIL);
    bool number = answer_value(&gold, in->item->gold), found = !number && strstr(tail, in->item->gold);
    for (const char *p = tail; number && !found && (p = next_number(&value, p, str_text(&text)));)
        found = near(value, gold); /* a number that began before the tail is none */
    str_free(&text);
    return found;
}

/* ---- classes ---- */

static const char *last_of(const char *text, const char *word) {
    const char *last = NULL;
    for (const char *p = text; (p = strcasestr(p, word)); p++) last = p;
    return last;
}

/* Of the classes that a text names, the last is the gold. */
static bool names_gold(const char *text, const char *gold) {
    static const char *const classes[] = {"World", "Sports", "Business", "Science/Technology"};
    const char *at = last_of(text, gold);
    for (int i = 0; at && i < COUNT_OF(classes); i++)
        if (strcasecmp(classes[i], gold) != 0 && last_of(text, classes[i]) > at) return false;
    return at != NULL;
}

/* The line that follows the last "Classification:". */
static bool said_gold(const char *text, const char *gold) {
    static const char mark[] = "classification:";
    const char *at = last_of(text, mark);
    if (!at) return false;
    at += sizeof mark - 1;
    at += strspn(at, " \t\r\n*");
    Str line = {0};
    str_add_bytes(&line, at, (int64_t)strcspn(at, "\n"));
    bool named = names_gold(line.data, gold);
    str_free(&line);
    return named;
}

static double classification(const RewardInput *in) {
    if (!has_gold(in)) return NAN;
    Str text = {0};
    str_add_trimmed(&text, in->answer);
    const char *gold = in->item->gold;
    bool right = said_gold(text.data, gold) || names_gold(text_tail(text.data, CLASS_TAIL), gold);
    double brief = fmax(0, 1 - (double)text_length(text.data) / BRIEF);
    str_free(&text);
    return 0.7 * right + 0.3 * brief;
}

/* ---- the others ---- */

static double f1(const RewardInput *in) {
    return has_gold(in) ? reward_token_f1(in->answer, in->item->gold) : NAN;
}

static double bleu(const RewardInput *in) {
    return has_gold(in) ? reward_bleu(in->answer, in->item->gold) : NAN;
}

static double length(const RewardInput *in) {
    Str text = {0};
    str_add_trimmed(&text, in->answer);
    double n = (double)text_length(text.data);
    str_free(&text);
    return fmin(1, n / LONG_ENOUGH);
}

static double constant(const RewardInput *in) {
    return 0.5;
}

static double gold_match(const RewardInput *in) {
    Str a = {0}, b = {0};
    if (!has_gold(in)) return NAN;
    str_add_trimmed(&a, in->answer);
    str_add_trimmed(&b, in->item->gold);
    bool same = !strcmp(a.data, b.data);
    str_free(&a);
    str_free(&b);
    return same ? 1 : f1(in);
}

/* A number of the text is the gold, or the gold stands in it as it is. */
static bool states(const char *text, const char *gold) {
    double want, value;
    if (!answer_value(&want, gold)) return strcasestr(text, gold) != NULL;
    for (const char *p = text; (p = next_number(&value, p, text));)
        if (near(value, want)) return true;
    return false;
}

static double no_leak(const RewardInput *in) {
    if (!has_gold(in)) return NAN;
    return !states(in->policy, in->item->gold) || states(in->item->question, in->item->gold);
}

/* ---- the table ---- */

static const Reward table[] = {
    {"accuracy", accuracy},              /* 1 where the final answer means the same as the gold */
    {"easy_math", easy_math},            /* 1 where the gold number stands in the last 50 characters */
    {"classification", classification},  /* 0.7 for the right class, up to 0.3 for a short answer */
    {"poem", reward_poem},               /* rhyme, diversity, length, coherence; less for repeated lines */
    {"exact", exact},                    /* 1 where answer and gold have the same words */
    {"last_number", last_number},        /* 1 where the last number is the gold's */
    {"f1", f1},                          /* F1 of the words of answer and gold */
    {"bleu", bleu},                      /* smoothed BLEU-4 of answer and gold */
    {"length", length},                  /* characters of the answer / 100, at most 1 */
    {"constant", constant},              /* 0.5 */
    {"gold_match", gold_match},          /* 1 where the answer is the gold's text, else F1 */
    {"no_leak", no_leak},                /* 0 where the policy's text states the gold and the question does not */
};

static const struct {
    const char *alias, *name;
} aliases[] = {
    {"math", "accuracy"},
    {"token_f1", "f1"},
    {"exact_match", "exact"},
    {"test", "length"},
    {"test:length", "length"},
    {"test:constant", "constant"},
    {"test:gold_match", "gold_match"},
};

const Reward *rewards(int *n) {
    *n = COUNT_OF(table);
    return table;
}

const Reward *reward_find(const char *name, Err *e) {
    const char *names[COUNT_OF(table)];
    int which;
    for (int i = 0; i < COUNT_OF(aliases); i++)
        if (str_same_word(name, aliases[i].alias)) name = aliases[i].name;
    for (int i = 0; i < COUNT_OF(table); i++) names[i] = table[i].name;
    return choose_name(&which, name, names, COUNT_OF(names), "reward", e) ? &table[which] : NULL;
}
