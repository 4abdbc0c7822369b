/* chars.h - which characters part the words of PENMAN notation. */
#ifndef AMR_CHARS_H
#define AMR_CHARS_H

#include <stdbool.h>
#include <string.h>

static inline bool amr_is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static inline bool amr_is_line_end(char c) {
    return c == '\n' || c == '\r';
}
static inline bool amr_ends_word(char c) {
    return !c || amr_is_blank(c) || strchr("\"()/:~", c);
}

#endif
