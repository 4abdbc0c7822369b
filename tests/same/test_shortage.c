/* test_shortage.c - a run that cannot have its memory goes on with a smaller plan to the same bits, or stops with
 * the numbers. The system's refusal is a fault (base/fault.h). */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/same/same.h"
#include "tests/test.h"
#include "tests/world.h"

/* From here on tests run that binary; what was set before comes back. */
static const char *run_binary(const char *binary) {
    static char before[500];
    const char *now = getenv("SNUG");
    snprintf(before, sizeof before, "%s", now ? now : "./snug");
    setenv("SNUG", binary, 1);
    return before;
}

#define JOB "--micro-batch 8 --budget 1GiB "

TEST(a_refused_pool_is_followed_by_a_smaller_plan_with_the_same_bits) {
    const char *faulty = world_faulty();
    if (!faulty) return;
    snug_make_job((SnugJob){6, 64, 112});
    Same whole = same_train("whole", JOB);
    const char *before = run_binary(faulty);
    Same less = same_train("less", JOB "--fault map:1"),
         refused = same_train("stop", JOB "--fault map:1 --on-shortage stop"),
         fixed = same_train("fixed", JOB "--fault map:1 --recompute none --offload none --head-chunk 384");
    run_binary(before);
    same_expect(&less, &whole, "a refused device pool");
    const char *line = strstr(str_text(&less.ran.err), "shortage in device memory: ");
    if (!EXPECT(line && strstr(line, "planned, refused") && strstr(line, "--recompute")))
        test_note("%s", str_text(&less.ran.err));
    int64_t wanted = same_int(&whole, "planned_bytes"), took = same_int(&less, "planned_bytes");
    if (!EXPECT(took < wanted - wanted / 8 && took == same_int(&less, "measured_bytes")))
        test_note("    %lld bytes against %lld", (long long)took, (long long)wanted);
    EXPECT(refused.ran.code == 1 && strstr(str_text(&refused.ran.err), "refused") &&
           strstr(str_text(&refused.ran.err), "MiB"));
    EXPECT(fixed.ran.code == 1 &&
           strstr(str_text(&fixed.ran.err), "no smaller plan")); /* nothing is left to decide */
    Same *all[] = {&whole, &less, &refused, &fixed};
    for (int i = 0; i < COUNT_OF(all); i++) same_free(all[i]);
}
