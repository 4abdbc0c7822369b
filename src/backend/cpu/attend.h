/* attend.h - one tile of attention: up to ATTEND_TILE tokens, some heads of one KV head, any number of keys.
 *
 * Whole rows (attend) and the cache (attend_cache) differ only in where keys stand and what a token may see. */
#ifndef BACKEND_CPU_ATTEND_H
#define BACKEND_CPU_ATTEND_H

#include "backend/cpu/cpu.h"

enum { ATTEND_TILE = 64, ATTEND_HEADS = 4 }; /* ir/op_block.c sizes the scratch by the same two numbers */

/* Rows of numbers in a stored tensor: row i begins at element first + i*stride. In int8 they are rows so stored. */
typedef struct AttendPlace {
    void *data;
    Format f;
    int64_t first, stride;
} AttendPlace;

typedef struct AttendTile {
    int64_t tokens; /* at most ATTEND_TILE */
    int64_t heads;  /* at most ATTEND_HEADS, side by side in q and o */
    int64_t dim;
    float scale;
    AttendPlace q, o;        /* rows are tokens, heads*dim numbers each */
    AttendPlace k, v;        /* rows are slots, dim numbers each */
    float *lse;              /* token i, head h at lse[i*lse_stride + h]; NULL: not wanted */
    int64_t lse_stride;
    int64_t begin[ATTEND_TILE], end[ATTEND_TILE]; /* token i sees slots [begin, end); empty: o = 0, lse = 0 */
    /* and [also_begin, also_end), which ends at begin or before */
    int64_t also_begin[ATTEND_TILE], also_end[ATTEND_TILE];
} AttendTile;

/* How the heads that share one KV head are taken: `bunches` of `heads` at most. */
typedef struct AttendSplit {
    int64_t group, bunches, heads;
} AttendSplit;
static inline AttendSplit attend_split(const AttrHeads *h) {
    int64_t group = h->heads / h->kv_heads, bunches = (group + ATTEND_HEADS - 1) / ATTEND_HEADS;
    return (AttendSplit){group, bunches, (group + bunches - 1) / bunches};
}

/* Scratch of one worker, forward, for tiles of at most that many tokens; multiple of 256 bytes. */
int64_t attend_tile_bytes(const AttrHeads *h, int64_t tokens);
void attend_tile(const AttendTile *t, float *scratch);

#endif
