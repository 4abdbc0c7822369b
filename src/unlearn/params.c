/* params.c - streams blocks between planned slots of any plain format and callbacks on fp32 numbers. */
#include "unlearn/params.h"

#include <math.h>
#include <string.h>

#include "obs/sensors.h"
#include "train/stored_update.h"

enum { BLOCK = PARAMS_BLOCK, TILE = STORED_TILE }; /* numbers decoded at once; numbers a thread takes at once */

/* What each tensor was copied in from, by its number, where it is offloaded; NONE: it is at home. Gives: mem_free. */
static Tid *homes_of(const Program *p) {
    Tid *home = MEM_NEW(Tid, p->n_t);
    for (int64_t i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        if (s->op != OP_COPY || (s->queue != QUEUE_COPY_IN && s->queue != QUEUE_DISK_IN)) continue;
        Tid from = s->copy.in.src;
        home[s->copy.out.dst] = home[from] ? home[from] : from;
    }
    return home;
}

static Tid at_home(const Tid *home, Tid t) { return home[t] ? home[t] : t; }

static const AttrUpdate *update_of(const Program *p, const Tid *home, Tid weight, Tid *moment, Tid *master) {
    for (int64_t i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        bool sgd = s->op == OP_SGD;
        if ((!sgd && s->op != OP_ADAMW) || at_home(home, prog_first_out(s)) != weight) continue;
        *moment = sgd ? at_home(home, s->sgd.out.m) : NONE;
        *master = at_home(home, sgd ? s->sgd.out.master : s->adamw.out.master);
        return &s->attr.update;
    }
    CHECK_MSG(false, "%s is trained and never updated", p->t[weight].name);
    return NULL;
}

static Tid tensor_of(const Program *p, const ParamTensor *k, ParamsOf of) {
    switch (of) {
        case PARAMS_THETA: return k->master ? k->master : k->weight;
        case PARAMS_WEIGHT: return k->weight;
        case PARAMS_GRADIENT: return prog_t(p, k->weight)->grad;
        case PARAMS_MOMENT: return k->moment;
    }
    return NONE;
}

void params_init(Params *p, const Job *j) {
    const Program *prog = &j->ring->p;
    Tid *home = homes_of(prog);
    int n = 0;
    for (Tid t = 1; t < prog->n_t; t++) n += prog->t[t].trainable && !prog->t[t].base;
    *p = (Params){.tensor = MEM_NEW(ParamTensor, n), .span = MEM_NEW(WalkSpan, n)};
    for (Tid t = 1; t < prog->n_t; t++) {
        if (!prog->t[t].trainable || prog->t[t].base) continue;
        ParamTensor *k = &p->tensor[p->n_tensors];
        *k = (ParamTensor){.weight = t, .first = p->n, .count = prog_elements(prog, t)};
        const AttrUpdate *a = update_of(prog, home, t, &k->moment, &k->master);
        p->span[p->n_tensors++] =
            (WalkSpan){.first = k->first, .count = k->count, .mult = a->lr_mult, .decay = a->weight_decay};
        p->n += k->count;
        k->format = prog_t(prog, tensor_of(prog, k, PARAMS_THETA))->format;
        k->first_tile = p->n_tiles;
        p->n_tiles += (k->count + TILE - 1) / TILE;
        k->raw = p->raw_bytes;
        p->raw_bytes += MAX2(prog_bytes(prog, tensor_of(prog, k, PARAMS_THETA)),
                             prog_bytes(prog, tensor_of(prog, k, PARAMS_GRADIENT)));
    }
    mem_free(home);
}

void params_free(Params *p) {
    mem_free(p->tensor);
    mem_free(p->span);
    *p = (Params){0};
}

/* ---- blocks ---- */

typedef struct Passing { /* the tensor that is being streamed */
    const Params *p;
    const ParamTensor *k;
    Format format;
    int64_t item;
    bool writes;
    ParamsFn *fn;
    void *context;
    char *piece; /* the staged part of it, ... */
    int64_t at, n; /* ... and its range within the tensor */
} Passing;

static void pass_tile(void *context, int64_t tile, int worker) {
    const Passing *s = context;
    float value[BLOCK];
    int64_t end = MIN2((tile + 1) * TILE, s->n);
    (void)worker;
    for (int64_t from = tile * TILE; from < end; from += BLOCK) {
        int64_t n = MIN2(BLOCK, end - from);
        char *raw = s->piece + from * s->item;
        if (!s->writes) vec_block_decode(value, raw, s->format, n);
        s->fn(s->context, &(ParamsBlock){s->k, s->at + from, n, s->k->first_tile + (s->at + from) / TILE, value, raw,
                                         s->format, s->item});
        if (s->writes) vec_block_encode(raw, value, s->format, n);
    }
}

static void pass_piece(void *context, void *piece, int64_t at, int64_t bytes) {
    Passing *s = context;
    s->piece = piece;
    s->at = at / s->item;
    s->n = bytes / s->item;
    double began = s->p->busy ? sensors_seconds() : 0;
    threads_for(s->p->team, (s->n + TILE - 1) / TILE, pass_tile, s);
    if (s->p->busy) *s->p->busy += sensors_seconds() - began;
}

