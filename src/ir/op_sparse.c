/* op_sparse.c - attention that reads only the keys an indexer selects, and the gates around it.
 *
 * index is (N, J*E + E + J): of one token the queries of J index heads, one key of E numbers, a weight for each head.
 * bias is (2J): of the weights, then of the scores. A token's score of a key it sees is
 *     I[t,s] = sum_j sigmoid(w[t,j] + bias[j]) * act(q[t,j] . k[s] / sqrt(E) + bias[J+j]),  act: sigmoid or relu
 *   gate            in x(N,M) z(N,Z)                    out y(N,M): columns [first, first + group*Z) times act(z)
 *   gate_grad       in dy(N,M) x(N,M) z(N,Z)            out dx(N,M)? dz(N,Z)?
 *   mix             in a(N,M) b(N,M)?                   out a*attr.a + b*attr.b
 *   index_put       in index positions(N) rows(N/seq)?  out cache(R, slots, E): the key, at its position
 *   select          in index bias doc_begin(N)? positions(N)? rows? cache? qkv? kv_cache?   out keys(N,K) i32
 *                   the k_t best of the keys that a token sees, ascending, then -1. Without a cache it sees
 *                   [doc_begin, t] of its row, with one the slots 0..positions. An indexer's scores are ranked in
 *                   steps of 1/4096 (ir/sparse.h), by which k_t is said too; of equal ones the latest key is taken.
 *                   k_t depends on the token's own scores alone: k_base, or k_base * (1/2 + 1/(1 + T n)) with
 *                   n = variance / (mean square + 1e-8), or k_base * (1/2 + T * entropy of softmax / ln(seen + 1));
 *                   between k_min and k_max, never more than it sees
 *   attend_selected in qkv keys cache? rows?            out o(N,H*D) lse(N,H)?
 *   attend_selected_grad  in d_o qkv o lse keys         out d_qkv
 *   index_loss      in index bias qkv lse keys? doc_begin weight(N) divisor(1) beta?
 *                   out stat(1) fp64 = beta*stat + sum over t of weight * KL(p_t || softmax of I_t) / divisor, where
 *                   p_t is the mean over heads of the attention whose logarithmic sums are lse; over the keys, or
 *                   over all that t sees
 *   index_loss_grad in the same, clock? stat_beta?      out d_index d_bias(2J)? stat(1)?: qkv is a constant here.
 *                   Where stat is wanted (plan/join_loss.c) it is index_loss's, with stat_beta in the place of beta
 *   attend_report   in qkv keys? doc_begin beta?        out stat(REPORT_WORDS) fp64: what dense attention would give
 *                   the keys
 *   gate_report     in z beta?                          out stat(REPORT_WORDS) fp64: how far gates are open */
#include "ir/op_int.h"
#include "ir/sparse.h"

/* ---- gates ---- */

Tid op_gate(Program *p, const char *name, Tid x, Tid z, AttrGate attr) {
    Tid y = prog_like(p, name, x);
    prog_emit(p, (Step){.op = OP_GATE, .gate = {.in = {x, z}, .out = {y}}, .attr.gate = attr});
    return y;
}

static void gate_grad(Program *p, Step s, Grads *g) {
    Tid x = s.gate.in.x, z = s.gate.in.z, dx = NONE, dz = NONE;
    if (p->t[x].needs_grad) dx = prog_like(p, "d_gated", x);
    if (p->t[z].needs_grad) dz = prog_like(p, "d_gate", z);
    prog_emit(p, (Step){.op = OP_GATE_GRAD,
                        .gate_grad = {.in = {.dy = grad_get(g, s.gate.out.y), .x = x, .z = z}, .out = {dx, dz}},
                        .attr = s.attr});
    if (dx) grad_flow(p, g, x, dx);
    if (dz) grad_flow(p, g, z, dz);
}

static const char *gate_shape(const Program *p, const Step *s) {
    bool grad = s->op == OP_GATE_GRAD;
    Tid x = grad ? s->gate_grad.in.x : s->gate.in.x, z = grad ? s->gate_grad.in.z : s->gate.in.z;
    const AttrGate *a = &s->attr.gate;
    if (prog_rows(p, x) != prog_rows(p, z)) return "x and z have other tokens";
    if (a->first < 0 || a->group < 1 || a->first + a->group * prog_cols(p, z) > prog_cols(p, x))
        return "z gates columns that x has not";
    return NULL;
}

