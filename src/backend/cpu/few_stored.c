/* few_stored.c - a product with a handful of rows and a weight that is quantised: codes become numbers in registers, and
 * scales are applied to sums, not to numbers.
 *
 *     int8   y = scale * sum(code * x)
 *     nf4    y = scale * sum over blocks of 64 (most * sum(level[code] * x)); a byte holds an even and an odd column, so
 *            x stands in scratch with the even columns of each 32 before the odd ones
 * Beyond four rows of x a piece of the weight is unpacked in the first-level cache once; the sums are the same. */
#include "backend/cpu/few.h"
#include "ir/op.h"

enum { ROWS = LINEAR_DIRECT_ROWS, BLOCK = FORMAT_NF4_BLOCK, UNPACKED = 5 };
_Static_assert((int)BLOCK == (int)FEW_STEP && (int)FEW_PIECE % (int)BLOCK == 0, "a piece is whole blocks, x is padded to them");

typedef int8_t BytesAnywhere __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t PairsAnywhere __attribute__((vector_size(16), aligned(1), may_alias));
typedef int32_t Ints __attribute__((vector_size(64)));

typedef struct Stored {
    const Product *p;
    const float *x; /* (rows, ldx), zeros behind inner */
    int64_t ldx;
    int64_t row_bytes, scale_at, blocks_at;
    bool permutes;  /* the processor finds a level by its code in one instruction */
} Stored;

/* ---- int8 ---- */

FEW_INLINE void load_int8(Lanes *to, const int8_t *w) {
    *to = __builtin_convertvector(__builtin_convertvector(*(const BytesAnywhere *)w, Ints), Lanes);
}

FEW_INLINE void add_int8(Lanes *total, const int8_t *w, const float *x, int64_t ldx, const int rows, int64_t n) {
    Lanes even[4] = {{0}}, odd[4] = {{0}};
    for (int64_t i = 0; i < n; i += 64) {
        __builtin_prefetch(w + i + FEW_AHEAD);
        for (int half = 0; half < 64; half += 32) {
            Lanes first, second;
            load_int8(&first, w + i + half);
            load_int8(&second, w + i + half + 16);
            for (int r = 0; r < rows; r++) {
                const LanesAnywhere *q = (const LanesAnywhere *)(x + r * ldx + i + half);
                even[r] += first * q[0];
                odd[r] += second * q[1];
            }
        }
    }
    for (int r = 0; r < rows; r++) total[r] += even[r] + odd[r];
}

/* n: whole steps of codes. */
CPU_VECTOR static void int8_dots(Lanes *total, const int8_t *w, const float *x, int64_t ldx, int64_t rows, int64_t n) {
    Lanes unpacked[FEW_PIECE / 16];
#define ADD_INT8(r, count) add_int8(total + (r), w, x + (r) * ldx, ldx, count, n)
#define ADD_UNPACKED(r, count) few_add(total + (r), unpacked, false, x + (r) * ldx, ldx, count, n)
    if (rows < UNPACKED) {
        FEW_EACH_ROWS(rows, ADD_INT8);
        return;
    }
    for (int64_t i = 0; i < n; i += 16) load_int8(&unpacked[i / 16], w + i);
    FEW_EACH_ROWS(rows, ADD_UNPACKED);
}

/* ---- nf4 ---- */

typedef struct Levels { /* of 32 columns: the even ones, the odd ones */
    Lanes even, odd;
} Levels;

FEW_INLINE void load_nf4(Levels *v, const uint8_t *codes, const bool permutes) {
    if (permutes) {
        const Lanes table = *(const LanesAnywhere *)format_nf4_levels;
        Ints pairs = __builtin_convertvector(*(const PairsAnywhere *)codes, Ints);
        v->even = __builtin_shuffle(table, pairs); /* by the lowest four bits */
        v->odd = __builtin_shuffle(table, pairs >> 4);
        return;
    }
    float even[16], odd[16];
    for (int i = 0; i < 16; i++) even[i] = format_nf4_levels[codes[i] & 15], odd[i] = format_nf4_levels[codes[i] >> 4];
    memcpy(&v->even, even, sizeof even);
    memcpy(&v->odd, odd, sizeof odd);
}

FEW_INLINE void add_nf4(Lanes *total, const Levels *unpacked, const uint8_t *codes, const uint8_t *most, const float *x,
                        int64_t ldx, const int rows, int64_t n, const bool permutes) {
    for (int64_t i = 0; i < n; i += BLOCK) {
        Lanes even[4], odd[4];
        __builtin_prefetch(codes + i / 2 + FEW_AHEAD);
        for (int half = 0; half < 2; half++) {
            int64_t at = i + half * 32;
            Levels v;
            if (unpacked) v = unpacked[at / 32];
            else load_nf4(&v, codes + at / 2, permutes);
            for (int r = 0; r < rows; r++) {
                const LanesAnywhere *q = (const LanesAnywhere *)(x + r * ldx + at);
                even[r] = half ? even[r] + v.even * q[0] : v.even * q[0];
                odd[r] = half ? odd[r] + v.odd * q[1] : v.odd * q[1];
            }
        }
        float scale = (float)most[i / BLOCK];
        for (int r = 0; r < rows; r++) total[r] += (even[r] + odd[r]) * scale;
    }
}

