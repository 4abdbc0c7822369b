/* main.c - the table of commands, signals, and the only exit. */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/cmd.h"
#include "cli/elsewhere.h"
#include "cli/places.h"
#include "cli/rules.h"
#include "cli/run_names.h"
#include "obs/sensors.h"

static const char version[] = "0.9.0";

static CommandFn *const functions[CMD_COUNT] = {
#define COMMAND(id, function, ...) [CMD_##id] = cmd_##function,
#include "cli/commands.def"
#undef COMMAND
};

/* Where a command polls (base/stop.h), the first signal asks it to save and leave, and the second insists.
 * Elsewhere there is nothing to save, and what is on disk is made for a kill. */
static void on_signal(int number) {
    if (stop_signal || !stop_is_polled) _exit(128 + number);
    stop_signal = number;
}

static void on_exhausted(int64_t bytes) {
    ProcessRefusal no = process_refusal();
    const char *hint = "Close other programs, or give a smaller --budget.";
    int64_t machine = sensors_memory().total_bytes;
    if (no.why[0]) hint = "Raise the limit, or ask for less.";
    else if (machine > 0 && bytes > machine) hint = "Is a count or a length among the options larger than meant?";
    fprintf(stderr, "snug: the system refused %lld bytes of memory%s. %s\n", (long long)bytes, no.why, hint);
    _exit((int)no.code);
}

static void *json_alloc(size_t bytes) { return mem_alloc((int64_t)bytes); }

#ifdef FAULTS
/* Takes every `--fault KIND:N` out of the words; the fault flavour alone has this option. */
static bool take_faults(int *argc, char **argv, Err *e) {
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--fault")) argv[kept++] = argv[i];
        else if (++i == *argc) return fail(e, ERR_USAGE, "--fault: a value is missing");
        else if (!fault_set(argv[i], e)) return false;
    }
    *argc = kept;
    return true;
}
#endif

/* Somebody who reads the beginning alone (snug train --help | head) knows that there is more. */
static bool reader_has_gone(void) {
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

static int finish(const Err *e) {
    log_close_file();
#ifdef FAULTS
    fault_report();
#endif
    if (e->code) fprintf(stderr, "snug: %s\n", e->text);
    if (!fflush(stdout) && !ferror(stdout)) return (int)e->code;
    if (!reader_has_gone()) fprintf(stderr, "snug: standard output could not be written\n");
    return e->code ? (int)e->code : ERR_FAIL;
}

static void print_text(const Str *s) { fwrite(str_text(s), 1, (size_t)s->len, stdout); }

/* Words before the command: --help, --version, --quiet. True: there is nothing more to do. */
static bool take_program_words(int *argc, char ***argv, Str *text, bool *quiet, Err *e) {
    for (; *argc > 1 && !strcmp((*argv)[1], "--quiet"); ++*argv, --*argc) *quiet = true;
    const char *word = *argc > 1 ? (*argv)[1] : NULL;
    if (word && !strcmp(word, "help") && *argc > 2) { /* snug help train: snug train --help */
        static char help[] = "--help";
        for (int i = 1; i < *argc - 1; i++) (*argv)[i] = (*argv)[i + 1];
        (*argv)[*argc - 1] = help;
        return false;
    }
    if (word && !strcmp(word, "--version")) {
        str_addf(text, "snug %s\n", version);
        return true;
    }
    if (word && strcmp(word, "--help") && strcmp(word, "-h") && strcmp(word, "help")) return false;
    options_overview(text);
    if (!word) fail(e, ERR_USAGE, "no command given");
    return true;
}

/* `snug amr parse` has two words: unlike the other verbs of snug amr it runs a model, and has the options of that. */
static const char *take_command(int *argc, char ***argv) {
    bool two = *argc > 2 && !strcmp((*argv)[1], "amr") && !strcmp((*argv)[2], "parse");
    if (two) ++*argv, --*argc;
    return two ? command_rows[CMD_AMR_PARSE].name : (*argv)[1];
}

/* A function of its own, so that its frame is not there yet where main asks for the stack. */
__attribute__((noinline)) static int run(int argc, char **argv) {
    mem_open();
    /* a flush or an output is not cut short */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < COUNT_OF(signals); i++) sigaction(signals[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a write that fails, and says so */
    mem_on_exhausted(on_exhausted);
    json_set_alloc_funcs(json_alloc, mem_free); /* counted like everything else */

    Err e = {0};
    Str text = {0};
    Command c;
#ifdef FAULTS
    if (!take_faults(&argc, argv, &e)) return finish(&e);
#endif
    bool quiet = false;
    if (take_program_words(&argc, &argv, &text, &quiet, &e)) {
        print_text(&text);
        str_free(&text);
        return finish(&e);
    }
    if (!command_find(&c, take_command(&argc, &argv), &e)) return finish(&e);
    Options o;
    if (options_parse(&o, c, argc - 2, argv + 2, &e)) {
        if (quiet || opt_flag(&o, OPT_QUIET)) log_only_warnings();
        elsewhere_notices(&o);
        if (o.help)
            options_help(&text, c);
        else if (run_names_resume(&o, &e) && rules_check(&o, RULE_OPTIONS, NULL, &e) && places_check(&o, &e)) {
            stop_is_polled = !command_rows[c].ends_at_once;
            functions[c](&o, &e);
        }
        print_text(&text);
        str_free(&text);
    }
    options_free(&o);
    return finish(&e);
}

int main(int argc, char **argv) {
    Err e = {0};
    if (process_need_stack(&e)) return run(argc, argv);
    fprintf(stderr, "snug: %s\n", e.text);
    return (int)e.code;
}
