/* test_pipeline.c - the way of a problem under scripted replies: every branch, whatever the order of the replies. */
#include "base/file.h"
#include "base/mem.h"
#include "reason/journal.h"
#include "reason/pipeline.h"
#include "reason/results.h"
#include "tests/snug.h"
#include "tests/test.h"

/* ---- problems and a scripted model ---- */

enum { MOST = 12 };

typedef struct Script { /* what is said to one problem, in the order of its asks; the last is repeated */
    const char *says[10];
} Script;

typedef struct World {
    Problem problem[MOST];
    Problems all;
    PipelineSpec spec;
    Pipeline p;
    const Script *script;
    int said[MOST];
    Str asked[MOST]; /* every prompt so far, and its role and round */
} World;

static const char *const references[] = {"12", "REF-7", ""};

static void begin(World *w, const Script *script, int n, int rounds) {
    *w = (World){.script = script};
    for (int i = 0; i < n; i++) {
        char text[60];
        snprintf(text, sizeof text, "PROBLEM-%d", i);
        w->problem[i] =
            (Problem){mem_strdup(text), mem_strdup(references[i % 3]), json_pack("{s:s}", "question", text)};
    }
    w->all = (Problems){.item = w->problem, .n = n, .first = 5};
    w->spec = (PipelineSpec){.rubric = rubric_default(),
                             .rounds = rounds,
                             .solve = {0.6, 0.95, 4096},
                             .judge = {0.3, 0.9, 1024},
                             .seed = 42};
    pipeline_init(&w->p, &w->spec, &w->all);
}

static void end(World *w) {
    for (int64_t i = 0; i < w->all.n; i++) {
        mem_free(w->problem[i].text);
        mem_free(w->problem[i].reference);
        json_decref(w->problem[i].original);
        str_free(&w->asked[i]);
    }
    pipeline_free(&w->p);
}

static const char *next_words(World *w, int64_t problem) {
    const Script *s = &w->script[problem];
    int at = w->said[problem]++;
    while (at && !s->says[at]) at--;
    return s->says[at];
}

static Reply reply_to(World *w, const Ask *a) {
    str_addf(&w->asked[a->problem], "[%s %d] %s\n", ask_role_name(a->role), a->round, str_text(&a->text));
    return (Reply){
        .text = next_words(w, a->problem), .tokens = 10 + a->problem, .when = 1.7e9 + (double)a->problem};
}

static void answer_all(World *w) { /* one at a time */
    Ask ask = {0};
    while (pipeline_next(&w->p, &ask)) {
        Reply r = reply_to(w, &ask);
        pipeline_take(&w->p, ask.problem, &r);
    }
    pipeline_ask_free(&ask);
    EXPECT(w->p.n_done == w->p.n);
}

#define SCORES(x) \
    "correctness: " #x "\nstep_by_step_clarity: " #x "\nlogical_coherence: " #x "\nmathematical_precision: " #x
#define HALF "correctness: 0.9\nlogical_coherence: 0.6" /* two are missing; 2/3 * 0.9 + 1/3 * 0.6 */
#define REST "step_by_step_clarity: 1\nmathematical_precision: 1"

static void expect_asked(const World *w, int problem, const char *roles) { /* "solve 0,judge 0" */
    char have[400] = "";
    for (const char *at = str_text(&w->asked[problem]); (at = strchr(at, '[')); at++) {
        const char *close = strchr(at, ']');
        if (!strncmp(at, "[solve", 6) || !strncmp(at, "[judge", 6) || !strncmp(at, "[improve", 8))
            snprintf(have + strlen(have), sizeof have - strlen(have), "%s%.*s", have[0] ? "," : "",
                     (int)(close - at - 1), at + 1);
    }
    EXPECT_STR(have, roles);
}

/* ---- branches ---- */

