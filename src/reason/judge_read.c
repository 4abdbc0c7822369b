/* judge_read.c - how models write scores: beside the name, in a table, as JSON, of 1, of 10, in percent.
 *
 * A reply is cut at every mention of a criterion. From a mention to the next one there may be one score: beside the
 * name with nothing but marks and a few words between ("**Correctness** (weight 0.4): 8/10"), else behind the word
 * "score". Any other number is part of what the judge says, and is not read. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "reason/answer.h"
#include "reason/judge.h"

typedef struct Mention {
    int criterion;
    const char *begin, *end; /* of the name */
} Mention;

typedef struct Score {
    double value; /* NAN: none */
    bool scaled;  /* "/n", "%" or "out of n" was there: value is 0 to 1 */
    bool whole;   /* written without a point */
} Score;

enum { LEAD_MOST = 200 }; /* characters between a name and its score */

static const Score no_score = {.value = NAN};

/* ---- mentions ---- */

/* The length of a criterion's name at p: any case; where it has '_' any spaces, dashes or underscores. 0: not here. */
static int64_t name_length(const char *p, const char *name) {
    const char *q = p;
    for (; *name; name++) {
        if (*name == '_' || *name == '-' || *name == ' ') {
            if (!*q || !strchr("_- ", *q)) return 0;
            while (*q && strchr("_- ", *q)) q++;
        } else if (tolower((unsigned char)*q) == tolower((unsigned char)*name)) {
            q++;
        } else {
            return 0;
        }
    }
    return isalnum((unsigned char)*q) ? 0 : q - p;
}

/* Gives the mentions (mem_free), in order. Where one name begins another, the longer counts. */
static Mention *find_mentions(const Rubric *r, const char *text, int64_t *n) {
    Mention *m = NULL;
    int64_t capacity = 0;
    *n = 0;
    for (const char *p = text; *p; p++) {
        int64_t best = 0;
        int which = 0;
        if (!isalnum((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1]))) continue;
        for (int i = 0; i < r->n; i++) {
            int64_t length = name_length(p, r->criterion[i].name);
            if (length <= best) continue;
            best = length;
            which = i;
        }
        if (!best) continue;
        m = mem_grow(m, &capacity, *n + 1, sizeof *m);
        m[(*n)++] = (Mention){which, p, p + best};
        p += best - 1;
    }
    return m;
}

/* ---- a number and its scale ---- */

/* Digits with at most one point ("0,9" has one too); NAN: none here. Moves *p behind them. */
static double read_number(const char **p, const char *end, bool *whole) {
    const char *q = *p;
    double value = 0, unit = 1;
    int digits = 0;
    for (; q < end && isdigit((unsigned char)*q); q++, digits++) value = value * 10 + (*q - '0');
    if (digits > 15) return NAN;
    bool point = q < end && (*q == '.' || (*q == ',' && digits == 1 && value == 0));
    *whole = !(point && q + 1 < end && isdigit((unsigned char)q[1]));
    if (!*whole)
        for (q++; q < end && isdigit((unsigned char)*q); q++, digits++) value += (unit /= 10) * (*q - '0');
    if (!digits) return NAN;
    *p = q;
    return value;
}

static const char *skip_spaces(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    return p;
}

static bool at_word(const char *p, const char *end, const char *word) {
    size_t n = strlen(word);
    return (size_t)(end - p) >= n && !strncasecmp(p, word, n) && !(p + n < end && isalpha((unsigned char)p[n]));
}

/* The score at p, which is behind the number: its scale, or what says that it is no score ("2nd", "0.0 to 1.0"). */
static Score with_scale(double value, bool whole, const char *p, const char *end) {
    Score s = {value, false, whole};
    bool unused;
    bool goes_on =
        p < end && (isalpha((unsigned char)*p) || (*p == '.' && p + 1 < end && isdigit((unsigned char)p[1])));
    if (goes_on) return no_score;
    while (p < end && strchr("*_`\"' \t", *p)) p++;
    if (p < end && *p == '%') return (Score){fmin(value / 100, 1), true, whole};
    if (at_word(p, end, "percent")) return (Score){fmin(value / 100, 1), true, whole};
    bool slash = p < end && *p == '/', words = at_word(p, end, "out of"), range = at_word(p, end, "to");
    range |= p < end && (*p == '-' || at_word(p, end, "\xe2\x80\x93"));
    if (!slash && !words && !range) return s;
    const char *q = p + (slash ? 1 : words ? 6 : 1);
    while (q < end && !isdigit((unsigned char)*q) && !isalpha((unsigned char)*q) && *q != '\n' && q - p < 12) q++;
    if (range && at_word(p, end, "to")) q = skip_spaces(p + 2, end);
    double of = read_number(&q, end, &unused);
    /* the prompt's words */
    if (range) return value == 0 && (of == 1 || of == 5 || of == 10 || of == 100) ? no_score : s;
    if (!(of > 0)) return slash ? no_score : s;
    return (Score){fmin(value / of, 1), true, whole};
}

/* ---- from a mention to the next ---- */

