/* fuzz_trainer_state.c - a trainer_state.json: what is accepted is written and read back the same. */
#include <string.h>

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "store/trainer_state.h"

FUZZ(trainer_state, 1 * MIB, 128) {
    TrainerState s, again;
    Err e;
    fuzz_write("trainer_state.json", data, size);
    trainer_state_is_whole(fuzz_folder(), &e);
    if (!trainer_state_read(&s, fuzz_folder(), &e)) return;
    CHECK_MSG(trainer_state_write(fuzz_folder(), &s, &e), "%s", e.text);
    CHECK_MSG(trainer_state_read(&again, fuzz_folder(), &e), "%s", e.text);
    CHECK_MSG(trainer_state_check_settings(&s, &again, &e), "%s", e.text);
    CHECK(s.global_step == again.global_step && s.n_log == again.n_log && s.rng_seed == again.rng_seed);
    CHECK(s.data_row == again.data_row && s.best_step == again.best_step);
    trainer_state_free(&s);
    trainer_state_free(&again);
}
