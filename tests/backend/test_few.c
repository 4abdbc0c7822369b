/* test_few.c - the products with stored weights of every instruction set this processor has, not only of the one it
 * would take. */
#include "backend/cpu/few.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/backend/sets.h"
#include "tests/test.h"

enum { COLUMNS = 256, ROWS = 7 };

typedef struct Case {
    float w[COLUMNS], x[ROWS][COLUMNS]; /* w: what is stored, exactly */
    float ordered[ROWS][COLUMNS];       /* x as the kernel of nf4 wants it */
    char stored[2 * COLUMNS * 4];
    const uint8_t *most;
} Case;

/* One row of the format: its codes where the kernel reads them, and the numbers they stand for, without the row's
 * scale. */
static void make(Case *c, Format f, int lanes) {
    float drawn[COLUMNS], scale = 1;
    for (int i = 0; i < COLUMNS; i++) drawn[i] = rng_normal(1, (uint64_t)i);
    for (int i = 0; i < ROWS * COLUMNS; i++) c->x[i / COLUMNS][i % COLUMNS] = rng_normal(2, (uint64_t)i);
    format_table[f].encode(c->stored, drawn, 1, COLUMNS, 0, 1);
    format_table[f].decode(c->w, c->stored, 1, COLUMNS, 0, 1);
    if (!format_table[f].plain) memcpy(&scale, c->stored + format_row_scale(f, COLUMNS), sizeof scale);
    for (int i = 0; i < COLUMNS; i++) c->w[i] /= scale;
    c->most = (const uint8_t *)c->stored + format_nf4_blocks(COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        int column = i % COLUMNS, group = column / (8 * lanes) * 8 * lanes, at = column - group;
        c->ordered[i / COLUMNS][group + at % 8 * lanes + at / 8] = c->x[i / COLUMNS][column];
    }
}

static void check(const char *name, const FewKernels *k, Format f, FewDots *dots, int rows) {
    Case c;
    make(&c, f, k->lanes);
    float sum[ROWS + 1] = {0};
    sum[0] = 5; /* added to */
    sum[rows] = 77;
    dots(sum, c.stored, c.most, f == FMT_NF4 ? c.ordered[0] : c.x[0], COLUMNS, rows, COLUMNS);
    EXPECT(sum[rows] == 77.0f);
    for (int r = 0; r < rows; r++) {
        double want = r ? 0 : 5, size = 1;
        for (int i = 0; i < COLUMNS; i++) want += (double)c.w[i] * c.x[r][i], size += fabs((double)c.w[i] * c.x[r][i]);
        if (!EXPECT(fabs(sum[r] - want) <= 1e-6 * size))
            test_note("    %s, %s, row %d of %d: %.7g against %.7g", name, format_name(f), r, rows, sum[r], want);
    }
}

TEST(dot_products_are_right_in_every_instruction_set) {
    for (int i = 0; i < 3; i++) {
        Set s = set_at(i);
        for (int rows = 1; rows <= ROWS && s.is; rows++) {
            check(s.name, s.k, FMT_F32, s.k->f32, rows);
            check(s.name, s.k, FMT_BF16, s.k->bf16, rows);
            check(s.name, s.k, FMT_F16, s.k->f16, rows);
            check(s.name, s.k, FMT_INT8, s.k->int8, rows);
            check(s.name, s.k, FMT_NF4, s.k->nf4, rows);
        }
    }
}

/* ---- slivers ---- */

enum { MOST = PRODUCT_SLIVER, TALL = 13, BEGIN = 64, LDX = COLUMNS + 16, LDC = MOST + 16 };

typedef struct Sliver {
    char stored[MOST * COLUMNS * 2];
    float w[MOST][COLUMNS], x[TALL][LDX], decoded[COLUMNS + 1][MOST], c[TALL + 1][LDC];
    ManySliver s;
} Sliver;

/* The last two rows stand for themselves and for one behind the weight's end. */
static void make_sliver(Sliver *t, Format f, int width) {
    float drawn[MOST * COLUMNS];
    for (int i = 0; i < width * COLUMNS; i++) drawn[i] = rng_normal(3, (uint64_t)i);
    for (int i = 0; i < TALL * COLUMNS; i++) t->x[i / COLUMNS][i % COLUMNS] = rng_normal(4, (uint64_t)i);
    format_table[f].encode(t->stored, drawn, width, COLUMNS, 0, width);
    format_table[f].decode(t->w[0], t->stored, width, COLUMNS, 0, width);
    t->s = (ManySliver){.first = (const uint8_t *)t->stored, .blocks = f == FMT_NF4 ? format_nf4_blocks(COLUMNS) : 0};
    for (int i = 0; i < width; i++) {
        t->s.offset[i] = (int32_t)(MIN2(i, width - 2) * format_row_bytes(f, COLUMNS));
        memcpy(&t->s.scale[i], t->s.first + t->s.offset[i] + format_row_scale(f, COLUMNS), sizeof(float));
    }
    memcpy(t->w[width - 1], t->w[width - 2], sizeof t->w[0]);
}

static void check_sliver(Set set, Format f, int64_t n, int rows, bool add) {
    static _Alignas(64) Sliver t; /* large */
    const ManyKernels *k = set.k->many;
    make_sliver(&t, f, k->width);
    float *decoded = t.decoded[0], *behind = decoded + units_round_up(n, 8) * k->width;
    *behind = 77;
    (f == FMT_NF4 ? k->nf4 : k->int8)(decoded, &t.s, BEGIN, n);
    EXPECT(*behind == 77.0f);
    for (int64_t i = 0; i < n * k->width; i++) EXPECT(decoded[i] == t.w[i % k->width][BEGIN + i / k->width]);
    for (int i = 0; i < (TALL + 1) * LDC; i++) t.c[i / LDC][i % LDC] = 5;
    k->multiply(t.c[0], LDC, t.x[0], LDX, decoded, 3, rows, n, add);
    EXPECT(t.c[0][k->width] == 5.0f && t.c[rows][0] == 5.0f);
    for (int i = 0; i < rows * k->width; i++) {
        int r = i / k->width, c = i % k->width;
        double want = add ? 5 : 0, size = 1;
        for (int64_t j = 0; j < n; j++) {
            double one = (double)t.w[c][BEGIN + j] * t.x[r][j];
            want += one, size += fabs(one);
        }
        if (!EXPECT(fabs(t.c[r][c] - want) <= 1e-6 * size))
            test_note("    %s, %s, row %d of %d, column %d: %.7g against %.7g", set.name, format_name(f), r, rows, c,
                      t.c[r][c], want);
    }
}

TEST(slivers_are_decoded_to_the_bit_and_multiplied_in_every_instruction_set) {
    static const Format formats[] = {FMT_INT8, FMT_NF4};
    for (int i = 0; i < 3; i++)
        for (int f = 0; f < 2 && set_at(i).is; f++) {
            check_sliver(set_at(i), formats[f], 64, 1, false);
            check_sliver(set_at(i), formats[f], 1, 3, true);
            check_sliver(set_at(i), formats[f], 77, 8, false);
            check_sliver(set_at(i), formats[f], COLUMNS - BEGIN, TALL, true);
        }
}
