/* check.h - a broken invariant is a bug: say where, and stop. It stays on in release builds. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#if defined(__GNUC__)
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PRINTF_LIKE(fmt, args)
#endif

_Noreturn void check_failed(const char *file, int line, const char *what, const char *fmt, ...) PRINTF_LIKE(4, 5);

#define CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond, "%s", ""))
#define CHECK_MSG(cond, ...) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__))

#define COUNT_OF(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define MAX2(a, b) ((a) > (b) ? (a) : (b))
#define MIN2(a, b) ((a) < (b) ? (a) : (b))

#endif
