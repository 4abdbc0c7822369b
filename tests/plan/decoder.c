/* decoder.c - the ring of a decoder's training as models write it, with every weight trained or adapters beside
 * it. */
#include "tests/plan/decoder.h"

const Decoder decoder_tiny = {.layers = 3,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_dim = 8,
                              .width = 16,
                              .hidden = 24,
                              .vocab = 40,
                              .tokens = 8,
                              .seq = 4,
                              .chunk = 128,
                              .accumulate = 2,
                              .home = {POOL_DEVICE, FMT_BF16, 0}};
const Decoder decoder_7b = {.layers = 28,
                            .heads = 28,
                            .kv_heads = 4,
                            .head_dim = 128,
                            .width = 3584,
                            .hidden = 18944,
                            .vocab = 152064,
                            .tokens = 1536,
                            .seq = 1536,
                            .chunk = 512,
                            .rank = 128,
                            .accumulate = 4,
                            .home = {POOL_DEVICE, FMT_BF16, 0}};

enum { MAX_LAYERS = 64, MAX_TRAINED = 1024 };

typedef struct Product {
    Tid w, bias, a, b;
    AttrLora lora;
} Product;

typedef struct Layer {
    Tid norm1, norm2, norm_q, norm_k, norm_o;
    Product qkv, o, gate_up, down;
    Product index, gate; /* of a sparse block */
} Layer;

typedef struct Recorder {
    Program *p;
    const Decoder *d;
    Tid ids, labels, order, positions, docs, prefix, weight, divisor, inv_freq, max_norm, dials, loss, parts, verdict;
    Tid embed, head, norm;
    Layer layer[MAX_LAYERS];
    Tid trained[MAX_TRAINED], part[MAX_TRAINED], m[MAX_TRAINED], v[MAX_TRAINED];
    int n_trained;
    AttrHeads heads;
} Recorder;

static Tid train(Recorder *r, Tid t) {
    Program *p = r->p;
    Tensor w = p->t[t];
    int layer = p->layer;
    p->layer = -1;
    CHECK(r->n_trained < MAX_TRAINED);
    Tid grad = prog_tensor(p, arena_printf(&p->arena, "%s.grad", w.name), ROLE_GRADIENT, w.format, w.rank, w.dim);
    r->m[r->n_trained] =
        prog_tensor(p, arena_printf(&p->arena, "%s.m", w.name), ROLE_MOMENT, w.format, w.rank, w.dim);
    r->v[r->n_trained] =
        prog_tensor(p, arena_printf(&p->arena, "%s.v", w.name), ROLE_MOMENT, w.format, w.rank, w.dim);
    p->layer = layer;
    p->t[t].trainable = p->t[t].needs_grad = true;
    p->t[t].grad = grad;
    r->trained[r->n_trained++] = t;
    return t;
}

static Tid weight(Recorder *r, const char *name, int rank, const int64_t *dim) {
    Tid t = prog_tensor(r->p, name, ROLE_WEIGHT, FMT_BF16, rank, dim);
    return r->d->rank ? t : train(r, t);
}

static Product product(Recorder *r, const char *name, int64_t rows, int64_t cols, bool bias, int groups,
                       const int64_t *group_rows) {
    Program *p = r->p;
    Product x = {.w = weight(r, name, 2, DIMS(rows, cols))};
    if (r->d->rank) p->t[x.w].home = r->d->home;
    p->t[x.w].file_name = p->t[x.w].name;
    if (bias) x.bias = weight(r, arena_printf(&p->arena, "%s.bias", name), 1, DIMS(rows));
    if (!r->d->rank) return x;
    x.a = prog_tensor(p, arena_printf(&p->arena, "%s.a", name), ROLE_ADAPTER, FMT_BF16, 2,
                      DIMS((int64_t)groups * r->d->rank, cols));
    x.b = prog_tensor(p, arena_printf(&p->arena, "%s.b", name), ROLE_ADAPTER, FMT_BF16, 2, DIMS(rows, r->d->rank));
    train(r, x.a);
    train(r, x.b);
    x.lora = (AttrLora){.groups = groups, .rank = r->d->rank, .scale = 2, .dropout = 0.05f};
    for (int64_t g = 0, col = 0; g < groups; col += group_rows[g++])
        x.lora.col[g] = col, x.lora.rows[g] = group_rows[g];
    return x;
}

