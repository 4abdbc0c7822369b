/* policy.c - a policy's loss over tokens and its gradient, in fp64 and in token order (the contract:
 * ir/op_policy.c). */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "ir/policy.h"

enum { CHUNK = 1024 };

typedef struct PolicyRows { /* up to CHUNK tokens; NULL where there is no such operand */
    const float *logp, *sampled, *old, *ref, *advantage, *weight;
} PolicyRows;

typedef struct PolicyToken {
    double loss, dlogp, kl;
    bool low, high; /* the ratio is clipped there, and that is what counts */
} PolicyToken;

static PolicyToken token_of(const PolicyRows *r, int64_t i, AttrPolicy attr) {
    double logp = (double)r->logp[i], advantage = (double)r->advantage[i];
    double ratio = r->old ? exp(logp - (double)r->old[i]) : 1;
    double low = 1 - (double)attr.clip_low, high = 1 + (double)attr.clip_high;
    double clipped = ratio < low ? low : ratio > high ? high : ratio;
    PolicyToken t = {.low = ratio < low && advantage < 0, .high = ratio > high && advantage > 0};
    bool whole = ratio * advantage <= clipped * advantage;
    t.loss = -(whole ? ratio : clipped) * advantage;
    t.dlogp = whole ? -ratio * advantage : 0;
    if (!r->ref) return t;
    double apart = (double)r->ref[i] - logp;
    t.kl = exp(apart) - apart - 1;
    t.loss += (double)attr.kl * t.kl;
    t.dlogp += (double)attr.kl * (1 - exp(apart));
    return t;
}

static const float *read_if_there(float *room, Operand x, int64_t first, int64_t n) {
    return x.data ? cpu_read(room, x, first, n) : NULL;
}

static double divisor_of(Operand x) {
    float number;
    cpu_load(&number, x.data, x.t->format, 0, 1);
    return (double)number;
}

static void add_token(double *facts, const PolicyRows *r, int64_t i, PolicyToken t) {
    facts[POLICY_TOKENS] += 1;
    facts[POLICY_KL] += t.kl;
    facts[POLICY_LOW] += t.low;
    facts[POLICY_HIGH] += t.high;
    if (!r->sampled) return;
    double apart = fabs((double)r->logp[i] - (double)r->sampled[i]);
    facts[POLICY_APART] += apart;
    if (apart > facts[POLICY_MOST_APART]) facts[POLICY_MOST_APART] = apart;
}

void cpu_policy_loss(Backend *b, Queue q, const Args *a) {
    float room[6][CHUNK];
    int64_t count = cpu_count(a->policy_loss.in.logp.t);
    double sum = 0, facts[POLICY_FACTS] = {0}, beta = cpu_beta(a->policy_loss.in.beta);
    for (int64_t c = 0; c < count; c += CHUNK) {
        int64_t n = MIN2(CHUNK, count - c);
        PolicyRows r = {cpu_read(room[0], a->policy_loss.in.logp, c, n),
                        read_if_there(room[1], a->policy_loss.in.sampled, c, n),
                        read_if_there(room[2], a->policy_loss.in.old, c, n),
                        read_if_there(room[3], a->policy_loss.in.ref, c, n),
                        cpu_read(room[4], a->policy_loss.in.advantage, c, n),
                        cpu_read(room[5], a->policy_loss.in.weight, c, n)};
        for (int64_t i = 0; i < n; i++) {
            if (r.weight[i] == 0) continue;
            PolicyToken t = token_of(&r, i, a->step->attr.policy);
            sum += (double)r.weight[i] * t.loss;
            add_token(facts, &r, i, t);
        }
    }
    double *stat = a->policy_loss.out.stat.data;
    double term = sum / divisor_of(a->policy_loss.in.divisor);
    *stat = beta == 0 ? term : beta * *stat + term;
    policy_keep(a->policy_loss.out.facts.data, facts, beta);
}

void cpu_policy_loss_grad(Backend *b, Queue q, const Args *a) {
    float room[5][CHUNK], dlogp[CHUNK];
    int64_t count = cpu_count(a->policy_loss_grad.in.logp.t);
    double divisor = divisor_of(a->policy_loss_grad.in.divisor);
    for (int64_t c = 0; c < count; c += CHUNK) {
        int64_t n = MIN2(CHUNK, count - c);
        PolicyRows r = {.logp = cpu_read(room[0], a->policy_loss_grad.in.logp, c, n),
                        .old = read_if_there(room[1], a->policy_loss_grad.in.old, c, n),
                        .ref = read_if_there(room[2], a->policy_loss_grad.in.ref, c, n),
                        .advantage = cpu_read(room[3], a->policy_loss_grad.in.advantage, c, n),
                        .weight = cpu_read(room[4], a->policy_loss_grad.in.weight, c, n)};
        for (int64_t i = 0; i < n; i++)
            dlogp[i] = r.weight[i] == 0
                           ? 0.0f
                           : (float)((double)r.weight[i] / divisor * token_of(&r, i, a->step->attr.policy).dlogp);
        cpu_write(a->policy_loss_grad.out.dlogp, c, dlogp, n);
    }
}
