/* policy.h - how what a policy's loss counts in one play joins what the plays before it counted (POLICY_* of attr.h).
 * Read by C and by CUDA C++. */
#ifndef IR_POLICY_H
#define IR_POLICY_H

#include "ir/attr.h"

#ifdef __CUDACC__
#define POLICY_CALL static __device__ __forceinline__
#else
#define POLICY_CALL static inline
#endif

/* Of two counts of fact k: sums add up, the most and the least are those of both. */
POLICY_CALL double policy_joined(int k, double a, double b) {
    if (k == POLICY_MOST_APART || k == POLICY_MOST_HIGH) return a > b ? a : b;
    if (k == POLICY_LEAST_LOW) return a < b ? a : b;
    return a + b;
}

/* facts: of this play, its shares not yet; beta 0: it is the first, and what is kept is not read. */
POLICY_CALL void policy_keep(double *kept, double *facts, double beta) {
    double tokens = facts[POLICY_TOKENS];
    facts[POLICY_LEAST_LOW] = tokens > 0 ? facts[POLICY_LOW] / tokens : 1.0;
    facts[POLICY_MOST_HIGH] = tokens > 0 ? facts[POLICY_HIGH] / tokens : 0.0;
    for (int k = 0; k < POLICY_FACTS; k++) kept[k] = beta == 0 ? facts[k] : policy_joined(k, kept[k], facts[k]);
}

#endif
