/* line_input.h - lines that a person types: with editing and a history where libedit is installed (it is opened at run
 * time), as they come otherwise, and from anything that is no terminal. */
#ifndef CLI_LINE_INPUT_H
#define CLI_LINE_INPUT_H

#include "base/str.h"

typedef enum LineEnd {
    LINE_GIVEN,
    LINE_DROPPED, /* an interrupt: what was typed is forgotten */
    LINE_CLOSED   /* no more will come: the input ended, or a signal asks to leave */
} LineEnd;

typedef struct LineInput LineInput;

/* history: a file the lines of earlier times are in, made when it is absent; NULL, or one that cannot be read or
 * written: what is typed is remembered until the end only. Gives. */
LineInput *line_input_open(const char *history);
bool line_input_is_terminal(const LineInput *in);
LineEnd line_input_read(LineInput *in, const char *prompt, Str *line); /* replaces line; without its end */
void line_input_remember(LineInput *in, const char *text); /* for the history; may have several lines */
void line_input_close(LineInput *in);

#endif
