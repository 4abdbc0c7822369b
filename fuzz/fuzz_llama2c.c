/* fuzz_llama2c.c - a llama2.c checkpoint: what is accepted becomes a folder whose two files can be read. */
#include "base/file.h"
#include "fuzz/fuzz.h"
#include "model/config.h"
#include "store/llama2c.h"
#include "store/safetensors.h"

FUZZ(llama2c, 4 * MIB, 64) {
    char out[300];
    StSet s;
    ModelConfig c;
    Err e;
    snprintf(out, sizeof out, "%s", fuzz_path("converted"));
    if (!llama2c_convert(fuzz_write("model.bin", data, size), out, &e)) {
        CHECK(!file_exists(out));
        return;
    }
    CHECK_MSG(st_open(&s, out, &e), "%s", e.text);
    CHECK(s.total_bytes < size);
    st_close(&s);
    config_from_file(&c, out, &e); /* may be refused: sizes of the header that no model has */
    CHECK(file_remove_tree(out, &e));
}
