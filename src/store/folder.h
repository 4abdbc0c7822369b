/* folder.h - atomic replacement of folders: a folder appears, is replaced or disappears as a whole.
 *
 * Names beside a folder F, none of which a reader takes for F:
 *   F.tmp-<pid>  being written, or just replaced and being removed
 *   F.old        the earlier F, put aside for the moment in which the new one takes its name (only on file systems
 *                that cannot exchange two names); without an F beside it, it is F
 *   F.gone       being removed */
#ifndef STORE_FOLDER_H
#define STORE_FOLDER_H

#include <stdbool.h>

#include "base/err.h"

typedef struct FolderOut {
    char path[1024];      /* the final name */
    char temporary[1060]; /* write here until the commit; empty when nothing is open */
} FolderOut;

/* Makes the temporary folder. An existing folder will be replaced at the commit, but only one that is empty or
 * holds config.json, adapter_config.json or trainer_state.json, so that a mistyped path does not replace a home folder.
 * folder_check refuses the same and changes nothing. */
bool folder_check(const char *final_path, Err *e);
bool folder_begin(FolderOut *f, const char *final_path, Err *e);

/* Flushes every file and the folder to disk, then gives it its name. On failure the temporary is removed and a whole
 * folder stands under the name if one did: the earlier one, or the new one when only the last flush was refused. */
bool folder_commit(FolderOut *f, Err *e);
void folder_abort(FolderOut *f); /* nothing remains; a second call is fine */
bool folder_end(FolderOut *f, bool ok, Err *e); /* commit, or where it is not ok abort: gives whether all is there */

/* Removes a folder so that a half-removed one is never found under its name. Absent is fine. */
bool folder_remove(const char *path, Err *e);

/* Puts right what an interrupted process left beside `path`: an F.old becomes F again if there is no F;
 * temporaries are removed. Only for the one writer of this place (a run under its lock). */
bool folder_recover(const char *path, Err *e);

#endif
