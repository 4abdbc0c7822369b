/* eval_suite.h - snug eval --suite: benchmarks. */
#ifndef CLI_EVAL_SUITE_H
#define CLI_EVAL_SUITE_H

#include "cli/options.h"

/* What is written at the end has a place: it would be late to say that then. */
bool eval_check_places(const Options *o, Err *e);
bool eval_suite(const Options *o, Err *e);

#endif
