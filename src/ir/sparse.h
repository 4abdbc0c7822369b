/* sparse.h - how the CPU cuts the ops of op_sparse.c: known here, because the cut gives the scratch bytes, and a plan
 * must know those. All counts are of fp32 numbers unless they say bytes. */
#ifndef IR_SPARSE_H
#define IR_SPARSE_H

#include "base/check.h"
#include "ir/attr.h"
#include "ir/block_device.h"

enum { SPARSE_TILE = 16 /* queries scored together */, SPARSE_BLOCK = 128 /* keys read together */ };

/* An indexer's scores are rounded to steps of one in so many, to rank them and to say how many are kept. A token that
 * is repeated has the same index key each time in the first layer; rounding makes such scores equal whatever product
 * they come from (a prompt's, a single token's), and of equal ones the latest is taken. */
#define SPARSE_STEPS 4096.0f

static inline uint32_t sparse_hash(uint32_t x) { /* cheap: every pair draws */
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* The rank of key i of n seen in a random selection. It is drawn anew when the key's epoch ends: after each query
 * (kept 0), or after 1/(1 - kept) of them, at another time for each key. So neighbouring queries select the share
 * kept + (1 - kept) k/n of their keys in common. backend/cuda/sparse.cuh has the same. */
static inline float sparse_drawn(uint64_t key, uint32_t kept, int64_t n, int64_t i) {
    uint32_t own = sparse_hash((uint32_t)(key ^ key >> 32) + (uint32_t)i * 0x9e3779b9u);
    uint64_t step = (1ull << 31) - kept, phase = kept ? own >> 1 : 0;
    uint32_t epoch = (uint32_t)(((uint64_t)n * step + phase) >> 31);
    return (float)(sparse_hash(own ^ epoch * 0x85ebca6bu) >> 16) * 0x1p-16f;
}

static inline int64_t sparse_group(const AttrHeads *h) { return h->heads / h->kv_heads; }
static inline int64_t sparse_bytes(int64_t numbers) { return (numbers * 4 + 255) / 256 * 256; }
static inline int64_t sparse_span(const AttrHeads *h) { return h->slots ? h->slots : h->seq; } /* keys of one row */

/* One token's attention over all keys: a row of it, the scores of a group of heads, their queries, a block of keys. */
static inline int64_t sparse_dense_numbers(const AttrHeads *h) {
    return sparse_group(h) * (sparse_span(h) + h->head_dim) + SPARSE_BLOCK * (int64_t)h->head_dim;
}
static inline int64_t sparse_report_bytes(const AttrHeads *h) {
    return sparse_bytes(sparse_dense_numbers(h) + 2 * sparse_span(h));
}

/* A report reads attention over all keys, which a step of long rows does not. So it looks at SPARSE_REPORTED tokens of
 * a row at most, evenly apart up to the row's last one. */
enum { SPARSE_REPORTED = 512 };
static inline int64_t sparse_report_stride(int64_t seq) { return (seq + SPARSE_REPORTED - 1) / SPARSE_REPORTED; }
static inline int64_t sparse_report_row(int64_t seq) { /* tokens of a row that are looked at */
    return (seq + sparse_report_stride(seq) - 1) / sparse_report_stride(seq);
}
static inline int64_t sparse_report_tokens(int64_t tokens, int64_t seq) {
    return tokens / seq * sparse_report_row(seq);
}
static inline int64_t sparse_report_token(int64_t i, int64_t seq) { /* the i-th of them; select.cu has the same */
    int64_t each = sparse_report_row(seq);
    return i / each * seq + MIN2((i % each + 1) * sparse_report_stride(seq), seq) - 1;
}
static inline int64_t sparse_report_words(int64_t tokens, int64_t seq) { /* bytes of what is found of each */
    return sparse_bytes(2 * REPORT_WORDS * sparse_report_tokens(tokens, seq));
}

/* One worker's scratch of select: scores of a tile against all keys, and what makes them. */
static inline int64_t sparse_select_bytes(const AttrSparse *a) {
    int64_t span = sparse_span(&a->heads), rows = (int64_t)SPARSE_TILE * a->index_heads, dim = a->index_dim, oracle = 0;
    if (a->by == SELECT_ORACLE) oracle = sparse_dense_numbers(&a->heads);
    return sparse_bytes(rows * (dim + 1 + SPARSE_BLOCK) + SPARSE_BLOCK * dim + (SPARSE_TILE + 1) * span + oracle);
}

static inline int64_t sparse_attend_bytes(const AttrHeads *h, int64_t keys) {
    return sparse_bytes(SPARSE_BLOCK * (int64_t)h->head_dim + sparse_group(h) * (2 * h->head_dim + keys));
}

/* The loss of each token, in fp64. */
static inline int64_t sparse_parts_bytes(int64_t tokens) { return sparse_bytes(2 * tokens); }

/* The keys, values and their gradients of one row and KV head, and a block of them. */
static inline int64_t sparse_attend_grad_bytes(const AttrHeads *h) {
    int64_t dim = h->head_dim, group = sparse_group(h);
    return sparse_bytes(4 * h->seq * dim + 3 * SPARSE_BLOCK * dim + group * (4 * dim + 2 * SPARSE_BLOCK + 2));
}

/* Of one token: its scores, the attention they should follow, and what each index head gave; for the gradient also
 * the sums of a row's index keys. */
static inline int64_t sparse_loss_bytes(const AttrSparse *a, bool grad) {
    int64_t span = a->heads.seq, dim = MAX2(a->heads.head_dim, a->index_dim), group = sparse_group(&a->heads);
    int64_t numbers = span * (3 + a->index_heads) + SPARSE_BLOCK * dim + MAX2(group, a->index_heads) * SPARSE_BLOCK +
                      group * a->heads.head_dim + a->index_heads * (a->index_dim + 1);
    if (grad) numbers += (span + a->index_heads) * a->index_dim;
    return sparse_bytes(numbers);
}

/* ---- a GPU ---- */

/* Blocks that share the tokens of a step, each with a few rows of `span` numbers of its own: fewer where rows are
 * long. */
static inline int64_t sparse_device_blocks(int64_t tokens, int64_t span) {
    return MIN2(tokens, span <= 8192 ? 1056 : 264);
}
static inline int64_t sparse_device_rows_bytes(int64_t tokens, int64_t span, int64_t rows) {
    return sparse_bytes(sparse_device_blocks(tokens, span) * span * rows);
}
static inline int64_t sparse_device_plain_loss_bytes(const AttrSparse *a, int64_t tokens, bool grad) {
    if (!grad) return sparse_bytes(2 * tokens) + sparse_device_rows_bytes(tokens, a->heads.seq, 2);
    return sparse_bytes(tokens) + sparse_bytes(tokens * 2 * a->index_heads) +
           sparse_device_rows_bytes(tokens, a->heads.seq, 2 + a->index_heads);
}

/* On tensor cores tiles of 64 queries by 64 keys are scored, a bit a pair says which count. The scratch is large enough
 * for either way, so that a card without them runs the same plan. */
enum { SPARSE_DEVICE_SIDE = 64, SPARSE_DEVICE_INDEX_DIM = 64, SPARSE_DEVICE_SUMS = 5, SPARSE_DEVICE_ENOUGH = 512,
       SPARSE_DEVICE_FEW = 16 /* fewer tokens of a row are selected for one by one */,
       SPARSE_DEVICE_FEW_ROWS = 64 /* of them at a time */ };

static inline bool sparse_device_index_tiles(const AttrSparse *a, Format f) { /* the indexer's scores */
    return (f == FMT_BF16 || f == FMT_F16) && a->index_dim == SPARSE_DEVICE_INDEX_DIM &&
           (a->index_heads == 4 || a->index_heads == 8) && a->by != SELECT_ORACLE;
}
static inline bool sparse_device_loss_tiles(const AttrSparse *a, Format f) { /* and attention beside them */
    return sparse_device_index_tiles(a, f) && device_attend_on_cores(f, a->heads.head_dim) &&
           a->heads.head_dim != 80;
}
static inline int64_t sparse_device_words(int64_t seq) { return (seq + 127) / 128 * 4; } /* of a token's bits */
static inline int64_t sparse_device_mask_bytes(int64_t tokens, int64_t seq) {
    return sparse_bytes(tokens * sparse_device_words(seq));
}
static inline int64_t sparse_device_tiles(int64_t tokens, int64_t seq) { /* of queries */
    return tokens / seq * ((seq + SPARSE_DEVICE_SIDE - 1) / SPARSE_DEVICE_SIDE);
}
static inline int64_t sparse_device_padded(int64_t span) {
    return (span + SPARSE_DEVICE_SIDE - 1) / SPARSE_DEVICE_SIDE * SPARSE_DEVICE_SIDE;
}
/* Tiles of queries whose scores exist at a time (ranks of 16 bits, or fp32 behind a relu): as many as have 256 MiB of
 * ranks, so that a launch has enough blocks for the whole card. */
static inline int64_t sparse_device_scored(int64_t tokens, int64_t seq, int64_t span) {
    int64_t fit = ((int64_t)1 << 28) / (sparse_device_padded(span) * SPARSE_DEVICE_SIDE * 2);
    return MIN2(sparse_device_tiles(tokens, seq), MAX2(fit, 16));
}
/* Blocks that share the other side of a tile, each with sums of its own. */
static inline int64_t sparse_device_splits(int64_t tiles, int64_t seq) {
    return MIN2((SPARSE_DEVICE_ENOUGH + tiles - 1) / tiles, sparse_device_padded(seq) / SPARSE_DEVICE_SIDE);
}
/* Tiles of queries whose pairs have gradients at a time, 16 bits each. */
static inline int64_t sparse_device_band(int64_t tokens, int64_t seq) {
    int64_t most = ((int64_t)1 << 29) / (sparse_device_padded(seq) * SPARSE_DEVICE_SIDE * 2);
    return MIN2(sparse_device_tiles(tokens, seq), MAX2(most, 8));
}
static inline int64_t sparse_device_select_bytes(const AttrSparse *a, Format f, int64_t tokens) {
    int64_t span = sparse_span(&a->heads), rows = a->by == SELECT_ORACLE ? 2 : 1,
            plain = sparse_device_rows_bytes(tokens, span, rows);
    if (!sparse_device_index_tiles(a, f)) return plain;
    int64_t scored = sparse_device_scored(tokens, a->heads.seq, span) * SPARSE_DEVICE_SIDE;
    if (a->heads.slots && a->heads.seq < SPARSE_DEVICE_FEW) scored = MIN2(tokens, SPARSE_DEVICE_FEW_ROWS);
    return MAX2(plain, sparse_bytes(scored * sparse_device_padded(span) / (a->relu ? 1 : 2)));
}

/* Where the gradient of the loss has what in its workspace, as bytes from its beginning; the loss alone: up to sums. */
typedef struct SparseLoss {
    int64_t splits, band, key_splits; /* of queries' sums, tiles of pairs, of keys' sums */
    int64_t mask, sums, w, pairs, grads, key_grads, bytes;
} SparseLoss;
static inline SparseLoss sparse_device_loss(const AttrSparse *a, int64_t tokens, bool grad) {
    int64_t seq = a->heads.seq, tiles = sparse_device_tiles(tokens, seq), heads = a->index_heads;
    SparseLoss l = {.band = grad ? sparse_device_band(tokens, seq) : tiles};
    l.key_splits = sparse_device_splits(tiles, seq);
    l.splits = sparse_device_splits(l.band, seq);
    l.mask = grad ? sparse_bytes(tokens * 2 * heads) : sparse_parts_bytes(tokens);
    l.sums = l.mask + sparse_device_mask_bytes(tokens, seq);
    l.w = l.sums + sparse_bytes(l.splits * tokens * SPARSE_DEVICE_SUMS);
    l.pairs = l.w + sparse_bytes(tokens * heads);
    l.bytes = l.pairs;
    if (!grad) return l;
    l.grads = l.pairs + sparse_bytes(l.band * SPARSE_DEVICE_SIDE * sparse_device_padded(seq) / 2);
    l.key_grads = l.grads + sparse_bytes(l.splits * l.band * SPARSE_DEVICE_SIDE * heads * (a->index_dim + 2));
    l.bytes = l.key_grads + sparse_bytes(l.key_splits * tokens * a->index_dim);
    return l;
}
static inline int64_t sparse_device_loss_bytes(const AttrSparse *a, Format f, int64_t tokens, bool grad) {
    int64_t plain = sparse_device_plain_loss_bytes(a, tokens, grad);
    return sparse_device_loss_tiles(a, f) ? MAX2(plain, sparse_device_loss(a, tokens, grad).bytes) : plain;
}

/* How attention over selected keys runs: pair by pair; on tiles of the whole row with a mask (LISTED); of a few tokens
 * behind a cache split over keys (FEW); on tiles over the union of neighbours' selections (GATHERED), where rows are
 * long and selections thin. The listed backward of heads of 128 would spill in fp16. Gathered, backward adds into
 * keys and values in the order in which blocks come; a device that must be deterministic goes back in one order
 * (sparse_device_ordered_grad) whatever the length, so the scratch is large enough for either way. */
typedef enum SparseAttend { SPARSE_PLAIN, SPARSE_LISTED, SPARSE_FEW, SPARSE_GATHERED } SparseAttend;
enum { SPARSE_DEVICE_LONG = 8192, SPARSE_DEVICE_FEW_KEYS = 64 /* a warp */, SPARSE_DEVICE_FEW_GROUP = 8 /* at most */ };
static inline bool sparse_device_gathers(const AttrHeads *h, Format f) { /* rows of any length */
    return device_attend_on_cores(f, h->head_dim) && SPARSE_DEVICE_SIDE % sparse_group(h) == 0;
}
static inline SparseAttend sparse_device_ordered_grad(const AttrHeads *h, Format f) {
    bool fits = h->head_dim < 128 || f == FMT_BF16;
    return device_attend_on_cores(f, h->head_dim) && fits ? SPARSE_LISTED : SPARSE_PLAIN;
}
static inline SparseAttend sparse_device_attend(const AttrHeads *h, Format f, bool grad) {
    bool whole = sparse_device_gathers(h, f);
    if (!device_attend_on_cores(f, h->head_dim)) return SPARSE_PLAIN;
    if (!h->slots && h->seq > SPARSE_DEVICE_LONG && whole) return SPARSE_GATHERED;
    if (grad) return sparse_device_ordered_grad(h, f);
    if (!h->slots) return SPARSE_LISTED;
    if (h->seq < SPARSE_DEVICE_FEW) return sparse_group(h) <= SPARSE_DEVICE_FEW_GROUP ? SPARSE_FEW : SPARSE_PLAIN;
    return whole ? SPARSE_GATHERED : SPARSE_PLAIN;
}
/* Backward of a device that must be deterministic or need not be. */
static inline SparseAttend sparse_device_goes_back(const AttrHeads *h, Format f, bool deterministic) {
    return deterministic ? sparse_device_ordered_grad(h, f) : sparse_device_attend(h, f, true);
}
static inline int64_t sparse_device_few_parts(int64_t most) {
    return (most + SPARSE_DEVICE_FEW_KEYS - 1) / SPARSE_DEVICE_FEW_KEYS;
}
/* Backward, gathered: fp32 sums of keys and values, then the mask. */
static inline int64_t sparse_device_sums_bytes(const AttrHeads *h, int64_t tokens) {
    return sparse_bytes(tokens * 2 * h->kv_heads * h->head_dim);
}
static inline int64_t sparse_device_gathered_grad_bytes(const AttrHeads *h, int64_t tokens) {
    return sparse_device_sums_bytes(h, tokens) + sparse_device_mask_bytes(tokens, h->seq);
}
static inline int64_t sparse_device_attend_grad_bytes(const AttrHeads *h, Format f, int64_t tokens) {
    int64_t bytes = sparse_bytes(tokens * h->heads);
    if (sparse_device_ordered_grad(h, f) == SPARSE_LISTED)
        bytes = MAX2(bytes, device_attend_grad(h, f, tokens, false).bytes + sparse_device_mask_bytes(tokens, h->seq));
    if (sparse_device_attend(h, f, true) == SPARSE_GATHERED)
        bytes = MAX2(bytes, sparse_device_gathered_grad_bytes(h, tokens));
    return bytes;
}
/* most: columns of the selection. */
static inline int64_t sparse_device_attend_bytes(const AttrHeads *h, Format f, int64_t tokens, int64_t most,
                                                 bool grad) {
    if (grad) return sparse_device_attend_grad_bytes(h, f, tokens);
    switch (sparse_device_attend(h, f, false)) {
    case SPARSE_PLAIN: return 0;
    case SPARSE_FEW:
        return sparse_bytes(MIN2(tokens, SPARSE_DEVICE_FEW_ROWS) * h->heads * sparse_device_few_parts(most) *
                            (h->head_dim + 2));
    case SPARSE_LISTED:
    case SPARSE_GATHERED: break;
    }
    return sparse_device_mask_bytes(tokens, sparse_span(h));
}

/* Whether the loss of an indexer gathers the keys of a selection: where rows are long. Its sums stand where those of
 * tiles would, which a backend that must be deterministic takes for the gradient. */
static inline bool sparse_device_loss_gathers(const AttrSparse *a, bool selected) {
    return selected && a->heads.seq > SPARSE_DEVICE_LONG;
}

#endif
