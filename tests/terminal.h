/* terminal.h - the program in front of a pseudo terminal: a test types, waits for words to appear, and reads all that
 * was shown. */
#ifndef TESTS_TERMINAL_H
#define TESTS_TERMINAL_H

#include <sys/types.h>

#include "base/str.h"

typedef struct Terminal {
    int fd;
    pid_t pid;
    Str shown;     /* since the start */
    int64_t seen;  /* bytes of it that terminal_wait has passed */
} Terminal;

/* Through the shell; assignments ("TERM=dumb ") may stand in front. $SNUG or ./snug takes the place of "snug ". */
bool terminal_start(Terminal *t, const char *before, const char *arguments);
void terminal_type(Terminal *t, const char *keys);
/* Until they appear behind what was waited for before; false: never. */
bool terminal_wait(Terminal *t, const char *words);
bool terminal_more(Terminal *t, int64_t bytes); /* until so many more are shown; false: never */
int terminal_end(Terminal *t); /* waits for the process; its exit code, 128 + signal when killed */

#endif
