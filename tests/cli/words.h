/* words.h - a command line as one text, for tests of the options. */
#ifndef TESTS_CLI_WORDS_H
#define TESTS_CLI_WORDS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

/* Parses words separated by '|' (so that values may hold spaces). */
static inline bool parse(Options *o, Command c, const char *line, Err *e) {
    static char text[8192];
    char *argv[64];
    int argc = 0;
    unsetenv("OMP_NUM_THREADS");
    snprintf(text, sizeof text, "%s", line);
    for (char *at = text; at && *at;) {
        argv[argc++] = at;
        if ((at = strchr(at, '|'))) *at++ = 0;
    }
    *e = (Err){0};
    return options_parse(o, c, argc, argv, e);
}

#endif
