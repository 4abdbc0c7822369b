/* checkpoint.c - how checkpoints are named, when one counts as whole, and which are dropped. */
#include "store/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/folder.h"
#include "store/trainer_state.h"

#define PREFIX "checkpoint-"
enum { PATH_BYTES = 1024, MAX_DIGITS = 15 };
static const char put_aside[] = ".old"; /* without a folder of the plain name beside it, it is that folder */

bool checkpoint_path(char *out, size_t size, const char *run_folder, int64_t step, Err *e) {
    if (snprintf(out, size, "%s/" PREFIX "%lld", run_folder, (long long)step) < (int)size) return true;
    return fail(e, ERR_FAIL, "%s: the path is too long", run_folder);
}

bool checkpoint_locate(char *out, size_t size, const char *run_folder, int64_t step, Err *e) {
    if (!checkpoint_path(out, size, run_folder, step, e)) return false;
    size_t n = strlen(out);
    if (file_is_dir(out)) return true;
    if (snprintf(out + n, size - n, "%s", put_aside) < (int)(size - n)) return true;
    return fail(e, ERR_FAIL, "%s: the path is too long", run_folder);
}

/* The step of "checkpoint-<N><rest>", where N has no leading zero; -1: another kind of name. */
static int64_t name_step(const char *name, const char **rest) {
    if (!str_starts(name, PREFIX)) return -1;
    const char *digits = name + strlen(PREFIX);
    int n = (int)strspn(digits, "0123456789");
    if (n < 1 || n > MAX_DIGITS || (digits[0] == '0' && n > 1)) return -1;
    *rest = digits + n;
    return strtoll(digits, NULL, 10);
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

bool checkpoint_list(const char *run_folder, int64_t **steps, int64_t *n, Err *e) {
    char **names, path[PATH_BYTES];
    int64_t n_names, count = 0;
    *steps = NULL;
    *n = 0;
    if (!file_is_dir(run_folder)) return true;
    if (!file_list(run_folder, &names, &n_names, e)) return false;
    int64_t *list = MEM_NEW(int64_t, n_names);
    for (int64_t i = 0; i < n_names; i++) {
        const char *rest;
        int64_t step = name_step(names[i], &rest);
        if (step < 0 || (*rest && strcmp(rest, put_aside))) continue;
        bool there = checkpoint_path(path, sizeof path, run_folder, step, NULL) && file_is_dir(path);
        if (*rest ? !there && checkpoint_locate(path, sizeof path, run_folder, step, NULL) && file_is_dir(path)
                  : there)
            list[count++] = step;
    }
    file_list_free(names, n_names);
    qsort(list, (size_t)count, sizeof *list, ascending);
    *steps = list;
    *n = count;
    return true;
}

bool checkpoint_find_last(const char *run_folder, int64_t *step, bool *found, Err *e) {
    int64_t *steps, n;
    char path[PATH_BYTES];
    *found = false;
    if (!checkpoint_list(run_folder, &steps, &n, e)) return false;
    for (int64_t i = n - 1; i >= 0 && !*found; i--) {
        Err why = {0};
        *step = steps[i];
        *found =
            checkpoint_locate(path, sizeof path, run_folder, steps[i], &why) && trainer_state_is_whole(path, &why);
        if (!*found) log_warn("passing over a checkpoint: %s", why.text);
    }
    mem_free(steps);
    return true;
}

typedef struct Standing { /* a whole checkpoint */
    int64_t step;
    bool passing;
} Standing;

/* The whole ones, the newest first; gives list (mem_free). latest: as far as the first that is kept, behind the
 * newest. */
static bool list_whole(const char *run_folder, bool latest, Standing **list, int64_t *n, Err *e) {
    int64_t *steps, n_steps;
    char path[PATH_BYTES];
    if (!checkpoint_list(run_folder, &steps, &n_steps, e)) return false;
    *list = MEM_NEW(Standing, n_steps);
    *n = 0;
    for (int64_t i = n_steps - 1; i >= 0; i--) {
        Standing *s = &(*list)[*n];
        s->step = steps[i];
        if (!checkpoint_path(path, sizeof path, run_folder, s->step, NULL) ||
            !trainer_state_look(path, &s->passing, NULL))
            continue;
        if (++*n > 1 && latest && !s->passing) break;
    }
    mem_free(steps);
    return true;
}

bool checkpoint_prune(const char *run_folder, int64_t keep_total, int64_t best_step, Err *e) {
    Standing *list;
    int64_t n, excess = 0;
    char path[PATH_BYTES];
    /* One that passes goes with the next save, so older ones need not be read, but for one that was the best
     * meanwhile. */
    if (!list_whole(run_folder, keep_total <= 0 && best_step < 0, &list, &n, e)) return false;
    for (int64_t i = 0; i < n; i++) excess += !list[i].passing;
    excess = keep_total > 0 ? excess - keep_total : 0;
    bool ok = true;
    for (int64_t i = n - 1; ok && i > 0; i--) { /* the newest is never looked at */
        bool goes = list[i].passing || excess > 0;
        if (list[i].step == best_step || !goes) continue;
        excess -= !list[i].passing;
        ok = checkpoint_path(path, sizeof path, run_folder, list[i].step, e) && folder_remove(path, e);
    }
    mem_free(list);
    return ok;
}

bool checkpoint_remove_later(const char *run_folder, int64_t step, Err *e) {
    int64_t *steps, n;
    char path[PATH_BYTES];
    bool ok = true;
    if (!checkpoint_path(path, sizeof path, run_folder, step, e)) return false;
    if (!trainer_state_is_whole(path, NULL)) return true;
    if (!checkpoint_list(run_folder, &steps, &n, e)) return false;
    for (int64_t i = n - 1; ok && i >= 0 && steps[i] > step; i--) {
        ok = checkpoint_locate(path, sizeof path, run_folder, steps[i], e);
        if (!ok || !trainer_state_is_whole(path, NULL)) continue;
        ok = folder_remove(path, e);
        if (ok) log_line("removed %s: this run has gone on from an earlier one", path);
    }
    mem_free(steps);
    return ok;
}

bool checkpoint_count(const char *run_folder, int64_t *kept, int64_t *passing, Err *e) {
    Standing *list;
    int64_t n;
    *kept = *passing = 0;
    if (!list_whole(run_folder, false, &list, &n, e)) return false;
    for (int64_t i = 0; i < n; i++) ++*(list[i].passing ? passing : kept);
    mem_free(list);
    return true;
}

bool checkpoint_recover(const char *run_folder, Err *e) {
    char **names, path[PATH_BYTES];
    int64_t n;
    if (!file_is_dir(run_folder)) return true;
    if (!file_list(run_folder, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        const char *rest;
        int64_t step = name_step(names[i], &rest);
        if (step < 0 || rest[0] != '.') continue;
        ok = checkpoint_path(path, sizeof path, run_folder, step, e) && folder_recover(path, e);
    }
    file_list_free(names, n);
    return ok;
}
