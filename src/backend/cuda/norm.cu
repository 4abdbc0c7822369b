/* norm.cu - RMS norms of whole rows, with the residual add in front of them, and their gradient. Reference:
 * cpu/norm.c.
 *
 *   r = 1/sqrt(mean(x^2) + eps);  y = x*r*w;  dx = so_far + r*dy*w - x * r^3 * sum(dy*w*x)/n
 *   dw = sum over rows of dy*x*r
 *
 * rmsnorm       (N,C): a row a team.                                                            2 numbers moved
 * add_rmsnorm   the same for x = a + b, rounded as it is stored; x is given too.                4 numbers moved
 * rmsnorm_grad  (N,C): a row a team; when dw is wanted, the teams of a block take one part of the rows, every thread
 *               sums its own columns in registers, and the teams' sums are added in order.      4 numbers moved
 * A team is 32 to 256 threads, by the row's length alone, so that bits do not depend on how many rows there are. A
 * thread keeps its numbers of the row, up to SHARE packs, in registers: everything is read once, and all of it at once.
 * Other rows (longer than 8192, or not whole packs) are read twice by a block, the second time from the caches.
 * Parts of dw (parts, C) lie in the workspace and are added by parts.cuh. dx may stand in so_far's place and a + b in
 * b's: a number is read before it is written, by the same thread. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/packs.cuh"
#include "backend/cuda/parts.cuh"

enum { SHARE = 4, BLOCK = 256, LEAST_BITS = 5, MOST_BITS = 8, MOST_THREADS = 512, PLAIN_SHARED = 48 * 1024 };
enum { FEW_ROWS = 512 /* up to here a block is one team */, MOST_PARTS = 256 /* of dw: the blocks that run at once */ };

static int team_bits(int64_t cols) { /* of the smallest team whose threads can keep the row */
    int bits = LEAST_BITS;
    while (bits < MOST_BITS && (int64_t)SHARE * WIDE << bits < cols) bits++;
    return bits;
}
static bool fits_team(int64_t cols) { return cols <= (int64_t)SHARE * WIDE << MOST_BITS; }

static int threads_for(int64_t cols, int v) { /* whole warps that cover a row, as far as a block goes */
    int64_t n = (cols / v + WARP - 1) / WARP * WARP;
    if (n > MOST_THREADS) return MOST_THREADS;
    return n ? (int)n : WARP;
}

/* A warp of a team has SHARE stretches of the row that follow each other, and a lane a pack of each: so many are behind
 * the first that not all of them may be there. */
enum { APART = WARP * WIDE };
DEVICE int first_column(const Team &t) { return t.me / WARP * SHARE * APART + t.me % WARP * WIDE; }
DEVICE int packs_of(int cols, int first) { return first < cols ? (cols - first + APART - 1) / APART : 0; }

/* ---- forward ---- */

template <typename T> struct NormRows {
    T *y, *sum; /* sum: of x and b, when there is a b */
    float *rstd;
    const T *x, *b;
    int64_t rows;
    int cols;
    float eps;
};

template <typename T, typename W, bool ADD> __global__ void __launch_bounds__(BLOCK, 2)
    norm_team_kernel(NormRows<T> n, const W *w, int bits) {
    __shared__ float part[BLOCK / WARP];
    const Team t = team_of(bits);
    chain_wait();
    const int64_t row = (int64_t)blockIdx.x * (blockDim.x >> bits) + t.number;
    if (row >= n.rows) return;
    const int c = first_column(t), mine = packs_of(n.cols, c);
    const int64_t at = row * n.cols + c;
    Pack<T> x[SHARE], b[SHARE];
    Pack<W> f[SHARE];
    float squares = 0, v[WIDE], u[WIDE];
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (j >= mine) continue;
        x[j] = fetch(n.x + at + j * APART);
        if (ADD) b[j] = fetch(n.b + at + j * APART);
        f[j] = fetch(w + c + j * APART);
    }
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (j >= mine) continue;
        spread(v, x[j]);
        if (ADD) {
            spread(u, b[j]);
#pragma unroll
            for (int k = 0; k < WIDE; k++) v[k] += u[k];
            x[j] = gather<T>(v);
            put(n.sum + at + j * APART, x[j]);
            spread(v, x[j]);
        }
