/* plan_timeline.h - memory over one step of a job as JSON, for plan.json and those who draw it. */
#ifndef CLI_PLAN_TIMELINE_H
#define CLI_PLAN_TIMELINE_H

#include <jansson.h>

#include "ring/ring.h"

/* {"columns", "beside_bytes", "lines": [{"name", "colour", "bytes": "N N ..."}], "phases": [{"name", "begin",
 * "end", "repeat"}]}: bytes of each class of the ledger, the fullest step of each column; phases in columns.
 * Gives. */
json_t *plan_timeline_json(const Ring *r);

#endif
