/* collect.h - answers become a file of blocks: one a sentence, failures in place, repairs noted and counted. */
#ifndef AMR_COLLECT_H
#define AMR_COLLECT_H

#include <jansson.h>

#include "amr/answer.h"
#include "amr/corpus.h"

typedef struct AmrCollect {
    const AmrCorpus *sentences; /* borrows; of answers that do not carry theirs; NULL: none */
    AmrTake how;
    PenmanLayout layout;
    /* counts */
    int64_t answers, graphs, failed, repaired;
    int64_t other_samples; /* of prompts whose first sample was taken */
    int64_t cut;           /* answers that ended at their longest */
    AmrRepairs repairs;
} AmrCollect;

/* A line as snug generate writes it (text or error; id.sentence; sample, finish), as a block:
 *
 *     #::snt The dog barks.
 *     # ::failed the graph's parentheses are not closed
 *     (e / error :sentence "The dog barks.")
 *
 * Refused: a line without an answer, or without a sentence. */
bool amr_collect_row(AmrCollect *c, Str *out, const json_t *row, Err *e);

void amr_collect_report(Str *out, const AmrCollect *c); /* lines for a person */
json_t *amr_collect_json(const AmrCollect *c);          /* gives */

#endif
