/* world.h - for tests that hurt the program: small inputs, processes that can be stopped and killed, and what
 * stands on disk afterwards compared with what an undisturbed run left. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/str.h"

/* The binary of the fault flavour ($FAULTY); NULL after test_skip when it is not built. */
const char *world_faulty(void);

/* Makes below test_tmp(): model (2 layers, fp32), words (with a tokenizer), rows.jsonl (ids), text.jsonl, in.jsonl
 * (for tokenize), recipe.yaml, tiny.bin and tokenizer.bin (llama2.c). Made with `binary`. */
bool world_make(const char *binary);
char *world_path(const char *format, ...) __attribute__((format(printf, 1, 2))); /* below test_tmp(); one of 16 */

/* A process in its own folder: what it said lies beside the folder, in <folder>.out and <folder>.err. */
pid_t world_start(const char *folder, const char *binary, const char *input, const char *arguments);
int world_wait(pid_t pid); /* exit code; 128 + signal when killed; 256: stopped */
void world_sleep(double seconds);
const char *world_binary(void); /* $SNUG, or the one just built */
bool world_must(const char *folder, const char *arguments); /* runs it there and expects that it ends well */
int world_run(const char *folder, const char *binary, const char *input, const char *arguments);
void world_said(Str *out, Str *err, const char *folder); /* replaces both; either may be NULL */
/* Looks again and again until it is so; false: not within five minutes, which nothing that is well takes. */
typedef bool WorldLook(const void *context);
bool world_until(WorldLook *is_so, const void *context);
bool world_says(const char *folder, const char *text); /* waits until its standard error holds that */
bool world_appears(const char *path);                  /* waits until the file is there */
bool world_is_gone(int pid);                           /* waits until that process, of anybody, runs no more */
bool world_catches(int pid, int signal);               /* waits until it has a handler for it, or has ended */

/* What a process of the fault flavour reports at its end: how many calls of that kind it made; -1: nothing. */
int world_calls(const char *err, const char *kind);
/* Two runs of a command may differ by a few calls: whether a text's buffer grows once more depends on the digits of a
 * duration, how many reads /proc/self/maps takes on where the system put things, and a busy machine is worth a line of
 * advice. */
enum { WORLD_LOOSE = 8 };
/* The process ended with fewer calls than n, by a few: the n-th, which another run made, did not come. */
bool world_made_fewer(const char *err, const char *kind, int n);

/* prints it and the end of what was said; false */
bool world_complain(const char *folder, int round, const char *what);

bool world_copy_tree(const char *from, const char *to); /* `to` is replaced; `from` may be absent */
bool world_same_file(const char *a, const char *b);
/* Results of a `snug reason` (JSON, CSV, HTML): the same but for when and how fast. */
bool world_same_results(const char *a, const char *b);

/* A name that a reader never takes for the real one: being written, put aside, being removed. */
bool world_is_temporary(const char *name);
int world_temporaries(const char *folder); /* how many there are below */

/* Holds `now` against the folder `want` of an undisturbed run and `before` (may be NULL), from which it started: a
 * file under its final name is that of one of the two, and folders hold all that belongs to them. complete:
 * nothing of `want` is missing. A run's metrics count by step and loss, a reason.json and what is beside it but for
 * times; log, events, lock and progress are passed over. */
bool world_check_tree(Str *why, const char *now, const char *want, const char *before, bool complete);

void world_metrics(Str *to,
                   const char *path); /* adds kind, step and loss of every record of a metrics.jsonl, as text */

/* One number for all that matters to the next process: names and bytes. */
unsigned long long world_fingerprint(const char *folder);

/* Everything below a folder, a line each: name, size, time of the last change to the nanosecond, hash of the
 * bytes. What a process said (*.out, *.err) is left out. */
void world_snapshot(Str *to, const char *folder);

bool world_checksum(char to[24], const char *folder); /* of the result, from what the process said */
bool world_has_checkpoint(const char *run_folder);

/* Calls job(i) for 0 <= i < n in as many processes as there are cores (at most 4); false: one of them was. */
typedef bool WorldJob(void *context, int worker, int i);
bool world_share(WorldJob *job, void *context, int n);

#endif
