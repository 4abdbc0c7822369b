/* report.c - the names and the arithmetic of the metrics, which are TRL's where it has them. */
#include "grpo/report.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"

typedef struct Lengths {
    double sum, least, most, n;
} Lengths;

static void add_length(Lengths *l, double tokens) {
    l->least = l->n > 0 ? fmin(l->least, tokens) : tokens;
    l->most = fmax(l->most, tokens);
    l->sum += tokens;
    l->n += 1;
}

void report_completions(GrpoRun *g) {
    GrpoFacts *f = &g->facts;
    Lengths all = {0}, ended = {0};
    for (int64_t i = 0; i < g->rollout.n; i++) {
        const Completion *c = &g->rollout.c[i];
        add_length(&all, (double)completion_tokens(c));
        if (!c->truncated) add_length(&ended, (double)completion_tokens(c));
    }
    f->tokens_mean = all.sum / all.n, f->tokens_least = all.least, f->tokens_most = all.most;
    f->ended_mean = ended.sum / ended.n; /* NAN where none did */
    f->ended_least = ended.n > 0 ? ended.least : (double)NAN;
    f->ended_most = ended.n > 0 ? ended.most : (double)NAN;
    f->clipped_share = 1 - ended.n / all.n;
}

static void say_update(const GrpoFacts *f, double tokens) {
    log_line(
        "  reward %.4f (std %.4f, %.0f %% of groups without one), tokens %.1f, entropy %.3f, KL %.4g, clipped %.3f, "
        "logp sampled-trained %.2g mean, %.2g max",
        f->advantage.reward_mean, f->advantage.reward_std, 100 * f->advantage.zero_std_share, f->tokens_mean,
        f->entropy / tokens, f->policy[POLICY_KL] / tokens,
        (f->policy[POLICY_LOW] + f->policy[POLICY_HIGH]) / tokens, f->policy[POLICY_APART] / tokens,
        f->policy[POLICY_MOST_APART]);
}

/* rewards_NAME_mean and rewards_NAME_std of each function. */
static int add_functions(Metric *to, char names[][2][64], const GrpoRun *g) {
    for (int k = 0; k < g->o.rewards.n; k++) {
        snprintf(names[k][0], sizeof names[k][0], "rewards_%.40s_mean", g->o.rewards.name[k]);
        snprintf(names[k][1], sizeof names[k][1], "rewards_%.40s_std", g->o.rewards.name[k]);
        to[2 * k] = METRIC_REAL(names[k][0], g->facts.function_mean[k]);
        to[2 * k + 1] = METRIC_REAL(names[k][1], g->facts.function_std[k]);
    }
    return 2 * g->o.rewards.n;
}

bool report_update(GrpoRun *g, Run *r, Err *e) {
    const GrpoFacts *f = &g->facts;
    const double *policy = f->policy;
    double tokens = fmax(policy[POLICY_TOKENS], 1);
    say_update(f, tokens);
    const Metric own[] = {METRIC_REAL("reward", f->advantage.reward_mean),
                          METRIC_REAL("reward_std", f->advantage.reward_std),
                          METRIC_REAL("frac_reward_zero_std", f->advantage.zero_std_share),
                          METRIC_INT("unscored", f->unscored),
                          METRIC_INT("redrawn", f->redrawn),
                          METRIC_INT("verifications", f->verifications),
                          METRIC_REAL("entropy", f->entropy / tokens),
                          METRIC_REAL("kl", policy[POLICY_KL] / tokens),
                          METRIC_REAL("clip_ratio_low_mean", policy[POLICY_LOW] / tokens),
                          METRIC_REAL("clip_ratio_low_min", policy[POLICY_TOKENS] > 0 ? policy[POLICY_LEAST_LOW] : 0),
                          METRIC_REAL("clip_ratio_high_mean", policy[POLICY_HIGH] / tokens),
                          METRIC_REAL("clip_ratio_high_max", policy[POLICY_MOST_HIGH]),
                          METRIC_REAL("clip_ratio_region_mean", (policy[POLICY_LOW] + policy[POLICY_HIGH]) / tokens),
                          METRIC_REAL("logp_difference_mean", policy[POLICY_APART] / tokens),
                          METRIC_REAL("logp_difference_max", policy[POLICY_MOST_APART]),
                          METRIC_REAL("completions_mean_length", f->tokens_mean),
                          METRIC_REAL("completions_min_length", f->tokens_least),
                          METRIC_REAL("completions_max_length", f->tokens_most),
                          METRIC_REAL("completions_mean_terminated_length", f->ended_mean),
                          METRIC_REAL("completions_min_terminated_length", f->ended_least),
                          METRIC_REAL("completions_max_terminated_length", f->ended_most),
                          METRIC_REAL("completions_clipped_ratio", f->clipped_share),
                          METRIC_INT("num_tokens", f->tokens_seen),
                          METRIC_REAL("seconds_rollout", g->seconds[GRPO_ANSWERS]),
                          METRIC_REAL("seconds_evaluator", g->seconds[GRPO_JUDGING]),
                          METRIC_REAL("seconds_training", g->seconds[GRPO_TRAINING])};
    Metric fields[COUNT_OF(own) + 2 * REWARDS_MOST];
    char names[REWARDS_MOST][2][64];
    int n = 0;
    for (; n < COUNT_OF(own); n++) fields[n] = own[n];
    n += add_functions(fields + n, names, g);
    return run_write_metrics(r, "grpo", fields, n, e);
}
