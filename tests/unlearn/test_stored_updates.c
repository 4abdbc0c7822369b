/* test_stored_updates.c - updates that stand in a step log: to the bit what a replay gives, off by no more than the log
 * says, taken from there, and refused by name where they are not what was logged. */
#include <unistd.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/unlearn/logged_run.h"

#define TRAIN "train --model %s --data %s --out %s --seq 48 --global-batch 8 --threads 2 --overwrite --step-log %s"

static json_t *train(const char *flags) {
    Ran r = snug_run(TRAIN, test_path("m"), test_path("rows.jsonl"), test_path("o"), flags);
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(j)) test_note("%s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return j;
}

static json_t *unlearn(const char *flags) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --overwrite --threads 2 --json --remove steps %s",
                     test_path("o"), test_path("forget.txt"), test_path("u"), flags);
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(j)) test_note("%s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return j;
}

static double number(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    if (!EXPECT(json_is_number(v))) test_note("    %s is missing", key);
    return json_number_value(v);
}

static bool make_job(void) {
    snug_make_job((SnugJob){2, 32, 48});
    return EXPECT(file_write_all(test_path("forget.txt"), "5\n", 2, NULL));
}

typedef struct Against {
    const StoredSource *s;
    const float *u; /* by a replay */
    double *off;    /* squares, of a tile */
} Against;

static void compare(void *context, int tensor, int64_t tile, int64_t at, const float *u, int64_t n) {
    const Against *a = context;
    const StoredTensor *t = &a->s->layout.tensor[tensor];
    int64_t first = 0;
    for (int i = 0; i < tensor; i++) first += a->s->layout.tensor[i].count;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)u[i] - (double)a->u[first + at + i];
        a->off[t->first_tile + tile] += d * d;
    }
}

/* The share by which every stored update is off the replayed one; what the log says of it. */
static void expect_updates(const char *format, bool equal) {
    LoggedRun l;
    WalkRate rate;
    Err e = {0};
    if (!logged_run_open(&l, "o", "fisher")) return;
    float *u = MEM_NEW(float, l.walk.n);
    for (int64_t step = 0; step < 5; step += 2) {
        const HistoryUpdate *known = history_update_of(&l.run.history, step);
        StoredSource s;
        if (!EXPECT(known && !strcmp(known->format, format))) break;
        EXPECT_OK(l.walk.seek(l.walk.user, step, &e));
        EXPECT_OK(l.walk.advance(l.walk.user, u, NULL, &rate, &e));
        double norm = vec_norm(NULL, u, l.walk.n), off = 0;
        if (!EXPECT(stored_open(&s, &l.run.base.ring.p, l.run.history.folder, known, &e))) break;
        double *of_tile = MEM_NEW(double, s.layout.tiles);
        EXPECT_OK(stored_read(&s, step ? l.run.replay.team : NULL, compare, &(Against){&s, u, of_tile}, &e));
        for (int64_t i = 0; i < s.layout.tiles; i++) off += of_tile[i];
        EXPECT(norm > 0 && fabs(known->norm - norm) <= 1e-6 * norm && (off == 0) == equal);
        if (!EXPECT(fabs(sqrt(off) / norm - known->error) <= 1e-5 * known->error))
            test_note("    %s: off by %g, the log says %g", format, sqrt(off) / norm, known->error);
        mem_free(of_tile);
        stored_close(&s);
    }
    mem_free(u);
    logged_run_close(&l);
}

TEST(stored_updates_are_those_of_a_replay_and_off_by_what_the_log_says) {
    static const struct {
        const char *flags, *format;
        bool equal;
    } table[] = {{"--optimizer sgd --clip 0 --step-log-updates fp32", "fp32", true},
                 {"--micro-batch 2 --precision bf16 --master fp32 --step-log-updates fp32", "fp32", true},
                 {"--precision bf16 --step-log-updates bf16", "bf16", false},
                 {"--step-log-updates bf16", "bf16", false},
                 {"--mode lora --lora-rank 4 --step-log-updates int8", "int8", false}};
    if (!make_job()) return;
    for (int i = 0; i < COUNT_OF(table); i += test_brief() ? 2 : 1) {
        char flags[300];
        snprintf(flags, sizeof flags, "--steps 6 --step-log-stride 3 %s", table[i].flags);
        json_t *j = train(flags);
        if (!j) continue;
        double error = number(j, "step_log_update_error");
        EXPECT(number(j, "step_log_update_bytes") > 0 && error < 0.02 && (error == 0) == table[i].equal);
        json_decref(j);
        expect_updates(table[i].format, table[i].equal);
    }
}

static bool same_files(const char *a, const char *b) {
    Str x = {0}, y = {0};
    bool same = file_read(a, &x, 0, NULL) && file_read(b, &y, 0, NULL) && x.len == y.len &&
                !memcmp(x.data, y.data, (size_t)x.len);
    str_free(&x);
    str_free(&y);
    return same;
}

/* fp32: the same model to the last bit, whoever has made u. Window 0 replays nothing at all. */
TEST(a_request_takes_stored_updates_and_replays_only_what_it_is_propagated_through) {
    static const char *const windows[] = {"--window 0", "--window 3", "--window 2 --hessian diagonal"};
    char made[600], kept[600];
    if (!make_job()) return;
    snprintf(made, sizeof made, "%s/model/model.safetensors", test_path("u"));
    for (int i = 0; i < COUNT_OF(windows); i++) {
        snprintf(kept, sizeof kept, "%s", test_path("replayed"));
        for (int stored = 0; stored < 2; stored++) {
            char flags[200];
            snprintf(flags, sizeof flags, "--steps 8 --step-log-stride 3 --lr 3e-3 --step-log-updates %s",
                     stored ? "fp32" : "none");
            json_t *j = train(flags), *u = j ? unlearn(windows[i]) : NULL;
            if (u) EXPECT(number(u, "updates_read") == stored * number(u, "steps_touched"));
            if (u && stored && !i) EXPECT(number(u, "passes") == 0 && number(u, "correction_norm") > 0);
            if (u && stored) EXPECT(same_files(made, kept));
            else if (u) EXPECT(file_copy(made, kept, NULL));
            json_decref(j);
            json_decref(u);
        }
    }
}

