/* checkpoint.h - the checkpoint-N folders of a run folder: which there are, which is the last whole one, which go.
 *
 * A checkpoint is written with folder_begin/folder_commit under checkpoint_path, trainer_state.json last. It is
 * *whole* when its trainer_state.json can be parsed; temporaries (folder.h) are never taken for checkpoints. */
#ifndef STORE_CHECKPOINT_H
#define STORE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

bool checkpoint_path(char *out, size_t size, const char *run_folder, int64_t step, Err *e);
/* Where it stands now: one that a killed run had put aside (folder.h) still has that name. */
bool checkpoint_locate(char *out, size_t size, const char *run_folder, int64_t step, Err *e);

/* All checkpoint-N folders, ascending, whole or not; gives steps (mem_free). No run folder: none. */
bool checkpoint_list(const char *run_folder, int64_t **steps, int64_t *n, Err *e);

/* The newest whole one. Newer ones that are not whole are passed over with a warning. */
bool checkpoint_find_last(const char *run_folder, int64_t *step, bool *found, Err *e);

/* Removes the whole ones that were passing (trainer_state.h), then the oldest of the others until keep_total remain (0:
 * no limit); never best_step (-1: none), never the newest whole one. Folders that are not whole are neither counted nor
 * touched. */
bool checkpoint_prune(const char *run_folder, int64_t keep_total, int64_t best_step, Err *e);

/* Once `step` stands there whole, removes the whole ones of later steps: they belong to a course of the run that was
 * given up when it went on from an earlier one, and would be taken for its newest. */
bool checkpoint_remove_later(const char *run_folder, int64_t step, Err *e);

/* How many whole ones there are of either kind. */
bool checkpoint_count(const char *run_folder, int64_t *kept, int64_t *passing, Err *e);

/* Puts right what a killed run left behind. For the holder of the run's lock, before the first save. */
bool checkpoint_recover(const char *run_folder, Err *e);

#endif
