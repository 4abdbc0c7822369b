/* main.c - the table of commands, signals, and the only exit. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"

static CommandFn *const functions[CMD_COUNT] = {
    [CMD_PLAN] = cmd_plan, [CMD_INIT] = cmd_init, [CMD_CONVERT] = cmd_convert, [CMD_TRAIN] = cmd_train,
    [CMD_EVAL] = cmd_eval, [CMD_TOKENIZE] = cmd_tokenize, [CMD_MERGE] = cmd_merge,
    [CMD_DOCTOR] = cmd_doctor, [CMD_QUANTIZE] = cmd_quantize, [CMD_GENERATE] = cmd_generate, [CMD_CHAT] = cmd_chat,
    [CMD_REASON] = cmd_reason,
    [CMD_PROBLEMS] = cmd_problems,
    [CMD_PREPARE] = cmd_prepare,
};

static void on_signal(int number) { /* the first asks: save and leave; the second insists */
    if (cmd_stop) _exit(128 + number);
    cmd_stop = number;
}

static void on_exhausted(int64_t bytes) {
    fprintf(stderr, "snug: the system refused %lld bytes of memory. Close other programs, or give a smaller --budget.\n",
            (long long)bytes);
    _exit(ERR_FAIL);
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

static int finish(const Err *e) {
    log_close_file();
#ifdef FAULTS
    fault_report();
#endif
    if (e->code) fprintf(stderr, "snug: %s\n", e->text);
    if (!fflush(stdout) && !ferror(stdout)) return (int)e->code;
    fprintf(stderr, "snug: standard output could not be written\n");
    return e->code ? (int)e->code : ERR_FAIL;
}

static void print_text(const Str *s) { fwrite(str_text(s), 1, (size_t)s->len, stdout); }

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}; /* a flush or an output is not cut short */
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
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        options_overview(&text);
        print_text(&text);
        str_free(&text);
        if (argc < 2) fail(&e, ERR_USAGE, "no command given");
        return finish(&e);
    }
    if (!command_find(&c, argv[1], &e)) return finish(&e);
    Options o;
    if (options_parse(&o, c, argc - 2, argv + 2, &e)) {
        if (o.help) {
            options_help(&text, c);
            print_text(&text);
            str_free(&text);
        } else {
            functions[c](&o, &e);
        }
    }
    options_free(&o);
    return finish(&e);
}
