/* fuzz_index.c - model.safetensors.index.json and two shards, a.safetensors and b.safetensors. The input is all three
 * with a byte 0xff between them, which none of them needs. */
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "store/safetensors.h"

FUZZ(index, 1 * MIB, 128) {
    static const char *const names[] = {"model.safetensors.index.json", "a.safetensors", "b.safetensors"};
    const uint8_t *at = data, *end = data + size;
    for (int i = 0; i < COUNT_OF(names); i++) {
        const uint8_t *stop = i < 2 && at ? memchr(at, 0xff, (size_t)(end - at)) : NULL;
        if (at) fuzz_write(names[i], at, (stop ? stop : end) - at);
        else unlink(fuzz_path(names[i]));
        at = stop ? stop + 1 : NULL;
    }
    StSet s;
    Err e;
    if (!st_open(&s, fuzz_folder(), &e)) return;
    for (int64_t i = 0; i < s.n; i++) CHECK(st_find(&s, s.tensor[i].name) == &s.tensor[i] && s.tensor[i].bytes <= size);
    st_close(&s);
}