/* Returns false if the parameter has no such tensor. */
static bool pass_begin(Passing *s, const Params *p, Exec *x, ParamsOf of, int tensor, Tid *t) {
    s->p = p;
    s->k = &p->tensor[tensor];
    *t = tensor_of(x->p, s->k, of);
    s->format = prog_t(x->p, *t ? *t : s->k->weight)->format;
    s->item = format_item_bytes(s->format);
    return *t != NONE;
}

void params_read(const Params *p, Exec *x, ParamsOf of, ParamsFn *fn, void *context) {
    Tid t;
    Passing s = {.fn = fn, .context = context};
    for (int i = 0; i < p->n_tensors; i++)
        if (pass_begin(&s, p, x, of, i, &t)) exec_fetch(x, t, pass_piece, &s);
}

void params_write(const Params *p, Exec *x, ParamsOf of, ParamsFn *fn, void *context) {
    Tid t;
    Passing s = {.writes = true, .fn = fn, .context = context};
    for (int i = 0; i < p->n_tensors; i++)
        if (pass_begin(&s, p, x, of, i, &t)) exec_store(x, t, pass_piece, &s);
}

static void copy_block(void *copy, const ParamsBlock *b) {
    memcpy((char *)copy + b->k->raw + b->at * b->item, b->raw, (size_t)(b->n * b->item));
}

void params_copy(const Params *p, Exec *x, ParamsOf of, char *copy) { params_read(p, x, of, copy_block, copy); }

void params_read_copy(const Params *p, Exec *x, ParamsOf of, int tensor, char *copy, ParamsFn *fn, void *context) {
    Tid t;
    Passing s = {.fn = fn, .context = context};
    if (pass_begin(&s, p, x, of, tensor, &t)) pass_piece(&s, copy + s.k->raw, 0, s.k->count * s.item);
}

/* ---- vectors ---- */

static void get_block(void *to, const ParamsBlock *b) {
    memcpy((float *)to + b->k->first + b->at, b->value, sizeof(float) * (size_t)b->n);
}

void params_get(const Params *p, Exec *x, ParamsOf of, float *to) { params_read(p, x, of, get_block, to); }

typedef struct Shifted {
    const float *from, *along;
    double h;
} Shifted;

static void put_block(void *context, const ParamsBlock *b) {
    const Shifted *s = context;
    const float *from = s->from + b->k->first + b->at, *along = s->along + b->k->first + b->at;
    for (int64_t i = 0; i < b->n; i++) b->value[i] = (float)((double)from[i] + s->h * (double)along[i]);
}

static void put_plain_block(void *from, const ParamsBlock *b) {
    memcpy(b->value, (const float *)from + b->k->first + b->at, sizeof(float) * (size_t)b->n);
}

/* Writes the weight, and its fp32 master if there is one. */
static void put_both(const Params *p, Exec *x, ParamsFn *fn, void *context) {
    bool masters = false;
    for (int i = 0; i < p->n_tensors; i++) masters |= p->tensor[i].master != NONE;
    params_write(p, x, PARAMS_WEIGHT, fn, context);
    if (masters) params_write(p, x, PARAMS_THETA, fn, context);
}

void params_put(const Params *p, Exec *x, const float *from) { put_both(p, x, put_plain_block, (void *)from); }

void params_put_shifted(const Params *p, Exec *x, const float *from, const float *along, double h) {
    put_both(p, x, put_block, &(Shifted){from, along, h});
}

typedef struct Adding {
    const float *change;
    char *copy;      /* of theta before the change */
    double *of_tile; /* sum of the squares of theta's actual change */
} Adding;

/* Rounds the new value here as storing will, to learn what survives of the change. */
static void add_block(void *context, const ParamsBlock *b) {
    const Adding *a = context;
    float before[BLOCK], moved[BLOCK];
    double stored[BLOCK]; /* room for any format */
    Format f = b->k->format;
    const float *change = a->change + b->k->first + b->at;
    vec_block_decode(before, a->copy + b->k->raw + b->at * format_item_bytes(f), f, b->n);
    for (int64_t i = 0; i < b->n; i++) b->value[i] = (float)((double)before[i] + (double)change[i]);
    if (b->format != f) return; /* the weight: its master counts */
    vec_block_encode(stored, b->value, f, b->n);
    vec_block_decode(moved, stored, f, b->n);
    for (int64_t i = 0; i < b->n; i++) moved[i] -= before[i]; /* exact: the numbers are close */
    a->of_tile[b->tile] += vec_block_dot(moved, moved, b->n);
}

double params_add(const Params *p, Exec *x, const float *change, char *copy) {
    Adding a = {.change = change,
                .copy = copy,
                .of_tile = MEM_NEW(double, p->n_tiles)};
    params_copy(p, x, PARAMS_THETA, copy);
    put_both(p, x, add_block, &a);
    double sum = vec_sum(a.of_tile, p->n_tiles);
    mem_free(a.of_tile);
    return sqrt(sum);
}

static void square_block(void *of_tile, const ParamsBlock *b) {
    ((double *)of_tile)[b->tile] += vec_block_dot(b->value, b->value, b->n);
}

double params_gradient_norm(const Params *p, Exec *x) {
    double *of_tile = MEM_NEW(double, p->n_tiles);
    params_read(p, x, PARAMS_GRADIENT, square_block, of_tile);
    double sum = vec_sum(of_tile, p->n_tiles);
    mem_free(of_tile);
    return sqrt(sum);
}
