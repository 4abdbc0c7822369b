/* technique.h - everything that can be switched on to make a job smaller, as one table.
 *
 * A row says what it is called, which flags mean it, how it is taken back, how it is taken a step further, and
 * whether it changes the mathematics. What each one saves (savings.c), what is offered when a job does not fit, what
 * --allow may give up, and planning again on a shortage read the table; the search (search.c) knows the order in
 * which settings are tried. */
#ifndef TRAIN_TECHNIQUE_H
#define TRAIN_TECHNIQUE_H

#include "train/job.h"

/* What may be taken when nothing fits as asked: words of --allow, in order of damage. */
typedef enum Allow {
    ALLOW_8BIT = 1, /* moments in 8 bit */
    ALLOW_INT8 = 2, /* frozen weights in int8, then the head too */
    ALLOW_NF4 = 4,  /* frozen weights in NF4 */
    ALLOW_RANK = 8, /* half the rank, down to 8; the adapters' scale stays */
    ALLOW_SEQ = 16, /* half the length, down to 128 */
    ALLOW_ALL = 31
} Allow;

typedef struct Technique Technique;
struct Technique {
    Allow allow; /* changes the mathematics; 0: it does not */
    int arg;     /* of rows that share functions */
    bool (*is_on)(const Technique *t, const JobSpec *s, const JobSpec *plain);
    void (*undo)(const Technique *t, JobSpec *s, const JobSpec *plain);               /* as it is in plain */
    /* "head in chunks of 128" */
    void (*describe)(const Technique *t, Str *out, const JobSpec *s, const JobSpec *plain);
    void (*flags)(const Technique *t, Str *out, const JobSpec *s); /* " --head-chunk 128"; NULL: another row's say it */
    /* a step further; false: nothing is left. NULL: by the search alone */
    bool (*take)(const Technique *t, JobSpec *s, MachineKind kind);
};
extern const Technique technique_table[];
extern const int technique_count;

/* The job as it would be with nothing switched on; rows: of one micro-batch then. */
void technique_plain(JobSpec *plain, const JobSpec *spec, int64_t samples, MachineKind kind);
/* Everything that keeps the mathematics as it was asked for, the rest as it is: for another search. */
void technique_forget(JobSpec *s, const JobSpec *asked);
/* The flags that say how s is laid out: "--micro-batch 2 --accum 8 --recompute block --offload moments". */
void technique_layout_flags(Str *out, const JobSpec *s);
/* In what `now` differs from `asked`, in the mathematics alone or in anything: "--moments 8bit --seq 512". */
void technique_changed_flags(Str *out, const JobSpec *now, const JobSpec *asked, bool maths_only);
/* One change of the mathematics further along the order; false: nothing is left. */
bool technique_take(JobSpec *s, unsigned allow, MachineKind kind);

#endif
