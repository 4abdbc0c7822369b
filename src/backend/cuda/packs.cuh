/* packs.cuh - eight numbers of a row kept as they are stored, half the registers of fp32, until they are needed; and
 * sums over the threads that share a row. */
#ifndef BACKEND_CUDA_PACKS_CUH
#define BACKEND_CUDA_PACKS_CUH

#include "backend/cuda/ptx.cuh"

enum { WIDE = 8 };

template <typename T> struct Pack { /* WIDE numbers; their address allows 16 bytes at a time */
    static constexpr int QUADS = WIDE * (int)sizeof(T) / 16;
    uint4 q[QUADS];
};

template <typename T> DEVICE Pack<T> fetch(const T *p) {
    Pack<T> k;
#pragma unroll
    for (int i = 0; i < Pack<T>::QUADS; i++) k.q[i] = ((const uint4 *)p)[i];
    return k;
}

template <typename T> DEVICE void put(T *p, const Pack<T> &k) {
#pragma unroll
    for (int i = 0; i < Pack<T>::QUADS; i++) ((uint4 *)p)[i] = k.q[i];
}

template <typename T> DEVICE void spread(float (&x)[WIDE], const Pack<T> &k) {
#pragma unroll
    for (int i = 0; i < Pack<T>::QUADS; i++) {
        uint32_t w[4] = {k.q[i].x, k.q[i].y, k.q[i].z, k.q[i].w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if constexpr (std::is_same<T, float>::value) {
                x[4 * i + n] = __uint_as_float(w[n]);
            } else {
                float2 v = unpack(w[n], T());
                x[2 * n] = v.x, x[2 * n + 1] = v.y;
            }
        }
    }
}

template <typename T> DEVICE Pack<T> gather(const float (&x)[WIDE]) { /* to nearest, ties to even */
    Pack<T> k;
    if constexpr (std::is_same<T, float>::value) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            k.q[i] = make_uint4(__float_as_uint(x[4 * i]), __float_as_uint(x[4 * i + 1]),
                                __float_as_uint(x[4 * i + 2]), __float_as_uint(x[4 * i + 3]));
    } else {
        k.q[0] = make_uint4(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]), pack<T>(x[6], x[7]));
    }
    return k;
}

/* A team is 2^bits threads of a block, whole warps that follow each other: its number, and a thread's place in it. */
struct Team {
    int number, me, threads;
};
DEVICE Team team_of(int bits) {
    return {(int)threadIdx.x >> bits, (int)threadIdx.x & ((1 << bits) - 1), 1 << bits};
}

/* part: one number a warp of the team in shared memory, free again after its next sum. Every thread of it gets the sum,
 * and no other has to come: at most 15 teams a block. */
DEVICE float sum_of_team(float x, const Team &t, float *part) {
    x = warp_sum(x);
    if (t.threads == WARP) return x;
    if (t.me % WARP == 0) part[t.me / WARP] = x;
    sync_some(t.number + 1, t.threads);
    x = part[0];
    for (int i = 1; i < t.threads / WARP; i++) x += part[i];
    return x;
}

#endif
