/* words.h - texts as numbers: equal texts have equal ones. */
#ifndef AMR_WORDS_H
#define AMR_WORDS_H

#include "base/mem.h"
#include "base/rng.h"

typedef struct AmrWords {
    Arena arena;       /* owns the texts */
    const char **text; /* owns the list */
    int32_t *slot;     /* owns; number + 1, 0: free; open addressing, at most half full */
    int64_t n, room, n_slots;
} AmrWords;

void amr_words_init(AmrWords *w);
void amr_words_free(AmrWords *w);
int32_t amr_word(AmrWords *w, const char *text); /* numbers from 0, in the order they are first asked for */

static inline uint64_t amr_hash(const char *text) {
    uint64_t h = 0;
    for (; *text; text++) h = h * 1099511628211ull + (unsigned char)*text;
    return rng_mix(h);
}

#endif
