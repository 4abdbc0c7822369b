/* fuzz_safetensors.c - a .safetensors file: what is accepted can be found by name and read to its last byte. */
#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "store/safetensors.h"

FUZZ(safetensors, 1 * MIB, 128) {
    StSet s;
    Err e;
    if (!st_open(&s, fuzz_write("model.safetensors", data, size), &e)) return;
    int64_t total = 0;
    for (int64_t i = 0; i < s.n; i++) {
        const StTensor *t = &s.tensor[i];
        CHECK(st_find(&s, t->name) == t && t->bytes == st_tensor_bytes(t) && t->bytes <= size);
        char *to = mem_alloc(t->bytes);
        CHECK_MSG(st_read(&s, t, to, 0, t->bytes, &e), "%s", e.text);
        CHECK(!st_read(&s, t, to, t->bytes, 1, &e));
        mem_free(to);
        total += t->bytes;
    }
    CHECK(total == s.total_bytes && total < size);
    st_meta(&s, "format");
    st_close(&s);
}