Tid op_mix(Program *p, const char *name, Tid a, Tid b, AttrMix attr) {
    Tid y = prog_like(p, name, a);
    prog_emit(p, (Step){.op = OP_MIX, .mix = {.in = {a, b}, .out = {y}}, .attr.mix = attr});
    return y;
}

static void mix_grad(Program *p, Step s, Grads *g) {
    Tid dy = grad_get(g, s.mix.out.y), a = s.mix.in.a, b = s.mix.in.b;
    if (p->t[a].needs_grad) grad_flow(p, g, a, op_mix(p, "d_mixed", dy, NONE, (AttrMix){s.attr.mix.a, 0}));
    if (b && p->t[b].needs_grad) grad_flow(p, g, b, op_mix(p, "d_mixed", dy, NONE, (AttrMix){s.attr.mix.b, 0}));
}

static const char *mix_shape(const Program *p, const Step *s) {
    return !s->mix.in.b || same_shape(p, s->mix.in.a, s->mix.in.b) ? NULL : "shapes differ";
}

/* ---- selection ---- */

static const char *index_wrong(const Program *p, const AttrSparse *a, Tid index) {
    if (a->index_heads < 1 || a->index_dim < 1 || prog_cols(p, index) != sparse_index_width(a))
        return "index is not J*E + E + J wide";
    if (a->heads.seq < 1 || prog_rows(p, index) % a->heads.seq) return "the tokens are not whole rows of seq";
    return NULL;
}

void op_index_put(Program *p, Tid cache, Tid index, Tid positions, Tid rows, AttrSparse attr) {
    prog_emit(
        p,
        (Step){.op = OP_INDEX_PUT, .index_put = {.in = {index, positions, rows}, .out = {cache}}, .attr.sparse = attr});
}

static const char *index_put_shape(const Program *p, const Step *s) {
    const AttrSparse *a = &s->attr.sparse;
    if (prog_cols(p, s->index_put.out.cache) != a->index_dim) return "the cache is not (R, slots, E)";
    return index_wrong(p, a, s->index_put.in.index);
}

Tid op_select(Program *p, SelectTensors t, AttrSparse attr) {
    Tid keys =
        prog_tensor(p, "selected", ROLE_ACTIVATION, FMT_I32, 2, DIMS(prog_rows(p, t.index), sparse_most_keys(&attr)));
    prog_emit(p,
              (Step){.op = OP_SELECT,
                     .select = {.in = {t.index, t.bias, t.doc_begin, t.positions, t.rows, t.cache, t.qkv, t.kv_cache},
                                .out = {keys}},
                     .attr.sparse = attr});
    return keys;
}

static const char *select_shape(const Program *p, const Step *s) {
    const AttrSparse *a = &s->attr.sparse;
    bool cached = s->select.in.cache != NONE;
    const char *wrong = index_wrong(p, a, s->select.in.index);
    if (wrong) return wrong;
    if (prog_elements(p, s->select.in.bias) != 2 * a->index_heads) return "bias is not (2J)";
    if (!(cached ? s->select.in.positions : s->select.in.doc_begin)) return "what a token sees is not said";
    if (prog_cols(p, s->select.out.keys) != sparse_most_keys(a)) return "keys has other columns than can be selected";
    if (a->by == SELECT_ORACLE && (!s->select.in.qkv || (cached && !s->select.in.kv_cache)))
        return "an oracle reads qkv";
    return NULL;
}

static double pairs_seen(double tokens, const AttrHeads *h) {
    return tokens * (h->slots ? (double)h->slots : (double)(h->seq + 1) / 2);
}

static double select_flops(const Program *p, const Step *s) {
    const AttrSparse *a = &s->attr.sparse;
    double each = 2.0 * a->index_heads * a->index_dim;
    if (a->by == SELECT_ORACLE) each += 2.0 * a->heads.heads * a->heads.head_dim;
    return pairs_seen((double)prog_rows(p, s->select.in.index), &a->heads) * each;
}

static int64_t select_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrSparse *a = &s->attr.sparse;
    if (m->kind == MACHINE_CPU) return sparse_select_bytes(a) * m->threads;
    return sparse_device_select_bytes(a, prog_t(p, s->select.in.index)->format, prog_rows(p, s->select.in.index));
}

/* ---- attention over what was selected ---- */

