/* ring.c - what a recorded ring takes: its passes, its placement, and the bytes beside the arena. */
#include "ring/ring.h"

#include <time.h>

#include "base/units.h"
#include "ir/block_device.h"

static double now_ms(void) { /* this thread's own time: planning waits for nothing, and a busy machine does not count */
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void ring_init(Ring *r, const Machine *m) {
    *r = (Ring){.machine = *m, .plan_ms = -now_ms()};
    prog_init(&r->p);
}

void ring_close(Ring *r) {
    if (r->x.b) exec_close(&r->x);
    prog_free(&r->p);
    *r = (Ring){0};
}

void ring_add_plays(Ring *r, int phase, double times) {
    CHECK(r->n_plays < RING_PLAYS && phase >= 0);
    r->plays[r->n_plays++] = (RingPlays){phase, times};
}

void ring_add_host(Ring *r, const char *name, const char *note, int64_t bytes) {
    CHECK(r->n_host < RING_HOST_LINES);
    if (bytes) r->host[r->n_host++] = (RingHostLine){.name = name, .note = note, .bytes = bytes};
}

void ring_add_host_before(Ring *r, const char *name, const char *note, int64_t bytes, int64_t later_bytes) {
    if (bytes <= later_bytes) return;
    ring_add_host(r, name, note, bytes - later_bytes);
    r->host[r->n_host - 1].before = true;
}

/* ---- bytes beside the arena ---- */

/* Device memory that a library for attention may take for itself: its handle and code, loaded in the first play. */
#define LIBRARY_CODE_BYTES (16 * MIB) /* 10 to 12 MiB were seen with cuDNN 9.14 on an H200 */

static bool attends_by_library(const Program *p) {
    for (int64_t i = 0; i < p->n_s; i++)
        if (p->s[i].op == OP_ATTEND &&
            device_attend_by_library(&p->s[i].attr.heads, prog_t(p, p->s[i].attend.in.qkv)->format))
            return true;
    return false;
}

/* Plays that are kept: about 2.5 KB a kernel were seen on an H200, and a step is one or two of them. */
static int64_t graph_bytes(const Ring *r) {
    const Machine *m = &r->machine;
    return m->graph_bytes ? MAX2(m->graph_bytes, 2 * MIB + r->p.n_s * 4 * KIB) : 0;
}

static void add_line(Ring *r, Pool pool, const char *name, const char *note, int64_t bytes) {
    if (bytes) ledger_add(&r->ledger, pool, name, note, bytes, false);
}

static void add_device_lines(Ring *r) {
    const Machine *m = &r->machine;
    int64_t pinned = (int64_t)(m->mapping_share * (double)r->placement.arena_bytes[POOL_PINNED]);
    bool library = m->kind == MACHINE_CUDA && attends_by_library(&r->p);
    add_line(r, POOL_DEVICE, "context", "the driver's own", m->context_bytes);
    add_line(r, POOL_DEVICE, "code", "kernels as they are first used", m->code_bytes);
    add_line(r, POOL_DEVICE, "graphs", "plays that are kept", graph_bytes(r));
    add_line(r, POOL_DEVICE, "mappings", "page tables", m->mapping_bytes + pinned);
    add_line(r, POOL_DEVICE, "attention", "code of the library", library ? LIBRARY_CODE_BYTES : 0);
}

/* The driver keeps every kernel of a kept play in the host's memory, 33 to 88 KB a step were seen on an H200, and the
 * libraries' kernels as they are first used: up to 76 MB more with a model of few layers (gsa-512m). */
static int64_t host_graph_bytes(const Ring *r) {
    return r->machine.graph_bytes ? r->p.n_s * 96 * KIB + 96 * MIB : 0;
}

/* On the CPU it is the device's own memory that these bytes take. */
static void add_host_lines(Ring *r) {
    Pool pool = r->machine.kind == MACHINE_CPU ? POOL_DEVICE : POOL_HOST;
    int64_t pools =
        r->placement.arena_bytes[POOL_PINNED] + (pool == POOL_DEVICE ? r->placement.arena_bytes[POOL_DEVICE] : 0);
    add_line(r, pool, "runtime", "code, heap, stacks", r->machine.runtime_bytes + prog_heap_bytes(&r->p));
    add_line(r, pool, "graphs", "the driver's side of plays that are kept", host_graph_bytes(r));
#ifdef __SANITIZE_ADDRESS__ /* shadow bytes and freed blocks kept aside */
    int64_t shadow =
        pool == POOL_DEVICE ? r->placement.arena_bytes[POOL_DEVICE] / 4 : 0; /* of what the process touches */
    add_line(r, pool, "sanitizers", "a debug build", 256 * MIB + shadow);
#endif
    for (int i = 0; i < r->n_host; i++) {
        const RingHostLine *h = &r->host[i];
        add_line(r, pool, h->name, h->note, h->before ? MAX2(h->bytes - pools, 0) : h->bytes);
    }
}

void ring_plan(Ring *r, const PlanChoices *c) {
    r->placement = plan_lower(&r->p, c, &r->machine);
    plan_ledger(&r->p, &r->placement, &r->machine, &r->ledger);
    add_device_lines(r);
    add_host_lines(r);
    r->plan_ms += now_ms();
}

/* ---- what it costs ---- */

static int64_t beside_bytes(const Ring *r) {
    return ledger_process_bytes(&r->ledger, POOL_PINNED) + ledger_process_bytes(&r->ledger, POOL_HOST);
}

int64_t ring_host_bytes(const Ring *r) { return r->machine.kind == MACHINE_CPU ? 0 : beside_bytes(r); }

int64_t ring_process_bytes(const Ring *r) { /* on the CPU all pools are the same memory */
    return ledger_process_bytes(&r->ledger, POOL_DEVICE) + (r->machine.kind == MACHINE_CPU ? beside_bytes(r) : 0);
}

int64_t ring_disk_bytes(const Ring *r) { return r->placement.arena_bytes[POOL_DISK] - plan_file_bytes(&r->p); }

double ring_round_seconds(const Ring *r, const Machine *m) {
    double s = 0;
    for (int i = 0; i < r->n_plays; i++) s += r->plays[i].times * plan_step_seconds(&r->p, m, r->plays[i].phase);
    return s;
}

double ring_round_flops(const Ring *r) {
    double f = 0;
    for (int i = 0; i < r->n_plays; i++) f += r->plays[i].times * plan_useful_flops(&r->p, r->plays[i].phase);
    return f;
}
