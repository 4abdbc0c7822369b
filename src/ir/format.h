/* format.h - how numbers are stored: one row per format, so that quantisation is never an `if` inside an op.
 *
 * A stored tensor is `rows` rows of `cols` numbers. A format has one or more sections laid one after another
 * (codes, then scales, ...); format_bytes is their sum. Decode and encode speak fp32 and work on whole rows. */
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
    FMT_MOM8,  /* first moments: signed bytes, one fp32 scale per block of 256 numbers of the flat tensor */
    FMT_VAR8,  /* second moments: square roots as unsigned bytes, one fp32 scale per block of 256 */
    FMT_COUNT
} Format;

enum { FORMAT_MOMENT_BLOCK = 256 };

typedef struct FormatRow {
    const char *name;
    int bits;        /* of one code; scales come on top */
    bool plain;      /* an element can be addressed on its own: bits / 8 bytes each, no scales */
    bool real;       /* holds real numbers (decode and encode are defined) */
    /* dst[0 .. count*cols) = rows [row, row+count) of src, whose whole shape is rows x cols */
    void (*decode)(float *dst, const void *src, int64_t rows, int64_t cols, int64_t row, int64_t count);
    void (*encode)(void *dst, const float *src, int64_t rows, int64_t cols, int64_t row, int64_t count);
} FormatRow;

extern const FormatRow format_table[FMT_COUNT];

int64_t format_bytes(Format f, int64_t rows, int64_t cols);
int64_t format_scales_offset(Format f, int64_t rows, int64_t cols); /* byte offset of the scales section */
static inline const char *format_name(Format f) { return format_table[f].name; }
static inline int64_t format_item_bytes(Format f) { return format_table[f].bits / 8; } /* plain formats */

#endif
