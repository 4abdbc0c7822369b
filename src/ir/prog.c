/* prog.c - how a program is written down: tensors and steps appended, shapes asked. */
#include "ir/prog.h"

#include <stdio.h>
#include <string.h>

#include "ir/op.h"

void prog_init(Program *p) {
    *p = (Program){.layer = -1, .next_key = 1};
    arena_init(&p->arena, "program");
    p->t = mem_grow(NULL, &p->cap_t, 256, sizeof *p->t);
    p->t[0] = (Tensor){.name = "none", .layer = -1};
    p->n_t = 1;
}

void prog_free(Program *p) {
    mem_free(p->t);
    mem_free(p->s);
    arena_free(&p->arena);
    *p = (Program){0};
}

/* Names are shared text of the original's arena: the copy must not outlive it. */
void prog_copy(Program *to, const Program *from) {
    *to = *from;
    arena_init(&to->arena, "program copy");
    to->t = memcpy(mem_alloc(from->cap_t * (int64_t)sizeof *to->t), from->t, (size_t)from->n_t * sizeof *to->t);
    to->s = mem_alloc(MAX2(from->cap_s, 1) * (int64_t)sizeof *to->s);
    if (from->n_s) memcpy(to->s, from->s, (size_t)from->n_s * sizeof *to->s);
    to->cap_s = MAX2(from->cap_s, 1);
}

int prog_begin_phase(Program *p, const char *name, int64_t repeat) {
    CHECK(p->n_phases < MAX_PHASES && repeat >= 1);
    if (p->model) name = arena_printf(&p->arena, "%s.%s", p->model, name);
    p->phase[p->n_phases] =
        (Phase){.name = arena_strdup(&p->arena, name), .begin = (int)p->n_s, .end = -1, .repeat = repeat};
    p->region = REGION_FORWARD;
    p->part = PART_NONE;
    p->layer = -1;
    prog_keys_of(p, name);
    return p->n_phases++;
}

int prog_load_phase(Program *p, const char *name) {
    int load = prog_begin_phase(p, name, 1);
    CHECK_MSG(load > 0, "a load phase follows the phase that gives its weights their values");
    p->phase[load].stay = MAX_PHASES;
    prog_end_phase(p);
    return load;
}

void prog_end_stay(Program *p, int load) { p->phase[load].stay = p->n_phases - 1; }

/* Keys count within a phase, from its name on: another phase before it does not change what it draws. */
void prog_keys_of(Program *p, const char *phase) {
    p->next_key = 0x811c9dc5u;
    for (const char *c = phase; *c; c++) p->next_key = (p->next_key ^ (unsigned char)*c) * 0x01000193u;
}

void prog_end_phase(Program *p) {
    Phase *ph = &p->phase[p->n_phases - 1];
    CHECK(ph->end < 0);
    ph->end = (int)p->n_s;
    p->layer = -1;
}

int prog_find_phase(const Program *p, const char *name) {
    for (int i = 0; i < p->n_phases; i++)
        if (!strcmp(p->phase[i].name, name)) return i;
    return -1;
}

int prog_phase_of(const Program *p, int step) {
    for (int i = 0; i < p->n_phases; i++)
        if (step >= p->phase[i].begin && (p->phase[i].end < 0 || step < p->phase[i].end)) return i;
    return -1;
}

/* "model.layers.3.name"; by hand, because a search writes a million of them. */
static const char *full_name(Program *p, const char *name) {
    char digit[12];
    int n_digits = 0;
    for (int l = p->layer; l > 0 || (l == 0 && !n_digits); l /= 10) digit[n_digits++] = (char)('0' + l % 10);
    size_t bytes = (p->model ? strlen(p->model) : 0) + strlen(name) + (size_t)n_digits + 10;
    char *text = arena_alloc(&p->arena, (int64_t)bytes), *at = text;
    if (p->model) at = stpcpy(stpcpy(at, p->model), ".");
    if (p->layer >= 0) {
        for (at = stpcpy(at, "layers."); n_digits > 0;) *at++ = digit[--n_digits];
        *at++ = '.';
    }
    stpcpy(at, name);
    return text;
}

