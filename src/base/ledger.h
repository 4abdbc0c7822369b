/* ledger.h - named bytes, planned and measured, line by line, pool by pool: no byte of a plan is without a name.
 *
 * plan/ fills the planned column, exec/ and the command fill the measured one; neither sees the other. */
#ifndef BASE_LEDGER_H
#define BASE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Pool { POOL_DEVICE, POOL_PINNED, POOL_HOST, POOL_DISK, POOL_COUNT } Pool;

enum { LEDGER_LINES = 48 };

typedef struct LedgerLine {
    const char *name;       /* "weights", "activations", "context", ...; keeps: a literal or run-long text */
    const char *note;       /* "bf16", "fp32 master", or NULL */
    Pool pool;
    bool in_arena;          /* part of the placed arena; otherwise beside it (context, runtime, ...) */
    int64_t planned_bytes;
    int64_t measured_bytes; /* -1: not measured on its own */
} LedgerLine;

typedef struct Ledger {
    LedgerLine line[LEDGER_LINES];
    int n;
    int64_t arena_bytes[POOL_COUNT]; /* planned, placed arena of each pool: at most the sum of its lines */
    int64_t lower_bound_bytes[POOL_COUNT];
    int64_t budget_bytes[POOL_COUNT]; /* 0: none given */
} Ledger;

/* Adds bytes to the line of that name, making it if needed. */
void ledger_add(Ledger *l, Pool pool, const char *name, const char *note, int64_t bytes, bool in_arena);
LedgerLine *ledger_find(Ledger *l, Pool pool, const char *name); /* NULL when absent */

/* The arena plus every line beside it: what the process will take of this pool. */
int64_t ledger_process_bytes(const Ledger *l, Pool pool);

const char *ledger_pool_name(Pool pool);

#endif
