/* pile.h - a segmented array, which grows by blocks: it takes exactly what it holds, at every moment.
 *
 * Doubling an array keeps up to twice its bytes, and up to three times while it is copied. Here nothing is moved and
 * the bytes are known beforehand, so that a plan can count them. */
#ifndef DATA_PILE_H
#define DATA_PILE_H

#include <stdint.h>

typedef struct Pile {
    char **block;           /* owns, each of 2^shift elements but perhaps the last */
    int64_t n_blocks, capacity;
    int64_t n;              /* elements */
    int32_t each, shift;    /* bytes of an element; log2 of the elements of a block */
} Pile;

void pile_init(Pile *p, int32_t each); /* each: a power of two */
void pile_free(Pile *p);
void pile_add(Pile *p, const void *from, int64_t n);
void pile_cut(Pile *p, int64_t n);     /* forgets all but the first n */
void pile_shrink(Pile *p);             /* the last block to what it holds; nothing may be added afterwards */
int64_t pile_bytes(const Pile *p);

static inline void *pile_at(const Pile *p, int64_t i) {
    int64_t inside = i & (((int64_t)1 << p->shift) - 1);
    return p->block[i >> p->shift] + inside * p->each;
}

#endif