TEST(a_good_solution_is_judged_once_and_done) {
    static const Script s[] = {{{"<think>3 times 4</think>It is \\boxed{12}.", SCORES(0.9)}},
                               {{"\\boxed{8}", SCORES(0.8)}},
                               {{"\\boxed{8}", SCORES(1)}}};
    World w;
    begin(&w, s, 3, 2);
    answer_all(&w);
    expect_asked(&w, 0, "solve 0,judge 0");
    const Track *t = w.p.track;
    EXPECT(t[0].n_versions == 1 && t[0].kept == 0 && !t[0].note);
    EXPECT_NEAR(track_quality(&t[0]), 0.9, 1e-9);
    EXPECT_STR(t[0].version[0].solution, "12");
    EXPECT(!strstr(t[0].version[0].reasoning, "think>") && strstr(t[0].version[0].reasoning, "3 times 4"));
    EXPECT(t[0].version[0].correct == CORRECT_YES && t[1].version[0].correct == CORRECT_NO);
    EXPECT(t[2].version[0].correct == CORRECT_UNKNOWN); /* there is no reference */
    EXPECT(track_good(&t[1], &w.spec.rubric) &&
           t[1].n_versions == 1);                    /* wrong by the reference, and the judge decides */
    EXPECT(!strstr(str_text(&w.asked[1]), "REF-7")); /* V4 */
    EXPECT(t[0].tokens[ASK_SOLVE] == 10 && t[1].tokens[ASK_JUDGE] == 11 && t[0].tokens[ASK_IMPROVE] == 0);
    end(&w);
}

TEST(a_criterion_that_is_missing_is_asked_for_once_more) {
    static const Script s[] = {{{"\\boxed{12}", HALF, REST}},
                               {{"\\boxed{1}", HALF, "I would rather not."}},
                               {{"\\boxed{1}", "no", "no", "\\boxed{2}", SCORES(0.9)}}};
    World w;
    begin(&w, s, 3, 1);
    answer_all(&w);
    expect_asked(&w, 0, "solve 0,judge 0,judge_again 0");
    const Track *t = w.p.track;
    const char *again = strstr(str_text(&w.asked[0]), "[judge_again 0]");
    EXPECT(again && strstr(again, "- step_by_step_clarity") && strstr(again, "- mathematical_precision"));
    EXPECT(again && !strstr(again, "- correctness") && !strstr(again, "- logical_coherence"));
    EXPECT_NEAR(track_quality(&t[0]), 0.4 * 0.9 + 0.2 * 0.6 + 0.4, 1e-9);
    EXPECT(strstr(t[0].version[0].evaluation, "logical_coherence: 0.6") &&
           strstr(t[0].version[0].evaluation, "clarity: 1"));
    expect_asked(&w, 1, "solve 0,judge 0,judge_again 0"); /* V1: what is still missing does not count */
    EXPECT(t[1].version[0].judgement.n_missing == 2);
    EXPECT_NEAR(track_quality(&t[1]), 0.8, 1e-9);
    expect_asked(&w, 2, "solve 0,judge 0,judge_again 0,improve 1,judge 1"); /* nothing was said: not good */
    EXPECT(isnan(t[2].version[0].judgement.quality) && t[2].kept == 1);     /* V2: known beats unknown */
    end(&w);
}

TEST(a_weak_solution_is_improved_until_it_is_good) {
    static const Script s[] = {
        {{"first \\boxed{11}", SCORES(0.5), "second \\boxed{12}", SCORES(0.7), "third \\boxed{12}", SCORES(0.9)}}};
    World w;
    begin(&w, s, 1, 4);
    answer_all(&w);
    expect_asked(&w, 0, "solve 0,judge 0,improve 1,judge 1,improve 2,judge 2");
    const Track *t = w.p.track;
    EXPECT(t->n_versions == 3 && t->kept == 2 && t->kept_after[0] == 0 && t->kept_after[1] == 1 &&
           t->kept_after[2] == 2);
    EXPECT(t->version[0].correct == CORRECT_NO && t->version[1].correct == CORRECT_YES);
    EXPECT(strstr(str_text(&w.asked[0]), w.spec.rubric.criterion[0].advice) != NULL); /* feedback: below 0.7 */
    EXPECT(strstr(strstr(str_text(&w.asked[0]), "[improve 1]"), "correctness: 0.5") !=
           NULL); /* and the judge's words */
    end(&w);
}