Tid op_attend_selected(Program *p, Tid qkv, Tid keys, Tid cache, Tid rows, AttrHeads attr, Tid *lse) {
    int64_t n = prog_rows(p, qkv);
    Tid o = prog_tensor(p, "attended", ROLE_ACTIVATION, prog_t(p, qkv)->format, 2,
                        DIMS(n, (int64_t)attr.heads * attr.head_dim));
    Tid sums = cache ? NONE : prog_tensor(p, "attend_lse", ROLE_ACTIVATION, FMT_F32, 2, DIMS(n, attr.heads));
    prog_emit(p, (Step){.op = OP_ATTEND_SELECTED,
                        .attend_selected = {.in = {qkv, keys, cache, rows}, .out = {o, sums}},
                        .attr.heads = attr});
    if (lse) *lse = sums;
    return o;
}

static void attend_selected_grad(Program *p, Step s, Grads *g) {
    Tid qkv = s.attend_selected.in.qkv, o = s.attend_selected.out.o, d_qkv = prog_like(p, "d_qkv", qkv);
    CHECK_MSG(s.attend_selected.out.lse, "attention to a cache has no gradient%s", "");
    prog_emit(p, (Step){.op = OP_ATTEND_SELECTED_GRAD,
                        .attend_selected_grad = {.in = {.d_o = grad_get(g, o),
                                                        .qkv = qkv,
                                                        .o = o,
                                                        .lse = s.attend_selected.out.lse,
                                                        .keys = s.attend_selected.in.keys},
                                                 .out = {d_qkv}},
                        .attr = s.attr});
    grad_flow(p, g, qkv, d_qkv);
}

static const char *attend_selected_shape(const Program *p, const Step *s) {
    bool grad = s->op == OP_ATTEND_SELECTED_GRAD;
    const AttrHeads *a = &s->attr.heads;
    Tid qkv = grad ? s->attend_selected_grad.in.qkv : s->attend_selected.in.qkv;
    Tid keys = grad ? s->attend_selected_grad.in.keys : s->attend_selected.in.keys;
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads) return "heads is not a multiple of kv_heads";
    if (prog_cols(p, qkv) != (int64_t)(a->heads + 2 * a->kv_heads) * a->head_dim) return "qkv is not (H+2G)*D wide";
    if (a->seq < 1 || prog_rows(p, qkv) % a->seq) return "the tokens are not whole rows of seq";
    return prog_rows(p, keys) == prog_rows(p, qkv) ? NULL : "keys and qkv have other tokens";
}

/* Pairs in lists of keys at most: the first tokens of a row see fewer than the list holds. */
static double pairs_listed(const Program *p, Tid keys, const AttrHeads *h) {
    double most = (double)prog_cols(p, keys), tokens = (double)prog_rows(p, keys), seq = (double)h->seq;
    if (most >= seq) return tokens * (seq + 1) / 2;
    return tokens * (most - most * (most - 1) / (2 * seq));
}

static double attend_selected_flops(const Program *p, const Step *s) {
    bool grad = s->op == OP_ATTEND_SELECTED_GRAD, cached = !grad && s->attend_selected.in.cache;
    Tid keys = grad ? s->attend_selected_grad.in.keys : s->attend_selected.in.keys;
    const AttrHeads *h = &s->attr.heads;
    double pairs = cached ? (double)prog_elements(p, keys) : pairs_listed(p, keys, h);
    return pairs * h->heads * h->head_dim * (grad ? 10 : 4);
}

static int64_t attend_selected_workspace(const Program *p, const Step *s, const Machine *m) {
    bool grad = s->op == OP_ATTEND_SELECTED_GRAD;
    Tid qkv = grad ? s->attend_selected_grad.in.qkv : s->attend_selected.in.qkv;
    Tid keys = grad ? s->attend_selected_grad.in.keys : s->attend_selected.in.keys;
    if (m->kind != MACHINE_CPU)
        return sparse_device_attend_bytes(&s->attr.heads, prog_t(p, qkv)->format, prog_rows(p, qkv),
                                          prog_cols(p, keys), grad);
    if (s->op == OP_ATTEND_SELECTED_GRAD) return sparse_attend_grad_bytes(&s->attr.heads) * m->threads;
    return sparse_attend_bytes(&s->attr.heads, prog_cols(p, s->attend_selected.in.keys)) * m->threads;
}

/* ---- what the indexer learns ---- */

