/* eval_suite.h - snug eval --suite: benchmarks. */
#ifndef CLI_EVAL_SUITE_H
#define CLI_EVAL_SUITE_H

#include "cli/options.h"

bool eval_suite(const Options *o, Err *e);

#endif
