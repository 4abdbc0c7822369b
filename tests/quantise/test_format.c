/* test_format.c - int8 and nf4 against what bitsandbytes makes of the same numbers, and the promises of ir/format.h. */
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ir/format.h"
#include "store/jsonfile.h"
#include "store/safetensors.h"
#include "tests/test.h"

#define FIXTURES "tests/quantise/fixtures"

static const Format coded[] = {FMT_INT8, FMT_NF4};

static json_t *expected(void) {
    Err e = {0};
    json_t *j = NULL;
    EXPECT_OK(jsonfile_read(&j, FIXTURES "/expected.json", 1 << 16, &e));
    return j;
}

static double real(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

TEST(the_levels_of_nf4_are_those_of_bitsandbytes) {
    json_t *j = expected(), *levels = json_object_get(j, "levels");
    EXPECT(json_array_size(levels) == 16);
    for (int i = 0; i < 16; i++)
        EXPECT((float)json_number_value(json_array_get(levels, (size_t)i)) == format_nf4_levels[i]);
    json_decref(j);
}

/* Every block of the fixture reaches its row's maximum, so a byte per block is exact and the codes must be the same,
 * also for numbers on, just above and just below the middle between two levels. */
TEST(nf4_chooses_the_codes_that_bitsandbytes_chooses) {
    Err e = {0};
    StSet s;
    EXPECT_OK(st_open(&s, FIXTURES "/formats.safetensors", &e));
    const StTensor *x = st_find(&s, "x"), *packed = st_find(&s, "packed"), *absmax = st_find(&s, "absmax");
    enum { ROWS = 12, COLS = 192 };
    float value[ROWS * COLS], back[ROWS * COLS], most[ROWS * COLS / 64];
    uint8_t theirs[ROWS * COLS / 2];
    EXPECT(x->bytes == (int64_t)sizeof value && packed->bytes == (int64_t)sizeof theirs &&
           absmax->bytes == (int64_t)sizeof most);
    EXPECT_OK(st_read(&s, x, value, 0, x->bytes, &e) && st_read(&s, packed, theirs, 0, packed->bytes, &e) &&
              st_read(&s, absmax, most, 0, absmax->bytes, &e));
    int64_t row_bytes = format_row_bytes(FMT_NF4, COLS);
    uint8_t *ours = mem_alloc(ROWS * row_bytes);
    format_table[FMT_NF4].encode(ours, value, ROWS, COLS, 0, ROWS);
    format_table[FMT_NF4].decode(back, ours, ROWS, COLS, 0, ROWS);
    int other = 0, wrong = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        int their_code = i % 2 ? theirs[i / 2] & 15 : theirs[i / 2] >> 4;
        int our_code = ours[i / COLS * row_bytes + i % COLS / 2] >> 4 * (i % 2) & 15;
        if (their_code != our_code && other++ < 4)
            test_note("    %d: %.9g is %d there, %d here", i, value[i], their_code, our_code);
        wrong += back[i] != format_nf4_levels[our_code] * most[i / 64];
    }
    EXPECT(other == 0 && wrong == 0);
    mem_free(ours);
    st_close(&s);
}

static double rms_on_normal(Format f, int64_t rows, int64_t cols) {
    float *x = mem_alloc(cols * 4), *y = mem_alloc(cols * 4);
    void *row = mem_alloc(format_row_bytes(f, cols));
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) x[c] = rng_normal(77, (uint64_t)(r * cols + c));
        format_table[f].encode(row, x, 1, cols, 0, 1);
        format_table[f].decode(y, row, 1, cols, 0, 1);
        for (int64_t c = 0; c < cols; c++) sum += (double)(x[c] - y[c]) * (x[c] - y[c]);
    }
    mem_free(x);
    mem_free(y);
    mem_free(row);
    return sqrt(sum / (double)(rows * cols));
}

/* The draws differ, so a hundredth is allowed; a byte for a block's maximum costs less than a thousandth. */
TEST(errors_on_normal_numbers_are_those_of_bitsandbytes) {
    json_t *j = expected();
    double int8 = rms_on_normal(FMT_INT8, 512, 1024), nf4 = rms_on_normal(FMT_NF4, 512, 1024);
    printf("  RMS error on N(0,1): int8 %.6f (bitsandbytes %.6f), nf4 %.6f (bitsandbytes %.6f, nested %.6f)\n", int8,
           real(j, "int8_rms"), nf4, real(j, "nf4_rms"), real(j, "nf4_nested_rms"));
    EXPECT_NEAR(int8 / real(j, "int8_rms"), 1, 0.01);
    EXPECT_NEAR(nf4 / real(j, "nf4_nested_rms"), 1, 0.01);
    json_decref(j);
}

/* The promise on single numbers: half a step of int8; for nf4 half the widest gap of its block's maximum, which is
 * itself off by at most half a 255th of the row's. */
