/* run_folder.c - what may stand in a folder when a run begins there, and in which order it is taken over. */
#include "train/run_folder.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "obs/tensorboard.h"
#include "store/checkpoint.h"
#include "store/folder.h"

static const char *const results[] = {"model", "adapter"};
static const char *const own_files[] = {"model",     "adapter",       "config.yaml",
                                        "plan.json", "metrics.jsonl", "train.log",   "step-log"};

/* What a run has written there, or was writing when it was killed (folder.h): all that --overwrite removes. The lock
 * stays, and is held: nobody else's run begins meanwhile. */
static bool is_of_run(const char *name) {
    bool found = tensorboard_is_file(name) || str_starts(name, "checkpoint-");
    for (int i = 0; i < COUNT_OF(own_files) && !found; i++) {
        const char *rest = str_starts(name, own_files[i]) ? name + strlen(own_files[i]) : "-";
        found = !*rest || str_starts(rest, ".tmp-") || !strcmp(rest, ".old") || !strcmp(rest, ".gone");
    }
    return found;
}

/* What an overwriting run takes away: the bytes of it, and whether `path` (may be NULL) is among it. */
static int64_t look_at_own(const char *folder, const char *path, bool *within) {
    char **names;
    int64_t n, bytes = 0;
    *within = false;
    if (!file_is_dir(folder) || !file_list(folder, &names, &n, NULL)) return 0;
    for (int64_t i = 0; i < n; i++) {
        bool own = is_of_run(names[i]);
        FilePath inner = file_in(folder, names[i]);
        if (own && path) *within = *within || file_is_within(path, inner.s);
        if (own && !path) bytes += file_tree_bytes(inner.s);
        mem_free(names[i]);
    }
    mem_free(names);
    return bytes;
}

bool run_folder_would_remove(const char *folder, const char *path) {
    bool within;
    look_at_own(folder, path, &within);
    return within;
}

int64_t run_folder_bytes(const char *folder) {
    bool within;
    return look_at_own(folder, NULL, &within);
}

/* ---- looking ---- */

/* When the first checkpoint of such a run is due: "10 min of training or 500 steps". */
static void first_save_text(Str *out, const RunFolderAsk *a) {
    if (a->save_seconds > 0) str_addf(out, "%g minutes of training", a->save_seconds / 60);
    if (a->save_steps > 0) str_addf(out, "%s%lld steps", out->len ? " or " : "", (long long)a->save_steps);
    if (!out->len) str_add(out, "the last step (--save-minutes 0 and --save-steps 0)");
}

static bool refuse_no_checkpoint(const RunFolderAsk *a, const char *folder, Err *e) {
    if (!file_is_dir(folder))
        return fail(e, ERR_FAIL,
                    "--resume: %s is not there, so there is no run to go on with. Was its folder moved? Then --out "
                    "says where it is now",
                    folder);
    int64_t *steps, n;
    if (!checkpoint_list(folder, &steps, &n, e)) return false;
    mem_free(steps);
    if (n)
        return fail(e, ERR_FAIL,
                    "--resume: %s has %lld checkpoint%s and none that is complete; the warnings before this say what "
                    "is wrong with each. Is there another copy of its trainer_state.json?",
                    folder, (long long)n, n > 1 ? "s" : "");
    if (!file_exists(file_in(folder, "config.yaml").s))
        return fail(e, ERR_FAIL, "--resume: %s holds no complete checkpoint", folder);
    Str due = {0};
    first_save_text(&due, a);
    fail(e, ERR_FAIL,
         "--resume: %s holds no complete checkpoint: the run ended before its first one, which comes after %s. "
         "Nothing of it was saved; begin again without --resume",
         folder, str_text(&due));
    str_free(&due);
    return false;
}

/* The newest whole checkpoint of a run folder. */
static bool find_newest(RunFolder *f, const char *run_folder, Err *e) {
    int64_t step;
    bool found;
    char from[1024]; /* may be f->checkpoint itself */
    snprintf(from, sizeof from, "%s", run_folder);
    if (!checkpoint_find_last(from, &step, &found, e)) return false;
    if (!found) return refuse_no_checkpoint(&f->ask, from, e);
    return checkpoint_locate(f->checkpoint, sizeof f->checkpoint, from, step, e);
}