TEST(a_worse_improvement_does_not_replace_the_better) {
    static const Script s[] = {
        {{"FIRST \\boxed{12}", SCORES(0.6), "SECOND \\boxed{9}", SCORES(0.3), "THIRD \\boxed{12}", SCORES(0.6)}},
        {{"FIRST", SCORES(0.6), "SECOND", "nothing", "nothing", "THIRD", SCORES(0.7)}}};
    World w;
    begin(&w, s, 2, 2);
    answer_all(&w);
    const Track *t = w.p.track;
    EXPECT(t[0].n_versions == 3 && t[0].kept == 0); /* worse, then a tie: V2 */
    EXPECT(t[0].kept_after[1] == 0 && t[0].kept_after[2] == 0);
    const char *improve = strstr(str_text(&w.asked[0]), "[improve 2]");
    EXPECT(improve && strstr(improve, "FIRST") && !strstr(improve, "SECOND")); /* V3 */
    EXPECT(t[1].kept_after[1] == 0 && t[1].kept == 2); /* an unknown quality never replaces a known one */
    EXPECT(!track_good(&t[1], &w.spec.rubric));
    end(&w);
}

TEST(no_rounds_means_solve_and_judge) {
    static const Script s[] = {{{"\\boxed{12}", SCORES(0.1)}}};
    World w;
    begin(&w, s, 1, 0);
    answer_all(&w);
    expect_asked(&w, 0, "solve 0,judge 0");
    end(&w);
}

TEST(a_problem_that_ends_early_keeps_what_it_has_and_its_note) {
    static const Script s[] = {{{"x"}},
                               {{"FIRST \\boxed{1}", SCORES(0.5), "SECOND", SCORES(0.9)}},
                               {{"FIRST", SCORES(0.5), "SECOND"}},
                               {{"FIRST", SCORES(0.5), "SECOND", SCORES(0.9)}},
                               {{"\\boxed{12}", SCORES(0.9)}}};
    static const int ends_at[] = {0, 1, 3, 2, 99}; /* which ask of each problem cannot be made */
    int asks[5] = {0};
    World w;
    Ask ask = {0};
    begin(&w, s, 5, 2);
    while (pipeline_next(&w.p, &ask)) {
        if (asks[ask.problem]++ == ends_at[ask.problem]) {
            pipeline_end(&w.p, ask.problem, "too long");
            continue;
        }
        Reply r = reply_to(&w, &ask);
        pipeline_take(&w.p, ask.problem, &r);
    }
    pipeline_ask_free(&ask);
    const Track *t = w.p.track;
    EXPECT(w.p.n_done == 5);
    EXPECT(t[0].n_versions == 0 && t[0].kept == -1 && !strcmp(t[0].note, "too long"));
    EXPECT(t[1].n_versions == 1 && t[1].kept == 0 && isnan(track_quality(&t[1])) && t[1].note); /* not judged */
    EXPECT(t[2].n_versions == 2 && t[2].kept == 0 && t[2].kept_after[1] == 0 && t[2].note);
    EXPECT(t[3].n_versions == 1 && t[3].kept == 0 && t[3].note);
    EXPECT(t[4].kept == 0 && !t[4].note); /* nothing else is lost */
    for (int i = 0; i < 5; i++) {
        json_t *record = record_make(&t[i], &w.spec.rubric);
        EXPECT(record && json_is_string(record_meta(record, "note")) == (i < 4));
        json_decref(record);
    }
    end(&w);
}

/* ---- many at a time ---- */

TEST(asks_carry_their_roles_sampling_and_keys_of_their_own) {
    static const Script s[] = {{{"\\boxed{1}", HALF, "", "\\boxed{2}", HALF, ""}},
                               {{"\\boxed{1}", HALF, "", "\\boxed{2}", HALF, ""}}};
    World w;
    Ask ask = {0};
    uint64_t key[40];
    int n = 0;
    begin(&w, s, 2, 1);
    w.p.spec.rubric.threshold = 0.99;
    while (pipeline_next(&w.p, &ask)) {
        bool judges = ask.role == ASK_JUDGE || ask.role == ASK_JUDGE_AGAIN;
        EXPECT(ask.how.temperature == (judges ? 0.3 : 0.6) && ask.how.top_p == (judges ? 0.9 : 0.95));
        EXPECT(ask.how.max_tokens == (judges ? 1024 : 4096));
        for (int i = 0; i < n; i++) EXPECT(key[i] != ask.key);
        key[n++] = ask.key;
        Reply r = reply_to(&w, &ask);
        pipeline_take(&w.p, ask.problem, &r);
    }
    EXPECT(n == 12);
    end(&w);
    begin(&w, s, 1, 1); /* a rank whose first problem is the other's second: place 6 */
    w.p.track[0].place = 6;
    EXPECT(pipeline_next(&w.p, &ask) && ask.key == key[6]);
    end(&w);
    pipeline_ask_free(&ask);
}

