/* log.c - who hears what the program says while it works. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { LINE_BYTES = 4000 };

static int file = -1; /* the log file */
static char file_path[1024];
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
    char line[LINE_BYTES + 20];
    Err e = {0};
    if (file < 0 || file_write(file, line, snprintf(line, sizeof line, "%s%s\n", prefix, text), file_path, &e)) return;
    log_close_file(); /* what was to be logged goes on without a log */
    log_warn("%s. The log ends here", e.text);
}

#define FORMAT_INTO(text)                       \
    char text[LINE_BYTES];                      \
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
    if (snprintf(file_path, sizeof file_path, "%s", path) >= (int)sizeof file_path)
        return fail(e, ERR_FAIL, "%s: the path is too long", path);
    return file_open_append(path, &file, e);
}

void log_close_file(void) {
    wipe();
    file_close(file);
    file = -1;
}
