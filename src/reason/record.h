/* record.h - a problem that is done as the record people read: the original system's fields, and what happened on
 * the way.
 *
 *     {"problem", "solution", "reasoning", "quality_score", "timestamp",
 *      "metadata": {"original_data", "place", "reference", "correct", "scores": {criterion: x}, "evaluation",
 *                   "needs_improvement", "improvement_iteration", "kept_iteration",
 *                   "iterations": [{"iteration", "quality_score", "correct", "kept"}, ...],
 *                   "previous_versions": [{"iteration", "solution", "reasoning", "quality_score", "scores",
 *                                          "evaluation", "correct", "cut"}, ...],
 *                   "tokens": {role: n}, "cut", "note"}}
 *
 * iterations has a line for the first solution (0) and for each improvement; kept is the iteration kept from there
 * on. previous_versions are all that were not kept. What is unknown is null. */
#ifndef REASON_RECORD_H
#define REASON_RECORD_H

#include "reason/pipeline.h"

json_t *record_make(const Track *t, const Rubric *r); /* gives; NULL: a text is not UTF-8 */

/* What a list of records comes to. */
typedef struct Tally {
    int64_t n, noted; /* problems; those with a note */
    double threshold;
    int64_t with_reference;
    int rounds; /* the most improvements of one problem */
    struct {    /* after each round, of the versions kept then: */
        int64_t correct, judged, good,
            fresh;      /* those with a quality; at or above the threshold; made in this round */
        double quality; /* sum over the judged */
    } after[ROUNDS_MOST + 1];
    const char *criterion[CRITERIA_MOST]; /* borrows from the rubric */
    double score[CRITERIA_MOST];          /* sums over those said, of what is kept in the end */
    int64_t scored[CRITERIA_MOST];
    int n_criteria;
    int64_t tokens;
} Tally;

void tally_begin(Tally *t, const Rubric *r);
void tally_add(Tally *t, const json_t *record);

/* Readers of a record, for tables and pages. */
const json_t *record_meta(const json_t *record, const char *key); /* NULL when absent */
const char *record_text(const json_t *object, const char *key);   /* "" when absent */

#endif
