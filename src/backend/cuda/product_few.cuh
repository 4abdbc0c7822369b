/* product_few.cuh - one number at a time where its format is known only when the kernel runs: the bias and the result
 * of products of a few rows. */
#ifndef BACKEND_CUDA_PRODUCT_FEW_CUH
#define BACKEND_CUDA_PRODUCT_FEW_CUH

#include "backend/cuda/product_kernels.h"
#include "backend/cuda/vectors.cuh"

DEVICE float read_number(CudaNumbers x, int64_t i) {
    if (x.format == FMT_F32) return ((const float *)x.data)[i];
    return x.format == FMT_BF16 ? to_float(((const Bf16 *)x.data)[i]) : to_float(((const F16 *)x.data)[i]);
}

DEVICE void write_number(CudaNumbers y, int64_t i, float x) {
    if (y.format == FMT_F32)
        ((float *)y.data)[i] = x;
    else if (y.format == FMT_BF16)
        ((Bf16 *)y.data)[i] = from_float<Bf16>(x);
    else
        ((F16 *)y.data)[i] = from_float<F16>(x);
}

DEVICE float rounded(Format f, float x) { /* as it would be stored */
    return f == FMT_F32 ? x : f == FMT_BF16 ? to_float(from_float<Bf16>(x)) : to_float(from_float<F16>(x));
}

#endif
