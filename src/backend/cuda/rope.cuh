/* rope.cuh - how RoPE rotates a pair of numbers by its token's position: angles and rounding, the same in rope.cu and
 * attend_cache.cu. */
#ifndef BACKEND_CUDA_ROPE_CUH
#define BACKEND_CUDA_ROPE_CUH

#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

/* cos and sin of x to fp32's last place, |x| < 2^31: quarters of a full turn are taken off in fp64. */
DEVICE float2 cos_sin(float x_single) {
    const double nearest = 0x1.8p52; /* adding and taking away rounds to a whole number */
    double x = (double)x_single;
    double quarter = (x * 0.63661977236758134308 + nearest) - nearest;
    double r = x - quarter * 1.5707963267948966 - quarter * 6.123233995736766e-17; /* |r| <= pi/4 */
    double z = r * r;
    double s =
        r *
        (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800))))));
    double c =
        1 +
        z * (-1.0 / 2 +
             z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
    int k = (int)quarter;
    double cos_x = k & 1 ? s : c, sin_x = k & 1 ? c : s;
    return make_float2((float)((k + 1) & 2 ? -cos_x : cos_x), (float)(k & 2 ? -sin_x : sin_x));
}

/* Cosine and sine of a pair that rotates by inv_freq a position. */
DEVICE float2 angle_of(const CudaRope &r, int position, float inv_freq) {
    float2 t = cos_sin((float)position * inv_freq);
    return make_float2(t.x * r.scale, r.inverse ? -(t.y * r.scale) : t.y * r.scale);
}

/* One rounding order everywhere, so that rope and rope_put give the same bits. */
DEVICE void rotate_pair(float &a, float &b, float c, float s) {
    float turned_a = __fmaf_rn(a, c, -__fmul_rn(b, s));
    b = __fmaf_rn(b, c, __fmul_rn(a, s));
    a = turned_a;
}

#endif
