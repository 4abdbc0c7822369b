/* sub_command.h - one command inside another: options of its own, with what was given outside about the machine
 * and the words. The monitor shows it by the name of the outer one. */
#ifndef CLI_SUB_COMMAND_H
#define CLI_SUB_COMMAND_H

#include "cli/options.h"

enum { SUB_COMMAND_WORDS = 48 };

typedef struct SubCommand {
    const char *word[SUB_COMMAND_WORDS];
    int n;
    Options o;
} SubCommand;

/* Command c on that model; more: further words. Texts must outlive it. options_free(&s->o) whatever it gives. */
bool sub_command_begin(SubCommand *s, const Options *o, Command c, const char *model, const char *const *more,
                       int n, Err *e);

#endif
