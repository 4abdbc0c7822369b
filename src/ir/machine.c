/* machine.c - the device that is assumed when none was asked. */
#include "ir/machine.h"

#include <stdio.h>

#include "base/units.h"

Machine machine_generic_cpu(int threads) {
    Machine m = {.kind = MACHINE_CPU, .threads = threads, .align_bytes = 256, .page_bytes = 4096, .source = "estimated"};
    snprintf(m.name, sizeof m.name, "cpu, %d threads", threads);
    m.matrix_flops = 50e9 * threads;
    m.vector_flops = 5e9 * threads;
    m.memory_bytes_per_s = 10e9;
    m.copy_bytes_per_s = 5e9;
    m.step_seconds = 5e-6;
    /* What a process takes beside the arena, measured on Linux with glibc: code and libraries' private pages,
     * heap, and per worker a BLAS packing buffer (32 MiB of which the used part becomes resident) and a stack. */
    m.runtime_bytes = 24 * MIB + threads * 36 * MIB;
    return m;
}
