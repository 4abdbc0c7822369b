/* linear.c - linear and its three gradients (the contract stands in ir/op_linear.c) on the GPU. Reference:
 * cpu/linear.c. */
#include "backend/cuda/product.h"

void cuda_linear(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix y = cuda_output(a, 0), bias = {0}, so_far = cuda_input(a, 3);
    if (!so_far.data && cuda_times_weight_few(w, y, cuda_input(a, 0), cuda_input(a, 1), cuda_input(a, 2))) return;
    if (a->in[2]) bias = cuda_cast(&w, cuda_input(a, 2), y.format);
    cuda_times_weight(w, y, cuda_input(a, 0), cuda_input(a, 1), bias.data, so_far);
}

/* In one launch where that takes it (product_few_cores.cu). */
void cuda_linear_swiglu(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaFew few = cuda_few(&w, cuda_output(a, 0), cuda_input(a, 0), cuda_input(a, 1), cuda_input(a, 2));
    few.gated = true;
    if (!cuda_launch_few_cores(cuda_work_stream(&w), &few)) backend_linear_swiglu(b, q, a, cuda_linear, cuda_swiglu);
}

void cuda_linear_dx(Backend *b, Queue q, const Args *a) {
    cuda_back_through(cuda_work(b, q, a), cuda_output(a, 0), cuda_input(a, 0), cuda_input(a, 1), cuda_input(a, 2));
}

/* The part 0 in the key: the CPU counts the parts of a sum that are rounded on their own, and this has one. */
void cuda_linear_dw(Backend *b, Queue q, const Args *a) {
    CudaGradient g = {.dw = cuda_output(a, 0), .tensor = a->out[0], .alpha = 1, .beta = a->in[2],
                      .fresh = op_is_fresh(a->step), .key = cuda_key(a, 3, 0)};
    cuda_add_gradient(cuda_work(b, q, a), &g, cuda_input(a, 0), cuda_input(a, 1));
}

void cuda_linear_db(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix dy = cuda_input(a, 0), db = cuda_output(a, 0);
    CudaColumnSums sums = {.db = cuda_numbers(db),
                           .dy = cuda_numbers(dy),
                           .rows = dy.rows,
                           .cols = dy.cols,
                           .rows_a_part = DEVICE_SUM_ROWS,
                           .beta = a->in[1],
                           .key = cuda_key(a, 2, -1)};
    sums.parts = cuda_work_take(&w, device_sum_bytes(dy.rows, dy.cols));
    cuda_launch_column_sums(cuda_work_stream(&w), &sums);
}
