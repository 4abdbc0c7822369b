/* suite.h - benchmarks as lm-evaluation-harness defines them: rows become items, an engine scores them, and the scores
 * stand under the harness's names.
 *
 *     Suite *s;
 *     if (!suite_open(&s, &spec, &e)) ...          // rows are read, put as prompts and encoded
 *     ... open an engine with a context of suite_context(s), suite_bytes(s) of host memory are taken
 *     if (!suite_run(s, &engine, &e)) ...
 *     suite_table(&text, s), suite_json(s), suite_write_items(s, path, &e), suite_picture(&text, s)
 *     suite_close(s)
 *
 * Words: a *task* is what has a line in the results; a *suite* is a name that people ask for and stands for one or more
 * tasks; an *item* is a question; a *piece* is one request of it: a choice, a window of a text, or the answer. */
#ifndef SUITE_SUITE_H
#define SUITE_SUITE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/tokenizer.h"
#include "gen/engine.h"

typedef struct Suite Suite;

typedef struct SuiteSpec { /* borrowed until suite_close */
    const char *const *name;     /* suites, in the order of the results */
    int n_names;
    const Tokenizer *tokenizer;
    const char *folder;          /* TASK/SPLIT.jsonl of every task that has rows; NULL: none was given */
    const char *const *text;     /* files and folders of perplexity */
    int n_texts;
    const char *text_field;      /* of their rows; NULL: text, or page */
    int64_t limit;               /* items of a task, or of a cell of length and depth; 0: all, or a few */
    int64_t shots;               /* few-shot examples; -1: as the task says */
    int64_t positions;           /* tokens that the model may see at once */
    const int32_t *stop_id;      /* ids that end an answer */
    int n_stop_ids;
    const int64_t *length;       /* of generated prompts, in tokens; NULL: some that the model can see */
    int n_lengths, depths;
    uint64_t seed;               /* of generated prompts */
} SuiteSpec;

bool suite_known(const char *name);           /* --suite takes it */
void suite_names(Str *out);                   /* "perplexity, mmlu, ..." */
bool suite_needs_folder(const char *name);    /* it has rows in SuiteSpec.folder */

/* Gives: suite_close, also where it fails. */
bool suite_open(Suite **s, const SuiteSpec *spec, Err *e);
void suite_close(Suite *s); /* NULL is fine */

int64_t suite_context(const Suite *s);  /* tokens of the longest request */
int64_t suite_bytes(const Suite *s);    /* host memory of the items, answers and the reading of files included */
int64_t suite_at_once(const Suite *s);  /* concurrent requests, at most */

/* Scores every item. Requests of an item follow each other in one slot, so their common prefix is computed once (prefix
 * caching). Items of a task begin with the longest, so that concurrent ones have similar lengths. */
bool suite_run(Suite *s, Engine *n, Err *e);

json_t *suite_json(const Suite *s);           /* results, groups, n-shot, ... as the harness writes them; gives */
void suite_table(Str *out, const Suite *s);   /* the same for people */
/* A line for each item: what was asked, in ids, and what came of it. */
bool suite_write_items(const Suite *s, const char *path, Err *e);

bool suite_has_picture(const Suite *s);       /* needle is among the suites */
void suite_svg(Str *out, const Suite *s);     /* length x depth, by the share of needles found */
void suite_page(Str *out, const Suite *s);    /* the picture and the results as a page of its own */

#endif
