/* few_body.h - the loops of few.h. Included by a file that has defined
 *
 *     FEW_TARGET, KERNELS            the instruction set as an attribute, the table's name
 *     Vec, Codes, LANES              numbers side by side; as many 32-bit words; how many
 *     vec_load, vec_bf16, vec_f16, vec_int8   LANES numbers from memory
 *     vec_add_product(a, x, y)       a + x*y
 *     vec_sum                        of its lanes
 *     codes_load(at)                 LANES words of eight nf4 codes
 *     codes_level(codes, k)          the levels of their k-th codes
 *     vec_most(block)                the maximum of each word's block, from this one on */
enum { GROUP = 8 * LANES };

#define INLINE FEW_TARGET static inline __attribute__((always_inline))

typedef enum Kind { KIND_F32, KIND_BF16, KIND_F16, KIND_INT8 } Kind;

INLINE void load_kind(Vec *to, const void *w, int64_t at, const Kind kind) {
    if (kind == KIND_F32) *to = vec_load((const float *)w + at);
    else if (kind == KIND_BF16) *to = vec_bf16((const uint16_t *)w + at);
    else if (kind == KIND_F16) *to = vec_f16((const uint16_t *)w + at);
    else *to = vec_int8((const int8_t *)w + at);
}

/* A constant number of rows, so that the sums stay in registers; two sums a row, since an addition takes longer than a
 * turn of the loop. */
INLINE void add_rows(float *sum, const void *w, const Kind kind, const float *x, int64_t ldx, const int rows,
                     int64_t n) {
    const int item = kind == KIND_F32 ? 4 : kind == KIND_INT8 ? 1 : 2;
    Vec even[4], odd[4];
    for (int r = 0; r < rows; r++) even[r] = odd[r] = vec_zero();
    for (int64_t i = 0; i < n; i += FEW_STEP) {
        for (int line = 0; line < item; line++)
            __builtin_prefetch((const char *)w + i * item + FEW_AHEAD + (int64_t)line * 64);
        for (int at = 0; at < FEW_STEP; at += 2 * LANES) {
            Vec first, second;
            load_kind(&first, w, i + at, kind);
            load_kind(&second, w, i + at + LANES, kind);
            for (int r = 0; r < rows; r++) {
                even[r] = vec_add_product(even[r], first, vec_load(x + r * ldx + i + at));
                odd[r] = vec_add_product(odd[r], second, vec_load(x + r * ldx + i + at + LANES));
            }
        }
    }
    for (int r = 0; r < rows; r++) sum[r] += vec_sum(even[r]) + vec_sum(odd[r]);
}

INLINE void add_nf4(float *sum, const uint8_t *w, const uint8_t *most, const float *x, int64_t ldx, const int rows,
                    int64_t n) {
    Vec total[4];
    for (int r = 0; r < rows; r++) total[r] = vec_zero();
    for (int64_t i = 0; i < n; i += GROUP) {
        Codes codes = codes_load(w + i / 2);
        const uint8_t *block = most + i / FORMAT_NF4_BLOCK;
        Vec group[4], scale = vec_most(block);
        __builtin_prefetch(w + i / 2 + FEW_AHEAD);
        for (int r = 0; r < rows; r++) group[r] = vec_zero();
        for (int k = 0; k < 8; k++) {
            Vec level = codes_level(codes, k);
            for (int r = 0; r < rows; r++)
                group[r] = vec_add_product(group[r], level, vec_load(x + r * ldx + i + (int64_t)k * LANES));
        }
        for (int r = 0; r < rows; r++) total[r] = vec_add_product(total[r], group[r], scale);
    }
    for (int r = 0; r < rows; r++) sum[r] += vec_sum(total[r]);
}

#define EACH_ROWS(add)                           \
    int64_t r = 0;                               \
    for (; r + 4 <= rows; r += 4) add(4);        \
    for (; r + 2 <= rows; r += 2) add(2);        \
    for (; r < rows; r++) add(1)

#define DOTS_OF(name, kind)                                                                                  \
    FEW_TARGET static void name(float *sum, const void *w, const uint8_t *most, const float *x, int64_t ldx, \
                                int64_t rows, int64_t n) {                                                   \
        (void)most;                                                                                          \
        EACH_ROWS(ADD_##kind);                                                                               \
    }
#define ADD_F32(count) add_rows(sum + r, w, KIND_F32, x + r * ldx, ldx, count, n)
#define ADD_BF16(count) add_rows(sum + r, w, KIND_BF16, x + r * ldx, ldx, count, n)
#define ADD_F16(count) add_rows(sum + r, w, KIND_F16, x + r * ldx, ldx, count, n)
#define ADD_INT8(count) add_rows(sum + r, w, KIND_INT8, x + r * ldx, ldx, count, n)
#define ADD_NF4(count) add_nf4(sum + r, w, most, x + r * ldx, ldx, count, n)
DOTS_OF(dots_f32, F32)
DOTS_OF(dots_bf16, BF16)
DOTS_OF(dots_f16, F16)
DOTS_OF(dots_int8, INT8)
DOTS_OF(dots_nf4, NF4)

const FewKernels KERNELS = {dots_f32, dots_bf16, dots_f16, dots_int8, dots_nf4, LANES, &MANY};
