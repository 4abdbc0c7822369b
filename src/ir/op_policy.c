/* op_policy.c - the loss of a policy that is trained on its own answers (GRPO): clipped ratios, the distance to a
 * reference.
 *
 *   policy_loss       in logp(N) sampled(N)? old(N)? ref(N)? advantage(N) weight(N) divisor(1) beta?
 *                     out stat(1) fp64 = beta*stat + sum over tokens of weight * L / divisor
 *                         facts(POLICY_FACTS) fp64, added up in the same way; of the least and the most: those
 *                     L = - min(q A, clip(q, 1 - clip_low, 1 + clip_high) A) + kl (e^(ref - logp) - (ref - logp) - 1)
 *                     q = e^(logp - old); without old, q is 1 in value and has the gradient of logp
 *                     A token of weight 0 is no part of anything, whatever its numbers are; a play without any other
 *                     has shares of 1 (the least) and 0 (the most).
 *   policy_loss_grad  in the same                       out dlogp(N) = weight / divisor * dL/dlogp */
#include "ir/op_int.h"

Tid op_policy_loss(Program *p, const PolicyOperands *o, AttrPolicy attr) {
    prog_emit(p, (Step){.op = OP_POLICY_LOSS,
                        .policy_loss = {.in = {.logp = o->logp, .sampled = o->sampled, .old = o->old, .ref = o->ref,
                                               .advantage = o->advantage, .weight = o->weight,
                                               .divisor = o->divisor, .beta = p->beta},
                                        .out = {o->stat, o->facts}},
                        .attr.policy = attr});
    return o->stat;
}

static void policy_loss_grad(Program *p, Step s, Grads *g) {
    Tid logp = s.policy_loss.in.logp, stat = s.policy_loss.out.stat, dlogp = prog_like(p, "d_logp", logp);
    CHECK_MSG(grad_get(g, stat) == stat, "a policy's loss is a root: its gradient is 1");
    prog_emit(p, (Step){.op = OP_POLICY_LOSS_GRAD,
                        .policy_loss_grad = {.in = {.logp = logp, .old = s.policy_loss.in.old,
                                                    .ref = s.policy_loss.in.ref,
                                                    .advantage = s.policy_loss.in.advantage,
                                                    .weight = s.policy_loss.in.weight,
                                                    .divisor = s.policy_loss.in.divisor},
                                             .out = {dlogp}},
                        .attr = s.attr});
    grad_flow(p, g, logp, dlogp);
}

static const char *policy_shape(const Program *p, const Step *s) {
    if (prog_elements(p, s->policy_loss.out.facts) != POLICY_FACTS) return "facts has another size than POLICY_FACTS";
    return NULL;
}

const OpRow op_row_policy_loss = {.shape = policy_shape, .grad = policy_loss_grad, .flags = OPF_WRITES_STATE};
const OpRow op_row_policy_loss_grad = {0};