static void weights(Recorder *r) {
    const Decoder *d = r->d;
    Program *p = r->p;
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;
    r->embed = weight(r, "embed", 2, DIMS(d->vocab, d->width));
    for (int l = 0; l < d->layers; l++) {
        p->layer = l;
        Layer *y = &r->layer[l];
        y->norm1 = weight(r, "norm1", 1, DIMS(d->width));
        y->norm2 = weight(r, "norm2", 1, DIMS(d->width));
        if (d->head_norms)
            y->norm_q = weight(r, "norm_q", 1, DIMS(d->head_dim)),
            y->norm_k = weight(r, "norm_k", 1, DIMS(d->head_dim));
        y->qkv = product(r, "qkv", q + 2 * kv, d->width, !d->head_norms, 3, DIMS(q, kv, kv));
        if (d->sparse) {
            y->norm_o = weight(r, "norm_o", 1, DIMS(q));
            y->index = product(r, "index", q + 2 * kv, d->width, false, 3, DIMS(q, kv, kv));
            y->gate = product(r, "gate", 2 * q, d->width, false, 2, DIMS(q, q));
        }
        y->o = product(r, "o", d->width, q, false, 1, DIMS(d->width));
        y->gate_up = product(r, "gate_up", 2 * d->hidden, d->width, false, 2, DIMS(d->hidden, d->hidden));
        y->down = product(r, "down", d->width, d->hidden, false, 1, DIMS(d->width));
    }
    p->layer = -1;
    r->norm = weight(r, "norm", 1, DIMS(d->width));
    r->head = d->tied ? r->embed : weight(r, "head", 2, DIMS(d->vocab, d->width));
}

static Tid input(Recorder *r, const char *name, Role role, Format f, int64_t n) {
    return prog_tensor(r->p, name, role, f, 1, DIMS(n));
}

static void inputs(Recorder *r) {
    int64_t n = r->d->tokens;
    r->p->beta = input(r, "beta", ROLE_DIAL, FMT_F32, 1);
    r->p->clock = input(r, "clock", ROLE_DIAL, FMT_I64, CLOCK_WORDS);
    r->ids = input(r, "ids", ROLE_INPUT, FMT_I32, n);
    r->labels = input(r, "labels", ROLE_INPUT, FMT_I32, n);
    r->order = input(r, "id_order", ROLE_INPUT, FMT_I32, n);
    r->positions = input(r, "positions", ROLE_INPUT, FMT_I32, n);
    r->docs = input(r, "doc_begin", ROLE_INPUT, FMT_I32, n);
    if (r->d->sparse) r->prefix = prog_tensor(r->p, "prefix", ROLE_INPUT, FMT_I32, 2, DIMS(n, 2));
    r->weight = input(r, "token_weight", ROLE_INPUT, FMT_F32, n);
    r->divisor = input(r, "divisor", ROLE_DIAL, FMT_F64, 1);
    r->inv_freq = input(r, "inv_freq", ROLE_TABLE, FMT_F32, r->d->head_dim / 2);
    r->max_norm = input(r, "max_norm", ROLE_DIAL, FMT_F32, 1);
    r->dials = input(r, "dials", ROLE_DIAL, FMT_F32, DIAL_WORDS);
    r->loss = input(r, "loss", ROLE_STATISTIC, FMT_F64, 1);
    r->verdict = input(r, "verdict", ROLE_STATISTIC, FMT_F64, VERDICT_WORDS);
}

static Tid apply(Recorder *r, const Product *x, const char *name, Tid in) {
    Tid y = op_linear(r->p, name, in, x->w, x->bias);
    return x->a ? op_lora(r->p, y, in, x->a, x->b, x->lora) : y;
}

