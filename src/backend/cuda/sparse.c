/* sparse.c - gated sparse attention on the GPU: refused before anything is loaded (ModelFamily.cpu_only), and here should a
 * program hold its ops all the same. */
#include "backend/cuda/cuda.h"

static void refuse(Backend *b, const Args *a) { cuda_fail(b, "%s has no GPU kernel yet; use --device cpu", op_name(a->step->op)); }

void cuda_gate(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_gate_grad(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_mix(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_index_put(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_select(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_attend_selected(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_attend_selected_grad(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_index_loss(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_index_loss_grad(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_attend_report(Backend *b, Queue q, const Args *a) { refuse(b, a); }
void cuda_gate_report(Backend *b, Queue q, const Args *a) { refuse(b, a); }
