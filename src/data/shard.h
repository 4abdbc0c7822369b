/* shard.h - a file of tokens, and where its documents begin.
 *
 *     header   SHARD_HEADER_BYTES, little-endian like all of it: "SNUGTOK\n", version, bytes of a token (2 or 4),
 *              tokens, documents, the tokenizer's identity, the vocabulary's size, the end-of-text id, checksums
 *              (CRC-32) of the tokens, of the index and of the header itself
 *     tokens   one after the other, documents without a gap between them
 *     index    behind the tokens, from a multiple of 8 on: where each document begins, 8 bytes each, and where the
 *              last ends
 *
 * A document lies in one shard. A shard appears under its name when it is whole (file.h). */
#ifndef DATA_SHARD_H
#define DATA_SHARD_H

#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "data/pile.h"

enum { SHARD_HEADER_BYTES = 128, SHARD_VERSION = 1 };

typedef struct ShardFacts {
    int64_t tokens, documents;
    int32_t bytes_per_token; /* 2 or 4 */
    int64_t vocab;
    int32_t eos;        /* -1: none */
    uint64_t tokenizer; /* identity; 0: not known */
    uint32_t tokens_crc, index_crc;
} ShardFacts;

/* The header of an open file. *found false: it is no shard. Refused: it is one, and damaged or short. */
bool shard_read(ShardFacts *f, bool *found, int fd, const char *path, Err *e);
int64_t shard_index_at(const ShardFacts *f); /* byte where the index begins */
bool shard_check(const ShardFacts *f, int fd, const char *path,
                 Err *e); /* reads all of it against its checksums */

typedef struct ShardOut {
    FileOut file;
    ShardFacts facts;
    Pile begin; /* of documents */
    bool in_document;
    char *buffer; /* owns */
    int64_t n;    /* bytes in it */
} ShardOut;

/* like: vocab, eos, tokenizer and bytes_per_token. shard_commit or shard_abort ends it. */
bool shard_begin(ShardOut *s, const char *path, const ShardFacts *like, Err *e);
bool shard_add(ShardOut *s, const int32_t *ids, int64_t n, bool ends_document, Err *e);
bool shard_commit(ShardOut *s, Err *e);
void shard_abort(ShardOut *s);

#endif
