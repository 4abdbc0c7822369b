/* blas.c - how the BLAS library is spoken to: which family of kernels it takes, and one thread a call.
 *
 * The library asks the processor's model number and takes models it has never heard of for a Prescott, at a fifth
 * of the speed. So the family is chosen here, from what the processor can do, and handed over in the environment
 * before the library's own constructor runs: priority 101 comes before constructors without one. */
#include <cblas.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"

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
