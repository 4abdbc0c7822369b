/* line_input.c - libedit's interface as far as it is used here, and where typed lines are remembered. */
#include "cli/line_input.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/file.h"
#include "base/json.h"
#include "base/library.h"
#include "cli/cmd.h"

enum { HISTORY_LINES = 1000 };

/* ---- libedit ---- */

/* Numbers of histedit.h. */
enum { EL_PROMPT = 0, EL_EDITOR = 2, EL_SIGNAL = 3, EL_HIST = 10, EL_GETCFN = 13 };
enum { H_SETSIZE = 1, H_ENTER = 10, H_SETUNIQUE = 20 };
typedef struct EditLine EditLine;
typedef struct History History;
typedef struct HistEvent {
    int num;
    const char *str;
} HistEvent;

typedef struct EditLibrary {
    void *handle;
    EditLine *(*init)(const char *, FILE *, FILE *, FILE *);
    void (*end)(EditLine *);
    int (*set)(EditLine *, int, ...);
    const char *(*gets)(EditLine *, int *);
    void (*resize)(EditLine *);
    History *(*history_init)(void);
    void (*history_end)(History *);
    int (*history)(History *, HistEvent *, int, ...);
} EditLibrary;

struct LineInput {
    bool terminal;
    EditLibrary lib; /* handle NULL: none */
    EditLine *edit;
    History *past;
    const char *prompt;   /* of the line that is read */
    bool ahead;           /* what is read was typed before the prompt was there */
    int history_fd;       /* -1: nothing is kept */
    char history_path[1100];
};

static bool open_library(EditLibrary *l) {
    static const char *const names[] = {"libedit.so.2", "libedit.so.0", "libedit.so"}; /* Debian's, and others' */
    const LibraryCall calls[] = {
        {"el_init", (void **)&l->init},
        {"el_end", (void **)&l->end},
        {"el_set", (void **)&l->set},
        {"el_gets", (void **)&l->gets},
        {"el_resize", (void **)&l->resize},
        {"history_init", (void **)&l->history_init},
        {"history_end", (void **)&l->history_end},
        {"history", (void **)&l->history},
    };
    l->handle = library_open(names, COUNT_OF(names), calls, COUNT_OF(calls));
    return l->handle != NULL;
}

static LineInput *reader; /* whose line is read: libedit's calls know the editor, of which there is one */

static char *give_prompt(EditLine *el) { return (char *)reader->prompt; }

/* Until there is input; false: a signal asks to leave. It may come to another thread, or just before the wait: so the
 * flag is looked at again and again. */
static bool wait_for_input(void) {
    enum { LOOK_MS = 100 };
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready = 0;
    while (!stop_signal && ready == 0) {
        ready = poll(&input, 1, LOOK_MS);
        if (ready < 0 && errno == EINTR) ready = 0;
    }
    return !stop_signal && ready > 0;
}

/* A byte of the input; false: the end, or a signal. */
static bool read_byte(char *to) {
    int64_t got = 0;
    return wait_for_input() && file_read_some(STDIN_FILENO, to, &got, 1, "standard input", NULL) && got == 1;
}

static bool is_ready(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, 0) > 0;
}

/* libedit's own reading would begin again after a signal; this one ends the line. While an answer is written the kernel
 * edits lines, and keeps a Ctrl-D that is typed then as a zero. */
static int read_character(EditLine *el, wchar_t *to) {
    enum { CTRL_D = 4 };
    mbstate_t state = {0};
    char byte;
    reader->ahead = reader->ahead && is_ready();
    while (read_byte(&byte)) {
        if (!byte && reader->ahead) byte = CTRL_D;
        size_t n = mbrtowc(to, &byte, 1, &state);
        if (n == (size_t)-1) memset(&state, 0, sizeof state); /* not a character: the next byte begins one */
        else if (n != (size_t)-2) return 1;
    }
    return 0;
}

static bool knows_utf8(void) { /* lines are edited by characters */
    return (setlocale(LC_CTYPE, "") && MB_CUR_MAX > 1) || (setlocale(LC_CTYPE, "C.UTF-8") && MB_CUR_MAX > 1);
}

static void open_editor(LineInput *in) {
    const char *kind = getenv("TERM");
    HistEvent ev;
    if (!in->terminal || !kind || !*kind || !strcmp(kind, "dumb") || !knows_utf8() || !open_library(&in->lib)) return;
    const EditLibrary *l = &in->lib;
    in->edit = l->init("snug", stdin, stdout, stderr);
    in->past = in->edit ? l->history_init() : NULL;
    if (!in->past) return;
    l->history(in->past, &ev, H_SETSIZE, HISTORY_LINES);
    l->history(in->past, &ev, H_SETUNIQUE, 1);
    l->set(in->edit, EL_PROMPT, give_prompt);
    l->set(in->edit, EL_EDITOR, "emacs");
    l->set(in->edit, EL_SIGNAL, 0);
    l->set(in->edit, EL_GETCFN, read_character);
    l->set(in->edit, EL_HIST, l->history, in->past);
}

