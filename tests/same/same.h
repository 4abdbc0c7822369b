/* same.h - a small job trained with other flags, and what two such runs must agree on to the last bit. */
#ifndef TESTS_SAME_SAME_H
#define TESTS_SAME_SAME_H

#include "tests/snug.h"

enum { SAME_STEPS = 5 };

typedef struct Same {
    Ran ran;
    json_t *result; /* of the run; NULL: it failed */
    double loss[SAME_STEPS];
} Same;

/* Trains the job of snug_make_job into the folder `name`; flags are added. */
Same same_train(const char *name, const char *flags);
void same_free(Same *s);
int64_t same_int(const Same *s, const char *key); /* of the result */
/* Both ended well with the same losses and the same checksum of what was trained. */
void same_expect(const Same *a, const Same *b, const char *what);

#endif
