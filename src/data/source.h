/* source.h - what a file is, told by its first bytes (unpacked, where it is compressed) and its name. What is no
 * list of samples is refused by name, with what to do about it: nothing is taken for text, or for anything else,
 * by guessing. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef enum SourceForm {
    SOURCE_LINES, /* a JSON object on each line */
    SOURCE_ARRAY, /* a JSON array of objects */
    SOURCE_TABLE, /* .csv or .tsv with a line of names */
    SOURCE_TEXT,  /* .txt: one document */
    SOURCE_AMR    /* blocks of a sentence and its graph, parted by empty lines, whatever the name */
} SourceForm;

enum { SOURCE_LOOK_BYTES = 4096 }; /* what is looked at */

/* bytes: the first n of the file; fewer than SOURCE_LOOK_BYTES: all of it. */
bool source_tell(SourceForm *form, const char *path, const char *bytes, int64_t n, Err *e);

/* For texts that are read as they stand, never unpacked: refuses what its first bytes say is compressed, a table of
 * another program, a picture, ..., with what to do about it. */
bool source_check_text(const char *path, const char *bytes, int64_t n, Err *e);
bool source_read_text(const char *path, Str *out, int64_t limit_bytes, Err *e); /* file_read, and the check */

/* Lines of people's sentences, to which no mark belongs: refuses a zero byte and what is not UTF-8, with its line. */
bool source_check_lines(const char *path, const char *text, int64_t n, Err *e);

/* Whether a text begins as an AMR corpus does: with comments, one of them `# ::snt ...`; or behind comments, if there
 * are any, with a node `(b / bark-01`, or behind comments with another `::key` at least with '('. */
bool source_is_amr(const char *bytes, int64_t n);

/* The files that a name stands for: a file is itself; a folder, those in it and below it that hold samples, by name,
 * all of one form. passed: how many others are there. */
typedef struct SourceFiles {
    char **path; /* owns: source_files_free */
    int64_t n, capacity, passed;
} SourceFiles;
bool source_files(SourceFiles *f, const char *path, Err *e);
void source_files_free(SourceFiles *f);

#endif
