/* homes.c - which of a decoder's weights wait in pinned memory or on disk, and in which format the projections are stored. */
#include "model/decoder.h"

/* n of `all`, spread evenly: between two that are brought in, those at home give the copies time. */
static bool is_one_of(int64_t i, int64_t n, int64_t all) { return (i + 1) * n / all > i * n / all; }

static Pool pool_of(int layer, const DecoderAway *away, int layers) {
    if (!is_one_of(layer, away->layers, layers)) return POOL_DEVICE;
    return is_one_of(layer * away->layers / layers, away->on_disk, away->layers) ? POOL_DISK : POOL_PINNED;
}

void decoder_homes(Program *p, const Decoder *d, Format stored, DecoderAway away) {
    for (int l = 0; l < d->c.layers; l++) {
        const DecoderLayer *w = &d->layer[l];
        const Tid products[] = {w->qkv, w->out, w->gate_up, w->down};
        for (int i = 0; i < COUNT_OF(products); i++)
            p->t[products[i]].home = (Home){pool_of(l, &away, d->c.layers), stored};
    }
    Pool pinned = away.outside ? POOL_PINNED : POOL_DEVICE; /* an answer's token is one row of the embedding */
    p->t[d->head].home = (Home){away.outside && away.on_disk >= d->c.layers ? POOL_DISK : pinned, p->t[d->head].format};
    p->t[d->embedding].home = (Home){pinned, p->t[d->embedding].format};
}

void decoder_quantise_head(Program *p, const Decoder *d) {
    CHECK_MSG(!p->t[d->head].trainable, "a head that is trained keeps its format");
    p->t[d->head].home.stored = FMT_INT8;
}
