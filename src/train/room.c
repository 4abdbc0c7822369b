/* room.c - disk space: how many bytes a run writes to its folder, how many of them are there at a time, and whether
 * they fit.
 *
 * Of the checkpoints some are kept (every --save-steps; without that option the last --save-total-limit of those
 * made by the clock), the others are passing: made by the clock, by a signal or at the end, each stands until a
 * newer one does. */
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "base/units.h"
#include "store/hf.h"
#include "store/jsonfile.h"
#include "train/run_int.h"
#include "weights/weights.h"

enum { RECORD_BYTES = 1200 }; /* of metrics, events and log together, for one logged step */
enum { BLOCK_BYTES = 4096 };  /* what a file may take on disk beyond its length */
enum { SMALL_FILES = 8 };     /* of the run itself, folders counted */

bool run_is_passing(const RunOptions *o, int64_t step) {
    return o->save_steps ? step % o->save_steps != 0 : o->save_total_limit == 0;
}

AdapterConfig run_adapter_config(const JobSpec *s, const char *base_name) {
    AdapterConfig c = {.rank = s->m.adapter.rank,
                       .alpha = s->m.adapter.alpha,
                       .dropout = s->m.adapter.dropout,
                       .targets = s->m.adapter.targets};
    snprintf(c.base_model, sizeof c.base_model, "%s", base_name ? base_name : "");
    return c;
}

/* ---- bytes ---- */

static int64_t config_bytes(const JobSpec *s, const char *base_name) {
    if (s->lora) {
        AdapterConfig a = run_adapter_config(s, base_name);
        return adapter_config_bytes(&a);
    }
    ModelConfig c = s->m.config;
    c.dtype = s->weights;
    return jsonfile_bytes(config_to_json(&c));
}

static int64_t logged_rows(const RunOptions *o, int64_t from) {
    int64_t steps = MAX2(o->total_steps - from, 0);
    return steps / MAX2(o->log_steps, 1) + (o->eval_steps ? steps / o->eval_steps : 0) + 4;
}

/* ---- how many stand at a time ---- */

typedef struct Standing { /* beyond those there now */
    int64_t saving;       /* while one is being written, at most */
    int64_t ending;       /* while the result is */
} Standing;

static Standing standing(const RunOptions *o, bool evaluates, int64_t from) {
    int64_t kept = o->folder ? o->folder->kept : 0, passing = o->folder ? o->folder->passing : 0;
    int64_t ss = o->save_steps, limit = o->save_total_limit, total = MAX2(o->total_steps, 1);
    if (from >= total) return (Standing){0};
    bool passes = ss ? ss > 1 : !limit;
    int64_t written = ss ? total / ss - from / ss : limit ? limit + 1 : 0; /* by the clock: as many as time gives */
    int64_t all = kept + written, stays = limit ? MIN2(limit, all) : all;
    int64_t fresh = MAX2(stays - kept, 0), in_flight = all > stays, best = evaluates && (passes || limit);
    /* One is written at a time: one to be kept, beside a passing one of the clock, or a passing one beside the last. */
    int64_t clock = passes && o->save_seconds > 0;
    int64_t keeping = in_flight + MAX2(clock - passing, 0), going = passes ? MAX2(1 + clock - passing, 1) : 0;
    return (Standing){.saving = fresh + best + MAX2(keeping, going),
                      .ending = fresh + best + (passes ? MAX2(1 - passing, 0) : 0)};
}

/* What a result and a checkpoint hold when the run comes to its end. */
static bool size_files(SavePlan *s, const Job *j, const RunOptions *o, const TrainerState *saved, int64_t rows,
                       Err *e) {
    const JobSpec *spec = &j->spec;
    StSizes trained, optimizer;
    TrainerState fresh;
    if (!weights_sizes(&trained, &j->ring->p, spec->lora ? ROLE_ADAPTER : ROLE_WEIGHT, e) ||
        !weights_optimizer_sizes(&optimizer, &j->ring->p, e))
        return false;
    int side = 0;
    s->result_bytes = trained.bytes + config_bytes(spec, o->base_name);
    if (o->side_folder) s->result_bytes += hf_side_bytes(o->side_folder, &side);
    trainer_state_init(&fresh);
    trainer_state_set_all(&fresh, o->settings);
    s->optimizer_bytes = optimizer.bytes;
    s->state_bytes = trainer_state_bytes(saved ? saved : &fresh, rows);
    s->checkpoint_bytes = s->result_bytes + s->optimizer_bytes + s->state_bytes;
    s->largest_bytes = MAX2(trained.largest, optimizer.largest);
    s->files = trained.files + optimizer.files + side + 2;
    trainer_state_free(&fresh);
    return true;
}

