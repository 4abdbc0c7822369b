/* arith.h - arithmetic word problems with their solutions, drawn from a key: new numbers and, held out, new phrasings.
 *
 * A problem is a little story of one to four events (gets, gives, doubles, shares, buys at a price, ...); its solution
 * names each step with its calculation and ends in \boxed{}. Phrasings are divided: those of ARITH_HELD_OUT never
 * appear in ARITH_TRAIN, though every one of their words does; and so are the numbers: no story of one part has all the
 * numbers of a story of the other. */
#ifndef REASON_ARITH_H
#define REASON_ARITH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { ARITH_STEPS_MOST = 4, ARITH_VALUE_MOST = 300 };

typedef enum ArithPart { ARITH_TRAIN, ARITH_HELD_OUT } ArithPart;
typedef enum ArithOp { ARITH_ADD, ARITH_SUBTRACT, ARITH_MULTIPLY, ARITH_DIVIDE } ArithOp;

typedef struct ArithTerm {
    int64_t value;
    int from; /* the step it is the result of; -1: a number of the story */
} ArithTerm;

typedef struct ArithStep {
    ArithOp op;
    ArithTerm a, b;
    int64_t result;
} ArithStep;

typedef struct Arith {
    Str problem, solution;
    int64_t answer;
    int n_steps;
    ArithStep step[ARITH_STEPS_MOST];
} Arith;

/* The same for the same key. Zero-initialise once, then draw as often as wanted. */
void arith_draw(Arith *out, uint64_t key, ArithPart part);
void arith_free(Arith *a);

typedef enum ArithMistake { ARITH_SLIP, ARITH_WRONG_OP, ARITH_LEFT_OUT, ARITH_MISREAD, ARITH_MISTAKES } ArithMistake;

typedef struct ArithFault {
    ArithMistake mistake;
    int step; /* of the right solution, from 0 */
} ArithFault;

/* The same problem solved with one mistake (a wrong operation, a slip in a calculation, a step left out, a number
 * misread), carried on to a wrong \boxed{}. */
ArithFault arith_spoil(Str *solution, const Arith *a, uint64_t key);

#endif
