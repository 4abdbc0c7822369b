/* cuda_test.h - one op at a time on both devices: the same tensors and the same Args for the CPU, which is the
 * reference, and for the GPU, whose results are held against it.
 *
 *     if (!cuda_test_ready()) return;               // no GPU, or built without: the test counts as skipped
 *     CudaTest t;
 *     cuda_test_open(&t, "rmsnorm %lld x %lld", n, c);
 *     Tid x = cuda_test_matrix(&t, FMT_BF16, n, c), ...;
 *     cuda_test_normal(&t, x, 1, 1.0);              // contents that were not set are poison (NaN bytes)
 *     cuda_test_run(&t, (Step){.op = OP_RMSNORM, ...}, false);
 *     cuda_test_expect(&t, y, 1e-5);                // |gpu - cpu| <= tolerance + one unit in the last place
 *     cuda_test_close(&t);
 *
 * A run plays the step on the GPU four times from the same contents: on its own, and as the first, second
 * (captured) and third (repeated graph) play of a program. All four must give the same bits. Bytes behind every
 * tensor and behind the scratch are guarded on both devices. */
#ifndef TESTS_CUDA_CUDA_TEST_H
#define TESTS_CUDA_CUDA_TEST_H

#include "backend/backend.h"
#include "tests/test.h"

enum { CUDA_TEST_TENSORS = 32 };

typedef struct CudaTest {
    Program p;
    char about[200];
    void *initial[CUDA_TEST_TENSORS]; /* contents before the step; owns */
    void *cpu[CUDA_TEST_TENSORS];     /* after it, on either device; own */
    void *gpu[CUDA_TEST_TENSORS];
    int failures; /* one report per case is enough */
    bool late;    /* one that may be left out, ... */
    bool whole;   /* ... and one that may not: its results are held against another case's */
    bool loose;   /* the plays' last bits may differ (atomics): ... */
    int shown;    /* ... the play that is kept: 0 on its own, 1 first, 2 captured, 3 repeated */
    int64_t scratch; /* bytes on the GPU at least: of a way that the op's row leaves out for this shape */
} CudaTest;

bool cuda_test_ready(void);      /* false: test_skip was called */
bool cuda_test_ready_for_runs(void); /* likewise, of commands that train or answer: on a card alone */
Backend *cuda_test_device(void); /* the GPU; opened once */

/* From a case of a list to the next one that is tried: 1 on a card, more where the processor plays the kernels and the
 * test is brief. (Cases that go through cuda_test_run are left out by that.) */
int cuda_test_apart(void);

/* Every tensor of the program, and scratch for its steps, in a place of its own; no step waits. Gives the bytes of
 * all. */
int64_t cuda_test_place(Program *p, Backend *b);

void cuda_test_open(CudaTest *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cuda_test_close(CudaTest *t);

Tid cuda_test_vector(CudaTest *t, Format f, int64_t n);
Tid cuda_test_matrix(CudaTest *t, Format f, int64_t rows, int64_t cols);
Tid cuda_test_cube(CudaTest *t, Format f, int64_t n, int64_t rows, int64_t cols);
/* A clock dial with the given words; a dial of one word. */
Tid cuda_test_clock(CudaTest *t, int64_t key, int64_t first_token, int64_t micro);
Tid cuda_test_number(CudaTest *t, Format f, double x);

void cuda_test_normal(CudaTest *t, Tid id, uint64_t key, double std);
void cuda_test_set(CudaTest *t, Tid id, const double *values); /* also stored formats: encoded row by row */
void cuda_test_set_i32(CudaTest *t, Tid id, const int32_t *values);
void cuda_test_pattern(CudaTest *t, Tid id,
                       uint32_t seed); /* multiples of 1/64 in [-1, 1): quick, for large ones */

/* Runs the step on both devices; step.key 0 becomes 7. in_place: the output stands in the input's place that its
 * row lets it share. */
void cuda_test_run(CudaTest *t, Step s, bool in_place);
bool cuda_test_shares(const Step *s); /* its row lets it, and both places are taken */

/* Every number of the tensor: |gpu - cpu| <= tolerance + relative * |cpu|; NaN agrees with NaN. expect allows one
 * unit in the last place of the tensor's format; near takes the relative part from the caller; same asks for the
 * same bits. */
void cuda_test_expect(CudaTest *t, Tid id, double tolerance);
void cuda_test_near(CudaTest *t, Tid id, double tolerance, double relative);
void cuda_test_same(CudaTest *t, Tid id);
/* At least that share of the numbers has the same bits: roundings drew the same words, although sums differ a
 * little. */
void cuda_test_mostly_same(CudaTest *t, Tid id, double share);

#endif
