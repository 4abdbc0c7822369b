/* op_sample.c - the last step of a token and the first of the next: drawn, kept per slot, picked again.
 *
 *   sample  in logits(N,V) fp32 slots(N) positions(N) how(S,DRAW_WORDS) ids(S,context)   out drawn(S,DRAWN_WORDS) ids
 *           row n draws for slots[n] by the rules of ir/sampling.h; positions[n] is the place of the token whose logits
 *           these are, so the ids before are [0, positions[n]] and the new one goes behind them (if there is room).
 *           A negative position is an idle row: nothing is drawn. No two rows have the same slot. A forced token
 *           (DrawHow.forced) stands behind them already and is given as it is, with its log-probability.
 *   pick    in ids(S,context) slots(N) positions(N)   out picked(N) i32: ids[slot][position]; 0 for an idle row and
 *           where there is none (-1) */
#include "ir/op_int.h"

void op_sample(Program *p, DrawTensors t, Tid logits, Tid slots, Tid positions) {
    prog_emit(p, (Step){.op = OP_SAMPLE,
                        .sample = {.in = {.logits = logits, .slots = slots, .positions = positions, .how = t.how,
                                          .ids = t.ids},
                                   .out = {.drawn = t.drawn, .ids = t.ids}}});
}

Tid op_pick(Program *p, Tid ids, Tid slots, Tid positions) {
    Tid picked = prog_tensor(p, "picked", ROLE_ACTIVATION, FMT_I32, 1, DIMS(prog_elements(p, slots)));
    prog_emit(p, (Step){.op = OP_PICK, .pick = {.in = {ids, slots, positions}, .out = {picked}}});
    return picked;
}

static const char *sample_shape(const Program *p, const Step *s) {
    Tid logits = s->sample.in.logits, how = s->sample.in.how, ids = s->sample.in.ids, drawn = s->sample.out.drawn;
    int64_t n = prog_rows(p, logits), slots = prog_rows(p, how);
    if (prog_elements(p, s->sample.in.slots) != n || prog_elements(p, s->sample.in.positions) != n)
        return "not one slot and position a row";
    if (prog_cols(p, how) != DRAW_WORDS || prog_cols(p, drawn) != DRAWN_WORDS) return "words of a slot";
    if (prog_rows(p, ids) != slots || prog_rows(p, drawn) != slots) return "how, ids and drawn differ in slots";
    if (prog_cols(p, logits) > DRAW_MOST_VOCAB) return "a vocabulary whose weights cannot be summed";
    return ids == s->sample.out.ids ? NULL : "the ids are changed where they stand";
}

static const char *pick_shape(const Program *p, const Step *s) {
    int64_t n = prog_elements(p, s->pick.out.picked);
    bool fits = prog_elements(p, s->pick.in.slots) == n && prog_elements(p, s->pick.in.positions) == n;
    return fits ? NULL : "not one slot and position a row";
}

/* On the CPU: scores, and scores beside weights to be ordered, for each of a few rows at a time. */
static int64_t sample_workspace(const Program *p, const Step *s, const Machine *m) {
    int64_t rows = MIN2(prog_rows(p, s->sample.in.logits), SAMPLE_WORKERS);
    return m->kind == MACHINE_CPU ? rows * sample_row_bytes(prog_cols(p, s->sample.in.logits)) : 0;
}

static double sample_flops(const Program *p, const Step *s) {
    return 4.0 * (double)prog_elements(p, s->sample.in.logits);
}

/* Of a GPU's fp32 rate: 64 rows of 151,936 scores take 0.25 ms on an H200 with top-k and top-p (docs/kernels.md), in
 * ten passes over a row, of which a plain draw needs four. */
static double sample_share(const Program *p, const Step *s) { return (void)p, (void)s, 0.0065; }

const OpRow op_row_sample = {.shape = sample_shape, .flops = sample_flops, .vector_share = sample_share,
    .workspace = sample_workspace, .flags = OPF_WRITES_STATE};
const OpRow op_row_pick = {.shape = pick_shape};
