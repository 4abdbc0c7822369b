/* test_certificate.c - noise, bounds and composition by their formulas, and everything that a certificate is refused
 * for. */
#include <string.h>

#include "base/mem.h"
#include "tests/test.h"
#include "unlearn/certificate.h"
#include "unlearn/vec.h"

TEST(noise_has_the_standard_deviation_of_its_formula) {
    NoiseOptions o = {.kind = NOISE_ISOTROPIC, .epsilon = 0.5, .delta = 1e-5, .bound = 0.01};
    EXPECT_NEAR(noise_scale(&o, 7).sigma, 0.01 / 0.5 * sqrt(2 * log(1.25e5)),
                1e-12); /* the public bound, not what was measured */
    o.bound = 0;
    EXPECT_NEAR(noise_scale(&o, 7).sigma, 7 / 0.5 * sqrt(2 * log(1.25e5)), 1e-9);
    o.kind = NOISE_SUBSPACE, o.beta = 0.1;
    EXPECT_NEAR(noise_scale(&o, 7).sigma, 2 * 7 / 0.5 * sqrt(2 * log(2.5e5)), 1e-9);
    EXPECT_NEAR(noise_scale(&o, 7).across, 0.1 * noise_scale(&o, 7).sigma, 1e-12);
    o.epsilon = 0;
    EXPECT(noise_scale(&o, 7).sigma == 0);
}

TEST(noise_is_drawn_with_that_deviation_along_and_across_a_subspace) {
    enum { COUNT = 20000 };
    NoiseOptions o = {.kind = NOISE_ISOTROPIC,
                      .epsilon = 1,
                      .delta = 1e-5,
                      .beta = 0.1,
                      .rank = 50,
                      .projector_key = 42,
                      .key = 11};
    Noise n = {.sigma = 0.5, .across = 0.5};
    float *theta = MEM_NEW(float, COUNT);
    double norm = noise_add(NULL, &o, &n, theta, COUNT);
    EXPECT_NEAR(norm / sqrt((double)COUNT), 0.5, 0.01);
    EXPECT_NEAR(vec_norm(NULL, theta, COUNT), norm, 1e-3);
    o.kind = NOISE_SUBSPACE;
    n.across = 0.05;
    vec_zero(NULL, theta, COUNT);
    noise_add(NULL, &o, &n, theta, COUNT);
    double want = 0.05 * 0.05 * (COUNT - 50) + 0.5 * 0.5 * 50; /* of the square of its norm */
    EXPECT_NEAR(vec_dot(NULL, theta, theta, COUNT) / want, 1, 0.15);
    mem_free(theta);
}

TEST(noise_has_the_same_bits_with_any_number_of_threads) {
    enum { COUNT = 1100003 };
    NoiseOptions o = {.kind = NOISE_SUBSPACE, .epsilon = 1, .delta = 1e-5, .rank = 3, .projector_key = 42, .key = 11};
    Noise n = {.sigma = 0.5, .across = 0.05};
    float *one = vec_new(COUNT), *three = vec_new(COUNT);
    Threads *team;
    Err e;
    EXPECT(threads_open(&team, 3, &e));
    double norm = noise_add(NULL, &o, &n, one, COUNT);
    EXPECT(noise_add(team, &o, &n, three, COUNT) == norm);
    EXPECT(!memcmp(one, three, sizeof *one * COUNT));
    EXPECT_NEAR(vec_norm(NULL, one, COUNT) / norm, 1, 1e-3); /* directions are nearly orthogonal */
    mem_free(one), mem_free(three);
    threads_close(team);
}

TEST(a_window_is_as_long_as_the_contraction_asks_for) {
    EXPECT_NEAR(certificate_truncation(0.9, 20), pow(0.9, 20) / 0.1, 1e-12);
    EXPECT(isinf(certificate_truncation(1, 1000)) && isinf(certificate_truncation(1.2, 3)));
    int64_t k = certificate_window(0.9, 0.01);
    EXPECT(certificate_truncation(0.9, k) <= 0.01 && certificate_truncation(0.9, k - 1) > 0.01);
    EXPECT(certificate_window(1, 0.01) == -1 && certificate_window(0.5, 5) == 0);
}

TEST(epsilons_of_several_requests_add_up) {
    double e[] = {1, 0.5};
    EXPECT_NEAR(certificate_compose(e, 1, 1e-5), 1, 0);
    EXPECT_NEAR(certificate_compose(e, 2, 1e-5), 1.5 + sqrt(2 * log(1e5) * 1.25), 1e-9);
}

TEST(a_certificate_is_refused_with_its_reason) {
    NoiseOptions good = {.kind = NOISE_ISOTROPIC, .epsilon = 1, .delta = 1e-5, .bound = 1};
    CertificateFacts f = {.noise = &good, .exact_products = true, .gamma = 0.9, .measured = 0.5};
    EXPECT(!certificate_refusal(&f));
    f.gamma = 1;
    EXPECT(strstr(certificate_refusal(&f), "gamma is not below 1"));
    f.gamma = NAN;
    EXPECT(strstr(certificate_refusal(&f), "not measured"));
    f.gamma = 0.9, f.adaptive = true;
    EXPECT(strstr(certificate_refusal(&f), "AdamW"));
    f.adaptive = false, f.measured = 2; /* a bound below what was measured is no bound */
    EXPECT(strstr(certificate_refusal(&f), "below what was measured"));
    f.measured = 0.5, good.bound = 0;
    EXPECT(strstr(certificate_refusal(&f), "no public bound"));
    good.bound = 1, good.key_is_known = true;
    EXPECT(strstr(certificate_refusal(&f), "seed"));
    good.key_is_known = false, f.exact_products = false;
    EXPECT(strstr(certificate_refusal(&f), "approximated"));
    f.exact_products = true, f.clipped = true;
    EXPECT(strstr(certificate_refusal(&f), "clipped"));
    f.clipped = false, good.epsilon = 0;
    EXPECT(strstr(certificate_refusal(&f), "no noise"));
}
