/* arith_int.h - the sentences a story can be made of, between the table of phrasings and the teller. */
#ifndef REASON_ARITH_INT_H
#define REASON_ARITH_INT_H

#include "reason/arith.h"

/* What a sentence says. x is what the hero has; {a} and {b} are the sentence's numbers. */
typedef enum Piece {
    START_HAS,     /* x = a */
    START_GROUPS,  /* x = a * b: b bags of a */
    START_MORE,    /* x = a + b: b more than another, who has a */
    START_FEWER,   /* x = a - b */
    START_TIMES,   /* x = a * b: b times as many */
    EVENT_GETS,    /* x + a */
    EVENT_LOSES,   /* x - a */
    EVENT_DOUBLES, /* x * 2 */
    EVENT_TRIPLES, /* x * 3 */
    EVENT_HALVES,  /* x / 2 */
    EVENT_GETS_GROUPS,  /* x + a * b */
    EVENT_GIVES_GROUPS, /* x - a * b */
    ASK_NOW,       /* x */
    ASK_SHARED,    /* x / b: among b people */
    ASK_PACKED,    /* x / b: b into each bag */
    ASK_SOLD,      /* x * b: at b dollars each */
    PIECES
} Piece;

/* {n} the hero, {m} another, {t} things, {c} bags, {f} friends, {a} {b} numbers; [this|that]: one of them. */
typedef struct Phrasing {
    Piece piece;
    ArithPart part;
    const char *text;
} Phrasing;

const Phrasing *arith_phrasings(int *n);

typedef enum WordKind { WORD_NAME, WORD_THING, WORD_CONTAINER, WORD_PEOPLE } WordKind;
const char *const *arith_words(WordKind kind, int *n);

#endif
