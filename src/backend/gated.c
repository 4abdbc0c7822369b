/* gated.c - linear_swiglu as the two steps it was made of, by a device's own kernels for them: what its bits are. */
#include "backend/backend.h"

void backend_linear_swiglu(Backend *b, Queue q, const Args *a, Kernel *linear_of, Kernel *swiglu_of) {
    const Tensor *w = a->ti[1], *h = a->to[0];
    int64_t rows = 1, width = w->dim[0];
    for (int i = 0; i < h->rank - 1; i++) rows *= h->dim[i];
    int64_t bytes = op_gated_bytes(rows, width, h->format);
    Tensor gate_up = {.format = h->format, .rank = 2, .dim = {rows, width}, .role = ROLE_ACTIVATION};
    Step linear = *a->step, swiglu = *a->step;
    linear.op = OP_LINEAR, swiglu.op = OP_SWIGLU;
    linear.attr = (Attr){.linear = {.direct = true}};
    Args first = *a, second = {.in = {a->workspace}, .ti = {&gate_up}, .out = {a->out[0]}, .to = {h}, .step = &swiglu};
    first.step = &linear;
    first.out[0] = a->workspace, first.to[0] = &gate_up;
    first.workspace = (char *)a->workspace + bytes, first.workspace_bytes = a->workspace_bytes - bytes;
    linear_of(b, q, &first);
    swiglu_of(b, q, &second);
}
