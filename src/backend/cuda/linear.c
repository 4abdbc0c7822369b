/* linear.c - linear and its three gradients (the contract stands in ir/op_linear.c) on the GPU. Reference:
 * cpu/linear.c. */
#include "backend/cuda/product.h"

void cuda_linear(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    Operand weight = a->linear.in.w, bias = a->linear.in.bias;
    CudaMatrix x = cuda_matrix(a->linear.in.x), y = cuda_matrix(a->linear.out.y);
    CudaMatrix so_far = cuda_matrix(a->linear.in.so_far), cast = {0};
    if (!so_far.data && cuda_times_weight_few(w, y, x, weight, bias)) return;
    if (bias.data) cast = cuda_cast(&w, cuda_matrix(bias), y.format);
    cuda_times_weight(w, y, x, cuda_matrix(weight), cast.data, so_far);
}

/* In one launch where that takes it (product_few_cores.cu). */
void cuda_linear_swiglu(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaFew few = cuda_few(cuda_matrix(a->linear_swiglu.out.h), cuda_matrix(a->linear_swiglu.in.x),
                           a->linear_swiglu.in.w, a->linear_swiglu.in.bias);
    few.gated = true;
    if (!cuda_launch_few_cores(cuda_work_stream(&w), &few)) backend_linear_swiglu(b, q, a, cuda_linear, cuda_swiglu);
}

void cuda_linear_dx(Backend *b, Queue q, const Args *a) {
    cuda_back_through(cuda_work(b, q, a), cuda_matrix(a->linear_dx.out.dx), cuda_matrix(a->linear_dx.in.dy),
                      cuda_matrix(a->linear_dx.in.w), cuda_matrix(a->linear_dx.in.so_far));
}

/* The part 0 in the key: the CPU counts the parts of a sum that are rounded on their own, and this has one. */
void cuda_linear_dw(Backend *b, Queue q, const Args *a) {
    Operand dw = a->linear_dw.out.dw;
    CudaGradient g = {.dw = cuda_matrix(dw), .tensor = dw.data, .alpha = 1, .beta = a->linear_dw.in.beta.data,
                      .fresh = op_is_fresh(a->step), .key = cuda_key(a, a->linear_dw.in.clock, 0)};
    cuda_add_gradient(cuda_work(b, q, a), &g, cuda_matrix(a->linear_dw.in.dy), cuda_matrix(a->linear_dw.in.x));
}

void cuda_linear_db(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix dy = cuda_matrix(a->linear_db.in.dy), db = cuda_matrix(a->linear_db.out.db);
    CudaColumnSums sums = {.db = cuda_numbers(db),
                           .dy = cuda_numbers(dy),
                           .rows = dy.rows,
                           .cols = dy.cols,
                           .rows_a_part = DEVICE_SUM_ROWS,
                           .beta = a->linear_db.in.beta.data,
                           .key = cuda_key(a, a->linear_db.in.clock, -1)};
    sums.parts = cuda_work_take(&w, device_sum_bytes(dy.rows, dy.cols));
    cuda_launch_column_sums(cuda_work_stream(&w), &sums);
}
