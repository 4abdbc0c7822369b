/* product_codes.cuh - dequantisation in registers, two numbers at a time as an mma takes them, for products of a few
 * and of some rows on tensor cores. int8: codes become numbers by their bits, the row's scale comes last. nf4: levels
 * in x's format, stretched so that they are rounded least, from a table with a copy for every lane. */
#ifndef BACKEND_CUDA_PRODUCT_CODES_CUH
#define BACKEND_CUDA_PRODUCT_CODES_CUH

#include "backend/cuda/ptx.cuh"
#include "backend/cuda/product_few.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAVE_TENSOR_CORES 1 /* of this kind */
#endif

static const float STRETCH_BF16 = 1.4365234375f, STRETCH_F16 = 1.3662109375f;

struct Int8 {};
struct Nf4 {};
struct Levels { /* in x's format */
    uint16_t at[16];
};

template <typename W> constexpr bool IS_NF4 = std::is_same<W, Nf4>::value;
template <typename W> constexpr int PIECE = IS_NF4<W> ? 32 : 16; /* numbers in 16 bytes */

DEVICE uint32_t word_of(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/* The i-th two of 16 codes. bf16: 128 + the code's low 7 bits, less 128 or, by its sign bit, 256. fp16: 1024 + (code +
 * 128), less 1152. */
template <typename X> DEVICE uint32_t int8_pair(uint4 v, int i) {
    uint32_t word = word_of(v, i / 2), which = i % 2 ? 0x4342 : 0x4140;
    if constexpr (std::is_same<X, Bf16>::value) {
        uint32_t p = __byte_perm(word, 0, which);
        uint32_t low = (p & 0x007f007fu) | 0x43004300u, off = (p & 0x00800080u) | 0x43004300u;
        return difference(low, off, Bf16());
    } else {
        uint32_t p = __byte_perm(word ^ 0x80808080u, 0x64646464u, which);
        return difference(p, 0x64806480u, F16());
    }
}

/* The two levels of a byte of nf4. */
DEVICE uint32_t levels_of_byte(const Levels &levels, int byte) {
    return levels.at[byte & 15] | (uint32_t)levels.at[byte >> 4] << 16;
}

/* ---- on the host ---- */

static inline uint16_t bits_of(float x, Bf16) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static inline uint16_t bits_of(float x, F16) { return __half_as_ushort(__float2half_rn(x)); }

/* Fills the levels; gives what every sum is to be multiplied by. */
template <typename W, typename X> static float make_levels(Levels &levels) {
    if (!IS_NF4<W>) return 1;
    float stretch = std::is_same<X, Bf16>::value ? STRETCH_BF16 : STRETCH_F16;
    for (int k = 0; k < 16; k++) levels.at[k] = bits_of(format_nf4_levels[k] * stretch, X());
    return 1 / stretch;
}

static inline int of_card(cudaDeviceAttr what) {
    int device = 0, value = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&value, what, device);
    return value;
}

/* Quantised weights, 16-bit x, whole pieces of 8 numbers, and a card that has these tensor cores. */
static inline bool takes_codes(const CudaFew *a) {
    bool quantised = a->w.format == FMT_INT8 || a->w.format == FMT_NF4,
         x16 = a->x_format == FMT_BF16 || a->x_format == FMT_F16;
    return quantised && x16 && a->inner % 8 == 0 && is_packed(a->x) && is_packed(a->w.data) &&
           of_card(cudaDevAttrComputeCapabilityMajor) >= 8;
}

#endif
