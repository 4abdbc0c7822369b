/* stats.h - what a corpus holds, counted. */
#ifndef AMR_STATS_H
#define AMR_STATS_H

#include "amr/corpus.h"

enum { AMR_BUCKETS = 12 }; /* 1, 2-3, 4-7, ...: powers of two; the last takes the rest */

typedef struct AmrStats {     /* of valid blocks, but for `sentences` */
    int64_t sentences, words; /* of all blocks; words are parted by blanks */
    int64_t graphs, nodes, relations, attributes;
    int64_t reentrancies;    /* variables named again */
    int64_t inverses;        /* roles with -of */
    int64_t names;           /* :name */
    int64_t concepts, roles; /* different ones */
    int64_t depth_sum, depth_most, nodes_most;
    int64_t unbound;                                      /* symbols that look like variables and are none */
    int64_t by_words[AMR_BUCKETS], by_nodes[AMR_BUCKETS]; /* sentences and graphs by their length */
} AmrStats;

void amr_stats(AmrStats *s, const AmrCorpus *c, int64_t first, int64_t end); /* of blocks first .. end - 1 */

#endif