/* The first to write a statistic in a phase begins it, the others add. */
static Tid beta_of(const Program *p, Tid stat) { return prog_is_written(p, stat) ? NONE : p->beta; }

Tid op_index_loss(Program *p, Tid stat, IndexLossTensors t, AttrSparse attr) {
    prog_emit(p, (Step){.op = OP_INDEX_LOSS,
                        .index_loss = {.in = {.index = t.index,
                                              .bias = t.bias,
                                              .qkv = t.qkv,
                                              .lse = t.lse,
                                              .keys = t.keys,
                                              .doc_begin = t.doc_begin,
                                              .weight = t.weight,
                                              .divisor = t.divisor,
                                              .beta = beta_of(p, stat)},
                                       .out = {stat}},
                        .attr.sparse = attr});
    return stat;
}

static void index_loss_grad(Program *p, Step s, Grads *g) {
    Tid index = s.index_loss.in.index, bias = s.index_loss.in.bias, beta = NONE, d_bias = NONE;
    Tid d_index = prog_like(p, "d_index", index);
    CHECK_MSG(grad_get(g, s.index_loss.out.stat) == s.index_loss.out.stat,
              "an index loss is a root: its gradient is 1%s", "");
    if (p->t[bias].trainable) d_bias = grad_of_weight(p, bias, &beta);
    prog_emit(p, (Step){.op = OP_INDEX_LOSS_GRAD,
                        .index_loss_grad = {.in = {.index = index,
                                                   .bias = bias,
                                                   .qkv = s.index_loss.in.qkv,
                                                   .lse = s.index_loss.in.lse,
                                                   .keys = s.index_loss.in.keys,
                                                   .doc_begin = s.index_loss.in.doc_begin,
                                                   .weight = s.index_loss.in.weight,
                                                   .divisor = s.index_loss.in.divisor,
                                                   .beta = beta,
                                                   .clock = p->clock},
                                            .out = {d_index, d_bias}},
                        .attr = s.attr});
    grad_flow(p, g, index, d_index);
}

/* index_loss_grad has index_loss's operands in the same places. */
_Static_assert(OP_IN(index_loss, divisor) == OP_IN(index_loss_grad, divisor), "operands of the index loss");

static const char *index_loss_shape(const Program *p, const Step *s) {
    const AttrSparse *a = &s->attr.sparse;
    const AttrHeads *h = &a->heads;
    const char *wrong = index_wrong(p, a, s->index_loss.in.index);
    if (wrong) return wrong;
    if (prog_elements(p, s->index_loss.in.bias) != 2 * a->index_heads) return "bias is not (2J)";
    if (prog_cols(p, s->index_loss.in.qkv) != (int64_t)(h->heads + 2 * h->kv_heads) * h->head_dim)
        return "qkv is not (H+2G)*D wide";
    return prog_elements(p, s->index_loss.in.lse) == prog_rows(p, s->index_loss.in.index) * h->heads
               ? NULL
               : "lse is not (N,H)";
}

static double index_pair_flops(const AttrSparse *a) { return 2.0 * a->index_heads * a->index_dim; }

static double index_loss_flops(const Program *p, const Step *s) {
    const AttrSparse *a = &s->attr.sparse;
    Tid keys = s->index_loss.in.keys;
    double pairs =
        keys ? pairs_listed(p, keys, &a->heads) : pairs_seen((double)prog_rows(p, s->index_loss.in.index), &a->heads);
    double index = index_pair_flops(a) * (s->op == OP_INDEX_LOSS_GRAD ? 3 : 1);
    return pairs * (index + 2.0 * a->heads.heads * a->heads.head_dim);
}

/* A loss per token, sums of the biases per row, and the scratch of workers. */
static int64_t index_loss_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrSparse *a = &s->attr.sparse;
    int64_t tokens = prog_rows(p, s->index_loss.in.index);
    bool grad = s->op == OP_INDEX_LOSS_GRAD;
    int64_t parts = grad && s->index_loss_grad.out.stat ? sparse_parts_bytes(tokens) : 0;
    Format f = prog_t(p, s->index_loss.in.index)->format;
    if (m->kind != MACHINE_CPU) return parts + sparse_device_loss_bytes(a, f, tokens, grad);
    if (!grad) return sparse_parts_bytes(tokens) + sparse_loss_bytes(a, false) * m->threads;
    return parts + sparse_bytes(tokens / a->heads.seq * 2 * a->index_heads) + sparse_loss_bytes(a, true) * m->threads;
}