/* Words that may stand between a name and its score: those that say that one follows, and those that only fill. */
static const char *skip_word(const char *p, const char *end, bool *says_so) {
    static const char *const says[] = {"score", "scores", "scored", "rating", "rated", "grade", "is", "gets"};
    static const char *const fills[] = {"a",    "an", "of",    "at",   "as",    "it",
                                        "this", "i",  "would", "give", "value", "points"};
    for (int i = 0; i < COUNT_OF(says); i++)
        if (at_word(p, end, says[i])) return *says_so = true, p + strlen(says[i]);
    for (int i = 0; i < COUNT_OF(fills); i++)
        if (at_word(p, end, fills[i])) return p + strlen(fills[i]);
    return NULL;
}

static bool line_ends(const char *p, const char *end) {
    while (p < end && *p != '\n' && !isalnum((unsigned char)*p)) p++;
    return p == end || *p == '\n';
}

/* The number that p leads to over marks and small words. separated: nothing more has to say that a score follows. */
static Score lead_to_score(const char *p, const char *end, bool separated) {
    const char *far = p + MIN2(end - p, LEAD_MOST);
    bool new_line = false, filled = false, whole;
    while (p < far) {
        const char *word;
        if (isdigit((unsigned char)*p) || (*p == '.' && p + 1 < end && isdigit((unsigned char)p[1]))) break;
        if (*p == '-' && separated && p + 1 < end && isdigit((unsigned char)p[1])) return no_score; /* below zero */
        if (strchr(":=|-", *p) || at_word(p, end, "\xe2\x80\x93") || at_word(p, end, "\xe2\x80\x94")) separated = true;
        new_line |= *p == '\n';
        if (isalpha((unsigned char)*p)) {
            bool says_so = false;
            if (!(word = skip_word(p, end, &says_so)) || (new_line && !says_so)) return no_score;
            p = word;
            new_line = false;
            separated |= says_so;
            filled = !says_so;
        } else if (*p && (strchr(":=|-*_`\"',{}[]()#> \t\r\n", *p) || (unsigned char)*p >= 128)) {
            p++;
        } else {
            return no_score;
        }
    }
    if (p >= far || !(separated || new_line)) return no_score;
    double value = read_number(&p, end, &whole);
    if (isnan(value)) return no_score;
    Score s = with_scale(value, whole, p, end);
    bool plain = s.scaled || !whole; /* else it may count something: "a 3 step solution", "1. First", "3 steps" */
    if (!plain && ((filled && value > 1) || (new_line && !line_ends(p, end)))) return no_score;
    return s;
}

/* "(0.9)" right behind a name, unless it is the criterion's weight. */
static Score score_in_parens(const char *p, const char *end, double weight) {
    bool whole;
    double value = read_number(&p, end, &whole);
    Score s = isnan(value) ? no_score : with_scale(value, whole, p, end);
    return !s.scaled && fabs(s.value - weight) < 1e-9 ? no_score : s;
}

/* The score behind the first "score" or "rating" that is this criterion's own. */
static Score score_by_word(const char *p, const char *end) {
    bool of_all = false;
    for (; p < end; p++) {
        if (*p == '\n') of_all = false;
        if (!isalpha((unsigned char)*p) || isalnum((unsigned char)p[-1])) continue;
        of_all |= at_word(p, end, "overall") || at_word(p, end, "total") || at_word(p, end, "average") ||
                  at_word(p, end, "final") || at_word(p, end, "quality");
        if (of_all || !(at_word(p, end, "score") || at_word(p, end, "rating") || at_word(p, end, "grade"))) continue;
        Score s = lead_to_score(p, end, false);
        if (!isnan(s.value)) return s;
    }
    return no_score;
}

static Score score_of(const Mention *m, const char *end, double weight) {
    const char *p = m->end;
    while (p < end && strchr("*_`\"' \t", *p)) p++;
    const char *close = p < end && *p == '(' ? memchr(p, ')', (size_t)(end - p)) : NULL;
    Score s = lead_to_score(close ? close + 1 : m->end, end, false);
    if (isnan(s.value) && close) s = score_in_parens(p + 1, close, weight);
    return isnan(s.value) ? score_by_word(m->end, end) : s;
}

/* ---- the reply ---- */

/* Numbers above 1 without a scale are of 10, when none is above 10; a bare "1" among them is too. */
static void settle_scales(Judgement *out, const Score *s, int n) {
    double most = 0;
    for (int i = 0; i < n; i++)
        if (!s[i].scaled && s[i].value > most) most = s[i].value;
    for (int i = 0; i < n; i++) {
        bool above = s[i].value > 1 || (most > 1 && s[i].whole);
        out->score[i] = s[i].scaled || !above ? s[i].value : most <= 10 ? s[i].value / 10 : NAN;
    }
}

void judge_read(Judgement *out, const Rubric *r, const char *reply) {
    Str said = {0};
    Score score[CRITERIA_MOST];
    Judgement none;
    int64_t n;
    for (int i = 0; i < CRITERIA_MOST; i++) {
        score[i] = no_score;
        none.score[i] = out->score[i] = NAN;
    }
    answer_strip_thoughts(&said, reply);
    Mention *m = find_mentions(r, str_text(&said), &n);
    for (int64_t i = 0; i < n; i++) {
        const char *end = i + 1 < n ? m[i + 1].begin : str_text(&said) + said.len;
        Score s = score_of(&m[i], end, r->criterion[m[i].criterion].weight);
        if (!isnan(s.value)) score[m[i].criterion] = s;
    }
    settle_scales(out, score, r->n);
    judge_merge(out, &none, r);
    mem_free(m);
    str_free(&said);
}
