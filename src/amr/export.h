/* export.h - a block as JSON: for people's scripts, and for comparing with other readers. */
#ifndef AMR_EXPORT_H
#define AMR_EXPORT_H

#include <jansson.h>

#include "amr/corpus.h"

/* {"block", "line", "sentence", "valid", "fault", "fault_line"}, and where a graph could be read, valid or not,
 * "metadata", "top", "triples" (source, role, target) and "graph", its text. Gives. */
json_t *amr_block_json(const AmrBlock *b, int64_t number, PenmanLayout layout);

#endif
