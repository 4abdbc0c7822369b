/* random_layers.c - drawn programs in the shape that passes look for: layers forward and backward, a head between
 * them, weights that live elsewhere, state that changes in the middle. What is read where is drawn. */
#include "base/rng.h"
#include "tests/plan/random.h"

enum { POOL = 400, ROWS = 8, COLS = 4, MAX_WEIGHTS = 4 };

typedef struct Layers {
    Program *p;
    uint64_t key, at;
    int layers;
    Tid made[POOL]; /* activations that may be read: of this pass through the layers */
    int n_made, layer_begin[RANDOM_LAYERS], layer_end[RANDOM_LAYERS];
    Tid trained[MAX_WEIGHTS], frozen[MAX_WEIGHTS], gradient[MAX_WEIGHTS], state[MAX_WEIGHTS];
    Tid input, labels, carried;
} Layers;

static int draw(Layers *d, int n) {
    return (int)(rng_u32(d->key, d->at++) % (uint32_t)n);
}
static bool chance(Layers *d, int percent) {
    return draw(d, 100) < percent;
}
static Tid one_of(Layers *d, const Tid *of) {
    return of[draw(d, MAX_WEIGHTS)];
}

static Tid tensor(Layers *d, const char *name, Role role, int64_t rows) {
    Program *p = d->p;
    return prog_tensor(p, arena_printf(&p->arena, "%s%lld", name, (long long)p->n_t), role, FMT_F32, 2,
                       DIMS(rows, COLS));
}

static Tid activation(Layers *d) {
    Tid t = tensor(d, "x", ROLE_ACTIVATION, chance(d, 85) ? ROWS : 2 * ROWS);
    if (chance(d, 4)) d->p->t[t].home.pool = POOL_HOST;
    return t;
}

static Tid keep(Layers *d, Tid t) {
    if (d->n_made < POOL) d->made[d->n_made++] = t;
    return t;
}

/* Something made in [from, n_made): mostly recent; sometimes a view of it. */
static Tid some(Layers *d, int from) {
    int n = d->n_made - from, back = chance(d, 70) ? MIN2(n, 4) : n;
    Tid t = d->made[d->n_made - 1 - draw(d, back)];
    if (d->p->t[t].base || !chance(d, 8)) return t;
    int64_t spare = d->p->t[t].dim[0] - 4; /* four rows: a whole sequence */
    return prog_view(d->p, arena_printf(&d->p->arena, "view%lld", (long long)d->p->n_t), t, draw(d, (int)spare + 1), 4);
}

static Tid some_weight(Layers *d) {
    Tid w = chance(d, 50) ? one_of(d, d->frozen) : chance(d, 80) ? one_of(d, d->trained) : one_of(d, d->state);
    if (!chance(d, 15)) return w;
    return prog_view(d->p, arena_printf(&d->p->arena, "rows%lld", (long long)d->p->n_t), w, 2, 4);
}

static void emit(Layers *d, Step s) {
    bool moves = op_row(s.op)->flags & OPF_MOVES;
    if (!moves && chance(d, 6)) d->p->queue = (Queue)(1 + draw(d, QUEUE_COUNT - 1));
    prog_emit(d->p, s);
    d->p->queue = QUEUE_COMPUTE;
    for (int k = 0; k < MAX_OUT; k++)
        if (s.out[k] && d->p->t[s.out[k]].role == ROLE_ACTIVATION) keep(d, s.out[k]);
}

static void emit_state(Layers *d, int from) { /* another version of something that others read */
    Tid s = chance(d, 60) ? one_of(d, d->gradient) : one_of(d, d->state);
    emit(d, (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {some(d, from), some(d, from)}, .out = {s}}});
}

static void emit_attention(Layers *d, int from) {
    AttrHeads heads = {.heads = 2, .kv_heads = 1, .head_dim = 1, .seq = 4, .scale = 1};
    bool attends = chance(d, 50);
    Tid qkv = some(d, from), other = some_weight(d), wk = attends ? NONE : one_of(d, d->trained);
    Tid first = activation(d), second = activation(d);
    if (attends)
        emit(d,
             (Step){.op = OP_ATTEND, .attend = {.in = {qkv, other}, .out = {first, second}}, .attr.heads = heads});
    else
        emit(d, (Step){.op = OP_HEAD_NORM,
                       .head_norm = {.in = {qkv, other, wk}, .out = {first, second}},
                       .attr.heads = heads});
}

