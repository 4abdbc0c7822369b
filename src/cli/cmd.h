/* cmd.h - the commands: each parses, calls one room, prints. Their exit code is the Err's. */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "base/stop.h"
#include "cli/options.h"

typedef bool CommandFn(const Options *o, Err *e);
#define COMMAND(id, function, ...) CommandFn cmd_##function;
#include "cli/commands.def"
#undef COMMAND

/* Ways of a command that have a file of their own. */
CommandFn eval_suite;    /* snug eval --suite */
CommandFn plan_generate; /* snug plan --task generate */

#endif
