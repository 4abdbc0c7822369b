/* pick.h - a selection of a file's rows, shuffled by a key: the file is counted, then read once more, and only what
 * was selected is handed over. */
#ifndef DATA_PICK_H
#define DATA_PICK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

bool pick_count(const char *path, int64_t *rows, Err *e);

/* Where each row stands in the selection: places start .. start + count - 1 of the shuffled file become 0 .. count
 * - 1, the others -1. Gives: mem_free. */
int64_t *pick_places(int64_t rows, int64_t start, int64_t count, bool shuffle, uint64_t seed);

/* Borrows row. Its errors name neither file nor line: pick_rows puts both in front. */
typedef bool PickFn(void *user, json_t *row, int64_t place, Err *e);

/* Calls fn for every row in the file's order, those that are left out (place -1) included. A file that has another
 * number of rows than before is refused. */
bool pick_rows(const char *path, const int64_t *place, int64_t rows, PickFn *fn, void *user, Err *e);

#endif
