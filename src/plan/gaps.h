/* gaps.h - which bytes of an arena are taken during which steps, and where the lowest gap for a life is.
 *
 * A tree over the steps: a node stands for a stretch of steps and has two sets of byte ranges, joined where they
 * touch. `always`: taken during all of its steps, by lives that are cut into nodes of this size here. `ever`: taken
 * at one of its steps or more. What is taken during a life is then `ever` of the few nodes that make it up, and
 * `always` of those above them. However many slots were placed, what is packed tight is one range, so that asking
 * and taking grow with the logarithm of the number of steps, not with the number of slots. */
#ifndef PLAN_GAPS_H
#define PLAN_GAPS_H

#include "base/mem.h"

typedef struct Ranges Ranges;
typedef struct Gaps {
    Arena arena;   /* of the sets */
    int64_t steps; /* leaves of the tree: a power of two */
    Ranges *always, *ever; /* own: per node; node 1 is the root, those of n are 2n and 2n + 1 */
} Gaps;

void gaps_open(Gaps *g, int64_t steps);
void gaps_clear(Gaps *g); /* nothing is taken */
void gaps_close(Gaps *g);

/* The lowest place at or above `bottom` where `bytes` are free during steps [birth, death]. */
int64_t gaps_find(const Gaps *g, int birth, int death, int64_t bottom, int64_t bytes);
void gaps_take(Gaps *g, int birth, int death, int64_t begin, int64_t bytes);

#endif
