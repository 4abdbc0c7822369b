/* params.c - between planned slots of any plain format and one long vector, a piece at a time. */
#include "unlearn/params.h"

#include <math.h>

enum { PIECE = 1 << 14 };

static const AttrUpdate *update_of(const Program *p, Tid weight, Tid *moment, Tid *master) {
    for (int64_t i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        if (s->op == OP_SGD && s->sgd.out.weight == weight) {
            *moment = s->sgd.out.m;
            *master = s->sgd.out.master;
            return &s->attr.update;
        }
        if (s->op == OP_ADAMW && s->adamw.out.weight == weight) {
            *moment = NONE;
            *master = s->adamw.out.master;
            return &s->attr.update;
        }
    }
    CHECK_MSG(false, "%s is trained and never updated", p->t[weight].name);
    return NULL;
}

void params_init(Params *p, const Job *j) {
    const Program *prog = &j->ring->p;
    int n = 0;
    for (Tid t = 1; t < prog->n_t; t++) n += prog->t[t].trainable && !prog->t[t].base;
    *p = (Params){.tensor = MEM_NEW(ParamTensor, n), .span = MEM_NEW(WalkSpan, n)};
    for (Tid t = 1; t < prog->n_t; t++) {
        if (!prog->t[t].trainable || prog->t[t].base) continue;
        ParamTensor *k = &p->tensor[p->n_tensors];
        *k = (ParamTensor){.weight = t, .first = p->n, .count = prog_elements(prog, t)};
        const AttrUpdate *a = update_of(prog, t, &k->moment, &k->master);
        p->span[p->n_tensors++] =
            (WalkSpan){.first = k->first, .count = k->count, .mult = a->lr_mult, .decay = a->weight_decay};
        p->n += k->count;
    }
}

void params_free(Params *p) {
    mem_free(p->tensor);
    mem_free(p->span);
    *p = (Params){0};
}

static void get_tensor(Exec *x, Tid t, float *to, int64_t n) {
    Format f = prog_t(x->p, t)->format;
    char raw[PIECE * 4];
    if (f == FMT_F32) { /* as it is, in one copy */
        exec_get(x, t, to, 0, n * 4);
        return;
    }
    int64_t item = format_item_bytes(f);
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = MIN2(PIECE, n - at);
        exec_get(x, t, raw, at * item, m * item);
        format_table[f].decode(to + at, raw, 1, m, 0, 1);
    }
}

static void put_tensor(Exec *x, Tid t, const float *from, const float *along, double h, int64_t n) {
    Format f = prog_t(x->p, t)->format;
    char raw[PIECE * 4];
    float sum[PIECE];
    if (f == FMT_F32 && !along) {
        exec_put(x, t, from, 0, n * 4);
        return;
    }
    int64_t item = format_item_bytes(f);
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = MIN2(PIECE, n - at);
        for (int64_t i = 0; i < m; i++)
            sum[i] = along ? (float)((double)from[at + i] + h * (double)along[at + i]) : from[at + i];
        format_table[f].encode(raw, sum, 1, m, 0, 1);
        exec_put(x, t, raw, at * item, m * item);
    }
}

void params_get(const Params *p, Exec *x, float *to) {
    for (int i = 0; i < p->n_tensors; i++) {
        const ParamTensor *k = &p->tensor[i];
        get_tensor(x, k->master ? k->master : k->weight, to + k->first, k->count);
    }
}

void params_put_shifted(const Params *p, Exec *x, const float *from, const float *along, double h) {
    for (int i = 0; i < p->n_tensors; i++) {
        const ParamTensor *k = &p->tensor[i];
        const float *direction = along ? along + k->first : NULL;
        put_tensor(x, k->weight, from + k->first, direction, h, k->count);
        if (k->master) put_tensor(x, k->master, from + k->first, direction, h, k->count);
    }
}

void params_put(const Params *p, Exec *x, const float *from) { params_put_shifted(p, x, from, NULL, 0); }

void params_get_gradient(const Params *p, Exec *x, float *to) {
    for (int i = 0; i < p->n_tensors; i++)
        get_tensor(x, prog_t(x->p, p->tensor[i].weight)->grad, to + p->tensor[i].first, p->tensor[i].count);
}

void params_get_moment(const Params *p, Exec *x, float *to) {
    for (int i = 0; i < p->n_tensors; i++)
        if (p->tensor[i].moment) get_tensor(x, p->tensor[i].moment, to + p->tensor[i].first, p->tensor[i].count);
}

static double square_of_piece(Exec *x, Tid t, int64_t at, int64_t n) {
    Format f = prog_t(x->p, t)->format;
    char raw[PIECE * 4];
    float value[PIECE];
    double sum = 0;
    exec_get(x, t, raw, at * format_item_bytes(f), n * format_item_bytes(f));
    format_table[f].decode(value, raw, 1, n, 0, 1);
    for (int64_t i = 0; i < n; i++) sum += (double)value[i] * (double)value[i];
    return sum;
}

double params_gradient_norm(const Params *p, Exec *x) {
    double sum = 0;
    for (int i = 0; i < p->n_tensors; i++)
        for (int64_t at = 0; at < p->tensor[i].count; at += PIECE)
            sum += square_of_piece(x, prog_t(x->p, p->tensor[i].weight)->grad, at,
                                   MIN2(PIECE, p->tensor[i].count - at));
    return sqrt(sum);
}
