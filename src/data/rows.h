/* rows.h - the rows of a file of JSON lines, of a JSON array or of a table, one at a time, with the line each began on.
 *
 * A row is read through a window that holds the longest one: its length is known before it is read, and refused there
 * when reading it would take more memory than is allowed. */
#ifndef DATA_ROWS_H
#define DATA_ROWS_H

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"
#include "data/row.h"
#include "data/source.h"
#include "data/unpack.h"

/* What makes rows of an AMR corpus, which this room takes apart but does not read: the amr room. */
typedef struct RowBlocks {
    void *self;
    const char *text;   /* "AMR corpus, asked by the wording plain": what the rows are; borrows */
    bool (*begin)(void *self, const char *path, Err *e); /* a file is read from its beginning, perhaps once more */
    /* A piece of it, parted from others by empty lines: its rows, {"prompt", "completion"} or {"messages"}, are
     * appended to the list; what holds none is counted, not refused. line: of the file, from 1. */
    bool (*rows)(void *self, json_t *rows, const char *text, int64_t bytes, int64_t line, Err *e);
} RowBlocks;

typedef struct RowReader {
    const char *path;        /* keeps until closed */
    int fd;
    char *buffer;            /* owns; unread bytes are [begin, end) */
    int64_t capacity, begin, end;
    int64_t offset;          /* in the file, of the window's end */
    int64_t line;            /* of the first unread byte, from 1 */
    int64_t row_line;        /* where the latest row began */
    int64_t row_bytes;       /* of the latest row */
    int64_t longest_bytes;   /* of the rows so far */
    int64_t left_bytes;      /* memory that one row may take; 0: any */
    int cost;                /* bytes it takes for each of its own, besides the window */
    SourceForm form;
    bool at_end, after_first;
    bool seekable;           /* the file can be looked into beyond the window */
    Unpack *unpack;          /* owns; NULL: it is not compressed */
    Str scratch;             /* of the scanner */
    char separator;          /* of a table */
    Str header;              /* its first line; names point into it */
    char **name;             /* owns; [n_names] */
    int n_names;
    const RowBlocks *blocks; /* borrows; of an AMR corpus */
    json_t *made;            /* owns; rows of the latest piece */
    size_t n_taken;          /* of them */
} RowReader;

bool dataset_reader_open(RowReader *r, const char *path, Err *e); /* refuses what is empty, or no list of samples */
/* The same for files that may also be an AMR corpus; blocks NULL: one is refused. */
bool dataset_reader_open_blocks(RowReader *r, const char *path, const RowBlocks *blocks, Err *e);
bool dataset_reader_begin(RowReader *r, int fd, const char *name, Err *e); /* a file that is open; takes fd over */
bool dataset_reader_next(RowReader *r, json_t **row, Err *e); /* gives row (json_decref); NULL at the end */
/* The same without a tree. The row is valid until the next call; row_free it before. *found false: the end. */
bool dataset_reader_row(RowReader *r, Row *row, bool *found, Err *e);
/* The text of a row in the file, to be parsed elsewhere (row_scan, dataset_table_row); -1 bytes at the end. */
bool dataset_reader_raw(RowReader *r, char **text, int64_t *bytes, Err *e);
int64_t dataset_reader_at(const RowReader *r); /* the byte of the file, unpacked, that is read next */
int64_t dataset_reader_done(const RowReader *r); /* bytes read of the file as stored: for a progress bar */
/* Continues at a position that dataset_reader_at gave after a row. */
bool dataset_reader_skip(RowReader *r, int64_t at, int64_t line, Err *e);

/* Plain text: what is there of it now, and stands until the next call; 0 bytes at the end. */
bool dataset_reader_text(RowReader *r, const char **text, int64_t *bytes, Err *e);
bool dataset_reader_room(const RowReader *r, int64_t bytes, Err *e); /* whether a row of so many bytes may be read */
void dataset_reader_close(RowReader *r);

/* What to do about a line that is not JSON, where the line or the library's message (what) tells the cause; NULL. */
const char *dataset_json_cause(const char *line, int64_t bytes, const char *what);

#endif
