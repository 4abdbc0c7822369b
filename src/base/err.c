/* err.c - how a failure is worded and where a bug stops the process. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool put(Err *e, ErrCode code, int error, const char *fmt, va_list ap) {
    if (!e) return false;
    e->code = code;
    e->error = error;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
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
    char old[sizeof e->text], context[300];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    size_t used = (size_t)snprintf(e->text, sizeof e->text, "%s: ", context), room = sizeof e->text - used - 1;
    memcpy(e->text + used, old, room); /* what does not fit at the end is cut */
    e->text[used + room] = 0;
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
