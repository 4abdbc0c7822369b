/* chain.h - hash-chained JSON lines: a line that is changed, removed or moved is detected.
 *
 * Every line ends with ,"chain":"<SHA-256>"} : the digest of the line before's chain and of this line's own text up
 * to there. What is missing at the end shows only where the last line says that it is the last. */
#ifndef STORE_CHAIN_H
#define STORE_CHAIN_H

#include "base/err.h"
#include "base/sha256.h"
#include "base/str.h"

typedef struct Chain {
    char link[SHA256_HEX]; /* of the last line; "": none yet */
} Chain;

enum { CHAIN_BYTES = SHA256_HEX + 12 }; /* that closing a line adds to it, its end included */

/* line: a JSON object without its last brace, from `from` on. Adds the chain, the brace and the line's end. */
void chain_close(Chain *c, Str *line, int64_t from);

/* The line (without its end) is the one that followed. Its error names neither file nor line. */
bool chain_check(Chain *c, const char *line, int64_t bytes, Err *e);

#endif
