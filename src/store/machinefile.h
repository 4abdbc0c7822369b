/* machinefile.h - figures measured on devices, kept for later: rates, fixed bytes, GEMM algorithms.
 *
 * One entry per device, known by its name and memory. Rates hold for that device; fixed bytes for its driver too;
 * algorithms for the library's version too. */
#ifndef STORE_MACHINEFILE_H
#define STORE_MACHINEFILE_H

#include "base/err.h"
#include "ir/machine.h"

typedef struct MachineEntry {
    Machine m; /* name, kind, memory, driver, library and rates; the rest is not kept */
    int64_t context_bytes, code_bytes, graph_bytes; /* as seen on the device; 0: could not be seen */
    MachineChoice *choice;                          /* owns */
    int64_t n_choices, cap_choices;
} MachineEntry;

typedef struct MachineFile {
    MachineEntry *entry; /* owns */
    int64_t n, cap;
} MachineFile;

/* An absent file is an empty one: *found says which. machinefile_free in either case. */
bool machinefile_read(MachineFile *f, bool *found, const char *path, Err *e);
bool machinefile_write(const MachineFile *f, const char *path, Err *e); /* makes its folder */
void machinefile_free(MachineFile *f);

MachineEntry *machinefile_find(const MachineFile *f, const Machine *m); /* NULL: not this device */
/* The entry of that device with m's facts and rates; choices of another library are dropped. */
MachineEntry *machinefile_put(MachineFile *f, const Machine *m);
/* Gives how many were new. */
int64_t machinefile_add_choices(MachineEntry *entry, const MachineChoice *list, int64_t n);

/* Puts measured rates and fixed bytes in the place of assumed ones. */
void machinefile_apply(const MachineEntry *entry, Machine *m);

#endif
