/* embed.c - rows of a table by token id, and the gradient that falls back onto them.
 *
 * The gradient walks id_order, where the tokens of one id stand together: a run of equal ids is summed in order
 * and added to its row once. A run belongs to the block of order places it begins in, however far it reaches. */
#include <string.h>

#include "backend/cpu/rows.h"

enum { CHUNK = 512, TOKENS_A_TILE = 16, PLACES_A_BLOCK = 64, ZERO_BYTES = 1 << 18 };

typedef struct Embed {
    const Args *a;
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
    const Args *a = t->a;
    float buffer[CHUNK];
    for (int64_t i = tile * TOKENS_A_TILE; i < MIN2((tile + 1) * TOKENS_A_TILE, t->tokens); i++)
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t n = MIN2(CHUNK, t->cols - c);
            rows_load(buffer, a->in[0], a->ti[0], t->ids[i], c, n);
            cpu_store(a->out[0], a->to[0]->format, i * t->cols + c, buffer, n);
        }
}

void cpu_embed(Backend *b, Queue q, const Args *a) {
    Embed t = {.a = a, .tokens = cpu_count(a->ti[1]), .cols = cpu_cols(a->to[0]), .vocab = cpu_rows(a->ti[0]),
               .ids = a->in[1]};
    check_ids(&t);
    threads_for(cpu_threads(b), (t.tokens + TOKENS_A_TILE - 1) / TOKENS_A_TILE, embed_tile, &t);
}

CPU_VECTOR static void add_row(float *restrict to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

static void embed_grad_tile(void *context, int64_t tile, int worker) {
    const Embed *t = context;
    const Args *a = t->a;
    float sum[CHUNK], buffer[CHUNK];
    int64_t c = tile % t->col_blocks * CHUNK, n = MIN2(CHUNK, t->cols - c);
    int64_t first = tile / t->col_blocks * PLACES_A_BLOCK, last = MIN2(first + PLACES_A_BLOCK, t->tokens);
    for (int64_t i = first; i < last; i++) {
        int32_t id = t->ids[t->order[i]];
        if (i && t->ids[t->order[i - 1]] == id) continue; /* not where its run begins */
        memset(sum, 0, sizeof sum);
        for (int64_t j = i; j < t->tokens && t->ids[t->order[j]] == id; j++)
            add_row(sum, cpu_view(buffer, a->in[0], a->ti[0]->format, t->order[j] * t->cols + c, n), n);
        cpu_accumulate(a->out[0], a->to[0]->format, id * t->cols + c, sum, n, t->beta, t->key);
    }
}

static void zero_tile(void *context, int64_t tile, int worker) {
    const Embed *t = context;
    int64_t bytes = t->vocab * t->cols * format_item_bytes(t->a->to[0]->format), at = tile * ZERO_BYTES;
    memset((char *)t->a->out[0] + at, 0, (size_t)MIN2(ZERO_BYTES, bytes - at));
}

void cpu_embed_grad(Backend *b, Queue q, const Args *a) {
    Embed t = {.a = a, .tokens = cpu_count(a->ti[1]), .cols = cpu_cols(a->to[0]), .vocab = cpu_rows(a->to[0]),
               .ids = a->in[1], .order = a->in[2], .beta = cpu_beta(a, 3), .key = cpu_draw_key(a, 4)};
    check_ids(&t);
    CHECK_MSG(t.beta == 0 || t.beta == 1, "beta %g: rows without a token are kept or cleared, never scaled",
              t.beta);
    for (int64_t i = 0; i < t.tokens; i++) CHECK(t.order[i] >= 0 && t.order[i] < t.tokens);
    if (t.beta == 0) { /* rows without a token */
        int64_t bytes = t.vocab * t.cols * format_item_bytes(a->to[0]->format);
        threads_for(cpu_threads(b), (bytes + ZERO_BYTES - 1) / ZERO_BYTES, zero_tile, &t);
    }
    t.col_blocks = (t.cols + CHUNK - 1) / CHUNK;
    threads_for(cpu_threads(b), (t.tokens + PLACES_A_BLOCK - 1) / PLACES_A_BLOCK * t.col_blocks, embed_grad_tile,
                &t);
}
