/* test_advantage.c - rewards, advantages, weights and batches against what TRL's own trainer computes. */
#include <jansson.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "grpo/advantage.h"
#include "grpo/batches.h"
#include "tests/grpo/golden.h"
#include "tests/test.h"

enum { MOST = 256 };

/* The rewards of a case: [n][functions]. */
typedef struct Given {
    double x[MOST * 3], weight[3], reward[MOST], advantage[MOST];
    int64_t n, group, missing, first;
    int functions;
    RewardScale scale;
    AdvantageFacts facts;
} Given;

static void read_given(Given *g, const json_t *row) {
    Err e = {0};
    const json_t *given = json_object_get(row, "given");
    g->functions = (int)golden_numbers(g->weight, json_object_get(row, "weights"));
    g->n = (int64_t)json_array_size(given);
    g->group = golden_whole(row, "group");
    EXPECT_OK(reward_scale_find(&g->scale, golden_text(row, "scale"), &e));
    for (int64_t i = 0; i < g->n; i++) golden_numbers(g->x + i * g->functions, json_array_get(given, (size_t)i));
    g->missing = advantage_rewards(g->reward, g->x, g->weight, g->n, g->functions, &g->first);
    g->facts = advantage_make(g->advantage, g->reward, g->n, g->group, g->scale);
}

/* ---- advantages ---- */

static double worst, worst32; /* of all cases of a test */

static void compare(double ours, double trl, double trl32) {
    worst = fmax(worst, fabs(ours - trl) / fmax(1, fabs(trl)));
    worst32 = fmax(worst32, fabs(ours - trl32) / fmax(1, fabs(trl32)));
}

static void advantage_case(const json_t *row) {
    Given g;
    double trl[MOST], trl32[MOST];
    read_given(&g, row);
    EXPECT(golden_numbers(trl, json_object_get(row, "advantages")) == g.n);
    golden_numbers(trl32, json_object_get(row, "advantages32"));
    for (int64_t i = 0; i < g.n; i++) compare(g.advantage[i], trl[i], trl32[i]);
    EXPECT_NEAR(g.facts.reward_mean, golden_number(json_object_get(row, "reward")), 1e-12);
    EXPECT_NEAR(g.facts.reward_std, golden_number(json_object_get(row, "reward_std")), 1e-12);
    EXPECT_NEAR(g.facts.zero_std_share, golden_number(json_object_get(row, "frac_reward_zero_std")), 1e-6);
    int64_t missing = 0, first = -1;
    for (int64_t i = g.n; i-- > 0;) {
        bool all = true;
        for (int k = 0; k < g.functions; k++) all = all && isnan(g.x[i * g.functions + k]);
        missing += all;
        if (all) first = i;
    }
    EXPECT(missing == g.missing && first == g.first);
    for (int k = 0; k < g.functions; k++) {
        double want[2], mean, std;
        golden_numbers(want, json_array_get(json_object_get(row, "functions"), (size_t)k));
        advantage_function(&mean, &std, g.x, g.n, g.functions, k);
        EXPECT(isnan(want[0]) == isnan(mean) && isnan(want[1]) == isnan(std));
        if (!isnan(mean)) EXPECT_NEAR(mean, want[0], 1e-12);
        if (!isnan(std)) EXPECT_NEAR(std, want[1], 1e-12);
    }
}

TEST(advantages_are_those_of_trl) {
    worst = worst32 = 0;
    EXPECT(golden_each("advantage", advantage_case) == 160);
    EXPECT_NEAR(worst, 0, 1e-14);
    EXPECT_NEAR(worst32, 0, 2e-6);
}