#pragma unroll
        for (int k = 0; k < WIDE; k++) squares += v[k] * v[k];
    }
    float r = 1.0f / sqrtf(sum_of_team(squares, t, part + t.number * t.threads / WARP) / (float)n.cols + n.eps);
    if (t.me == 0) n.rstd[row] = r;
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (j >= mine) continue;
        spread(v, x[j]);
        spread(u, f[j]);
#pragma unroll
        for (int k = 0; k < WIDE; k++) v[k] = v[k] * r * u[k];
        put(n.y + at + j * APART, gather<T>(v));
    }
}

template <typename T, typename W, int V> __global__ void __launch_bounds__(MOST_THREADS)
    norm_any_kernel(NormRows<T> n, const W *w) {
    __shared__ float part[WARP];
    const int64_t first = (int64_t)blockIdx.x * n.cols;
    chain_wait();
    const T *row = (n.b ? n.sum : n.x) + first; /* a thread reads the sums that it wrote itself */
    float squares = 0, a[V], b[V];
    for (int c = threadIdx.x * V; c < n.cols; c += blockDim.x * V) {
        load<V>(a, n.x + first + c);
        if (n.b) {
            load<V>(b, n.b + first + c);
#pragma unroll
            for (int k = 0; k < V; k++) a[k] = to_float(from_float<T>(a[k] + b[k]));
            store<V>(n.sum + first + c, a);
        }
#pragma unroll
        for (int k = 0; k < V; k++) squares += a[k] * a[k];
    }
    float r = 1.0f / sqrtf(sum_of_block(squares, part) / (float)n.cols + n.eps);
    if (threadIdx.x == 0) n.rstd[blockIdx.x] = r;
    for (int c = threadIdx.x * V; c < n.cols; c += blockDim.x * V) {
        load<V>(a, row + c);
        load<V>(b, w + c);
#pragma unroll
        for (int k = 0; k < V; k++) a[k] = a[k] * r * b[k];
        store<V>(n.y + first + c, a);
    }
}

template <typename T, typename W> static void norm_rows(cudaStream_t s, const NormRows<T> &n, const W *w) {
    bool packs = n.cols % WIDE == 0 && is_packed(n.y) && is_packed(n.sum) && is_packed(n.x) && is_packed(n.b) &&
                 is_packed(w);
    if (packs && fits_team(n.cols)) {
        int bits = team_bits(n.cols), threads = n.rows > FEW_ROWS ? BLOCK : 1 << bits;
        auto kernel = n.b ? norm_team_kernel<T, W, true> : norm_team_kernel<T, W, false>;
        cuda_launch_chained(s, kernel, blocks_for(n.rows, threads >> bits), threads, 0, n, w, bits);
    } else {
        auto kernel = packs ? norm_any_kernel<T, W, WIDE> : norm_any_kernel<T, W, 1>;
        cuda_launch_chained(s, kernel, (unsigned)n.rows, threads_for(n.cols, packs ? WIDE : 1), 0, n, w);
    }
}

extern "C" void cuda_launch_rmsnorm(cudaStream_t s, const CudaNorm *n) {
    with_real(n->y.format, [&](auto t) {
        with_real(n->w.format, [&](auto u) {
            using T = decltype(t);
            using W = decltype(u);
            NormRows<T> rows = {(T *)n->y.data, (T *)n->sum, n->rstd,      (const T *)n->x,
                                (const T *)n->b, n->rows,    (int)n->cols, n->eps};
            norm_rows<T, W>(s, rows, (const W *)n->w.data);
        });
    });
}

/* ---- backward ---- */

template <typename T> struct GradRows {
    T *dx;                    /* NULL: not wanted */
    const T *dy, *x, *so_far; /* so_far NULL: none */
    const float *rstd;
    float *parts; /* NULL: no dw */
    int64_t rows;
    int cols, rows_a_block;
};

/* One row: gives dx, adds to the thread's own sums of dw. The weight comes from the caches every time: registers for it
 * would halve the rows that are under way. */
