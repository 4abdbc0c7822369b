/* player.h - plays a planned program over bytes with made-up arithmetic: an output is a hash of op, constants and
 * inputs. So any overlap, wrong clone or missing wait shows as a different number. */
#ifndef TESTS_PLAN_PLAYER_H
#define TESTS_PLAN_PLAYER_H

#include "ir/op.h"

uint64_t player_digest(uint64_t h, const void *data, int64_t bytes);
void player_spread(void *data, int64_t bytes, uint64_t seed); /* fills with what follows from the seed */

typedef struct PlayOptions {
    bool placed;          /* false: every tensor has memory of its own, steps in list order: the truth */
    const int64_t *arena; /* placed: bytes of each pool */
    int late;             /* this queue runs only when nothing else can; -1: list order */
    uint64_t random;      /* not 0: the next step is drawn among those that can run */
    int rounds;           /* of the ring */
} PlayOptions;

typedef struct Played {
    uint64_t *step; /* owns: per played step in list order, the hash of what it wrote */
    int64_t n;
    uint64_t *state; /* owns: per tensor, the hash of all its successive values; state only */
    bool *carried;   /* owns: per tensor, it was read before anything wrote it */
    int64_t n_t;
} Played;

Played play(const Program *p, PlayOptions o);
void played_free(Played *r);

/* Plays the placed program in list order, with each queue late, and in a few random orders: -1 when every step
 * wrote what it wrote in memory of its own, else the number of the order that did not. */
int play_differs(const Program *p, const int64_t arena[POOL_COUNT]);

/* Whether two programs with the same state (the first n_t tensors of both) write the same values into it. */
bool play_same_state(const Program *a, const Program *b, int64_t n_t);

#endif
