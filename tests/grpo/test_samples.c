/* test_samples.c - rewards and tables on disk: whole lines, a page that cannot be broken by a text, resumes. */
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "grpo/samples.h"
#include "tests/test.h"

static const char *const names[] = {"accuracy", "length"};

static SamplesSpec spec_at(const char *folder, int64_t resumed) {
    return (SamplesSpec){
        .folder = folder, .names = names, .functions = 2, .every = 2, .shown = 3, .resumed_step = resumed};
}

static bool write_step(Samples *s, int64_t step, Err *e) {
    double rewards[4][2] = {{1, 0.5}, {0, NAN}, {NAN, NAN}, {1, 1}};
    SampleRow rows[4];
    char completion[80];
    snprintf(completion, sizeof completion, "rewritten in step %lld </pre><script>x</script> \xff",
             (long long)step);
    for (int i = 0; i < 4; i++)
        rows[i] = (SampleRow){.item = 10 + i / 2,
                              .sample = i % 2,
                              .question = "What\n\"is\" it?",
                              .gold = "7",
                              .completion = completion,
                              .answer = i ? "7" : NULL,
                              .rewards = rewards[i],
                              .reward = 0.5,
                              .advantage = i - 1.5,
                              .tokens = 9,
                              .truncated = i == 3,
                              .why = i == 2 ? "the command ended (exit code 3)" : NULL};
    return samples_write(s, step, rows, 4, e);
}

static void read_name(Str *out, const char *folder, const char *name) {
    char path[400];
    Err e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    str_clear(out);
    EXPECT_OK(file_read(path, out, 0, &e));
}

static int count_lines(const Str *text) {
    int n = 0;
    for (const char *p = str_text(text); (p = strchr(p, '\n')); p++) n++;
    return n;
}

static int count_of(const Str *text, const char *word) {
    int n = 0;
    for (const char *p = str_text(text); (p = strstr(p, word)); p++) n++;
    return n;
}

TEST(rewards_and_tables_of_a_run) {
    Samples s;
    Err e = {0};
    Str text = {0};
    char folder[300];
    snprintf(folder, sizeof folder, "%s", test_tmp());
    SamplesSpec spec = spec_at(folder, 0);
    log_quiet(true);
    EXPECT_OK(samples_open(&s, &spec, &e));
    for (int64_t step = 1; step <= 5; step++) EXPECT_OK(write_step(&s, step, &e));
    samples_close(&s);
    log_quiet(false);
    read_name(&text, folder, "rewards.jsonl");
    EXPECT(count_lines(&text) == 20 &&
           str_starts(text.data, "{\"step\": 1, \"item\": 10, \"sample\": 0, \"reward\": 0.5"));
    json_t *row = json_loads(strstr(text.data, "{\"step\": 1, \"item\": 11"), JSON_DISABLE_EOF_CHECK, NULL);
    EXPECT(json_is_null(json_object_get(json_object_get(row, "rewards"), "accuracy")));
    EXPECT_STR(json_string_value(json_object_get(row, "why")), "the command ended (exit code 3)");
    json_decref(row);
    read_name(&text, folder, "samples.jsonl");
    EXPECT(count_lines(&text) == 6 && count_of(&text, "\xef\xbf\xbd") == 6 &&
           count_of(&text, "\"answer\": null") == 2);
    read_name(&text, folder, "samples.html");
    EXPECT(count_of(&text, "<summary>step 4</summary>") == 1 && count_of(&text, "<summary>step 2</summary>") == 1);
    EXPECT(!strstr(text.data, "<script>x") && count_of(&text, "&lt;script&gt;x") == 6);
    str_free(&text);
}

