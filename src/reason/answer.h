/* answer.h - the final answer of a solution, and whether two answers mean the same.
 *
 * An answer is looked for, in this order: the last \boxed{..} (or \fbox{..}), braces nested as deep as they are; the
 * last "#### x"; the last sentence with "answer is", "answer:", "result is", "solution is", "therefore", "thus", "so
 * ... = x"; the last line that is not empty. Reasoning between <think> and </think> is not searched while there is text
 * after it.
 *
 * Two answers mean the same when they are equal as text once dressing is off ($, \text{}, \left, spaces, a full
 * stop, thousands separators, units after a number, "x ="), or equal as numbers: integers, decimals, percent,
 * fractions (a/b, \frac{a}{b}, mixed), powers, roots, pi, sums and products of those; tuples, intervals and sets
 * element by element; a choice "(B)" equals "B", and "B) 21" equals both "B" and "21". "50%" is 0.5, and it is 50 too.
 * Formulas with unknowns are the same when their values at drawn points are; an equation may be multiplied by a factor.
 * Unequal as far as can be told is unequal; an empty answer equals nothing. */
#ifndef REASON_ANSWER_H
#define REASON_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef enum AnswerFrom { ANSWER_NONE, ANSWER_BOX, ANSWER_HASHES, ANSWER_PHRASE, ANSWER_LINE } AnswerFrom;

/* Adds to `out` the final answer of a solution, without its box. */
AnswerFrom answer_find(Str *out, const char *solution);

/* Adds the final answer that a reference holds: what its box or its #### says; else all of a single line, else what its
 * last sentences tell. */
void answer_final(Str *out, const char *reference);

/* The solution without <think> marks: what is stored as its reasoning. */
void answer_strip_marks(Str *out, const char *solution);

/* What is said outside <think> and </think>; a mark without its other one reaches to that end of the text. */
void answer_strip_thoughts(Str *out, const char *text);

bool answer_same(const char *a, const char *b);

/* A number or a simple expression in plain or LaTeX notation; false: it is something else. */
bool answer_value(double *out, const char *text);

#endif
