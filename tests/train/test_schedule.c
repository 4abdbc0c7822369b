/* test_schedule.c - learning rates step by step, and the loss scale of fp16. */
#include "tests/test.h"
#include "train/run.h"

TEST(a_warm_up_rises_from_zero_and_the_schedule_takes_over) {
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 10, .total_steps = 110};
    EXPECT_NEAR(schedule_lr(&s, 0), 0, 0);
    EXPECT_NEAR(schedule_lr(&s, 5), 5e-4, 1e-12);
    EXPECT_NEAR(schedule_lr(&s, 10), 1e-3, 1e-12);
    EXPECT_NEAR(schedule_lr(&s, 60), 5.5e-4, 1e-12); /* half way: the mean of both ends */
    EXPECT_NEAR(schedule_lr(&s, 110), 1e-4, 1e-12);
    for (int64_t step = 11; step <= 110; step++) EXPECT(schedule_lr(&s, step) < schedule_lr(&s, step - 1));
    s.kind = SCHEDULE_LINEAR;
    EXPECT_NEAR(schedule_lr(&s, 35), 1e-3 - 0.25 * 9e-4, 1e-12);
    s.kind = SCHEDULE_CONSTANT;
    EXPECT_NEAR(schedule_lr(&s, 109), 1e-3, 1e-12);
}

TEST(an_overflow_halves_the_loss_scale_and_good_updates_double_it) {
    LossScale s = {.scale = 1024};
    s = loss_scale_after(s, 3, false);
    EXPECT(s.scale == 512 && s.skipped == 1);
    for (int i = 0; i < 3; i++) s = loss_scale_after(s, 3, true);
    EXPECT(s.scale == 1024 && s.skipped == 1);
    s = loss_scale_after(s, 3, true);
    s = loss_scale_after(s, 3, false); /* begins counting anew */
    for (int i = 0; i < 2; i++) s = loss_scale_after(s, 3, true);
    EXPECT(s.scale == 512 && s.skipped == 2);
    LossScale off = {.scale = 1};
    EXPECT(loss_scale_after(off, 0, true).scale == 1);
}
