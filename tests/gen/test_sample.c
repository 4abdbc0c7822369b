/* test_sample.c - the tokens that may come next against the definitions, written out in double precision; and that a
 * random number picks them as often as it should. */
#include <stdlib.h>

#include "backend/cpu/sample.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ir/op.h"
#include "tests/test.h"

enum { VOCAB = 60 };
static const DrawHow plain = {.temperature = 1, .top_p = 1, .repetition = 1};

static Sampler sampler(void) { return sampler_at(mem_alloc(sample_row_bytes(VOCAB)), VOCAB); }

static void random_row(float *v, int seed, float spread) {
    for (int i = 0; i < VOCAB; i++) v[i] = spread * rng_normal(rng_fold(77, (uint64_t)seed), (uint64_t)i);
}

/* Every rule as a statement about one token and all the others, no sorting: p[i] 0 where token i is left out. */
static void by_definition(double *p, const float *logits, const DrawHow *how, const int32_t *before, int n_before) {
    double z[VOCAB], sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        bool seen = false;
        for (int k = 0; k < n_before; k++) seen |= before[k] == i;
        z[i] = logits[i];
        if (seen) z[i] = z[i] < 0 ? z[i] * how->repetition : z[i] / how->repetition;
        z[i] /= how->temperature;
    }
    for (int i = 0; i < VOCAB; i++) {
        int higher = 0;
        for (int k = 0; k < VOCAB; k++) higher += z[k] > z[i];
        p[i] = how->top_k && higher >= how->top_k ? 0 : exp(z[i]);
        sum += p[i];
    }
    double kept[VOCAB], most = 0, total = 0;
    for (int i = 0; i < VOCAB; i++) {
        double above = 0;
        for (int k = 0; k < VOCAB; k++) above += p[k] > p[i] ? p[k] / sum : 0;
        kept[i] = above < how->top_p || above == 0 ? p[i] / sum : 0;
        most = fmax(most, kept[i]);
    }
    for (int i = 0; i < VOCAB; i++) total += kept[i] = kept[i] >= how->min_p * most ? kept[i] : 0;
    for (int i = 0; i < VOCAB; i++) p[i] = kept[i] / total;
}

static void expect_kept(const DrawHow *how, int seed) {
    Sampler s = sampler();
    float logits[VOCAB];
    double want[VOCAB];
    int32_t before[12];
    random_row(logits, seed, 2);
    for (int i = 0; i < 12; i++) before[i] = (i * 7 + seed) % 40; /* some twice */
    by_definition(want, logits, how, before, 12);
    bool same = sample_keep(&s, logits, how, before, 12);
    for (int i = 0; i < VOCAB; i++) {
        double have = (double)sample_weight(&s, i) / (double)s.total;
        same &= fabs(have - want[i]) < 1e-6 && (have > 0) == (want[i] > 0);
    }
    if (!EXPECT(same))
        test_note("    temperature %g, top-k %d, top-p %g, min-p %g, penalty %g, row %d", how->temperature, how->top_k,
                  how->top_p, how->min_p, how->repetition, seed);
    mem_free(s.item);
}

TEST(what_is_kept_is_what_the_rules_say) {
    static const float temperature[] = {0.4f, 1, 1.7f}, top_p[] = {0, 0.3f, 0.9f, 1}, min_p[] = {0, 0.1f, 1},
                       penalty[] = {1, 1.4f};
    static const int32_t top_k[] = {0, 1, 7, VOCAB + 5};
    int n = 0;
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 4; k++)
            for (int p = 0; p < 4; p++)
                for (int m = 0; m < 3; m++)
                    for (int r = 0; r < 2; r++)
                        expect_kept(&(DrawHow){.temperature = temperature[t],
                                               .top_k = top_k[k],
                                               .top_p = top_p[p],
                                               .min_p = min_p[m],
                                               .repetition = penalty[r]},
                                    n++);
}

TEST(tokens_come_as_often_as_they_are_likely) {
    enum { DRAWS = 40000 };
    Sampler s = sampler();
    float logits[VOCAB];
    double p[VOCAB];
    int count[VOCAB] = {0};
    DrawHow how = plain;
    how.top_k = 12;
    how.key = 99;
    random_row(logits, 3, 1.5f);
    by_definition(p, logits, &how, NULL, 0);
    for (int i = 0; i < DRAWS; i++) count[sample_token(&s, logits, &how, NULL, 0, i)]++;
    for (int i = 0; i < VOCAB; i++) EXPECT_NEAR(count[i] / (double)DRAWS, p[i], 5 * sqrt(p[i] / DRAWS) + 1e-9);
    mem_free(s.item);
}

