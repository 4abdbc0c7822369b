/* err.c - how an error's text is made, and where a bug stops the process. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is too long loses its middle, so that neither what failed nor why is lost behind the name of a file. */
static void cut_middle(char *to, size_t size, const char *text, size_t n) {
    static const char gap[] = " ... ";
    size_t head = size / 2, tail = n - (size - head - sizeof gap);
    while (head && (text[head] & 0xc0) == 0x80) head--; /* no half of a character */
    while (tail < n && (text[tail] & 0xc0) == 0x80) tail++;
    snprintf(to, size, "%.*s%s%s", (int)head, text, gap, text + tail);
}

static void set_text(Err *e, const char *text, size_t n) {
    if (n < sizeof e->text) memcpy(e->text, text, n + 1);
    else cut_middle(e->text, sizeof e->text, text, n);
}

static bool put(Err *e, ErrCode code, int error, const char *fmt, va_list ap) {
    if (!e) return false;
    char whole[3 * 4096];
    int n = vsnprintf(whole, sizeof whole, fmt, ap);
    e->code = code;
    e->error = error;
    set_text(e, whole, MIN2((size_t)MAX2(n, 0), sizeof whole - 1));
    return false;
}

bool fail(Err *e, ErrCode code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put(e, code, 0, fmt, ap);
    va_end(ap);
    return false;
}

bool fail_system(Err *e, int error, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put(e, ERR_FAIL, error, fmt, ap);
    va_end(ap);
    return false;
}

bool fail_within(Err *e, const char *fmt, ...) {
    if (!e) return false;
    char context[300], whole[sizeof context + sizeof e->text + 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    int n = snprintf(whole, sizeof whole, "%s: %s", context, e->text);
    set_text(e, whole, (size_t)n);
    if (e->code == ERR_NONE) e->code = ERR_FAIL;
    return false;
}

_Noreturn void check_failed(const char *file, int line, const char *what, const char *fmt, ...) {
    fprintf(stderr, "snug: bug at %s:%d: (%s) does not hold. ", file, line, what);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