/* ---- history: a JSON string a line, the oldest first ---- */

static void enter_history(LineInput *in, const char *text) {
    HistEvent ev;
    if (in->past) in->lib.history(in->past, &ev, H_ENTER, text);
}

static int64_t count_lines(const Str *s) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->len; i++) n += s->data[i] == '\n';
    return n;
}

static void read_history(LineInput *in) {
    Str text = {0};
    if (!file_read(in->history_path, &text, 1 << 24, NULL)) return;
    int64_t skip = MAX2(0, count_lines(&text) - HISTORY_LINES);
    char *line = text.data, *kept = line, *end;
    for (; line && (end = strchr(line, '\n')); line = end + 1, skip--) {
        json_t *j = json_loadb(line, (size_t)(end - line), JSON_DECODE_ANY, NULL);
        if (skip == 0) kept = line;
        if (skip <= 0 && json_is_string(j)) enter_history(in, json_string_value(j));
        json_decref(j);
    }
    if (kept - text.data > text.len / 2) /* most of it is older than what is remembered */
        file_write_all(in->history_path, kept, text.data + text.len - kept, NULL);
    str_free(&text);
}

static void open_history(LineInput *in, const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!path || !in->past ||
        snprintf(in->history_path, sizeof in->history_path, "%s", path) >= (int)sizeof in->history_path)
        return;
    if (slash) {
        char folder[1100];
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        if (!file_make_dirs(folder, NULL)) return;
    }
    read_history(in);
    if (!file_open_append(path, &in->history_fd, NULL)) in->history_fd = -1;
}

void line_input_remember(LineInput *in, const char *text) {
    enter_history(in, text);
    json_t *j = in->history_fd >= 0 ? json_string(text) : NULL;
    Str line = {0};
    bool kept = json_add(&line, j, JSON_DIGITS);
    str_add_char(&line, '\n');
    if (kept && !file_write(in->history_fd, line.data, line.len, in->history_path, NULL)) {
        file_close(in->history_fd); /* what is typed is remembered until the end only */
        in->history_fd = -1;
    }
    str_free(&line);
    json_decref(j);
}

/* ---- lines ---- */

LineInput *line_input_open(const char *history) {
    LineInput *in = MEM_NEW(LineInput, 1);
    in->history_fd = -1;
    in->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    open_editor(in);
    open_history(in, history);
    return in;
}

bool line_input_is_terminal(const LineInput *in) { return in->terminal; }

/* Plain: a byte at a time, so that a signal is noticed and nothing behind the line is taken. */
static bool read_plain(LineInput *in, Str *line, bool *ended) {
    char byte;
    while (read_byte(&byte)) {
        if (byte == '\n') return true;
        str_add_char(line, byte);
    }
    *ended = !stop_signal && !line->len;
    return !stop_signal && line->len; /* a last line without an end counts */
}

static bool read_edited(LineInput *in, Str *line, bool *ended) {
    int n = 0;
    in->ahead = true;
    in->lib.resize(in->edit); /* the terminal may have another size now */
    const char *text = in->lib.gets(in->edit, &n);
    *ended = !stop_signal && (!text || n <= 0);
    if (stop_signal || !text || n <= 0) return false;
    str_add_bytes(line, text, n);
    return true;
}

LineEnd line_input_read(LineInput *in, const char *prompt, Str *line) {
    bool ended = false;
    str_clear(line);
    reader = in;
    in->prompt = prompt;
    if (in->terminal && !in->past) printf("%s", prompt);
    fflush(stdout);
    bool given = in->past ? read_edited(in, line, &ended) : read_plain(in, line, &ended);
    while (given && line->len && strchr("\r\n", line->data[line->len - 1])) line->data[--line->len] = 0;
    if (given) return LINE_GIVEN;
    if (in->terminal) printf("\n");
    bool dropped = !ended && stop_signal == SIGINT && in->terminal;
    if (dropped) stop_signal = 0;
    return dropped ? LINE_DROPPED : LINE_CLOSED;
}

void line_input_close(LineInput *in) { /* the library stays: what it knows of the terminal is never given back */
    if (in->past) in->lib.history_end(in->past);
    if (in->edit) in->lib.end(in->edit);
    file_close(in->history_fd);
    mem_free(in);
}