static Tid attention(Recorder *r, const Layer *y, Tid x) {
    Program *p = r->p;
    Tid normed = op_rmsnorm(p, x, y->norm1, 1e-6f), chosen = NONE, gate = NONE;
    if (y->norm_o) {
        chosen = op_attend(p, apply(r, &y->index, "index", normed), r->docs, r->prefix, r->heads);
        gate = op_swiglu(p, apply(r, &y->gate, "gate", normed));
    }
    Tid qkv = apply(r, &y->qkv, "qkv", normed);
    if (y->norm_q) qkv = op_head_norm(p, qkv, y->norm_q, y->norm_k, r->heads);
    Tid att = op_attend(p, op_rope(p, qkv, r->positions, r->inv_freq, r->heads), r->docs, r->prefix, r->heads);
    if (y->norm_o) {
        Tid gated = op_add(p, "gated", op_add(p, "att_of_chosen", att, chosen), gate);
        att = op_rmsnorm(p, gated, y->norm_o, 1e-6f);
    }
    return op_add(p, "mid", x, apply(r, &y->o, "o", att));
}

static Tid block(Recorder *r, const Layer *y, Tid x) {
    Program *p = r->p;
    p->part = PART_ATTENTION;
    Tid mid = attention(r, y, x);
    p->part = PART_FFN;
    Tid h = op_swiglu(p, apply(r, &y->gate_up, "gate_up", op_rmsnorm(p, mid, y->norm2, 1e-6f)));
    return op_add(p, "out", mid, apply(r, &y->down, "down", h));
}

static Tid forward(Recorder *r) { /* log-probabilities (N) */
    Program *p = r->p;
    Tid x = op_embed(p, r->embed, r->ids, r->order, FMT_BF16);
    for (int l = 0; l < r->d->layers; l++) {
        p->layer = l;
        x = block(r, &r->layer[l], x);
    }
    p->layer = -1;
    p->part = PART_NONE;
    return op_head_logp(p, op_rmsnorm(p, x, r->norm, 1e-6f), r->head, r->labels, (AttrHead){.chunk = r->d->chunk});
}

static void update(Recorder *r) {
    Program *p = r->p;
    for (int i = 0; i < r->n_trained; i++) {
        p->layer = p->t[r->trained[i]].layer;
        op_sum_squares(p, r->part[i], p->t[r->trained[i]].grad);
    }
    p->layer = -1;
    op_clip(p, r->verdict, r->parts, r->loss, r->max_norm, NONE, NONE);
    for (int i = 0; i < r->n_trained; i++) {
        p->layer = p->t[r->trained[i]].layer;
        UpdateTensors u = {.weight = r->trained[i],
                           .gradient = p->t[r->trained[i]].grad,
                           .m = r->m[i],
                           .v = r->v[i],
                           .dials = r->dials,
                           .verdict = r->verdict};
        op_adamw(p, u, (AttrUpdate){.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .lr_mult = 1});
    }
    p->layer = -1;
}

void decoder_record(Program *p, const Decoder *d) {
    Recorder *r = MEM_NEW(Recorder, 1);
    prog_init(p);
    r->p = p;
    r->d = d;
    r->heads = (AttrHeads){
        .heads = d->heads, .kv_heads = d->kv_heads, .head_dim = d->head_dim, .seq = d->seq, .scale = 1};
    inputs(r);
    weights(r);
    r->parts = input(r, "parts", ROLE_STATISTIC, FMT_F64, r->n_trained);
    for (int i = 0; i < r->n_trained; i++) r->part[i] = prog_view(p, "part", r->parts, i, 1);

    prog_begin_phase(p, "micro", d->accumulate);
    Tid stat = op_token_sum(p, r->loss, forward(r), r->weight, r->divisor, -1);
    prog_backward(p, 0, &(Root){stat, NONE}, 1);
    prog_end_phase(p);
    prog_begin_phase(p, "update", 1);
    p->region = REGION_UPDATE;
    update(r);
    prog_end_phase(p);
    prog_begin_phase(p, "evaluate", 3);
    op_token_sum(p, r->loss, forward(r), r->weight, r->divisor, -1);
    prog_end_phase(p);
    mem_free(r);
}
