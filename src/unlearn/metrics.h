/* metrics.h - what is said about a model that was made to forget, from numbers alone.
 *
 * Of an answer the host knows every token's log-probability, whether it is the likeliest, and mean and deviation of
 * the log-probability under the model's own distribution there. */
#ifndef UNLEARN_METRICS_H
#define UNLEARN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct TokenScore {
    float logp;
    float mean, deviation; /* of log p under p: what logp would be for a draw of the model's own */
    bool likeliest;
} TokenScore;

/* ---- of one answer ---- */
double metric_nll(const TokenScore *t, int64_t n);                /* mean over its tokens */
double metric_probability(const TokenScore *t, int64_t n);        /* exp(-that) */
double metric_exact_memorization(const TokenScore *t, int64_t n); /* share of tokens that are the likeliest */
double metric_extraction_strength(const TokenScore *t,
                                  int64_t n); /* 1 - k / n: from token k on all are the likeliest */
double metric_min_k(const TokenScore *t, int64_t n,
                    double share); /* - mean logp of the least likely share; higher: not a member */
double metric_min_k_plus(const TokenScore *t, int64_t n, double share); /* the same of (logp - mean) / deviation */
/* Probability of wrong answers (their mean nll) over that of a right one. */
double metric_truth_ratio(double right_nll, const double *wrong_nll, int n);

/* ---- of many ---- */
double metric_mean(const double *x, int64_t n);
double metric_harmonic_mean(const double *x, int64_t n);       /* 0 where one is */
double metric_truth_forgotten(const double *ratio, int64_t n); /* mean min(r, 1/r) */
double metric_truth_kept(const double *ratio, int64_t n);      /* mean max(0, 1 - r) */
/* p-value of the two-sided Kolmogorov-Smirnov test that both are draws of one distribution: exact, by counting
 * paths. */
double metric_ks(double *statistic, const double *a, int64_t n, const double *b, int64_t m);
/* Probability that a non-member's score is the higher one, ties half: scores of members and non-members. */
double metric_auc(const double *member, int64_t n, const double *other, int64_t m);
double metric_privleak(double auc, double reference_auc); /* percent */

/* ---- of texts ---- */
typedef struct RougeL {
    double precision, recall, f;
} RougeL;
RougeL metric_rouge_l(const char *reference, const char *answer); /* words stemmed */

#endif
