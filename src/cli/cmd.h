/* cmd.h - the commands: each parses, calls one room, prints. Their exit code is the Err's. */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "base/stop.h"
#include "cli/options.h"

typedef bool CommandFn(const Options *o, Err *e);
CommandFn cmd_plan, cmd_init, cmd_convert, cmd_train, cmd_eval, cmd_tokenize, cmd_merge, cmd_doctor, cmd_quantize,
    cmd_generate, cmd_chat, cmd_reason, cmd_problems, cmd_amr, cmd_amr_parse, cmd_smatch,
    cmd_prepare, cmd_grpo, cmd_unlearn,
    cmd_unlearn_eval;

#endif
