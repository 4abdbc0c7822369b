/* fit.c - what a budget holds: by halving where one thing gives way after the other, from few plans where only slots do. */
#include "base/units.h"
#include "gen/gen.h"

static bool bytes_of(int64_t *bytes, const GenSpec *s, const Machine *m, const GenHost *host, Err *e) {
    Gen *g = MEM_NEW(Gen, 1);
    bool ok = gen_plan(g, s, m, host, e);
    *bytes = ok ? gen_process_bytes(g) : 0;
    gen_close(g);
    mem_free(g);
    return ok;
}

/* The largest value of *field in [least, *field] that fits; memory grows with it. *bytes: of what was taken or, when
 * nothing fits, of the least. */
static bool largest_that_fits(GenSpec *s, int64_t *field, int64_t least, int64_t *bytes, const Machine *m,
                              const GenHost *host, int64_t budget_bytes, Err *e) {
    int64_t low = least, high = *field;
    if (!bytes_of(bytes, s, m, host, e)) return false;
    if (*bytes <= budget_bytes || high <= low) return true;
    while (high - low > 1) { /* high does not fit; low is taken, fitting or not */
        *field = low + (high - low) / 2;
        if (!bytes_of(bytes, s, m, host, e)) return false;
        if (*bytes <= budget_bytes) low = *field;
        else high = *field;
    }
    *field = low;
    return bytes_of(bytes, s, m, host, e);
}

/* The fewest layers in pinned memory with which it fits, or all of them. */
static bool least_sent_that_fits(GenSpec *s, int64_t *bytes, const Machine *m, const GenHost *host, int64_t budget_bytes,
                                 Err *e) {
    int64_t low = s->sent, high = s->model.layers; /* low does not fit */
    while (high - low > 1) {
        s->sent = low + (high - low) / 2;
        if (!bytes_of(bytes, s, m, host, e)) return false;
        *(*bytes <= budget_bytes ? &high : &low) = s->sent;
    }
    s->sent = high;
    return bytes_of(bytes, s, m, host, e);
}

bool gen_fit(GenSpec *s, const Machine *m, const GenHost *host, bool fewer_slots, int64_t least_context,
             int64_t budget_bytes, Err *e) {
    int64_t bytes = 0;
    if (!largest_that_fits(s, &s->slots, fewer_slots ? 1 : s->slots, &bytes, m, host, budget_bytes, e)) return false;
    if (bytes > budget_bytes &&
        !largest_that_fits(s, &s->context, MIN2(least_context, s->context), &bytes, m, host, budget_bytes, e))
        return false;
    if (bytes > budget_bytes && s->may_send && !least_sent_that_fits(s, &bytes, m, host, budget_bytes, e)) return false;
    if (bytes <= budget_bytes) return true;
    return fail(e, ERR_BUDGET,
                "does not fit: %s are needed for %lld slots of %lld tokens, the budget is %s, %s (%s bytes) are missing. "
                "Give a shorter --max-tokens or --context, fewer --slots, %sa smaller model, or a larger --budget",
                units_bytes(bytes).s, (long long)s->slots, (long long)s->context, units_bytes(budget_bytes).s,
                units_bytes(bytes - budget_bytes).s, units_count(bytes - budget_bytes).s,
                s->quantised ? "" : "--quantize int8 or nf4, ");
}

/* ---- slots alone: bytes grow evenly with them ---- */

static int64_t bytes_with(const GenSpec *spec, int64_t slots, const Machine *m, const GenHost *host) {
    GenSpec s = *spec;
    int64_t bytes;
    s.slots = slots;
    return bytes_of(&bytes, &s, m, host, NULL) ? bytes : INT64_MAX;
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
