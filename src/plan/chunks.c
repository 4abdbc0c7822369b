/* chunks.c - chunked feed-forward (tiled MLP): a layer's feed-forward goes through its tokens in pieces, so that the
 * intermediates between its products exist for one piece at a time. For long contexts, where they are the largest
 * tensors of all.
 *
 *   C1  a run is a stretch of steps of one layer's feed-forward whose rows may be cut (OPF_ROWWISE: products, adapters,
 *       gates, their gradients): a forward pass from gate and up to down, a backward pass from what is recomputed to
 *       d(input). It is written out once for every piece, piece after piece.
 *   C2  what a run writes and only it reads becomes a tensor of the piece's size. What comes from outside or is
 *       read outside is whole, and each piece has a view of its rows; disjoint parts of one base have different
 *       writers (P1).
 *   C3  weight gradients are summed over the pieces: the first piece takes the step's beta, the others add. This
 *       is the order of sums that accumulation over so many micro-batches has; all else keeps its bits where a
 *       product's rows do not depend on how many there are (P5: declared).
 *   C4  a clone is cut like its original or neither is (P6). A run that keeps what lies between its products, or
 *       reads something kept that is as large as all it makes, is left alone: nothing would be saved; so is one with
 *       dropout, whose draws are counted from the first token of the step. */
#include "plan/plan_int.h"

typedef struct Run {
    int begin, end; /* steps */
    int64_t rows;
    bool cut;
} Run;

typedef struct Chunks {
    Program *p;
    Rewrite w;
    int64_t piece_rows;
    int64_t recorded; /* tensors before this pass made any */
    Run *run;         /* owns: in order */
    int64_t n, cap;
    int *run_of;    /* owns: per step, its run; -1: none */
    int *reads;     /* owns: per tensor, by how many steps, through views too */
    int *writer;    /* owns: per tensor, the last step that writes it; -1: none */
    Tid *part;      /* owns: per tensor and piece, its view or its twin; NONE: not made yet */
    int64_t pieces; /* the most of any run */
} Chunks;

/* ---- which stretches ---- */

/* Operand k of a step, inputs first and then outputs, where it has a row for every token; else NONE. */
static Tid row_operand(const Step *s, int k) {
    const OpPlaces *at = op_places(s->op);
    bool in = k < MAX_IN;
    uint32_t marks = in ? at->in[k].marks : at->out[k - MAX_IN].marks;
    return marks & MARK_ROWS ? in ? s->in[k] : s->out[k - MAX_IN] : NONE;
}

static bool fits_in(const Chunks *c, int step, int64_t *rows) { /* *rows: of the run so far; 0: none yet */
    const Program *p = c->p;
    const Step *s = &p->s[step];
    if (!(op_row(s->op)->flags & OPF_ROWWISE) || s->layer < 0 || s->queue != QUEUE_COMPUTE) return false;
    if (s->part != PART_FFN || op_has_dropout(s)) return false;
    for (int k = 0; k < MAX_IN + MAX_OUT; k++) {
        Tid id = row_operand(s, k);
        if (!id) continue;
        if (p->t[id].base || p->t[id].role != ROLE_ACTIVATION || p->t[id].rank != 2) return false;
        if (*rows && prog_rows(p, id) != *rows) return false;
        *rows = prog_rows(p, id);
    }
    return true;
}

static bool reads(const Step *s, Tid id) {
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] == id) return true;
    return false;
}

static int reads_inside(const Chunks *c, const Run *r, Tid id) {
    int n = 0;
    for (int i = r->begin; i < r->end; i++) n += reads(&c->p->s[i], id);
    return n;
}

static bool is_made_inside(const Chunks *c, const Run *r, Tid id) {
    return c->writer[id] >= r->begin && c->writer[id] < r->end && reads_inside(c, r, id) > 0;
}

/* C4; and that a piece is worth it. */
static bool is_worth_it(const Chunks *c, const Run *r) {
    int64_t made = 0, kept = 0; /* the widest tensor that would be cut, the widest that the run reads from before */
    for (int i = r->begin; i < r->end; i++) {
        const Step *s = &c->p->s[i];
        for (int k = 0; k < MAX_IN + MAX_OUT; k++) {
            Tid id = row_operand(s, k);
            if (!id) continue;
            bool inside = is_made_inside(c, r, id);
            if (inside && reads_inside(c, r, id) != c->reads[id]) return false;
            if (inside) made = MAX2(made, prog_cols(c->p, id));
            else if (k < MAX_IN && c->writer[id] < r->begin) kept = MAX2(kept, prog_cols(c->p, id));
        }
    }
    return made > kept && r->rows > c->piece_rows;
}

static void find_runs(Chunks *c) {
    const Program *p = c->p;
    for (int ph = 0; ph < p->n_phases; ph++)
        for (int i = p->phase[ph].begin; i < p->phase[ph].end;) {
            Run r = {.begin = i, .end = i};
            while (r.end < p->phase[ph].end && p->s[r.end].layer == p->s[i].layer && fits_in(c, r.end, &r.rows))
                r.end++;
            if (r.end - r.begin < 2) {
                i = MAX2(r.end, i + 1);
                continue;
            }
            r.cut = is_worth_it(c, &r);
            c->run = mem_grow(c->run, &c->cap, c->n + 1, sizeof *c->run);
            for (int k = r.begin; k < r.end; k++) c->run_of[k] = (int)c->n;
            c->run[c->n++] = r;
            i = r.end;
        }
}

