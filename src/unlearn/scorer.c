/* scorer.c - logits of a token to what is said about it. */
#include "unlearn/scorer.h"

#include <math.h>

#include "base/stop.h"
#include "base/threads.h"
#include "base/work.h"

enum { SCORES_BLOCK = 64 }; /* tokens whose logits are on the host at a time */

typedef struct LogitsPass {
    int phase;
    Tid logits; /* read after each play */
} LogitsPass;

static bool record_logits(const Task *t, Job *j, Err *e) {
    Program *p = &j->ring->p;
    LogitsPass *l = j->own = ARENA_NEW(&p->arena, LogitsPass, 1);
    ModelInput in = j->in;
    ModelOut out = {.tap_layer = -1};
    (void)t, (void)e;
    in.id_order = NONE;
    l->phase = prog_begin_phase(p, "logits", 2);
    model_hidden(p, &j->m, &in, &out);
    l->logits = op_head_logits(p, out.hidden, j->m.head);
    prog_end_phase(p);
    return true;
}

static void supervised_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots) {
    task_supervised.loss(t, j, m, stat, roots);
}

const Task task_logits = {.name = "scores", .record = record_logits, .loss = supervised_loss};

int64_t scores_bytes(const Dataset *d) {
    return dataset_report(d)->scored_tokens * (int64_t)sizeof(TokenScore) + (dataset_rows(d) + 1) * 8;
}

/* log p = x - log sum exp; mean and deviation of it under p. */
TokenScore score_of_logits(const float *x, int64_t vocab, int32_t label) {
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (x[i] > x[best]) best = i;
    double top = (double)x[best], sum = 0, mean = 0, square = 0;
    for (int64_t i = 0; i < vocab; i++) {
        double at = (double)x[i] - top, w = exp(at);
        sum += w;
        mean += w * at;
        square += w * at * at;
    }
    double lse = log(sum);
    mean /= sum;
    return (TokenScore){.logp = (float)((double)x[label] - top - lse),
                        .mean = (float)(mean - lse),
                        .deviation = (float)sqrt(fmax(square / sum - mean * mean, 0)),
                        .likeliest = best == label};
}

/* ---- a block of tokens, shared out among threads ---- */

typedef struct Block {
    Threads *team; /* owns */
    float *logits; /* owns; [SCORES_BLOCK, vocabulary] */
    int64_t vocab;
    int32_t label[SCORES_BLOCK];
    int n;
    TokenScore *out; /* of the block's first token */
} Block;

int64_t scores_making_bytes(int64_t vocab, int threads) {
    return SCORES_BLOCK * vocab * (int64_t)sizeof(float) + (int64_t)sizeof(Block) +
           threads * (int64_t)THREAD_STACK_BYTES;
}

static void score_token(void *context, int64_t tile, int worker) {
    Block *b = context;
    (void)worker;
    b->out[tile] = score_of_logits(b->logits + tile * b->vocab, b->vocab, b->label[tile]);
}

static void score_block(Block *b) {
    threads_for(b->team, b->n, score_token, b);
    b->out += b->n;
    b->n = 0;
}

static bool score_batch(Scores *s, Run *run, int64_t row, Block *b, Err *e) {
    const LogitsPass *l = run->job->own;
    Exec *x = &run->ring->x;
    int64_t seq = run->batch.seq;
    step_put_batch(run, &run->batch);
    exec_play(x, l->phase);
    if (!exec_sync(x, e)) return false;
    b->out = s->token + s->first[row];
    for (int64_t r = 0; r < run->rows.n_rows; r++) {
        int64_t tokens = 0;
        for (int64_t k = r * seq; k < (r + 1) * seq; k++) {
            if (!(run->batch.weight[k] > 0)) continue;
            exec_get(x, l->logits, b->logits + b->n * b->vocab, k * b->vocab * 4, b->vocab * 4);
            b->label[b->n++] = run->batch.labels[k];
            if (b->n == SCORES_BLOCK) score_block(b);
            tokens++;
        }
        s->first[row + r + 1] = s->first[row + r] + tokens;
    }
    score_block(b);
    return true;
}

static bool score_rows(Scores *s, Run *run, Dataset *d, Block *b, Err *e) {
    int64_t rows = dataset_rows(d), micro = run->job->spec.micro_batch;
    Work work;
    bool ok = true;
    work_begin(&work, WORK_COUNT, rows, "scoring answers");
    for (int64_t row = 0; ok && row < rows; row += micro) {
        dataset_list_rows(d, &run->rows, 0, row, MIN2(micro, rows - row));
        batch_fill(&run->batch, d, &run->rows, 0);
        ok = score_batch(s, run, row, b, e) && work_on(&work, MIN2(row + micro, rows), e);
    }
    work_end(&work);
    return ok;
}

bool scores_make(Scores *s, Run *run, Dataset *d, int threads, Err *e) {
    Block *b = MEM_NEW(Block, 1);
    b->vocab = run->job->spec.m.config.vocab;
    b->logits = MEM_NEW(float, SCORES_BLOCK * b->vocab);
    *s = (Scores){.token = MEM_NEW(TokenScore, MAX2(dataset_report(d)->scored_tokens, 1)),
                  .first = MEM_NEW(int64_t, dataset_rows(d) + 1),
                  .rows = dataset_rows(d)};
    bool ok = threads_open(&b->team, threads, e) && score_rows(s, run, d, b, e);
    if (b->team) threads_close(b->team);
    mem_free(b->logits);
    mem_free(b);
    return ok;
}

void scores_free(Scores *s) {
    mem_free(s->token);
    mem_free(s->first);
    *s = (Scores){0};
}
