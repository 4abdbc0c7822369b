/* index_loss.c - the indexer's loss: the KL divergence of the softmax of its scores from the attention of the heads it
 * serves.
 *
 * Of one token at a time: p, the mean over heads of e^(q.k - lse) over the keys that count; the scores I and what
 * each index head gave; then KL(p || softmax I), whose gradient by I is softmax(I) - p. Index keys' gradients are
 * summed per row by one worker. */
#include <math.h>
#include <string.h>

#include "backend/cpu/sparse.h"

enum { BLOCK = SPARSE_BLOCK, MOST_HEADS = 64 };

typedef struct Loss {
    const Args *a;
    AttrSparse k;
    Operand index, qkv;
    float bias[2 * MOST_HEADS];
    const float *lse;
    const int32_t *keys, *doc_begin; /* keys NULL: all that a token sees */
    const float *weight;
    double divisor;
    int64_t tokens, most, each, first_scratch;
    double *parts; /* of each token, in the workspace; NULL: not wanted */
} Loss;

typedef struct Work {       /* a worker's scratch */
    float *score, *p, *d;   /* (span) each: I, the target, dI */
    float *act;             /* (J, span): what each index head gives a key */
    float *block, *s;       /* (BLOCK, max(D,E)), (max(group,J), BLOCK) */
    float *q, *index_q, *w; /* (group, D), (J, E), (J) */
    float *dk, *dq;         /* gradient: (seq, E), (J, E) */
    int64_t span;
} Work;

static Work work_of(const Loss *t, float *scratch) {
    const AttrSparse *k = &t->k;
    int64_t span = k->heads.seq, group = sparse_group(&k->heads);
    Work w = {.score = scratch, .span = span};
    w.p = w.score + span;
    w.d = w.p + span;
    w.act = w.d + span;
    w.block = w.act + span * k->index_heads;
    w.s = w.block + (int64_t)BLOCK * MAX2(k->heads.head_dim, k->index_dim);
    w.q = w.s + MAX2(group, k->index_heads) * BLOCK;
    w.index_q = w.q + group * k->heads.head_dim;
    w.w = w.index_q + (int64_t)k->index_heads * k->index_dim;
    w.dk = w.w + k->index_heads;
    w.dq = w.dk + span * k->index_dim;
    return w;
}

typedef struct List { /* the keys that count for a token: list[first + i], or first + i */
    const int32_t *list;
    int64_t first, n;
} List;

static List list_of(const Loss *t, int64_t token) {
    int64_t begin = MAX2(t->doc_begin[token], 0);
    if (!t->keys) return (List){NULL, begin, token % t->k.heads.seq + 1 - begin};
    const int32_t *list = t->keys + token * t->most;
    return (List){list, 0, sparse_count(list, t->most)};
}

/* ---- the target ---- */

static void attention(const Loss *t, const Work *w, int64_t token, List l) {
    const AttrHeads *h = &t->k.heads;
    int64_t dim = h->head_dim, group = sparse_group(h), width = (h->heads + 2 * h->kv_heads) * dim;
    memset(w->p, 0, (size_t)l.n * sizeof *w->p);
    for (int64_t g = 0; g < h->kv_heads; g++) {
        Keys keys = sparse_heads(h, t->qkv, (Operand){0}, token / h->seq, g);
        cpu_load(w->q, t->qkv.data, t->qkv.t->format, token * width + g * group * dim, group * dim);
        for (int64_t at = 0; at < l.n; at += BLOCK) {
            int64_t n = MIN2(BLOCK, l.n - at);
            keys_gather(w->block, &keys, l.list, l.first + at, n);
            cpu_multiply(&(CpuBlock){.rows = group,
                                     .cols = n,
                                     .inner = dim,
                                     .a = w->q,
                                     .lda = dim,
                                     .b = w->block,
                                     .ldb = dim,
                                     .b_transposed = true,
                                     .c = w->s,
                                     .ldc = BLOCK,
                                     .alpha = h->scale});
            for (int64_t r = 0; r < group; r++) {
                float *s = w->s + r * BLOCK;
                cpu_exp(s, s, t->lse[token * h->heads + g * group + r], n);
                for (int64_t i = 0; i < n; i++) w->p[at + i] += s[i] / (float)h->heads;
            }
        }
    }
}

/* ---- the scores ---- */

