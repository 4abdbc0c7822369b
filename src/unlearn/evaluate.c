/* evaluate.c - which scores make which metric. */
#include "unlearn/evaluate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/zlib.h"

static const double share = 0.4; /* of the least likely tokens: min-k */

typedef enum Attack {
    ATTACK_LOSS,
    ATTACK_MIN_K,
    ATTACK_MIN_K_PLUS,
    ATTACK_ZLIB,
    ATTACK_REFERENCE,
    ATTACK_GRADIENT,
    ATTACKS
} Attack;
static const char *const attack_names[ATTACKS] = {"mia_loss", "mia_min_k",     "mia_min_k_plus_plus",
                                                  "mia_zlib", "mia_reference", "mia_gradnorm"};

/* ---- one item ---- */

static double answer_nll(const Scores *s, const EvalItem *i) {
    return metric_nll(scores_row(s, i->row), scores_tokens(s, i->row));
}

static double truth_ratio(const Scores *s, const EvalItem *i) {
    double wrong[ITEM_WRONG];
    int64_t right = i->row + (i->paraphrase != NULL), first = right + 1;
    for (int k = 0; k < i->n_wrong; k++) wrong[k] = metric_nll(scores_row(s, first + k), scores_tokens(s, first + k));
    return metric_truth_ratio(metric_nll(scores_row(s, right), scores_tokens(s, right)), wrong, i->n_wrong);
}

/* Among the right answer and the wrong ones. */
static double normalised_probability(const Scores *s, const EvalItem *i) {
    double right = exp(-answer_nll(s, i)), sum = right;
    for (int k = 0; k < i->n_wrong; k++) {
        int64_t row = i->row + 1 + (i->paraphrase != NULL) + k;
        sum += metric_probability(scores_row(s, row), scores_tokens(s, row));
    }
    return right / sum;
}

static double attack_score(Attack a, const EvalInput *in, const Scores *s, EvalSetId set, int64_t number) {
    const EvalItem *i = &in->items->set[set].item[number];
    const TokenScore *t = scores_row(s, i->row);
    int64_t n = scores_tokens(s, i->row);
    switch (a) {
        case ATTACK_MIN_K:
            return metric_min_k(t, n, share);
        case ATTACK_MIN_K_PLUS:
            return metric_min_k_plus(t, n, share);
        case ATTACK_ZLIB:
            return metric_nll(t, n) / (double)zlib_bytes(i->answer, (int64_t)strlen(i->answer));
        case ATTACK_REFERENCE:
            return metric_nll(t, n) - answer_nll(in->reference, i);
        case ATTACK_GRADIENT:
            return in->gradient_norm[set == SET_HOLDOUT][number];
        default:
            return metric_nll(t, n);
    }
}

/* ---- into the file ---- */

typedef struct Column { /* a metric of all items of a set */
    double *value;      /* owns */
    int64_t n;
} Column;

typedef double ItemFn(const Scores *s, const EvalItem *i);

static Column column(const EvalSet *set, const Scores *s, ItemFn *fn) {
    Column c = {.value = MEM_NEW(double, MAX2(set->n, 1)), .n = set->n};
    for (int64_t i = 0; i < set->n; i++) c.value[i] = fn(s, &set->item[i]);
    return c;
}

/* Values stand under the name that open-unlearning gives them. Takes the column over where it is given. */
static void put(json_t *all, const char *name, double aggregate, const char *key, Column *c) {
    json_t *metric = json_object(), *by_index = json_object();
    json_object_set_new(metric, "agg_value", json_number(aggregate));
    for (int64_t i = 0; c && i < c->n; i++) {
        char index[24];
        snprintf(index, sizeof index, "%lld", (long long)i);
        json_object_set_new(by_index, index, json_pack("{s:o}", key, json_number(c->value[i])));
    }
    if (c) json_object_set(metric, "value_by_index", by_index);
    json_decref(by_index);
    json_object_set_new(all, name, metric);
    if (c) mem_free(c->value);
}

static const char *name_of(char to[80], EvalSetId set, const char *what) {
    snprintf(to, 80, "%s_%s", eval_set_names[set], what);
    return to;
}

static double probability_of(const Scores *s, const EvalItem *i) { return exp(-answer_nll(s, i)); }

static double put_probability(json_t *all, const EvalInput *in, EvalSetId id) {
    char name[80];
    bool normalised = id == SET_AUTHORS || id == SET_FACTS;
    Column c = column(&in->items->set[id], in->scores, normalised ? normalised_probability : probability_of);
    double mean = metric_mean(c.value, c.n);
    put(all, name_of(name, id, normalised ? "Q_A_Prob_normalised" : "Q_A_Prob"), mean, "prob", &c);
    return mean;
}

static double put_truth(json_t *all, const EvalInput *in, EvalSetId id) {
    char name[80];
    Column c = column(&in->items->set[id], in->scores, truth_ratio);
    double out = id == SET_FORGET ? metric_truth_forgotten(c.value, c.n) : metric_truth_kept(c.value, c.n);
    put(all, name_of(name, id, id == SET_FORGET ? "truth_ratio" : "Truth_Ratio"), out, "score", &c);
    return out;
}

