/* snug.h - tests that use the program as a person does: run a command, look at its exit code, output and files. */
#ifndef TESTS_SNUG_H
#define TESTS_SNUG_H

#include <jansson.h>

#include "base/str.h"

typedef struct Ran {
    int code;        /* exit status; -1: killed */
    Str out, err;
} Ran;

/* $SNUG_DEVICE ("cuda"): train, eval and generate run there, --deterministic, unless they name a device. NULL: not
 * set. */
const char *snug_device(void);

/* A small job in test_tmp(): rows.jsonl of ids that can be learnt, and a random fp32 model m. */
enum { SNUG_JOB_VOCAB = 300 };
typedef struct SnugJob {
    int layers, hidden, ffn;
} SnugJob;
void snug_make_job(SnugJob job);

/* Runs ./snug (or $SNUG) through the shell; format gives its arguments. Free with ran_free. */
Ran snug_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ran_free(Ran *r);

/* The last line of its standard output as JSON; gives (NULL when it is not JSON). */
json_t *ran_json(const Ran *r);

/* What is wrong with a page: a tag that is not closed or not open, an attribute without quotes; NULL: nothing. */
const char *html_fault(const char *page);

/* The column `key` of the records of that kind in a metrics.jsonl; gives the number of values. */
int snug_metrics(const char *folder, const char *kind, const char *key, double *values, int room);

#endif
