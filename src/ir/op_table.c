/* op_table.c - the rows gathered into one table, and the questions every row answers. */
#include "ir/op.h"

static const OpRow *const table[OP_COUNT] = {
#define OP_ENUM(NAME, name) [OP_##NAME] = &op_row_##name,
#include "ir/ops.def"
#undef OP_ENUM
};

const OpRow *op_row(OpId op) {
    CHECK(op >= 0 && op < OP_COUNT);
    return table[op];
}

static bool is_written_whole(const Program *p, Tid out) { /* of a cache a step writes a few slots */
    return out && prog_t(p, out)->role != ROLE_CACHE;
}

double op_flops(const Program *p, const Step *s) {
    const OpRow *row = op_row(s->op);
    if (row->flops) return row->flops(p, s);
    double n = 0;
    for (int i = 0; i < row->n_out; i++)
        if (is_written_whole(p, s->out[i])) n += (double)prog_elements(p, s->out[i]);
    return n;
}

double op_bytes_moved(const Program *p, const Step *s) {
    double n = 0;
    for (int i = 0; i < MAX_IN; i++)
        if (s->in[i]) n += (double)prog_bytes(p, s->in[i]);
    for (int i = 0; i < MAX_OUT; i++)
        if (is_written_whole(p, s->out[i])) n += (double)prog_bytes(p, s->out[i]);
    if (s->op == OP_EMBED) n -= (double)prog_bytes(p, s->in[0]) - (double)prog_bytes(p, s->out[0]); /* rows, not the table */
    return n;
}

bool op_reads_stored(const Program *p, const Step *s, int k) {
    if (s->op == OP_EMBED) return k == 0;
    if (k != 1) return false;
    if (s->op == OP_LINEAR_SWIGLU) return true;
    if (s->op == OP_LINEAR) return s->attr.linear.direct;
    if (s->op == OP_HEAD_LOGITS && prog_rows(p, s->in[0]) <= LINEAR_DIRECT_MOST) return true;
    bool head = s->op == OP_HEAD_LOGITS || s->op == OP_HEAD_LOGP || s->op == OP_HEAD_LOGP_GRAD || s->op == OP_HEAD_SWEEP;
    return head && p->t[prog_base(p, s->in[1])].home.stored == FMT_INT8; /* large: decoded panel by panel, never whole */
}

const char *op_wrong(const Program *p, const Step *s) {
    const OpRow *row = op_row(s->op);
    for (int i = 0; i < MAX_IN; i++) {
        if (i >= row->n_in && s->in[i]) return "more inputs than its row has places";
        if (i < row->n_in && !s->in[i] && !(row->optional_in >> i & 1)) return "an input is missing";
        if (s->in[i] < 0 || s->in[i] >= p->n_t) return "an input is not a tensor of this program";
    }
    for (int i = 0; i < MAX_OUT; i++) {
        if (i >= row->n_out && s->out[i]) return "more outputs than its row has places";
        if (i < row->n_out && !s->out[i] && !(row->optional_out >> i & 1)) return "an output is missing";
        if (s->out[i] < 0 || s->out[i] >= p->n_t) return "an output is not a tensor of this program";
        if (s->out[i] && p->t[s->out[i]].role <= ROLE_TABLE) return "inputs, dials and tables are written by the host";
        if (s->out[i] && prog_is_state(p, s->out[i]) && !(row->flags & OPF_WRITES_STATE))
            return "its row does not say that it writes state (P4)";
    }
    return row->shape ? row->shape(p, s) : NULL;
}
