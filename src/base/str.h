/* str.h - text that grows, and small questions about text. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

/* A growing byte string; data is always NUL-terminated once something was added. Zero-initialise to begin. */
typedef struct Str {
    char *data; /* owns */
    int64_t len, capacity;
} Str;

void str_free(Str *s);
void str_clear(Str *s); /* length 0, memory kept */
void str_add(Str *s, const char *text);
void str_add_bytes(Str *s, const char *bytes, int64_t n);
void str_add_char(Str *s, char c);
void str_addf(Str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void str_add_trimmed(Str *s, const char *text); /* without white space at its ends */
void str_add_html(Str *s, const char *text); /* <, >, & and " escaped */
/* For a terminal: what is no printable UTF-8 becomes '?', and what would take more columns than that is cut. Gives the
 * columns taken. */
int str_add_plain(Str *s, const char *text, int most_columns);
const char *str_text(const Str *s); /* "" when empty; borrows */

int64_t str_characters(const char *text); /* of UTF-8 */
bool str_starts(const char *s, const char *prefix);
/* Bytes of the byte order mark that a text of n bytes begins with: 3 or 0. Editors of Windows write one. */
int64_t str_mark(const char *text, int64_t n);
bool str_ends(const char *s, const char *suffix);
bool str_same_word(const char *a, const char *b);  /* equal, ignoring case, '-' and '_' being the same */
bool str_is_among(const char *word, const char *words); /* the same as one of "a|b|c" */

/* The nearest of n names, or NULL when none is near. */
const char *str_nearest(const char *word, const char *const *names, int n);

#endif
