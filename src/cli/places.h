/* places.h - the names a command writes to, looked at before any work is done: a file where a file can be, and nothing
 * that the command itself reads. What is already there is asked about by whoever writes it (--overwrite). */
#ifndef CLI_PLACES_H
#define CLI_PLACES_H

#include "cli/options.h"

bool places_check(const Options *o, Err *e);

#endif
