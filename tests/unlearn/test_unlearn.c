/* test_unlearn.c - snug unlearn from outside: corrected weights against retraining, the record of it, and refusals. */
#include "base/file.h"
#include "base/mem.h"
#include "store/safetensors.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

#define SGD "--optimizer sgd --clip 0 --weight-decay 0 --schedule constant --lr 0.1 "

static bool train(const char *flags) {
    Ran r = snug_run(
        "train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 24 --threads 2 --step-log "
        "--step-log-stride 6 --overwrite %s",
        test_path("m"), test_path("rows.jsonl"), test_path("o"), flags);
    bool ok = EXPECT(r.code == 0);
    if (!ok) test_note("%s", str_text(&r.err));
    ran_free(&r);
    return ok;
}

static void forget(const char *text) {
    EXPECT(file_write_all(test_path("forget.txt"), text, (int64_t)strlen(text), NULL));
}

/* Gives; NULL: it failed, and says so. */
static json_t *unlearn(const char *flags) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --overwrite --threads 2 --json %s", test_path("o"),
                     test_path("forget.txt"), test_path("u"), flags);
    json_t *result = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(result != NULL)) test_note("    %s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return result;
}

static double number(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    if (!EXPECT(json_is_number(v))) test_note("    %s is missing", key);
    return json_number_value(v);
}

static void expect_planned(const json_t *j) {
    EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes"));
    EXPECT(number(j, "above_plan_bytes") == 0);
}

TEST_SLOW(a_removal_is_nearer_to_retraining_than_none_and_than_a_random_one) {
    static const struct {
        const char *flags;
        double most; /* of the distance between trained and retrained */
    } table[] = {{"--hessian exact --damping 0 --window 100", 0.25},
                 {"--hessian fisher --window 100", 0.9},
                 {"--hessian diagonal --window 100", 0.9},
                 {"--hessian gauss-newton --damping 0 --window 100", 0.9},
                 {"--hessian exact --damping 0 --remove steps --window 100", 0.35},
                 {"--hessian fisher --remove steps --window 10", 0.95},
                 {"--hessian exact --damping 0 --window auto --gamma-iterations 5", 0.25}};
    snug_make_job((SnugJob){2, 32, 48});
    if (!train(SGD)) return;
    forget("5\n40\n");
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) {
        char flags[200];
        snprintf(flags, sizeof flags, "--oracle --no-norm-guard %s", table[i].flags);
        json_t *j = unlearn(flags);
        if (!j) continue;
        double error = number(j, "oracle_error"), random = number(j, "random_error");
        if (!EXPECT(error < table[i].most && random > 1))
            test_note("    %s: %.3f, random %.3f", table[i].flags, error, random);
        EXPECT(number(j, "requests") == 1 && number(j, "steps_touched") > 1 && number(j, "hvp_calls") > 0);
        EXPECT(number(j, "correction_norm") > 0); /* never all zero */
        expect_planned(j);
        json_decref(j);
    }
}

static void expect_audit(const char *path, int code, const char *says) {
    Ran r = snug_run("unlearn-eval --check-audit %s --json", path);
    if (!EXPECT(r.code == code && strstr(code ? str_text(&r.err) : str_text(&r.out), says)))
        test_note("    %s: %d\n%s%s", says, r.code, str_text(&r.out), str_text(&r.err));
    ran_free(&r);
}

/* A record that is changed in one byte, taken out, moved or cut off is named. */
static void expect_chain_of_two(const char *path) {
    Str text = {0}, other = {0};
    const char *changed = test_path("changed.jsonl");
    Err e = {0};
    EXPECT_OK(file_read(path, &text, 0, &e));
    char *second = strchr(str_text(&text), '\n');
    if (!EXPECT(second)) return;
    int64_t first = ++second - text.data;
    expect_audit(path, 0, "\"records\":2");
    for (int64_t at = 0; at < text.len; at += 97) {
        text.data[at] ^= 1;
        EXPECT_OK(file_write_all(changed, text.data, text.len, &e));
        expect_audit(changed, 1, at < first ? "changed.jsonl:1: " : "changed.jsonl:2: ");
        text.data[at] ^= 1;
    }
    EXPECT_OK(file_write_all(changed, text.data, first, &e));
    expect_audit(changed, 1, "cut short: it holds 1 of 2 records");
    EXPECT_OK(file_write_all(changed, text.data, text.len - 1, &e));
    expect_audit(changed, 1, "changed.jsonl:2: has no end");
    EXPECT_OK(file_write_all(changed, second, text.len - first, &e));
    expect_audit(changed, 1, "changed.jsonl:1: ");
    str_add(&other, second);
    str_add_bytes(&other, text.data, first);
    EXPECT_OK(file_write_all(changed, other.data, other.len, &e));
    expect_audit(changed, 1, "changed.jsonl:1: ");
    EXPECT_OK(file_write_all(changed, "", 0, &e));
    expect_audit(changed, 1, "cut short");
    str_free(&text);
    str_free(&other);
}