TEST(no_more_problems_are_open_than_allowed) {
    Script s[MOST];
    World w;
    Ask ask = {0};
    for (int i = 0; i < MOST; i++) s[i] = (Script){{"\\boxed{1}", SCORES(0.9)}};
    for (int open = 0; open <= 3; open++) {
        begin(&w, s, MOST, 2);
        w.p.spec.open = open;
        int out = 0;
        bool asked[MOST] = {0};
        while (pipeline_next(&w.p, &ask)) asked[ask.problem] = true, out++;
        EXPECT(out == (open ? open : MOST)); /* one ask of each */
        for (int i = 0; i < MOST; i++) EXPECT(asked[i] == (i < out));
        Reply r = {.text = "\\boxed{1}"};
        pipeline_take(&w.p, 0, &r);
        EXPECT(pipeline_next(&w.p, &ask) && ask.problem == 0 &&
               ask.role == ASK_JUDGE); /* does not wait for the others */
        EXPECT(!pipeline_next(&w.p, &ask));
        r.text = SCORES(1);
        pipeline_take(&w.p, 0, &r);
        if (open) EXPECT(pipeline_next(&w.p, &ask) && ask.problem == open && ask.role == ASK_SOLVE);
        end(&w);
    }
    pipeline_ask_free(&ask);
}

static const Script mixed[] = {
    {{"\\boxed{12}", SCORES(0.9)}},
    {{"one \\boxed{1}", HALF, REST}},
    {{"<b>\"one\", two</b>", SCORES(0.2), "three\nfour", SCORES(0.4), "five", SCORES(0.3)}},
    {{"a", "b", "c", "d", "e", "f", "g"}},
    {{"\\boxed{7}", SCORES(0.75), "\\boxed{12}", SCORES(0.95)}}};
enum { MIXED = 5 };

static json_t *records_of(const World *w) { /* gives */
    json_t *list = json_array();
    for (int64_t i = 0; i < w->p.n; i++) json_array_append_new(list, record_make(&w->p.track[i], &w->spec.rubric));
    return list;
}

static json_t *mixed_records(void) { /* gives */
    World w;
    begin(&w, mixed, MIXED, 2);
    answer_all(&w);
    json_t *list = records_of(&w);
    end(&w);
    return list;
}

TEST(replies_in_any_order_give_the_same_records) {
    json_t *want = mixed_records();
    for (uint32_t trial = 1; trial <= 8; trial++) {
        World w;
        Ask ask[MIXED] = {0};
        int out = 0;
        uint32_t draw = trial * 2654435761u;
        begin(&w, mixed, MIXED, 2);
        w.p.spec.open = trial % 4;
        for (;;) {
            while (out < MIXED && pipeline_next(&w.p, &ask[out])) out++;
            if (!out) break;
            int at = (int)((draw = draw * 1664525u + 1013904223u) >> 16) % out;
            Reply r = reply_to(&w, &ask[at]);
            pipeline_take(&w.p, ask[at].problem, &r);
            Ask last = ask[--out]; /* its place is free */
            ask[out] = ask[at];
            ask[at] = last;
        }
        json_t *have = records_of(&w);
        EXPECT(json_equal(want, have));
        json_decref(have);
        for (int i = 0; i < MIXED; i++) pipeline_ask_free(&ask[i]);
        end(&w);
    }
    json_decref(want);
}

/* ---- the journal ---- */

