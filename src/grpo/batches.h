/* batches.h - which prompts are answered when, and which completions train which update.
 *
 * Words, as TRL 0.25 has them. A *micro-batch* is `batch` completions; an *update* is `accum` micro-batches. A
 * *generation batch* is `batch` x `steps` completions (steps_per_generation, `accum` unless said otherwise), G of
 * each prompt: its rewards are scaled together, it is shuffled once by a key and cut into `steps` slices, and the
 * slices are trained `iterations` times (num_iterations), in the same order each time. Prompts are shuffled anew
 * every epoch; those that do not fill a last generation batch wait for the next epoch's shuffle.
 *
 * A *rollout* is everything that is answered with the same weights before training goes on. Either `steps` is a
 * multiple of `accum`: a rollout is one generation batch, trained by iterations x steps / accum updates. Or `accum`
 * is a multiple of `steps` with one iteration: a rollout is accum / steps generation batches, trained by one
 * update. Anything else would have to answer in the middle of an update, and is refused. */
#ifndef GRPO_BATCHES_H
#define GRPO_BATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct BatchSpec {
    int64_t batch, accum;
    int64_t group;      /* G, at least 2 */
    int64_t steps;      /* steps_per_generation; 0: accum */
    int64_t iterations; /* 0: 1 */
} BatchSpec;

typedef struct Batches {
    BatchSpec spec;       /* defaults filled in */
    int64_t completions;  /* of a generation batch */
    int64_t prompts;      /* of a generation batch */
    int64_t generations;  /* of a rollout */
    int64_t updates;      /* of a rollout */
    bool needs_old_logps; /* some update trains on completions of earlier weights */
} Batches;

/* Refuses what cannot be cut into whole groups and updates, and names the nearest values that can. */
bool batches_make(Batches *b, const BatchSpec *spec, Err *e);

/* Refuses fewer prompts than one generation batch takes. */
bool batches_check_prompts(const Batches *b, int64_t items, Err *e);
int64_t batches_generations_per_epoch(const Batches *b, int64_t items);
/* Rollouts of so many epochs; a last one that is not full is left out. */
int64_t batches_rollouts(const Batches *b, int64_t items, int64_t epochs);

/* Fills item[prompts]: the prompts of that generation batch, counted from 0 over all epochs. scratch: [items]. */
void batches_prompts(int64_t *item, int64_t *scratch, const Batches *b, int64_t items, int64_t generation,
                     bool shuffle, uint64_t seed);

/* Fills order[completions]: how a generation batch is shuffled before it is cut into slices. */
void batches_order(int64_t *order, const Batches *b, int64_t generation, uint64_t seed);

typedef struct BatchPlace {
    int64_t generation; /* within the rollout */
    int64_t iteration;
    int64_t first; /* the micro-batch is order[first .. first + batch) of that generation batch */
} BatchPlace;

/* Of micro-batch `micro` (0 .. accum - 1) of an update (0 .. updates - 1 within its rollout). */
BatchPlace batches_place(const Batches *b, int64_t update, int64_t micro);

int64_t batches_common_divisor(int64_t a, int64_t b); /* the greatest */

#endif
