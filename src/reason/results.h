/* results.h - how a job's records reach the disk: FILE.json, FILE.csv and FILE.html, or a rank's part until all
 * are there.
 *
 * Every file appears as a whole. FILE.json is the last of the three: where it is, the others are. */
#ifndef REASON_RESULTS_H
#define REASON_RESULTS_H

#include "base/err.h"
#include "reason/record.h"

typedef json_t *RecordAt(void *user, int64_t i); /* gives; NULL: it cannot be written */

typedef struct Results {
    const char *out; /* FILE.json */
    const Rubric *rubric;
    const json_t *facts; /* {label: text} about the run, for the page */
    RecordAt *at;
    void *user;
    int64_t n;
} Results;

bool results_write(const Results *r, Tally *t, Err *e); /* fills t */

/* The part of one rank: "FILE.json.rank-I", with the job it belongs to. */
void results_rank_path(char *to, int64_t room, const char *out, int rank);
bool results_write_rank(const Results *r, Tally *t, const json_t *job, int rank, int ranks, Err *e);
/* Whether the part is there, of this job; another job's is refused by naming what differs. */
bool results_has_rank(bool *has, const char *out, const json_t *job, int rank, Err *e);

/* Makes one of all parts once they are there, and removes them. *merged false: some are missing, or another
 * process is merging. *missing: the first rank whose part is not there; -1: all are. */
bool results_merge(const char *out, bool *merged, int *missing, Tally *t, Err *e);

#endif
