/* layout.c - the lengths of shared rows, and how many of them an update is expected to fill. */
#include "grpo/layout.h"

#include <math.h>

#include "grpo/batches.h"

const char *layout_forbids(const GrpoSpec *s, const ModelConfig *policy, bool whole_groups) {
    /* a row of the verifying pass, which takes whole groups, is then not a row of the update */
    if (s->exact && !whole_groups)
        return "with --exact-policy an update must train on whole groups (--steps-per-generation above --accum)";
    if (!model_family(policy)->shares_prefix)
        return "this family of models selects the keys of one sequence a row";
    if (s->reference_kind == REFERENCE_MODEL && !model_family(&s->reference.config)->shares_prefix)
        return "the reference is of a family that selects the keys of one sequence a row";
    return NULL;
}

static int64_t answers_a_row(const GrpoSpec *s, int64_t micro_batch) {
    return s->share_prompts && s->prompt_tokens > 1 ? batches_common_divisor(s->group, micro_batch) : 1;
}

void layout_apply(const Task *t, JobSpec *s, int64_t micro_batch, MachineKind kind) {
    const GrpoTask *g = (const GrpoTask *)t;
    int64_t n = answers_a_row(&g->spec, micro_batch);
    s->row_samples = n;
    s->shared_tokens = n > 1 ? g->spec.prompt_tokens - 1 : 0;
    s->seq = n > 1 ? s->shared_tokens + n * g->spec.answer_tokens : g->spec.prompt_tokens + g->spec.answer_tokens;
    for (int64_t i = 0; g->layouts && i < g->layouts->n; i++)
        if (g->layouts->answers[i] == n) s->rows = &g->layouts->rows[i];
}

/* The groups that so many answers of `of` come from, which are drawn: a group stays out with all its answers. */
static double groups_of(const GrpoSpec *s, int64_t answers, int64_t of) {
    double from = (double)MAX2(of, answers), left_out = 1 - (double)answers / from;
    return from / (double)s->group * (1 - pow(left_out, (double)s->group));
}

/* Each of which may bring a prompt of its own. */
static int64_t answers_of_any_group(const GrpoSpec *s, int64_t n) {
    int64_t prompt = s->prompt_tokens - 1;
    return (prompt + n * s->answer_tokens) / (prompt + s->answer_tokens);
}

/* How many rows an update's answers fill is known when they are there. The search takes any number from a quarter
 * of the most to all to be equally likely, so that it leaves little padding to be computed. The times of its
 * answer are for completions of --max-tokens, or of --expected-completion on average, packed; each border between
 * packed rows cuts a group, whose prompt is then in both. */
static void expect_rows(UpdateRows *u, const GrpoSpec *s, int64_t answers, int64_t of, int64_t n) {
    double answer = (double)s->answer_tokens, expected = (double)(answers * grpo_expected_tokens(s)), full;
    double prompt = (double)(s->prompt_tokens - (n > 1)), groups = groups_of(s, answers, of);
    int64_t least = of > answers && n > 1 ? answers_of_any_group(s, n) : n; /* that a full row holds */
    *u = (UpdateRows){.samples = answers, .most = (answers + least - 1) / least};
    u->count = MEM_NEW(int64_t, u->most + 1);
    for (int64_t r = MAX2(u->most / 4, 1); r <= u->most; r++) u->count[r] = 1, u->updates++;
    if (n > 1)
        full = ((groups - 1) * prompt + expected) / ((double)n * answer);
    else
        full = ((double)answers * prompt + expected) / (prompt + answer);
    u->expected = (int64_t)MIN2(ceil(full / 0.95), (double)u->most);
    u->mean_rows = (double)u->expected;
    double prompts = n == 1 ? (double)answers : u->expected == u->most ? u->mean_rows : groups + u->mean_rows - 1;
    u->mean_tokens = prompts * prompt + expected;
    u->fill = u->mean_tokens / (u->mean_rows * (prompt + (double)n * answer));
}

void layouts_make(Layouts *l, const GrpoSpec *s, int64_t answers, int64_t of) {
    layouts_free(l);
    for (int64_t n = 1; n <= s->group; n++) l->n += s->group % n == 0;
    l->answers = MEM_NEW(int64_t, l->n);
    l->rows = MEM_NEW(UpdateRows, l->n);
    for (int64_t n = 1, i = 0; n <= s->group; n++) {
        if (s->group % n) continue;
        l->answers[i] = n;
        expect_rows(&l->rows[i++], s, answers, of, n);
    }
}

void layouts_free(Layouts *l) {
    for (int64_t i = 0; i < l->n; i++) update_rows_free(&l->rows[i]);
    mem_free(l->rows);
    mem_free(l->answers);
    *l = (Layouts){0};
}