/* A bare name is a checkpoint of --out, also where the current folder has one of that name: it is another run's. */
static bool find_checkpoint(RunFolder *f, Err *e) {
    const char *what = f->ask.resume;
    CHECK(what != NULL);
    if (!strcmp(what, "newest")) return find_newest(f, f->ask.path, e);
    int n = snprintf(f->checkpoint, sizeof f->checkpoint, "%s/%s", f->ask.path, what);
    bool elsewhere = strchr(what, '/') || n >= (int)sizeof f->checkpoint || !file_is_dir(f->checkpoint);
    if (elsewhere && file_is_dir(what)) n = snprintf(f->checkpoint, sizeof f->checkpoint, "%s", what);
    if (n >= (int)sizeof f->checkpoint) return fail(e, ERR_FAIL, "--resume %s: the path is too long", what);
    if (!file_is_dir(f->checkpoint))
        return fail(e, ERR_FAIL, "--resume %s: neither a folder nor a checkpoint of %s", what, f->ask.path);
    return trainer_state_is_whole(f->checkpoint, NULL) || find_newest(f, f->checkpoint, e);
}

/* A checkpoint that cannot be read now is one too: a new run would write over it. */
static bool refuse_other_run(const RunFolder *f, Err *e) {
    static const char hint[] = "Go on with --resume, or choose another --out, or give --overwrite";
    int64_t *steps, n;
    if (!checkpoint_list(f->ask.path, &steps, &n, e)) return false;
    if (n) fail(e, ERR_FAIL, "%s: holds a run (checkpoint-%lld). %s", f->ask.path, (long long)steps[n - 1], hint);
    mem_free(steps);
    if (n) return false;
    return !f->has_result ||
           fail(e, ERR_FAIL,
                "%s: holds a result already (model or adapter). Choose another --out, or give --overwrite",
                f->ask.path);
}

static bool find_result(const char *folder) {
    for (int i = 0; i < COUNT_OF(results); i++)
        if (file_is_dir(file_in(folder, results[i]).s)) return true;
    return false;
}

static bool may_begin(RunFolder *f, Err *e) {
    f->has_result = find_result(f->ask.path);
    if (f->ask.resume || f->ask.overwrite) return true;
    return refuse_other_run(f, e);
}

bool run_folder_look(RunFolder *f, const RunFolderAsk *ask, Err *e) {
    *f = (RunFolder){.ask = *ask, .lock = {.fd = -1}};
    trainer_state_init(&f->saved);
    if (file_exists(ask->path) && !file_is_dir(ask->path))
        return fail(e, ERR_FAIL, "--out %s: is a file, a folder is needed", ask->path);
    if (!runlock_look(&f->lock, ask->path, e) || !may_begin(f, e)) return false;
    if (!ask->overwrite && !checkpoint_count(ask->path, &f->kept, &f->passing, e)) return false;
    return !ask->resume || (find_checkpoint(f, e) && trainer_state_read(&f->saved, f->checkpoint, e));
}

/* ---- beginning ---- */

/* Puts right what a killed run left, beside its checkpoints too. */
static bool recover(const char *out, Err *e) {
    bool ok = checkpoint_recover(out, e);
    for (int i = 0; ok && i < COUNT_OF(own_files); i++) ok = folder_recover(file_in(out, own_files[i]).s, e);
    return ok;
}

static bool write_text(const char *folder, const char *name, const char *text, Err *e) {
    return !text || file_write_all(file_in(folder, name).s, text, (int64_t)strlen(text), e);
}

static bool open_log(const RunFolder *f, Err *e) { return log_open_file(file_in(f->ask.path, "train.log").s, e); }

bool run_folder_begin(RunFolder *f, const char *config_yaml, const char *plan_json, Err *e) {
    const char *out = f->ask.path;
    bool anew = f->ask.overwrite && !f->ask.resume;
    if (!file_make_dirs(out, e) || !runlock_take(&f->lock, out, e) || (anew && !file_clear(out, is_of_run, e)) ||
        !may_begin(f, e) || !recover(out, e))
        return false;
    f->begun = true;
    return open_log(f, e) && write_text(out, "config.yaml", config_yaml, e) &&
           write_text(out, "plan.json", plan_json, e);
}

bool run_folder_restore(RunFolder *f, Err *e) {
    if (file_is_dir(f->ask.path)) return true;
    if (!file_exists(f->ask.path))
        log_warn("%s: was removed while the run goes on. It is made again; the log and metrics so far are lost",
                 f->ask.path);
    runlock_release(&f->lock);
    return file_make_dirs(f->ask.path, e) && runlock_take(&f->lock, f->ask.path, e) && open_log(f, e);
}

void run_folder_close(RunFolder *f) {
    if (!f->ask.path) return;
    trainer_state_free(&f->saved);
    runlock_release(&f->lock);
    if (f->begun) log_close_file();
}
