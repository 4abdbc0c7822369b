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
    RowScratch read;                               /* of rows that are read from disk */
} Batch;

void batch_init(Batch *b, Arena *a, int64_t rows, int64_t seq);
int64_t batch_bytes(int64_t rows, int64_t seq); /* what batch_init takes of the arena */

void batch_pad(Batch *b, int64_t row, int64_t from); /* from that place on: ids that teach nothing */
void batch_sort(Batch *b); /* id_order, of the ids that stand there now */

/* The rows first .. first + rows - 1 of the list; what is beyond its end is padding of weight zero. seq must be the
 * data set's. Allocates nothing. */
void batch_fill(Batch *b, const Dataset *d, const RowList *l, int64_t first);

#endif
