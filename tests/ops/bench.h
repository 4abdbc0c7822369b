/* bench.h - one op at a time: tensors with known contents, the step run on 1, 2 and 3 threads and in place, and
 * the results held against doubles.
 *
 *     Bench b;
 *     bench_open(&b, "rmsnorm %lld x %lld", n, c);
 *     Tid x = bench_matrix(&b, FMT_BF16, n, c), ...;
 *     bench_normal(&b, x, 1, 1.0);
 *     bench_check(&b, (Step){.op = OP_RMSNORM, ...});     // same bits on any number of threads, and in place
 *     bench_expect(&b, y, want, 1e-5);                    // |got - want| <= tolerance + what rounding may cost
 *     bench_close(&b);
 *
 * Contents that were not set are poison (NaN): a kernel that reads its output, or scratch it has not written, is
 * seen. Bytes behind every tensor and behind the scratch are guarded. */
#ifndef TESTS_OPS_BENCH_H
#define TESTS_OPS_BENCH_H

#include "backend/backend.h"
#include "tests/test.h"

enum { BENCH_TENSORS = 32 };

typedef struct Bench {
    Program p;
    Arena arena;                     /* owns the doubles handed out */
    char about[160];
    void *initial[BENCH_TENSORS];    /* contents before the step; owns */
    void *now[BENCH_TENSORS];        /* and after it; owns */
    int failures;                    /* one report per case is enough */
} Bench;

void bench_open(Bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void bench_close(Bench *b);

Tid bench_vector(Bench *b, Format f, int64_t n);
Tid bench_matrix(Bench *b, Format f, int64_t rows, int64_t cols);
Tid bench_cube(Bench *b, Format f, int64_t n, int64_t rows, int64_t cols);
Tid bench_clock(Bench *b, int64_t key);           /* a clock dial */
Tid bench_number(Bench *b, Format f, double x);   /* a dial of one word */

void bench_normal(Bench *b, Tid t, uint64_t key, double std);
Tid bench_draw(Bench *b, Format f, int64_t rows, int64_t cols, uint64_t key); /* a matrix of normal numbers, std 1 */
void bench_set(Bench *b, Tid t, const double *values);
void bench_set_i32(Bench *b, Tid t, const int32_t *values);
double *bench_initial(Bench *b, Tid t);           /* a copy in doubles, of what the format holds; borrows b */
double *bench_now(Bench *b, Tid t);
double *bench_doubles(Bench *b, int64_t n);       /* zeroed; borrows b */

/* Puts every tensor back to its initial contents and runs the step. */
void bench_run(Bench *b, Step s, int threads, bool in_place);
/* 1, 2 and 3 threads, and in place where the row allows it, must give the same bits; leaves those of 1 thread. */
void bench_check(Bench *b, Step s);
/* tolerance is absolute; one rounding to the tensor's format is allowed on top. Poison fails. */
void bench_expect(Bench *b, Tid t, const double *want, double tolerance);
/* The same for what is rounded at random: a whole unit in the last place is allowed. */
void bench_expect_random(Bench *b, Tid t, const double *want, double tolerance);

/* The gradient `got` (n numbers) of f at x against central differences, at up to 48 places spread over x. */
typedef double BenchLoss(void *context);
void bench_differences(Bench *b, const char *what, double *x, const double *got, int64_t n, BenchLoss *f,
                       void *context, double tolerance);

Backend *bench_backend(int threads); /* 1, 2 or 3; opened once */

#endif
