/* rows.h - an AMR corpus as training data: blocks become rows, and what is left out is remembered by block and
 * line.
 *
 *     AmrRows r;
 *     if (!amr_rows_open(&r, "unified", style, &e)) ...
 *     options.blocks = &r.blocks;        // dataset_open reads any corpus among its files through it
 *     amr_rows_report(&text, &r);        // "" where nothing was left out
 *     amr_rows_close(&r);
 *
 * A block without a sentence, or without a valid graph, gives no row. */
#ifndef AMR_ROWS_H
#define AMR_ROWS_H

#include "amr/prompt.h"
#include "data/rows.h"

enum { AMR_FAULTS_NAMED = 5 }; /* of each file; the others are counted */

typedef struct AmrFault {
    int64_t block, line; /* from 1 */
    char *why;           /* owns */
} AmrFault;

typedef struct AmrRowsFile {
    char *path;                      /* owns */
    int64_t blocks, invalid, silent; /* silent: no sentence */
    AmrFault fault[AMR_FAULTS_NAMED];
    int n_faults;
} AmrRowsFile;

typedef struct AmrRows {
    RowBlocks blocks; /* for DataOptions.blocks; points to this struct, which stays where it is */
    AmrPrompt prompt;
    AmrRowStyle style;
    Str text;          /* what blocks.text borrows */
    AmrRowsFile *file; /* owns */
    int64_t n_files, room;
    int64_t at; /* the file that is read */
} AmrRows;

/* wording: as a person names it (amr_prompt_choose). amr_rows_close in either case. */
bool amr_rows_open(AmrRows *r, const char *wording, AmrRowStyle style, Err *e);
void amr_rows_close(AmrRows *r);

/* Lines for a person: how many blocks of which file were left out, and the first of them by block and line. */
void amr_rows_report(Str *out, const AmrRows *r);

#endif
