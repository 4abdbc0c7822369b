/* homes.c - which of a decoder's weights wait in pinned memory, and in which format the projections are stored. */
#include "model/decoder.h"

/* n of `layers` layers, spread evenly: between two that are brought in, those at home give the copies time. */
static bool is_sent(int layer, int64_t n, int layers) {
    return (layer + 1) * n / layers > layer * n / layers;
}

static void set_home(Program *p, Tid weight, bool sent, Format stored) {
    p->t[weight].home = (Home){sent ? POOL_PINNED : POOL_DEVICE, stored};
}

void decoder_homes(Program *p, const Decoder *d, Format stored, int64_t sent_layers) {
    int layers = d->c.layers;
    for (int l = 0; l < layers; l++) {
        const DecoderLayer *w = &d->layer[l];
        const Tid products[] = {w->qkv, w->out, w->gate_up, w->down};
        for (int i = 0; i < COUNT_OF(products); i++)
            set_home(p, products[i], is_sent(l, sent_layers, layers), stored);
    }
    bool all = sent_layers >= layers;
    set_home(p, d->embedding, all, p->t[d->embedding].format);
    set_home(p, d->head, all, p->t[d->head].format);
}

void decoder_quantise_head(Program *p, const Decoder *d) {
    CHECK_MSG(!p->t[d->head].trainable, "a head that is trained keeps its format");
    p->t[d->head].home.stored = FMT_INT8;
}