TEST(requests_are_recorded_under_a_chain_and_their_noise_composes) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!train(SGD)) return;
    forget("5\n");
    EXPECT(file_write_all(test_path("second"), "[9]", 3, NULL));
    char flags[800], audit[700];
    snprintf(flags, sizeof flags,
             "--forget %s --hessian exact --epsilon 1 --delta 1e-6 --bound 2 --gamma-iterations 4",
             test_path("second"));
    json_t *j = unlearn(flags);
    if (!j) return;
    EXPECT(number(j, "requests") == 2 && json_is_false(json_object_get(j, "certified")));
    EXPECT(number(j, "gamma") >= 1 && strstr(json_string_value(json_object_get(j, "why_not")), "gamma"));
    EXPECT(json_is_null(json_object_get(j, "truncation_bound"))); /* a bound is printed only where gamma is below 1 */
    EXPECT_NEAR(number(j, "epsilon_total"), 2 + sqrt(2 * log(1e6) * 2), 1e-6);
    EXPECT_NEAR(number(j, "delta_total"), 3e-6, 1e-12);
    EXPECT(number(j, "noise_norm") > 10);
    json_decref(j);
    snprintf(audit, sizeof audit, "%s/model/audit.jsonl", test_path("u"));
    expect_chain_of_two(audit);
}

/* A sample that two requests name, and an update that two requests want out as a whole, are taken out once. */
TEST(what_two_requests_name_is_taken_out_once) {
    static const char *const ways[] = {"--remove samples", "--remove steps"};
    snug_make_job((SnugJob){2, 32, 48});
    if (!train(SGD)) return;
    forget("5\n9\n");
    EXPECT(file_write_all(test_path("second"), "[9, 5]", 6, NULL));
    for (int i = 0; i < 2; i++) {
        char flags[800];
        json_t *once = unlearn(ways[i]);
        snprintf(flags, sizeof flags, "%s --forget %s", ways[i], test_path("second"));
        json_t *twice = unlearn(flags);
        if (once && twice) {
            EXPECT(number(twice, "requests") == 2);
            EXPECT(number(twice, "steps_touched") == number(once, "steps_touched"));
            EXPECT(number(twice, "correction_norm") == number(once, "correction_norm"));
        }
        json_decref(once);
        json_decref(twice);
    }
}

/* Where less is kept, bytes are shared that lie apart elsewhere: the gradient of the logits with the labels, say. */
TEST(gauss_newton_products_are_the_same_whatever_is_recomputed) {
    static const char *const levels[] = {"none", "block"};
    double want = 0;
    snug_make_job((SnugJob){2, 32, 48});
    forget("5\n");
    for (int i = 0; i < COUNT_OF(levels); i++) {
        char flags[200];
        snprintf(flags, sizeof flags, SGD "--model models/tally --precision fp32 --steps 8 --recompute %s", levels[i]);
        json_t *j = train(flags) ? unlearn("--hessian gauss-newton --damping 0 --window 3") : NULL;
        if (!j) continue;
        double norm = number(j, "correction_norm");
        if (!i) want = norm;
        if (!EXPECT(norm == want && number(j, "guarded") == 0)) test_note("    %s: %g, %g", levels[i], norm, want);
        json_decref(j);
    }
}