Tid prog_tensor(Program *p, const char *name, Role role, Format f, int rank, const int64_t *dim) {
    CHECK(rank >= 1 && rank <= MAX_RANK);
    p->t = mem_grow(p->t, &p->cap_t, p->n_t + 1, sizeof *p->t);
    Tid id = (Tid)p->n_t++;
    Tensor *t = &p->t[id];
    *t = (Tensor){.role = role, .format = f, .rank = rank, .model = p->model, .layer = p->layer, .slot = id};
    t->recorded = t->birth = t->death = -1;
    t->name = full_name(p, name);
    t->home = (Home){.pool = POOL_DEVICE, .stored = f};
    for (int i = 0; i < rank; i++) {
        CHECK_MSG(dim[i] > 0, "tensor %s: dimension %d is %lld", t->name, i, (long long)dim[i]);
        t->dim[i] = dim[i];
    }
    CHECK_MSG(prog_elements(p, id) > 0, "tensor %s is too large to be counted", t->name);
    return id;
}

Tid prog_view(Program *p, const char *name, Tid base, int64_t first_row, int64_t rows) {
    Tensor b = *prog_t(p, base);
    CHECK(b.base == NONE && format_table[b.format].plain && first_row >= 0 && rows > 0 && first_row + rows <= b.dim[0]);
    int64_t dim[MAX_RANK] = {rows, b.dim[1], b.dim[2], b.dim[3]}, row_bytes = format_item_bytes(b.format);
    for (int i = 1; i < b.rank; i++) row_bytes *= b.dim[i];
    Tid id = prog_tensor(p, name, b.role, b.format, b.rank, dim);
    Tensor *t = prog_t(p, id);
    t->base = base;
    t->view_bytes = first_row * row_bytes;
    t->home = b.home;
    t->needs_grad = b.needs_grad;
    return id;
}

Tid prog_like(Program *p, const char *name, Tid of) {
    Tensor t = *prog_t(p, of);
    return prog_tensor(p, name, ROLE_ACTIVATION, t.format, t.rank, t.dim);
}

Tid prog_table(Program *p, const char *name, const float *values, int64_t n) {
    Tid t = prog_tensor(p, name, ROLE_TABLE, FMT_F32, 1, DIMS(n));
    p->t[t].table = memcpy(ARENA_NEW(&p->arena, float, n), values, (size_t)n * sizeof *values);
    return t;
}

Tid prog_find(const Program *p, const char *name) {
    for (Tid i = 1; i < p->n_t; i++)
        if (!strcmp(p->t[i].name, name)) return i;
    return NONE;
}

int64_t prog_elements(const Program *p, Tid id) {
    int64_t n = 1;
    for (int i = 0; i < p->t[id].rank; i++) n = mem_mul(n, p->t[id].dim[i]);
    return n;
}

int64_t prog_cols(const Program *p, Tid id) { return p->t[id].dim[p->t[id].rank - 1]; }

int64_t prog_rows(const Program *p, Tid id) { return prog_elements(p, id) / prog_cols(p, id); }

int64_t prog_heap_bytes(const Program *p) {
    enum { PLAYED = 256 }; /* a step's arguments, as they are played */
    return p->cap_t * (int64_t)sizeof *p->t + p->cap_s * (int64_t)sizeof *p->s + p->n_s * PLAYED;
}

int64_t prog_bytes(const Program *p, Tid id) {
    return format_bytes(p->t[id].format, prog_rows(p, id), prog_cols(p, id));
}

bool prog_is_state(const Program *p, Tid id) { return p->t[id].role >= ROLE_WEIGHT; }

const char *prog_region_name(Region r) {
    static const char *const names[REGION_COUNT] = {"forward", "backward", "recompute", "update", "move"};
    return names[r];
}

