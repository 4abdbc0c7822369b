/* elsewhere.h - options of other tools that have no counterpart of the same name here: what they stand for, or why
 * they are refused. (A name that only differs is an alias in options.def.) */
#ifndef CLI_ELSEWHERE_H
#define CLI_ELSEWHERE_H

#include "cli/options.h"

typedef struct Elsewhere {
    const char *name;  /* with '-', several with '|' between ("wandb-*": all that begin so); or one of our own, where
                        * only a value is foreign */
    const char *value; /* for this value ("a|lion*": a, and those that begin so; "*": any); NULL: a switch, on or off */
    const char *means; /* "moments=8bit,quiet=true": our options, which must not be given otherwise beside it;
                        * "temperature?=1": unless that is given; "evaluator+=int8": a way to keep that model;
                        * "data=*": the value as it was given; "": nothing;
                        * NULL: it is refused */
    const char *why;   /* refused: the reason and what to use instead; means "": why nothing follows (NULL: not said) */
    uint32_t commands; /* ON_x; 0: all */
    bool object;       /* its value is a JSON object (in YAML a map) of further names and values */
} Elsewhere;

extern const Elsewhere elsewhere[];
int elsewhere_count(void);

void elsewhere_notices(const Options *o); /* a log line for each option that was taken and is not needed */

#endif
