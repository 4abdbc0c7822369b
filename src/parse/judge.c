/* judge.c - which passes stand beside the training step, how held-out sentences are answered on them, and what
 * their graphs are worth. */
#include "parse/judge.h"

#include <string.h>

#include "amr/answer.h"
#include "amr/smatch.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/units.h"

enum { MOST_SLOTS = 32, CHUNK = 256, GRAIN = 64 };

/* ---- the ring ---- */

static bool record(const Task *t, Job *j, Err *e) {
    const GraphJudge *g = (const GraphJudge *)t;
    Gen *passes = j->own = ARENA_NEW(&j->ring->p.arena, Gen, 1);
    Model trained = model_twin(&j->ring->p, &j->m, true); /* the same weights, without dropout */
    GenSpec s = {.m = j->spec.m,
                 .cache = j->spec.m.activations,
                 .slots = g->slots,
                 .context = g->context,
                 .chunk = MIN2(CHUNK, g->context),
                 .shares_arena = true,
                 .estimate = j->spec.estimate};
    return gen_record(passes, j->ring, &s, &trained, e);
}

/* ---- prompts and gold graphs ---- */

typedef struct RowTokens {
    int32_t *ids, *labels, *positions, *begin; /* own */
    float *weight;
} RowTokens;

static RowTokens row_tokens(int64_t seq) {
    return (RowTokens){MEM_NEW(int32_t, seq), MEM_NEW(int32_t, seq), MEM_NEW(int32_t, seq), MEM_NEW(int32_t, seq),
                       MEM_NEW(float, seq)};
}

static void row_tokens_free(RowTokens *t) {
    mem_free(t->ids);
    mem_free(t->labels);
    mem_free(t->positions);
    mem_free(t->begin);
    mem_free(t->weight);
}

/* The answer's graph into gold, as a block; false: it is no valid one. */
static bool add_gold(const GraphJudge *g, Str *gold, const int32_t *ids, int64_t n) {
    Str text = {0};
    Penman graph = {0};
    AmrRepairs none;
    bool ok = tokenizer_decode(g->o.tokenizer, &text, ids, n, true, NULL) &&
              amr_take(&graph, &none, str_text(&text), text.len, (AmrTake){0}, NULL);
    if (ok) penman_print(gold, &graph, PENMAN_ONE_LINE);
    if (ok) str_add(gold, "\n\n");
    penman_free(&graph);
    str_free(&text);
    return ok;
}

static void add_item(GraphJudge *g, Str *gold, const RowTokens *t, int64_t n) {
    int64_t first = 0;
    while (first + 1 < n && t->labels[first] < 0) first++;
    if (!add_gold(g, gold, t->ids + first + 1, n - first - 1)) {
        g->without_gold++;
        return;
    }
    g->item = mem_grow(g->item, &g->room, g->n + 1, sizeof *g->item);
    g->item[g->n++] = (GraphItem){g->ids.n, first + 1};
    for (int64_t i = 0; i <= first; i++) token_ids_add(&g->ids, t->ids[i]);
    g->context = MAX2(g->context, n);
}

static void read_items(GraphJudge *g, Str *gold, const Dataset *d) {
    RowTokens t = row_tokens(dataset_seq(d));
    for (int64_t row = 0; row < dataset_rows(d) && (!g->o.most || g->n < g->o.most); row++) {
        dataset_row_fill(d, row, t.ids, t.labels, t.weight, t.positions, t.begin);
        add_item(g, gold, &t, dataset_row_tokens(d, row));
    }
    row_tokens_free(&t);
}

static bool open_passes(void *user, Run *r, Err *e);
static bool score(void *user, Run *r, double *value, Err *e);

bool graph_judge_read(GraphJudge *g, const Dataset *d, const GraphJudgeOptions *o, Err *e) {
    Str gold = {0};
    *g = (GraphJudge){.o = *o};
    g->task = (Task){.name = "supervised, and answers", .record = record, .loss = task_supervised.loss};
    g->judge = (RunJudge){.user = g,
                          .name = o->measure == GRAPHS_SMATCH ? "smatch" : "validity",
                          .open = open_passes,
                          .score = score};
    if (dataset_is_packed(d) && !dataset_packs_updates(d))
        return fail(e, ERR_USAGE,
                    "--save-best %s: sentences are parsed one by one; it goes with --pack update or off",
                    g->judge.name);
    read_items(g, &gold, d);
    if (!g->n) {
        str_free(&gold);
        return fail(e, ERR_FAIL,
                    "--save-best %s: no held-out answer holds an AMR graph. Is this an AMR corpus, and --seq "
                    "large enough for "
                    "its rows?",
                    g->judge.name);
    }
    bool ok = amr_corpus_parse(&g->gold, &gold, "the held-out graphs", 1, e);
    CHECK(!ok || g->gold.n == g->n);
    g->answer = MEM_NEW(Str, g->n);
    g->slots = MIN2(g->n, MOST_SLOTS);
    g->context =
        MIN2(units_round_up(g->context + g->context / 4, GRAIN), dataset_seq(d)); /* longer than any gold graph */
    log_line("the best checkpoint is chosen by %s on %s held-out sentences%s", g->judge.name, units_count(g->n).s,
             g->without_gold ? "; others have no whole graph" : "");
    return ok;
}

