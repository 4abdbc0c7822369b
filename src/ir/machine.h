/* machine.h - a device as data, so that planning needs no device. */
#ifndef IR_MACHINE_H
#define IR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ledger.h"

typedef enum MachineKind { MACHINE_CPU, MACHINE_CUDA } MachineKind;

/* Rates on a grid of two sizes, ascending; between the points by their logarithms, beyond them the nearest. */
enum { MACHINE_GRID = 8, MACHINE_TABLES = 3 };
typedef struct MachineGrid {
    int n_x, n_y; /* 0: not measured */
    int64_t x[MACHINE_GRID], y[MACHINE_GRID];
    double rate[MACHINE_TABLES][MACHINE_GRID][MACHINE_GRID]; /* [table][x][y], per second */
} MachineGrid;
typedef enum ProductPass { PASS_FORWARD, PASS_DX, PASS_DW } ProductPass; /* tables of a product grid */
enum { ATTEND_FORWARD, ATTEND_BACKWARD, ATTEND_TABLES };                 /* tables of an attention grid */

/* Which algorithm the device's library of products took for one product. What the numbers mean is the backend's
 * affair; they and the bytes are kept and handed back as they are. */
enum { CHOICE_NUMBERS = 20, CHOICE_BYTES = 64 };
typedef struct MachineChoice {
    int64_t number[CHOICE_NUMBERS];
    int n_bytes; /* 0: not by the library */
    uint8_t algorithm[CHOICE_BYTES];
} MachineChoice;

typedef struct Machine {
    char name[128];
    char driver[48];                    /* its version; "": none */
    char library[48];                   /* of products, and its version: algorithms hold for this one only */
    MachineKind kind;
    char bus_id[32];                    /* of a GPU that is here; "": none */
    int capability;                     /* of a GPU: 90 is 9.0; 0: none, or not known */
    int threads;                        /* cpu: workers; workspaces are sized by it */
    int64_t total_bytes[POOL_COUNT];    /* 0: unknown */
    int64_t free_bytes[POOL_COUNT];     /* now; 0: unknown */
    int64_t align_bytes;                /* of a slot */
    int64_t page_bytes;                 /* arenas are rounded up to it */
    /* per second, products in the working format: bf16 on a GPU, fp32 on a processor */
    double matrix_flops;
    /* products in fp32, which a GPU's tensor cores do not have; 0: as matrix_flops */
    double f32_flops;
    bool tf32;                          /* they may be made from 10 bits of each number: --tf32 */
    bool deterministic;                 /* every sum has one order, by slower kernels if need be: --deterministic */
    double vector_flops;
    double memory_bytes_per_s;
    double copy_bytes_per_s;            /* between pools */
    double disk_bytes_per_s;            /* of a file, read or written; 0: not measured */
    double step_seconds;                /* fixed cost of one step */
    MachineGrid products;               /* flops by rows (tokens) and the shorter side of the weight */
    MachineGrid attention;              /* flops by length and head size */
    int64_t context_bytes;              /* device: the driver's own, there as soon as it is opened */
    int64_t code_bytes, graph_bytes;    /* device: kernels as they are first used; plays that are kept */
    int64_t mapping_bytes;              /* device: page tables of the arena */
    double mapping_share;               /* device: page tables for each byte of pinned memory */
    int64_t runtime_bytes;              /* process: code, libraries, heap, stacks */
    const char *source;                 /* "measured", "vendor", "estimated" */
} Machine;

/* A CPU seen from nowhere: conservative rates, no memory known. backend->describe() gives the real one. */
Machine machine_generic_cpu(int threads);

/* A GPU below 8.0 has no products in bf16. */
static inline bool machine_has_bf16(const Machine *m) { return !m->capability || m->capability >= 80; }

/* Large products of numbers in this format. */
double machine_product_flops(const Machine *m, bool f32);

double machine_grid_rate(const MachineGrid *g, int table, double x, double y); /* 0: not measured */

#endif
