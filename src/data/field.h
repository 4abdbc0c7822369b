/* field.h - fields of a row by name, as text. */
#ifndef DATA_FIELD_H
#define DATA_FIELD_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

const json_t *field_get(const json_t *row, const char *name); /* NULL: absent, null, or no name; borrows */

/* Adds the text without white space at its ends, or a number as it is written; an absent field adds nothing. Anything
 * else is refused by the field's name. */
bool field_text(Str *out, const json_t *row, const char *name, Err *e);

void field_names(Str *out, const json_t *row); /* "question, answer": for messages, so not too many */

#endif
