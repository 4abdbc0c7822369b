/* draw.h - a synthetic corpus: small sentences with their graphs, generated from a key, that a small model can learn.
 *
 * A sentence has one or two clauses: who does what to whom, with adjectives, numbers, names, owners, places and
 * times; wishes and attempts (`wants to see`: one node, named twice), relative clauses (`the boy who sang`: an
 * inverse role), clauses joined by and, negations and questions. The words are English or Vietnamese; English
 * graphs have the roles :ARG0, :ARG1, ..., Vietnamese ones :agent, :theme, ...
 *
 * The two parts have the same words and constructions and share no sentence: of all pairs of a verb with its
 * subject, and with its object, a fifth is kept for AMR_HELD_OUT. A sentence of AMR_TRAIN has no such pair, one of
 * AMR_HELD_OUT at least one. */
#ifndef AMR_DRAW_H
#define AMR_DRAW_H

#include <stdint.h>

#include "base/str.h"

typedef enum AmrLanguage { AMR_ENGLISH, AMR_VIETNAMESE } AmrLanguage;
typedef enum AmrPart { AMR_TRAIN, AMR_HELD_OUT } AmrPart;

typedef struct AmrDrawn {
    Str sentence, graph; /* the graph as penman prints it */
    int held_out;        /* pairs of words that are kept for AMR_HELD_OUT */
} AmrDrawn;

/* The same for the same key. Zero-initialise once, then draw as often as wanted. */
void amr_draw(AmrDrawn *out, uint64_t key, AmrLanguage language, AmrPart part);
void amr_drawn_free(AmrDrawn *d);

#endif
