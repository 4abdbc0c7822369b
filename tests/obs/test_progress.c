/* test_progress.c - speed, time left, and the line. */
#include "base/mem.h"
#include "obs/progress.h"
#include "tests/test.h"

TEST(progress_speed_leaves_out_the_first_step) {
    Progress p;
    progress_begin(&p, 0, 100, 1000);
    EXPECT(progress_left_seconds(&p) == -1 && progress_tokens_per_s(&p) == 0);
    progress_step(&p, 500, 10, 0, 1010); /* slow: warms up */
    EXPECT_NEAR(progress_tokens_per_s(&p), 50, 1e-9);
    EXPECT_NEAR(progress_left_seconds(&p), 990, 1e-9);
    for (int i = 1; i <= 9; i++) progress_step(&p, 500, 2, 0.5, 1010 + 2 * i);
    EXPECT_NEAR(progress_tokens_per_s(&p), 250, 1e-9);
    EXPECT_NEAR(progress_recent_per_s(&p), 250, 1e-9);
    EXPECT_NEAR(progress_wait_share(&p), 0.25, 1e-9);
    EXPECT_NEAR(progress_left_seconds(&p), 180, 1e-9);
    EXPECT_NEAR(progress_job_seconds(&p), 200, 1e-9);
}

TEST(progress_pauses_count_for_the_time_left_only) {
    Progress p;
    progress_begin(&p, 40, 100, 0); /* resumed */
    progress_step(&p, 100, 1, 0, 1);
    progress_step(&p, 100, 1, 0, 2);
    progress_step(&p, 100, 1, 0, 7); /* four seconds of evaluation before it */
    EXPECT(p.done_steps == 43);
    EXPECT_NEAR(progress_tokens_per_s(&p), 100, 1e-9);
    EXPECT_NEAR(progress_left_seconds(&p), 57 * 3.0, 1e-9);
}

TEST(progress_recent_speed_forgets_old_steps) {
    Progress p;
    double now = 0;
    progress_begin(&p, 0, 1000, now);
    for (int i = 0; i < 100; i++) progress_step(&p, 100, 1, 0, now += 1);
    for (int i = 0; i < PROGRESS_WINDOW; i++) progress_step(&p, 100, 4, 2, now += 4);
    EXPECT_NEAR(progress_recent_per_s(&p), 25, 1e-9);
    EXPECT_NEAR(progress_wait_share(&p), 0.5, 1e-9);
    EXPECT(progress_tokens_per_s(&p) > 25);
}

/* Many are under way at once, and the first ones end together: none of them took no time. */
TEST(progress_of_steps_beside_each_other_counts_from_the_beginning) {
    Progress p;
    progress_begin(&p, 10, 50, 100);
    p.at_once = true;
    EXPECT(progress_left_seconds(&p) == -1);
    progress_step(&p, 8000, 0, 0, 108); /* with those of the answers that go on */
    EXPECT_NEAR(progress_recent_per_s(&p), 1000, 1e-9);
    EXPECT_NEAR(progress_left_seconds(&p), 39 * 8.0, 1e-9);
    progress_step(&p, 2, 0, 0, 108);
    EXPECT_NEAR(progress_recent_per_s(&p), 8002 / 8.0, 1e-9);
    EXPECT_NEAR(progress_tokens_per_s(&p), 8002 / 8.0, 1e-9);
    EXPECT_NEAR(progress_left_seconds(&p), 38 * 4.0, 1e-9);
}

TEST(progress_line_is_plain_or_with_a_bar_and_fits) {
    Progress p;
    char text[200], small[31];
    ProgressFacts f = {.loss = 2.50126, .norm = 1.204, .lr = 1e-4};
    progress_begin(&p, 19, 100, 0);
    progress_step(&p, 12345, 1, 0.005, 2.5);
    progress_text(text, sizeof text, &p, &f, false);
    EXPECT_STR(text, "step 20/100  loss 2.5013  left 3 min 20 s  12,345 tok/s  lr 1.00e-04  norm 1.2  data 0.5%");
    f.norm = (double)NAN;
    progress_text(text, sizeof text, &p, &f, true);
    EXPECT_STR(text,
               "[====>                   ]  20%  step 20/100  loss 2.5013  left 3 min 20 s  12,345 tok/s  "
               "lr 1.00e-04  data 0.5%");
    progress_text(small, sizeof small, &p, &f, true); /* a narrow terminal */
    EXPECT_STR(small, "[==>       ]  20%  step 20/100");
    int64_t before = mem_stats().requests;
    progress_text(text, sizeof text, &p, &f, true);
    EXPECT(mem_stats().requests == before);
}
