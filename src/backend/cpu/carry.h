/* carry.h - how the ops on a correction sum up: CARRY_SUMS dot products of v and x, a tile's each and then all. */
#ifndef BACKEND_CPU_CARRY_H
#define BACKEND_CPU_CARRY_H

#include "backend/cpu/cpu.h"

/* What a step makes of v: v = keep * v - times * last - remove * u; none: v and last do not count. */
typedef struct CpuCarry {
    float keep, times, remove;
    bool none;
    double *tiles; /* CARRY_SUMS a tile, in the step's workspace; NULL: the step carries nothing */
} CpuCarry;

CpuCarry cpu_carry_of(const Args *a, Operand dials);
void cpu_carry_step(float *v, const float *last, const float *u, int64_t n, const CpuCarry *c);
void cpu_carry_add(double *sums, const float *v, const float *x, int64_t n);
void cpu_carry_join(double *sums, const double *tiles, int64_t n_tiles);

#endif
