/* op_table.c - the rows and operands of all ops gathered into one table, and the questions every row answers. */
#include <stdio.h>

#include "ir/op.h"

const OpRow *const op_rows[OP_COUNT] = {
#define OP(NAME, name, ins, outs) [OP_##NAME] = &op_row_##name,
#include "ir/ops.def"
};

/* The operands by name lie over the arrays. */
#define OP(NAME, name, ins, outs)                                                                    \
    _Static_assert(sizeof((Step){0}.name) == (MAX_IN + MAX_OUT) * sizeof(Tid), "operands of " #name); \
    _Static_assert(OP_IN(name, none) == N_IN_##name && OP_OUT(name, none) == N_OUT_##name, "operands of " #name);
#include "ir/ops.def"

enum { OPT = MARK_OPT, ROWS = MARK_ROWS, BETA = MARK_BETA, STORED = MARK_STORED, GATHERED = MARK_GATHERED };

const OpPlaces op_all_places[OP_COUNT] = {
#define IN(operand, marks) {#operand, marks},
#define OUT(operand, marks) {#operand, marks},
#define OP(NAME, op, ins, outs) \
    [OP_##NAME] = {.name = #op, .n_in = N_IN_##op, .n_out = N_OUT_##op, .in = {ins}, .out = {outs}},
#include "ir/ops.def"
};

static bool is_written_whole(const Program *p, Tid out) { /* of a cache a step writes a few slots */
    return out && prog_t(p, out)->role != ROLE_CACHE;
}

double op_flops(const Program *p, const Step *s) {
    const OpRow *row = op_row(s->op);
    if (row->flops) return row->flops(p, s);
    double n = 0;
    for (int i = 0; i < MAX_OUT; i++)
        if (is_written_whole(p, s->out[i])) n += (double)prog_elements(p, s->out[i]);
    return n;
}

double op_bytes_moved(const Program *p, const Step *s) {
    const OpPlaces *at = op_places(s->op);
    double n = 0;
    for (int i = 0; i < MAX_IN; i++) /* of what is gathered as many rows as come out, not the table */
        if (s->in[i]) n += (double)prog_bytes(p, at->in[i].marks & MARK_GATHERED ? prog_first_out(s) : s->in[i]);
    for (int i = 0; i < MAX_OUT; i++)
        if (is_written_whole(p, s->out[i])) n += (double)prog_bytes(p, s->out[i]);
    return n;
}

Tid op_token_rows(const Step *s) {
    const OpPlaces *at = op_places(s->op);
    for (int i = 0; i < at->n_in; i++)
        if (s->in[i] && at->in[i].marks & MARK_ROWS) return s->in[i];
    return NONE;
}

int op_beta_place(OpId op) {
    const OpPlaces *at = op_places(op);
    for (int i = 0; i < at->n_in; i++)
        if (at->in[i].marks & MARK_BETA) return i;
    return -1;
}

bool op_has_dropout(const Step *s) { return op_row(s->op)->flags & OPF_DROPOUT && s->attr.lora.dropout > 0; }

bool op_is_fresh(const Step *s) {
    if (!s->fresh || !(op_row(s->op)->flags & OPF_FRESH)) return false;
    return s->in[op_beta_place(s->op)] && !op_has_dropout(s); /* with dropout it adds up, panel by panel */
}

bool op_reads_stored(const Program *p, const Step *s, int k) {
    if (!(op_places(s->op)->in[k].marks & MARK_STORED)) return false;
    StoredRule *rule = op_row(s->op)->stored;
    return !rule || rule(p, s);
}

/* "input so_far is missing": valid until the next call of this thread. */
static const char *about(const char *which, const char *operand, const char *what) {
    static _Thread_local char text[120];
    snprintf(text, sizeof text, "%s %s%s", which, operand, what);
    return text;
}

static const char *wrong_in(const Program *p, const Step *s, int i) {
    const OpPlaces *at = op_places(s->op);
    if (i >= at->n_in) return s->in[i] ? "more inputs than the op has" : NULL;
    if (!s->in[i] && !(at->in[i].marks & MARK_OPT)) return about("input", at->in[i].name, " is missing");
    if (s->in[i] < 0 || s->in[i] >= p->n_t) return about("input", at->in[i].name, " is not a tensor of this program");
    return NULL;
}

static const char *wrong_out(const Program *p, const Step *s, int i) {
    const OpPlaces *at = op_places(s->op);
    Tid id = s->out[i];
    if (i >= at->n_out) return id ? "more outputs than the op has" : NULL;
    if (!id) return at->out[i].marks & MARK_OPT ? NULL : about("output", at->out[i].name, " is missing");
    if (id < 0 || id >= p->n_t) return about("output", at->out[i].name, " is not a tensor of this program");
    if (p->t[id].role <= ROLE_TABLE)
        return about("output", at->out[i].name, ": inputs, dials and tables are written by the host");
    if (prog_is_state(p, id) && !(op_row(s->op)->flags & OPF_WRITES_STATE))
        return about("output", at->out[i].name, ": the op's row does not say that it writes state (P4)");
    return NULL;
}

const char *op_wrong(const Program *p, const Step *s) {
    const OpPlaces *at = op_places(s->op);
    const OpRow *row = op_row(s->op);
    const char *wrong = NULL;
    for (int i = 0; i < MAX_IN && !wrong; i++) {
        bool usual = i < at->n_in ? s->in[i] > 0 && s->in[i] < p->n_t : !s->in[i];
        if (!usual) wrong = wrong_in(p, s, i);
    }
    for (int i = 0; i < MAX_OUT && !wrong; i++) {
        Tid id = s->out[i];
        bool usual = i < at->n_out ? id > 0 && id < p->n_t && p->t[id].role == ROLE_ACTIVATION : !id;
        if (!usual) wrong = wrong_out(p, s, i);
    }
    return wrong || !row->shape ? wrong : row->shape(p, s);
}
