/* format.h - how numbers are stored: one row per format, so that quantisation is never an `if` inside an op.
 *
 * A stored tensor is `rows` rows of `cols` numbers. Decode and encode speak fp32 and work on whole rows.
 * Quantised weights keep a row's scales in the row, behind its codes, padded to FORMAT_ROW_ALIGN: any rows of such a
 * tensor are a tensor of that format again, so stacked projections can be views. 8-bit moments are blocked over the
 * flat tensor: all codes, then all scales.
 *     int8 row   cols codes | fp32 scale
 *     nf4 row    (cols+1)/2 bytes, two codes each, the even column low | a byte per block of 64 | fp32 scale */
#ifndef IR_FORMAT_H
#define IR_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum Format {
    FMT_F32,
    FMT_BF16,
    FMT_F16,
    FMT_F64,
    FMT_I32,
    FMT_I64,
    FMT_INT8,  /* frozen weights: one signed byte a number, one fp32 scale a row (absolute maximum / 127) */
    FMT_NF4,   /* frozen weights: 16 levels by the quantiles of a normal distribution, times the absolute maximum of
                  each block of 64, itself stored as a byte times one fp32 scale a row */
    FMT_MOM8,  /* first moments: signed bytes, one fp32 scale per block of 256 numbers of the flat tensor */
    FMT_VAR8,  /* second moments: square roots as unsigned bytes, one fp32 scale per block of 256 */
    FMT_COUNT
} Format;

enum { FORMAT_MOMENT_BLOCK = 256, FORMAT_NF4_BLOCK = 64, FORMAT_ROW_ALIGN = 16 };

extern const float format_nf4_levels[16];

typedef struct FormatRow {
    const char *name;
    int bits;        /* of one code; scales come on top */
    bool by_rows;    /* any rows of it are a tensor of its own */
    bool plain;      /* an element can be addressed on its own: bits / 8 bytes each, no scales */
    bool real;       /* holds real numbers (decode and encode are defined) */
    /* dst[0 .. count*cols) = rows [row, row+count) of src, whose whole shape is rows x cols */
    void (*decode)(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count);
    void (*encode)(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count);
} FormatRow;

extern const FormatRow format_table[FMT_COUNT];

int64_t format_bytes(Format f, int64_t rows, int64_t cols);
int64_t format_row_bytes(Format f, int64_t cols);   /* of a format by rows */
int64_t format_row_scale(Format f, int64_t cols);   /* int8, nf4: where in its row the fp32 scale stands */
int64_t format_nf4_blocks(int64_t cols);            /* nf4: where in its row the blocks' bytes begin */
int64_t format_scales_offset(Format f, int64_t rows, int64_t cols); /* 8-bit moments: where the scales begin */
static inline const char *format_name(Format f) { return format_table[f].name; }
static inline int64_t format_item_bytes(Format f) { return format_table[f].bits / 8; } /* plain formats */

#endif
