/* answer_int.h - what the files that compare answers share with each other, and with nobody else.
 *
 *   text -> plain notation (answer_text.c) -> parts (answer_same.c) -> values (answer_value.c)
 *
 * Plain notation: no $, no spacing or sizing commands, one name for each operation: * / ^ + -, \frac{}{} \sqrt{}
 * \binom{}{}, \pi \infty \pm \cup \in \le \ge; \{ and \} around sets, { and } around groups; words as they are. */
#ifndef REASON_ANSWER_INT_H
#define REASON_ANSWER_INT_H

#include "reason/answer.h"

enum { ANSWER_BYTES_MOST = 64 << 10 }; /* a longer answer is compared as text only */

/* Adds the answer in plain notation: single spaces, none at the ends, no full stop. */
void answer_undress(Str *out, const char *text);

/* Adds the plain notation without spaces and without braces around single characters: for comparing as text. */
void answer_squash(Str *out, const char *plain);

/* A value for every letter, drawn from a key. */
typedef struct AnswerPoint {
    uint64_t key;
    bool letters; /* out: there were any */
} AnswerPoint;

/* The value of an expression in plain notation; false: it is something else. NULL: letters are something else too. The
 * value may be NAN or infinite, at this point. */
bool answer_eval(double *out, const char *plain, int64_t bytes, AnswerPoint *point);

/* Where a number ends and its unit begins: "18 dollars per day", "5 cm^2", "7 (apples)"; the whole length: no unit. */
int64_t answer_unit(const char *plain);

/* Where the right side of "x =", "f(x) =" or "x \in" begins; 0: there is no such thing. */
int64_t answer_right_side(const char *plain);

#endif
