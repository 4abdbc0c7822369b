/* prepare.h - files of text become token shards (shard.h), in their order: documents with an end-of-text token
 * behind each.
 *
 * One thread reads and writes while the others tokenise, in rounds, so that memory is bounded and the shards are the
 * same for any number of threads. Each shard appears whole, and progress.json with it records the position in the input
 * after it: a job that is killed continues there, to the same shards. manifest.json appears when all is done. */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include <signal.h>

#include "data/dataset.h"

typedef struct PrepareOptions {
    const Tokenizer *tokenizer;
    int32_t eos; /* end of text, put behind every document */
    int threads;
    int64_t shard_tokens;   /* a shard is closed behind the document that reaches this */
    int64_t max_document;   /* tokens after which a document is cut, with an end-of-text token; 0: never */
    const char *text_field; /* the column that holds the text; NULL: "text" */
    int64_t pack_seq; /* above 0: at the end train.bin and metadata.json are made of the shards, rows of so many
                         tokens */
    bool overwrite;   /* what stands in the folder is replaced */
} PrepareOptions;

typedef struct PrepareCounts {
    int64_t inputs;
    int64_t bytes, bytes_done; /* of the input files as they lie on disk */
    int64_t text_bytes;        /* that were tokenised here */
    int64_t rows, documents, dropped, tokens, shards;
    int64_t longest_bytes; /* of the rows */
    int64_t word_bytes;    /* that the tokenizers held at most: letters without a break are one word */
    bool unpacks;          /* an input is compressed */
    bool resumed, stopped, was_done; /* was_done: nothing was left to do */
} PrepareCounts;

typedef void PrepareSay(void *user, const PrepareCounts *now); /* before the first row, and after every round */

/* out is made; names are files or folders of them. */
bool prepare_corpus(PrepareCounts *done, const char *out, const char *const *names, int n, const PrepareOptions *o,
                    PrepareSay *say, void *user, Err *e);

/* Heap that a preparation takes at most beside its tokenizer, by what it came to. */
int64_t prepare_bytes(const PrepareOptions *o, const PrepareCounts *done);

#endif
