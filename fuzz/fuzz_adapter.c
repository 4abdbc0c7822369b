/* fuzz_adapter.c - an adapter_config.json: what is accepted is written and read back the same. */
#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "store/adapter.h"

FUZZ(adapter, 1 * MIB, 128) {
    AdapterConfig c, again;
    Err e;
    fuzz_write("adapter_config.json", data, size);
    if (!adapter_config_read(&c, fuzz_folder(), &e)) return;
    CHECK(isfinite(adapter_scale(&c)));
    CHECK_MSG(adapter_config_write(fuzz_folder(), &c, &e), "%s", e.text);
    CHECK_MSG(adapter_config_read(&again, fuzz_folder(), &e), "%s", e.text);
    CHECK(c.rank == again.rank && c.alpha == again.alpha && c.dropout == again.dropout && c.targets == again.targets);
    CHECK(!strcmp(c.base_model, again.base_model));
}
