/* test_going_back.c - a run that goes on from an earlier checkpoint than its newest: what came later belongs to a
 * course that was given up, and is neither taken for the newest nor kept in place of what is saved from then on. */
#include <string.h>

#include "base/file.h"
#include "tests/test.h"
#include "tests/world.h"

#define IN "train --model ../model --data ../rows.jsonl --seq 16 --threads 1 --log-steps 1 "

static bool stands(const char *folder, int step) {
    return file_exists(world_path("w/%s/checkpoint-%d/trainer_state.json", folder, step));
}

static bool made(const char *arguments) {
    return world_make(world_binary()) && world_must("w", IN "--steps 6 --save-steps 2 --out run") &&
           world_must("w", arguments);
}

TEST(a_run_taken_back_to_an_earlier_checkpoint_is_resumed_from_its_own_newest) {
    Str err = {0};
    if (!made(IN "--steps 5 --save-steps 2 --out run --resume checkpoint-2")) return;
    EXPECT(stands("run", 2) && stands("run", 4) && stands("run", 5) && !stands("run", 6));
    EXPECT(world_must("w", "train --config run/config.yaml --resume --steps 7"));
    world_said(NULL, &err, "w");
    EXPECT(strstr(str_text(&err), "going on from run/checkpoint-5"));
    str_free(&err);
}

TEST(a_checkpoint_saved_after_going_back_is_not_dropped_for_a_later_one) {
    if (!made(IN "--steps 4 --save-steps 1 --save-total-limit 2 --out run --resume checkpoint-2")) return;
    EXPECT(stands("run", 3) && stands("run", 4) && !stands("run", 6));
}

/* Until it has saved one of its own, what stands there is still the best that there is. */
TEST(later_checkpoints_stay_where_the_run_saves_elsewhere) {
    if (!made(IN "--steps 4 --save-steps 2 --out other --resume run/checkpoint-2")) return;
    EXPECT(stands("other", 4) && stands("run", 4) && stands("run", 6));
}

TEST(a_checkpoint_of_the_current_folder_is_not_taken_for_one_of_out) {
    Str err = {0};
    if (!made(IN "--steps 2 --save-steps 2 --seed 7 --out .")) return;
    EXPECT(world_must("w", IN "--steps 6 --save-steps 2 --out run --resume checkpoint-2"));
    world_said(NULL, &err, "w");
    EXPECT(strstr(str_text(&err), "going on from run/checkpoint-2"));
    str_free(&err);
}