/* ---- what is reported ---- */

void op_attend_report(Program *p, Tid stat, Tid qkv, Tid keys, Tid doc_begin, AttrHeads attr) {
    prog_emit(p, (Step){.op = OP_ATTEND_REPORT,
                        .attend_report = {.in = {qkv, keys, doc_begin, beta_of(p, stat)}, .out = {stat}},
                        .attr.heads = attr});
}

void op_gate_report(Program *p, Tid stat, Tid z, AttrGate attr) {
    prog_emit(
        p,
        (Step){.op = OP_GATE_REPORT, .gate_report = {.in = {z, beta_of(p, stat)}, .out = {stat}}, .attr.gate = attr});
}

static const char *report_shape(const Program *p, const Step *s) {
    return prog_elements(p, s->op == OP_GATE_REPORT ? s->gate_report.out.stat : s->attend_report.out.stat) ==
                   REPORT_WORDS
               ? NULL
               : "stat is not (REPORT_WORDS)";
}

static double attend_report_flops(const Program *p, const Step *s) {
    const AttrHeads *h = &s->attr.heads;
    double tokens = (double)sparse_report_tokens(prog_rows(p, s->attend_report.in.qkv), h->seq);
    return pairs_seen(tokens, h) * 2.0 * h->heads * h->head_dim;
}

static int64_t attend_report_workspace(const Program *p, const Step *s, const Machine *m) {
    int64_t seq = s->attr.heads.seq, tokens = prog_rows(p, s->attend_report.in.qkv),
            parts = sparse_report_words(tokens, seq);
    if (m->kind != MACHINE_CPU)
        return parts + sparse_device_rows_bytes(sparse_report_tokens(tokens, seq), seq, 2);
    return parts + sparse_report_bytes(&s->attr.heads) * m->threads;
}

/* ---- what a GPU's kernels reach ----
 *
 * On tensor cores a tile is computed as a whole where one of its pairs was selected; rates of selected pairs are lower
 * than those of pairs by as much as selections are thin. Kernels without them are rated by the fp32 units: a thread
 * scores a key that it reads in place, and blocks that own a few keys each sum the keys' gradients over all queries. */

static double selected_of_seen(const Program *p, Tid keys, const AttrHeads *h) {
    return keys ? pairs_listed(p, keys, h) / pairs_seen((double)prog_rows(p, keys), h) : 1;
}

/* Our own attention by mma.sync, which these tiles are, over dense rows of 1024 to 8192 tokens (gpu-attend-h200:1-30).
 * Whether it holds for selections, rows of gsa-512m and gsa-1.7b of commit 1c491be say: these kernels are unchanged. */
static double tile_attend_share(const AttrHeads *h, bool grad) {
    static const struct {
        double most, half;
    } share[2][2] = {{{0.48, 530}, {0.31, 330}}, {{0.505, 250}, {0.31, 170}}}; /* heads of 64, of 128 */
    enum { WIDE = 96 };
    double seq = (double)sparse_span(h);
    return share[h->head_dim >= WIDE][grad].most * seq / (seq + share[h->head_dim >= WIDE][grad].half);
}
/* Of the keys that neighbouring queries select together, the share of one of them, where each has 0.9 of its keys in
 * common with the next. Gathered kernels work on that union. */
static double selected_of_union(int64_t neighbours) { return 1 / (1 + 0.1 * (double)(neighbours - 1)); }

static double attend_tiles_share(const Program *p, const Step *s, const Machine *m) {
    bool grad = s->op == OP_ATTEND_SELECTED_GRAD;
    const AttrHeads *h = &s->attr.heads;
    Tid qkv = grad ? s->attend_selected_grad.in.qkv : s->attend_selected.in.qkv;
    Tid keys = grad ? s->attend_selected_grad.in.keys : s->attend_selected.in.keys;
    enum { FEW_PERCENT = 5 }; /* bound by the bytes of a cache, not by arithmetic */
    Format f = prog_t(p, qkv)->format;
    SparseAttend how = grad ? sparse_device_goes_back(h, f, m->deterministic) : sparse_device_attend(h, f, false);
    if (how == SPARSE_PLAIN) return 0;
    if (how == SPARSE_FEW) return FEW_PERCENT / 100.0;
    double thin = selected_of_seen(p, keys, h);
    if (how == SPARSE_GATHERED)
        return tile_attend_share(h, false) * MAX2(thin, selected_of_union(SPARSE_DEVICE_SIDE / sparse_group(h)));
    return tile_attend_share(h, grad) * thin;
}
static double attend_plain_share(const Program *p, const Step *s) {
    return (void)p, s->op == OP_ATTEND_SELECTED_GRAD ? 0.007 : 0.045;
}

