/* random.h - programs drawn by a seed: phases that repeat, side queues, views, state, slot sharing, scratch. */
#ifndef TESTS_PLAN_RANDOM_H
#define TESTS_PLAN_RANDOM_H

#include "ir/op.h"

void random_record(Program *p, uint64_t seed); /* gives: prog_free. Scratch is given already: no plan_workspaces */
/* Layers forward and backward, for the passes; gives how many. Without scratch: plan_all. */
enum { RANDOM_LAYERS = 5 };
int random_record_layers(Program *p, uint64_t seed);
Machine random_machine(void);                  /* small alignment and pages */

#endif
