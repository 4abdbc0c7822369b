/* row.h - one row of a file as its fields: names and values that lie in the text the row was read from.
 *
 * No tree is built. A text is taken out of its JSON where it stands, so a row takes the memory of its own bytes. */
#ifndef DATA_ROW_H
#define DATA_ROW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { ROW_FIELDS = 256 }; /* a row of more is refused */

typedef struct RowField {
    char *name;       /* borrows, like text */
    json_type type;
    char *text;       /* a text: what it says, once row_text was asked; anything else: its JSON */
    int64_t bytes;
    int32_t name_bytes;
    bool escaped;     /* a text that still is as JSON writes it */
    json_t *value;    /* borrows from the row's tree; NULL: text and bytes hold it */
} RowField;

typedef struct Row {
    RowField field[ROW_FIELDS];
    int n;
    json_t *tree;     /* owns; NULL: the fields lie in the text that was scanned */
} Row;

/* Reads a text that is one object. It is changed, and must stand while the row is used. False: it is not one that the
 * scanner is sure of, and as it was. */
bool row_scan(Row *r, char *text, int64_t bytes);
bool row_fits(const json_t *tree, Err *e); /* false: it has more fields than a Row */
void row_from_tree(Row *r, json_t *tree); /* takes over the reference; of one that fits */
void row_free(Row *r);

json_t *row_tree(Row *r); /* the whole row; gives (json_decref) */
RowField *row_get(Row *r, const char *name); /* NULL: absent, or null */
const char *row_text(RowField *f, int64_t *bytes); /* of a text; ends in a zero */
json_t *row_value(RowField *f);              /* gives (json_decref) */

/* A list of whole numbers without a tree: each call gives the next. False at the end, or when the next is none: then at
 * stands before it. Begin with at = 0. */
bool row_next_integer(const RowField *f, int64_t *at, int64_t *number);
bool row_next_bool(const RowField *f, int64_t *at, bool *value); /* the same for true and false */
bool row_at_end(const RowField *f, int64_t at); /* nothing is left of the list */

#endif
