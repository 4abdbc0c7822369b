/* attend_sm90.cu - which tile configuration of the Hopper attention kernels a head size takes, forward and backward
 * (attend_sm90.cuh, attend_grad_sm90.cuh). Reference: cpu/attend.c.
 *
 * bf16 and fp16, heads of 64 and 128 numbers, on compute capability 9.0 alone and only in builds that have its machine
 * code (HAVE_SM90A, set by cuda.mk); everything else is for the caller's other kernels, and nothing has been launched
 * then. Chosen by bench/gpu_attend_sweep.cu on an H200: TFLOP/s of 14/2 heads of 64 and 28/4 of 128, 16,384 tokens in
 * rows of 1024, 2048, 4096, 8192, and of 4096 in documents of up to 900; behind it the cut that came nearest. A cut:
 * warpgroups x rows of a tile, stages, blocks a multiprocessor.
 *   forward 64   1x128 -,3  266 316 350 371 180    2x64  -,2  267 312 334 353 178
 *   forward 128  1x64  -,2  349 404 434 456 268    2x128 -,1  314 395 442 467 218
 *   dk, dv 64    1x128 2,2  337 364 391 403 174    1x64  2,3  322 362 383 391 189
 *   dk, dv 128   1x64  2,2  455 470 419 500 313    2x64  2,1  424 449 479 500 274
 *   dq 64        1x64  3,3  338 380 404 415 256    1x64  2,3  330 365 388 401 252
 *   dq 128       1x64  2,2  408 463 525 480 326    2x128 2,1  363 411 487 436 256
 * Short and packed rows decide: a block of one warpgroup wastes the least of them, and what a larger one gains at 8192
 * is 3 %. */
#include "backend/cuda/attend_grad_sm90.cuh"

#ifdef HAVE_SM90A
template <typename T> static void forward(cudaStream_t s, const CudaAttend *a) {
    if (a->dim == 64)
        launch_forward_sm90<T, 64, ForwardCut<1, 128, 3>>(s, a);
    else
        launch_forward_sm90<T, 128, ForwardCut<1, 64, 2>>(s, a);
}

template <typename T> static void backward(cudaStream_t s, const CudaAttendGrad *planned) {
    CudaAttendGrad g = *planned; /* blocks of 64 keys are no fewer than planned: no more parts are needed */
    g.n_parts =
        device_attend_parts(g.a.rows * g.a.kv_heads * blocks_for(g.a.seq, GROUP_ROWS), g.a.heads / g.a.kv_heads);
    if (g.a.dim == 64) {
        launch_back_sm90<T, 64, true, BackCut<1, 128, 2, 2>>(s, &g);
        launch_back_sm90<T, 64, false, BackCut<1, 64, 3, 3>>(s, &g);
    } else {
        launch_back_sm90<T, 128, true, BackCut<1, 64, 2, 2>>(s, &g);
        launch_back_sm90<T, 128, false, BackCut<1, 64, 2, 2>>(s, &g);
    }
    cuda_launch_attend_join(s, &g);
}

static bool takes(const CudaAttend *a) {
    return (a->dim == 64 || a->dim == 128) && (a->format == FMT_BF16 || a->format == FMT_F16);
}
#endif

extern "C" bool cuda_attend_sm90_takes(const CudaAttend *a) {
#ifdef HAVE_SM90A
    return takes(a);
#else
    return false;
#endif
}

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
