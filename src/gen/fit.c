/* fit.c - what a budget holds: by halving where one thing gives way after the other, from few plans where only slots
 * do. */
#include "base/units.h"
#include "gen/gen.h"

typedef int64_t PlannedBytes(const Ring *r); /* some of a plan's */

static bool planned_of(int64_t *bytes, PlannedBytes *which, const GenSpec *s, const Machine *m, const GenHost *host,
                       Err *e) {
    Gen *g = MEM_NEW(Gen, 1);
    Ring *r = MEM_NEW(Ring, 1);
    bool ok = gen_plan(g, r, s, m, host, e);
    *bytes = ok ? which(r) : 0;
    ring_close(r);
    mem_free(r);
    mem_free(g);
    return ok;
}

bool gen_bytes(int64_t *bytes, const GenSpec *s, const Machine *m, const GenHost *host, Err *e) {
    return planned_of(bytes, ring_process_bytes, s, m, host, e);
}

/* The largest value of *field in [least, *field] that fits; memory grows with it. *bytes: of what was taken or, when
 * nothing fits, of the least. */
static bool largest_that_fits(GenSpec *s, int64_t *field, int64_t least, int64_t *bytes, const Machine *m,
                              const GenHost *host, int64_t budget_bytes, Err *e) {
    int64_t low = least, high = *field;
    if (!gen_bytes(bytes, s, m, host, e)) return false;
    if (*bytes <= budget_bytes || high <= low) return true;
    while (high - low > 1) { /* high does not fit; low is taken, fitting or not */
        *field = low + (high - low) / 2;
        if (!gen_bytes(bytes, s, m, host, e)) return false;
        if (*bytes <= budget_bytes) low = *field;
        else high = *field;
    }
    *field = low;
    return gen_bytes(bytes, s, m, host, e);
}

/* The fewest layers offloaded with which it fits, or all of them. Where there is but one memory, they go to disk. */
static bool least_offload_that_fits(GenSpec *s, int64_t *bytes, const Machine *m, const GenHost *host,
                                    int64_t budget_bytes, Err *e) {
    int64_t *layers = &s->m.offload.layers[OFFLOAD_WEIGHTS], *on_disk = &s->m.offload.on_disk[OFFLOAD_WEIGHTS];
    int64_t low = *layers, high = s->m.config.layers; /* low does not fit */
    bool to_disk = m->kind == MACHINE_CPU;
    while (high - low > 1) {
        *layers = low + (high - low) / 2;
        if (to_disk) *on_disk = *layers;
        if (!gen_bytes(bytes, s, m, host, e)) return false;
        *(*bytes <= budget_bytes ? &high : &low) = *layers;
    }
    *layers = high;
    if (to_disk) *on_disk = high;
    return gen_bytes(bytes, s, m, host, e);
}

/* ---- the host ---- */

static bool beside_of(int64_t *bytes, const GenSpec *s, const Machine *m, const GenHost *host, Err *e) {
    return planned_of(bytes, ring_host_bytes, s, m, host, e);
}

/* As few of the offloaded layers on disk as the host's memory makes necessary; what the device holds is the same. */
static bool fit_host(GenSpec *s, const Machine *m, const GenHost *host, Err *e) {
    int64_t *on_disk = &s->m.offload.on_disk[OFFLOAD_WEIGHTS], offloaded = s->m.offload.layers[OFFLOAD_WEIGHTS];
    int64_t room = s->host_room_bytes, bytes = 0, low = *on_disk, high = offloaded;
    if (!room || m->kind == MACHINE_CPU) return true;
    if (!beside_of(&bytes, s, m, host, e)) return false;
    if (bytes > room && s->may_use_disk && low < high) {
        *on_disk = high;
        if (!beside_of(&bytes, s, m, host, e)) return false;
        while (bytes <= room && high - low > 1) { /* high fits, low does not */
            int64_t some = *on_disk = low + (high - low) / 2, now;
            if (!beside_of(&now, s, m, host, e)) return false;
            *(now <= room ? &high : &low) = some;
        }
        *on_disk = high;
    }
    return bytes <= room || fail(e, ERR_BUDGET,
                                 "does not fit the host: %s of its memory are needed for weights of %lld layers and "
                                 "the rest, %s may be taken, %s (%s bytes) are missing. %s",
                                 units_bytes(bytes).s, (long long)(offloaded - *on_disk), units_bytes(room).s,
                                 units_bytes(bytes - room).s, units_count(bytes - room).s,
                                 s->may_use_disk ? "Quantise the model, or raise --max-memory host="
                                                 : "Give --offload-dir DIR, or raise --max-memory host=");
}

/* ---- the whole ---- */

bool gen_fit(GenSpec *s, const Machine *m, const GenHost *host, bool fewer_slots, int64_t least_context,
             int64_t budget_bytes, Err *e) {
    int64_t bytes = 0;
    if (!largest_that_fits(s, &s->slots, fewer_slots ? 1 : s->slots, &bytes, m, host, budget_bytes, e)) return false;
    if (bytes > budget_bytes &&
        !largest_that_fits(s, &s->context, MIN2(least_context, s->context), &bytes, m, host, budget_bytes, e))
        return false;
    if (bytes > budget_bytes && s->may_offload && !least_offload_that_fits(s, &bytes, m, host, budget_bytes, e))
        return false;
    if (bytes <= budget_bytes) return fit_host(s, m, host, e);
    return fail(
        e, ERR_BUDGET,
        "does not fit: %s are needed for %lld slots of %lld tokens, the budget is %s, %s (%s bytes) are missing. "
        "Give a shorter --max-tokens or --context, fewer --slots, %sa smaller model, or a larger --budget",
        units_bytes(bytes).s, (long long)s->slots, (long long)s->context, units_bytes(budget_bytes).s,
        units_bytes(bytes - budget_bytes).s, units_count(bytes - budget_bytes).s,
        !s->m.quantised   ? "--quantize int8 or nf4, "
        : !s->m.head_int8 ? "--quantize-head int8, "
                          : "");
}

/* ---- slots alone: bytes grow evenly with them ---- */

static int64_t bytes_with(const GenSpec *spec, int64_t slots, const Machine *m, const GenHost *host) {
    GenSpec s = *spec;
    int64_t bytes;
    s.slots = slots;
    return gen_bytes(&bytes, &s, m, host, NULL) ? bytes : INT64_MAX;
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
