/* gradient_noise.c - the gradient noise scale (critical batch size), from gradient norms over few and over many tokens.
 * */
#include <math.h>

#include "train/run_int.h"

#define KEEP 0.98 /* of the means, from update to update */

void gradient_noise_add(GradientNoise *n, double few_norm, double few_tokens, double many_norm,
                        double many_tokens) {
    double few = few_norm * few_norm, many = many_norm * many_norm;
    double signal = (many_tokens * many - few_tokens * few) / (many_tokens - few_tokens);
    double noise = (few - many) / (1 / few_tokens - 1 / many_tokens);
    n->signal = KEEP * n->signal + (1 - KEEP) * signal;
    n->noise = KEEP * n->noise + (1 - KEEP) * noise;
    n->weight = KEEP * n->weight + (1 - KEEP);
}

double gradient_noise_scale(const GradientNoise *n) {
    return n->signal > 0 && n->noise > 0 ? n->noise / n->signal : (double)NAN;
}
