/* vector_types.h - CUDA's small vectors, for C and C++: made by make_TYPE(...), aligned to themselves. */
#ifndef TESTS_CUDA_ON_HOST_VECTOR_TYPES_H
#define TESTS_CUDA_ON_HOST_VECTOR_TYPES_H

#ifdef __cplusplus
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define VECTOR2(NAME, T)                    \
    struct alignas(2 * sizeof(T)) NAME {    \
        T x, y;                             \
    };                                      \
    static inline NAME make_##NAME(T x, T y) { return NAME{x, y}; }
#define VECTOR4(NAME, T)                    \
    struct alignas(4 * sizeof(T)) NAME {    \
        T x, y, z, w;                       \
    };                                      \
    static inline NAME make_##NAME(T x, T y, T z, T w) { return NAME{x, y, z, w}; }
VECTOR2(int2, int)
VECTOR2(uint2, unsigned)
VECTOR2(float2, float)
VECTOR4(int4, int)
VECTOR4(uint4, unsigned)
VECTOR4(float4, float)
#undef VECTOR2
#undef VECTOR4
#endif

#endif
