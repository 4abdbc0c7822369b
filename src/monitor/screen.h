/* screen.h - a full-screen terminal display, by ncurses, which is loaded at run time.
 *
 * The library is opened when it is first needed, so that everything else works without it. */
#ifndef MONITOR_SCREEN_H
#define MONITOR_SCREEN_H

#include <stdbool.h>

#include "base/err.h"

typedef struct Screen Screen;

/* Takes the terminal over. False: there is no ncurses, or no such terminal. Gives: screen_close. */
bool screen_open(Screen **s, bool colours, Err *e);
void screen_close(Screen *s); /* the terminal is as it was; NULL is fine */

int screen_columns(const Screen *s);
void screen_show(Screen *s, const char *lines); /* with the marks of view.h; what does not fit is cut */
bool screen_is_left(Screen *s);                 /* q was pressed; does not wait */

#endif
