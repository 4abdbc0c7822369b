/* choose.h - one of several names, or a refusal that helps to find it. */
#ifndef BASE_CHOOSE_H
#define BASE_CHOOSE_H

#include <stdbool.h>

#include "base/err.h"

/* Case is ignored, and '-' and '_' are the same. what: "parser" gives "no parser is called 'poems'. Did you mean
 * poem?", or all names where none is near. */
bool choose_name(int *which, const char *word, const char *const *names, int n, const char *what, Err *e);

#endif
