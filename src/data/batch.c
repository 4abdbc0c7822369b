/* batch.c - how rows are laid side by side, and the order in which their ids are summed. */
#include "data/batch.h"

#include <string.h>

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

void batch_init(Batch *b, Arena *a, int64_t rows, int64_t seq) {
    int64_t n = mem_mul(rows, seq);
    CHECK(rows > 0 && seq > 0 && n > 0 && n <= INT32_MAX);
    *b = (Batch){.rows = rows, .seq = seq};
    int32_t **arrays[] = {&b->ids, &b->labels, &b->positions, &b->doc_begin, &b->id_order, &b->scratch};
    for (int i = 0; i < COUNT_OF(arrays); i++) *arrays[i] = ARENA_NEW(a, int32_t, n);
    b->weight = ARENA_NEW(a, float, n);
    b->counts = ARENA_NEW(a, int32_t, DIGITS);
    b->read = (RowScratch){ARENA_NEW(a, uint32_t, seq + 1), ARENA_NEW(a, uint8_t, seq + 1)};
}

int64_t batch_bytes(int64_t rows, int64_t seq) {
    return rows * seq * (int64_t)(6 * sizeof(int32_t) + sizeof(float)) + DIGITS * (int64_t)sizeof(int32_t) +
           (seq + 1) * (int64_t)(sizeof(uint32_t) + sizeof(uint8_t));
}

void batch_pad(Batch *b, int64_t row, int64_t from) {
    for (int64_t t = from; t < b->seq; t++) {
        int64_t at = row * b->seq + t;
        b->ids[at] = 0;
        b->labels[at] = -1;
        b->weight[at] = 0;
        b->positions[at] = 0;
        b->doc_begin[at] = (int32_t)t;
    }
}

/* One stable pass over one digit of the ids. */
static void sort_by_digit(const Batch *b, int32_t *to, const int32_t *from, int64_t n, int shift) {
    memset(b->counts, 0, sizeof *b->counts * DIGITS);
    for (int64_t i = 0; i < n; i++) b->counts[(b->ids[i] >> shift) & (DIGITS - 1)]++;
    int32_t sum = 0;
    for (int k = 0; k < DIGITS; k++) {
        int32_t here = b->counts[k];
        b->counts[k] = sum;
        sum += here;
    }
    for (int64_t i = 0; i < n; i++) to[b->counts[(b->ids[from[i]] >> shift) & (DIGITS - 1)]++] = from[i];
}

void batch_sort(Batch *b) {
    int64_t n = b->rows * b->seq;
    int32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        b->id_order[i] = (int32_t)i;
        largest = MAX2(largest, b->ids[i]);
    }
    int32_t *from = b->id_order, *to = b->scratch;
    for (int shift = 0; shift < 31 && largest >> shift; shift += DIGIT_BITS) {
        sort_by_digit(b, to, from, n, shift);
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != b->id_order) memcpy(b->id_order, from, sizeof *from * (size_t)n);
}

void batch_fill(Batch *b, const Dataset *d, const RowList *l, int64_t first) {
    CHECK(first >= 0 && b->seq == dataset_seq(d));
    b->tokens = b->scored = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t at = r * b->seq, from = first + r < l->n_rows ? l->first[first + r] : 0;
        if (first + r >= l->n_rows) {
            batch_pad(b, r, 0);
            continue;
        }
        const int64_t *member = l->member + from;
        int64_t n = l->first[first + r + 1] - from;
        dataset_members_fill(d, member, n, &b->read, b->ids + at, b->labels + at, b->weight + at,
                             b->positions + at, b->doc_begin + at);
        for (int64_t i = 0; i < n; i++) {
            b->tokens += dataset_row_tokens(d, member[i]);
            b->scored += dataset_row_scored(d, member[i]);
        }
    }
    batch_sort(b);
}