/* The window of the first touched update reaches further behind it than the run goes behind the last one. */
TEST(contraction_is_measured_at_the_windows_end_where_updates_are_propagated_one_by_one) {
    static const char *const windows[] = {"auto", "100", "2"};
    snug_make_job((SnugJob){2, 32, 48});
    if (!train(SGD)) return;
    forget("5\n40\n");
    for (int i = 0; i < COUNT_OF(windows); i++) {
        char flags[200];
        snprintf(flags, sizeof flags, "--pass each --gamma-iterations 2 --window %s", windows[i]);
        json_t *j = unlearn(flags);
        if (j) EXPECT(number(j, "gamma") > 0 && number(j, "steps_touched") > 1);
        json_decref(j);
    }
}

/* Parts do not overlap, so that they are at most the whole. */
static void expect_parts(const json_t *o, double whole, int n) {
    const json_t *parts = json_object_get(o, "seconds_by_part"), *value;
    const char *key;
    double sum = 0;
    EXPECT((int)json_object_size(parts) == n);
    json_object_foreach((json_t *)parts, key, value) sum += EXPECT(json_number_value(value) >= 0)
                                                             ? json_number_value(value) : 0;
    if (!EXPECT(sum > 0 && sum <= whole)) test_note("    parts %g, whole %g", sum, whole);
}

TEST(where_a_requests_seconds_went_stands_in_the_last_line_and_in_its_record) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!train(SGD)) return;
    forget("5\n");
    json_t *j = unlearn("--remove steps");
    if (!j) return;
    expect_parts(j, number(j, "seconds"), 8);
    json_decref(j);
    char path[700];
    snprintf(path, sizeof path, "%s/model/audit.jsonl", test_path("u"));
    json_t *record = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
    if (EXPECT(record)) expect_parts(record, number(record, "wall_time_ms") / 1000, 5);
    json_decref(record);
}

TEST(adamw_is_removed_by_whole_steps_and_never_certified) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!train("--lr 1e-3")) return;
    forget("5\n");
    json_t *j =
        unlearn("--epsilon 1 --bound 100 --gamma-iterations 2 --noise-seed 3 --hessian exact --window 3 --oracle");
    if (!j) return;
    EXPECT(strstr(json_string_value(json_object_get(j, "why_not")), "AdamW"));
    EXPECT(number(j, "oracle_error") < 1);
    json_decref(j);
    char path[700];
    Str text = {0};
    snprintf(path, sizeof path, "%s/model/requeue.json", test_path("u"));
    EXPECT(file_read(path, &text, 0, NULL));
    json_t *list =
        json_loads(str_text(&text), 0, NULL); /* the benign rows of the removed updates, not the forgotten one */
    EXPECT(json_array_size(list) >= 7);
    for (size_t i = 0; i < json_array_size(list); i++) EXPECT(json_integer_value(json_array_get(list, i)) != 5);
    json_decref(list);
    str_free(&text);
}

TEST(a_bound_that_holds_for_plain_sgd_is_said_of_nothing_else) {
    static const struct {
        const char *flags;
        bool bounded;
    } table[] = {{SGD "--lr 0.01 --weight-decay 10", true},
                 {SGD "--lr 0.01 --weight-decay 10 --momentum 0.5", false},
                 {"--lr 0.01 --weight-decay 10", false}};
    snug_make_job((SnugJob){2, 32, 48});
    forget("5\n");
    for (int i = 0; i < COUNT_OF(table); i++) {
        json_t *j = train(table[i].flags) ? unlearn("--gamma-iterations 4 --window 2") : NULL;
        if (!j) continue;
        bool bounded = json_is_number(json_object_get(j, "truncation_bound"));
        if (!EXPECT(number(j, "gamma") < 1 && bounded == table[i].bounded)) test_note("    %s", table[i].flags);
        json_decref(j);
    }
}

static void expect_refused(const char *flags, int code, const char *says) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s %s", test_path("o"), test_path("forget.txt"),
                     test_path("new"), flags);
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), says)))
        test_note("    %s: %d, %s", flags, r.code, str_text(&r.err));
    EXPECT(!file_exists(test_path("new")));
    ran_free(&r);
}

