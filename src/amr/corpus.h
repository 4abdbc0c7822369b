/* corpus.h - a file of sentences and their graphs: blocks parted by empty lines, each with comments and one graph.
 *
 *     #::snt The dog barks.
 *     (b / bark-01
 *        :ARG0 (d / dog))
 *
 * The sentence is what follows `#::snt` or `# ::snt` to the end of the line. Without an empty line a comment
 * behind a graph begins the next block. A block of comments without a sentence is no block of the corpus (files
 * begin with one). A block is *valid* when it holds one graph and nothing else, and penman_check accepts it; the
 * others are kept in place with their fault, so that the k-th block stays the k-th. */
#ifndef AMR_CORPUS_H
#define AMR_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "amr/penman.h"
#include "base/mem.h"

typedef struct AmrBlock {
    int64_t line;     /* of its first line, from 1 */
    const char *text; /* as it stands in the file: comments, then the graph; borrows from the corpus */
    int64_t bytes;
    int64_t comment_bytes; /* of the text in front of the graph */
    const char *sentence;  /* NULL: there is none, or an empty one; owned by the corpus */
    Penman graph;          /* of what could be read; n_nodes is 0 where nothing could */
    const char *fault;     /* what is wrong; NULL: valid */
    int64_t fault_line;    /* where */
} AmrBlock;

typedef struct AmrCorpus {
    char *path;      /* owns; for messages */
    Str text;        /* owns */
    AmrBlock *block; /* owns */
    int64_t n, room;
    int64_t valid;    /* blocks without a fault */
    int64_t comments; /* groups of comments that are no block */
    Arena arena;      /* owns sentences and faults */
} AmrCorpus;

/* Reads the whole file. Only a file without any block is refused: a bad block is a fault of its own. */
bool amr_corpus_read(AmrCorpus *c, const char *path, Err *e);
/* The same for a text that is already there; takes it over. line: the number of its first one. */
bool amr_corpus_parse(AmrCorpus *c, Str *text, const char *path, int64_t line, Err *e);
void amr_corpus_free(AmrCorpus *c);
int64_t amr_corpus_bytes(const AmrCorpus *c); /* heap that it took at most while it was read */

/* Refuses by name when some block has no fault-free graph: for gold files, which must be whole. */
bool amr_corpus_require_valid(const AmrCorpus *c, Err *e);

/* The first block that is held out when the last `fraction` of n blocks is: floor(n (1 - fraction)), and at least
 * one on either side where n allows it. */
int64_t amr_split(int64_t n, double fraction);

/* A prediction that some program gave up on: `# ::failed why`, or the graph `(e / error :sentence "...")`. */
bool amr_is_failure(const Penman *graph);

/* Symbols that look like a variable (one letter, perhaps a number) and that no node has: a re-entrancy that leads
 * nowhere. */
int64_t amr_unbound(const Penman *graph);

#endif
