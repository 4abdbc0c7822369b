/* attention_page.h - what attention does in every layer, as a page that stands alone and as JSON. */
#ifndef CLI_ATTENTION_PAGE_H
#define CLI_ATTENTION_PAGE_H

#include <jansson.h>

#include "base/str.h"
#include "train/run.h"

#define ATTENTION_SINK 0.3 /* a layer whose tokens give the first token more than this has a sink */

void attention_page(Str *out, const char *model, const AttentionReport *layer, int layers,
                    const AttentionReport *all);
/* {"layers":[{"layer":0,"first_token":0.2,"sink":false,...}],"all":{...},"sinks":0} */
json_t *attention_json(const AttentionReport *layer, int layers, const AttentionReport *all);

#endif
