/* fuzz_config.c - a config.json: what is accepted is written and read back to the same numbers. */
#include <math.h>

#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "model/config.h"

FUZZ(config, 1 * MIB, 128) {
    ModelConfig c, again;
    Err e;
    fuzz_write("config.json", data, size);
    if (!config_from_file(&c, fuzz_folder(), &e)) return;
    float *frequencies = MEM_NEW(float, c.head_dim / 2), scale;
    config_rope(&c, frequencies, &scale);
    for (int i = 0; i < c.head_dim / 2; i++) CHECK(isfinite(frequencies[i]) && isfinite(scale));
    mem_free(frequencies);
    CHECK(config_parameters(&c) > 0);
    json_t *json = config_to_json(&c);
    CHECK_MSG(config_from_json(&again, json, "again", &e), "%s", e.text);
    CHECK(c.hidden == again.hidden && c.ffn == again.ffn && c.vocab == again.vocab && c.layers == again.layers);
    CHECK(c.head_dim == again.head_dim && c.kv_heads == again.kv_heads && c.tied == again.tied);
    CHECK(c.sliding_window == again.sliding_window && c.qkv_bias == again.qkv_bias && c.dtype == again.dtype);
    json_decref(json);
}
