/* head_terms.h - a row of logits scored by the terms of a loss, and replaced by the gradient (contract: ir/op_token.c,
 * "With terms"). */
#ifndef BACKEND_CPU_HEAD_TERMS_H
#define BACKEND_CPU_HEAD_TERMS_H

#include "backend/cpu/cpu.h"

typedef struct TermsRow {
    const float *terms; /* [HEAD_TERMS] */
    float *logits;      /* [n] */
    float *target;      /* [n]; NULL: there is none. Changed */
    int64_t n;
    int32_t label;
    double lse; /* of the logits */
    /* by terms_open: */
    float target_lse;
    double margin; /* max - mean of the logits, if the terms ask for it */
    int64_t best;  /* the first of the largest */
} TermsRow;

void terms_open(TermsRow *r);
double terms_value(const TermsRow *r);
void terms_gradient(const TermsRow *r, float g); /* logits become g times the gradient of the value */

#endif
