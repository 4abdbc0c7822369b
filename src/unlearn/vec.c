/* vec.c - sums in blocks, so that their order and error do not grow with the length. */
#include "unlearn/vec.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

enum { BLOCK = 4096 };

double vec_dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t from = 0; from < n; from += BLOCK) {
        double block = 0;
        for (int64_t i = from, end = MIN2(from + BLOCK, n); i < end; i++) block += (double)a[i] * (double)b[i];
        sum += block;
    }
    return sum;
}

double vec_norm(const float *a, int64_t n) { return sqrt(vec_dot(a, a, n)); }

void vec_add(float *to, const float *a, double times, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)((double)to[i] + times * (double)a[i]);
}

void vec_scale(float *to, double times, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)(times * (double)to[i]);
}

void vec_zero(float *to, int64_t n) { memset(to, 0, sizeof *to * (size_t)n); }
