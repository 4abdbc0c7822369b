/* cmd.h - the commands: each parses, calls one room, prints. Their exit code is the Err's. */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include <signal.h>

#include "cli/options.h"

typedef bool CommandFn(const Options *o, Err *e);
CommandFn cmd_plan, cmd_init, cmd_convert, cmd_train, cmd_eval, cmd_tokenize, cmd_merge, cmd_doctor, cmd_quantize,
    cmd_generate, cmd_chat, cmd_reason, cmd_problems, cmd_prepare;

extern volatile sig_atomic_t cmd_stop; /* the signal that asked us to leave */

#endif
