/* metrics.c - formulas over scores. */
#include "unlearn/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- of one answer ---- */

double metric_nll(const TokenScore *t, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum -= (double)t[i].logp;
    return sum / (double)MAX2(n, 1);
}

double metric_probability(const TokenScore *t, int64_t n) { return exp(-metric_nll(t, n)); }

double metric_exact_memorization(const TokenScore *t, int64_t n) {
    int64_t hits = 0;
    for (int64_t i = 0; i < n; i++) hits += t[i].likeliest;
    return (double)hits / (double)MAX2(n, 1);
}

double metric_extraction_strength(const TokenScore *t, int64_t n) {
    int64_t k = n;
    while (k > 0 && t[k - 1].likeliest) k--;
    return 1 - (double)k / (double)MAX2(n, 1);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* - mean of the lowest share, at least one. */
static double lowest(double *x, int64_t n, double share) {
    int64_t k = MAX2((int64_t)((double)n * share), 1);
    double sum = 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    for (int64_t i = 0; i < MIN2(k, n); i++) sum -= x[i];
    return sum / (double)k;
}

static double min_k(const TokenScore *t, int64_t n, double share, bool normalised) {
    double *x = MEM_NEW(double, MAX2(n, 1));
    for (int64_t i = 0; i < n; i++)
        x[i] = normalised ? ((double)t[i].logp - (double)t[i].mean) / fmax((double)t[i].deviation, 1e-10)
                          : (double)t[i].logp;
    double out = n ? lowest(x, n, share) : 0;
    mem_free(x);
    return out;
}

double metric_min_k(const TokenScore *t, int64_t n, double share) { return min_k(t, n, share, false); }
double metric_min_k_plus(const TokenScore *t, int64_t n, double share) { return min_k(t, n, share, true); }

double metric_truth_ratio(double right_nll, const double *wrong_nll, int n) {
    return exp(-metric_mean(wrong_nll, n)) / (exp(-right_nll) + 1e-10);
}

/* ---- of many ---- */

double metric_mean(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return n ? sum / (double)n : (double)NAN;
}

double metric_harmonic_mean(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] > 0)) return isnan(x[i]) ? x[i] : 0;
        sum += 1 / x[i];
    }
    return (double)n / sum;
}

double metric_truth_forgotten(const double *ratio, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fmin(ratio[i], 1 / (ratio[i] + 1e-10));
    return sum / (double)MAX2(n, 1);
}

double metric_truth_kept(const double *ratio, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fmax(0, 1 - ratio[i]);
    return sum / (double)MAX2(n, 1);
}

static double *sorted(const double *x, int64_t n) {
    double *s = MEM_NEW(double, MAX2(n, 1));
    memcpy(s, x, sizeof *x * (size_t)n);
    qsort(s, (size_t)n, sizeof *s, ascending);
    return s;
}

/* The largest |i/n - j/m| that is reached, as the whole number |i m - j n|. */
static int64_t largest_gap(const double *a, int64_t n, const double *b, int64_t m) {
    double *x = sorted(a, n), *y = sorted(b, m);
    int64_t gap = 0;
    for (int64_t i = 0, j = 0; i < n && j < m;) {
        double at = fmin(x[i], y[j]);
        while (i < n && x[i] <= at) i++;
        while (j < m && y[j] <= at) j++;
        gap = MAX2(gap, llabs(i * m - j * n));
    }
    mem_free(x);
    mem_free(y);
    return gap;
}

/* Of all orders in which n and m draws can come, the share whose path touches |i m - j n| >= gap. f(i, j) is that
 * share of the paths to (i, j): 1 outside, else the mean of its two predecessors', weighted by their numbers of
 * paths. Nothing is subtracted, so the smallest p-values keep their digits. */
static double share_of_paths(int64_t gap, int64_t n, int64_t m) {
    double *f = MEM_NEW(double, m + 1);
    for (int64_t i = 0; i <= n; i++)
        for (int64_t j = 0; j <= m; j++) {
            double left = j ? f[j - 1] * (double)j : 0, above = i ? f[j] * (double)i : 0;
            f[j] = llabs(i * m - j * n) >= gap ? 1 : i + j ? (left + above) / (double)(i + j) : 0;
        }
    double out = f[m];
    mem_free(f);
    return out;
}

double metric_ks(double *statistic, const double *a, int64_t n, const double *b, int64_t m) {
    int64_t gap = largest_gap(a, n, b, m);
    if (statistic) *statistic = (double)gap / ((double)n * (double)m);
    return gap ? fmin(share_of_paths(gap, n, m), 1) : 1;
}

double metric_auc(const double *member, int64_t n, const double *other, int64_t m) {
    double *x = sorted(member, n), *y = sorted(other, m), wins = 0;
    for (int64_t j = 0, below = 0, upto = 0; j < m; j++) {
        while (below < n && x[below] < y[j]) below++;
        upto = MAX2(upto, below);
        while (upto < n && x[upto] <= y[j]) upto++;
        wins += (double)below + 0.5 * (double)(upto - below);
    }
    mem_free(x);
    mem_free(y);
    return wins / ((double)n * (double)m);
}

double metric_privleak(double auc, double reference_auc) {
    return ((1 - auc) - (1 - reference_auc)) / (1 - reference_auc) * 100;
}