/* One step of a layer; activations come from [from, now). */
static void emit_any(Layers *d, int from) {
    int kind = draw(d, 100);
    if (kind < 15)
        emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d, from)}, .out = {activation(d)}}});
    else if (kind < 30)
        emit(d, (Step){.op = OP_RMSNORM,
                       .rmsnorm = {.in = {some(d, from), some_weight(d)}, .out = {activation(d), activation(d)}}});
    else if (kind < 45)
        emit(d,
             (Step){.op = OP_LINEAR_DX,
                    .linear_dx = {.in = {some(d, from), some_weight(d), some(d, from)}, .out = {activation(d)}}});
    else if (kind < 60)
        emit(d, (Step){.op = OP_LORA_DX,
                       .lora_dx = {.in = {.du = some(d, from), .a = some_weight(d), .so_far = some(d, from)},
                                   .out = {activation(d)}}});
    else if (kind < 68)
        emit(d, (Step){.op = OP_TOKEN_SUM_GRAD,
                       .token_sum_grad = {.in = {some(d, from), chance(d, 30) ? d->input : some(d, from)},
                                          .out = {activation(d)}}});
    else if (kind < 76) {
        Tid a = some(d, from), sum = prog_like(d->p, arena_printf(&d->p->arena, "sum%lld", (long long)d->p->n_t), a);
        emit(d, (Step){.op = OP_ADD, .add = {.in = {a, a}, .out = {sum}}});
        if (chance(d, 60)) /* as in a residual stream */
            emit(d, (Step){.op = OP_RMSNORM,
                           .rmsnorm = {.in = {sum, some_weight(d)}, .out = {activation(d), activation(d)}}});
    } else if (kind < 84)
        emit_attention(d, from);
    else if (kind < 92)
        emit_state(d, from);
    else {
        Tid src = some(d, from),
            dst = prog_like(d->p, arena_printf(&d->p->arena, "moved%lld", (long long)d->p->n_t), src);
        if (!d->p->t[src].base)
            emit(d, (Step){.op = OP_COPY,
                           .copy = {.in = {src}, .out = {dst}},
                           .queue = (Queue)(1 + draw(d, QUEUE_COUNT - 1))});
    }
}

static void record_forward(Layers *d, bool carries) {
    d->n_made = 0;
    d->p->region = REGION_FORWARD;
    emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {d->input}, .out = {activation(d)}}});
    if (carries)
        emit(d, (Step){.op = OP_TOKEN_SUM_GRAD,
                       .token_sum_grad = {.in = {d->carried, d->input}, .out = {activation(d)}}});
    for (int l = 0; l < d->layers; l++) {
        d->p->layer = l;
        d->layer_begin[l] = d->n_made - 1;
        for (int n = 3 + draw(d, 7), i = n; i > 0; i--) {
            d->p->part = i > n / 2 ? PART_ATTENTION : PART_FFN;
            emit_any(d, chance(d, 95) ? d->layer_begin[l] : 0);
        }
        if (carries && l == d->layers - 1 && chance(d, 60)) {
            emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d, 0)}, .out = {d->carried}}});
            carries = false;
        }
        d->layer_end[l] = d->n_made;
    }
    d->p->layer = -1;
    d->p->part = PART_NONE;
    if (carries) emit(d, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d, 0)}, .out = {d->carried}}});
}

/* The head and its gradient; d(logp) may depend on the head, or on state that changed: then they stay apart. */
static void record_head(Layers *d) {
    Program *p = d->p;
    Tid x = activation(d), w = d->trained[0], dw = chance(d, 70) ? d->gradient[0] : NONE;
    Tid logp = tensor(d, "logp", ROLE_ACTIVATION, ROWS), lse = tensor(d, "lse", ROLE_ACTIVATION, ROWS);
    prog_emit(p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {some(d, 0)}, .out = {x}}});
    prog_emit(p, (Step){.op = OP_HEAD_LOGP,
                        .head_logp = {.in = {x, w, d->labels}, .out = {logp, lse}},
                        .attr.head = {128}});
    for (int i = draw(d, 3); i > 0; i--) emit_any(d, 0);
    Tid from = chance(d, 70) ? d->input : chance(d, 50) ? logp : one_of(d, d->state), dlogp = activation(d);
    prog_emit(p, (Step){.op = OP_TOKEN_SUM_GRAD,
                        .token_sum_grad = {.in = {from, chance(d, 30) ? some(d, 0) : d->input}, .out = {dlogp}}});
    p->region = REGION_BACKWARD;
    Tid dx = activation(d);
    prog_emit(p, (Step){.op = OP_HEAD_LOGP_GRAD,
                        .head_logp_grad = {.in = {.x = x,
                                                  .w = w,
                                                  .labels = d->labels,
                                                  .lse = lse,
                                                  .dlogp = dlogp,
                                                  .beta = p->beta,
                                                  .clock = p->clock},
                                           .out = {dx, dw}},
                        .attr.head = {128}});
    keep(d, logp);
    keep(d, dx);
}

