/* exact.c - how answers are compared with what the trainer draws, and mended. */
#include "grpo/exact.h"

#include <string.h>

#include "base/stop.h"

enum { MOST_ROUNDS = 100 };

/* A row's draw: the key of its completion, the number of its token; the head has applied the temperature. Places
 * without a label draw nothing. */
static void put_hows(GrpoRun *g, Run *r, const Ask *ask, int64_t first) {
    const Batch *b = &g->batch.b;
    const RolloutRows *l = &g->rows;
    for (int64_t row = 0; row < b->rows && first + row < l->rows; row++) {
        for (int64_t i = l->first[first + row]; i < l->first[first + row + 1]; i++) {
            const Completion *c = &g->rollout.c[l->member[i]];
            DrawHow how = answers_how(&g->policy, &g->o.policy, ask, l->member[i], c->sample);
            how.temperature = 1;
            for (int64_t k = 0; k < completion_tokens(c); k++) {
                how.first = -(int32_t)k;
                g->how[row * b->seq + l->from[i] + k] = how;
            }
        }
    }
    exec_put(&r->ring->x, grpo_ring(g->job)->verify_how, g->how, 0, b->rows * b->seq * (int64_t)sizeof *g->how);
}

/* Puts the trainer's token in place of the first one that differs, and gives how many tokens are kept, that one
 * included; 0: none differs. drawn[k]: what the trainer drew as token k of the answer; below 0: nothing. */
static int64_t compare(Completion *c, const int32_t *drawn) {
    for (int64_t k = 0; k < completion_tokens(c); k++) {
        int32_t own = drawn[k];
        if (own == c->ids[c->n_prompt + k] || own < 0) continue;
        c->ids[c->n_prompt + k] = own;
        return k + 1;
    }
    return 0;
}

/* Appends the completions of these rows that differ to which and kept. */
static int64_t compare_rows(GrpoRun *g, int64_t first, int64_t n) {
    const Batch *b = &g->batch.b;
    const RolloutRows *l = &g->rows;
    for (int64_t row = 0; row < b->rows && first + row < l->rows; row++) {
        for (int64_t i = l->first[first + row]; i < l->first[first + row + 1]; i++) {
            Completion *c = &g->rollout.c[l->member[i]];
            int64_t kept = compare(c, g->drawn + row * b->seq + l->from[i]);
            if (kept) g->which[n] = l->member[i], g->kept[n++] = kept;
        }
    }
    return n;
}

/* The training forward over these completions, laid out as an update of them would be. */
static bool verify(GrpoRun *g, Run *r, const Ask *ask, int64_t members, int64_t *n, Err *e) {
    const GrpoRing *ring = grpo_ring(g->job);
    const Batch *b = &g->batch.b;
    rollout_rows_pack(&g->rows, &g->rollout, g->member, members, b->seq);
    for (int64_t first = 0; first < g->rows.rows; first += b->rows) {
        if (stop_asked()) return false;
        rollout_batch_fill(&g->batch, &g->rollout, &g->rows, first, NULL);
        grpo_put_rows(g, r);
        put_hows(g, r, ask, first);
        exec_play(&r->ring->x, ring->phase_verify);
        g->facts.verifications++;
        if (!exec_sync(&r->ring->x, e)) return false;
        exec_get(&r->ring->x, ring->verify_drawn, g->drawn, 0, b->rows * b->seq * 4);
        exec_get(&r->ring->x, ring->verify_logp, g->logp, 0, b->rows * b->seq * 4);
        rollout_take(&g->rollout, &g->batch, &g->rows, first, g->logp, ROLLOUT_SAMPLED);
        rollout_take(&g->rollout, &g->batch, &g->rows, first, g->logp, ROLLOUT_OLD);
        *n = compare_rows(g, first, *n);
    }
    return true;
}

/* Answers those that differ on and, where they are to settle among themselves, looks at them again until none
 * differs. */
static bool mend(GrpoRun *g, Run *r, const Ask *ask, int64_t n, bool settle, Err *e) {
    while (n) {
        int64_t members = n;
        g->facts.redrawn += n;
        if (!answers_go_on(&g->policy, &g->o.policy, &g->rollout, ask, g->which, g->kept, n, e)) return false;
        if (!settle) return true;
        memcpy(g->member, g->which, (size_t)n * sizeof *g->member);
        n = 0;
        if (!verify(g, r, ask, members, &n, e)) return false;
    }
    return true;
}

/* A few passes over the answers that differ settle most of them. Then whole updates are verified, laid out as they will
 * be trained on, because rounding depends on the rows beside an answer. From there on that layout alone judges: two
 * layouts that draw different tokens could alternate for ever. */
bool exact_settle(GrpoRun *g, Run *r, const Ask *ask, Err *e) {
    const Batches *b = &g->o.batches;
    int64_t updates = MAX2(b->updates / b->spec.iterations, 1), n = 1;
    for (int round = 0; n; round++) {
        n = 0;
        for (int64_t u = 0; u < updates; u++)
            if (!verify(g, r, ask, grpo_gather(g, u), &n, e)) return false;
        if (n && round == MOST_ROUNDS)
            return fail(e, ERR_FAIL,
                        "--exact-policy: %lld answers still differ from the trainer's after %d rounds. Without "
                        "--exact-policy the run goes on and reports the difference (logp_difference_max)",
                        (long long)n, round);
        if (!mend(g, r, ask, n, round == 0, e)) return false;
    }
    return true;
}