template <typename T, typename W>
DEVICE void grad_row(const GradRows<T> &g, float (&sums)[SHARE][WIDE], const W *w, int64_t row, const Team &t,
                     float *part) {
    const int c = first_column(t), mine = packs_of(g.cols, c);
    const int64_t at = row * g.cols + c;
    Pack<T> dy[SHARE], x[SHARE], was[SHARE];
    Pack<W> f[SHARE];
    float a[WIDE], b[WIDE], u[WIDE], dot = 0;
    const float r = g.rstd[row];
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (j >= mine) continue;
        dy[j] = fetch(g.dy + at + j * APART);
        x[j] = fetch(g.x + at + j * APART);
        if (g.so_far) was[j] = fetch(g.so_far + at + j * APART);
        f[j] = fetch(w + c + j * APART);
    }
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (j >= mine) continue;
        spread(a, dy[j]);
        spread(b, x[j]);
        spread(u, f[j]);
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
            dot += a[k] * u[k] * b[k];
            sums[j][k] += a[k] * b[k] * r;
        }
    }
    if (!g.dx) return;
    const float pull = sum_of_team(dot, t, part) * r * r * r / (float)g.cols;
#pragma unroll
    for (int j = 0; j < SHARE; j++) {
        if (j >= mine) continue;
        spread(a, dy[j]);
        spread(b, x[j]);
        spread(u, f[j]);
#pragma unroll
        for (int k = 0; k < WIDE; k++) a[k] = a[k] * u[k] * r - b[k] * pull;
        if (g.so_far) {
            spread(b, was[j]);
#pragma unroll
            for (int k = 0; k < WIDE; k++) a[k] += b[k];
        }
        put(g.dx + at + j * APART, gather<T>(a));
    }
}

template <typename T, typename W> __global__ void __launch_bounds__(BLOCK, sizeof(T) + sizeof(W) == 4 ? 2 : 1)
    grad_team_kernel(GradRows<T> g, const W *w, int bits) {
    __shared__ float part[2][BLOCK / WARP];                     /* two, so that one barrier a row is enough */
    __shared__ __align__(16) float teams[BLOCK * SHARE * WIDE]; /* (teams, cols): their sums */
    const Team t = team_of(bits);
    const int n_teams = BLOCK >> bits, c = first_column(t), mine = packs_of(g.cols, c);
    float sums[SHARE][WIDE] = {};
    chain_wait();
    int64_t row = (int64_t)blockIdx.x * g.rows_a_block, last = min(row + g.rows_a_block, g.rows);
    int turn = 0;
    for (row += t.number; row < last; row += n_teams, turn ^= 1)
        grad_row<T, W>(g, sums, w, row, t, &part[turn][t.number * t.threads / WARP]);
    if (!g.parts) return;
#pragma unroll
    for (int j = 0; j < SHARE; j++)
        if (j < mine) store<WIDE>(teams + t.number * g.cols + c + j * APART, sums[j]);
    __syncthreads();
    float *to = g.parts + (int64_t)blockIdx.x * g.cols;
    for (int i = threadIdx.x * 4; i < g.cols; i += BLOCK * 4) {
        float total[4], more[4];
        load<4>(total, teams + i);
        for (int k = 1; k < n_teams; k++) {
            load<4>(more, teams + k * g.cols + i);
#pragma unroll
            for (int m = 0; m < 4; m++) total[m] += more[m];
        }
        store<4>(to + i, total);
    }
}

