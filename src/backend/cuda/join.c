/* join.c - which consecutive steps of different ops are fused into one launch (backend.h): a table of candidates, asked
 * in order. */
#include "backend/cuda/cuda.h"

typedef struct Way {
    int (*takes)(Backend *b, const Args *a, int n); /* how many of the first; fewer than 2: none */
    KernelRun *run;
} Way;

static const Way ways[] = {
    {cuda_put_attend_takes, cuda_put_attend},
};

static const Way *way_of(Backend *b, const Args *a, int n, int *taken) {
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
        if ((*taken = ways[k].takes(b, a, n)) > 1) return &ways[k];
    return NULL;
}

int cuda_joins_of(Backend *b, const Args *a, int n) {
    int taken = 1;
    return way_of(b, a, n, &taken) ? taken : 1;
}

void cuda_join_steps(Backend *b, Queue q, const Args *a, int n) {
    int taken;
    way_of(b, a, n, &taken)->run(b, q, a, n);
}
