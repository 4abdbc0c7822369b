/* ring_open.c - opens a planned ring on a device: allocates its memory, keeps its plays as graphs, and measures what
 * each line of the ledger took. */
#include "base/log.h"
#include "base/work.h"
#include "base/process.h"
#include "base/units.h"
#include "obs/sensors.h"
#include "ring/ring.h"

/* Device memory taken since the last look, less so much that is accounted for: that ledger line's. */
static void measure_line(Ring *r, const char *name, int64_t less_bytes) {
    int64_t now = r->b->in_use(r->b);
    if (now < 0) return;
    LedgerLine *line = ledger_find(&r->ledger, POOL_DEVICE, name);
    if (line) line->measured_bytes = MAX2(line->measured_bytes, 0) + now - r->seen_bytes - less_bytes;
    r->seen_bytes = now;
}

bool ring_open(Ring *r, Backend *b, Err *e) {
    r->b = b;
    measure_line(r, "context", 0);
    const int64_t *bytes = r->placement.arena_bytes;
    Work work;
    work_begin(&work, WORK_BYTES, 0, "taking %s of memory", units_bytes(bytes[POOL_DEVICE] + bytes[POOL_PINNED]).s);
    bool ok = exec_open(&r->x, &r->p, b, bytes, e);
    work_end(&work);
    if (!ok) return false;
    measure_line(r, "mappings", r->x.pool_bytes[POOL_DEVICE]);
    return true;
}

bool ring_settle(Ring *r, Err *e) {
    int64_t own = 0, all = r->x.pool_bytes[POOL_DISK];
    if (!all) return true;
    if (!exec_sync(&r->x, e) || !r->b->settle(r->b, &own, e)) return false;
    log_line("on disk: %s taken in --offload-dir, %s read from the model's own files", units_bytes(own).s,
             units_bytes(all - own).s);
    return true;
}

/* A device loads code and chooses products in a phase's first play and keeps the second (backend.h). */
bool ring_warm(Ring *r, void (*play)(void *user), void *user, Err *e) {
    enum { PLAYS = 2 };
    Work work;
    measure_line(r, "code", 0); /* of what was played while loading */
    work_begin(&work, WORK_COUNT, PLAYS, "warming up: every phase is played before the first step");
    for (int i = 0; i < PLAYS; i++) {
        if (!work_on(&work, i, e)) return false;
        play(user);
        if (!exec_sync(&r->x, e)) return false;
        measure_line(r, i ? "graphs" : "code", 0);
    }
    work_end(&work);
    return true;
}

int64_t ring_in_use(const Ring *r) {
    int64_t n = r->b->in_use(r->b);
    return n >= 0 ? n : sensors_anon_bytes();
}

void ring_measure(Ring *r) {
    int64_t now = ring_in_use(r); /* read once: it costs a file */
    r->peak_bytes = MAX2(r->peak_bytes, now);
}

int64_t ring_most_bytes(const Ring *r) {
    return r->b->host_memory ? process_memory().peak_bytes : r->peak_bytes;
}
