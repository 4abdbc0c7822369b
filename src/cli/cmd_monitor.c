/* cmd_monitor.c - snug monitor: which of its ways is asked for, and the loop that looks, shows and waits. */
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/jobs.h"
#include "cli/show.h"
#include "monitor/screen.h"
#include "monitor/serve.h"
#include "monitor/wrap.h"
#include "obs/sensors.h"

enum { PLAIN_COLUMNS = 100, DIGITS = 15 };

typedef struct Watcher {
    const Options *o;
    Monitor m;
    Snapshot now;
    Past past;
    double began;
    bool utf8, colours;
    int csv_fd; /* -1: none */
    const char *csv;
    double csv_next; /* seconds from the beginning */
    Err csv_error;
} Watcher;

static void print_text(const Str *s) {
    fwrite(str_text(s), 1, (size_t)s->len, stdout);
    fflush(stdout);
}

static double elapsed(const Watcher *w) {
    return sensors_seconds() - w->began;
}

static bool is_over(const Watcher *w) {
    return stop_asked() || (opt_given(w->o, OPT_DURATION) && elapsed(w) >= opt_real(w->o, OPT_DURATION));
}

/* Until the look after this one is due, somebody leaves, or the time is over. */
static void wait_turn(const Watcher *w, int64_t turn, Screen *screen, bool *leaves) {
    double until = (double)turn * opt_real(w->o, OPT_INTERVAL);
    while (!is_over(w) && elapsed(w) < until && !*leaves) {
        double left = MIN2(until - elapsed(w), 0.05);
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * MAX2(left, 0.001))}, NULL);
        *leaves = screen && screen_is_left(screen);
    }
}

static void look(Watcher *w) {
    monitor_take(&w->m, &w->now, MONITOR_ALL);
    past_add(&w->past, &w->now);
}

/* ---- once ---- */

static bool once(Watcher *w) {
    Str text = {0}, plain = {0};
    monitor_take(&w->m, &w->now, MONITOR_ALL);
    if (opt_flag(w->o, OPT_JSON)) {
        show_print_digits(view_json(&w->now), DIGITS);
        return true;
    }
    view_text(&text, &w->now, NULL, (ViewShape){PLAIN_COLUMNS, w->utf8});
    view_paint(&plain, str_text(&text), false);
    print_text(&plain);
    str_free(&text);
    str_free(&plain);
    return true;
}

/* ---- a CSV file ---- */

static bool open_csv(Watcher *w, Err *e) {
    int64_t bytes = 0;
    w->csv = opt_text(w->o, OPT_CSV);
    if (!w->csv) return true;
    if (file_exists(w->csv) && file_size(w->csv, &bytes, NULL) && bytes && !opt_flag(w->o, OPT_OVERWRITE))
        return fail(e, ERR_FAIL, "--csv %s: is already there; --overwrite replaces it", w->csv);
    if (!file_open_append(w->csv, &w->csv_fd, e) || (bytes && !file_cut(w->csv_fd, 0, w->csv, e))) return false;
    Str head = {0};
    view_csv_head(&head);
    bool ok = file_write(w->csv_fd, head.data, head.len, w->csv, e);
    str_free(&head);
    if (ok && w->m.no_gpu[0]) log_line("%s; the rows are the host's memory", w->m.no_gpu);
    return ok;
}

static bool add_csv(Watcher *w, const Snapshot *s, double seconds, Err *e) {
    Str rows = {0};
    view_csv_rows(&rows, s, seconds);
    bool ok = file_write(w->csv_fd, rows.data, rows.len, w->csv, e);
    str_free(&rows);
    return ok;
}

static bool record(Watcher *w, Err *e) {
    bool leaves = false;
    for (int64_t turn = 1; !is_over(w) || turn == 1; turn++) {
        monitor_take(&w->m, &w->now, 0);
        if (!add_csv(w, &w->now, elapsed(w), e)) return false;
        wait_turn(w, turn, NULL, &leaves);
    }
    return true;
}

/* ---- a command ---- */

static void add_csv_beside(void *user, const Snapshot *s, double seconds) {
    Watcher *w = user;
    if (seconds < w->csv_next || w->csv_error.code) return;
    w->csv_next = seconds + opt_real(w->o, OPT_INTERVAL);
    add_csv(w, s, seconds, &w->csv_error);
}

/* What the command writes to standard output is its own: the report goes to standard error, or is the last line. */
static bool wrap(Watcher *w, Err *e) {
    Wrapped report;
    const char **argv = MEM_NEW(const char *, w->o->n_positional + 1);
    memcpy(argv, w->o->positional, sizeof *argv * (size_t)w->o->n_positional);
    bool ok = wrap_run(&report, &w->m, argv, opt_real(w->o, OPT_INTERVAL), w->csv ? add_csv_beside : NULL, w, e);
    mem_free(argv);
    if (!ok) return false;
    if (w->csv_error.code) log_warn("%s", w->csv_error.text);
    Str text = {0};
    wrap_text(&text, &report, w->utf8);
    if (opt_flag(w->o, OPT_JSON))
        show_print_digits(wrap_json(&report), DIGITS);
    else
        fprintf(stderr, "snug monitor: %s", str_text(&text));
    str_free(&text);
    if (!report.code) return true;
    fflush(stdout);
    exit(report.code); /* it is the command's word, not ours */
}

