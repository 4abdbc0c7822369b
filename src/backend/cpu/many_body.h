/* many_body.h - the loops of many.h. Included by a file that has defined, beside what few_body.h wants,
 *
 *     MANY, MANY_ROWS                the table's name; rows of x whose sums, VECTORS vectors each, fit the registers
 *     vec_all(x), vec_product, vec_store
 *     codes_gather(first, offset)    a word from each of LANES places
 *     codes_int8(codes, k)           their k-th bytes as numbers */
enum { VECTORS = 3, WIDTH = VECTORS * LANES }; /* three: with two, loads hold up the sums */

/* ---- decoding: a word of each row is 8 or 4 columns ---- */

INLINE void decode_nf4(float *to, const ManySliver *s, const float *scale, int64_t k, int64_t n) {
    for (int part = 0; part < WIDTH; part += LANES) {
        Vec by = vec_load(scale + part);
        for (int64_t i = 0; i < n; i += 8) {
            Codes codes = codes_gather(s->first + (k + i) / 2, s->offset + part);
            float *at = to + i * WIDTH + part;
            for (int j = 0; j < 8; j++) vec_store(at + (int64_t)j * WIDTH, vec_product(codes_level(codes, j), by));
        }
    }
}

FEW_TARGET static void sliver_nf4(float *to, const ManySliver *s, int64_t k, int64_t n) {
    for (int64_t i = 0; i < n; i += FORMAT_NF4_BLOCK) {
        const uint8_t *most = s->first + s->blocks + (k + i) / FORMAT_NF4_BLOCK;
        float scale[WIDTH];
        for (int r = 0; r < WIDTH; r++) scale[r] = (float)most[s->offset[r]] * s->scale[r];
        decode_nf4(to + i * WIDTH, s, scale, k + i, MIN2(FORMAT_NF4_BLOCK, n - i));
    }
}

FEW_TARGET static void sliver_int8(float *to, const ManySliver *s, int64_t k, int64_t n) {
    for (int part = 0; part < WIDTH; part += LANES) {
        Vec by = vec_load(s->scale + part);
        for (int64_t i = 0; i < n; i += 4) {
            Codes codes = codes_gather(s->first + k + i, s->offset + part);
            float *at = to + i * WIDTH + part;
            for (int j = 0; j < 4; j++) vec_store(at + (int64_t)j * WIDTH, vec_product(codes_int8(codes, j), by));
        }
    }
}

/* ---- the product ---- */

/* A constant number of rows, so that the sums stay in registers. */
INLINE void multiply_rows(float *c, int64_t ldc, const float *x, int64_t ldx, const float *w, const int rows, int64_t n,
                          bool add) {
    Vec sum[MANY_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sum[r][v] = add ? vec_load(c + r * ldc + v * LANES) : vec_zero();
    for (int64_t k = 0; k < n; k++) {
        Vec column[VECTORS];
        for (int v = 0; v < VECTORS; v++) column[v] = vec_load(w + k * WIDTH + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            Vec by = vec_all(x[r * ldx + k]);
            for (int v = 0; v < VECTORS; v++) sum[r][v] = vec_add_product(sum[r][v], column[v], by);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) vec_store(c + r * ldc + v * LANES, sum[r][v]);
}

FEW_TARGET static void multiply(float *c, int64_t ldc, const float *x, int64_t ldx, const float *sliver, int64_t rows,
                                int64_t n, bool add) {
    int64_t r = 0;
#define ROWS_OF(count)                 \
    for (; r + (count) <= rows; r += (count)) \
    multiply_rows(c + r * ldc, ldc, x + r * ldx, ldx, sliver, count, n, add)
    ROWS_OF(MANY_ROWS);
    ROWS_OF(4);
    ROWS_OF(1);
#undef ROWS_OF
}

const ManyKernels MANY = {sliver_int8, sliver_nf4, multiply, WIDTH, MANY_ROWS};