void graph_judge_close(GraphJudge *g) {
    engine_close(&g->engine);
    if (g->gen) arena_free(&g->gen->arena);
    for (int64_t i = 0; g->answer && i < g->n; i++) str_free(&g->answer[i]);
    mem_free(g->answer);
    mem_free(g->item);
    token_ids_free(&g->ids);
    amr_corpus_free(&g->gold);
    *g = (GraphJudge){0};
}

/* A graph's tree takes some twenty times its text; predictions are kept and parsed beside the gold ones. */
int64_t graph_judge_bytes(const GraphJudge *g) {
    int64_t text = g->gold.text.len;
    return g->room * (int64_t)sizeof(GraphItem) + 4 * g->ids.capacity + 60 * text +
           g->n * (int64_t)(sizeof(Str) + sizeof(SmatchCounts) * SMATCH_METRICS);
}

/* ---- answering ---- */

static bool open_passes(void *user, Run *r, Err *e) {
    GraphJudge *g = user;
    g->gen = r->job->own;
    if (!gen_open(g->gen, e) || !gen_warm(g->gen, e)) return false;
    engine_open(&g->engine, g->gen, g->o.tokenizer, (EngineOptions){0});
    return true;
}

static bool submit(void *user, int64_t i, Err *e) {
    GraphJudge *g = user;
    const GraphItem *item = &g->item[i];
    str_clear(&g->answer[i]);
    Request q = {.prompt = g->ids.ids + item->begin,
                 .n_prompt = item->n,
                 .max_new = MAX2(1, g->context - item->n),
                 .samples = 1,
                 .sampling = {.top_p = 1, .repetition = 1}, /* greedy: the same weights give the same score */
                 .stop_id = g->o.stop_id,
                 .n_stop_ids = g->o.n_stop_ids,
                 .number = i};
    return engine_submit(&g->engine, &q, NULL, e);
}

static bool take(void *user, const EngineEvent *ev, Err *e) {
    GraphJudge *g = user;
    if (ev->kind == EVENT_DONE) str_add_bytes(&g->answer[ev->request->number], str_text(ev->text), ev->text->len);
    return true;
}

static bool answer_all(GraphJudge *g, Err *e) {
    engine_forget(&g->engine); /* training has used the cache's bytes */
    EngineAsk ask = {.total = g->n, .submit = submit, .take = take, .user = g};
    return engine_ask(&g->engine, &ask, e) || (stop_caused(e) && fail_within(e, "parsing held-out sentences"));
}

/* ---- scoring ---- */

/* Blocks in the order of the sentences; an answer without a graph is one that failed. */
static bool collect(const GraphJudge *g, AmrCorpus *predicted, Err *e) {
    Str text = {0};
    for (int64_t i = 0; i < g->n; i++) {
        Penman graph;
        AmrRepairs none;
        const Str *answer = &g->answer[i];
        if (amr_take(&graph, &none, str_text(answer), answer->len, (AmrTake){0}, NULL))
            penman_print(&text, &graph, PENMAN_ONE_LINE);
        else
            amr_print_failure(&text, "");
        str_add(&text, "\n\n");
        penman_free(&graph);
    }
    return amr_corpus_parse(predicted, &text, "the parsed sentences", 1, e);
}

static bool score(void *user, Run *r, double *value, Err *e) {
    GraphJudge *g = user;
    AmrCorpus predicted = {0};
    SmatchScore s = {0};
    SmatchOptions how = smatch_defaults();
    how.only_full = true;
    bool ok = answer_all(g, e) && collect(g, &predicted, e) && smatch_score(&s, &g->gold, &predicted, &how, e);
    if (ok)
        *value =
            g->o.measure == GRAPHS_SMATCH ? smatch_f1(s.of[SMATCH_FULL]) : (double)predicted.valid / (double)g->n;
    smatch_score_free(&s);
    amr_corpus_free(&predicted);
    return ok;
}
