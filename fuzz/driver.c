/* driver.c - libFuzzer's door to the one target that is linked with it. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CHECK(fuzz_n_targets == 1);
    fuzz_run(&fuzz_target[0], data, (int64_t)size);
    return 0;
}
