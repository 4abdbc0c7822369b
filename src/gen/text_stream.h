/* text_stream.h - the text of an answer as it is streamed token by token: whole characters only, and stop strings found
 * across token boundaries. */
#ifndef GEN_TEXT_STREAM_H
#define GEN_TEXT_STREAM_H

#include "data/tokenizer.h"

typedef struct TextStream {
    Str text;           /* decoded so far; cut where a stop string begins */
    Str before, now;    /* scratch */
    int64_t from, read; /* ids [0, read) are in the text; the next piece is decoded from `from` on, for its context */
    int64_t streamed;   /* bytes already handed on */
} TextStream;

typedef struct StopTexts {
    const char *const *text;
    int n;
} StopTexts;

void text_stream_clear(TextStream *s);
void text_stream_free(TextStream *s);

/* Decodes the ids as far as they make whole characters; last: all of them. *stopped: a stop string was found, and the
 * text ends before it. */
bool text_stream_add(TextStream *s, bool *stopped, const Tokenizer *t, const int32_t *ids, int64_t n, StopTexts stops,
                     bool last, Err *e);

/* The text that can be handed on now: nothing that may begin a stop string, unless it is the end. Borrows. */
const char *text_stream_take(TextStream *s, int64_t *bytes, StopTexts stops, bool last);

#endif