TEST(no_number_is_further_off_than_half_a_gap) {
    enum { COLS = 203 };
    float x[COLS], y[COLS];
    char row[512];
    for (int r = 0; r < 40; r++)
        for (int f = 0; f < COUNT_OF(coded); f++) {
            float top = 0;
            for (int c = 0; c < COLS; c++) {
                x[c] = ldexpf(rng_normal(5, (uint64_t)(r * COLS + c)), r % 9 - 4) * (c / 64 + 1);
                top = fmaxf(top, fabsf(x[c]));
            }
            format_table[coded[f]].encode(row, x, 1, COLS, 0, 1);
            format_table[coded[f]].decode(y, row, 1, COLS, 0, 1);
            for (int c = 0; c < COLS; c++) {
                float most = 0;
                for (int i = c / 64 * 64; i < COLS && i < c / 64 * 64 + 64; i++) most = fmaxf(most, fabsf(x[i]));
                float bound = coded[f] == FMT_INT8 ? 0.5001f * top / 127 : 0.152f * most + 0.51f * top / 255;
                if (!EXPECT(fabsf(x[c] - y[c]) <= bound)) return;
            }
        }
}

TEST(representable_numbers_come_back_exactly_at_every_width) {
    static const int64_t widths[] = {1, 2, 3, 63, 64, 65, 127, 129, 192, 201};
    float x[256], y[256];
    char row[512];
    for (int w = 0; w < COUNT_OF(widths); w++) {
        int64_t cols = widths[w];
        for (int f = 0; f < COUNT_OF(coded); f++) {
            for (int64_t c = 0; c < cols; c++) { /* 127/64 and 255/128: scales are powers of two */
                int k = (int)(rng_u32(9, (uint64_t)(w * 1000 + c)) % 255) - 127;
                x[c] = coded[f] == FMT_INT8 ? (c ? (float)k : 127) / 64
                                            : format_nf4_levels[c % 64 ? (unsigned)k & 15 : 15] * (255.0f / 128);
            }
            memset(row, 0x5a, sizeof row);
            format_table[coded[f]].encode(row, x, 1, cols, 0, 1);
            format_table[coded[f]].decode(y, row, 1, cols, 0, 1);
            int64_t bad = 0;
            for (int64_t c = 0; c < cols; c++) bad += x[c] != y[c];
            if (!EXPECT(bad == 0))
                test_note("    %s, %lld columns: %lld numbers", format_name(coded[f]), (long long)cols, (long long)bad);
            EXPECT((unsigned char)row[format_row_bytes(coded[f], cols)] == 0x5a); /* not a byte behind the row */
        }
    }
}

TEST(rows_and_blocks_of_zeros_stay_zero) {
    enum { COLS = 130 };
    float x[3 * COLS] = {0}, y[3 * COLS];
    char rows[3 * 512];
    for (int c = 64; c < 128; c++) x[COLS + c] = 0.5f; /* the middle row: one block of three */
    x[2 * COLS] = 1e-38f;                              /* the last: so small that a scale of it has no inverse */
    for (int f = 0; f < COUNT_OF(coded); f++) {
        format_table[coded[f]].encode(rows, x, 3, COLS, 0, 3);
        format_table[coded[f]].decode(y, rows, 3, COLS, 0, 3);
        for (int i = 0; i < 3 * COLS; i++) {
            if (!EXPECT(isfinite(y[i]))) break;
            if (x[i] == 0 && !EXPECT(y[i] == 0)) break;
        }
        EXPECT(y[COLS + 64] == 0.5f);
        EXPECT_NEAR(y[2 * COLS], 0, 1.01e-38);
    }
}

/* Stacked projections are views of rows: any rows of a coded tensor are the coded rows. */
TEST(rows_of_a_whole_are_the_rows_coded_alone) {
    enum { ROWS = 9, COLS = 77 };
    float x[ROWS * COLS], whole[ROWS * COLS], part[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) x[i] = rng_normal(3, (uint64_t)i);
    for (int f = 0; f < COUNT_OF(coded); f++) {
        int64_t row_bytes = format_row_bytes(coded[f], COLS);
        char *a = mem_alloc(ROWS * row_bytes), *b = mem_alloc(ROWS * row_bytes);
        format_table[coded[f]].encode(a, x, ROWS, COLS, 0, ROWS);
        format_table[coded[f]].encode(b, x, 4, COLS, 0, 4);
        format_table[coded[f]].encode(b, x + 4 * COLS, ROWS, COLS, 4, 5); /* rows 4 to 8 of the whole */
        EXPECT(!memcmp(a, b, (size_t)(ROWS * row_bytes)));
        format_table[coded[f]].decode(whole, a, ROWS, COLS, 0, ROWS);
        format_table[coded[f]].decode(part, a + 4 * row_bytes, 5, COLS, 0, 5);
        EXPECT(!memcmp(whole + 4 * COLS, part, 5 * COLS * 4));
        EXPECT(format_bytes(coded[f], ROWS, COLS) == ROWS * row_bytes && row_bytes % FORMAT_ROW_ALIGN == 0);
        mem_free(a);
        mem_free(b);
    }
}
