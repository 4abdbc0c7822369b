/* test_allocations.c - a played step allocates nothing, by anyone in the process: a run of many steps makes as many
 * allocations as a run of few. Counted from outside, by interposing malloc and mmap. */
#include <stdlib.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { THREADS = 2 };

static long allocations(const char *flags, int steps) {
    char command[1500], file[200];
    const char *binary = getenv("SNUG"), *preload = getenv("PRELOAD");
    snprintf(file, sizeof file, "%s/count", test_tmp());
    snprintf(command, sizeof command,
             "COUNT_FILE=%s LD_PRELOAD=%s %s train --model %s/m --data %s/rows.jsonl --out %s/o%d --overwrite --seq "
             "48 --steps %d --schedule constant --log-steps 1000 --val-split 0.2 --threads %d --budget 1GiB %s "
             ">/dev/null 2>&1",
             file, preload, binary ? binary : "./snug", test_tmp(), test_tmp(), test_tmp(), steps, steps, THREADS,
             flags);
    if (!EXPECT(system(command) == 0)) test_note("    %s", command);
    Str text = {0};
    file_read(file, &text, 0, NULL);
    long n = atol(str_text(&text));
    str_free(&text);
    return n;
}

TEST(more_steps_make_no_more_allocations) {
    const char *preload = getenv("PRELOAD");
    if (!preload || !*preload) {
        test_skip("no library to count allocations with (make check sets PRELOAD; not with DEBUG=1)");
        return;
    }
    Ran r = snug_run(
        "init --model qwen2.5-0.5b --out %s/m --set num_hidden_layers=2 --set hidden_size=64 --set "
        "num_attention_heads=4 --set num_key_value_heads=2 --set intermediate_size=96 --set vocab_size=200",
        test_tmp());
    EXPECT(r.code == 0);
    ran_free(&r);
    Str rows = {0};
    char path[200];
    for (int i = 0; i < 20; i++) str_addf(&rows, "{\"ids\":[%d,3,5,7,11,13,17,19,23,%d,31,37]}\n", i, 2 * i);
    snprintf(path, sizeof path, "%s/rows.jsonl", test_tmp());
    file_write_all(path, rows.data, rows.len, NULL);
    str_free(&rows);
    static const char *const kinds[] = {"--mode full --micro-batch 2 --accum 2",
                                        "--mode lora --recompute block --micro-batch 3"};
    for (int i = 0; i < 2; i++) {
        /* one evaluation and one checkpoint in each; logged steps are covered by allocations_after_first_step */
        long few = allocations(kinds[i], 9), more = allocations(kinds[i], 60);
        /* a saved text may be a digit longer; 50 steps that allocate show as 50 */
        if (!EXPECT(few > 0 && labs(more - few) < 2))
            test_note("    %s: %ld allocations in 9 steps, %ld in 60", kinds[i], few, more);
    }
}
