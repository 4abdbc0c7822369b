/* compare.h - several evaluations side by side with that of the retrained model, as one page with plots. */
#ifndef UNLEARN_COMPARE_H
#define UNLEARN_COMPARE_H

#include <jansson.h>

#include "base/str.h"

typedef struct Compared {
    const char *name;
    const json_t *summary;    /* TOFU_SUMMARY.json; keeps */
    const json_t *efficiency; /* what making the model took; NULL: not known. Keeps */
} Compared;

/* method[0] is the retrained model: every plot shows it as a line that the others are held against. */
void compare_page(Str *out, const Compared *method, int n);

#endif
