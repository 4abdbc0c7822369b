/* prompt.h - how a model is asked for a graph and what it should answer: wordings with placeholders, filled from a
 * block.
 *
 * A wording is a text file with two sections; what stands before the first is a comment:
 *
 *     [prompt]
 *     Write the AMR graph of the sentence.
 *     Sentence: {sentence}
 *     Graph:
 *     [answer]
 *     {graph}
 *
 * {sentence} is the sentence, {graph} the whole graph, {bare} the graph without variables; {{ and }} are braces.
 * The prompt ends with a line end, the answer does not. The prompt has {sentence}, the answer {graph}, behind
 * {bare} if it has that as well: the graph that counts is the first one with variables (answer.h). recipes/amr/
 * has wordings to copy and change. */
#ifndef AMR_PROMPT_H
#define AMR_PROMPT_H

#include <jansson.h>
#include <stdbool.h>

#include "amr/corpus.h"

typedef struct AmrPrompt {
    char *prompt, *answer; /* owns */
} AmrPrompt;

/* "plain" and "unified" are built in; any other word is the path of a wording. amr_prompt_free in either case. */
bool amr_prompt_open(AmrPrompt *p, const char *name, Err *e);
bool amr_prompt_parse(AmrPrompt *p, const char *text, const char *where, Err *e);
void amr_prompt_free(AmrPrompt *p);

/* The graph without variables, on one line and without blanks where none is needed: a node is its concept, a
 * variable that is named again is its node's concept without parentheses:
 *
 *     (want-01:ARG0(boy):ARG1(go-02:ARG0 boy)) */
void amr_print_bare(Str *out, const Penman *graph);

typedef struct AmrRowStyle {
    PenmanLayout layout; /* of {graph} */
    bool chat;           /* messages, for the model's own chat template; otherwise prompt and completion */
    bool without_answer; /* for snug generate: {"text" or "messages", "id"} */
} AmrRowStyle;

/* The style by the word a person gives: "chat" is the wording plain as messages. */
bool amr_prompt_choose(AmrPrompt *p, AmrRowStyle *style, const char *word, Err *e);

/* One line of data for snug train, or for snug generate. The block has a sentence and, unless without_answer, a
 * valid graph; index is its number from 0, which an answer carries in its id. Gives. */
json_t *amr_row(const AmrPrompt *p, const AmrBlock *b, int64_t index, AmrRowStyle style);

#endif
