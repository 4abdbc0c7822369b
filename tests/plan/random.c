/* random.c - draws programs over the ops whose rows ask little of shapes, so that every structure can occur. */
#include "tests/plan/random.h"

#include "base/rng.h"

enum { MAX_POOL = 1200 };

typedef struct Draw {
    Program *p;
    uint64_t key, at;
    Tid readable[MAX_POOL]; /* whatever a step may read */
    int n_readable;
    Tid state[16], weight[8], gradient[8];
    int n_state, n_weight, n_gradient;
    Tid promised[MAX_POOL]; /* read already, still to be written: carried around the ring */
    int n_promised, n_kept; /* the first n_kept were read by an earlier step: this one may write them */
} Draw;

static int draw(Draw *d, int n) {
    return (int)(rng_u32(d->key, d->at++) % (uint32_t)n);
}
static bool chance(Draw *d, int percent) {
    return draw(d, 100) < percent;
}

static Tid tensor(Draw *d, const char *name, Role role) {
    static const int64_t rows[] = {1, 2, 2, 4, 4, 4, 8, 16}, cols[] = {1, 3, 4, 4, 8};
    Tid t = prog_tensor(d->p, arena_printf(&d->p->arena, "%s%lld", name, (long long)d->p->n_t), role, FMT_F32, 2,
                        DIMS(rows[draw(d, COUNT_OF(rows))], cols[draw(d, COUNT_OF(cols))]));
    if (chance(d, 10)) d->p->t[t].home.pool = POOL_HOST;
    return t;
}

static void add_readable(Draw *d, Tid t) {
    if (d->n_readable < MAX_POOL) d->readable[d->n_readable++] = t;
}

static Tid some(Draw *d) { /* mostly something recent */
    if (chance(d, 4) && d->n_promised < MAX_POOL) {
        Tid t = tensor(d, "carried", ROLE_ACTIVATION);
        d->promised[d->n_promised++] = t;
        return t;
    }
    int back = chance(d, 75) ? MIN2(d->n_readable, 6) : d->n_readable;
    return d->readable[d->n_readable - 1 - draw(d, back)];
}

static Tid some_activation(Draw *d) {
    for (int tries = 0; tries < 20; tries++) {
        Tid t = some(d);
        if (d->p->t[t].role == ROLE_ACTIVATION) return t;
    }
    return some(d);
}

static Tid fresh(Draw *d) { /* an output: new, or what was promised */
    if (d->n_kept && chance(d, 20)) {
        Tid t = d->promised[--d->n_kept];
        d->promised[d->n_kept] = d->promised[--d->n_promised];
        return t;
    }
    return tensor(d, "x", ROLE_ACTIVATION);
}

static Tid fresh_like(Draw *d, Tid t) {
    return chance(d, 80) ? prog_like(d->p, arena_printf(&d->p->arena, "l%lld", (long long)d->p->n_t), t)
                         : fresh(d);
}

static Tid same_shape_as(Draw *d, Tid a) {
    for (int tries = 0; tries < 12; tries++) {
        Tid b = some(d);
        if (prog_rows(d->p, b) == prog_rows(d->p, a) && prog_cols(d->p, b) == prog_cols(d->p, a)) return b;
    }
    return a;
}

static void emit(Draw *d, Step s) {
    Program *p = d->p;
    bool moves = op_row(s.op)->flags & OPF_MOVES;
    p->queue = !moves && chance(d, 12) ? (Queue)(1 + draw(d, QUEUE_COUNT - 1)) : QUEUE_COMPUTE;
    int i = prog_emit(p, s);
    p->queue = QUEUE_COMPUTE;
    d->n_kept = d->n_promised;
    for (int k = 0; k < MAX_OUT; k++)
        if (s.out[k] && p->t[s.out[k]].role == ROLE_ACTIVATION) add_readable(d, s.out[k]);
    if (chance(d, 30)) {
        Tid scratch = tensor(d, "scratch", ROLE_SCRATCH);
        p->s[i].workspace = scratch;
    }
}

static void emit_parts(Draw *d) { /* two steps write the halves of one tensor, others read it and its halves */
    Program *p = d->p;
    Tid base = prog_tensor(p, arena_printf(&p->arena, "base%lld", (long long)p->n_t), ROLE_ACTIVATION, FMT_F32, 2,
                           DIMS(2 + draw(d, 4), 4));
    int64_t rows = p->t[base].dim[0], cut = 1 + draw(d, (int)rows - 1);
    Tid low = prog_view(p, arena_printf(&p->arena, "low%lld", (long long)p->n_t), base, 0, cut);
    Tid high = prog_view(p, arena_printf(&p->arena, "high%lld", (long long)p->n_t), base, cut, rows - cut);
    emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d)}, .out = {low}}});
    if (chance(d, 50)) emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d)}, .out = {fresh(d)}}});
    emit(d, (Step){.op = OP_TOKEN_SUM_GRAD, .token_sum_grad = {.in = {some(d), low}, .out = {high}}});
    add_readable(d, base);
}

static void emit_copy(Draw *d) {
    Tid src = some(d), dst = prog_like(d->p, arena_printf(&d->p->arena, "moved%lld", (long long)d->p->n_t), src);
    if (d->p->t[src].base) return;
    if (chance(d, 40)) d->p->t[dst].home.pool = POOL_HOST;
    emit(d,
         (Step){
             .op = OP_COPY, .copy = {.in = {src}, .out = {dst}}, .queue = (Queue)(1 + draw(d, QUEUE_COUNT - 1))});
}

