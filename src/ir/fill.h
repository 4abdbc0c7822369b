/* fill.h - the number that a fill puts at an index: how random weights are drawn, on a device or into a file. */
#ifndef IR_FILL_H
#define IR_FILL_H

#include "base/rng.h"
#include "ir/attr.h"

static inline float fill_number(const AttrFill *f, int64_t index) {
    if (f->kind == FILL_NORMAL) return f->scale * rng_normal(f->key, (uint64_t)index);
    if (f->kind == FILL_UNIFORM) return f->scale * (2.0f * rng_uniform(f->key, (uint64_t)index) - 1.0f);
    return f->scale;
}

#endif
