/* block_device.h - how a GPU cuts the ops of op_block.c: known here, because the cut gives the scratch bytes,
 * and a plan must know those without a device. Kernels include it too, so it sees only what both languages read. */
#ifndef IR_BLOCK_DEVICE_H
#define IR_BLOCK_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/attr.h"
#include "ir/format.h"

enum {
    DEVICE_NORM_PART = 16,   /* rows whose sums make one part of a norm's weight gradient */
    DEVICE_ATTEND_TILE = 64, /* queries or keys of a tile that attention's backward walks over */
    DEVICE_BLOCKS = 512,     /* a launch should have: two for each of an H200's places, so that they even out */
    DEVICE_CACHE_HEADS = 8,  /* query heads of one KV head that attend to a cache together */
    DEVICE_CACHE_TILE = 16,  /* slots that a warp attends to at a time */
    DEVICE_CLUSTER = 16,     /* blocks that can write into each other, from sm_90 on; half as many on every card */
    DEVICE_CACHE_SPLIT = 64, /* slots below which a cache is not split further */
    DEVICE_CACHE_FEW = 16,   /* tokens of a row from which on a cache is attended to as a row is */
};

static inline int64_t device_parts(int64_t n, int64_t each) {
    return (n + each - 1) / each;
}
static inline int64_t device_up(int64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

/* Heads that tensor cores attend with. */
static inline bool device_attend_on_cores(Format f, int dim) {
    return (f == FMT_BF16 || f == FMT_F16) && (dim == 64 || dim == 80 || dim == 96 || dim == 128);
}

/* The scratch of attend_grad: byte offsets of its parts. */
typedef struct DeviceAttendGrad {
    int64_t padded; /* seq, rounded up to tiles */
    int n_parts;    /* blocks that share the query heads of one KV head, each with its own sums of dk and dv */
    int64_t delta;  /* offset; lse2 stands at 0: (rows, heads, padded) fp32 each */
    int64_t tiles;  /* (rows, padded / tile, 2) i32 */
    int64_t prefixes; /* (rows, padded / tile, 4) i32, with a prefix */
    int64_t sums;   /* (n_parts, tokens, 2*G*D) fp32, when n_parts > 1 */
    int64_t bytes;
} DeviceAttendGrad;

/* Into how many parts a KV head's query heads are cut, so that blocks of keys become enough: few for many blocks. */
static inline int device_attend_parts(int64_t blocks, int64_t group) {
    int64_t parts = device_parts(DEVICE_BLOCKS, blocks);
    if (parts > group) parts = group;
    return (int)device_parts(group, device_parts(group, parts)); /* none of them empty */
}

static inline DeviceAttendGrad device_attend_grad(const AttrHeads *h, Format f, int64_t tokens, bool prefix) {
    DeviceAttendGrad d;
    int64_t rows = tokens / h->seq, group = h->heads / h->kv_heads;
    int64_t own = h->head_dim <= 64 ? 128 : 64; /* keys of a block */
    int parts = device_attend_parts(rows * h->kv_heads * device_parts(h->seq, own), group);
    d.n_parts = device_attend_on_cores(f, h->head_dim) ? parts : 1;
    d.padded = device_parts(h->seq, DEVICE_ATTEND_TILE) * DEVICE_ATTEND_TILE;
    d.delta = device_up(rows * h->heads * d.padded * 4);
    d.tiles = 2 * d.delta;
    d.prefixes = d.tiles + device_up(rows * (d.padded / DEVICE_ATTEND_TILE) * 8);
    d.sums = d.prefixes + (prefix ? device_up(rows * (d.padded / DEVICE_ATTEND_TILE) * 16) : 0);
    d.bytes = d.sums + (d.n_parts > 1 ? device_up(d.n_parts * tokens * 2 * h->kv_heads * h->head_dim * 4) : 0);
    return d;
}

/* Attention by a library (backend/cuda/cudnn_graph.c): 16-bit heads it has good kernels for, rows long enough to
 * matter. The scratch stands beside that of our own kernels, which serve where the library is missing or refuses. */
enum { DEVICE_LIBRARY_SEQ = 128, DEVICE_LIBRARY_SLACK = 65536 };

static inline bool device_attend_by_library(const AttrHeads *h, Format f) {
    return h->by != ATTEND_OWN && (f == FMT_BF16 || f == FMT_F16) && h->head_dim >= 64 && h->head_dim <= 128 &&
           h->head_dim % 8 == 0 && h->seq >= DEVICE_LIBRARY_SEQ;
}

typedef struct DeviceLibraryAttend { /* byte offsets; forward's scratch is the slack alone */
    int64_t sums;       /* (rows, heads, seq) fp32; dq in fp32 stands at 0 */
    int64_t rest;       /* the library's own: dk and dv of every query head, before a KV head's are added up */
    int64_t rest_bytes;
    int64_t bytes;
} DeviceLibraryAttend;

static inline DeviceLibraryAttend device_library_attend_grad(const AttrHeads *h, int64_t tokens) {
    DeviceLibraryAttend d;
    int64_t numbers = tokens * h->heads * h->head_dim;
    d.sums = device_up(numbers * 4);
    d.rest = d.sums + device_up(tokens * h->heads * 4);
    d.rest_bytes = (h->heads > h->kv_heads ? 2 * device_up(numbers * 2) : 0) + DEVICE_LIBRARY_SLACK;
    d.bytes = d.rest + d.rest_bytes;
    return d;
}

/* Heads whose tokens tensor cores attend to a cache with. */
static inline bool device_cache_on_cores(Format f, int dim) {
    return device_attend_on_cores(f, dim) || ((f == FMT_BF16 || f == FMT_F16) && dim == 32);
}

/* Into how many pieces the slots of a cache are split, so that few tokens still make many blocks. On tensor cores they
 * are a cluster. */
static inline int device_cache_splits(const AttrHeads *h, Format f, int64_t tokens) {
    int64_t group = h->heads / h->kv_heads;
    int64_t blocks = tokens * h->kv_heads * device_parts(group, DEVICE_CACHE_HEADS);
    int64_t wanted = device_parts(DEVICE_BLOCKS / 2, blocks), most = device_parts(h->slots, DEVICE_CACHE_SPLIT);
    if (h->seq >= DEVICE_CACHE_FEW || most < 1) return 1;
    /* the latency of joining more of them is worth it for long caches only */
    if (device_cache_on_cores(f, h->head_dim)) {
        const int64_t few = DEVICE_CLUSTER / 2, many = DEVICE_CLUSTER;
        most = h->slots / (8 * DEVICE_CACHE_TILE);
        if (most <= few) most = h->slots < 32 * DEVICE_CACHE_TILE ? 1 : most / 2;
        if (most > many) most = many;
    }
    return (int)(wanted < most ? wanted : most);
}

static inline int64_t device_cache_bytes(const AttrHeads *h, Format f, int64_t tokens) {
    int splits = device_cache_splits(h, f, tokens);
    return splits > 1 ? device_up(tokens * h->heads * splits * (h->head_dim + 2) * 4) : 0;
}

#endif
