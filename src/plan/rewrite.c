/* rewrite.c - how a pass replaces a program's step list: the numbers of steps and phases follow. */
#include "plan/plan_int.h"

void plan_check_phases(const Program *p) {
    int at = 0;
    for (int i = 0; i < p->n_phases; i++) {
        CHECK_MSG(p->phase[i].begin == at && p->phase[i].end >= at,
                  "phase %s does not follow on step %d, or is open", p->phase[i].name, at);
        at = p->phase[i].end;
    }
    CHECK_MSG(at == p->n_s, "%lld steps, %d of them in phases", (long long)p->n_s, at);
}

void rewrite_begin(Rewrite *w, Program *p) {
    plan_check_phases(p);
    *w = (Rewrite){.p = p, .layer = p->layer};
    p->layer = -1;
    w->s = mem_grow(NULL, &w->cap, p->n_s + p->n_s / 4 + 16, sizeof *w->s);
    w->moved = MEM_NEW(int, p->n_s + 1);
    for (int64_t i = 0; i < p->n_s; i++) w->moved[i] = -1;
}

void rewrite_phase(Rewrite *w) {
    CHECK(w->n_phases < w->p->n_phases);
    w->phase_begin[w->n_phases++] = (int)w->n;
}

static int append(Rewrite *w, Step s) {
    w->s = mem_grow(w->s, &w->cap, w->n + 1, sizeof *w->s);
    w->s[w->n] = s;
    return (int)w->n++;
}

int rewrite_keep(Rewrite *w, int old, Step s) {
    if (s.clone_of >= 0) { /* an original stands before its clones, so it has moved already */
        s.clone_of = w->moved[s.clone_of];
        CHECK(s.clone_of >= 0);
    }
    return w->moved[old] = append(w, s);
}

int rewrite_add(Rewrite *w, Step s) {
    for (int q = 0; q < QUEUE_COUNT; q++) s.wait[q] = -1;
    s.workspace = NONE;
    const char *wrong = op_wrong(w->p, &s);
    CHECK_MSG(!wrong, "new step %lld (%s, layer %d): %s", (long long)w->n, op_name(s.op), s.layer, wrong);
    return append(w, s);
}

void rewrite_end(Rewrite *w) {
    Program *p = w->p;
    CHECK(w->n_phases == p->n_phases);
    for (int i = 0; i < p->n_phases; i++) {
        p->phase[i].begin = w->phase_begin[i];
        p->phase[i].end = i + 1 < p->n_phases ? w->phase_begin[i + 1] : (int)w->n;
    }
    mem_free(p->s);
    p->s = w->s;
    p->n_s = w->n;
    p->cap_s = w->cap;
    p->layer = w->layer;
    mem_free(w->moved);
    *w = (Rewrite){0};
}

/* Readers of every tensor: mem_free. Who reads a view counts twice for its base, so that it is not left out; a clone
 * of the step that writes it counts as a reader, because backward wants the value again. */
static int *count_readers(const Program *p) {
    int *readers = MEM_NEW(int, p->n_t);
    for (int64_t i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        for (int k = 0; k < MAX_IN; k++) {
            Tid t = s->in[k];
            if (t) readers[prog_base(p, t)] += p->t[t].base ? 2 : 1;
        }
        if (s->clone_of >= 0) readers[prog_base(p, prog_first_out(&p->s[s->clone_of]))]++;
    }
    return readers;
}

static bool is_pair(const Rewrite *w, const Pair *pair, const Step *a, const Step *b, const int *readers) {
    if (a->op != pair->first || b->op != pair->second || a->region != b->region || a->queue != b->queue) return false;
    if ((a->clone_of < 0) != (b->clone_of < 0)) return false;
    if (a->clone_of >= 0 && w->moved[a->clone_of] != w->moved[b->clone_of]) return false;
    return pair->holds(w->p, a, b) && (!readers || readers[prog_first_out(a)] == 1);
}

void rewrite_pairs(Program *p, const Pair *pair) {
    Rewrite w;
    int *readers = pair->alone ? count_readers(p) : NULL;
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            const Step *a = &p->s[i], *b = a + 1;
            if (i + 1 == p->phase[ph].end || !is_pair(&w, pair, a, b, readers)) {
                rewrite_keep(&w, i, *a);
                continue;
            }
            Step s = pair->fused(a, b);
            if (s.clone_of >= 0) s.clone_of = w.moved[s.clone_of];
            w.moved[i] = w.moved[i + 1] = rewrite_add(&w, s);
            i++;
        }
    }
    rewrite_end(&w);
    mem_free(readers);
}

Tid rewrite_twin(Program *p, Tid of, const char *suffix) {
    Tensor t = p->t[of];
    Tid id =
        prog_tensor(p, arena_printf(&p->arena, "%s.%s", t.name, suffix), ROLE_ACTIVATION, t.format, t.rank, t.dim);
    p->t[id].layer = t.layer;
    return id;
}

Tid rewrite_twin_view(Program *p, Tid view, Tid base) {
    Tensor v = p->t[view], b = p->t[base];
    int64_t row = v.view_bytes / format_row_bytes(v.format, prog_cols(p, view));
    Tid id = prog_tensor(p, arena_printf(&p->arena, "%s.of.%s", v.name, b.name), b.role, b.format, v.rank, v.dim);
    Tensor *t = &p->t[id];
    t->layer = v.layer;
    t->base = base;
    t->view_bytes = row * format_row_bytes(b.format, prog_cols(p, view));
    t->home = b.home;
    return id;
}
