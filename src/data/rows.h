/* rows.h - the objects of a file of JSON lines, or of a JSON array, one at a time, with the line each began on. */
#ifndef DATA_ROWS_H
#define DATA_ROWS_H

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

typedef struct RowReader {
    const char *path;        /* keeps until closed */
    int fd;
    char *buffer;            /* owns; unread bytes are [begin, end) */
    int64_t capacity, begin, end;
    int64_t got;             /* bytes taken from the file so far */
    int64_t line;            /* of the first unread byte, from 1 */
    int64_t row_line;        /* where the latest row began */
    bool at_end, in_array, after_first;
    Str scratch;             /* of the scanner */
} RowReader;

bool dataset_reader_open(RowReader *r, const char *path, Err *e);
bool dataset_reader_next(RowReader *r, json_t **row, Err *e); /* gives row (json_decref); NULL at the end */
void dataset_reader_close(RowReader *r);
static inline int64_t dataset_reader_at(const RowReader *r) { return r->got - (r->end - r->begin); } /* bytes read */

#endif
