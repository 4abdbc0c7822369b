/* mask.cu - a selection as a bit mask, one bit per key of a query's row, so that kernels can work on tiles of pairs
 * (block-sparse attention).
 *
 * A block a token: its words are made in shared memory, from the list of keys or from what the token sees, then
 * written. Tokens that do not count have no bits. */
#include "backend/cuda/sparse.cuh"

enum { THREADS = 128 };

/* Word w of the bits [begin, end). */
DEVICE uint32_t word_of(int w, int begin, int end) {
    int from = max(begin - w * 32, 0), upto = min(end - w * 32, 32);
    if (from >= upto) return 0;
    return (~0u >> (32 - (upto - from))) << from;
}

__global__ void __launch_bounds__(THREADS) mask_kernel(CudaMask m) {
    extern __shared__ uint32_t bits[];
    int64_t token = blockIdx.x;
    bool counts = !m.weight || m.weight[token] != 0, spans = counts && !m.list;
    int begin = spans ? max(m.doc_begin[token], 0) : 0, end = (int)(token % m.seq) + 1;
    for (int i = threadIdx.x; i < m.words; i += THREADS) bits[i] = spans ? word_of(i, begin, end) : 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; m.list && counts && i < m.most; i += THREADS) {
        int key = m.list[token * m.most + i];
        if (key < 0) break; /* and so are all behind it */
        atomicOr(&bits[key / 32], 1u << key % 32);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < m.words; i += THREADS) m.mask[token * m.words + i] = bits[i];
}

extern "C" void cuda_launch_mask(cudaStream_t s, const CudaMask *m) {
    int bytes = m->words * 4;
    cudaFuncSetAttribute(mask_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    mask_kernel<<<(unsigned)m->tokens, THREADS, bytes, s>>>(*m);
}
