/* sample.c - which tokens are kept, and which one a random number picks. */
#include "gen/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

void sampler_init(Sampler *s, Arena *a, int64_t vocab) {
    *s = (Sampler){.vocab = vocab,
                   .score = ARENA_NEW(a, float, vocab),
                   .order = ARENA_NEW(a, float, vocab),
                   .kept = ARENA_NEW(a, Candidate, vocab),
                   .seen = ARENA_NEW(a, uint8_t, vocab)};
}

int64_t sampler_bytes(int64_t vocab) { return vocab * (int64_t)(2 * sizeof(float) + sizeof(Candidate) + 1); }

/* ---- scores ---- */

static void penalise(Sampler *s, float by, const int32_t *before, int64_t n) { /* each token once, however often it came */
    for (int64_t i = 0; i < n; i++) {
        int32_t id = before[i];
        if (s->seen[id]) continue;
        s->seen[id] = 1;
        s->score[id] = s->score[id] < 0 ? s->score[id] * by : s->score[id] / by;
    }
    for (int64_t i = 0; i < n; i++) s->seen[before[i]] = 0;
}

static int32_t likeliest(const float *score, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (score[i] > score[at]) at = i;
    return (int32_t)at;
}

/* -infinity is a token that cannot come; NaN and +infinity are a model that went wrong. */
static bool load_scores(Sampler *s, const float *logits, const Sampling *how, const int32_t *before, int64_t n_before) {
    float top = -INFINITY;
    bool sound = true;
    for (int64_t i = 0; i < s->vocab; i++) {
        s->score[i] = logits[i];
        sound &= logits[i] < INFINITY;
        if (logits[i] > top) top = logits[i];
    }
    if (how->repetition != 1 && how->repetition > 0) penalise(s, how->repetition, before, n_before);
    return sound && top > -INFINITY;
}

/* ---- what is kept ---- */

/* The k-th largest of n; v is put in another order. */
static float kth_largest(float *v, int64_t n, int64_t k) {
    int64_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i > j) break;
            float t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else break;
    }
    return v[k - 1];
}

static int64_t keep_top_k(Sampler *s, float temperature, int64_t k) {
    float least = -INFINITY;
    if (k && k < s->vocab) {
        memcpy(s->order, s->score, (size_t)s->vocab * sizeof(float));
        least = kth_largest(s->order, s->vocab, k);
    }
    int64_t n = 0;
    for (int64_t i = 0; i < s->vocab; i++)
        if (s->score[i] >= least && s->score[i] > -INFINITY)
            s->kept[n++] = (Candidate){(int32_t)i, s->score[i] / temperature};
    return n;
}

static void normalise(Candidate *c, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].p;
    for (int64_t i = 0; i < n; i++) c[i].p = (float)(c[i].p / sum);
}

static void softmax(Candidate *c, int64_t n) {
    float top = c[0].p;
    for (int64_t i = 1; i < n; i++)
        if (c[i].p > top) top = c[i].p;
    for (int64_t i = 0; i < n; i++) c[i].p = expf(c[i].p - top);
    normalise(c, n);
}

static int by_p(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int64_t keep_above(Candidate *c, int64_t n, float least) {
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].p >= least) c[m++] = c[i];
    return m;
}

/* A token stays when those likelier than it do not reach top_p yet. Tokens below (1 - top_p) / n have less than
 * 1 - top_p all together, so none of them can: only the others are sorted. */
static int64_t keep_top_p(Candidate *c, int64_t n, float top_p) {
    int64_t some = keep_above(c, n, (1 - top_p) / (float)n), m = 0;
    qsort(c, (size_t)some, sizeof *c, by_p);
    for (double before = 0; m < some && (m == 0 || before < top_p); m++) before += c[m].p;
    qsort(c, (size_t)m, sizeof *c, by_id);
    return m;
}

static int64_t keep_min_p(Candidate *c, int64_t n, float min_p) {
    float top = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].p > top) top = c[i].p;
    return keep_above(c, n, min_p * top);
}

int64_t sample_keep(Sampler *s, const float *logits, const Sampling *how, const int32_t *before, int64_t n_before) {
    if (!load_scores(s, logits, how, before, n_before)) return 0;
    if (how->temperature <= 0) {
        s->kept[0] = (Candidate){likeliest(s->score, s->vocab), 1};
        return 1;
    }
    int64_t n = keep_top_k(s, how->temperature, how->top_k);
    softmax(s->kept, n);
    if (how->top_p < 1) n = keep_top_p(s->kept, n, how->top_p);
    if (how->min_p > 0) n = keep_min_p(s->kept, n, how->min_p);
    normalise(s->kept, n);
    return n;
}

int32_t sample_token(Sampler *s, const float *logits, const Sampling *how, const int32_t *before, int64_t n_before,
                     uint64_t key, int64_t position) {
    int64_t n = sample_keep(s, logits, how, before, n_before);
    if (!n) return -1;
    double left = rng_uniform(key, (uint64_t)position);
    int64_t i = 0;
    for (; i < n - 1 && left >= s->kept[i].p; i++) left -= s->kept[i].p;
    return s->kept[i].id;
}

float sample_logp(const float *logits, int64_t vocab, int32_t id) {
    float top = logits[likeliest(logits, vocab)];
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += expf(logits[i] - top);
    if (sum <= 0) return -INFINITY; /* numbers that are none */
    return (float)((double)(logits[id] - top) - log(sum));
}
