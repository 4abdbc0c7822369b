/* plan_int.h - what the passes of this room share with each other only. */
#ifndef PLAN_PLAN_INT_H
#define PLAN_PLAN_INT_H

#include "plan/plan.h"

/* A walk over a program that writes a new step list: old steps are kept or left out, new ones stand between. */
typedef struct Rewrite {
    Program *p;
    Step *s; /* owns: the new list, until rewrite_end gives it to the program */
    int64_t n, cap;
    int *moved;                  /* owns: old step -> new step; -1: not (yet) there */
    int phase_begin[MAX_PHASES]; /* in the new list */
    int n_phases;
    int layer; /* of the recording, restored at the end: names made by a pass carry no prefix of their own */
} Rewrite;

void rewrite_begin(Rewrite *w, Program *p);
void rewrite_phase(Rewrite *w);                /* what follows belongs to the next phase */
int rewrite_keep(Rewrite *w, int old, Step s); /* s: that step, perhaps with other tensors */
int rewrite_add(Rewrite *w, Step s);           /* a new one; its clone_of counts in the new list */
void rewrite_end(Rewrite *w);

/* Two steps that follow each other in one phase, region and queue and become one. */
typedef struct Pair {
    OpId first, second;
    bool (*holds)(const Program *p, const Step *first, const Step *second); /* what else must hold */
    Step (*fused)(const Step *first, const Step *second);
    bool alone; /* only the second reads what the first gives: it is no longer written */
} Pair;
/* Fuses every such pair. Two clones are fused only where their originals were, and both halves of an original are known
 * as the fused step from then on: a clone may repeat one half of it (V5 of verify.c). */
void rewrite_pairs(Program *p, const Pair *pair);
/* fuse.c: the half of a fused step that a step with this op repeats, as it was recorded; false: there is none. */
bool plan_half_of(Step *half, const Step *fused, OpId op);

/* An activation shaped like `of`, named after it. */
Tid rewrite_twin(Program *p, Tid of, const char *suffix);
/* The view of `base` that shows the rows which `view` shows of its own base. */
Tid rewrite_twin_view(Program *p, Tid view, Tid base);

/* Every step belongs to a phase, and the phases follow one another: a BUG otherwise. */
void plan_check_phases(const Program *p);

/* remake.c: the last part of plan_recompute, for the layers at RECOMPUTE_TWICE. */
void plan_remake(Program *p, const RecomputeLevel *per_layer, int layers);

/* Gives every out the slot of an in it may take over (P3); `align_bytes` decides which sizes are the same. */
void plan_share(Program *p, int64_t align_bytes);

/* Most bytes alive at one step of this pool, in slots of `align_bytes`, and the first step where they are. */
int64_t plan_peak(const Program *p, int64_t align_bytes, Pool pool, int *peak_step);

/* report.c: the ledger's lines. Gives the line of every tensor: mem_free. */
enum { REPORT_LINES = 14 };
uint8_t *plan_lines_of(const Program *p);

#endif
