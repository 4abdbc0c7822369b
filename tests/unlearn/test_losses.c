/* test_losses.c - every loss and its gradient against torch's autograd (tools/make_unlearn_golden.py), to 1e-5. */
#include <jansson.h>

#include "base/check.h"
#include "tests/test.h"
#include "unlearn/losses.h"

enum { ROWS = 16, TOKENS = 16 };

static double argument(const json_t *args, const char *key, double otherwise) {
    const json_t *v = json_object_get(args, key);
    return v ? json_number_value(v) : otherwise;
}

static int read_rows(const json_t *rows, LossRow *row, float logp[ROWS][TOKENS], float weight[ROWS][TOKENS]) {
    static const char *const kinds[] = {"forget", "retain", "refusal"};
    int n = (int)json_array_size(rows);
    for (int i = 0; i < n; i++) {
        const json_t *r = json_array_get(rows, (size_t)i), *list = json_object_get(r, "logp");
        row[i] = (LossRow){.pair = (int)json_integer_value(json_object_get(r, "pair")),
                           .logp = logp[i],
                           .weight = weight[i],
                           .n = (int64_t)json_array_size(list),
                           .reference = json_number_value(json_object_get(r, "reference"))};
        for (int k = 0; k < 3; k++)
            if (!strcmp(kinds[k], json_string_value(json_object_get(r, "kind")))) row[i].kind = (LossRowKind)k;
        for (int64_t k = 0; k < row[i].n; k++) logp[i][k] = (float)json_number_value(json_array_get(list, (size_t)k));
    }
    return n;
}

static void check_case(const json_t *c) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *args = json_object_get(c, "args"), *rows = json_object_get(c, "rows"),
                 *loss = json_object_get(c, "loss");
    int kind = 0;
    while (kind < LOSS_KINDS && strcmp(loss_names[kind], name)) kind++;
    if (!EXPECT(kind < LOSS_KINDS)) return;
    LossSpec s = loss_defaults((LossKind)kind);
    s.gamma = argument(args, "gamma", 1), s.alpha = argument(args, "alpha", 1);
    s.beta = argument(args, "beta", s.beta), s.beta2 = argument(args, "beta2", s.beta2),
    s.delta = argument(args, "delta", s.delta);
    LossRow row[ROWS];
    float logp[ROWS][TOKENS], weight[ROWS][TOKENS], entropy[TOKENS] = {0};
    int n = read_rows(rows, row, logp, weight);
    for (int i = 0; i < n; i++) row[i].entropy = entropy; /* of ceu, whose value is held against its own words below */
    double value = loss_weights(&s, row, n);
    if (loss) EXPECT_NEAR(value, json_number_value(loss), 1e-5 * (1 + fabs(value)));
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < row[i].n; k++) {
            const json_t *want =
                json_array_get(json_object_get(json_array_get(rows, (size_t)i), "weight"), (size_t)k);
            double off = fabs((double)weight[i][k] - json_number_value(want));
            if (!EXPECT(off <= 1e-5 * (1 + fabs(json_number_value(want)))))
                test_note("    %s: row %d, token %lld", name, i, (long long)k);
        }
}

TEST(losses_and_their_gradients_are_those_of_autograd) {
    json_t *all = json_load_file("tests/unlearn/losses.json", 0, NULL);
    if (!EXPECT(json_array_size(all) == LOSS_UNDIAL)) return; /* the others: tests/ops/test_head_terms.c */
    for (size_t i = 0; i < json_array_size(all); i++) check_case(json_array_get(all, i));
    json_decref(all);
}

/* It had no value: null in the last line of `snug unlearn`. */
TEST(ceu_is_the_cross_entropy_to_its_own_distribution_without_the_label) {
    enum { N = 4, V = 5 };
    static const double z[V] = {0.3, -1.2, 2.1, 0, 0.7};
    static const int label[N] = {0, 1, 2, 4};
    double sum = 0, want = 0, most = 0;
    float logp[N], entropy[N], weight[N];
    for (int v = 0; v < V; v++) sum += exp(z[v]);
    for (int i = 0; i < N; i++) {
        double h = 0, own = exp(z[label[i]]) / sum, cross = 0;
        for (int v = 0; v < V; v++) {
            double p = exp(z[v]) / sum;
            h -= p * log(p);
            if (v != label[i]) cross -= p / (1 - own) * log(p);
        }
        logp[i] = (float)log(own), entropy[i] = (float)h;
        if (i) want += cross / (N - 1); /* the first token does not count */
    }
    LossRow row = {.kind = ROW_FORGET, .logp = logp, .entropy = entropy, .weight = weight, .n = N};
    LossSpec s = loss_defaults(LOSS_CEU);
    EXPECT_NEAR(loss_weights(&s, &row, 1), want, 1e-6);
    for (int i = 1; i < N; i++) logp[i] = -1e-9F, entropy[i] = 0; /* known by heart */
    most = loss_weights(&s, &row, 1);
    EXPECT(most > 20 && isfinite(most));
}

TEST(losses_have_the_defaults_of_their_authors) {
    EXPECT(loss_defaults(LOSS_NPO).beta == 0.1 && loss_defaults(LOSS_SIMNPO).beta == 4.5 &&
           loss_defaults(LOSS_SIMNPO).gamma == 0.125);
    EXPECT(loss_defaults(LOSS_SATIMP).beta == 5 && loss_defaults(LOSS_SATIMP).beta2 == 1);
    EXPECT(!loss_has_retain(&(LossSpec){.kind = LOSS_GRADASCENT, .alpha = 1}));
}
