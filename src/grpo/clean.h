/* clean.h - a model's text as JSON: bytes that are not UTF-8 are repaired, not lost. */
#ifndef GRPO_CLEAN_H
#define GRPO_CLEAN_H

#include <jansson.h>

#include "base/str.h"

json_t *clean_json(const char *text); /* a JSON string; gives (json_decref) */

/* Adds at most `characters` of a text for a message: control characters as blanks, "..." where it was cut. */
void clean_excerpt(Str *out, const char *text, int64_t bytes, int characters);

#endif
