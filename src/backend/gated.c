/* gated.c - the reference of linear_swiglu: its two steps by the device's own kernels, whose bits it must have. */
#include "backend/backend.h"

void backend_linear_swiglu(Backend *b, Queue q, const Args *a, Kernel *linear_of, Kernel *swiglu_of) {
    Operand w = a->linear_swiglu.in.w, h = a->linear_swiglu.out.h;
    int64_t rows = 1, width = w.t->dim[0];
    for (int i = 0; i < h.t->rank - 1; i++) rows *= h.t->dim[i];
    int64_t bytes = op_gated_bytes(rows, width, h.t->format);
    Tensor between = {.format = h.t->format, .rank = 2, .dim = {rows, width}, .role = ROLE_ACTIVATION};
    Operand gate_up = {a->workspace, &between};
    Step linear = *a->step, swiglu = *a->step;
    linear.op = OP_LINEAR, swiglu.op = OP_SWIGLU;
    linear.attr = (Attr){.linear = {.direct = true}};
    Args first = {.linear = {.in = {.x = a->linear_swiglu.in.x, .w = w, .bias = a->linear_swiglu.in.bias},
                             .out = {gate_up}},
                  .workspace = (char *)a->workspace + bytes,
                  .workspace_bytes = a->workspace_bytes - bytes,
                  .step = &linear};
    Args second = {.swiglu = {.in = {gate_up}, .out = {h}}, .step = &swiglu};
    linear_of(b, q, &first);
    swiglu_of(b, q, &second);
}
