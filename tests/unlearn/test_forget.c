/* test_forget.c - which samples a forget set names, and which updates saw them. */
#include "base/file.h"
#include "tests/test.h"
#include "unlearn/forget.h"

/* A run of as many updates as samples: update s saw samples s and s + 1. */
static void fill(History *h, HistoryStep *step, int64_t *sample, int64_t n) {
    *h = (History){.step = step, .n_steps = n};
    for (int64_t s = 0; s < n; s++) {
        sample[2 * s] = s, sample[2 * s + 1] = (s + 1) % n;
        step[s] = (HistoryStep){.step = s, .sample = sample + 2 * s, .n = 2};
    }
}

static HistoryStep steps[TOFU_SAMPLES];
static int64_t samples[2 * TOFU_SAMPLES];

TEST(tofu_splits_are_the_tail_of_its_rows_not_the_head) {
    static const struct {
        const char *name;
        int64_t first;
    } splits[] = {{"forget01", 3960}, {"forget05", 3800}, {"forget10", 3600}};
    History h;
    fill(&h, steps, samples, TOFU_SAMPLES);
    for (int i = 0; i < 3; i++) {
        ForgetSet f;
        Err e = {0};
        EXPECT_OK(forget_open(&f, splits[i].name, TOFU_SAMPLES, &h, &e));
        EXPECT(f.n == TOFU_SAMPLES - splits[i].first && f.sample[0] == splits[i].first &&
               f.sample[f.n - 1] == TOFU_SAMPLES - 1);
        EXPECT(!f.removed[0] && f.removed[TOFU_SAMPLES - 1]);
        EXPECT(f.n_steps == f.n + 1 && f.step[0] == splits[i].first - 1);
        forget_free(&f);
    }
    ForgetSet f;
    Err e = {0};
    EXPECT(!forget_open(&f, "forget01", 100, &h, &e) && strstr(e.text, "TOFU"));
    forget_free(&f);
}

static bool open_text(ForgetSet *f, const char *text, Err *e) {
    static HistoryStep few[10];
    static int64_t seen[20];
    History h;
    fill(&h, few, seen, 10);
    EXPECT(file_write_all(test_path("f"), text, (int64_t)strlen(text), NULL));
    *e = (Err){0};
    return forget_open(f, test_path("f"), 10, &h, e);
}

TEST(forget_sets_are_lists_or_lines_of_numbers) {
    static const char *const same[] = {"[7, 2, 7]", "7\n2\n", "2\r\n\n7\n7", "  [2,7]\n",
                                       "\xef\xbb\xbf" "7\r\n2\r\n", "\xef\xbb\xbf[2,7]"};
    static const struct {
        const char *text, *says;
    } bad[] = {{"[1, 2", "is not JSON"},
               {"[1, \"2\"]", "element 1"},
               {"1\nx\n", ":2: is not a sample number"},
               {"", "names no sample"},
               {"10\n", "there is no sample 10"},
               {"-1\n", "there is no sample -1"},
               {"1 2\n", "is not a sample number"}};
    ForgetSet f;
    Err e;
    for (int i = 0; i < (int)(sizeof same / sizeof *same); i++) {
        EXPECT_OK(open_text(&f, same[i], &e));
        EXPECT(f.n == 2 && f.sample[0] == 2 && f.sample[1] == 7);
        EXPECT(f.n_steps == 4 && f.step[0] == 1 && f.step[3] == 7);
        forget_free(&f);
    }
    for (int i = 0; i < (int)(sizeof bad / sizeof *bad); i++) {
        if (!EXPECT(!open_text(&f, bad[i].text, &e) && strstr(e.text, bad[i].says)))
            test_note("    '%s': %s", bad[i].text, e.text);
        forget_free(&f);
    }
    History h = {0};
    EXPECT(!forget_open(&f, test_path("nothing"), 10, &h, &e) && strstr(e.text, "forget01"));
    forget_free(&f);
}

/* Sample 3 was seen by updates 2 and 3, sample 4 by 3 and 4. */
TEST(a_later_request_loses_what_an_earlier_one_takes_out) {
    ForgetSet first, later;
    History h;
    Err e = {0};
    fill(&h, steps, samples, 10);
    for (int whole = 0; whole < 2; whole++) {
        EXPECT(file_write_all(test_path("first"), "[3]", 3, NULL));
        EXPECT(file_write_all(test_path("later"), "[3, 4]", 6, NULL));
        EXPECT_OK(forget_open(&first, test_path("first"), 10, &h, &e));
        EXPECT_OK(forget_open(&later, test_path("later"), 10, &h, &e));
        EXPECT(later.n == 2 && later.n_steps == 3);
        forget_leave_out(&later, &first, &h, whole);
        EXPECT(later.n == 1 && later.sample[0] == 4 && !later.removed[3] && later.removed[4]);
        EXPECT(whole ? later.n_steps == 1 && later.step[0] == 4 : later.n_steps == 2 && later.step[0] == 3);
        forget_leave_out(&first, &first, &h, whole);
        EXPECT(!first.n && !first.n_steps);
        forget_free(&first);
        forget_free(&later);
    }
}
