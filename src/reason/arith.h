/* arith.h - arithmetic word problems with their solutions, drawn from a key: new numbers and, held out, new phrasings.
 *
 * A problem is a little story of one to four events (gets, gives, doubles, shares, buys at a price, ...); its solution
 * names each step with its calculation and ends in \boxed{}. Phrasings are divided: those of ARITH_HELD_OUT never
 * appear in ARITH_TRAIN. */
#ifndef REASON_ARITH_H
#define REASON_ARITH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef enum ArithPart { ARITH_TRAIN, ARITH_HELD_OUT } ArithPart;

typedef struct Arith {
    Str problem, solution;
    int64_t answer;
    int n_steps;
} Arith;

/* The same for the same key. Zero-initialise once, then draw as often as wanted. */
void arith_draw(Arith *out, uint64_t key, ArithPart part);
void arith_free(Arith *a);

/* The same problem solved with one mistake (a wrong operation, a slip in a calculation, a step left out, a number
 * misread), carried on to a wrong \boxed{}. */
void arith_spoil(Str *solution, const Arith *a, uint64_t key);

#endif
