/* batch.h - the rows of one micro-batch as flat arrays of fixed size, filled in place. */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include <stdint.h>

#include "base/mem.h"
#include "data/dataset.h"

typedef struct Batch {
    int64_t rows, seq;
    int32_t *ids, *labels, *positions, *doc_begin; /* (rows, seq), as dataset_row_fill; all lies in the arena */
    float *weight;                                 /* (rows, seq) */
    int32_t *id_order;                             /* places 0 .. rows*seq-1 sorted by (id, place) */
    int64_t tokens, scored;                        /* of the real rows */
    int32_t *scratch, *counts;                     /* of the sort */
    int64_t *row;                                  /* which rows these are */
} Batch;

void batch_init(Batch *b, Arena *a, int64_t rows, int64_t seq);
int64_t batch_bytes(int64_t rows, int64_t seq); /* what batch_init takes of the arena */

/* The rows at first_index .. first_index + n_real - 1 of an epoch. Rows beyond n_real or beyond the end of the
 * epoch are padding of weight zero. seq must be the data set's. Allocates nothing. */
void batch_fill(Batch *b, Dataset *d, int64_t epoch, int64_t first_index, int64_t n_real);
/* The same for rows that are known by number; n_real <= rows. */
void batch_fill_rows(Batch *b, const Dataset *d, const int64_t *rows, int64_t n_real);

#endif