TEST(a_draw_depends_on_its_key_and_position_alone) {
    Sampler s = sampler();
    float logits[VOCAB];
    int32_t first[50];
    int other_key = 0, other_place = 0;
    random_row(logits, 4, 1);
    DrawHow seven = plain, eight = plain;
    seven.key = 7, eight.key = 8;
    for (int i = 0; i < 50; i++) first[i] = sample_token(&s, logits, &seven, NULL, 0, i);
    for (int i = 49; i >= 0; i--) {
        EXPECT(sample_token(&s, logits, &seven, NULL, 0, i) == first[i]);
        other_key += sample_token(&s, logits, &eight, NULL, 0, i) != first[i];
        other_place += i && first[i] != first[i - 1];
    }
    EXPECT(other_key > 25 && other_place > 25);
    mem_free(s.item);
}

TEST(the_likeliest_and_rows_that_went_wrong) {
    Sampler s = sampler();
    float logits[VOCAB];
    DrawHow greedy = plain;
    greedy.temperature = 0;
    random_row(logits, 5, 1);
    logits[17] = logits[41] = 30;
    EXPECT(sample_token(&s, logits, &greedy, NULL, 0, 0) == 17); /* the first of equals */
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += exp(logits[i] - 30.0);
    EXPECT_NEAR(sample_logp(logits, VOCAB, 3, 1), logits[3] - 30.0 - log(sum), 1e-5);
    logits[2] = NAN;
    EXPECT(sample_token(&s, logits, &greedy, NULL, 0, 0) == -1 && sample_token(&s, logits, &plain, NULL, 0, 0) == -1);
    for (int i = 0; i < VOCAB; i++) logits[i] = i == 9 ? 1 : -INFINITY;
    for (int i = 0; i < 20; i++) EXPECT(sample_token(&s, logits, &plain, NULL, 0, i) == 9);
    logits[9] = -INFINITY;
    EXPECT(sample_token(&s, logits, &plain, NULL, 0, 0) == -1);
    mem_free(s.item);
}

/* What no rounding of a draw may do: tokens equally likely stay together, and a weight is its exponential. */
TEST(ties_stay_together_and_weights_are_exponentials) {
    Sampler s = sampler();
    float logits[VOCAB];
    DrawHow how = plain;
    for (int i = 0; i < VOCAB; i++) logits[i] = i % 3 ? -0.0f : i == 30 ? 2.0f : 0.0f;
    how.top_p = 0.5f;
    EXPECT(sample_keep(&s, logits, &how, NULL, 0) && sample_weight(&s, 0) && sample_weight(&s, 59) &&
           sample_weight(&s, 30));
    how.top_p = 0.05f;
    EXPECT(sample_keep(&s, logits, &how, NULL, 0) && !sample_weight(&s, 0) && s.total == DRAW_ONE);
    how.top_k = 2;
    how.top_p = 1;
    EXPECT(sample_keep(&s, logits, &how, NULL, 0) && sample_weight(&s, 0) && sample_weight(&s, 59));
    for (int i = 1; i < 3000; i++) {
        float x = -(float)i / 100;
        double want = exp((double)x / (double)0.8f), have = (double)draw_weight(x, 0, 0.8f) / (double)DRAW_ONE;
        if (!EXPECT(fabs(have - want) <= 4e-6 * want + 2.0 / (double)DRAW_ONE)) test_note("    e^(%g/0.8)", x);
    }
    EXPECT(draw_weight(-1e30f, 0, 1) == 1 && draw_weight(-1, 0, 1e-38f) == 1 && draw_weight(3, 3, 1e-38f) == DRAW_ONE);
    EXPECT(draw_place(0, DRAW_ONE) == 0 && draw_place(0xffffff, 7 * DRAW_ONE) == 7 * DRAW_ONE - 7 * (DRAW_ONE >> 24));
    EXPECT(draw_order(-0.0f) == draw_order(0.0f) && draw_order(-1) < draw_order(0) && draw_order(1) < draw_order(1.5f));
    mem_free(s.item);
}
