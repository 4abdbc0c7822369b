/* spike.c - when the loss or the gradient norm of an update is a spike, and what happens to an update that is one or is
 * not finite.
 *
 * Mean and variance are exponential moving averages over a window. A spike enters them clipped to its limit, so one
 * does not hide the next, and a level that persists soon becomes normal. The limits of an update follow from those
 * before it, so that the device can skip the update by itself and nothing waits. */
#include <math.h>
#include <stdio.h>

#include "train/run_int.h"

/* A run that hardly changes has no deviation worth the name: a hundredth of the mean is the least. */
static double limit_of(const RunningMean *m, const SpikeRule *rule) {
    if (m->n < rule->window / 2 || rule->on == SPIKE_IGNORE) return INFINITY;
    return m->mean + rule->factor * fmax(sqrt(m->variance), 0.01 * fabs(m->mean));
}

static RunningMean mean_with(RunningMean m, double x, double limit, int64_t window) {
    if (!isfinite(x)) return m;
    x = fmin(x, limit);
    m.n++;
    double share = 1 / (double)MIN2(m.n, window / 2), off = x - m.mean;
    m.mean += share * off;
    m.variance = (1 - share) * (m.variance + share * off * off);
    return m;
}

SpikeLimits spike_limits(const SpikeState *s, const SpikeRule *rule) {
    return (SpikeLimits){limit_of(&s->loss, rule), limit_of(&s->norm, rule)};
}

SpikeState spike_after(SpikeState s, const SpikeRule *rule, double loss, double norm, bool skipped) {
    s.skipped_in_a_row = skipped ? s.skipped_in_a_row + 1 : 0;
    if (rule->on == SPIKE_IGNORE) return s;
    SpikeLimits limits = spike_limits(&s, rule);
    s.loss = mean_with(s.loss, loss, limits.loss, rule->window);
    s.norm = mean_with(s.norm, norm, limits.norm, rule->window);
    return s;
}

bool spike_is_one(const SpikeLimits *limits, double loss, double norm) {
    return isfinite(loss) && isfinite(norm) && (loss > limits->loss || norm > limits->norm);
}

void spike_text(char *out, size_t size, const SpikeLimits *limits, double loss, double norm) {
    bool of_loss = loss > limits->loss;
    snprintf(out, size, "a spike: the %s is %.5g, the limit by the updates before it %.5g (--spike-factor)",
             of_loss ? "loss" : "gradient norm", of_loss ? loss : norm, of_loss ? limits->loss : limits->norm);
}
