/* update.h - what adamw and sgd have in common, so that a device has one path for both. */
#ifndef BACKEND_UPDATE_H
#define BACKEND_UPDATE_H

#include "backend/backend.h"

typedef struct UpdateOperands {
    Operand weight_in;            /* where it is read: the same place as `weight` */
    Operand weight, m, v, master; /* written; sgd has no v, sgd_carry's is the correction */
    Operand g, dials, verdict, clock;
} UpdateOperands;

static inline UpdateOperands adamw_operands(const Args *a) {
    return (UpdateOperands){.weight_in = a->adamw.in.weight, .weight = a->adamw.out.weight, .m = a->adamw.out.m,
                            .v = a->adamw.out.v, .master = a->adamw.out.master, .g = a->adamw.in.g,
                            .dials = a->adamw.in.dials, .verdict = a->adamw.in.verdict, .clock = a->adamw.in.clock};
}

static inline UpdateOperands sgd_operands(const Args *a) {
    return (UpdateOperands){.weight_in = a->sgd.in.weight, .weight = a->sgd.out.weight, .m = a->sgd.out.m,
                            .master = a->sgd.out.master, .g = a->sgd.in.g, .dials = a->sgd.in.dials,
                            .verdict = a->sgd.in.verdict, .clock = a->sgd.in.clock};
}

static inline UpdateOperands sgd_carry_operands(const Args *a) {
    return (UpdateOperands){.weight_in = a->sgd_carry.in.weight, .weight = a->sgd_carry.out.weight,
                            .v = a->sgd_carry.out.correction, .master = a->sgd_carry.out.master,
                            .g = a->sgd_carry.in.g, .dials = a->sgd_carry.in.dials,
                            .verdict = a->sgd_carry.in.verdict, .clock = a->sgd_carry.in.clock};
}

#endif