bool run_plan_saving(SavePlan *s, const Job *j, const RunOptions *o, Err *e) {
    const TrainerState *saved = o->folder && run_folder_resumes(o->folder) ? &o->folder->saved : NULL;
    int64_t from = saved ? saved->global_step : 0, rows = logged_rows(o, from);
    *s = (SavePlan){0};
    if (!size_files(s, j, o, saved, rows, e)) return false;
    if (!o->save) return true;
    int64_t by_steps = o->save_steps ? MAX2(o->total_steps / o->save_steps, 1) : 1;
    bool open_end = o->save_steps && !o->save_total_limit && !o->total_steps;
    s->kept = open_end ? -1 : o->save_total_limit ? o->save_total_limit : by_steps;
    bool ended = saved && from >= o->total_steps && o->folder->has_result; /* nothing more is written */
    s->disk_bytes = ended ? 0 : -1;
    if (open_end || ended) return true;
    Standing n = standing(o, j->spec.evaluate, from);
    int64_t blocks = s->files * BLOCK_BYTES, small = rows * RECORD_BYTES + SMALL_FILES * BLOCK_BYTES;
    int64_t each = mem_add(s->checkpoint_bytes, blocks), last = mem_add(s->result_bytes, blocks);
    int64_t saving = mem_mul(n.saving, each), ending = mem_add(mem_mul(n.ending, each), last);
    s->disk_bytes = saving < 0 || ending < 0 ? -1 : mem_add(MAX2(saving, ending), small);
    if (s->disk_bytes < 0) s->disk_bytes = INT64_MAX; /* more than can be counted */
    return true;
}

/* ---- room ---- */

static bool check_file_limit(const SavePlan *s, Err *e) {
    int64_t most = process_limits().file_bytes;
    if (most < 0 || s->largest_bytes <= most) return true;
    return fail(
        e, ERR_BUDGET,
        "does not fit: a file of %s bytes is to be written, and files may have %s here (ulimit -f), %s (%s bytes) "
        "are missing. Nothing was loaded",
        units_count(s->largest_bytes).s, units_count(most).s, units_bytes(s->largest_bytes - most).s,
        units_count(s->largest_bytes - most).s);
}

bool run_check_room(const SavePlan *s, const Job *j, const RunOptions *o, const char *offload_dir, Err *e) {
    if (!o->save) return true;
    if (!check_file_limit(s, e)) return false;
    int64_t has = file_free_bytes(o->out), need = s->disk_bytes;
    if (has < 0) return true;
    if (o->folder && o->folder->ask.overwrite)
        has += run_folder_bytes(o->out); /* comes back before anything is written */
    if (offload_dir && file_same_disk(offload_dir, o->out)) has = MAX2(has - ring_disk_bytes(j->ring), 0);
    if (need <= has) return true;
    return fail(e, ERR_BUDGET,
                "does not fit the disk: the run may write %s bytes (%s) to %s (checkpoints of %s, kept: %lld, and "
                "a result of %s), %s are free there, %s (%s bytes) are missing. Nothing was loaded. Make room, give "
                "--out on another disk, or write less: --save-total-limit N, --save-minutes 0, --no-save",
                units_count(need).s, units_bytes(need).s, o->out, units_bytes(s->checkpoint_bytes).s,
                (long long)s->kept, units_bytes(s->result_bytes).s, units_bytes(has).s, units_bytes(need - has).s,
                units_count(need - has).s);
}

/* ---- shown ---- */

void run_saving_text(Str *out, const SavePlan *s, const RunOptions *o) {
    if (!o->save) {
        str_add(out, "nothing is saved (--no-save)");
        return;
    }
    char kept[24] = "all";
    if (s->kept >= 0) snprintf(kept, sizeof kept, "%lld", (long long)s->kept);
    str_addf(out, "a checkpoint takes %s bytes (%s) in %s, kept: %s; saved ", units_count(s->checkpoint_bytes).s,
             units_bytes(s->checkpoint_bytes).s, o->out ? o->out : "--out", kept);
    if (o->save_steps) str_addf(out, "every %lld steps, ", (long long)o->save_steps);
    if (o->save_seconds > 0)
        str_addf(out, "every %g minutes%s, ", o->save_seconds / 60,
                 o->save_steps ? " (the newest of these stays)" : "");
    str_addf(out, "and at the end; the result takes %s bytes (%s)", units_count(s->result_bytes).s,
             units_bytes(s->result_bytes).s);
}

json_t *run_saving_json(const SavePlan *s, const RunOptions *o) {
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:I}", "checkpoint_bytes",
                     (json_int_t)s->checkpoint_bytes, "optimizer_bytes", (json_int_t)s->optimizer_bytes,
                     "state_bytes", (json_int_t)s->state_bytes, "result_bytes", (json_int_t)s->result_bytes,
                     "kept", json_known(s->kept), "disk_bytes", json_known(s->disk_bytes), "every_seconds",
                     o->save_seconds, "every_steps", (json_int_t)o->save_steps);
}