bool prog_is_written(const Program *p, Tid t) {
    int phase = p->n_phases - 1, begin = phase >= 0 ? p->phase[phase].begin : 0;
    return p->t[prog_base(p, t)].recorded >= begin;
}

static bool is_fresh(const Program *p, const Step *s) {
    bool writes = false;
    for (int i = 0; i < MAX_OUT; i++) {
        if (!s->out[i] || p->t[prog_base(p, s->out[i])].role != ROLE_GRADIENT) continue;
        if (prog_is_written(p, s->out[i])) return false;
        writes = true;
    }
    return writes && p->n_phases > 0 && p->phase[p->n_phases - 1].repeat == 1;
}

int prog_emit(Program *p, Step s) {
    p->s = mem_grow(p->s, &p->cap_s, p->n_s + 1, sizeof *p->s);
    s.region = p->region;
    s.layer = p->layer;
    s.part = (uint8_t)p->part;
    s.clone_of = -1;
    s.key = p->next_key++;
    s.fresh = is_fresh(p, &s);
    s.workspace = NONE;
    if (!(op_row(s.op)->flags & OPF_MOVES)) s.queue = p->queue;
    for (int q = 0; q < QUEUE_COUNT; q++) s.wait[q] = -1;
    const char *wrong = op_wrong(p, &s);
    CHECK_MSG(!wrong, "step %lld (%s, layer %d): %s", (long long)p->n_s, op_name(s.op), p->layer, wrong);
    /* a gradient flows through what is computed from anything that needs one */
    bool needs = false;
    for (int i = 0; i < MAX_IN; i++) needs |= s.in[i] && p->t[s.in[i]].needs_grad;
    if (needs && op_row(s.op)->grad)
        for (int i = 0; i < MAX_OUT; i++)
            if (s.out[i]) p->t[s.out[i]].needs_grad = true;
    for (int i = 0; i < MAX_OUT; i++)
        if (s.out[i]) p->t[prog_base(p, s.out[i])].recorded = (int)p->n_s;
    p->s[p->n_s] = s;
    return (int)p->n_s++;
}

void prog_clear_operands(Step *s) {
    for (int i = 0; i < MAX_IN; i++) s->in[i] = NONE;
    for (int i = 0; i < MAX_OUT; i++) s->out[i] = NONE;
}

static void list_operand(Str *out, const Program *p, const OpPlace *at, Tid id) {
    if (!id) return;
    const Tensor *t = prog_t(p, id);
    str_addf(out, " %s=%s:%s(", at->name, t->name, format_name(t->format));
    for (int i = 0; i < t->rank; i++) str_addf(out, i ? ",%lld" : "%lld", (long long)t->dim[i]);
    str_addf(out, ")@%lld", (long long)t->offset);
}

void prog_listing(Str *out, const Program *p) {
    int phase = -1;
    for (int i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        const OpPlaces *at = op_places(s->op);
        if (prog_phase_of(p, i) != phase) {
            phase = prog_phase_of(p, i);
            if (phase >= 0) str_addf(out, "phase %s x %lld\n", p->phase[phase].name, (long long)p->phase[phase].repeat);
        }
        str_addf(out, "%6d %-9s %-15s", i, prog_region_name(s->region), at->name);
        for (int k = 0; k < at->n_out; k++) list_operand(out, p, &at->out[k], s->out[k]);
        str_add(out, " <-");
        for (int k = 0; k < at->n_in; k++) list_operand(out, p, &at->in[k], s->in[k]);
        if (s->workspace) str_addf(out, " scratch %lld", (long long)prog_bytes(p, s->workspace));
        if (s->clone_of >= 0) str_addf(out, " repeats %d", s->clone_of);
        for (int q = 0; q < QUEUE_COUNT; q++)
            if (s->wait[q] >= 0) str_addf(out, " after %d", s->wait[q]);
        str_add(out, "\n");
    }
}
