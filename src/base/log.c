/* log.c - who hears what the program says while it works. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static FILE *file;
static bool quiet_;
static bool drawn; /* a progress line stands on the terminal and has to be wiped first */

bool log_is_terminal(void) { return isatty(STDERR_FILENO); }

void log_quiet(bool quiet) { quiet_ = quiet; }

static void wipe(void) {
    if (drawn) fputs("\r\033[K", stderr);
    drawn = false;
}

static void say(const char *prefix, const char *text) {
    if (!quiet_) {
        wipe();
        fprintf(stderr, "%s%s\n", prefix, text);
    }
    if (file) {
        fprintf(file, "%s%s\n", prefix, text);
        fflush(file);
    }
}

#define FORMAT_INTO(text)                       \
    char text[4000];                            \
    va_list ap;                                 \
    va_start(ap, fmt);                          \
    vsnprintf(text, sizeof text, fmt, ap);      \
    va_end(ap)

void log_line(const char *fmt, ...) {
    FORMAT_INTO(text);
    say("", text);
}

void log_warn(const char *fmt, ...) {
    FORMAT_INTO(text);
    say("warning: ", text);
}

void log_progress(const char *fmt, ...) {
    FORMAT_INTO(text);
    if (quiet_) return;
    if (log_is_terminal()) {
        fprintf(stderr, "\r\033[K%s", text);
        fflush(stderr);
        drawn = true;
    } else {
        say("", text);
    }
}

bool log_open_file(const char *path, Err *e) {
    log_close_file();
    file = fopen(path, "ae");
    if (!file) return fail(e, ERR_FAIL, "%s: cannot open the log: %s", path, strerror(errno));
    return true;
}

void log_close_file(void) {
    wipe();
    if (file) fclose(file);
    file = NULL;
}
