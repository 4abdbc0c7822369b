/* lower.c - the order of the passes, from a recorded program to a placed one. No other file knows it.
 *
 *   L1  adapters before sweep and recompute: they look for steps as they were recorded;
 *   L2  sweep and joined losses before recompute: what is fused has no forward half that could be dropped or cloned;
 *   L3  chunks after recompute: only what is recomputed is worth cutting;
 *   L4  gate and fuse after recompute: a norm that backward repeats from the kept sum stays a norm (fuse.c, F1),
 *       and a gate that has a clone stays a step of its own (gate.c, G2);
 *   L5  early updates after everything that adds backward steps, offload after everything that adds readers;
 *   L6  materialise last: it turns homes into copies, and whatever it adds is placed as it stands. */
#include "plan/plan.h"

Placement plan_lower(Program *p, const PlanChoices *c, const Machine *m) {
    bool gpu = m->kind == MACHINE_CUDA;
    if (gpu) plan_adapters_first(p);
    if (!c->keep_head_gradient_apart) plan_sweep(p);
    plan_join_losses(p);
    if (c->layers) plan_recompute(p, c->recompute, c->layers);
    if (c->ffn_piece_rows) plan_chunk_ffn(p, c->ffn_piece_rows);
    if (gpu) plan_gate(p);
    plan_fuse(p);
    if (c->update_early) plan_update_early(p);
    if (c->offload_inputs) plan_offload(p, c->offload_inputs, c->offload_late);
    plan_materialise(p);
    return c->estimate ? plan_estimate(p, m) : plan_all(p, m);
}