TEST(advantages_by_hand) {
    double given[] = {1, NAN, 0, 0.5, NAN, NAN, INFINITY, 1}, weight[] = {2, 1}, reward[4], a[4];
    int64_t first;
    EXPECT(advantage_rewards(reward, given, weight, 4, 2, &first) == 1 && first == 2);
    EXPECT(reward[0] == 2 && reward[1] == 0.5 && reward[2] == 0 && reward[3] == 1);
    AdvantageFacts f = advantage_make(a, reward, 4, 2, SCALE_GROUP);
    EXPECT_NEAR(a[0], 0.75 / (1.5 / sqrt(2) + 1e-4), 1e-15);
    EXPECT(a[0] == -a[1] && f.zero_std_share == 0);
    double same[] = {0.1, 0.1, 0.1, 0.1};
    f = advantage_make(a, same, 4, 4, SCALE_GROUP);
    EXPECT(f.zero_std_share == 1 && fabs(a[0]) < 1e-9);
}

/* ---- updates ---- */

typedef struct Update {
    Given given;
    Batches b;
    int64_t tokens[MOST], order[MOST], all_tokens;
    bool truncated[MOST];
    LossBatch loss;
    const json_t *row;
} Update;

/* The loss of completion i's tokens at an iteration, from log-probabilities, as advantage.h writes it. */
static double loss_of(const Update *u, int64_t i, int64_t iteration) {
    double logp[8], old[8], ref[8], sum = 0, beta = golden_number(json_object_get(u->row, "beta"));
    double low = 1 - golden_number(json_object_get(u->row, "epsilon_low")),
           high = 1 + golden_number(json_object_get(u->row, "epsilon_high"));
    const json_t *now = json_array_get(json_object_get(u->row, "logp"), (size_t)iteration);
    int64_t n = golden_numbers(logp, json_array_get(now, (size_t)i));
    golden_numbers(old, json_array_get(json_object_get(u->row, "old"), (size_t)i));
    golden_numbers(ref, json_array_get(json_object_get(u->row, "ref"), (size_t)i));
    for (int64_t t = 0; t < n; t++) {
        double q = exp(logp[t] - (u->b.needs_old_logps ? old[t] : logp[t])), a = u->given.advantage[i];
        double kl = exp(ref[t] - logp[t]) - (ref[t] - logp[t]) - 1;
        sum += -fmin(q * a, fmin(fmax(q, low), high) * a) + beta * kl;
    }
    return sum;
}

static double micro_loss(Update *u, int64_t update, int64_t micro, const json_t *members) {
    BatchPlace p = batches_place(&u->b, update, micro);
    double weight[MOST], sum = 0;
    int64_t want[MOST];
    u->loss.member = u->order + p.first;
    EXPECT(golden_wholes(want, members) == u->loss.n && !memcmp(want, u->loss.member, (size_t)u->loss.n * 8));
    double divisor = advantage_weights(weight, &u->loss);
    for (int64_t i = 0; i < u->loss.n; i++) sum += weight[i] * loss_of(u, u->loss.member[i], p.iteration);
    return sum / divisor;
}

static void read_update(Update *u, const json_t *row) {
    Err e = {0};
    LossKind kind;
    *u = (Update){.row = row};
    read_given(&u->given, row);
    BatchSpec spec = {golden_whole(row, "batch"), golden_whole(row, "accum"), golden_whole(row, "group"),
                      golden_whole(row, "steps"), golden_whole(row, "iterations")};
    EXPECT_OK(batches_make(&u->b, &spec, &e) && loss_kind_find(&kind, golden_text(row, "loss_type"), &e));
    golden_wholes(u->tokens, json_object_get(row, "tokens"));
    golden_wholes(u->order, json_object_get(row, "order"));
    for (int64_t i = 0; i < u->given.n; i++) {
        u->all_tokens += u->tokens[i];
        u->truncated[i] = json_is_true(json_array_get(json_object_get(row, "truncated"), (size_t)i));
    }
    u->loss = (LossBatch){.kind = kind,
                          .mask_truncated = json_is_true(json_object_get(row, "mask_truncated")),
                          .tokens = u->tokens,
                          .truncated = u->truncated,
                          .generation_tokens = u->all_tokens,
                          .n = spec.batch,
                          .accum = spec.accum,
                          .max_completion = golden_whole(row, "max_completion")};
}

