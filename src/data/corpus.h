/* corpus.h - tokens that stay on disk: a folder that `snug prepare` made, a packed train.bin with its
 * metadata.json, or one .bin file of llm.c or llmq. Read by pread where they are asked for: mapped pages would
 * count as the process's own.
 *
 * Where a file lists its documents (a shard), they begin there; elsewhere behind an end-of-text token, or at one
 * where the format puts it first (llm.c). Any thread may read at any time. An error sticks: the first one is kept,
 * later reads give zeros, and corpus_ok tells. */
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct Corpus Corpus;

typedef struct CorpusOptions {
    int64_t vocab;      /* ids that are not below it are an error */
    uint64_t tokenizer; /* of the model; 0: not known. Shards of another one are refused */
    int32_t eos;        /* end of text, where documents are not listed; -1: all is one document */
} CorpusOptions;

bool corpus_is(const char *path); /* such a folder or file, by its names and first bytes */
bool corpus_open(Corpus **c, const char *path, const CorpusOptions *o, Err *e); /* gives: corpus_close */
void corpus_close(Corpus *c);                                                   /* NULL is fine */

int64_t corpus_tokens(const Corpus *c);
int64_t corpus_documents(const Corpus *c); /* -1: they are not listed */
int64_t corpus_bytes(const Corpus *c);     /* memory it keeps */
uint64_t corpus_fingerprint(const Corpus *c);
const char *corpus_text(const Corpus *c); /* "12 token shards of snug prepare, uint16"; borrows */

/* Tokens begin .. begin + n - 1. starts[i]: token i begins a document (never told of the first; NULL: not asked). */
void corpus_read(Corpus *c, int64_t begin, int64_t n, uint32_t *token, uint8_t *starts);
/* How many of the tokens behind begin, up to begin + n - 1, begin a document. scratch: room for n tokens. */
int64_t corpus_count_starts(Corpus *c, int64_t begin, int64_t n, uint32_t *scratch);
bool corpus_ok(Corpus *c, Err *e);

#endif
