/* dataset_order.c - the order of rows, computed from the seed by keyed permutations: no list is kept, any position can
 * be asked for, and the answer is the same for any number of ranks and workers.
 *
 * One part, or several without weights: the rows of all, in a keyed permutation of each epoch. With weights: draw
 * k (counted over all epochs) is given to a part by shares that fall due evenly: among any k draws a part has its
 * share of k, give or take one for each part before it. Where in its turn a share falls due is keyed too. The j-th
 * draw from a part is its row at place j % n of its own permutation for round j / n. */
#include "base/rng.h"
#include "data/dataset_int.h"

enum { ORDER_KEY = 0x6f726465, MIX_KEY = 0x6d697865 };

void dataset_share_out(Dataset *d) {
    double left = 0;
    d->weighted = d->n_parts > 1 && d->part[0].weight > 0;
    for (int i = 0; i < d->n_parts; i++) left += d->part[i].n_rows ? d->part[i].weight : 0;
    for (int i = 0; i < d->n_parts; i++) {
        double weight = d->part[i].n_rows ? d->part[i].weight : 0;
        d->part[i].share = left > 0 && weight < left ? (uint64_t)(weight / left * 4294967296.0) : (uint64_t)1 << 32;
        if (!weight) d->part[i].share = 0;
        left -= weight;
    }
}

/* Of the first j draws that come so far, those that fall to the part. */
static uint64_t due(const Dataset *d, int part, uint64_t j) {
    uint64_t offset = rng_fold(rng_fold(d->seed, MIX_KEY), (uint64_t)part) >> 32;
    return (uint64_t)(((unsigned __int128)j * d->part[part].share + offset) >> 32);
}

static int64_t draw(const Dataset *d, uint64_t k) {
    int i = 0;
    for (uint64_t before; i < d->n_parts - 1; i++, k -= before) {
        before = due(d, i, k);
        if (due(d, i, k + 1) == before) continue;
        k = before;
        break;
    }
    const DataPart *p = &d->part[i];
    uint64_t n = (uint64_t)p->n_rows, key = rng_fold(rng_fold(rng_fold(d->seed, ORDER_KEY), 1 + (uint64_t)i), k / n);
    int64_t place = (int64_t)(k % n);
    return p->first_row + (d->shuffle ? rng_permuted(key, p->n_rows, place) : place);
}

int64_t dataset_row_at(const Dataset *d, int64_t epoch, int64_t index) {
    CHECK(epoch >= 0 && index >= 0 && index < d->n_rows);
    if (d->weighted) return draw(d, (uint64_t)epoch * (uint64_t)d->n_rows + (uint64_t)index);
    return d->shuffle ? rng_permuted(rng_fold(rng_fold(d->seed, ORDER_KEY), (uint64_t)epoch), d->n_rows, index) : index;
}
