/* attend_sm90.cu - which cut of the Hopper attention kernels a shape takes, forward and backward (attend_sm90.cuh,
 * attend_grad_sm90.cuh). Reference: cpu/attend.c.
 *
 * bf16 and fp16, heads of 64 and 128 numbers, on compute capability 9.0 alone and only in builds that have its machine
 * code (HAVE_SM90A, set by cuda.mk); everything else is for the caller's other kernels, and nothing has been launched
 * then. bench/gpu_attend_sweep.cu measures the cuts. */
#include "backend/cuda/attend_grad_sm90.cuh"

#ifdef HAVE_SM90A
template <typename T> static void forward(cudaStream_t s, const CudaAttend *a) {
    if (a->dim == 64)
        launch_forward_sm90<T, 64, ForwardCut<1, 128, false, false, true, 3>>(s, a);
    else
        launch_forward_sm90<T, 128, ForwardCut<2, 128, true, false, true, 1>>(s, a);
}

template <typename T> static void backward(cudaStream_t s, const CudaAttendGrad *g) {
    if (g->a.dim == 64) {
        launch_back_sm90<T, 64, true, BackCut<3, 64, false, true, false, 2, 1>>(s, g);
        launch_back_sm90<T, 64, false, BackCut<3, 64, false, true, false, 2, 1>>(s, g);
    } else {
        launch_back_sm90<T, 128, true, BackCut<2, 64, false, true, false, 2, 1>>(s, g);
        launch_back_sm90<T, 128, false, BackCut<3, 64, false, true, false, 2, 1>>(s, g);
    }
    cuda_launch_attend_join(s, g);
}

static bool takes(const CudaAttend *a) {
    return (a->dim == 64 || a->dim == 128) && (a->format == FMT_BF16 || a->format == FMT_F16);
}
#endif

extern "C" bool cuda_launch_attend_sm90(cudaStream_t s, const CudaAttend *a) {
#ifdef HAVE_SM90A
    if (!takes(a)) return false;
    if (a->format == FMT_BF16)
        forward<Bf16>(s, a);
    else
        forward<F16>(s, a);
    return true;
#else
    return false;
#endif
}

extern "C" bool cuda_launch_attend_grad_sm90(cudaStream_t s, const CudaAttendGrad *g) {
#ifdef HAVE_SM90A
    if (!takes(&g->a)) return false;
    if (g->a.format == FMT_BF16)
        backward<Bf16>(s, g);
    else
        backward<F16>(s, g);
    return true;
#else
    return false;
#endif
}
