/* test.h - a test is a named block in a table that fills itself; runs end with 'N passed, N failed, N skipped, N left'.
 *
 *     TEST(arena_gives_zeroed_memory) { EXPECT(p[0] == 0); EXPECT_NEAR(a, b, 1e-6); }
 *
 * Run one binary with --list, or with a part of a name to run only those tests; drawn tests take programs=N seed=N.
 * With QUICK=1 (make check) a TEST_SLOW is left to make check-all, and a test that sweeps many cases asks test_brief()
 * how many to take. What takes more than two seconds is one or the other; VERBOSE=1 shows the seconds of each, by the
 * clock and of processors. A test that has not ended after 25 minutes (TEST_SECONDS=N) fails, and what it waits for is
 * shown: tools/hung.sh. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void TestFn(void);
void test_register(const char *name, const char *file, TestFn *fn, bool slow);
bool test_expect(bool ok, const char *file, int line, const char *what); /* counts; prints the first failures */
void test_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void test_skip(const char *why);          /* call, then return; what has one reason is told in one line */
const char *test_assets(const char *name); /* path under ASSETS, or NULL (after calling test_skip) when absent */
const char *test_tmp(void);               /* a fresh folder for this test, removed afterwards */
char *test_path(const char *name);        /* a name in it; good for the next 15 calls */

/* The number given on the command line as name=N, for longer runs of drawn tests. */
int64_t test_number(const char *name, int64_t otherwise);
bool test_sanitized(void); /* a build in which everything takes ten times as long */
bool test_brief(void);     /* a part of the cases is enough: QUICK=1, or such a build */
/* Call before the first test_tmp of a test: its folder lies in memory where there is room, so that thousands of flushes
 * cost nothing. */
void test_tmp_in_memory(void);

#define TEST_AS(name, slow)                                                            \
    static void test_##name(void);                                                     \
    __attribute__((constructor)) static void register_##name(void) {                   \
        test_register(#name, __FILE__, test_##name, slow);                             \
    }                                                                                  \
    static void test_##name(void)
#define TEST(name) TEST_AS(name, false)
#define TEST_SLOW(name) TEST_AS(name, true)

#define EXPECT(cond) test_expect((cond), __FILE__, __LINE__, #cond)
#define EXPECT_NEAR(a, b, tol)                                                                              \
    do {                                                                                                    \
        double a_ = (a), b_ = (b);                                                                          \
        if (!test_expect(fabs(a_ - b_) <= (tol), __FILE__, __LINE__, #a " near " #b))                       \
            test_note("    %.9g against %.9g", a_, b_);                                                     \
    } while (0)
#define EXPECT_STR(a, b)                                                                                    \
    do {                                                                                                    \
        const char *a_ = (a), *b_ = (b);                                                                    \
        if (!test_expect(a_ && b_ && !strcmp(a_, b_), __FILE__, __LINE__, #a " equals " #b))                \
            test_note("    \"%s\" against \"%s\"", a_ ? a_ : "(null)", b_ ? b_ : "(null)");                 \
    } while (0)
#define EXPECT_OK(call)                                                                                     \
    do {                                                                                                    \
        if (!test_expect((call), __FILE__, __LINE__, #call)) test_note("    %s", e.text);                   \
    } while (0) /* expects a variable `Err e` in scope */

#endif
