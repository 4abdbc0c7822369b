/* test_err.c - what is left of a message that is too long. */
#include <string.h>

#include "base/err.h"
#include "tests/test.h"

static bool begins(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

static bool ends(const char *text, const char *with) {
    size_t n = strlen(text), m = strlen(with);
    return n >= m && !strcmp(text + n - m, with);
}

TEST(err_keeps_what_failed_and_why_of_a_message_that_is_too_long) {
    Err e = {0};
    char name[4000];
    for (int n = 900; n < 1100; n++) { /* around the place where it begins to be cut */
        memset(name, 'n', (size_t)n);
        name[n] = 0;
        EXPECT(!fail(&e, ERR_USAGE, "--out %s: no such folder", name) && e.code == ERR_USAGE);
        EXPECT(begins(e.text, "--out nnn") && ends(e.text, "n: no such folder"));
        size_t whole = strlen("--out : no such folder") + (size_t)n;
        EXPECT(strlen(e.text) == MIN2(whole, sizeof e.text - 1));
    }
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    EXPECT(!fail_system(&e, 36, "%s/%s/%s/%s: too long", name, name, name, name) && e.error == 36);
    EXPECT(begins(e.text, "nnn") && strstr(e.text, " ... ") && strlen(e.text) == sizeof e.text - 1);
    EXPECT(!fail(&e, ERR_BUDGET, "%.990s: full", name) && !fail_within(&e, "a context"));
    EXPECT(e.code == ERR_BUDGET && begins(e.text, "a context: nnn") && ends(e.text, "nnn: full"));
}

/* A character of several bytes is kept whole or not at all. */
TEST(err_cuts_no_character_in_half) {
    Err e = {0};
    char name[1600];
    for (int shift = 0; shift < 2; shift++) {
        name[0] = 'x';
        for (int i = shift; i + 1 < (int)sizeof name - 1; i += 2) memcpy(name + i, "\xc3\xa9", 2);
        name[sizeof name - 2 + shift] = 0;
        name[sizeof name - 1] = 0;
        fail(&e, ERR_FAIL, "%s", name);
        const char *gap = strstr(e.text, " ... ");
        EXPECT(gap && (gap[-1] & 0xc0) == 0x80 && (gap[5] & 0xff) == 0xc3);
    }
}
