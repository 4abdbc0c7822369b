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
    prog_emit(p, (Step){.op = OP_SAMPLE, .in = {logits, slots, positions, t.how, t.ids}, .out = {t.drawn, t.ids}});
}

Tid op_pick(Program *p, Tid ids, Tid slots, Tid positions) {
    Tid picked = prog_tensor(p, "picked", ROLE_ACTIVATION, FMT_I32, 1, DIMS(prog_elements(p, slots)));
    prog_emit(p, (Step){.op = OP_PICK, .in = {ids, slots, positions}, .out = {picked}});
    return picked;
}

static const char *sample_shape(const Program *p, const Step *s) {
    int64_t n = prog_rows(p, s->in[0]), slots = prog_rows(p, s->in[3]);
    if (prog_elements(p, s->in[1]) != n || prog_elements(p, s->in[2]) != n) return "not one slot and position a row";
    if (prog_cols(p, s->in[3]) != DRAW_WORDS || prog_cols(p, s->out[0]) != DRAWN_WORDS) return "words of a slot";
    if (prog_rows(p, s->in[4]) != slots || prog_rows(p, s->out[0]) != slots) return "how, ids and drawn differ in slots";
    if (prog_cols(p, s->in[0]) > DRAW_MOST_VOCAB) return "a vocabulary whose weights cannot be summed";
    return s->in[4] == s->out[1] ? NULL : "the ids are changed where they stand";
}

static const char *pick_shape(const Program *p, const Step *s) {
    int64_t n = prog_elements(p, s->out[0]);
    return prog_elements(p, s->in[1]) == n && prog_elements(p, s->in[2]) == n ? NULL : "not one slot and position a row";
}

/* On the CPU: scores, and scores beside weights to be ordered, for each of a few rows at a time. */
static int64_t sample_workspace(const Program *p, const Step *s, const Machine *m) {
    int64_t rows = MIN2(prog_rows(p, s->in[0]), SAMPLE_WORKERS);
    return m->kind == MACHINE_CPU ? rows * sample_row_bytes(prog_cols(p, s->in[0])) : 0;
}

static double sample_flops(const Program *p, const Step *s) { return 4.0 * (double)prog_elements(p, s->in[0]); }

const OpRow op_row_sample = {.name = "sample", .n_in = 5, .n_out = 2, .shape = sample_shape, .flops = sample_flops,
    .workspace = sample_workspace, .flags = OPF_WRITES_STATE};
const OpRow op_row_pick = {.name = "pick", .n_in = 3, .n_out = 1, .shape = pick_shape};
