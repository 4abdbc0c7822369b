/* twin.c - one set of weights under other conditions: what evaluation, rollouts and a reference compute with. */
#include "model/decoder.h"

Decoder decoder_twin(Program *p, const Decoder *d, bool adapters) {
    Decoder twin = *d;
    twin.layer = ARENA_NEW(&p->arena, DecoderLayer, d->c.layers);
    for (int l = 0; l < d->c.layers; l++) {
        DecoderLayer *w = &twin.layer[l];
        *w = d->layer[l];
        Adapter *on[] = {&w->on_qkv, &w->on_out, &w->on_gate_up, &w->on_down};
        for (int i = 0; i < COUNT_OF(on); i++) {
            on[i]->attr.dropout = 0;
            if (!adapters) *on[i] = (Adapter){0};
        }
    }
    return twin;
}
