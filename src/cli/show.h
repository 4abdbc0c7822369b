/* show.h - a plan as a table for people and as JSON. */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "base/json.h"
#include "train/search.h"

/* measured: NULL, or the figures of a finished run to stand beside the planned ones. */
typedef struct Measured {
    int64_t arena_bytes, process_bytes;
    int64_t host_bytes; /* beside a device: of the host's memory; else 0 */
} Measured;
/* The lines of the device and their sums; process: what the whole process takes. */
/* one_memory: on the CPU all pools are the same memory, and the host's part of the process. */
void show_ledger(Str *out, const Ledger *l, int64_t process, bool one_memory, const Measured *measured);
void show_dtypes(Str *out, const JobSpec *s); /* "weights bf16, activations bf16, ..." */
void show_plan(Str *out, const Job *j, int64_t budget_bytes, const Measured *measured); /* budget 0: none */
json_t *show_plan_json(const Job *j, const HostBytes *host, int64_t budget_bytes);      /* gives */

void show_disk(Str *out, const Ring *r); /* whose files hold what is on disk; nothing: nothing is */
json_t *show_pools_json(const Ledger *l, int64_t budget_bytes); /* every pool and its lines; gives */
/* Text of many lines: on standard output, or where JSON is to stand there, line by line to the log. */
void show_print_report(const Str *text, bool json);
void show_print_json(json_t *root);                             /* one line on standard output; takes over root */
void show_print_digits(json_t *root, int digits);               /* the same, reals with so many */

#endif