static double put_rouge(json_t *all, const EvalInput *in, EvalSetId id) {
    char name[80];
    const EvalSet *set = &in->items->set[id];
    if (!in->generated[id]) return (double)NAN;
    Column c = {.value = MEM_NEW(double, MAX2(set->n, 1)), .n = set->n};
    for (int64_t i = 0; i < set->n; i++)
        c.value[i] = metric_rouge_l(set->item[i].answer, in->generated[id][i]).recall;
    double mean = metric_mean(c.value, c.n);
    put(all, name_of(name, id, "Q_A_ROUGE"), mean, "rougeL_recall", &c);
    return mean;
}

/* ---- what is known of a model that never saw the forget set ---- */

static Column logged(const json_t *logs, const char *metric, const char *key) {
    const json_t *by_index = json_object_get(json_object_get(logs, metric), "value_by_index");
    Column c = {.value = MEM_NEW(double, MAX2((int64_t)json_object_size(by_index), 1))};
    const char *index;
    json_t *row;
    json_object_foreach((json_t *)by_index, index, row) {
        const json_t *value = json_object_get(row, key);
        if (json_is_number(value)) c.value[c.n++] = json_number_value(value);
    }
    return c;
}

int64_t evaluate_logged(const json_t *logs) {
    Column c = logged(logs, "forget_truth_ratio", "score");
    mem_free(c.value);
    return c.n;
}

static void put_forget_quality(json_t *all, const EvalInput *in) {
    if (!in->retain && !in->retain_logs) return;
    const EvalSet *set = &in->items->set[SET_FORGET];
    Column own = column(set, in->scores, truth_ratio);
    Column other =
        in->retain ? column(set, in->retain, truth_ratio) : logged(in->retain_logs, "forget_truth_ratio", "score");
    double p = other.n ? metric_ks(NULL, own.value, own.n, other.value, other.n) : (double)NAN;
    put(all, "forget_quality", p, NULL, NULL);
    mem_free(own.value);
    mem_free(other.value);
}

static double attack_auc(Attack a, const EvalInput *in, const Scores *s) {
    static const EvalSetId set[2] = {SET_FORGET, SET_HOLDOUT};
    Column c[2];
    if (a == ATTACK_ZLIB && zlib_bytes("", 0) < 0) return (double)NAN;
    for (int k = 0; k < 2; k++) {
        int64_t n = in->items->set[set[k]].n;
        c[k] = (Column){.value = MEM_NEW(double, MAX2(n, 1)), .n = n};
        for (int64_t i = 0; i < n; i++) c[k].value[i] = attack_score(a, in, s, set[k], i);
    }
    double auc = metric_auc(c[0].value, c[0].n, c[1].value, c[1].n);
    mem_free(c[0].value);
    mem_free(c[1].value);
    return auc;
}

static bool is_possible(Attack a, const EvalInput *in) {
    return a == ATTACK_REFERENCE ? in->reference != NULL : a != ATTACK_GRADIENT || in->gradient_norm[0];
}

static void put_attacks(json_t *all, const EvalInput *in) {
    for (int a = 0; a < ATTACKS; a++)
        if (is_possible((Attack)a, in))
            put(all, attack_names[a], attack_auc((Attack)a, in, in->scores), NULL, NULL);
    double auc = attack_auc(ATTACK_MIN_K, in, in->scores), reference = 0.5;
    const json_t *known = json_object_get(json_object_get(in->retain_logs, attack_names[ATTACK_MIN_K]), "agg_value");
    if (in->retain)
        reference = attack_auc(ATTACK_MIN_K, in, in->retain);
    else if (json_is_number(known))
        reference = json_number_value(known);
    put(all, "privleak", metric_privleak(auc, reference), NULL, NULL);
}

/* ---- all ---- */

static double memorized(const Scores *s, const EvalItem *i) {
    return metric_exact_memorization(scores_row(s, i->row), scores_tokens(s, i->row));
}
static double extracted(const Scores *s, const EvalItem *i) {
    return metric_extraction_strength(scores_row(s, i->row), scores_tokens(s, i->row));
}

static void put_mean(json_t *all, const EvalInput *in, const char *name, ItemFn *fn) {
    Column c = column(&in->items->set[SET_FORGET], in->scores, fn);
    put(all, name, metric_mean(c.value, c.n), "score", &c);
}

json_t *evaluate_all(const EvalInput *in) {
    json_t *all = json_object();
    double utility[9];
    int n = 0;
    put_probability(all, in, SET_FORGET);
    put_truth(all, in, SET_FORGET);
    put_rouge(all, in, SET_FORGET);
    for (int set = SET_RETAIN; set <= SET_FACTS; set++) {
        utility[n++] = put_probability(all, in, (EvalSetId)set);
        utility[n++] = put_rouge(all, in, (EvalSetId)set);
        utility[n++] = put_truth(all, in, (EvalSetId)set);
    }
    put(all, "model_utility", in->generated[SET_RETAIN] ? metric_harmonic_mean(utility, n) : (double)NAN, NULL, NULL);
    put_forget_quality(all, in);
    put_mean(all, in, "extraction_strength", extracted);
    put_mean(all, in, "exact_memorization", memorized);
    put_attacks(all, in);
    return all;
}

json_t *evaluate_summary(const json_t *all) {
    json_t *summary = json_object(), *metric;
    const char *name;
    json_object_foreach((json_t *)all, name, metric) {
        json_object_set(summary, name, json_object_get(metric, "agg_value"));
    }
    return summary;
}
