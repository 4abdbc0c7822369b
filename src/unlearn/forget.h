/* forget.h - which samples are to be forgotten, and which updates saw them. */
#ifndef UNLEARN_FORGET_H
#define UNLEARN_FORGET_H

#include "store/history.h"

typedef struct ForgetSet {
    int64_t *sample; /* owns; ascending, each once */
    int64_t n;
    bool *removed; /* owns; [rows of the data] */
    int64_t *step; /* owns; the updates whose samples intersect it, ascending */
    int64_t n_steps;
} ForgetSet;

enum { TOFU_SAMPLES = 4000 };

/* text: a file with a JSON list or a number a line (0-based, in the order of the data), or a split of TOFU: forget01,
 * forget05 and forget10 are the last 1, 5 and 10 % of its 4,000 samples (3960..3999, 3800..3999, 3600..3999), never
 * the first. A number that the data does not have is refused, a set that no update saw as well. h NULL: there is no
 * log, and no step is looked for. Gives: forget_free. */
bool forget_open(ForgetSet *f, const char *text, int64_t rows, const History *h, Err *e);
/* Of several requests a sample is taken out once: f loses those that an earlier one names, and with whole_steps the
 * updates that one takes out whole. What is left may see no update. */
void forget_leave_out(ForgetSet *f, const ForgetSet *earlier, const History *h, bool whole_steps);
void forget_free(ForgetSet *f);

#endif
