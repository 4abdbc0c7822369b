/* rope.h - heads of one token, rotated by its position: for rope, and for rope_put, which puts keys into a cache. */
#ifndef BACKEND_CPU_ROPE_H
#define BACKEND_CPU_ROPE_H

#include "backend/cpu/cpu.h"

enum { ROPE_MOST_DIM = 512 };

typedef struct RopeAngles {
    float cosine[ROPE_MOST_DIM / 2], sine[ROPE_MOST_DIM / 2]; /* times the step's scale */
} RopeAngles;

void rope_angles(RopeAngles *r, const AttrHeads *h, const float *inv_freq, int32_t position);

/* y, x: numbers in f, of which those from y_first, x_first on are meant; y may be x. */
void rope_rotate(void *y, int64_t y_first, const void *x, int64_t x_first, Format f, int64_t heads, int64_t dim,
               const RopeAngles *r);

#endif
