/* jsonfile.h - a JSON document as a file: read with the place of a mistake, written atomically. */
#ifndef STORE_JSONFILE_H
#define STORE_JSONFILE_H

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* The document must be an object without repeated keys; gives root (json_decref). */
bool jsonfile_parse(json_t **root, const char *text, int64_t bytes, const char *where, Err *e);
bool jsonfile_read(json_t **root, const char *path, int64_t limit_bytes, Err *e);

/* Sets a key of an object that is being built. A value that could not be made (NULL: text that is not UTF-8) makes
 * *root NULL, which later calls pass over: one check at the end is enough. Takes over value. */
void jsonfile_set(json_t **root, const char *key, json_t *value);

/* Indented by two, keys in the order they were set. A NULL root is refused. */
bool jsonfile_write(const char *path, const json_t *root, Err *e);

int64_t jsonfile_bytes(json_t *root); /* that jsonfile_write would write; takes over root */

#endif
