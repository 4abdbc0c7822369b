/* few.c - a product with a handful of rows (the next token of a few texts): bound by reading the weights, so each
 * row of them is read once, bf16 decoded in registers (other formats in the first-level cache), and multiplied with
 * every row of x. */
#include <string.h>

#include "backend/cpu/product.h"

/* PIECE: long stretches of a row, so that the processor's own fetching ahead keeps up; AHEAD helps it across rows. */
enum { PIECE = 2048, ROWS_A_TILE = 16, STEP = PRODUCT_FEW_PAD, AHEAD = 4096 };

/* Sixteen sums side by side: the order of additions is the same on every processor. */
typedef float Lanes __attribute__((vector_size(64)));
typedef float LanesAnywhere __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t HalvesAnywhere __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t Words __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) void load_lanes(Lanes *to, const void *w, int64_t at, const bool bf16) {
    if (bf16) *to = (Lanes)(__builtin_convertvector(*(const HalvesAnywhere *)((const uint16_t *)w + at), Words) << 16);
    else *to = *(const LanesAnywhere *)((const float *)w + at);
}

/* total[r] += w * x[r], lane by lane, for a constant number of rows (so that the sums stay in registers); two sums
 * a row, since an addition takes longer than a turn of the loop. n is a multiple of STEP. */
static inline __attribute__((always_inline)) void add_dots(Lanes *total, const void *w, const bool bf16, const float *x,
                                                           int64_t ldx, const int rows, int64_t n) {
    Lanes even[4] = {{0}}, odd[4] = {{0}};
    for (int64_t i = 0; i < n; i += 32) {
        Lanes p[2];
        load_lanes(&p[0], w, i, bf16);
        load_lanes(&p[1], w, i + 16, bf16);
        const char *soon = (const char *)w + i * (bf16 ? 2 : 4) + AHEAD;
        __builtin_prefetch(soon);
        if (!bf16) __builtin_prefetch(soon + 64);
        for (int r = 0; r < rows; r++) {
            const LanesAnywhere *q = (const LanesAnywhere *)(x + r * ldx + i);
            even[r] += p[0] * q[0];
            odd[r] += p[1] * q[1];
        }
    }
    for (int r = 0; r < rows; r++) total[r] += even[r] + odd[r];
}

/* The order of a row's additions does not depend on how many rows there are. */
static inline __attribute__((always_inline)) void add_rows(Lanes *total, const void *w, const bool bf16, const float *x,
                                                           int64_t ldx, int64_t rows, int64_t n) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) add_dots(total + r, w, bf16, x + r * ldx, ldx, 4, n);
    for (; r + 2 <= rows; r += 2) add_dots(total + r, w, bf16, x + r * ldx, ldx, 2, n);
    for (; r < rows; r++) add_dots(total + r, w, bf16, x + r * ldx, ldx, 1, n);
}

CPU_VECTOR static void add_all_dots(Lanes *total, const void *w, bool bf16, const float *x, int64_t ldx, int64_t rows,
                                    int64_t n) {
    if (bf16) add_rows(total, w, true, x, ldx, rows, n);
    else add_rows(total, w, false, x, ldx, rows, n);
}

/* n numbers of one row of w from `k` on, followed by zeros up to a whole step. */
static const void *row_piece(float *buffer, bool *bf16, const Matrix *w, int64_t row, int64_t k, int64_t n) {
    int64_t first = w->first + row * w->ld + k;
    *bf16 = w->format == FMT_BF16 && n % STEP == 0;
    if (*bf16) return (const uint16_t *)w->data + first;
    if (w->format == FMT_F32 && n % STEP == 0) return (const float *)w->data + first;
    cpu_load(buffer, w->data, w->format, first, n);
    for (int64_t i = n; i % STEP; i++) buffer[i] = 0;
    return buffer;
}

/* out[j] += the lanes of total[j][row], by halves. */
CPU_VECTOR static void add_sums(float *out, const Lanes (*total)[PRODUCT_FEW], int64_t row, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        float s[16];
        memcpy(s, &total[j][row], sizeof s);
        for (int k = 0; k < 8; k++) s[k] += s[k + 8];
        for (int k = 0; k < 4; k++) s[k] += s[k + 4];
        out[j] += (s[0] + s[2]) + (s[1] + s[3]);
    }
}

typedef struct Few {
    const Product *p;
    const float *x; /* (rows, ldx), zeros behind inner */
    int64_t ldx;
} Few;

/* Piece by piece of the inner dimension: a piece of x stays in the first-level cache over the tile's rows. */
static void few_tile(void *context, int64_t tile, int worker) {
    const Few *f = context;
    const Product *p = f->p;
    float buffer[PIECE], out[ROWS_A_TILE];
    Lanes total[ROWS_A_TILE][PRODUCT_FEW];
    int64_t begin = tile * ROWS_A_TILE, count = MIN2(ROWS_A_TILE, p->cols - begin);
    for (int64_t j = 0; j < count; j++) memset(total[j], 0, (size_t)p->rows * sizeof(Lanes));
    for (int64_t k = 0; k < p->inner; k += PIECE) {
        int64_t n = MIN2(PIECE, p->inner - k);
        for (int64_t j = 0; j < count; j++) {
            bool bf16;
            const void *w = row_piece(buffer, &bf16, &p->b, begin + j, k, n);
            add_all_dots(total[j], w, bf16, f->x + k, f->ldx, p->rows, units_round_up(n, STEP));
        }
    }
    for (int64_t r = 0; r < p->rows; r++) {
        memset(out, 0, sizeof out);
        if (p->bias.data) cpu_load(out, p->bias.data, p->bias.format, p->bias.first + begin, count);
        add_sums(out, (const Lanes(*)[PRODUCT_FEW])total, r, count);
        cpu_store(p->c.data, p->c.format, p->c.first + r * p->c.ld + begin, out, count);
    }
}

void product_few(Backend *b, const Args *a, const Product *p) {
    CHECK(p->rows <= PRODUCT_FEW && p->b_flip && !p->a_flip && p->alpha == 1.0f);
    Few f = {.p = p, .ldx = units_round_up(p->inner, STEP)};
    float *x = cpu_scratch(a, 0, product_few_bytes(p->rows, p->inner), 0);
    for (int64_t r = 0; r < p->rows; r++) {
        cpu_load(x + r * f.ldx, p->a.data, p->a.format, p->a.first + r * p->a.ld, p->inner);
        for (int64_t i = p->inner; i < f.ldx; i++) x[r * f.ldx + i] = 0;
    }
    f.x = x;
    threads_for(cpu_threads(b), product_parts(p->cols, ROWS_A_TILE), few_tile, &f);
}