static void expect_refused(const char *says) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --remove steps --window 0", test_path("o"),
                     test_path("forget.txt"), test_path("r"));
    if (!EXPECT(r.code == 1 && strstr(str_text(&r.err), says) && strstr(str_text(&r.err), "update")))
        test_note("    wanted '%s', got %d: %s", says, r.code, str_text(&r.err));
    EXPECT(!file_exists(test_path("r")));
    ran_free(&r);
}

TEST(a_stored_update_that_was_changed_cut_short_or_lost_is_refused_by_name) {
    if (!make_job()) return;
    json_t *j = train("--steps 8 --step-log-updates int8");
    if (!j) return;
    json_decref(j);
    char path[700];
    Str text = {0};
    for (int step = 0; step < 8; step++) { /* whichever of them saw the sample */
        snprintf(path, sizeof path, "%s/step-log/update-%d.safetensors", test_path("o"), step);
        str_clear(&text);
        EXPECT(file_read(path, &text, 0, NULL));
        text.data[text.len - 9] ^= 4;
        EXPECT(file_write_all(path, text.data, text.len, NULL));
    }
    expect_refused("not the bytes that were logged");
    for (int step = 0; step < 8; step++) {
        snprintf(path, sizeof path, "%s/step-log/update-%d.safetensors", test_path("o"), step);
        EXPECT(truncate(path, text.len - 40) == 0);
    }
    expect_refused("step log");
    for (int step = 0; step < 8; step++) {
        snprintf(path, sizeof path, "%s/step-log/update-%d.safetensors", test_path("o"), step);
        EXPECT(unlink(path) == 0);
    }
    expect_refused("step log");
    str_free(&text);
}

TEST(stored_updates_without_room_are_refused_before_anything_is_written) {
    if (!make_job()) return;
    Ran r = snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 10000000 --save-minutes 0 "
                     "--step-log --step-log-stride 0 --step-log-updates fp32",
                     test_path("m"), test_path("rows.jsonl"), test_path("p"));
    if (!EXPECT(r.code == 3 && strstr(str_text(&r.err), "--step-log-updates none")))
        test_note("%d: %s", r.code, str_text(&r.err));
    EXPECT(!file_exists(test_path("p")));
    ran_free(&r);
}

/* ---- the thread that writes ---- */

static void expect_same_folders(const char *a, const char *b) {
    char **name, from[800], to[800];
    int64_t n = 0;
    if (!EXPECT(file_list(a, &name, &n, NULL))) return;
    for (int64_t i = 0; i < n; i++) {
        snprintf(from, sizeof from, "%s/%s", a, name[i]);
        snprintf(to, sizeof to, "%s/%s", b, name[i]);
        if (file_is_dir(from)) expect_same_folders(from, to);
        else if (!EXPECT(same_files(from, to))) test_note("    %s", from);
        mem_free(name[i]);
    }
    mem_free(name);
    EXPECT(n > 0);
}

TEST(a_log_written_beside_the_steps_is_the_one_written_at_once_byte_for_byte) {
    static const char *const kinds[] = {"--micro-batch 2", "--mode lora --lora-rank 4 --lora-dropout 0.1",
                                        "--precision bf16 --master fp32 --moments 8bit"};
    if (!make_job()) return;
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        char flags[400], direct[600], copied[600];
        snprintf(direct, sizeof direct, "%s", test_path("direct"));
        snprintf(copied, sizeof copied, "%s", test_path("copied"));
        const char *folder[] = {direct, copied};
        for (int k = 0; k < 2; k++) {
            snprintf(flags, sizeof flags,
                     "%s --steps 9 --step-log-stride 2 --step-log-updates bf16 --step-log-states %s %s", folder[k],
                     k ? "copied" : "direct", kinds[i]);
            json_t *j = train(flags);
            if (j) EXPECT(number(j, "step_log_seconds") > 0 && number(j, "allocations_after_first_step") == 0);
            json_decref(j);
        }
        expect_same_folders(direct, copied);
        expect_same_folders(copied, direct);
    }
}

/* Lines and files behind the checkpoint go; those before stay, and what follows is as if nothing had happened. */
TEST(a_resumed_run_goes_on_storing_updates) {
    if (!make_job()) return;
    char log[600];
    Str whole = {0}, resumed = {0};
    snprintf(log, sizeof log, "%s/step-log/steps.jsonl", test_path("o"));
    json_t *j = train("--steps 6 --save-steps 3 --step-log-updates bf16");
    EXPECT(file_read(log, &whole, 0, NULL));
    json_decref(j);
    Ran r = snug_run("train --config %s/config.yaml --resume checkpoint-3 --steps 6", test_path("o"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    EXPECT(file_read(log, &resumed, 0, NULL));
    EXPECT(whole.len == resumed.len && !memcmp(whole.data, resumed.data, (size_t)whole.len));
    expect_updates("bf16", false);
    str_free(&whole);
    str_free(&resumed);
}
