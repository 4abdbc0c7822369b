/* machine.h - a device as data, so that planning needs no device. */
#ifndef IR_MACHINE_H
#define IR_MACHINE_H

#include <stdint.h>

#include "base/ledger.h"

typedef enum MachineKind { MACHINE_CPU, MACHINE_CUDA } MachineKind;

typedef struct Machine {
    char name[128];
    MachineKind kind;
    int threads;                        /* cpu: workers; workspaces are sized by it */
    int64_t total_bytes[POOL_COUNT];    /* 0: unknown */
    int64_t free_bytes[POOL_COUNT];     /* now; 0: unknown */
    int64_t align_bytes;                /* of a slot */
    int64_t page_bytes;                 /* arenas are rounded up to it */
    double matrix_flops;                /* per second, products in the working format */
    double vector_flops;
    double memory_bytes_per_s;
    double copy_bytes_per_s;            /* between pools */
    double step_seconds;                /* fixed cost of one step */
    int64_t context_bytes;              /* device: the driver's own */
    int64_t runtime_bytes;              /* process: code, libraries, BLAS buffers, stacks */
    const char *source;                 /* "measured", "vendor", "estimated" */
} Machine;

/* A CPU seen from nowhere: conservative rates, no memory known. backend->describe() gives the real one. */
Machine machine_generic_cpu(int threads);

#endif
