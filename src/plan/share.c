/* share.c - in-place ops: which output takes over the slot of which input (P3). Kernels get addresses, and never
 * decide.
 *
 * Out may take in's slot at step i when the op's row allows it and
 *   S1  i runs on the compute queue, and both are activations of one pool with slots of their own (no views);
 *   S2  in dies at i and is written whole in the same phase: what comes from an earlier phase or around the
 *       ring is needed again, whatever its last step says;
 *   S3  in stands in no other place of i: a kernel that writes over one input must not read it as another;
 *   S4  out is born at i;
 *   S5  their sizes are the same: a smaller tenant would keep a larger slot alive.
 * A row that says must makes S1-S4 a promise of the recording, and needs only that out fits. */
#include "base/units.h"
#include "plan/plan_int.h"

static bool written_whole_at(const Program *p, Tid id, int step) {
    for (int k = 0; k < MAX_OUT; k++)
        if (p->s[step].out[k] == id) return true;
    return false;
}

static int places_of(const Program *p, const Step *s, Tid base) {
    int n = 0;
    for (int k = 0; k < MAX_IN; k++) n += s->in[k] && prog_base(p, s->in[k]) == base;
    return n;
}

static bool may_take_over(const Program *p, const Phase *phase, int step, Tid out, Tid in) {
    const Step *s = &p->s[step];
    const Tensor *a = &p->t[in], *b = &p->t[out];
    bool plain = s->queue == QUEUE_COMPUTE && a->role == ROLE_ACTIVATION && b->role == ROLE_ACTIVATION &&
                 !a->base && !b->base && a->home.pool == b->home.pool;                                /* S1 */
    return plain && a->death == step && a->birth >= phase->begin && written_whole_at(p, in, a->birth) /* S2 */
           && places_of(p, s, in) == 1                                                                /* S3 */
           && b->birth == step;                                                                       /* S4 */
}

void plan_share(Program *p, int64_t align_bytes) {
    for (int ph = 0; ph < p->n_phases; ph++) {
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            const OpRow *row = op_row(p->s[i].op);
            if (row->share == SHARE_NONE) continue;
            Tid out = p->s[i].out[row->share_out], in = p->s[i].in[row->share_in];
            bool can = out && in && may_take_over(p, &p->phase[ph], i, out, in);
            int64_t slot_bytes = can ? p->t[p->t[in].slot].bytes : 0;
            if (row->share == SHARE_MUST) {
                CHECK_MSG(can && p->t[out].bytes <= slot_bytes,
                          "step %d (%s) must write over its input and cannot", i, op_name(p->s[i].op));
            } else if (can) { /* S5 */
                can = units_round_up(p->t[out].bytes, align_bytes) == units_round_up(slot_bytes, align_bytes);
            }
            if (can) p->t[out].slot = p->t[in].slot;
        }
    }
}