/* With several updates a rollout, rollouts begin at steps that --sample-steps may never divide. */
TEST(a_table_is_made_every_so_many_updates_whatever_a_rollout_has) {
    static const struct {
        int64_t every, updates, tables; /* of 24 updates */
    } table[] = {{2, 1, 12}, {2, 2, 12}, {10, 4, 2}, {3, 2, 8}, {1, 3, 8}, {30, 2, 0}, {0, 2, 0}};
    char folder[300];
    Err e = {0};
    snprintf(folder, sizeof folder, "%s", test_tmp());
    log_quiet(true);
    for (int i = 0; i < COUNT_OF(table); i++) {
        Samples s;
        Str text = {0};
        SamplesSpec spec = spec_at(folder, 0);
        spec.every = table[i].every, spec.updates = table[i].updates, spec.shown = 1;
        EXPECT_OK(samples_open(&s, &spec, &e));
        for (int64_t step = 1; step <= 24; step += spec.updates) EXPECT_OK(write_step(&s, step, &e));
        samples_close(&s);
        read_name(&text, folder, "samples.jsonl");
        if (!EXPECT(count_lines(&text) == table[i].tables))
            test_note("    every %lld, %lld updates: %d", (long long)spec.every, (long long)spec.updates,
                      count_lines(&text));
        str_free(&text);
    }
    log_quiet(false);
}

/* What an undisturbed run leaves. */
static void whole_run(Str out[3], const char *folder, int64_t steps) {
    static const char *const files[] = {"rewards.jsonl", "samples.jsonl", "samples.html"};
    Samples s;
    Err e = {0};
    SamplesSpec spec = spec_at(folder, 0);
    EXPECT_OK(file_make_dirs(folder, &e) && samples_open(&s, &spec, &e));
    for (int64_t step = 1; step <= steps; step++) EXPECT_OK(write_step(&s, step, &e));
    samples_close(&s);
    for (int i = 0; i < 3; i++) read_name(&out[i], folder, files[i]);
}

TEST(a_run_killed_anywhere_goes_on_to_the_same_files) {
    Str want[3] = {{0}}, got = {0};
    static const char *const files[] = {"rewards.jsonl", "samples.jsonl", "samples.html"};
    char whole[300], folder[300];
    test_tmp_in_memory();
    snprintf(whole, sizeof whole, "%s", test_path("whole"));
    snprintf(folder, sizeof folder, "%s", test_path("killed"));
    log_quiet(true);
    whole_run(want, whole, 100);
    for (int kill = 0; kill < 12; kill++) {
        Samples s;
        Err e = {0};
        Str made[3] = {{0}};
        whole_run(made, folder, 64);
        for (int i = 0; i < 2; i++) { /* both files end anywhere at or behind the checkpoint of step 60 */
            char path[400], mark[40];
            snprintf(path, sizeof path, "%s/%s", folder, files[i]);
            snprintf(mark, sizeof mark, "{\"step\": %d,", i ? 62 : 61);
            int64_t least = strstr(made[i].data, mark) - made[i].data,
                    cut = least + (made[i].len - least) * kill / 11;
            EXPECT_OK(file_write_all(path, made[i].data, cut, &e));
        }
        SamplesSpec spec = spec_at(folder, 60);
        EXPECT_OK(samples_open(&s, &spec, &e));
        for (int64_t step = 61; step <= 100; step++) EXPECT_OK(write_step(&s, step, &e));
        samples_close(&s);
        for (int i = 0; i < 3; i++) {
            read_name(&got, folder, files[i]);
            if (!EXPECT(got.len == want[i].len && !memcmp(got.data, want[i].data, (size_t)got.len)))
                test_note("    %s differs, killed at %d of 11", files[i], kill);
            str_free(&made[i]);
        }
    }
    log_quiet(false);
    for (int i = 0; i < 3; i++) str_free(&want[i]);
    str_free(&got);
}

TEST(samples_that_cannot_be_written_are_refused) {
    Samples s;
    Err e = {0};
    SamplesSpec spec = spec_at("/no/such/folder", 0);
    EXPECT(!samples_open(&s, &spec, &e) && strstr(e.text, "/no/such/folder/rewards.jsonl"));
}
