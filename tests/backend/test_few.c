/* test_few.c - the dot products of every instruction set this processor has, not only of the one it would take. */
#include "backend/cpu/few.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/test.h"

enum { COLUMNS = 256, ROWS = 7 };

typedef struct Case {
    float w[COLUMNS], x[ROWS][COLUMNS]; /* w: what is stored, exactly */
    float ordered[ROWS][COLUMNS];       /* x as the kernel of nf4 wants it */
    char stored[2 * COLUMNS * 4];
    const uint8_t *most;
} Case;

/* One row of the format: its codes where the kernel reads them, and the numbers they stand for, without the row's scale. */
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
    const struct {
        const char *name;
        const FewKernels *k;
        bool is;
    } sets[] = {{"plain", &few_plain, true},
                {"avx2", &few_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
                {"avx512", &few_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")}};
    for (int s = 0; s < COUNT_OF(sets); s++)
        for (int rows = 1; rows <= ROWS && sets[s].is; rows++) {
            check(sets[s].name, sets[s].k, FMT_F32, sets[s].k->f32, rows);
            check(sets[s].name, sets[s].k, FMT_BF16, sets[s].k->bf16, rows);
            check(sets[s].name, sets[s].k, FMT_INT8, sets[s].k->int8, rows);
            check(sets[s].name, sets[s].k, FMT_NF4, sets[s].k->nf4, rows);
        }
}
