/* test_policy.c - a policy's loss and its gradient against the formula in double and finite differences. */
#include <math.h>

#include "tests/ops/bench.h"

enum { N = 57 };

typedef struct Policy {
    double *logp, *old, *ref, *advantage, *weight; /* old, ref: NULL where there is none */
    const double *held;                            /* what stands for old where there is none */
    AttrPolicy attr;
} Policy;

static double token_loss(const Policy *k, int i) {
    double old = k->old ? k->old[i] : k->held[i], ratio = exp(k->logp[i] - old), a = k->advantage[i];
    double low = 1 - (double)k->attr.clip_low, high = 1 + (double)k->attr.clip_high;
    double loss = -fmin(ratio * a, fmin(fmax(ratio, low), high) * a);
    if (!k->ref) return loss;
    double apart = k->ref[i] - k->logp[i];
    return loss + (double)k->attr.kl * (exp(apart) - apart - 1);
}

static double policy_loss(void *context) {
    const Policy *k = context;
    double sum = 0;
    for (int i = 0; i < N; i++) sum += k->weight[i] * token_loss(k, i);
    return sum / 3;
}

static void policy_case(bool has_old, bool has_ref, double beta) {
    Bench b;
    bench_open(&b, "policy, old %d, ref %d, beta %g", has_old, has_ref, beta);
    Tid v[6]; /* logp, sampled, old, ref, advantage, weight */
    for (int i = 0; i < 6; i++) {
        v[i] = bench_vector(&b, FMT_F32, N);
        bench_normal(&b, v[i], (uint64_t)i + 1, i < 4 ? 0.4 : 1);
    }
    double weight[N];
    for (int i = 0; i < N; i++) weight[i] = i % 5 ? 0.125 * i : 0; /* some tokens are a prompt's */
    bench_set(&b, v[5], weight);
    Tid divisor = bench_number(&b, FMT_F32, 3), dial = bench_number(&b, FMT_F32, beta);
    Tid stat = bench_vector(&b, FMT_F64, 1), facts = bench_vector(&b, FMT_F64, POLICY_FACTS);
    Tid dlogp = bench_vector(&b, FMT_F32, N);
    double before = 0.25, facts_before[POLICY_FACTS] = {7, 1, 2, 3, 0.5, 100, 0.125, 0.5};
    if (beta != 0) bench_set(&b, stat, &before), bench_set(&b, facts, facts_before);
    Policy k = {.logp = bench_initial(&b, v[0]), .old = has_old ? bench_initial(&b, v[2]) : NULL,
                .ref = has_ref ? bench_initial(&b, v[3]) : NULL, .advantage = bench_initial(&b, v[4]),
                .weight = bench_initial(&b, v[5])};
    double held[N], want = 0, counted[POLICY_FACTS] = {0};
    for (int i = 0; i < N; i++) held[i] = k.logp[i];
    k.held = held;
    k.attr = (AttrPolicy){0.2f, 0.3f, 0.05f};
    const double *sampled = bench_initial(&b, v[1]);
    for (int i = 0; i < N; i++) {
        if (k.weight[i] == 0) continue;
        double ratio = has_old ? exp(k.logp[i] - k.old[i]) : 1, apart = has_ref ? k.ref[i] - k.logp[i] : 0;
        counted[POLICY_TOKENS] += 1;
        counted[POLICY_KL] += exp(apart) - apart - 1;
        counted[POLICY_LOW] += ratio < 0.8 && k.advantage[i] < 0;
        counted[POLICY_HIGH] += ratio > 1.3 && k.advantage[i] > 0;
        counted[POLICY_APART] += fabs(k.logp[i] - sampled[i]);
        counted[POLICY_MOST_APART] = fmax(counted[POLICY_MOST_APART], fabs(k.logp[i] - sampled[i]));
    }
    counted[POLICY_LEAST_LOW] = counted[POLICY_LOW] / counted[POLICY_TOKENS];
    counted[POLICY_MOST_HIGH] = counted[POLICY_HIGH] / counted[POLICY_TOKENS];
    for (int f = 0; f < POLICY_FACTS && beta != 0; f++) {
        bool most = f == POLICY_MOST_APART || f == POLICY_MOST_HIGH;
        counted[f] = most                    ? fmax(counted[f], facts_before[f])
                     : f == POLICY_LEAST_LOW ? fmin(counted[f], facts_before[f])
                                             : counted[f] + facts_before[f];
    }
    want = (beta != 0 ? before * beta : 0) + policy_loss(&k);
    Tid old = has_old ? v[2] : NONE, ref = has_ref ? v[3] : NONE;
    bench_check(&b, (Step){.op = OP_POLICY_LOSS,
                           .policy_loss = {.in = {.logp = v[0], .sampled = v[1], .old = old, .ref = ref,
                                                  .advantage = v[4], .weight = v[5], .divisor = divisor, .beta = dial},
                                           .out = {stat, facts}},
                           .attr.policy = k.attr});
    bench_expect(&b, stat, &want, 1e-6 * (1 + fabs(want)));
    bench_expect(&b, facts, counted, 1e-5);
    bench_check(&b, (Step){.op = OP_POLICY_LOSS_GRAD,
                           .policy_loss_grad = {.in = {.logp = v[0], .old = old, .ref = ref, .advantage = v[4],
                                                       .weight = v[5], .divisor = divisor},
                                                .out = {dlogp}},
                           .attr.policy = k.attr});
    bench_differences(&b, "dlogp", k.logp, bench_now(&b, dlogp), N, policy_loss, &k, 1e-5);
    bench_close(&b);
}

TEST(a_policys_loss_is_its_formula) {
    for (int i = 0; i < 8; i++) policy_case(i & 1, i & 2, i & 4 ? 1 : 0);
}