static void record_backward(Layers *d) {
    for (int l = d->layers - 1; l >= 0; l--) {
        d->p->layer = l;
        for (int n = 2 + draw(d, 5), i = n; i > 0; i--) {
            d->p->part = i > n / 2 ? PART_FFN : PART_ATTENTION;
            Tid own = d->made[d->layer_begin[l] + draw(d, d->layer_end[l] - d->layer_begin[l])];
            int recent = MAX2(d->n_made - 3, 0);
            if (chance(d, 40))
                emit(d, (Step){.op = OP_SWIGLU_GRAD,
                               .swiglu_grad = {.in = {own, some(d, recent)}, .out = {activation(d)}}});
            else if (chance(d, 50))
                emit(d, (Step){.op = OP_LINEAR_DW,
                               .linear_dw = {.in = {own, some(d, recent)}, .out = {one_of(d, d->gradient)}}});
            else
                emit_any(d, chance(d, 80) ? recent : 0);
        }
    }
    d->p->layer = -1;
    d->p->part = PART_NONE;
}

static void record_update(Layers *d) {
    d->p->region = REGION_UPDATE;
    for (int i = 0; i < MAX_WEIGHTS; i++) {
        Tid w = d->trained[i], g = d->gradient[i];
        prog_emit(d->p, (Step){.op = OP_SUM_SQUARES, .sum_squares = {.in = {g}, .out = {one_of(d, d->state)}}});
        Tid s = one_of(d, d->state);
        prog_emit(
            d->p,
            (Step){.op = OP_SGD,
                   .sgd = {.in = {.weight = w, .g = g, .dials = d->p->beta, .verdict = d->p->clock, .clock = s},
                           .out = {w}}});
    }
}

static void make_state(Layers *d) {
    static const Home homes[] = {
        {POOL_DEVICE, FMT_F32, 0}, {POOL_DEVICE, FMT_INT8, 0}, {POOL_HOST, FMT_F32, 0}, {POOL_PINNED, FMT_BF16, 0},
        {POOL_DISK, FMT_F32, 0}};
    static const Role always[] = {ROLE_STATISTIC, ROLE_ADAPTER, ROLE_STATISTIC, ROLE_MOMENT};
    Program *p = d->p;
    p->beta = tensor(d, "beta", ROLE_DIAL, 1);
    p->clock = tensor(d, "clock", ROLE_DIAL, 1);
    d->input = tensor(d, "input", ROLE_INPUT, ROWS);
    d->labels = tensor(d, "labels", ROLE_INPUT, ROWS);
    d->carried = tensor(d, "carried", ROLE_ACTIVATION, ROWS);
    for (int i = 0; i < MAX_WEIGHTS; i++) {
        d->trained[i] = tensor(d, "trained", ROLE_WEIGHT, ROWS);
        d->frozen[i] = tensor(d, "frozen", ROLE_WEIGHT, ROWS);
        p->t[d->frozen[i]].home = homes[draw(d, COUNT_OF(homes))];
        d->gradient[i] = tensor(d, "gradient", ROLE_GRADIENT, ROWS);
        d->state[i] = tensor(d, "state", always[i], ROWS);
    }
}

/* What waits in pinned memory is copied in for the phases that follow, as a whole. */
static void load_frozen(Layers *d) {
    int load = prog_load_phase(d->p, "load");
    for (int i = 0; i < MAX_WEIGHTS; i++) {
        Home *home = &d->p->t[d->frozen[i]].home;
        if (home->pool == POOL_PINNED) home->load = load;
    }
}

int random_record_layers(Program *p, uint64_t seed) {
    Layers *d = MEM_NEW(Layers, 1);
    *d = (Layers){.p = p, .key = rng_fold(21, seed)};
    prog_init(p);
    make_state(d);
    d->layers = 1 + draw(d, RANDOM_LAYERS);
    prog_begin_phase(p, "micro", 1 + draw(d, 3));
    record_forward(d, chance(d, 30));
    record_head(d);
    record_backward(d);
    for (int i = 0; i < MAX_WEIGHTS; i++) /* every gradient has a writer */
        emit(d,
             (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {some(d, 0), some(d, 0)}, .out = {d->gradient[i]}}});
    prog_end_phase(p);
    prog_begin_phase(p, "update", 1);
    record_update(d);
    prog_end_phase(p);
    if (chance(d, 40)) {
        if (chance(d, 50)) load_frozen(d);
        prog_begin_phase(p, "evaluate", 1 + draw(d, 2));
        record_forward(d, false);
        prog_emit(p,
                  (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {some(d, 0), some(d, 0)}, .out = {d->state[0]}}});
        prog_end_phase(p);
    }
    int layers = d->layers;
    mem_free(d);
    return layers;
}