static void scores(const Loss *t, const Work *w, int64_t token, List l) {
    const AttrSparse *k = &t->k;
    int64_t heads = k->index_heads, dim = k->index_dim;
    Keys keys = sparse_index_keys(k, t->index, (Operand){0}, token / k->heads.seq);
    cpu_load(w->index_q, t->index.data, t->index.t->format, token * sparse_index_width(k), heads * dim);
    sparse_weights(w->w, k, t->index, t->bias, token);
    memset(w->score, 0, (size_t)l.n * sizeof *w->score);
    for (int64_t at = 0; at < l.n; at += BLOCK) {
        int64_t n = MIN2(BLOCK, l.n - at);
        keys_gather(w->block, &keys, l.list, l.first + at, n);
        cpu_multiply(&(CpuBlock){.rows = heads,
                                 .cols = n,
                                 .inner = dim,
                                 .a = w->index_q,
                                 .lda = dim,
                                 .b = w->block,
                                 .ldb = dim,
                                 .b_transposed = true,
                                 .c = w->act + at,
                                 .ldc = w->span,
                                 .alpha = 1.0f / sqrtf((float)dim)});
    }
    for (int64_t j = 0; j < heads; j++) {
        sparse_act(w->act + j * w->span, t->bias[heads + j], k->relu, l.n);
        for (int64_t i = 0; i < l.n; i++) w->score[i] += w->w[j] * w->act[j * w->span + i];
    }
}

/* KL, and in d softmax(I) - p. */
static double divergence(const Work *w, int64_t n) {
    double top = cpu_max(w->score, n), sum = 0, kl = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(w->score[i] - top);
    for (int64_t i = 0; i < n; i++) {
        double log_i = w->score[i] - top - log(sum), p = w->p[i];
        if (p > 0) kl += p * (log(p) - log_i);
        w->d[i] = (float)(exp(log_i) - p);
    }
    return kl;
}

static Loss loss_of(const Args *a) { /* both ops have their operands in the same places */
    Loss t = {.a = a, .k = a->step->attr.sparse, .index = a->index_loss.in.index, .qkv = a->index_loss.in.qkv};
    Operand bias = a->index_loss.in.bias, keys = a->index_loss.in.keys;
    float divisor;
    CHECK_MSG(t.k.index_heads <= MOST_HEADS && a->index_loss.in.weight.t->format == FMT_F32, "%d index heads",
              t.k.index_heads);
    cpu_load(t.bias, bias.data, bias.t->format, 0, 2 * t.k.index_heads);
    cpu_load(&divisor, a->index_loss.in.divisor.data, a->index_loss.in.divisor.t->format, 0, 1);
    t.divisor = divisor;
    t.lse = a->index_loss.in.lse.data;
    t.keys = keys.data;
    t.most = keys.data ? cpu_cols(keys.t) : 0;
    t.doc_begin = a->index_loss.in.doc_begin.data;
    t.weight = a->index_loss.in.weight.data;
    t.tokens = cpu_rows(t.index.t);
    return t;
}

static void loss_one(void *context, int64_t token, int worker) {
    const Loss *t = context;
    Work w = work_of(t, cpu_scratch(t->a, t->first_scratch, t->each, worker));
    List l = list_of(t, token);
    t->parts[token] = 0;
    if (t->weight[token] == 0 || l.n < 1) return;
    attention(t, &w, token, l);
    scores(t, &w, token, l);
    t->parts[token] = t->weight[token] * divergence(&w, l.n);
}

static void give_loss(const Loss *t, double *stat, double beta) {
    double sum = 0;
    for (int64_t i = 0; i < t->tokens; i++) sum += t->parts[i];
    *stat = beta == 0 ? sum / t->divisor : beta * *stat + sum / t->divisor;
}

void cpu_index_loss(Backend *b, Queue q, const Args *a) {
    Loss t = loss_of(a);
    t.parts = (double *)a->workspace;
    t.first_scratch = sparse_parts_bytes(t.tokens);
    t.each = sparse_loss_bytes(&t.k, false);
    threads_for(cpu_threads(b), t.tokens, loss_one, &t);
    give_loss(&t, a->index_loss.out.stat.data, cpu_beta(a->index_loss.in.beta));
}

/* ---- backward ---- */

/* By way of one head: its query, its weight, its bias, and the keys. act becomes dI's way through its activation. */
static void back_head(const Loss *t, const Work *w, List l, int64_t j, float *d_weight, float *d_bias) {
    const AttrSparse *k = &t->k;
    int64_t dim = k->index_dim;
    float *act = w->act + j * w->span, scale = 1.0f / sqrtf((float)dim);
    double through_weight = 0, through_bias = 0;
    for (int64_t i = 0; i < l.n; i++) {
        float slope = k->relu ? (float)(act[i] > 0) : act[i] * (1 - act[i]);
        through_weight += (double)w->d[i] * act[i];
        act[i] = w->d[i] * w->w[j] * slope;
        through_bias += act[i];
    }
    *d_weight = (float)through_weight * w->w[j] * (1 - w->w[j]);
    d_bias[j] += *d_weight;
    d_bias[k->index_heads + j] += (float)through_bias;
    for (int64_t i = 0; i < l.n; i++) {
        int64_t s = l.list ? l.list[l.first + i] : l.first + i;
        const float *q = w->index_q + j * dim;
        float *dk = w->dk + s * dim;
        for (int64_t e = 0; e < dim; e++) dk[e] += act[i] * scale * q[e];
    }
}

