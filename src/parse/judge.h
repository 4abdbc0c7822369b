/* judge.h - a model that parses while it is trained: held-out sentences are answered between updates, on the ring
 * of the job, and their graphs scored, so that the best checkpoint is the one that parses best.
 *
 * Prompts and gold graphs are taken from the rows of the held-out set: what is not scored of a row is the prompt,
 * what is scored the answer. The passes over the trained weights are phases of the job's own ring, so they are in
 * its plan, and the cache takes bytes that the training step has left.
 *
 *     graph_judge_read(&g, held_out, ..., &e);   // before the job is planned; the judge stays where it is
 *     job.task = &g.task;
 *     run_options.judge = &g.judge;              // run.h
 *     graph_judge_close(&g);                     // before run_close */
#ifndef PARSE_JUDGE_H
#define PARSE_JUDGE_H

#include "amr/corpus.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "gen/engine.h"
#include "train/run.h"

typedef enum GraphMeasure {
    GRAPHS_SMATCH, /* F1 over all held-out sentences */
    GRAPHS_VALID   /* the share of answers that are a valid graph */
} GraphMeasure;

typedef struct GraphJudgeOptions { /* keeps what it points to */
    GraphMeasure measure;
    const Tokenizer *tokenizer;
    const int32_t *stop_id;
    int n_stop_ids;
    int64_t most; /* sentences, the first of the set; 0: all */
} GraphJudgeOptions;

typedef struct GraphItem {
    int64_t begin, n; /* its prompt, among GraphJudge.ids */
} GraphItem;

typedef struct GraphJudge {
    Task task; /* supervised training beside passes that answer; first, so that it leads back here */
    RunJudge judge;
    GraphJudgeOptions o;
    int64_t slots, context;
    GraphItem *item; /* owns, like ids */
    int64_t n, room;
    int64_t without_gold; /* rows that were left out: their answer is no valid graph (cut short, say) */
    TokenIds ids;
    AmrCorpus gold;
    Str *answer; /* owns; [n] */
    Engine engine;
    Gen *gen; /* in the program's arena; NULL until the ring is open */
} GraphJudge;

/* Refused: rows that share their row with others, and a set in which no answer is a graph. graph_judge_close in
 * either case. */
bool graph_judge_read(GraphJudge *g, const Dataset *held_out, const GraphJudgeOptions *o, Err *e);
void graph_judge_close(GraphJudge *g);          /* zeros are fine */
int64_t graph_judge_bytes(const GraphJudge *g); /* host memory of prompts, graphs and answers, at most */

#endif
