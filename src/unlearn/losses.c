/* losses.c - derivatives of the losses by the log-probability of a token. */
#include "unlearn/losses.h"

#include <math.h>

#include "base/check.h"

const char *const loss_names[LOSS_KINDS] = {"gradascent", "graddiff", "npo",    "simnpo", "dpo", "wga",
                                            "satimp",     "ceu",      "undial", "pdu",    "rmu"};

LossSpec loss_defaults(LossKind kind) {
    static const LossSpec table[LOSS_KINDS] = {[LOSS_GRADASCENT] = {.gamma = 1},
                                               [LOSS_GRADDIFF] = {.gamma = 1, .alpha = 1},
                                               [LOSS_NPO] = {.gamma = 1, .alpha = 1, .beta = 0.1},
                                               [LOSS_SIMNPO] = {.gamma = 0.125, .alpha = 1, .beta = 4.5},
                                               [LOSS_DPO] = {.gamma = 1, .alpha = 1, .beta = 0.1},
                                               [LOSS_WGA] = {.gamma = 1, .alpha = 1, .beta = 1},
                                               [LOSS_SATIMP] = {.gamma = 1, .alpha = 1, .beta = 5, .beta2 = 1},
                                               [LOSS_CEU] = {.gamma = 1},
                                               [LOSS_UNDIAL] = {.gamma = 1, .alpha = 1, .beta = 10},
                                               [LOSS_PDU] = {.gamma = 1, .alpha = 1, .beta = 1, .delta = 0.3},
                                               [LOSS_RMU] = {.gamma = 1, .alpha = 1, .beta = 2}};
    LossSpec s = table[kind];
    s.kind = kind;
    return s;
}

bool loss_has_retain(const LossSpec *s) { return s->alpha > 0 && s->kind != LOSS_GRADASCENT && s->kind != LOSS_CEU; }
bool loss_is_dense(const LossSpec *s) { return s->kind >= LOSS_UNDIAL || (s->divergence && loss_has_retain(s)); }
bool loss_has_entropy(const LossSpec *s) { return s->kind == LOSS_CEU; }
bool loss_has_model(const LossSpec *s) {
    return s->kind == LOSS_UNDIAL || s->kind == LOSS_RMU || (s->divergence && loss_has_retain(s));
}

static double nll_of(const LossRow *r) {
    double sum = 0;
    for (int64_t i = 0; i < r->n; i++) sum -= (double)r->logp[i];
    return sum;
}

static void fill(const LossRow *r, double weight) {
    for (int64_t i = 0; i < r->n; i++) r->weight[i] = (float)weight;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }

/* Rows and tokens of a kind. */
typedef struct Count {
    int64_t rows, tokens;
} Count;

static Count count(const LossRow *row, int n, LossRowKind kind) {
    Count c = {0};
    for (int i = 0; i < n; i++)
        if (row[i].kind == kind) c.rows++, c.tokens += row[i].n;
    return c;
}

/* ---- forgetting, a row or a pair at a time ---- */

/* -2/beta log sigmoid(beta x) / rows, x = scale * nll + ...: its derivative by nll is -2 scale sigmoid(-beta x) /
 * rows. */
static double push(const LossSpec *s, const LossRow *r, double x, double scale, double rows) {
    fill(r, s->gamma * -2 * scale * sigmoid(-s->beta * x) / rows);
    return s->gamma * -2 / s->beta * log_sigmoid(s->beta * x) / rows;
}

static double npo(const LossSpec *s, const LossRow *r, double rows) {
    return push(s, r, nll_of(r) - r->reference, 1, rows);
}

static double simnpo(const LossSpec *s, const LossRow *r, double rows) {
    double tokens = (double)MAX2(r->n, 1);
    return push(s, r, nll_of(r) / tokens - s->delta, 1 / tokens, rows);
}

/* The refusal is preferred to the forgotten answer. */
static double dpo(const LossSpec *s, const LossRow *refusal, const LossRow *forgotten, double pairs) {
    double x = (refusal->reference - nll_of(refusal)) - (forgotten->reference - nll_of(forgotten));
    double loss = push(s, forgotten, x, 1, pairs);
    push(s, refusal, x, -1, pairs);
    return loss;
}

static double token_weight(const LossSpec *s, double p) {
    switch (s->kind) {
        case LOSS_WGA:
            return pow(p, s->beta);
        case LOSS_SATIMP:
            return pow(p, s->beta) * pow(1 - p, s->beta2);
        default:
            return 1;
    }
}

static double weighted_ascent(const LossSpec *s, const LossRow *r, double tokens) {
    double loss = 0;
    for (int64_t i = 0; i < r->n; i++) {
        double w = s->gamma * token_weight(s, exp((double)r->logp[i])) / tokens;
        r->weight[i] = (float)-w;
        loss += w * (double)r->logp[i];
    }
    return loss;
}

/* dL/dlogits = p - q with q = p without the label, renormalised; that is p/(1-p) times d logp / dlogits. The value is
 * - sum over the others of q log p = (entropy + p log p of the label) / (1 - p); none of them is likelier than 1 - p,
 * which holds where entropy's rounding does not. */
static double ceu(const LossSpec *s, const LossRow *r, double tokens) {
    double loss = 0;
    for (int64_t i = 0; i < r->n; i++) {
        double logp = (double)r->logp[i], p = exp(logp), rest = fmax(-expm1(logp), 1e-12);
        r->weight[i] = i ? (float)(-s->gamma * p / rest / tokens) : 0;
        if (i) loss += s->gamma * fmax(((double)r->entropy[i] + p * logp) / rest, -log(rest)) / tokens;
    }
    return loss;
}

static double retain(const LossSpec *s, const LossRow *r, double tokens) {
    fill(r, s->alpha / tokens);
    return s->alpha * nll_of(r) / tokens;
}

static double forget(const LossSpec *s, const LossRow *row, int i, Count c) {
    const LossRow *r = &row[i];
    switch (s->kind) {
        case LOSS_NPO:
            return npo(s, r, (double)c.rows);
        case LOSS_SIMNPO:
            return simnpo(s, r, (double)c.rows);
        case LOSS_DPO:
            return 0; /* with its refusal */
        case LOSS_CEU:
            return ceu(s, r, (double)MAX2(c.tokens - c.rows, 1));
        default:
            return weighted_ascent(s, r, (double)c.tokens);
    }
}

double loss_weights(const LossSpec *s, const LossRow *row, int n) {
    Count forgotten = count(row, n, ROW_FORGET), retained = count(row, n, ROW_RETAIN);
    double loss = 0;
    for (int i = 0; i < n; i++) {
        if (row[i].kind == ROW_FORGET)
            loss += forget(s, row, i, forgotten);
        else if (row[i].kind == ROW_RETAIN)
            loss += retain(s, &row[i], (double)retained.tokens);
        else
            loss += dpo(s, &row[i], &row[row[i].pair], (double)forgotten.rows);
    }
    return loss;
}
