/* fit.c - how many requests at a time a budget holds, from few plans: bytes grow evenly with the slots. */
#include "gen/gen.h"

static int64_t bytes_with(const GenSpec *spec, int64_t slots, const Machine *m, const GenHost *host) {
    GenSpec s = *spec;
    Gen *g = MEM_NEW(Gen, 1);
    s.slots = slots;
    int64_t bytes = gen_plan(g, &s, m, host, NULL) ? gen_process_bytes(g) : INT64_MAX;
    gen_close(g);
    mem_free(g);
    return bytes;
}

int64_t gen_most_slots(const GenSpec *s, const Machine *m, const GenHost *host, int64_t budget_bytes) {
    enum { APART = 32 };
    int64_t one = bytes_with(s, 1, m, host), more = bytes_with(s, 1 + APART, m, host);
    if (one > budget_bytes) return 0;
    int64_t each = MAX2((more - one) / APART, 1);
    int64_t n = MIN2(1 + (budget_bytes - one) / each, GEN_MOST_SLOTS); /* near it; the plans decide */
    int64_t bytes = bytes_with(s, n, m, host);
    while (n > 1 && bytes > budget_bytes) bytes = bytes_with(s, --n, m, host);
    while (n < GEN_MOST_SLOTS && budget_bytes - bytes > each / 2) { /* room that looks large enough for another */
        int64_t next = bytes_with(s, n + 1, m, host);
        if (next > budget_bytes) break;
        bytes = next;
        n++;
    }
    return n;
}
