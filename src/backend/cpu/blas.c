/* blas.c - how the BLAS library is spoken to: which family of kernels it takes, one thread a call, and when it
 * maps its buffers.
 *
 * The library asks the processor's model number and takes models it has never heard of for a Prescott, at a fifth
 * of the speed. So the family is chosen here, from what the processor can do, and handed over in the environment
 * before the library's own constructor runs: priority 101 comes before constructors without one. */
#include <cblas.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/cpu.h"
#include "base/fault.h"
#include "base/process.h"
#include "base/units.h"

/* What the user has set stays. One thread: the tiles are shared out by base/threads. */
__attribute__((constructor(101))) static void choose_family(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 0);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        setenv("OPENBLAS_CORETYPE", "HASWELL", 0);
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
}

void cpu_blas_open(void) { openblas_set_num_threads(1); } /* also when the environment says otherwise: C1 */

/* ---- buffers ----
 *
 * Every product under way packs its panels into a buffer of the library: BUFFER_BYTES of addresses, of which it
 * touches the first one or two MiB (runtime_bytes in cpu.c). The library maps one when it first needs it and keeps
 * it for the next product; where the system refuses it, the library asks again for ever. So all that a team can
 * need are mapped before a job begins, and only after the same bytes were asked for, had and given back. */

#define BUFFER_BYTES (128 * MIB) /* BUFFERSIZE=22, as a library for all processors is built */
#define PATIENCE_SECONDS 3       /* with one that was built with more; mapping takes microseconds */

/* Not in its header, but in every build of it. */
void *blas_memory_alloc(int place) __attribute__((weak));
void blas_memory_free(void *buffer) __attribute__((weak));

static int n_buffers; /* mapped so far */

int64_t cpu_blas_address_bytes(int threads) {
    return MAX2(threads - n_buffers, 0) * BUFFER_BYTES;
}

static bool has_room(int64_t bytes) {
    void *at = MAP_FAILED;
    if (!fault_here(FAULT_MAP, "BLAS buffers"))
        at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return false;
    munmap(at, (size_t)bytes);
    return true;
}

static void *take_buffers(void *context) { /* held together, so that they are as many as asked for */
    int n = *(int *)context;
    void **buffer = MEM_NEW(void *, n);
    for (int i = 0; i < n; i++) buffer[i] = blas_memory_alloc(0);
    for (int i = 0; i < n; i++) blas_memory_free(buffer[i]);
    mem_free(buffer);
    return NULL;
}

bool cpu_blas_take(int threads, Err *e) {
    static int wanted; /* outlives a thread that is left behind */
    int64_t bytes = cpu_blas_address_bytes(threads);
    if (!bytes || !blas_memory_alloc || !blas_memory_free) return true;
    wanted = threads;
    int status = has_room(bytes) ? thread_run_within(PATIENCE_SECONDS, take_buffers, &wanted) : errno;
    ProcessRefusal no = process_refusal();
    if (!status) n_buffers = threads;
    return !status ||
           fail(e, no.code,
                "cpu: the BLAS library maps %s of addresses for each of %d thread%s, and the system refused "
                "%s: %s%s. Nothing was loaded. Give fewer --threads, or raise the limit",
                units_bytes(BUFFER_BYTES).s, threads, threads == 1 ? "" : "s", units_bytes(bytes).s,
                strerror(status), no.why);
}

const char *cpu_blas_name(void) { return openblas_get_corename(); }

static void multiply_cut(const CpuBlock *m, int64_t row, int64_t col) {
    int rows = (int)MIN2(m->rows - row, CPU_BLOCK_MOST), cols = (int)MIN2(m->cols - col, CPU_BLOCK_MOST);
    const float *a = m->a + (m->a_flip ? row : row * m->lda), *b = m->b + (m->b_flip ? col * m->ldb : col);
    cblas_sgemm(CblasRowMajor, m->a_flip ? CblasTrans : CblasNoTrans, m->b_flip ? CblasTrans : CblasNoTrans,
                rows, cols, (int)m->inner, m->alpha, a, (int)m->lda, b, (int)m->ldb, m->beta,
                m->c + row * m->ldc + col, (int)m->ldc);
}

void cpu_multiply(const CpuBlock *m) {
    for (int64_t row = 0; row < m->rows; row += CPU_BLOCK_MOST)
        for (int64_t col = 0; col < m->cols; col += CPU_BLOCK_MOST) multiply_cut(m, row, col);
}
