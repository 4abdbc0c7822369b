/* measure.h - benchmarks of a device: the rates of single steps, and its fixed memory overhead.
 *
 * Every figure comes from the kernels that training uses, on random numbers (a card draws less power on zeros), in
 * plays that a device may keep as a graph. Pools are released after each figure. */
#ifndef EXEC_MEASURE_H
#define EXEC_MEASURE_H

#include "backend/backend.h"

typedef struct Measure {
    Backend *b; /* keeps */
    Machine m;
    double seconds;                 /* to spend on one figure, about */
    int64_t (*process_bytes)(void); /* used where the device does not tell what is in use; NULL: none */
} Measure;

Measure measure_on(Backend *b, double seconds);

/* Flops per second of y = x w^T and its two gradients, x (rows, in), w (out, in), by ProductPass. */
bool measure_product(const Measure *c, double flops[MACHINE_TABLES], Format f, int64_t rows, int64_t in,
                     int64_t out, Err *e);

/* Flops per second forward and backward, causal; about `tokens` tokens in rows of seq. */
bool measure_attention(const Measure *c, double flops[ATTEND_TABLES], Format f, int head_dim, int64_t seq,
                       int64_t tokens, Err *e);

/* Bytes per second read and written by an element-wise pass over tensors of that size. */
bool measure_pass(const Measure *c, double *bytes_per_s, int64_t tensor_bytes, Err *e);

typedef struct MeasuredCopies { /* bytes per second between pinned and device memory */
    double in, out;             /* alone */
    double in_both, out_both;   /* at the same time */
} MeasuredCopies;
bool measure_copies(const Measure *c, MeasuredCopies *out, int64_t bytes, Err *e);

/* What the system saw while memory was taken and given back; -1 where the device does not tell. */
typedef struct MeasuredLoad {
    int64_t asked_bytes, taken_bytes, left_bytes; /* taken: seen in use while held; left: after the release */
    double take_s, fill_s, release_s;
} MeasuredLoad;
bool measure_load(const Measure *c, MeasuredLoad *out, int64_t bytes, Err *e);

typedef struct MeasuredExtras { /* device bytes beside the arena; -1: not known */
    int64_t graph_bytes;        /* of a kept play of graph_steps steps */
    int64_t graph_steps;
    int64_t mapping_bytes; /* for pinned memory ... */
    int64_t pinned_bytes;  /* ... of this size */
} MeasuredExtras;
bool measure_extras(const Measure *c, MeasuredExtras *out, int64_t pinned_bytes, Err *e);

#endif