/* dq = dA K, over the gathered keys again. */
static void back_queries(const Loss *t, const Work *w, int64_t token, List l) {
    const AttrSparse *k = &t->k;
    int64_t heads = k->index_heads, dim = k->index_dim;
    Keys keys = sparse_index_keys(k, t->index, (Operand){0}, token / k->heads.seq);
    for (int64_t at = 0; at < l.n; at += BLOCK) {
        int64_t n = MIN2(BLOCK, l.n - at);
        keys_gather(w->block, &keys, l.list, l.first + at, n);
        cpu_multiply(&(CpuBlock){.rows = heads,
                                 .cols = dim,
                                 .inner = n,
                                 .a = w->act + at,
                                 .lda = w->span,
                                 .b = w->block,
                                 .ldb = dim,
                                 .c = w->dq,
                                 .ldc = dim,
                                 .alpha = 1.0f / sqrtf((float)dim),
                                 .beta = 1});
    }
}

static void back_token(const Loss *t, const Work *w, int64_t token, float *d_bias) {
    Operand to = t->a->index_loss_grad.out.d_index;
    int64_t heads = t->k.index_heads, dim = t->k.index_dim, width = sparse_index_width(&t->k);
    List l = list_of(t, token);
    float d_weight[MOST_HEADS] = {0};
    double loss = 0;
    memset(w->dq, 0, (size_t)(heads * dim) * sizeof *w->dq);
    if (t->weight[token] != 0 && l.n > 0) {
        attention(t, w, token, l);
        scores(t, w, token, l);
        loss = t->weight[token] * divergence(w, l.n);
        float by = (float)(t->weight[token] / t->divisor);
        for (int64_t i = 0; i < l.n; i++) w->d[i] *= by;
        for (int64_t j = 0; j < heads; j++) back_head(t, w, l, j, &d_weight[j], d_bias);
        back_queries(t, w, token, l);
    }
    if (t->parts) t->parts[token] = loss;
    cpu_write(to, token * width, w->dq, heads * dim);
    cpu_write(to, (token + 1) * width - heads, d_weight, heads);
}

static void grad_row(void *context, int64_t row, int worker) {
    const Loss *t = context;
    Work w = work_of(t, cpu_scratch(t->a, t->first_scratch, t->each, worker));
    int64_t seq = t->k.heads.seq, heads = t->k.index_heads, dim = t->k.index_dim, width = sparse_index_width(&t->k);
    float *d_bias = (float *)t->a->workspace + row * 2 * heads;
    memset(d_bias, 0, (size_t)(2 * heads) * sizeof *d_bias);
    memset(w.dk, 0, (size_t)(seq * dim) * sizeof *w.dk);
    for (int64_t i = 0; i < seq; i++) back_token(t, &w, row * seq + i, d_bias);
    for (int64_t i = 0; i < seq; i++)
        cpu_write(t->a->index_loss_grad.out.d_index, (row * seq + i) * width + heads * dim, w.dk + i * dim, dim);
}

void cpu_index_loss_grad(Backend *b, Queue q, const Args *a) {
    Loss t = loss_of(a);
    Operand d_bias = a->index_loss_grad.out.d_bias;
    double *stat = a->index_loss_grad.out.stat.data;
    int64_t rows = t.tokens / t.k.heads.seq, width = 2 * t.k.index_heads, sums = sparse_bytes(rows * width);
    if (stat) t.parts = (double *)((char *)a->workspace + sums);
    t.first_scratch = sums + (stat ? sparse_parts_bytes(t.tokens) : 0);
    t.each = sparse_loss_bytes(&t.k, true);
    threads_for(cpu_threads(b), rows, grad_row, &t);
    if (stat) give_loss(&t, stat, cpu_beta(a->index_loss_grad.in.stat_beta));
    if (!d_bias.data) return;
    float sum[2 * MOST_HEADS] = {0};
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++) sum[i] += ((const float *)a->workspace)[r * width + i];
    cpu_accumulate(d_bias.data, d_bias.t->format, 0, sum, width, cpu_beta(a->index_loss_grad.in.beta),
                   cpu_draw_key(a, a->index_loss_grad.in.clock));
}
