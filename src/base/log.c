/* log.c - where log lines go: to standard error, and to the run's log file. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

enum { LINE_BYTES = 4000, KEPT_BYTES = 64 << 10 };

static int file = -1; /* the log file */
static char file_path[1024];
static enum { HEARS_ALL, HEARS_WARNINGS, HEARS_NOTHING } heard; /* on standard error */
static bool keeps;                                              /* for a file that is not opened yet */
static Str kept;
static bool incomplete; /* the file could not be written once */
static bool drawn; /* a progress line stands on the terminal and has to be wiped first */

bool log_is_terminal(void) { return isatty(STDERR_FILENO); }

void log_quiet(bool quiet) {
    heard = quiet ? HEARS_NOTHING : HEARS_ALL;
}

void log_only_warnings(void) {
    heard = HEARS_WARNINGS;
}

void log_wipe(void) {
    if (drawn) fputs("\r\033[K", stderr);
    drawn = false;
}

static void say(const char *prefix, const char *text) {
    if (heard == HEARS_ALL || (heard == HEARS_WARNINGS && prefix[0])) {
        log_wipe();
        fprintf(stderr, "%s%s\n", prefix, text);
    }
    char line[LINE_BYTES + 20];
    int n = snprintf(line, sizeof line, "%s%s\n", prefix, text);
    if (keeps && kept.len + n <= KEPT_BYTES) str_add_bytes(&kept, line, n);
    Err e = {0};
    if (file < 0 || file_write(file, line, n, file_path, &e)) return;
    bool first = !incomplete; /* what was to be logged goes on, and so does the log once it can be written again */
    incomplete = true;
    if (first) log_warn("%s. Lines are missing in the log", e.text);
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

void log_str(Str *text) {
    if (text->len) log_line("%s", text->data);
    str_free(text);
}

void log_warn(const char *fmt, ...) {
    FORMAT_INTO(text);
    say("warning: ", text);
}

void log_progress(const char *fmt, ...) {
    FORMAT_INTO(text);
    if (heard != HEARS_ALL) return;
    if (log_is_terminal()) {
        fprintf(stderr, "\r\033[K%s", text);
        fflush(stderr);
        drawn = true;
    } else {
        say("", text);
    }
}

static void drop_kept(void) {
    keeps = false;
    str_free(&kept);
}

void log_keep(void) {
    drop_kept();
    keeps = true;
}

bool log_open_file(const char *path, Err *e) {
    file_close(file);
    file = -1;
    if (snprintf(file_path, sizeof file_path, "%s", path) >= (int)sizeof file_path)
        return fail(e, ERR_FAIL, "%s: the path is too long", path);
    if (!file_open_append(path, &file, e)) return false;
    bool ok = file_write(file, str_text(&kept), kept.len, path, e);
    if (ok)
        drop_kept();
    else
        log_close_file();
    return ok;
}

void log_close_file(void) {
    log_wipe();
    drop_kept();
    file_close(file);
    file = -1;
}
