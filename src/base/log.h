/* log.h - one stream of lines for people: standard error, and a copy in the run's log file. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#include "base/check.h"
#include "base/err.h"
#include "base/str.h"

void log_line(const char *fmt, ...) PRINTF_LIKE(1, 2); /* a newline is added */
void log_str(Str *text);                              /* a line, if it is not empty; frees it */
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2); /* the same behind "warning: " */
void log_quiet(bool quiet);                            /* true: lines and warnings go to the file only */
void log_only_warnings(void);                          /* lines go to the file only */

/* A progress line: redrawn in place on a terminal, an ordinary line (every call) elsewhere. */
void log_progress(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_wipe(void); /* takes such a line off the terminal */
bool log_is_terminal(void);

/* Lines said from here on are kept, the first 64 KiB of them, until a file is opened: they are its beginning. */
void log_keep(void);
bool log_open_file(const char *path, Err *e); /* appends from here on; every line is flushed */
void log_close_file(void);

#endif
