/* embed.c - embedding lookup (gather by token id), and its gradient (scatter-add).
 *
 * The gradient walks id_order, where the tokens of one id stand together: a run of equal ids is summed in order
 * and added to its row once. A run belongs to the block of order places it begins in, however far it reaches. */
#include <string.h>

#include "backend/cpu/rows.h"

enum { CHUNK = 512, TOKENS_A_TILE = 16, PLACES_A_BLOCK = 64, ZERO_BYTES = 1 << 18 };

typedef struct Embed {
    Operand table, x; /* embed: read, written; embed_grad: d(table), d(x) */
    int64_t tokens, cols;
    int64_t vocab;
    const int32_t *ids, *order;
    int64_t col_blocks;
    float beta;
    uint64_t key;
} Embed;

static void check_ids(const Embed *t) {
    for (int64_t i = 0; i < t->tokens; i++)
        CHECK_MSG(t->ids[i] >= 0 && t->ids[i] < t->vocab, "token %lld has id %d of %lld", (long long)i, t->ids[i],
                  (long long)t->vocab);
}

static void embed_tile(void *context, int64_t tile, int worker) {
    const Embed *t = context;
    float buffer[CHUNK];
    for (int64_t i = tile * TOKENS_A_TILE; i < MIN2((tile + 1) * TOKENS_A_TILE, t->tokens); i++)
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t n = MIN2(CHUNK, t->cols - c);
            rows_load(buffer, t->table.data, t->table.t, t->ids[i], c, n);
            cpu_write(t->x, i * t->cols + c, buffer, n);
        }
}

void cpu_embed(Backend *b, Queue q, const Args *a) {
    Operand table = a->embed.in.table, ids = a->embed.in.ids, x = a->embed.out.x;
    Embed t = {.table = table, .x = x, .tokens = cpu_count(ids.t), .cols = cpu_cols(x.t), .vocab = cpu_rows(table.t),
               .ids = ids.data};
    check_ids(&t);
    threads_for(cpu_threads(b), (t.tokens + TOKENS_A_TILE - 1) / TOKENS_A_TILE, embed_tile, &t);
}

CPU_VECTOR static void add_row(float *restrict to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

static void embed_grad_tile(void *context, int64_t tile, int worker) {
    const Embed *t = context;
    float sum[CHUNK], buffer[CHUNK];
    int64_t c = tile % t->col_blocks * CHUNK, n = MIN2(CHUNK, t->cols - c);
    int64_t first = tile / t->col_blocks * PLACES_A_BLOCK, last = MIN2(first + PLACES_A_BLOCK, t->tokens);
    for (int64_t i = first; i < last; i++) {
        int32_t id = t->ids[t->order[i]];
        if (i && t->ids[t->order[i - 1]] == id) continue; /* not where its run begins */
        memset(sum, 0, sizeof sum);
        for (int64_t j = i; j < t->tokens && t->ids[t->order[j]] == id; j++)
            add_row(sum, cpu_read(buffer, t->x, t->order[j] * t->cols + c, n), n);
        cpu_accumulate(t->table.data, t->table.t->format, id * t->cols + c, sum, n, t->beta, t->key);
    }
}

static void zero_tile(void *context, int64_t tile, int worker) {
    const Embed *t = context;
    int64_t bytes = t->vocab * t->cols * format_item_bytes(t->table.t->format), at = tile * ZERO_BYTES;
    memset((char *)t->table.data + at, 0, (size_t)MIN2(ZERO_BYTES, bytes - at));
}

void cpu_embed_grad(Backend *b, Queue q, const Args *a) {
    Operand table = a->embed_grad.out.d_table, ids = a->embed_grad.in.ids;
    Embed t = {.table = table, .x = a->embed_grad.in.dx, .tokens = cpu_count(ids.t), .cols = cpu_cols(table.t),
               .vocab = cpu_rows(table.t), .ids = ids.data, .order = a->embed_grad.in.id_order.data,
               .beta = cpu_beta(a->embed_grad.in.beta), .key = cpu_draw_key(a, a->embed_grad.in.clock)};
    check_ids(&t);
    CHECK_MSG(t.beta == 0 || t.beta == 1, "beta %g: rows without a token are kept or cleared, never scaled",
              t.beta);
    for (int64_t i = 0; i < t.tokens; i++) CHECK(t.order[i] >= 0 && t.order[i] < t.tokens);
    if (t.beta == 0) { /* rows without a token */
        int64_t bytes = t.vocab * t.cols * format_item_bytes(table.t->format);
        threads_for(cpu_threads(b), (bytes + ZERO_BYTES - 1) / ZERO_BYTES, zero_tile, &t);
    }
    t.col_blocks = (t.cols + CHUNK - 1) / CHUNK;
    threads_for(cpu_threads(b), (t.tokens + PLACES_A_BLOCK - 1) / PLACES_A_BLOCK * t.col_blocks, embed_grad_tile,
                &t);
}