TEST(a_removal_that_cannot_be_is_refused_and_writes_nothing) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!train("--lr 1e-3 --precision bf16")) return;
    forget("99\n");
    expect_refused("", 1, "there is no sample 99");
    forget("5\n");
    expect_refused("--remove samples", 2, "not a sum over samples");
    expect_refused("--hessian exact", 2, "bf16");
    expect_refused("--hessian gauss-newton", 2, "bf16");
    expect_refused("--budget 1KiB", 3, "does not fit");
    expect_refused("--hesian exact", 2, "Did you mean");
    char weights[700], copy[700];
    snprintf(weights, sizeof weights, "%s/model/model.safetensors", test_path("o"));
    snprintf(copy, sizeof copy, "%s/step-log/state-6/model.safetensors", test_path("o"));
    EXPECT(file_copy(copy, weights, NULL)); /* the result of another moment */
    expect_refused("", 1, "does not belong to");
}

static void expect_from_afar(const char *run, const char *flags, int code, const char *says) {
    char command[300];
    Str err = {0};
    snprintf(command, sizeof command, "unlearn --run %s --forget ../forget.txt --out u --overwrite --threads 1 %s", run,
             flags);
    int got = world_run("away", world_binary(), NULL, command);
    world_said(NULL, &err, "away");
    if (!EXPECT(got == code && strstr(str_text(&err), says)))
        test_note("    %s: exit %d\n%s", command, got, str_text(&err));
    str_free(&err);
}

/* The end of the first file is held out: sample 40 is no row 40. */
TEST(numbers_that_are_no_places_in_the_data_are_refused) {
    static const char *const cuts[] = {"--val-split 0.2", "--max-samples 20"};
    char flags[700];
    snug_make_job((SnugJob){2, 32, 48});
    EXPECT(file_copy(test_path("rows.jsonl"), test_path("more.jsonl"), NULL));
    forget("5\n");
    for (int i = 0; i < 2; i++) {
        snprintf(flags, sizeof flags, SGD "--steps 2 --data %s %s", test_path("more.jsonl"), cuts[i]);
        if (!train(flags)) continue;
        snprintf(flags, sizeof flags, "%.*s left out the end of each of the 2 files", (int)strcspn(cuts[i], " "),
                 cuts[i]);
        expect_refused("", 1, flags);
        expect_refused("--method npo", 1, flags);
    }
}

TEST(a_correction_that_rounding_takes_away_is_told) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!train(SGD "--lr 1e-5 --precision bf16")) return;
    forget("5\n");
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --window 0 --json", test_path("o"), test_path("forget.txt"),
                     test_path("u"));
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (EXPECT(j)) EXPECT(number(j, "applied_norm") < 0.9 * number(j, "correction_norm"));
    EXPECT(strstr(str_text(&r.err), "too coarse for this correction"));
    json_decref(j);
    ran_free(&r);
}

/* Its data is named relative to the folder it was trained in; a file of that name elsewhere is another one. */
TEST(a_run_is_found_with_its_data_from_another_folder) {
    static const char npo[] = "--method npo --epochs 1";
    Err e = {0};
    if (!world_make(world_binary())) return;
    EXPECT_OK(file_make_dirs(world_path("w/runs"), &e) && file_make_dirs(world_path("away"), &e) &&
              file_copy(world_path("rows.jsonl"), world_path("w/own.jsonl"), &e) &&
              file_write_all(world_path("away/own.jsonl"), "{\"ids\":[1,2,3]}\n", 16, &e) &&
              file_write_all(world_path("forget.txt"), "1\n", 2, &e));
    if (!world_must("w",
                    "train --model ../model --data own.jsonl --seq 16 --steps 2 --optimizer sgd --clip 0 --threads 1 "
                    "--step-log --out runs/a"))
        return;
    expect_from_afar("../w/runs/a", "--window 1", 0, "a correction of norm");
    expect_from_afar("../w/runs/a/", npo, 0, "npo: 1 updates");
    EXPECT(world_copy_tree(world_path("w/runs/a"), world_path("moved")));
    expect_from_afar("../moved", npo, 1, "was trained on other rows than own.jsonl has now");
    EXPECT_OK(file_remove_tree(world_path("away/own.jsonl"), &e));
    expect_from_afar("../moved", npo, 1, "write where it is now into ../moved/config.yaml");
}

