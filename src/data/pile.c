/* pile.c - where an element of a segmented array lies. */
#include "data/pile.h"

#include <string.h>

#include "base/mem.h"

enum { BLOCK_BYTES = 1 << 20 };

void pile_init(Pile *p, int32_t each) {
    CHECK(each > 0 && !(each & (each - 1)));
    *p = (Pile){.each = each};
    while ((int64_t)each << p->shift < BLOCK_BYTES) p->shift++;
}

void pile_free(Pile *p) {
    for (int64_t i = 0; i < p->n_blocks; i++) mem_free(p->block[i]);
    mem_free(p->block);
    *p = (Pile){.each = p->each, .shift = p->shift};
}

/* Elements from i on that lie side by side, n at most. */
static int64_t run_at(const Pile *p, int64_t i, int64_t n) {
    int64_t per_block = (int64_t)1 << p->shift;
    return MIN2(n, per_block - (i & (per_block - 1)));
}

void pile_add(Pile *p, const void *from, int64_t n) {
    for (int64_t part; n > 0; n -= part, p->n += part, from = (const char *)from + part * p->each) {
        if (p->n >> p->shift == p->n_blocks) {
            p->block = mem_grow(p->block, &p->capacity, p->n_blocks + 1, sizeof *p->block);
            p->block[p->n_blocks++] = mem_resize(NULL, BLOCK_BYTES);
        }
        part = run_at(p, p->n, n);
        memcpy(pile_at(p, p->n), from, (size_t)(part * p->each));
    }
}

void pile_cut(Pile *p, int64_t n) {
    CHECK(n >= 0 && n <= p->n);
    p->n = n;
    int64_t keep = (n + ((int64_t)1 << p->shift) - 1) >> p->shift;
    while (p->n_blocks > keep) mem_free(p->block[--p->n_blocks]);
}

static int64_t last_bytes(const Pile *p) { return (p->n - ((p->n_blocks - 1) << p->shift)) * p->each; }

void pile_shrink(Pile *p) {
    if (p->n_blocks) p->block[p->n_blocks - 1] = mem_resize(p->block[p->n_blocks - 1], last_bytes(p));
}

int64_t pile_bytes(const Pile *p) {
    int64_t lists = p->capacity * (int64_t)sizeof *p->block;
    return p->n_blocks ? lists + (p->n_blocks - 1) * BLOCK_BYTES + last_bytes(p) : lists;
}
