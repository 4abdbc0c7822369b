/* items.h - what a policy is asked, and what the answer is compared with: the parsers of the data sets people use.
 *
 * Files are JSON lines or a JSON array in the layout each set has; nothing is downloaded. Rows are shuffled by the
 * seed and the first `count` of them are kept. The meta-prompt is what the policy is told to do with the task
 * (rewrite it, say); without one the task alone is asked.
 *
 *   math            fields prompt|problem|question and solution|answer
 *                   system: meta-prompt; user: the problem          gold: the final answer of the solution
 *   easy_math       question, answer
 *                   user: meta-prompt, empty line, question         gold: the number behind ####, without separators;
 *                                                                   without ####: the whole answer
 *   classification  title, description, label 1 to 4
 *                   user: meta-prompt, empty line, a task that      gold: World, Sports, Business or
 *                   names the classes, Title, Description           Science/Technology
 *   poem            INSTRUCTION|instruction|prompt
 *                   user: meta-prompt, empty line, instruction      gold: none
 *   test            additions drawn from the seed, no file
 *                   user: meta-prompt, empty line, "What is 3 + 4?" gold: the sum
 *   custom          prompt|question|problem|instruction and answer|solution|gold|label|output
 *                   a text: as easy_math; messages: the meta-prompt gold: the field as it is; none where it is absent
 *                   stands at the beginning of the system's turn
 *
 * --prompt-field and --answer-field name other fields for all of them but classification. A prompt that is a list of
 * messages is understood wherever a text is. */
#ifndef GRPO_ITEMS_H
#define GRPO_ITEMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct Item {
    json_t *messages; /* owns; NULL: a plain text */
    char *text;       /* owns; the prompt of a model without roles, NULL: messages */
    char *question;   /* owns; the task without the meta-prompt */
    char *gold;       /* owns; "": none */
    json_t *columns;  /* owns; the row as it was, for rewards */
    int64_t length;   /* bytes of the whole prompt */
} Item;

typedef struct Items {
    Item *item; /* owns */
    int64_t n;
    uint64_t hash;  /* of all prompts and golds: what a checkpoint belongs to */
    int64_t bytes;  /* that they take of the heap, about, with what reading them took */
} Items;

typedef struct ItemQuery {
    const char *parser;
    const char *path;                        /* NULL: only for test */
    const char *prompt_field, *answer_field; /* NULL: the parser's own */
    const char *meta_prompt;                 /* NULL or "": none */
    bool plain;                              /* texts without roles, for models without a chat template */
    bool shuffle;
    uint64_t seed;
    int64_t count; /* -1: all; for test: 100 */
} ItemQuery;

bool items_read(Items *out, const ItemQuery *q, Err *e);
void items_free(Items *items);

/* What --meta-prompt says: the text itself, or with "@FILE" what the file holds, without white space at its ends. */
bool items_meta_prompt(Str *out, const char *value, Err *e);

#endif