static void update_case(const json_t *row) {
    Update u;
    double trl[MOST], trl32[MOST];
    const json_t *members = json_object_get(row, "members");
    read_update(&u, row);
    EXPECT(u.b.completions == u.given.n);
    EXPECT(u.b.needs_old_logps == json_is_true(json_object_get(row, "old_used")));
    EXPECT(golden_numbers(trl, json_object_get(row, "losses")) == u.b.updates);
    golden_numbers(trl32, json_object_get(row, "losses32"));
    for (int64_t k = 0; k < u.b.updates; k++) {
        double loss = 0;
        for (int64_t m = 0; m < u.b.spec.accum; m++)
            loss += micro_loss(&u, k, m, json_array_get(members, (size_t)(k * u.b.spec.accum + m)));
        compare(loss, trl[k], trl32[k]);
    }
}

TEST(losses_of_updates_are_those_of_trl) {
    worst = worst32 = 0;
    EXPECT(golden_each("update", update_case) == 96);
    EXPECT_NEAR(worst, 0, 1e-14);
    EXPECT_NEAR(worst32, 0, 2e-6);
}

/* ---- prompts ---- */

static void prompt_case(const json_t *row) {
    Err e = {0};
    Batches b;
    BatchSpec spec = {golden_whole(row, "batch"), golden_whole(row, "accum"), golden_whole(row, "group"),
                      golden_whole(row, "steps"), golden_whole(row, "iterations")};
    int64_t items = golden_whole(row, "items"), item[MOST], scratch[MOST], want[MOST];
    const json_t *generations = json_object_get(row, "generations");
    EXPECT_OK(batches_make(&b, &spec, &e));
    int64_t n = (int64_t)json_array_size(generations);
    EXPECT(n == batches_generations_per_epoch(&b, items) && batches_check_prompts(&b, items, &e) == (n > 0));
    for (int64_t g = 0; g < n; g++) {
        batches_prompts(item, scratch, &b, items, g, false, 42);
        EXPECT(golden_wholes(want, json_array_get(generations, (size_t)g)) == b.completions);
        for (int64_t i = 0; i < b.completions; i++) EXPECT(item[i / b.spec.group] == want[i]);
    }
}

TEST(prompts_are_taken_as_trl_takes_them) {
    EXPECT(golden_each("prompts", prompt_case) == 40);
}

TEST(an_epoch_takes_every_prompt_once_in_an_order_of_its_own) {
    enum { ITEMS = 103 };
    Err e = {0};
    Batches b;
    int64_t item[8], scratch[ITEMS], seen[2][ITEMS] = {{0}}, at[2] = {0}, first[2][ITEMS];
    EXPECT_OK(batches_make(&b, &(BatchSpec){.batch = 16, .accum = 2, .group = 8}, &e));
    int64_t each = batches_generations_per_epoch(&b, ITEMS);
    EXPECT(b.prompts == 4 && each == 25 && batches_rollouts(&b, ITEMS, 3) == 75);
    for (int64_t g = 0; g < 2 * each; g++) {
        batches_prompts(item, scratch, &b, ITEMS, g, true, 42);
        for (int64_t i = 0; i < b.prompts; i++) {
            int64_t epoch = g / each;
            EXPECT(item[i] >= 0 && item[i] < ITEMS && !seen[epoch][item[i]]++);
            first[epoch][at[epoch]++] = item[i];
        }
    }
    EXPECT(at[0] == 100 && memcmp(first[0], first[1], sizeof first[0]) != 0);
}

TEST(every_completion_trains_once_an_iteration) {
    Err e = {0};
    Batches b;
    EXPECT_OK(batches_make(&b, &(BatchSpec){.batch = 4, .accum = 3, .group = 6, .steps = 6, .iterations = 2}, &e));
    int64_t order[24], other[24], trained[24] = {0};
    EXPECT(b.completions == 24 && b.updates == 4 && b.generations == 1 && b.needs_old_logps);
    batches_order(order, &b, 5, 42);
    batches_order(other, &b, 6, 42);
    EXPECT(memcmp(order, other, sizeof order) != 0);
    for (int64_t u = 0; u < b.updates; u++)
        for (int64_t m = 0; m < 3; m++) {
            BatchPlace p = batches_place(&b, u, m);
            EXPECT(p.iteration == u / 2 && p.generation == 0);
            for (int64_t i = 0; i < 4; i++) trained[order[p.first + i]]++;
        }
    for (int i = 0; i < 24; i++) EXPECT(trained[i] == 2);
}

