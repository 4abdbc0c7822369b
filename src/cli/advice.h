/* advice.h - what a run's own measurements say about the next one: a line or two, with the flag to paste. */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include "cli/session.h"

/* Call when the run's memory is given back: another plan is made here. Adds nothing where there is nothing to say. */
void advice_text(Str *out, const Session *s);

#endif
