/* losses.h - the known losses of unlearning as functions of the log-probabilities of the labels.
 *
 * None of these reads more of a model than log p(label) of every scored token, so the gradient of each is the sum
 * over tokens of dL/dlogp * grad logp. What is given back is weight = -dL/dlogp: a supervised step with these token
 * weights and divisor 1 has exactly the gradient of the loss. So no loss needs an op of its own, and the reference
 * enters as numbers that were computed once.
 *
 * F forget rows, R retain rows, nll the negative log-probability of a row's answer (its tokens added up), ref that
 * of the reference.
 *
 *   graddiff    gamma * -mean token nll(F) + alpha * retain
 *   gradascent  the first term alone
 *   npo         gamma * mean over rows -2/beta log sigmoid(beta (nll - ref)) + alpha * retain
 *   simnpo      gamma * mean over rows -2/beta log sigmoid(beta (nll / tokens - delta)) + alpha * retain
 *   dpo         gamma * mean over pairs -2/beta log sigmoid(beta ((ref - nll) of the refusal
 *               - (ref - nll) of the forgotten)) + alpha * retain
 *   wga         gamma * -mean token p^beta nll, p^beta a constant, + alpha * retain
 *   satimp      the same with p^beta1 (1 - p)^beta2
 *   ceu         gamma * mean token cross-entropy to the model's own distribution without the true token, a
 *               constant; an answer's first token does not count. Gradient: p / (1 - p) * grad logp. No retain term
 *   retain      mean token nll(R)
 *
 * These read more: the logits z, or the hidden state a behind a layer (baseline_ring.c). So does a retain term by
 * divergence.
 *
 *   undial      gamma * mean token cross-entropy to softmax(z of the reference - beta at the true token)
 *               + alpha * retain
 *   pdu         gamma * mean token (max z - mean z)^2 + alpha * retain;
 *               alpha <- max(0, alpha + beta (retain - delta)) after every update
 *   rmu         gamma * mean over rows of the mean square of a - beta * (a random unit vector)
 *               + alpha * the same of a - a of the reference */
#ifndef UNLEARN_LOSSES_H
#define UNLEARN_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum LossKind {
    LOSS_GRADASCENT,
    LOSS_GRADDIFF,
    LOSS_NPO,
    LOSS_SIMNPO,
    LOSS_DPO,
    LOSS_WGA,
    LOSS_SATIMP,
    LOSS_CEU,
    LOSS_UNDIAL,
    LOSS_PDU,
    LOSS_RMU,
    LOSS_KINDS
} LossKind;

typedef struct LossSpec {
    LossKind kind;
    double gamma, alpha; /* of forgetting and retaining */
    double beta, beta2;  /* satimp has two */
    double delta;        /* simnpo; pdu: the retain loss that is aimed at */
    bool divergence;     /* the retain term is the mean token KL(reference || model) */
} LossSpec;

extern const char *const loss_names[LOSS_KINDS];
LossSpec loss_defaults(LossKind kind); /* as their authors and open-unlearning have them */
bool loss_has_retain(const LossSpec *s);
bool loss_is_dense(const LossSpec *s);  /* beyond log-probabilities of labels */
bool loss_has_entropy(const LossSpec *s); /* its value is a function of the entropies too */
bool loss_has_model(const LossSpec *s); /* the reference stands beside the model: a frozen copy, or no adapters */

typedef enum LossRowKind { ROW_FORGET, ROW_RETAIN, ROW_REFUSAL } LossRowKind;

typedef struct LossRow { /* one answer */
    LossRowKind kind;
    int pair;          /* of a refusal: the number of the row it stands in for */
    const float *logp;    /* [n] of its scored tokens */
    const float *entropy; /* [n] nats, of ceu alone */
    float *weight;        /* [n] gets -dL/dlogp */
    int64_t n;
    double reference; /* nll of the reference */
} LossRow;

/* Of one update. */
double loss_weights(const LossSpec *s, const LossRow *row, int n);

#endif
