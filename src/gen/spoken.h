/* spoken.h - the text of an answer as it grows token by token: whole characters only, and stop strings found across
 * the borders of tokens. */
#ifndef GEN_SPOKEN_H
#define GEN_SPOKEN_H

#include "data/tokenizer.h"

typedef struct Spoken {
    Str text;           /* so far; cut where a stop string begins */
    Str before, now;    /* scratch */
    int64_t from, read; /* ids [0, read) are in the text; a piece is decoded from `from` on, for what surrounds it */
    int64_t given;      /* bytes already handed on */
} Spoken;

typedef struct StopTexts {
    const char *const *text;
    int n;
} StopTexts;

void spoken_clear(Spoken *s);
void spoken_free(Spoken *s);

/* Takes the ids in as far as they make whole characters; last: all of them. *stopped: a stop string came, and the
 * text ends before it. */
bool spoken_add(Spoken *s, bool *stopped, const Tokenizer *t, const int32_t *ids, int64_t n, StopTexts stops,
                bool last, Err *e);

/* What can be handed on now: nothing that may be the beginning of a stop string, unless it is the end. Borrows. */
const char *spoken_give(Spoken *s, int64_t *bytes, StopTexts stops, bool last);

#endif