/* A gsa model of one layer in test_path("g"), trained in test_path("o"); its first 3 updates are a warm-up. */
static bool train_sparse(const char *warmup) {
    if (!file_exists(test_path("rows.jsonl"))) snug_make_job((SnugJob){1, 16, 32}); /* for its rows */
    Ran made = snug_run("init --model gsa-512m --out %s --dtype fp32 --set n_layers=1 --set d_model=16 --set d_ffn=32 "
                        "--set n_heads=2 --set n_kv_heads=1 --set d_head=8 --set vocab_size=%d --set d_indexer=8 "
                        "--set n_indexer_heads=2 --set k_base=8 --set k_min=4 --set k_max=8 --overwrite",
                        test_path("g"), SNUG_JOB_VOCAB);
    Ran r = snug_run("train --model %s --data %s --out %s --seq 32 --global-batch 4 --steps 6 --optimizer sgd "
                     "--clip 0 --precision fp32 --threads 1 --pack off --step-log --step-log-stride 2 "
                     "--indexer-warmup-steps 3 --indexer-warmup %s",
                     test_path("g"), test_path("rows.jsonl"), test_path("o"), warmup);
    bool ok = EXPECT(made.code == 0 && r.code == 0);
    if (!ok) test_note("%s%s", str_text(&made.err), str_text(&r.err));
    ran_free(&made), ran_free(&r);
    return ok;
}

/* "the weights after 4 updates are not those that were logged", or other weights without a word: updates of a warm-up
 * were replayed as usual ones. */
static void replays_and_retrains(void) {
    for (int at = 1; at <= 6; at++) { /* states stand after 2 and 4 updates, and the third is the warm-up's last */
        Ran r = snug_run("unlearn --run %s --method replay --at %d --out %s --overwrite", test_path("o"), at,
                         test_path("u"));
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
    }
    EXPECT(file_write_all(test_path("f"), "1\n", 2, NULL));
    Ran r = snug_run("unlearn --run %s --method retrain --forget %s --out %s --overwrite", test_path("o"),
                     test_path("f"), test_path("u"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

TEST(a_warm_up_is_replayed_as_it_was) {
    if (!train_sparse("frozen")) return;
    replays_and_retrains();
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --overwrite", test_path("o"), test_path("f"),
                     test_path("u"));
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "the indexer alone learned"));
    ran_free(&r);
    if (!train_sparse("joint --overwrite")) return;
    replays_and_retrains();
    r = snug_run("unlearn --run %s --forget %s --window 3 --oracle --json --out %s --overwrite", test_path("o"),
                 test_path("f"), test_path("u"));
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(j && json_number_value(json_object_get(j, "correction_norm")) > 0)) test_note("%s", str_text(&r.err));
    json_decref(j);
    ran_free(&r);
}

/* Of a tensor of a model folder. Gives: mem_free. */
static char *tensor_bytes(const char *folder, const char *name, int64_t *bytes) {
    StSet s;
    Err e = {0};
    if (!EXPECT(st_open(&s, folder, &e))) return NULL;
    const StTensor *t = st_find(&s, name);
    char *data = t ? mem_alloc(*bytes = t->bytes) : NULL;
    EXPECT(t && st_read(&s, t, data, 0, t->bytes, &e));
    st_close(&s);
    return data;
}

static bool is_same_tensor(const char *name) {
    char from[600], to[600];
    int64_t n = 0, m = 0;
    snprintf(from, sizeof from, "%s/model", test_path("o"));
    snprintf(to, sizeof to, "%s/model", test_path("u"));
    char *a = tensor_bytes(from, name, &n), *b = tensor_bytes(to, name, &m);
    bool same = a && b && n == m && !memcmp(a, b, (size_t)n);
    mem_free(a), mem_free(b);
    return same;
}

/* The updates were those of the run's warm-up: npo changed the indexer and nothing else. After another warm-up the
 * indexer, whose loss had the weights of forgotten tokens, was driven away from attention. */
TEST(a_loss_tunes_a_sparse_model_and_leaves_its_indexer_alone) {
    static const char *const methods[] = {"npo", "gradascent", "pdu", "rmu"};
    if (!train_sparse("frozen")) return;
    forget("1\n2\n");
    for (int i = 0; i < COUNT_OF(methods); i++) {
        char flags[100];
        snprintf(flags, sizeof flags, "--method %s --lr 1e-2 --epochs 2 --global-batch 2", methods[i]);
        json_decref(unlearn(flags));
        EXPECT(!is_same_tensor("model.layers.0.self_attn.q_proj.weight"));
        EXPECT(is_same_tensor("model.layers.0.self_attn.indexer.query_proj.weight"));
    }
}