/* Between its products the indexer has an exponential for each pair and head, and a ranking behind. By --profile of
 * gsa-1.7b, 1 x 4096, on commit 3354c4f (gsa-long-h200): index_loss 13.7 ms, its gradient 17.4, and what the step
 * leaves for select; how the losses divide among attention's heads and the indexer's is by gsa-512m, whose older
 * kernels had the same tiles. */
#define SCORES_SHARE 0.024
#define LOSS_ATTENDS_SHARE 0.135
#define LOSS_SCORES_SHARE 0.0305
#define GRAD_SCORES_SHARE 0.0174

/* Losses of long rows gather what 16 neighbours select, and are faster by so much than whole tiles at the same pairs:
 * in one profiled step of gsa-1.7b, 1 x 32768, index_loss took 158 of 1,857 ms (commit 9bfbc6b1, which joined it to its
 * gradient). That the gradient gains as much is assumed; the step's total agrees. */
enum { LOSS_NEIGHBOURS = 16 };
#define GATHERED_OF_TILES 3.2

static double select_tiles_share(const Program *p, const Step *s, const Machine *m) {
    const AttrSparse *a = &s->attr.sparse;
    return sparse_device_index_tiles(a, prog_t(p, s->select.in.index)->format) ? SCORES_SHARE : 0;
}
static double select_plain_share(const Program *p, const Step *s) { return (void)p, (void)s, 0.045; }

static bool loss_gathers(const Step *s, const Machine *m) {
    return sparse_device_loss_gathers(&s->attr.sparse, s->index_loss.in.keys != NONE) &&
           !(s->op == OP_INDEX_LOSS_GRAD && m->deterministic);
}
/* Of pairs that are worked on, the selected ones. */
static double loss_thin(const Program *p, const Step *s, const Machine *m) {
    double thin = selected_of_seen(p, s->index_loss.in.keys, &s->attr.sparse.heads);
    return loss_gathers(s, m) ? MAX2(thin, selected_of_union(LOSS_NEIGHBOURS)) : thin;
}
static double loss_tiles_share(const Program *p, const Step *s, const Machine *m) {
    const AttrSparse *a = &s->attr.sparse;
    bool grad = s->op == OP_INDEX_LOSS_GRAD;
    if (!sparse_device_loss_tiles(a, prog_t(p, s->index_loss.in.index)->format)) return 0;
    double index = index_pair_flops(a), attends = 2.0 * a->heads.heads * a->heads.head_dim;
    double at_full_rate = attends / LOSS_ATTENDS_SHARE + index / (grad ? GRAD_SCORES_SHARE : LOSS_SCORES_SHARE);
    if (loss_gathers(s, m)) at_full_rate /= GATHERED_OF_TILES;
    return (index * (grad ? 3 : 1) + attends) / at_full_rate * loss_thin(p, s, m);
}
static double loss_plain_share(const Program *p, const Step *s) {
    return (void)p, s->op == OP_INDEX_LOSS_GRAD ? 0.001 : 0.013;
}

