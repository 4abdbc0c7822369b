/* gate.cu - gates on some columns of a row, their gradient, sums of two tensors, how far gates are open. Reference:
 * cpu/gate.c.
 *
 *   gate       y = x, columns [first, first + group*Z) times act(z)     a thread a number
 *   gate_grad  dz = act'(z) * sum over its group of dy*x                a thread a gate, before
 *              dx = dy, gated columns times act(z)                      a thread a number: dx may stand in dy's place
 * Bytes: x, z and y once; the gradient reads dy twice. */
#include "backend/cuda/sparse.cuh"

enum { THREADS = 256 };

DEVICE float gate_of(float z, GateAct act) {
    return act == GATE_SILU ? z * sigmoid(z) : sigmoid(act == GATE_TANH ? 2.0f * z : z);
}

DEVICE float slope_of(float z, GateAct act) {
    float s = sigmoid(act == GATE_TANH ? 2.0f * z : z);
    return act == GATE_SILU ? s * (1.0f + z * (1.0f - s)) : (act == GATE_TANH ? 2.0f : 1.0f) * s * (1.0f - s);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    gate_kernel(T *y, const T *x, const T *z, int64_t rows, int64_t cols, int64_t gates, AttrGate a) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * cols) return;
    int64_t row = i / cols, c = i % cols - a.first;
    float v = to_float(x[i]);
    if (c >= 0 && c < gates * a.group) v *= gate_of(to_float(z[row * gates + c / a.group]), a.act);
    y[i] = from_float<T>(v);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    gate_dz_kernel(T *dz, const T *dy, const T *x, const T *z, int64_t rows, int64_t cols, int64_t gates, AttrGate a) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows * gates) return;
    int64_t at = i / gates * cols + a.first + i % gates * a.group;
    float sum = 0;
    for (int64_t c = 0; c < a.group; c++) sum += to_float(dy[at + c]) * to_float(x[at + c]);
    dz[i] = from_float<T>(sum * slope_of(to_float(z[i]), a.act));
}

template <typename T>
__global__ void __launch_bounds__(THREADS) mix_kernel(T *y, const T *a, const T *b, int64_t n, AttrMix by) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) y[i] = from_float<T>(by.a * to_float(a[i]) + (b ? by.b * to_float(b[i]) : 0.0f));
}

__global__ void __launch_bounds__(1024)
    gate_report_kernel(double *stat, CudaNumbers z, int64_t n, GateAct act, const float *beta) {
    __shared__ double part[WARP];
    __shared__ float part_max[WARP];
    double open = 0, shut = 0, keep = (double)read_beta(beta);
    float most = -INFINITY, least = -INFINITY; /* least: of the negative */
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float x = z.format == FMT_F32    ? ((const float *)z.data)[i]
                  : z.format == FMT_BF16 ? to_float(((const Bf16 *)z.data)[i])
                                         : to_float(((const F16 *)z.data)[i]);
        float v = gate_of(x, act);
        open += v;
        shut += v < 0.1f;
        most = fmaxf(most, v);
        least = fmaxf(least, -v);
    }
    open = total_of_block(open, part);
    shut = total_of_block(shut, part);
    most = max_of_block(most, part_max);
    least = max_of_block(least, part_max);
    int w = threadIdx.x;
    if (w >= REPORT_WORDS) return;
    double add = w == REPORT_GATES        ? (double)n
                 : w == REPORT_OPEN       ? open
                 : w == REPORT_SHUT       ? shut
                 : w == REPORT_GATE_MOST  ? 1.0 + (double)most
                 : w == REPORT_GATE_LEAST ? (double)REPORT_FAR + (double)least
                                          : 0.0;
    stat[w] = keep == 0 ? add : w < REPORT_SUMS ? keep * stat[w] + add : fmax(keep * stat[w], add);
}

extern "C" void cuda_launch_gate(cudaStream_t s, CudaNumbers y, const void *x, const void *z, int64_t rows,
                                 int64_t cols, int64_t gates, AttrGate a) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        gate_kernel<T><<<blocks_for(rows * cols, THREADS), THREADS, 0, s>>>((T *)y.data, (const T *)x, (const T *)z,
                                                                            rows, cols, gates, a);
    });
}

extern "C" void cuda_launch_gate_grad(cudaStream_t s, Format f, void *dx, void *dz, const void *dy, const void *x,
                                      const void *z, int64_t rows, int64_t cols, int64_t gates, AttrGate a) {
    with_real(f, [&](auto t) {
        using T = decltype(t);
        if (dz)
            gate_dz_kernel<T><<<blocks_for(rows * gates, THREADS), THREADS, 0, s>>>(
                (T *)dz, (const T *)dy, (const T *)x, (const T *)z, rows, cols, gates, a);
        if (dx)
            gate_kernel<T><<<blocks_for(rows * cols, THREADS), THREADS, 0, s>>>((T *)dx, (const T *)dy, (const T *)z,
                                                                                rows, cols, gates, a);
    });
}

extern "C" void cuda_launch_mix(cudaStream_t s, CudaNumbers y, const void *a, const void *b, int64_t n, AttrMix by) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        mix_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, s>>>((T *)y.data, (const T *)a, (const T *)b, n, by);
    });
}

extern "C" void cuda_launch_gate_report(cudaStream_t s, double *stat, CudaNumbers z, int64_t n, GateAct act,
                                        const float *beta) {
    gate_report_kernel<<<1, 1024, 0, s>>>(stat, z, n, act, beta);
}
