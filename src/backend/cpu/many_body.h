/* many_body.h - the loops of many.h. Included by a file that has defined, beside what few_body.h wants,
 *
 *     MANY, MANY_ROWS                the table's name; rows of x whose sums, VECTORS vectors each, fit the registers
 *     vec_all(x), vec_product, vec_sum_of, vec_store
 *     codes_gather(first, offset)    a word from each of LANES places
 *     codes_int8(codes, k)           their k-th bytes as numbers
 *     transpose_block(to, width, from, ld, alpha)   eight by eight numbers, times alpha */
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

/* The sanitizers leave these loops out, as they would those of a library: what calls them is not left out. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* A constant number of rows and vectors, so that the sums stay in registers. */
UNCHECKED INLINE void multiply_rows(float *c, int64_t ldc, const float *x, int64_t row, int64_t column,
                                    const float *w, const int rows, const int vectors, int64_t n, bool add) {
    Vec sum[MANY_ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = vec_zero();
    for (int64_t k = 0; k < n; k++) {
        Vec of_w[VECTORS];
        for (int v = 0; v < vectors; v++) of_w[v] = vec_load(w + (k * vectors + v) * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            Vec by = vec_all(x[r * row + k * column]);
            for (int v = 0; v < vectors; v++) sum[r][v] = vec_add_product(sum[r][v], of_w[v], by);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *to = c + r * ldc + v * LANES;
            vec_store(to, add ? vec_sum_of(vec_load(to), sum[r][v]) : sum[r][v]);
        }
}

/* As many rows at a time as the registers hold, then four, then one. */
UNCHECKED INLINE void multiply_all(float *c, int64_t ldc, const float *x, int64_t row, int64_t column,
                                   const float *w, const int vectors, int64_t rows, int64_t n, bool add) {
    int64_t r = 0;
    for (; r + MANY_ROWS <= rows; r += MANY_ROWS)
        multiply_rows(c + r * ldc, ldc, x + r * row, row, column, w, MANY_ROWS, vectors, n, add);
    for (; r + 4 <= rows; r += 4)
        multiply_rows(c + r * ldc, ldc, x + r * row, row, column, w, 4, vectors, n, add);
    for (; r < rows; r++) multiply_rows(c + r * ldc, ldc, x + r * row, row, column, w, 1, vectors, n, add);
}

UNCHECKED FEW_TARGET static void multiply(float *c, int64_t ldc, const float *x, int64_t ldx, const float *w,
                                          int vectors, int64_t rows, int64_t n, bool add) {
    if (vectors == 3)
        multiply_all(c, ldc, x, ldx, 1, w, 3, rows, n, add);
    else if (vectors == 2)
        multiply_all(c, ldc, x, ldx, 1, w, 2, rows, n, add);
    else
        multiply_all(c, ldc, x, ldx, 1, w, 1, rows, n, add);
}

UNCHECKED FEW_TARGET static void multiply_transposed(float *c, int64_t ldc, const float *x, int64_t ldx, const float *w,
                                                  int vectors, int64_t rows, int64_t n, bool add) {
    if (vectors == 3)
        multiply_all(c, ldc, x, 1, ldx, w, 3, rows, n, add);
    else if (vectors == 2)
        multiply_all(c, ldc, x, 1, ldx, w, 2, rows, n, add);
    else
        multiply_all(c, ldc, x, 1, ldx, w, 1, rows, n, add);
}

/* to(n,width) = alpha times the transpose of from(cols,n), `cols` of `width` filled. */
FEW_TARGET static void transpose(float *to, int64_t width, const float *from, int64_t ld, int64_t cols, int64_t n,
                                 float alpha) {
    int64_t j = 0;
    for (; j + 8 <= cols; j += 8) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) transpose_block(to + i * width + j, width, from + j * ld + i, ld, alpha);
        for (; i < n; i++)
            for (int64_t c = j; c < j + 8; c++) to[i * width + c] = alpha * from[c * ld + i];
    }
    for (; j < cols; j++)
        for (int64_t i = 0; i < n; i++) to[i * width + j] = alpha * from[j * ld + i];
}

#undef UNCHECKED

const ManyKernels MANY = {sliver_int8, sliver_nf4, multiply, multiply_transposed, transpose, WIDTH, LANES, MANY_ROWS};