static void emit_shared(Draw *d) {
    Tid a = some_activation(d);
    switch (draw(d, 4)) {
        case 0:
            emit(d, (Step){.op = OP_ADD,
                           .add = {.in = {a, same_shape_as(d, a)}, .out = {prog_like(d->p, "sum", a)}}});
            break;
        case 1:
            emit(d, (Step){.op = OP_LINEAR_DX,
                           .linear_dx = {.in = {some(d), some(d), a}, .out = {fresh_like(d, a)}}});
            break;
        case 2:
            emit(d, (Step){.op = OP_SWIGLU_GRAD, .swiglu_grad = {.in = {some(d), a}, .out = {fresh_like(d, a)}}});
            break;
        default:
            emit(d,
                 (Step){.op = OP_LORA_DX,
                        .lora_dx = {.in = {.du = some(d), .a = some(d), .so_far = a}, .out = {fresh_like(d, a)}}});
            break;
    }
}

static void emit_state(Draw *d) {
    Tid g = d->gradient[draw(d, d->n_gradient)], w = d->weight[draw(d, d->n_weight)],
        s = d->state[draw(d, d->n_state)];
    switch (draw(d, 4)) {
        case 0:
            emit(d, (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {some(d), some(d)}, .out = {g}}});
            break;
        case 1:
            emit(d, (Step){.op = OP_SUM_SQUARES, .sum_squares = {.in = {g}, .out = {s}}});
            break;
        case 2:
            emit(d, (Step){.op = OP_SGD,
                           .sgd = {.in = {.weight = w, .g = g, .dials = some(d), .verdict = some(d), .clock = s},
                                   .out = {w}}});
            break;
        default:
            emit(d, (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {some(d), w}, .out = {s}}});
            break;
    }
}

static void emit_any(Draw *d) {
    int kind = draw(d, 100);
    if (kind < 15)
        emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d)}, .out = {fresh(d)}}});
    else if (kind < 25)
        emit(d, (Step){.op = OP_TOKEN_SUM_GRAD, .token_sum_grad = {.in = {some(d), some(d)}, .out = {fresh(d)}}});
    else if (kind < 35)
        emit(d, (Step){.op = OP_RMSNORM, .rmsnorm = {.in = {some(d), some(d)}, .out = {fresh(d), fresh(d)}}});
    else if (kind < 60)
        emit_shared(d);
    else if (kind < 75)
        emit_state(d);
    else if (kind < 87)
        emit_copy(d);
    else if (kind < 93)
        emit_parts(d);
    else {
        Tid t = d->readable[draw(d, d->n_readable)];
        if (!d->p->t[t].base && d->p->t[t].role == ROLE_ACTIVATION) add_readable(d, op_stop_gradient(d->p, t));
    }
}

static void make_state(Draw *d) {
    static const Role always[] = {ROLE_STATISTIC, ROLE_MOMENT, ROLE_ADAPTER, ROLE_MASTER};
    d->n_weight = 1 + draw(d, 3);
    d->n_gradient = 1 + draw(d, 3);
    d->n_state = 2 + draw(d, 4);
    for (int i = 0; i < d->n_weight; i++) add_readable(d, d->weight[i] = tensor(d, "weight", ROLE_WEIGHT));
    for (int i = 0; i < d->n_gradient; i++)
        d->gradient[i] = tensor(d, "gradient", chance(d, 70) ? ROLE_GRADIENT : ROLE_CACHE);
    for (int i = 0; i < d->n_state; i++) d->state[i] = tensor(d, "state", always[draw(d, COUNT_OF(always))]);
    add_readable(d, tensor(d, "table", ROLE_TABLE));
    add_readable(d, tensor(d, "dial", ROLE_DIAL));
}

static void keep_promises(Draw *d) { /* whatever was read has a writer somewhere on the ring */
    Tid last = d->readable[d->n_readable - 1];
    for (int i = 0; i < d->n_gradient; i++)
        emit(d, (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {last, last}, .out = {d->gradient[i]}}});
    while (d->n_promised) {
        Tid t = d->promised[--d->n_promised];
        emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {last}, .out = {t}}});
    }
}

void random_record(Program *p, uint64_t seed) {
    Draw *d = MEM_NEW(Draw, 1);
    *d = (Draw){.p = p, .key = rng_fold(20, seed)};
    prog_init(p);
    make_state(d);
    int phases = 1 + draw(d, 4);
    for (int ph = 0; ph < phases; ph++) {
        prog_begin_phase(p, arena_printf(&p->arena, "phase%d", ph), 1 + draw(d, 3));
        for (int i = draw(d, 3); i > 0; i--) add_readable(d, tensor(d, "input", ROLE_INPUT));
        for (int i = 3 + draw(d, 20); i > 0; i--) emit_any(d);
        if (ph == phases - 1) keep_promises(d);
        prog_end_phase(p);
    }
    mem_free(d);
}

Machine random_machine(void) {
    Machine m = machine_generic_cpu(1);
    m.align_bytes = 16;
    m.page_bytes = 64;
    return m;
}
