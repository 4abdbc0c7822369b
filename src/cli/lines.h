/* lines.h - lines on their way to a file, which appears when all are there, or to standard output. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include <jansson.h>

#include "base/file.h"

typedef struct Lines {
    FileOut file;
    bool to_file;
    Str text; /* add to it, then lines_pour */
} Lines;

bool lines_may_write(const char *path, bool overwrite, Err *e); /* nothing is there, or it may be replaced */
/* path NULL: standard output. A file that is there is refused unless `overwrite`. */
bool lines_begin(Lines *l, const char *path, bool overwrite, Err *e);
bool lines_pour(Lines *l, Err *e);              /* hands on what has gathered, once it is worth it */
bool lines_json(Lines *l, json_t *row, Err *e); /* one line of JSON; takes row over */
/* Commits what was poured, or takes it all back when !ok; gives whether everything went well. */
bool lines_end(Lines *l, bool ok, Err *e);

#endif