/* Goes on from a journal for at most `asks` replies; gives how many were made. */
static int go_on(World *w, const char *path, const json_t *job, int asks, Err *e) {
    Journal j;
    Ask ask = {0};
    int n = 0;
    if (!journal_open(&j, path, job, false, &w->p, e) || !joblog_begin(&j, job, e)) return -1;
    for (int64_t i = 0; i < w->p.n; i++) /* the script goes on where the replies end */
        for (int k = 0; k < ASK_ROLES; k++)
            w->said[i] += w->p.track[i].tokens[k] ? (int)(w->p.track[i].tokens[k] / (10 + i)) : 0;
    while (n < asks && pipeline_next(&w->p, &ask)) {
        Reply r = reply_to(w, &ask);
        EXPECT(journal_add(&j, &w->p, ask.problem, &r, e));
        pipeline_take(&w->p, ask.problem, &r);
        n++;
    }
    pipeline_ask_free(&ask);
    joblog_close(&j);
    return n;
}

static json_t *a_job(const char *seed) {
    return json_pack("{s:s, s:s}", "model", "abc", "seed", seed);
}

TEST(a_journal_cut_anywhere_goes_on_to_the_same_records) {
    Err e = {0};
    World w;
    Str whole = {0};
    json_t *job = a_job("42"), *want = mixed_records();
    test_tmp_in_memory();
    begin(&w, mixed, MIXED, 2);
    int total = go_on(&w, test_path("j"), job, 1000, &e);
    EXPECT(total > 20 && w.p.n_done == MIXED);
    end(&w);
    EXPECT_OK(file_read(test_path("j"), &whole, 0, &e));
    for (int64_t cut = 0; cut <= whole.len; cut += 1 + (cut > 80) * 37) {
        file_write_all(test_path("k"), whole.data, cut, NULL);
        int lines = -1;
        for (int64_t i = 0; i < cut; i++) lines += whole.data[i] == '\n';
        begin(&w, mixed, MIXED, 2);
        int made = go_on(&w, test_path("k"), job, 2, &e); /* and killed once more */
        end(&w);
        begin(&w, mixed, MIXED, 2);
        made += go_on(&w, test_path("k"), job, 1000, &e);
        EXPECT(made == total - (lines > 0 ? lines : 0)); /* nothing twice, nothing lost */
        json_t *have = records_of(&w);
        if (!EXPECT(json_equal(have, want))) test_note("    cut at %lld: %s", (long long)cut, e.text);
        json_decref(have);
        end(&w);
    }
    json_decref(job), json_decref(want);
    str_free(&whole);
}

static void expect_refused(const char *text, const json_t *job, const char *part) {
    Err e = {0};
    World w;
    if (text) file_write_all(test_path("j"), text, (int64_t)strlen(text), NULL);
    begin(&w, mixed, MIXED, 2);
    if (!EXPECT(go_on(&w, test_path("j"), job, 1, &e) < 0 && strstr(e.text, part) && strstr(e.text, "j")))
        test_note("    wanted '%s': %s", part, e.text);
    end(&w);
}

TEST(a_journal_of_another_job_is_refused_by_what_differs) {
    Err e = {0};
    World w;
    Journal j;
    json_t *job = a_job("42"), *other = a_job("43"), *more = json_pack("{s:s}", "model", "abc");
    begin(&w, mixed, MIXED, 2);
    EXPECT(go_on(&w, test_path("j"), job, 3, &e) == 3);
    end(&w);
    expect_refused(NULL, other, "seed is 42 there, 43 here");
    expect_refused(NULL, more, "seed is 42 there, not set here");
    begin(&w, mixed, MIXED, 2);
    EXPECT_OK(journal_open(&j, test_path("j"), job, false, &w.p, &e));
    EXPECT(w.p.n_begun == 2 && w.p.n_done == 1);
    expect_refused(NULL, job, "in use by another run"); /* while it is open */
    joblog_close(&j);
    end(&w);
    begin(&w, mixed, MIXED, 2);
    EXPECT_OK(journal_open(&j, test_path("j"), other, true, &w.p, &e)); /* anew */
    EXPECT(file_exists(test_path("j")));
    EXPECT_OK(joblog_begin(&j, other, &e));
    EXPECT(w.p.n_begun == 0);
    EXPECT_OK(joblog_remove(&j, &e));
    EXPECT(!file_exists(test_path("j")));
    end(&w);
#define FIRST "{\"reason\":1,\"job\":{\"model\":\"abc\",\"seed\":\"42\"}}\n"
#define SOLVED \
    "{\"place\":5,\"role\":\"solve\",\"round\":0,\"tokens\":1,\"cut\":false,\"time\":1.0,\"text\":\"x\"}\n"
    expect_refused("{\"text\":\"somebody's notes\"}\n", job, "is not the progress");
    expect_refused(FIRST "nonsense\n" SOLVED, job, "j:2: is not JSON");
    expect_refused(FIRST SOLVED SOLVED, job, "j:3: a reply that no problem waits for");
    expect_refused(FIRST "{\"place\":4,\"role\":\"solve\",\"round\":0,\"text\":\"x\"}\n", job,
                   "j:2: a reply that no problem");
    expect_refused(FIRST "{\"place\":5,\"role\":\"judge\",\"round\":0,\"text\":\"x\"}\n", job,
                   "j:2: a reply that no problem");
    expect_refused(FIRST "{\"place\":5,\"role\":\"solve\",\"round\":1,\"text\":\"x\"}\n", job,
                   "j:2: a reply that no problem");
    json_decref(job), json_decref(other), json_decref(more);
}