FEW_INLINE void nf4_any(Lanes *total, const uint8_t *codes, const uint8_t *most, const float *x, int64_t ldx, int64_t rows,
                        int64_t n, const bool permutes) {
    Levels unpacked[FEW_PIECE / 32];
#define ADD_NF4(r, count) add_nf4(total + (r), NULL, codes, most, x + (r) * ldx, ldx, count, n, permutes)
#define ADD_LEVELS(r, count) add_nf4(total + (r), unpacked, codes, most, x + (r) * ldx, ldx, count, n, permutes)
    if (rows < (permutes ? UNPACKED : 2)) {
        FEW_EACH_ROWS(rows, ADD_NF4);
        return;
    }
    for (int64_t i = 0; i < n; i += 32) load_nf4(&unpacked[i / 32], codes + i / 2, permutes);
    FEW_EACH_ROWS(rows, ADD_LEVELS);
}

CPU_VECTOR static void nf4_dots(Lanes *total, const uint8_t *codes, const uint8_t *most, const float *x, int64_t ldx,
                                int64_t rows, int64_t n) {
    nf4_any(total, codes, most, x, ldx, rows, n, false);
}

__attribute__((target("arch=x86-64-v4"), optimize("O3"))) static void
nf4_dots_permuted(Lanes *total, const uint8_t *codes, const uint8_t *most, const float *x, int64_t ldx, int64_t rows, int64_t n) {
    nf4_any(total, codes, most, x, ldx, rows, n, true);
}

/* ---- a tile ---- */

/* Columns [k, k+n) of a row: whole steps where they lie, the rest from a copy, behind which nothing is read. */
static void add_piece(const Stored *s, Lanes *total, const char *row, int64_t k, int64_t n) {
    int64_t whole = n / FEW_STEP * FEW_STEP, rows = s->p->rows;
    bool int8 = s->p->b.format == FMT_INT8;
    for (int part = 0; part < 2; part++) {
        int64_t at = part ? k + whole : k, count = part ? n - whole : whole;
        char rest[FEW_STEP] = {0};
        const char *codes = row + (int8 ? at : at / 2);
        if (!count) continue;
        if (part) codes = memcpy(rest, codes, (size_t)(int8 ? count : (count + 1) / 2)), count = FEW_STEP;
        const uint8_t *most = (const uint8_t *)row + s->blocks_at + at / BLOCK;
        if (int8) int8_dots(total, (const int8_t *)codes, s->x + at, s->ldx, rows, count);
        else (s->permutes ? nf4_dots_permuted : nf4_dots)(total, (const uint8_t *)codes, most, s->x + at, s->ldx, rows, count);
    }
}

CPU_VECTOR static void add_sums(float *out, const Lanes (*total)[ROWS], const float *scale, int64_t row, int64_t count) {
    for (int64_t j = 0; j < count; j++) out[j] += few_sum(&total[j][row]) * scale[j];
}

static void stored_tile(void *context, int64_t tile, int worker) {
    const Stored *s = context;
    const Product *p = s->p;
    float out[FEW_ROWS_A_TILE], scale[FEW_ROWS_A_TILE];
    Lanes total[FEW_ROWS_A_TILE][ROWS];
    int64_t begin = tile * FEW_ROWS_A_TILE, count = MIN2(FEW_ROWS_A_TILE, p->cols - begin);
    const char *first = (const char *)p->b.data + begin * s->row_bytes;
    for (int64_t j = 0; j < count; j++) {
        memset(total[j], 0, (size_t)p->rows * sizeof(Lanes));
        memcpy(&scale[j], first + j * s->row_bytes + s->scale_at, sizeof scale[j]);
    }
    for (int64_t k = 0; k < p->inner; k += FEW_PIECE)
        for (int64_t j = 0; j < count; j++)
            add_piece(s, total[j], first + j * s->row_bytes, k, MIN2(FEW_PIECE, p->inner - k));
    for (int64_t r = 0; r < p->rows; r++) {
        memset(out, 0, sizeof out);
        if (p->bias.data) cpu_load(out, p->bias.data, p->bias.format, p->bias.first + begin, count);
        add_sums(out, (const Lanes(*)[ROWS])total, scale, r, count);
        cpu_store(p->c.data, p->c.format, p->c.first + r * p->c.ld + begin, out, count);
    }
}

/* ---- all of them ---- */

static void part_columns(float *x, int64_t n) { /* of each 32: the even ones first */
    for (int64_t i = 0; i < n; i += 32) {
        float was[32];
        memcpy(was, x + i, sizeof was);
        for (int k = 0; k < 16; k++) x[i + k] = was[2 * k], x[i + 16 + k] = was[2 * k + 1];
    }
}

void product_few_stored(Backend *b, const Args *a, const Product *p) {
    Format f = p->b.format;
    CHECK(p->rows <= ROWS && p->b_flip && !p->a_flip && p->alpha == 1.0f && (f == FMT_INT8 || f == FMT_NF4));
    Stored s = {.p = p, .ldx = units_round_up(p->inner, FEW_STEP), .row_bytes = format_row_bytes(f, p->inner),
                .scale_at = format_row_scale(f, p->inner), .blocks_at = format_nf4_blocks(p->inner),
                .permutes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")};
    float *x = cpu_scratch(a, 0, product_few_bytes(p->rows, p->inner), 0);
    for (int64_t r = 0; r < p->rows; r++) {
        float *row = x + r * s.ldx;
        cpu_load(row, p->a.data, p->a.format, p->a.first + r * p->a.ld, p->inner);
        for (int64_t i = p->inner; i < s.ldx; i++) row[i] = 0;
        if (f == FMT_NF4) part_columns(row, s.ldx);
    }
    s.x = x;
    threads_for(cpu_threads(b), product_parts(p->cols, FEW_ROWS_A_TILE), stored_tile, &s);
}