static Run *cut_run_of(const Chunks *c, int step) {
    Run *r = c->run_of[step] >= 0 ? &c->run[c->run_of[step]] : NULL;
    return r && r->cut ? r : NULL;
}

static void agree_with_clones(Chunks *c) { /* C4 */
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < c->p->n_s; i++) {
            int original = c->p->s[i].clone_of;
            if (original < 0) continue;
            Run *mine = cut_run_of(c, i), *its = cut_run_of(c, original);
            if (!mine == !its) continue;
            if (mine) mine->cut = false;
            if (its) its->cut = false;
            again = true;
        }
    }
}

/* ---- writing them out ---- */

static Tid piece_of(Chunks *c, const Run *r, Tid id, int64_t piece) {
    Tid *part = &c->part[(int64_t)id * c->pieces + piece], known = *part;
    if (known) return known;
    Program *p = c->p;
    int64_t first = piece * c->piece_rows, rows = MIN2(c->piece_rows, r->rows - first);
    if (is_made_inside(c, r, id)) { /* C2 */
        Tensor t = p->t[id];
        *part = prog_tensor(p, arena_printf(&p->arena, "%s.piece", t.name), ROLE_ACTIVATION, t.format, 2,
                            DIMS(rows, t.dim[1]));
    } else {
        *part = prog_view(p, arena_printf(&p->arena, "%s.part", p->t[id].name), id, first, rows);
    }
    p->t[*part].layer = p->t[id].layer;
    return *part;
}

static Step piece_step(Chunks *c, const Run *r, int step, int64_t piece) {
    Step s = c->p->s[step];
    const OpPlaces *at = op_places(s.op);
    int beta = op_beta_place(s.op);
    for (int k = 0; k < MAX_IN; k++)
        if (s.in[k] && at->in[k].marks & MARK_ROWS) s.in[k] = piece_of(c, r, s.in[k], piece);
    for (int k = 0; k < MAX_OUT; k++)
        if (s.out[k] && at->out[k].marks & MARK_ROWS) s.out[k] = piece_of(c, r, s.out[k], piece);
    if (beta >= 0 && piece) { /* C3; its rounding draws numbers of its own */
        s.in[beta] = NONE;
        s.fresh = false;
        s.key += (uint32_t)piece * 0x9e3779b9u;
    }
    if (s.clone_of >= 0) {
        const Run *its = cut_run_of(c, s.clone_of);
        s.clone_of = c->w.moved[s.clone_of] + (int)piece * (its->end - its->begin);
    }
    return s;
}

static void write_run(Chunks *c, const Run *r) {
    for (int64_t piece = 0; piece * c->piece_rows < r->rows; piece++)
        for (int i = r->begin; i < r->end; i++) {
            int at = rewrite_add(&c->w, piece_step(c, r, i, piece));
            if (!piece) c->w.moved[i] = at;
        }
}

static void rewrite(Chunks *c) {
    Program *p = c->p;
    rewrite_begin(&c->w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&c->w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end;) {
            const Run *r = cut_run_of(c, i);
            if (r)
                write_run(c, r);
            else
                rewrite_keep(&c->w, i, p->s[i]);
            i = r ? r->end : i + 1;
        }
    }
    rewrite_end(&c->w);
}

static void note_tensors(Chunks *c) {
    const Program *p = c->p;
    for (int64_t id = 0; id < c->recorded; id++) c->writer[id] = -1;
    for (int i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        c->run_of[i] = -1;
        for (int k = 0; k < MAX_IN; k++) {
            Tid base = s->in[k] ? prog_base(p, s->in[k]) : NONE;
            bool seen = false;
            for (int j = 0; j < k; j++) seen |= s->in[j] && prog_base(p, s->in[j]) == base;
            if (base && !seen) c->reads[base]++;
        }
        for (int k = 0; k < MAX_OUT; k++)
            if (s->out[k]) c->writer[prog_base(p, s->out[k])] = i;
    }
}

void plan_chunk_ffn(Program *p, int64_t piece_rows) {
    CHECK(piece_rows > 0);
    plan_check_phases(p);
    Chunks c = {.p = p,
                .piece_rows = piece_rows,
                .recorded = p->n_t,
                .run_of = MEM_NEW(int, p->n_s + 1),
                .reads = MEM_NEW(int, p->n_t),
                .writer = MEM_NEW(int, p->n_t)};
    note_tensors(&c);
    find_runs(&c);
    agree_with_clones(&c);
    for (int64_t i = 0; i < c.n; i++)
        if (c.run[i].cut) c.pieces = MAX2(c.pieces, (c.run[i].rows + piece_rows - 1) / piece_rows);
    c.part = MEM_NEW(Tid, c.recorded * MAX2(c.pieces, 1));
    if (c.pieces) rewrite(&c);
    mem_free(c.run);
    mem_free(c.run_of);
    mem_free(c.reads);
    mem_free(c.writer);
    mem_free(c.part);
}