template <typename T, typename W, int V> __global__ void __launch_bounds__(MOST_THREADS)
    grad_any_kernel(GradRows<T> g, const W *w) {
    extern __shared__ float sums[]; /* (cols) of dw, when wanted */
    __shared__ float part[2][WARP]; /* two, so that one barrier a row is enough */
    int step = blockDim.x * V;
    int64_t row = (int64_t)blockIdx.x * g.rows_a_block, last = min(row + g.rows_a_block, g.rows);
    if (g.parts)
        for (int c = threadIdx.x * V; c < g.cols; c += step)
#pragma unroll
            for (int k = 0; k < V; k++) sums[c + k] = 0;
    for (int turn = 0; row < last; row++, turn ^= 1) {
        const T *dy = g.dy + row * g.cols, *x = g.x + row * g.cols;
        float r = g.rstd[row], dot = 0, a[V], b[V], f[V];
        for (int c = threadIdx.x * V; c < g.cols; c += step) {
            load<V>(a, dy + c);
            load<V>(b, x + c);
            load<V>(f, w + c);
#pragma unroll
            for (int k = 0; k < V; k++) dot += a[k] * f[k] * b[k];
            if (!g.parts) continue;
#pragma unroll
            for (int k = 0; k < V; k++) sums[c + k] += a[k] * b[k] * r;
        }
        if (!g.dx) continue;
        float pull = sum_of_block(dot, part[turn]) * r * r * r / (float)g.cols;
        for (int c = threadIdx.x * V; c < g.cols; c += step) {
            load<V>(a, dy + c);
            load<V>(b, x + c);
            load<V>(f, w + c);
#pragma unroll
            for (int k = 0; k < V; k++) a[k] = a[k] * f[k] * r - b[k] * pull;
            if (g.so_far) {
                load<V>(b, g.so_far + row * g.cols + c);
#pragma unroll
                for (int k = 0; k < V; k++) a[k] += b[k];
            }
            store<V>(g.dx + row * g.cols + c, a);
        }
    }
    if (!g.parts) return;
    float *to = g.parts + (int64_t)blockIdx.x * g.cols; /* each thread gives the columns it summed */
    for (int c = threadIdx.x * V; c < g.cols; c += step)
#pragma unroll
        for (int k = 0; k < V; k++) to[c + k] = sums[c + k];
}

/* Rows of one part: the workspace has room for parts of DEVICE_NORM_PART, and more than MOST_PARTS are not wanted. */
static int part_rows(int64_t rows) {
    int64_t times = (rows + (int64_t)DEVICE_NORM_PART * MOST_PARTS - 1) / ((int64_t)DEVICE_NORM_PART * MOST_PARTS);
    return (int)(DEVICE_NORM_PART * (times > 1 ? times : 1));
}

/* the blocks */
template <typename T, typename W> static unsigned grad_rows(cudaStream_t s, GradRows<T> g, const W *w) {
    bool packs = g.cols % WIDE == 0 && is_packed(g.dx) && is_packed(g.dy) && is_packed(g.x) && is_packed(g.so_far) &&
                 is_packed(w);
    int bits = team_bits(g.cols), threads = threads_for(g.cols, packs ? WIDE : 1);
    g.rows_a_block = g.parts ? part_rows(g.rows) : packs && fits_team(g.cols) ? BLOCK >> bits : 1;
    unsigned blocks = blocks_for(g.rows, g.rows_a_block);
    if (packs && fits_team(g.cols)) {
        cuda_launch_chained(s, grad_team_kernel<T, W>, blocks, BLOCK, 0, g, w, bits);
        return blocks;
    }
    auto kernel = packs ? grad_any_kernel<T, W, WIDE> : grad_any_kernel<T, W, 1>;
    size_t shared = g.parts ? (size_t)g.cols * sizeof(float) : 0;
    if (shared > PLAIN_SHARED)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<blocks, threads, shared, s>>>(g, w);
    return blocks;
}

extern "C" void cuda_launch_rmsnorm_grad(cudaStream_t s, const CudaNormGrad *g) {
    bool sums = g->dw.data != NULL;
    unsigned blocks = 0;
    with_real(g->x.format, [&](auto t) {
        with_real(g->w.format, [&](auto u) {
            using T = decltype(t);
            using W = decltype(u);
            GradRows<T> rows = {
                (T *)g->dx.data,        (const T *)g->dy, (const T *)g->x.data, (const T *)g->so_far, g->rstd,
                sums ? g->parts : NULL, g->rows,          (int)g->cols,         1};
            blocks = grad_rows<T, W>(s, rows, (const W *)g->w.data);
        });
    });
    if (sums) join_parts(s, g->dw, g->parts, blocks, g->cols, g->cols, g->beta, g->key);
}
