/* bnb.c - how bitsandbytes lays NF4 weights out in safetensors. */
#include "store/bnb.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "store/jsonfile.h"

enum { READ_NUMBERS = 1 << 16, LEAST_BLOCK = 32, STATE_BYTES = 1 << 16 };

static const StTensor *part(const StSet *s, const StTensor *codes, const char *name) {
    char full[600];
    snprintf(full, sizeof full, "%s.%s", codes->name, name);
    return st_find(s, full);
}

bool bnb_is_nf4(const StSet *s, const StTensor *codes) {
    return codes->dtype == ST_U8 && part(s, codes, "quant_state.bitsandbytes__nf4");
}

static int64_t parts_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

static bool bad_state(const BnbTensor *b, const char *what, Err *e) {
    return fail(e, ERR_FAIL, "%s: %s: %s in its quant_state.bitsandbytes__nf4 does not fit its tensors",
                b->set->path[b->codes->file], b->codes->name, what);
}

static bool state_shape(BnbTensor *b, const json_t *shape, Err *e) {
    if (!json_is_array(shape) || json_array_size(shape) > ST_MAX_RANK) return bad_state(b, "shape", e);
    b->rank = (int)json_array_size(shape);
    b->n = 1;
    for (int i = 0; i < b->rank; i++) {
        b->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
        if (b->dim[i] < 1) return bad_state(b, "shape", e);
        b->n = mem_mul(b->n, b->dim[i]);
    }
    return (b->n > 0 && b->codes->bytes == parts_of(b->n, 2)) || bad_state(b, "shape", e);
}

static bool read_floats(const BnbTensor *b, const char *name, float *to, int64_t n, Err *e) {
    const StTensor *t = part(b->set, b->codes, name);
    if (!t || t->dtype != ST_F32 || t->bytes != n * 4)
        return fail(e, ERR_FAIL, "%s: %s.%s is %s", b->set->path[b->codes->file], b->codes->name, name,
                    t ? "not fp32 of the expected size" : "missing");
    return st_read(b->set, t, to, 0, t->bytes, e);
}

static bool state_blocks(BnbTensor *b, const json_t *state, Err *e) {
    b->block = json_integer_value(json_object_get(state, "blocksize"));
    if (b->block < LEAST_BLOCK) return bad_state(b, "blocksize", e);
    int64_t blocks = parts_of(b->n, b->block);
    b->absmax = part(b->set, b->codes, "absmax");
    if (!b->absmax) return bad_state(b, "absmax", e);
    if (b->absmax->dtype == ST_F32) return b->absmax->bytes == blocks * 4 || bad_state(b, "blocksize", e);
    if (b->absmax->dtype != ST_U8 || b->absmax->bytes != blocks) return bad_state(b, "blocksize", e);
    const json_t *offset = json_object_get(state, "nested_offset");
    b->nested = part(b->set, b->codes, "nested_absmax");
    b->nested_block = json_integer_value(json_object_get(state, "nested_blocksize"));
    if (!b->nested || b->nested->dtype != ST_F32 || b->nested_block < LEAST_BLOCK || !json_is_number(offset) ||
        b->nested->bytes != parts_of(blocks, b->nested_block) * 4)
        return bad_state(b, "nested_blocksize", e);
    b->nested_offset = (float)json_number_value(offset);
    return read_floats(b, "nested_quant_map", b->nested_level, 256, e);
}

bool bnb_open(BnbTensor *b, const StSet *s, const StTensor *codes, Err *e) {
    *b = (BnbTensor){.set = s, .codes = codes};
    const StTensor *t = part(s, codes, "quant_state.bitsandbytes__nf4");
    if (t->bytes > STATE_BYTES) return bad_state(b, "its length", e);
    char *text = mem_alloc(t->bytes + 1);
    json_t *state = NULL;
    bool ok = st_read(s, t, text, 0, t->bytes, e) && jsonfile_parse(&state, text, t->bytes, t->name, e) &&
              state_shape(b, json_object_get(state, "shape"), e) && state_blocks(b, state, e) &&
              read_floats(b, "quant_map", b->level, 16, e);
    json_decref(state);
    mem_free(text);
    return ok;
}

/* The maxima of blocks [first, first+n) */
static bool read_maxima(const BnbTensor *b, float *to, int64_t first, int64_t n, Err *e) {
    if (!b->nested) return st_read(b->set, b->absmax, to, first * 4, n * 4, e);
    uint8_t byte[READ_NUMBERS / LEAST_BLOCK + 1];
    float outer[READ_NUMBERS / LEAST_BLOCK / LEAST_BLOCK + 2];
    int64_t from = first / b->nested_block, end = (first + n - 1) / b->nested_block + 1;
    if (!st_read(b->set, b->absmax, byte, first, n, e) ||
        !st_read(b->set, b->nested, outer, from * 4, (end - from) * 4, e))
        return false;
    for (int64_t i = 0; i < n; i++)
        to[i] = b->nested_level[byte[i]] * outer[(first + i) / b->nested_block - from] + b->nested_offset;
    return true;
}

static bool read_some(const BnbTensor *b, float *to, int64_t at, int64_t n, Err *e) {
    uint8_t code[READ_NUMBERS / 2 + 1];
    float most[READ_NUMBERS / LEAST_BLOCK + 1] = {0};
    int64_t first = at / b->block, blocks = (at + n - 1) / b->block + 1 - first;
    int64_t byte = at / 2, bytes = (at + n - 1) / 2 + 1 - byte;
    if (!st_read(b->set, b->codes, code, byte, bytes, e) || !read_maxima(b, most, first, blocks, e)) return false;
    for (int64_t i = 0; i < blocks; i++)
        if (!isfinite(most[i]))
            return fail(e, ERR_FAIL, "%s: %s: the maximum of block %lld is not finite", b->set->path[b->codes->file],
                        b->codes->name, (long long)(first + i));
    for (int64_t i = at; i < at + n; i++)
        to[i - at] = b->level[i % 2 ? code[i / 2 - byte] & 15 : code[i / 2 - byte] >> 4] * most[i / b->block - first];
    return true;
}

bool bnb_read(const BnbTensor *b, float *to, int64_t at, int64_t n, Err *e) {
    CHECK(at >= 0 && at + n <= b->n);
    for (int64_t i = 0; i < n; i += READ_NUMBERS)
        if (!read_some(b, to + i, at + i, MIN2(READ_NUMBERS, n - i), e)) return false;
    return true;
}
