/* audit.h - the records of requests (audit.jsonl beside the weights), read again: none was changed, taken out or moved.
 *
 * A line a request, under a hash chain (store/chain.h). Each says which of how many it is, so that a missing end shows
 * too, and the last chain of the step log that it is about. */
#ifndef UNLEARN_AUDIT_H
#define UNLEARN_AUDIT_H

#include "store/chain.h"

typedef struct Audit {
    int64_t records, certified;
    Chain chain;          /* of the last record */
    char log[SHA256_HEX]; /* of the step log; "": it is not said */
} Audit;

/* Refuses, naming the line, a file that is not as it was written. */
bool audit_check(Audit *a, const char *path, Err *e);

#endif
