/* ledger.c - how named bytes are added up. */
#include "base/ledger.h"

#include <string.h>

#include "base/check.h"

const char *ledger_pool_name(Pool pool) {
    static const char *const names[POOL_COUNT] = {"device", "pinned", "host", "disk"};
    return names[pool];
}

LedgerLine *ledger_find(Ledger *l, Pool pool, const char *name) {
    for (int i = 0; i < l->n; i++)
        if (l->line[i].pool == pool && !strcmp(l->line[i].name, name)) return &l->line[i];
    return NULL;
}

void ledger_add(Ledger *l, Pool pool, const char *name, const char *note, int64_t bytes, bool in_arena) {
    LedgerLine *line = ledger_find(l, pool, name);
    if (!line) {
        CHECK(l->n < LEDGER_LINES);
        line = &l->line[l->n++];
        *line = (LedgerLine){.name = name, .pool = pool, .in_arena = in_arena, .measured_bytes = -1};
    }
    if (note) line->note = note;
    line->planned_bytes += bytes;
}

int64_t ledger_process_bytes(const Ledger *l, Pool pool) {
    int64_t sum = l->arena_bytes[pool];
    for (int i = 0; i < l->n; i++)
        if (l->line[i].pool == pool && !l->line[i].in_arena) sum += l->line[i].planned_bytes;
    return sum;
}
