/* screen.c - the binding to ncurses: declared here as its documentation does, with the numbers of its version 6. */
#include "monitor/screen.h"

#include <stdio.h>
#include <string.h>

#include "base/library.h"
#include "base/mem.h"
#include "monitor/view.h"

enum {
    WORDS_BYTES = 2048,
    FAILED = -1,
    BOLD = 1 << 21,
    PAIR_SHIFT = 8,
    RED = 1,
    GREEN = 2,
    YELLOW = 3,
    KEY_ESCAPE = 27
};

struct Screen {
    void *library; /* stays open: it keeps memory of its own until the process ends */
    void *terminal, **window;
    bool colours;
    void *(*newterm)(const char *, FILE *, FILE *);
    void (*delscreen)(void *);
    int (*endwin)(void), (*cbreak)(void), (*noecho)(void), (*start_color)(void), (*use_default_colors)(void);
    int (*curs_set)(int), (*init_pair)(short, short, short);
    bool (*has_colors)(void);
    int (*nodelay)(void *, bool), (*keypad)(void *, bool);
    int (*werase)(void *), (*wmove)(void *, int, int), (*wrefresh)(void *), (*wgetch)(void *),
        (*wattrset)(void *, int);
    int (*waddnstr)(void *, const char *, int);
    int (*getmaxx)(const void *), (*getmaxy)(const void *);
};

static bool open_library(Screen *s) {
    static const char *const names[] = {"libncursesw.so.6", "libncurses.so.6"};
    const LibraryCall calls[] = {
        {"stdscr", (void **)&s->window},
        {"newterm", (void **)&s->newterm},
        {"delscreen", (void **)&s->delscreen},
        {"endwin", (void **)&s->endwin},
        {"cbreak", (void **)&s->cbreak},
        {"noecho", (void **)&s->noecho},
        {"start_color", (void **)&s->start_color},
        {"use_default_colors", (void **)&s->use_default_colors},
        {"curs_set", (void **)&s->curs_set},
        {"init_pair", (void **)&s->init_pair},
        {"has_colors", (void **)&s->has_colors},
        {"nodelay", (void **)&s->nodelay},
        {"keypad", (void **)&s->keypad},
        {"werase", (void **)&s->werase},
        {"wmove", (void **)&s->wmove},
        {"wrefresh", (void **)&s->wrefresh},
        {"wgetch", (void **)&s->wgetch},
        {"wattrset", (void **)&s->wattrset},
        {"waddnstr", (void **)&s->waddnstr},
        {"getmaxx", (void **)&s->getmaxx},
        {"getmaxy", (void **)&s->getmaxy},
    };
    s->library = library_open(names, COUNT_OF(names), calls, COUNT_OF(calls));
    return s->library != NULL;
}

static void set_up(Screen *s, bool colours) {
    s->cbreak();
    s->noecho();
    s->curs_set(0);
    s->nodelay(*s->window, true);
    s->keypad(*s->window, true);
    s->colours = colours && s->has_colors() && s->start_color() != FAILED;
    if (!s->colours) return;
    short behind = s->use_default_colors() == FAILED ? 0 : -1;
    s->init_pair(MARK_GOOD, GREEN, behind);
    s->init_pair(MARK_WARM, YELLOW, behind);
    s->init_pair(MARK_HOT, RED, behind);
}

bool screen_open(Screen **to, bool colours, Err *e) {
    *to = NULL;
    Screen *s = MEM_NEW(Screen, 1);
    if (!open_library(s)) {
        mem_free(s);
        return fail(e, ERR_FAIL,
                    "ncurses is not here (package libncursesw6 of Debian and Ubuntu, ncurses elsewhere)");
    }
    s->terminal = s->newterm(NULL, stdout, stdin);
    if (!s->terminal) {
        mem_free(s);
        return fail(e, ERR_FAIL, "ncurses does not know this terminal (TERM)");
    }
    set_up(s, colours);
    *to = s;
    return true;
}

void screen_close(Screen *s) {
    if (!s) return;
    s->endwin();
    s->delscreen(s->terminal);
    mem_free(s);
}

int screen_columns(const Screen *s) {
    return s->getmaxx(*s->window);
}

static int attribute(const Screen *s, int mark) {
    if (mark == MARK_PLAIN) return 0;
    if (mark == MARK_STRONG || !s->colours) return BOLD;
    return mark << PAIR_SHIFT | (mark == MARK_HOT ? BOLD : 0);
}

/* ncurses cuts at the right edge only where a line does not wrap: a line is cut here, by columns. */
static void show_line(Screen *s, const char *line, int len, int columns) {
    while (len > 0 && columns > 0) {
        if (*line<MARK_COUNT && * line> 0) {
            s->wattrset(*s->window, attribute(s, *line));
            line++, len--;
            continue;
        }
        int n = 0;
        while (n < len && (line[n] >= MARK_COUNT || line[n] < 0)) n++;
        char piece[WORDS_BYTES];
        snprintf(piece, sizeof piece, "%.*s", n, line);
        Str cut = {0};
        columns -= str_add_plain(&cut, piece, columns);
        s->waddnstr(*s->window, str_text(&cut), (int)cut.len);
        str_free(&cut);
        line += n, len -= n;
    }
    s->wattrset(*s->window, 0);
}

void screen_show(Screen *s, const char *lines) {
    int rows = s->getmaxy(*s->window), columns = screen_columns(s);
    s->werase(*s->window);
    for (int row = 0; row < rows && *lines; row++) {
        int len = (int)strcspn(lines, "\n");
        s->wmove(*s->window, row, 0);
        show_line(s, lines, len, row == rows - 1 ? columns - 1 : columns); /* the last cell would scroll */
        lines += len + (lines[len] == '\n');
    }
    s->wrefresh(*s->window);
}

bool screen_is_left(Screen *s) {
    for (int key; (key = s->wgetch(*s->window)) != FAILED;)
        if (key == 'q' || key == 'Q' || key == KEY_ESCAPE) return true;
    return false;
}
