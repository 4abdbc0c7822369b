/* report.c - attention statistics for reports: the share of a token's dense attention that its selection holds, the
 * share on the first token, how far gates are open. */
#include <math.h>
#include <string.h>

#include "backend/cpu/sparse.h"
#include "ir/sampling.h"

enum { BLOCK = SPARSE_BLOCK, CHUNK = 1024 };

CPU_VECTOR static void add_scaled(float *restrict to, const float *x, float by, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
}

void sparse_dense_row(float *row, const AttrHeads *h, Operand qkv, Operand cache, int64_t cache_row, int64_t token,
                      int64_t begin, int64_t end, float *scratch) {
    int64_t dim = h->head_dim, group = sparse_group(h), width = (h->heads + 2 * h->kv_heads) * dim, n = end - begin,
            span = sparse_span(h);
    float *q = scratch, *s = q + group * dim, *block = s + group * span;
    memset(row + begin, 0, (size_t)n * sizeof *row);
    for (int64_t g = 0; g < h->kv_heads; g++) {
        Keys keys = sparse_heads(h, qkv, cache, cache_row, g);
        cpu_load(q, qkv.data, qkv.t->format, token * width + g * group * dim, group * dim);
        for (int64_t at = 0; at < n; at += BLOCK) {
            int64_t some = MIN2(BLOCK, n - at);
            keys_gather(block, &keys, NULL, begin + at, some);
            cpu_multiply(&(CpuBlock){.rows = group,
                                     .cols = some,
                                     .inner = dim,
                                     .a = q,
                                     .lda = dim,
                                     .b = block,
                                     .ldb = dim,
                                     .b_transposed = true,
                                     .c = s + at,
                                     .ldc = span,
                                     .alpha = h->scale});
        }
        for (int64_t r = 0; r < group; r++) {
            float *p = s + r * span;
            cpu_exp(p, p, cpu_max(p, n), n);
            add_scaled(row + begin, p, (float)(1.0 / cpu_sum(p, n)), n);
        }
    }
}

typedef struct Report {
    const Args *a;
    AttrHeads h;
    int64_t words, most, each; /* bytes of all words; columns of the selection; a worker's bytes */
} Report;

/* The sum of the k largest. */
static double best_sum(const float *x, uint32_t *order, int64_t n, int64_t k) {
    int64_t above;
    double sum = 0, least = 0;
    for (int64_t i = 0; i < n; i++) order[i] = draw_order(x[i]);
    uint32_t word = sparse_kth_largest(order, n, k, &above);
    for (int64_t i = 0; i < n; i++) {
        if (order[i] > word) sum += x[i];
        if (order[i] == word) least = x[i];
    }
    return sum + (double)(k - above) * least;
}

static void report_token(void *context, int64_t i, int worker) {
    const Report *t = context;
    const Args *a = t->a;
    int64_t token = sparse_report_token(i, t->h.seq);
    float *row = cpu_scratch(a, t->words, t->each, worker);
    uint32_t *order = (uint32_t *)(row + t->h.seq);
    double *to = (double *)a->workspace + i * REPORT_WORDS, heads = t->h.heads;
    const int32_t *list = t->most ? (const int32_t *)a->attend_report.in.keys.data + token * t->most : NULL;
    int64_t end = token % t->h.seq + 1, begin = MAX2(((const int32_t *)a->attend_report.in.doc_begin.data)[token], 0);
    int64_t k = list ? sparse_count(list, t->most) : 0;
    memset(to, 0, REPORT_WORDS * sizeof *to);
    sparse_dense_row(row, &t->h, a->attend_report.in.qkv, (Operand){0}, token / t->h.seq, token, begin, end,
                     (float *)(order + t->h.seq));
    to[REPORT_TOKENS] = 1;
    to[REPORT_SEEN] = (double)(end - begin);
    to[REPORT_KEYS] = (double)k;
    for (int64_t n = 0; n < k; n++) to[REPORT_MASS] += row[list[n]] / heads;
    to[REPORT_BEST] = k ? best_sum(row + begin, order, end - begin, k) / heads : 0;
    to[REPORT_KEYS_MOST] = (double)k;
    to[REPORT_KEYS_LEAST] = k ? (double)(REPORT_FAR - k) : 0;
    to[REPORT_LATER] = end - 1 > begin;
    to[REPORT_FIRST] = end - 1 > begin ? row[begin] / heads : 0;
}

static void add_words(Operand stat, Operand beta, const double *sum) {
    double *to = stat.data, by = cpu_beta(beta);
    for (int i = 0; i < REPORT_SUMS; i++) to[i] = by == 0 ? sum[i] : by * to[i] + sum[i];
    for (int i = REPORT_SUMS; i < REPORT_WORDS; i++) to[i] = by == 0 ? sum[i] : MAX2(by * to[i], sum[i]);
}

void cpu_attend_report(Backend *b, Queue q, const Args *a) {
    AttrHeads h = a->step->attr.heads;
    int64_t rows = cpu_rows(a->attend_report.in.qkv.t), tokens = sparse_report_tokens(rows, h.seq);
    Report t = {.a = a,
                .h = h,
                .words = sparse_report_words(rows, h.seq),
                .most = a->attend_report.in.keys.data ? cpu_cols(a->attend_report.in.keys.t) : 0};
    double sum[REPORT_WORDS] = {0};
    t.each = sparse_report_bytes(&t.h);
    threads_for(cpu_threads(b), tokens, report_token, &t);
    for (int64_t i = 0; i < tokens * REPORT_WORDS; i++) {
        int w = (int)(i % REPORT_WORDS);
        double x = ((double *)a->workspace)[i];
        sum[w] = w < REPORT_SUMS ? sum[w] + x : MAX2(sum[w], x);
    }
    add_words(a->attend_report.out.stat, a->attend_report.in.beta, sum);
}

void cpu_gate_report(Backend *b, Queue q, const Args *a) {
    Operand z = a->gate_report.in.z;
    GateAct act = a->step->attr.gate.act;
    double sum[REPORT_WORDS] = {[REPORT_GATES] = (double)cpu_count(z.t)};
    float buffer[CHUNK];
    for (int64_t at = 0; at < cpu_count(z.t); at += CHUNK) {
        int64_t n = MIN2(CHUNK, cpu_count(z.t) - at);
        const float *x = cpu_read(buffer, z, at, n);
        for (int64_t i = 0; i < n; i++) {
            double open = 1 / (1 + exp(-(double)x[i] * (act == GATE_TANH ? 2 : 1)));
            if (act == GATE_SILU) open *= x[i];
            sum[REPORT_OPEN] += open;
            sum[REPORT_SHUT] += open < 0.1;
            sum[REPORT_GATE_MOST] = MAX2(sum[REPORT_GATE_MOST], 1 + open);
            sum[REPORT_GATE_LEAST] = MAX2(sum[REPORT_GATE_LEAST], REPORT_FAR - open);
        }
    }
    add_words(a->gate_report.out.stat, a->gate_report.in.beta, sum);
}
