/* loss_scale.c - how the scale of an fp16 run's loss follows from what overflowed.
 *
 * The usual dynamic loss scaling: half on an overflow, double after a window of good updates. Powers of two change no
 * digit of a gradient that neither overflows nor underflows. Gradients of exact zeros would let the scale grow without
 * end, so there is a limit. */
#include "train/run_int.h"

static const double most = 0x1p32;

LossScale loss_scale_after(LossScale s, int64_t window, bool finite) {
    if (!window) return s;
    if (!finite) return (LossScale){s.scale / 2, 0, s.skipped + 1};
    if (++s.good < window) return s;
    return (LossScale){MAX2(s.scale, MIN2(s.scale * 2, most)), 0, s.skipped};
}