TEST(replies_are_made_fit_to_keep) {
    Str s = {0};
    journal_clean(&s, "a\0b\xff\xc3\xa9\xe2\x82", 8);
    EXPECT_STR(s.data,
               "a\xef\xbf\xbd"
               "b\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
    str_free(&s);
}

/* ---- results ---- */

static json_t *track_record(void *user, int64_t i) {
    const World *w = user;
    return record_make(&w->p.track[i], &w->spec.rubric);
}

TEST(results_hold_every_version_and_add_up) {
    Err e = {0};
    World w;
    Tally t;
    Str csv = {0}, html = {0};
    begin(&w, mixed, MIXED, 2);
    answer_all(&w);
    json_t *facts = json_pack("{s:s}", "model", "<m>");
    Results r = {.out = test_path("r.json"),
                 .rubric = &w.spec.rubric,
                 .facts = facts,
                 .at = track_record,
                 .user = &w,
                 .n = MIXED};
    EXPECT_OK(results_write(&r, &t, &e));
    json_t *have = json_load_file(test_path("r.json"), 0, NULL), *want = records_of(&w);
    char *a = json_dumps(have, JSON_REAL_PRECISION(9)), *b = json_dumps(want, JSON_REAL_PRECISION(9));
    EXPECT_STR(a, b);
    mem_free(a), mem_free(b);
    const json_t *third = json_array_get(have, 2), *older = record_meta(third, "previous_versions");
    EXPECT_STR(record_text(third, "reasoning"), "three\nfour"); /* 0.4 beats 0.2 and 0.3 */
    EXPECT(json_integer_value(record_meta(third, "improvement_iteration")) == 2);
    EXPECT(json_integer_value(record_meta(third, "kept_iteration")) == 1 && json_array_size(older) == 2);
    EXPECT_STR(record_text(json_array_get(older, 1), "reasoning"), "five");
    EXPECT_STR(record_text(third, "timestamp"), "2023-11-14T22:13:22Z");
    EXPECT(json_is_null(record_meta(third, "correct")) &&
           json_is_true(record_meta(json_array_get(have, 0), "correct")));

    EXPECT(t.n == MIXED && t.rounds == 2 && t.with_reference == 4 && t.noted == 0);
    EXPECT(t.after[0].correct == 1 && t.after[1].correct == 1 &&
           t.after[2].correct == 1); /* problem 4 has REF-7 */
    EXPECT(t.after[0].good == 2 && t.after[1].good == 3 && t.after[0].judged == 4);
    EXPECT(t.after[1].fresh == 2 && t.after[2].fresh == 0);
    EXPECT_NEAR(t.after[2].quality, 0.9 + (0.4 * 0.9 + 0.2 * 0.6 + 0.4) + 0.4 + 0.95, 1e-9);

    EXPECT_OK(file_read(test_path("r.csv"), &csv, 0, &e));
    EXPECT(strstr(csv.data, "\nPROBLEM-2,three") == NULL); /* a line break is quoted */
    EXPECT(strstr(csv.data, "PROBLEM-2,four,\"three\nfour\",0.4,2023-11-14T22:13:22Z,,,2,1,0.4,0.4,0.4,0.4,\n") !=
           NULL);
    EXPECT_OK(file_read(test_path("r.html"), &html, 0, &e));
    EXPECT(strstr(html.data, "&lt;b&gt;&quot;one&quot;, two&lt;/b&gt;") && !strstr(html.data, "<b>\"one\""));
    EXPECT(strstr(html.data, "&lt;m&gt;") && strstr(html.data, "</html>") && !strstr(html.data, "http"));
    EXPECT(html_fault(html.data) == NULL);
    json_decref(have), json_decref(want), json_decref(facts);
    str_free(&csv), str_free(&html);
    end(&w);
}

static json_t *rank_record(void *user, int64_t i) { /* of rank 0: 0 and 1; of rank 1: none; of rank 2: the rest */
    const World *w = user;
    return track_record(user, w->said[MOST - 1] + i);
}

TEST(parts_of_ranks_become_what_one_process_writes) {
    static const int from[] = {0, 2, 2, MIXED};
    Err e = {0};
    World w;
    Tally t, all;
    bool merged;
    int missing;
    Str one = {0}, both = {0};
    char out[300];
    begin(&w, mixed, MIXED, 2);
    answer_all(&w);
    json_t *facts = json_object();
    Results r = {.out = test_path("one.json"),
                 .rubric = &w.spec.rubric,
                 .facts = facts,
                 .at = track_record,
                 .user = &w,
                 .n = MIXED};
    EXPECT_OK(results_write(&r, &all, &e));
    snprintf(out, sizeof out, "%s", test_path("many.json"));
    r.out = out;
    r.at = rank_record;
    for (int rank = 2; rank >= 0; rank--) { /* the first one is the last to end */
        json_t *job = json_pack("{s:s, s:s}", "seed", "42", "rank", rank ? "x" : "y");
        EXPECT_OK(results_merge(out, &merged, &missing, &t, &e));
        EXPECT(!merged && missing == 0);
        w.said[MOST - 1] = from[rank];
        r.n = from[rank + 1] - from[rank];
        EXPECT_OK(results_write_rank(&r, &t, job, rank, 3, &e));
        json_decref(job);
    }
    file_rename(test_path("many.json.rank-1"), test_path("aside"), NULL);
    EXPECT_OK(results_merge(out, &merged, &missing, &t, &e));
    EXPECT(!merged && missing == 1 && !file_exists(out));
    file_rename(test_path("aside"), test_path("many.json.rank-1"), NULL);
    EXPECT_OK(results_merge(out, &merged, &missing, &t, &e));
    EXPECT(merged && t.n == MIXED && t.after[2].good == all.after[2].good && t.tokens == all.tokens);
    EXPECT(file_read(test_path("one.json"), &one, 0, &e) && file_read(out, &both, 0, &e));
    EXPECT_STR(str_text(&one), str_text(&both));
    EXPECT(!file_exists(test_path("many.json.rank-0")) && !file_exists(test_path("many.json.rank-2")));
    str_free(&one), str_free(&both);
    json_decref(facts);
    end(&w);
}

TEST(parts_of_another_job_are_not_merged) {
    Err e = {0};
    World w;
    Tally t;
    bool merged;
    int missing;
    begin(&w, mixed, MIXED, 2);
    answer_all(&w);
    json_t *facts = json_object();
    Results r = {.out = test_path("r.json"),
                 .rubric = &w.spec.rubric,
                 .facts = facts,
                 .at = track_record,
                 .user = &w,
                 .n = MIXED};
    for (int rank = 0; rank < 2; rank++) {
        json_t *job = a_job(rank ? "43" : "42");
        EXPECT_OK(results_write_rank(&r, &t, job, rank, 2, &e));
        json_decref(job);
    }
    EXPECT(!results_merge(r.out, &merged, &missing, &t, &e) && strstr(e.text, "seed is 43 there, 42 here"));
    EXPECT(!merged && !file_exists(r.out) && file_exists(test_path("r.json.rank-1")));
    json_decref(facts);
    end(&w);
}
