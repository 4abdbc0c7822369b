/* sweep.c - when a head's gradient does not depend on its result, one pass over the logits computes both (fused linear
 * cross-entropy).
 *
 * head_logp at step f and its head_logp_grad at step b become one head_sweep at f, when
 *   W1  both read the same hidden rows, weight and labels in the same chunks, in one phase; no entropy is asked;
 *   W2  d(logp) and what it is computed from do not depend on f's outputs, so those steps can move before f;
 *   W3  what moves writes no state, and no state that it or b reads is written in between (P4);
 *   W4  between f and b nothing reads or writes the weight gradient that b adds to: its write moves to f (P4).
 * The sweep keeps b's random key: the rounding of the weight gradient is the only draw of the two (P6). */
#include <string.h>

#include "plan/plan_int.h"

typedef struct Sweep {
    const Program *p;
    const Phase *phase;
    int *writer; /* owns: per activation, the step that writes it or the last of its parts; -1: none */
    bool *moves; /* owns: per step of the program: it moves in front of the head at hand */
} Sweep;

static bool touches(const Program *p, const Step *s, Tid base, bool reads, bool writes) {
    for (int k = 0; k < MAX_IN && reads; k++)
        if (s->in[k] && prog_base(p, s->in[k]) == base) return true;
    for (int k = 0; k < MAX_OUT && writes; k++)
        if (s->out[k] && prog_base(p, s->out[k]) == base) return true;
    return false;
}

static bool touched_between(const Program *p, int first, int last, Tid base, bool reads, bool writes) {
    for (int i = first; i < last; i++)
        if (touches(p, &p->s[i], base, reads, writes)) return true;
    return false;
}

static bool state_stands(const Program *p, int head, int step) { /* W3: step may read its state at head instead */
    for (int k = 0; k < MAX_IN; k++) {
        Tid id = p->s[step].in[k];
        if (id && prog_is_state(p, id) && touched_between(p, head, step, prog_base(p, id), false, true))
            return false;
    }
    return true;
}

/* Marks the steps after `head` that make `id` for `reader`; false when one of them cannot move (W2, W3). */
static bool gather(Sweep *w, Tid id, int head, int reader) {
    const Program *p = w->p;
    Tid base = prog_base(p, id);
    if (p->t[base].role != ROLE_ACTIVATION) return true; /* state: asked of the step that reads it */
    int step = w->writer[base];
    if (step < head) return true;
    if (step == head || step > reader) return false; /* made by the head, or carried around the ring */
    if (w->moves[step]) return true;
    const Step *s = &p->s[step];
    for (int k = 0; k < MAX_OUT; k++) /* a part of a base has other writers: leave it alone */
        if (s->out[k] && (prog_is_state(p, s->out[k]) || p->t[s->out[k]].base)) return false;
    if (s->queue != QUEUE_COMPUTE || !state_stands(p, head, step)) return false;
    w->moves[step] = true;
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] && !gather(w, s->in[k], head, step)) return false;
    return true;
}

static int grad_of_head(const Sweep *w, int head) { /* W1; -1: none */
    const Step *f = &w->p->s[head];
    if (f->head_logp.out.entropy || f->head_logp.out.drawn) return -1;
    for (int i = head + 1; i < w->phase->end; i++) {
        const Step *b = &w->p->s[i];
        if (b->op != OP_HEAD_LOGP_GRAD || b->head_logp_grad.in.lse != f->head_logp.out.lse) continue;
        bool same = b->head_logp_grad.in.x == f->head_logp.in.x && b->head_logp_grad.in.w == f->head_logp.in.w &&
                    b->head_logp_grad.in.labels == f->head_logp.in.labels && b->attr.head.chunk == f->attr.head.chunk;
        CHECK(b->head_logp_grad.in.terms == f->head_logp.in.terms);
        return same ? i : -1;
    }
    return -1;
}

static int fusable(Sweep *w, int head) { /* the gradient's step, with `moves` marked; -1: not so */
    int grad = grad_of_head(w, head);
    if (grad < 0) return -1;
    const Step *b = &w->p->s[grad];
    memset(w->moves, 0, (size_t)w->p->n_s * sizeof *w->moves);
    if (!gather(w, b->head_logp_grad.in.dlogp, head, grad) || !state_stands(w->p, head, grad)) return -1;
    Tid dw = b->head_logp_grad.out.dw;
    return dw && touched_between(w->p, head, grad, prog_base(w->p, dw), true, true) ? -1 : grad; /* W4 */
}

static Step sweep_step(const Step *f, const Step *b) {
    Step s = *f;
    s.op = OP_HEAD_SWEEP;
    prog_clear_operands(&s);
    s.head_sweep.in.x = f->head_logp.in.x;
    s.head_sweep.in.w = f->head_logp.in.w;
    s.head_sweep.in.labels = f->head_logp.in.labels;
    s.head_sweep.in.dlogp = b->head_logp_grad.in.dlogp;
    s.head_sweep.in.beta = b->head_logp_grad.in.beta;
    s.head_sweep.in.clock = b->head_logp_grad.in.clock;
    s.head_sweep.in.terms = f->head_logp.in.terms;
    s.head_sweep.in.target_x = f->head_logp.in.target_x;
    s.head_sweep.in.target_w = f->head_logp.in.target_w;
    s.head_sweep.out.logp = f->head_logp.out.logp;
    s.head_sweep.out.lse = f->head_logp.out.lse;
    s.head_sweep.out.dx = b->head_logp_grad.out.dx;
    s.head_sweep.out.dw = b->head_logp_grad.out.dw;
    s.key = b->key;
    s.fresh = b->fresh;
    return s;
}

/* Fuses the first head that can be; the list is new afterwards. */
static bool sweep_one(Program *p, int head, int grad, const bool *moves) {
    Rewrite w;
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            if (i == head) {
                for (int j = head + 1; j < grad; j++)
                    if (moves[j]) rewrite_keep(&w, j, p->s[j]);
                w.moved[head] = w.moved[grad] = rewrite_add(&w, sweep_step(&p->s[head], &p->s[grad]));
            } else if (i != grad && !(i > head && i < grad && moves[i])) {
                rewrite_keep(&w, i, p->s[i]);
            }
        }
    }
    rewrite_end(&w);
    return true;
}

static bool sweep_first(Program *p) {
    Sweep w = {.p = p, .writer = MEM_NEW(int, p->n_t), .moves = MEM_NEW(bool, p->n_s + 1)};
    int head = -1, grad = -1;
    memset(w.writer, -1, (size_t)p->n_t * sizeof *w.writer);
    for (int i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_OUT; k++)
            if (p->s[i].out[k]) w.writer[prog_base(p, p->s[i].out[k])] = i;
    for (int ph = 0; ph < p->n_phases && grad < 0; ph++) {
        w.phase = &p->phase[ph];
        for (int i = w.phase->begin; i < w.phase->end && grad < 0; i++)
            if (p->s[i].op == OP_HEAD_LOGP) grad = fusable(&w, head = i);
    }
    bool found = grad >= 0 && sweep_one(p, head, grad, w.moves);
    mem_free(w.writer);
    mem_free(w.moves);
    return found;
}

void plan_sweep(Program *p) {
    plan_check_phases(p);
    while (sweep_first(p)) {
    }
}
