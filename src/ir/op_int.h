/* op_int.h - small helpers shared by the op rows. */
#ifndef IR_OP_INT_H
#define IR_OP_INT_H

#include "ir/op.h"

static inline bool same_shape(const Program *p, Tid a, Tid b) {
    return prog_rows(p, a) == prog_rows(p, b) && prog_cols(p, a) == prog_cols(p, b);
}

/* flops of a product (N,K) x (M,K)^T */
static inline double product_flops(int64_t n, int64_t m, int64_t k) { return 2.0 * (double)n * (double)m * (double)k; }

/* op_linear.c: like linear's. */
int64_t op_head_logits_workspace(const Program *p, const Step *s, const Machine *m);

#endif
