/* bnb.h - weights as bitsandbytes stores NF4: read only, as fp32 numbers.
 *
 * A weight W of a file of its making is several tensors:
 *   W                                    U8 (n/2,1)  two codes a byte, the first in the high half
 *   W.quant_map                          F32 (16)    the levels
 *   W.absmax                             a maximum per block of the flat weight: F32, or U8 when statistics are nested:
 *   W.nested_quant_map, W.nested_absmax  F32 (256), F32 per block of those bytes: maximum = map[byte] * nested + offset
 *   W.quant_state.bitsandbytes__nf4      U8, JSON: shape, blocksize, and when nested nested_blocksize, nested_offset */
#ifndef STORE_BNB_H
#define STORE_BNB_H

#include "store/safetensors.h"

typedef struct BnbTensor {
    const StSet *set;                          /* keeps */
    const StTensor *codes, *absmax, *nested;   /* nested NULL: absmax is fp32 */
    float level[16], nested_level[256], nested_offset;
    int64_t block, nested_block;
    int64_t n;                                 /* numbers */
    int rank;
    int64_t dim[ST_MAX_RANK];                  /* of the weight, not of its codes */
} BnbTensor;

bool bnb_is_nf4(const StSet *s, const StTensor *codes); /* a state of NF4 stands beside it */

/* Reads the state and refuses one that does not fit its tensors. */
bool bnb_open(BnbTensor *b, const StSet *s, const StTensor *codes, Err *e);

/* to[0 .. n) = numbers [at, at+n), dequantised. */
bool bnb_read(const BnbTensor *b, float *to, int64_t at, int64_t n, Err *e);

#endif
