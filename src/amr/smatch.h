/* smatch.h - the similarity of two files of graphs: SMATCH, its variants, and confidence intervals.
 *
 * A graph is a bag of triples: a concept a node, attributes (a role with a constant; TOP for the first node) and
 * relations (a role between two nodes). Nodes of the prediction are mapped to different nodes of the gold graph; a
 * triple is matched when the mapping turns it into one of the gold graph. SMATCH counts the matches of the best
 * mapping. Precision is matched / predicted, recall matched / gold, both summed over the file (micro).
 *
 * Texts are compared as the Python package smatch 1.0.4 does: see smatch_graph.c for its rules, and for the two
 * that are not kept. That package climbs hills from random starts; here the best mapping is then proved by branch and
 * bound (smatch_exact.c). A pair that is not proved within the limit has the best mapping found and an upper bound. */
#ifndef AMR_SMATCH_H
#define AMR_SMATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "amr/corpus.h"
#include "base/err.h"

typedef enum SmatchMetric {
    SMATCH_FULL,                    /* all triples */
    SMATCH_UNLABELLED,              /* all roles alike (the direction counts) */
    SMATCH_NO_SENSE,                /* want-01 is want */
    SMATCH_REENTRANCY,              /* relations into nodes with several of them, and the concepts at their ends */
    SMATCH_ATTRIBUTES,              /* attributes alone, as smatch --justattribute */
    SMATCH_RELATIONS,               /* relations alone, as smatch --justrelation */
    SMATCH_MAPPED,                  /* ---- so far each by a best mapping of its own; from here on without one */
    SMATCH_CONCEPT = SMATCH_MAPPED, /* the bag of concepts, as smatch --justinstance */
    SMATCH_RELATION,                /* the bag of (concept, role, concept) and (concept, role, constant) */
    SMATCH_ROOT,                    /* the concept of the first node */
    SMATCH_METRICS
} SmatchMetric;

const char *smatch_metric_name(SmatchMetric m); /* "no_sense" */

typedef struct SmatchCounts {
    int64_t matched, predicted, gold;
} SmatchCounts;
double smatch_precision(SmatchCounts c);
double smatch_recall(SmatchCounts c);
double smatch_f1(SmatchCounts c);

typedef struct SmatchOptions {
    bool climb;         /* hill climbing alone: nothing is proved */
    int restarts;       /* of it, from random mappings, behind the first from equal concepts */
    int64_t node_limit; /* of branch and bound, for one pair; a tenth of it for each variant */
    uint64_t seed;
    bool whole_strings; /* a string with blanks is compared whole, not by its first word */
    bool only_full;     /* no variants */
    bool skip_bad_gold; /* pairs without a valid gold graph are left out instead of refused */
} SmatchOptions;
SmatchOptions smatch_defaults(void);

typedef struct SmatchPair {
    SmatchCounts of[SMATCH_METRICS];
    int64_t bound;              /* no mapping matches more triples (SMATCH_FULL) */
    bool proved[SMATCH_MAPPED]; /* nothing better was left to find */
    bool empty;                 /* the prediction is invalid: it counts as a graph without triples */
} SmatchPair;

typedef struct SmatchScore {
    SmatchPair *pair; /* owns; one a block of the gold file */
    int64_t n;
    SmatchCounts of[SMATCH_METRICS]; /* summed */
    int64_t bound;                   /* summed */
    int64_t proved[SMATCH_MAPPED];   /* pairs */
    int64_t empty;                   /* predictions that are invalid */
    int64_t skipped;                 /* pairs left out: no valid gold graph */
    int64_t first_words;             /* strings that were compared by their first word */
    int64_t dropped;                 /* constants behind an inverse role or :mod, which smatch does not count */
} SmatchScore;

/* The k-th block of one file against the k-th of the other; another number of blocks is refused. smatch_score_free
 * in either case. */
bool smatch_score(SmatchScore *out, const AmrCorpus *gold, const AmrCorpus *predicted, const SmatchOptions *o,
                  Err *e);
void smatch_score_free(SmatchScore *s);

typedef struct SmatchInterval {
    double low, high; /* of F1; 95 % of the resamples lie between */
} SmatchInterval;

/* Bootstrap over pairs: `resamples` draws of n pairs with repetition, the same for every score of a seed. */
SmatchInterval smatch_interval(const SmatchScore *s, SmatchMetric m, int resamples, uint64_t seed);
/* The share of the same draws in which a has the higher F1 (a draw with equal ones counts half). */
double smatch_beats(const SmatchScore *a, const SmatchScore *b, SmatchMetric m, int resamples, uint64_t seed);

#endif
