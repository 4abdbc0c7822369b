/* scorer.c - what a distribution says about its token, from the device to the rows of a set. */
#include "unlearn/scorer.h"

#include "base/stop.h"
#include "base/work.h"

typedef struct LogitsPass {
    int phase;
    Tid score; /* read after each play */
} LogitsPass;

static bool record_logits(const Task *t, Job *j, Err *e) {
    Program *p = &j->ring->p;
    LogitsPass *l = j->own = ARENA_NEW(&p->arena, LogitsPass, 1);
    (void)t, (void)e;
    l->phase = prog_begin_phase(p, "logits", 2);
    l->score = op_token_score(p, op_head_logits(p, job_hidden(j, &j->m), j->m.head), j->labels);
    prog_end_phase(p);
    return true;
}

const Task task_logits = {.name = "scores", .record = record_logits, .loss = job_supervised_loss};

int64_t scores_bytes(const Dataset *d) {
    return dataset_report(d)->scored_tokens * (int64_t)sizeof(TokenScore) + (dataset_rows(d) + 1) * 8;
}

static bool score_batch(Scores *s, Run *run, int64_t row, float *read, Err *e) {
    const LogitsPass *l = run->job->own;
    Exec *x = &run->ring->x;
    int64_t seq = run->batch.seq;
    step_put_batch(run, &run->batch, l->phase);
    exec_play(x, l->phase);
    if (!exec_sync(x, e)) return false;
    exec_get(x, l->score, read, 0, run->rows.n_rows * seq * TOKEN_SCORES * 4);
    TokenScore *to = s->token + s->first[row];
    for (int64_t r = 0; r < run->rows.n_rows; r++) {
        for (int64_t k = r * seq; k < (r + 1) * seq; k++) {
            const float *at = read + k * TOKEN_SCORES;
            if (run->batch.weight[k] > 0)
                *to++ = (TokenScore){at[SCORE_LOGP], at[SCORE_MEAN], at[SCORE_DEVIATION], at[SCORE_LIKELIEST] > 0};
        }
        s->first[row + r + 1] = to - s->token;
    }
    return true;
}

static bool score_rows(Scores *s, Run *run, Dataset *d, float *read, Err *e) {
    int64_t rows = dataset_rows(d), micro = run->job->spec.micro_batch;
    Work work;
    bool ok = true;
    work_begin(&work, WORK_COUNT, rows, "scoring answers");
    for (int64_t row = 0; ok && row < rows; row += micro) {
        dataset_list_rows(d, &run->rows, 0, row, MIN2(micro, rows - row));
        batch_fill(&run->batch, d, &run->rows, 0);
        ok = score_batch(s, run, row, read, e) && work_on(&work, MIN2(row + micro, rows), e);
    }
    work_end(&work);
    return ok;
}

int64_t scores_making_bytes(const JobSpec *s) {
    return s->micro_batch * s->seq * TOKEN_SCORES * (int64_t)sizeof(float);
}

bool scores_make(Scores *s, Run *run, Dataset *d, Err *e) {
    *s = (Scores){.token = MEM_NEW(TokenScore, MAX2(dataset_report(d)->scored_tokens, 1)),
                  .first = MEM_NEW(int64_t, dataset_rows(d) + 1),
                  .rows = dataset_rows(d)};
    float *read = MEM_NEW(float, scores_making_bytes(&run->job->spec) / (int64_t)sizeof(float));
    bool ok = score_rows(s, run, d, read, e);
    mem_free(read);
    return ok;
}

void scores_free(Scores *s) {
    mem_free(s->token);
    mem_free(s->first);
    *s = (Scores){0};
}
