/* advantage.c - means, deviations and weights of a generation batch, in the order TRL computes them. */
#include "grpo/advantage.h"

#include <math.h>

#include "base/choose.h"
#include "base/str.h"

static const double STD_FLOOR = 1e-4; /* added to every deviation */
static const double STD_ZERO = 1e-8;  /* torch.isclose(std, 0) */

bool reward_scale_find(RewardScale *scale, const char *name, Err *e) {
    static const char *const names[] = {"group", "batch", "none"};
    int which;
    if (str_same_word(name, "true")) name = "group";
    if (str_same_word(name, "false")) name = "none";
    bool ok = choose_name(&which, name, names, COUNT_OF(names), "scaling of rewards", e);
    *scale = (RewardScale)which;
    return ok;
}

bool loss_kind_find(LossKind *kind, const char *name, Err *e) {
    static const char *const names[] = {"dapo", "grpo", "bnpo", "dr_grpo"};
    int which;
    bool ok = choose_name(&which, name, names, COUNT_OF(names), "loss type", e);
    *kind = (LossKind)which;
    return ok;
}

/* ---- rewards ---- */

int64_t advantage_rewards(double *reward, const double *given, const double *weight, int64_t n, int functions,
                          int64_t *first) {
    int64_t missing = 0, where = -1;
    for (int64_t i = 0; i < n; i++) {
        int said = 0;
        reward[i] = 0;
        for (int k = 0; k < functions; k++) {
            double r = given[i * functions + k];
            if (!isfinite(r)) continue;
            reward[i] += r * (weight ? weight[k] : 1);
            said++;
        }
        if (said) continue;
        if (!missing++) where = i;
    }
    if (first) *first = where;
    return missing;
}

/* Of the finite numbers x[0], x[step], ...; the deviation is NAN for fewer than two of them. */
static void moments(double *mean, double *std, const double *x, int64_t n, int64_t step) {
    double sum = 0, squares = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i * step])) sum += x[i * step], count++;
    *mean = count ? sum / (double)count : NAN;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i * step])) squares += (x[i * step] - *mean) * (x[i * step] - *mean);
    *std = count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
}

void advantage_function(double *mean, double *std, const double *given, int64_t n, int functions, int k) {
    moments(mean, std, given + k, n, functions);
}

/* ---- advantages ---- */

AdvantageFacts advantage_make(double *advantage, const double *reward, int64_t n, int64_t group,
                              RewardScale scale) {
    CHECK(n > 0 && group > 1 && n % group == 0);
    int64_t groups = n / group, zero = 0;
    double batch_mean, batch_std, means = 0, stds = 0;
    moments(&batch_mean, &batch_std, reward, n, 1);
    for (int64_t g = 0; g < groups; g++) {
        const double *r = reward + g * group;
        double mean, std;
        moments(&mean, &std, r, group, 1);
        if (scale == SCALE_BATCH) std = batch_std;
        for (int64_t i = 0; i < group; i++) {
            double apart = r[i] - mean;
            advantage[g * group + i] = scale == SCALE_NONE ? apart : apart / (std + STD_FLOOR);
        }
        means += mean;
        stds += std;
        zero += std <= STD_ZERO;
    }
    return (AdvantageFacts){means / (double)groups, stds / (double)groups, (double)zero / (double)groups};
}

/* ---- weights ---- */

static bool is_masked(const LossBatch *b, int64_t i) {
    return b->mask_truncated && b->truncated && b->truncated[b->member[i]];
}

double advantage_weights(double *weight, const LossBatch *b) {
    int64_t kept_tokens = 0;
    for (int64_t i = 0; i < b->n; i++) kept_tokens += is_masked(b, i) ? 0 : b->tokens[b->member[i]];
    for (int64_t i = 0; i < b->n; i++) {
        double w = 1;
        if (b->kind == LOSS_GRPO) w = 1 / (double)MAX2(1, b->tokens[b->member[i]]);
        if (b->kind == LOSS_BNPO) w = 1 / (double)MAX2(1, kept_tokens);
        weight[i] = is_masked(b, i) ? 0 : w;
    }
    double completions = (double)b->n * (double)b->accum;
    switch (b->kind) {
        case LOSS_DAPO:
            return (double)MAX2(1, b->generation_tokens);
        case LOSS_GRPO:
            return completions;
        case LOSS_BNPO:
            return (double)b->accum;
        case LOSS_DR_GRPO:
            return completions * (double)b->max_completion;
    }
    return 1;
}