/* ---- what cannot be cut ---- */

static const struct {
    BatchSpec spec;
    const char *says; /* a part of the refusal */
} refused[] = {
    {{.batch = 6, .accum = 1, .group = 8}, "--batch-size 8, --accum 4, --num-generations 6"},
    {{.batch = 12, .accum = 1, .group = 8}, "--batch-size 8 or 16, --accum 2, --num-generations 6 or 12"},
    {{.batch = 10, .accum = 2, .group = 8}, "--batch-size 8 or 12, --accum 4, --num-generations 5 or 10"},
    {{.batch = 3, .accum = 4, .group = 8, .steps = 4},
     "--batch-size 2 or 4, --accum 8, --num-generations 6 or 12"},
    {{.batch = 5, .accum = 1, .group = 4, .steps = 2}, "--steps-per-generation 4, --num-generations 2 or 5"},
    {{.batch = 8, .accum = 1, .group = 1}, "2 or more"},
    {{.batch = 0, .accum = 1, .group = 2}, "--batch-size 0"},
    {{.batch = 8, .accum = 4, .group = 8, .steps = 6}, "--steps-per-generation 4 or 8"},
    {{.batch = 8, .accum = 4, .group = 8, .steps = 2, .iterations = 2}, "--steps-per-generation 4"},
};

TEST(a_batch_that_cannot_be_cut_names_the_nearest_that_can) {
    for (int i = 0; i < COUNT_OF(refused); i++) {
        Err e = {0};
        Batches b;
        EXPECT(!batches_make(&b, &refused[i].spec, &e) && e.code == ERR_USAGE);
        if (!EXPECT(strstr(e.text, refused[i].says))) test_note("    %s", e.text);
    }
    Err e = {0};
    Batches b;
    EXPECT_OK(batches_make(&b, &(BatchSpec){.batch = 64, .accum = 1, .group = 8}, &e));
    EXPECT(!batches_check_prompts(&b, 5, &e) && strstr(e.text, "--batch-size 40"));
}

TEST(what_is_refused_is_refused_for_drawn_sizes_too) { /* and every value that is named works */
    for (uint64_t i = 0; i < 3000; i++) {
        BatchSpec s = {
            .batch = 1 + rng_u32(1, i) % 40, .accum = 1 + rng_u32(2, i) % 6, .group = 2 + rng_u32(3, i) % 15};
        Err e = {0};
        Batches b;
        bool ok = batches_make(&b, &s, &e);
        EXPECT(ok == (s.batch * s.accum % s.group == 0));
        const char *named = ok ? NULL : strstr(e.text, "Nearest that work: --batch-size ");
        if (ok || !EXPECT(named)) continue;
        s.batch = strtoll(named + strlen("Nearest that work: --batch-size "), NULL, 10);
        EXPECT_OK(batches_make(&b, &s, &e));
    }
}

TEST(every_number_of_steps_that_is_named_works_and_is_named_once) {
    static const char lead[] = "Nearest that work: --steps-per-generation ";
    for (uint64_t i = 0; i < 3000; i++) {
        BatchSpec s = {.batch = 8 * (1 + rng_u32(1, i) % 3),
                       .accum = 1 + rng_u32(2, i) % 6,
                       .group = 2 + rng_u32(3, i) % 7,
                       .steps = 1 + rng_u32(4, i) % 12,
                       .iterations = 1 + rng_u32(5, i) % 2};
        Err e = {0};
        Batches b;
        const char *named = batches_make(&b, &s, &e) ? NULL : strstr(e.text, lead);
        if (!named) continue;
        char *end;
        int64_t before = 0;
        for (named += strlen(lead); *named; named = end + (*end ? strlen(" or ") : 0)) {
            s.steps = strtoll(named, &end, 10);
            if (!EXPECT(end > named && s.steps > before && batches_make(&b, &s, &(Err){0}))) break;
            before = s.steps;
        }
    }
}