/* ---- live ---- */

static int terminal_columns(void) {
    struct winsize size = {0};
    return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col ? size.ws_col : PLAIN_COLUMNS;
}

/* Without ncurses: the same lines, drawn over the last ones; in a file or a pipe one block after the other. */
static void show_plainly(const Watcher *w, bool terminal) {
    Str text = {0}, painted = {0};
    view_text(&text, &w->now, &w->past, (ViewShape){terminal ? terminal_columns() : PLAIN_COLUMNS, w->utf8});
    if (terminal) str_add(&painted, "\033[H\033[J");
    view_paint(&painted, str_text(&text), terminal && w->colours);
    if (!terminal) str_add_char(&painted, '\n');
    print_text(&painted);
    str_free(&text);
    str_free(&painted);
}

static void show_on(Screen *screen, const Watcher *w) {
    Str text = {0};
    str_add(&text, "q leaves  ");
    view_text(&text, &w->now, &w->past, (ViewShape){screen_columns(screen), w->utf8});
    screen_show(screen, str_text(&text));
    str_free(&text);
}

static bool live(Watcher *w) {
    Screen *screen = NULL;
    Err why = {0};
    bool terminal = isatty(STDOUT_FILENO), leaves = false;
    const char *kind = getenv("TERM");
    bool dumb = !kind || !*kind || !strcmp(kind, "dumb");
    if (terminal && dumb) fail(&why, ERR_FAIL, "the terminal cannot be drawn on (TERM)");
    if (terminal && (dumb || !screen_open(&screen, w->colours, &why)))
        log_line("%s; plain lines instead, an interrupt leaves", why.text);
    for (int64_t turn = 1; (!is_over(w) || turn == 1) && !leaves; turn++) {
        look(w);
        if (opt_flag(w->o, OPT_JSON))
            show_print_digits(view_json(&w->now), DIGITS);
        else if (screen)
            show_on(screen, w);
        else
            show_plainly(w, terminal && !dumb);
        wait_turn(w, turn, screen, &leaves);
    }
    screen_close(screen);
    return true;
}

/* ---- in a browser ---- */

static bool parse_port(int *port, const char *text, Err *e) {
    char *end;
    long n = strtol(text, &end, 10);
    bool any = !strcmp(text, "any");
    *port = any ? 0 : (int)n;
    if (any || (!*end && n > 0 && n <= UINT16_MAX)) return true;
    return fail(e, ERR_USAGE, "--serve %s: is neither a port from 1 to 65535 nor any", text);
}

static bool serve(Watcher *w, Err *e) {
    Server *server;
    const char *host = opt_text(w->o, OPT_HOST), *token = opt_text(w->o, OPT_TOKEN);
    ServeOptions o = {.host = host, .token = token};
    if (!parse_port(&o.port, opt_text(w->o, OPT_SERVE), e) || !serve_open(&server, &o, e)) return false;
    bool v6 = strchr(host, ':') != NULL;
    log_line("http://%s%s%s:%d/%s%s", v6 ? "[" : "", host, v6 ? "]" : "", serve_port(server),
             token ? "?token=" : "", token ? token : "");
    if (!serve_is_local(server) && !token)
        log_warn("--host %s: whoever reaches this machine can look; --token asks for a word", host);
    double next = 0;
    while (!is_over(w)) {
        if (elapsed(w) >= next) {
            look(w);
            serve_show(server, &w->now, &w->past);
            next = elapsed(w) + opt_real(w->o, OPT_INTERVAL);
        }
        serve_run(server, (int)MAX2(1, MIN2(100, 1e3 * (next - elapsed(w)))));
    }
    serve_close(server);
    return true;
}

static bool watch(Watcher *w, Err *e) {
    if (w->o->words_end && !w->o->n_positional)
        return fail(e, ERR_USAGE, "no command stands behind `--`; for example `snug monitor -- sleep 1`");
    if (!open_csv(w, e)) return false;
    if (w->o->n_positional) return wrap(w, e);
    if (w->csv) return record(w, e);
    if (opt_given(w->o, OPT_SERVE)) return serve(w, e);
    return opt_flag(w->o, OPT_ONCE) ? once(w) : live(w);
}

bool cmd_monitor(const Options *o, Err *e) {
    char jobs[JOBS_PATH];
    const char *library = getenv("SNUG_NVML"), *bare = getenv("NO_COLOR");
    Watcher *w = MEM_NEW(Watcher, 1);
    *w = (Watcher){.o = o, .began = sensors_seconds(), .csv_fd = -1};
    setlocale(LC_CTYPE, "");
    w->utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    w->colours = !bare || !*bare;
    jobs_folder(jobs);
    monitor_open(&w->m, library && *library ? library : NULL, jobs);
    bool ok = watch(w, e);
    file_close(w->csv_fd);
    monitor_close(&w->m);
    mem_free(w);
    return ok;
}