/* Kernels one after the other, as backend/cuda/sparse.c and index_tiles.cu launch them. */
static double select_launches(const Program *p, const Step *s, const Machine *m) {
    const AttrSparse *a = &s->attr.sparse;
    int64_t tokens = prog_rows(p, s->select.in.index), seq = a->heads.seq, span = sparse_span(&a->heads);
    if (!(select_tiles_share(p, s, m) > 0)) return 1;
    if (a->heads.slots && seq < SPARSE_DEVICE_FEW) return 2 * (double)device_parts(tokens, SPARSE_DEVICE_FEW_ROWS);
    return 2 * (double)device_parts(sparse_device_tiles(tokens, seq), sparse_device_scored(tokens, seq, span));
}
static double attend_selected_launches(const Program *p, const Step *s, const Machine *m) {
    enum { MASKED = 2, LISTED_GRAD = 5, GATHERED_GRAD = 4 };
    if (!(attend_tiles_share(p, s, m) > 0)) return 1;
    if (s->op == OP_ATTEND_SELECTED) return MASKED;
    Format f = prog_t(p, s->attend_selected_grad.in.qkv)->format;
    bool gathers = sparse_device_goes_back(&s->attr.heads, f, m->deterministic) == SPARSE_GATHERED;
    return gathers ? GATHERED_GRAD : LISTED_GRAD;
}
static double index_loss_launches(const Program *p, const Step *s, const Machine *m) {
    enum { LOSS = 5, GRAD = 5, GRAD_BAND = 4, GATHERED = 3, GATHERED_GRAD = 5 };
    const AttrSparse *a = &s->attr.sparse;
    int64_t tokens = prog_rows(p, s->index_loss.in.index), seq = a->heads.seq;
    if (!(loss_tiles_share(p, s, m) > 0)) return 1;
    if (loss_gathers(s, m)) return s->op == OP_INDEX_LOSS ? GATHERED : GATHERED_GRAD;
    if (s->op == OP_INDEX_LOSS) return LOSS;
    return GRAD + GRAD_BAND * (double)device_parts(sparse_device_tiles(tokens, seq), sparse_device_band(tokens, seq));
}
static double report_share(const Program *p, const Step *s) { return (void)p, (void)s, 0.013; }

const OpRow op_row_attend_report = {.shape = report_shape,
                                    .flops = attend_report_flops,
                                    .vector_share = report_share,
                                    .workspace = attend_report_workspace,
                                    .flags = OPF_WRITES_STATE | OPF_MIXES_TOKENS};
const OpRow op_row_gate_report = {.shape = report_shape, .flags = OPF_WRITES_STATE};
const OpRow op_row_gate = {.shape = gate_shape,
                           .grad = gate_grad,
                           .flags = OPF_CHEAP | OPF_ROWWISE,
                           .share = SHARE_MAY,
                           .share_out = OP_OUT(gate, y),
                           .share_in = OP_IN(gate, x)};
const OpRow op_row_gate_grad = {.shape = gate_shape,
                                .flags = OPF_ROWWISE,
                                .share = SHARE_MAY,
                                .share_out = OP_OUT(gate_grad, dx),
                                .share_in = OP_IN(gate_grad, dy)};
const OpRow op_row_mix = {.shape = mix_shape,
                          .grad = mix_grad,
                          .flags = OPF_ROWWISE,
                          .share = SHARE_MAY,
                          .share_out = OP_OUT(mix, y),
                          .share_in = OP_IN(mix, a)};
const OpRow op_row_index_put = {.shape = index_put_shape, .flags = OPF_WRITES_STATE};
const OpRow op_row_select = {
    .shape = select_shape, .flops = select_flops, .matrix_share = select_tiles_share,
    .vector_share = select_plain_share, .launches = select_launches, .workspace = select_workspace,
    .flags = OPF_MIXES_TOKENS};
const OpRow op_row_attend_selected = {.shape = attend_selected_shape,
                                      .grad = attend_selected_grad,
                                      .flops = attend_selected_flops,
                                      .matrix_share = attend_tiles_share,
                                      .vector_share = attend_plain_share,
                                      .launches = attend_selected_launches,
                                      .workspace = attend_selected_workspace,
                                      .flags = OPF_MIXES_TOKENS};
const OpRow op_row_attend_selected_grad = {.shape = attend_selected_shape,
                                           .flops = attend_selected_flops,
                                           .matrix_share = attend_tiles_share,
                                           .vector_share = attend_plain_share,
                                           .launches = attend_selected_launches,
                                           .workspace = attend_selected_workspace,
                                           .flags = OPF_MIXES_TOKENS};
const OpRow op_row_index_loss = {.shape = index_loss_shape,
                                 .grad = index_loss_grad,
                                 .flops = index_loss_flops,
                                 .matrix_share = loss_tiles_share,
                                 .vector_share = loss_plain_share,
                                 .launches = index_loss_launches,
                                 .workspace = index_loss_workspace,
                                 .flags = OPF_WRITES_STATE | OPF_MIXES_TOKENS};
const OpRow op_row_index_loss_grad = {.shape = index_loss_shape,
                                      .flops = index_loss_flops,
                                      .matrix_share = loss_tiles_share,
                                      .vector_share = loss_plain_share,
                                      .launches = index_loss_launches,
                                      .workspace = index_loss_workspace,
                                      .flags = OPF_WRITES_STATE | OPF_MIXES_TOKENS};
