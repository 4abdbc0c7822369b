/* fuzz.h - a fuzz target: one reader of files, given bytes from anywhere.
 *
 *     FUZZ(safetensors, 1 * MIB, 128) {                      // name, constant, times
 *         StSet s;
 *         Err e;
 *         if (st_open(&s, fuzz_write("model.safetensors", data, size), &e)) st_close(&s);
 *     }
 *
 * Three things make a finding: a sanitizer's report, a CHECK that fails (the reader's own, or one written into the
 * target: what was accepted must also be written and read back), and memory: at no moment may the target hold more
 * than constant + times x size bytes. The constant is what an honest reader takes whatever the file (buffers, an
 * arena's first chunk); the factor is what a JSON tree takes for a byte of text. So a number in a file that asks for
 * memory of its own choosing is found with the smallest file that has it.
 *
 * driver.c runs one target under libFuzzer; replay.c runs the kept files of all targets, with any compiler. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/units.h"

typedef void FuzzFn(const uint8_t *data, int64_t size);

typedef struct FuzzTarget {
    const char *name;
    FuzzFn *fn;
    int64_t constant_bytes, times;
} FuzzTarget;

enum { FUZZ_TARGETS_MAX = 32 };
extern FuzzTarget fuzz_target[FUZZ_TARGETS_MAX];
extern int fuzz_n_targets;

void fuzz_register(FuzzTarget t);
void fuzz_run(const FuzzTarget *t, const uint8_t *data, int64_t size); /* with the bound on memory */

const char *fuzz_folder(void); /* of this process, removed at its end; in $TMPDIR, else /tmp */
const char *fuzz_path(const char *name); /* a path in there; one at a time */
const char *fuzz_write(const char *name, const void *data, int64_t size); /* the same, after writing the file */

#define FUZZ(name, constant_bytes, times)                                                  \
    static void run_##name(const uint8_t *data, int64_t size);                             \
    __attribute__((constructor)) static void register_##name(void) {                       \
        fuzz_register((FuzzTarget){#name, run_##name, (constant_bytes), (times)});         \
    }                                                                                      \
    static void run_##name(const uint8_t *data, int64_t size)

#endif
