/* step_log.c - what a run writes into its step log (store/history.h), and what that takes on disk.
 *
 * The light log: the rate, the samples and the key of every update, and the state every so many of them. Steps are
 * replayable bit for bit, so that this is enough for every state and every update between. */
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "obs/sensors.h"
#include "train/run_int.h"
#include "weights/weights.h"

enum {
    BLOCK_BYTES = 4096,
    STATE_FILES = 4,
    HEADER_BYTES = 16 << 10
}; /* beyond the lengths of files; the first line */

/* ---- room ---- */

static bool plan_updates(StepLogPlan *p, const Job *j, const RunOptions *o, Err *e) {
    StoredUpdate layout;
    stored_lay_out(&layout, &j->ring->p, o->update_format);
    bool ok = stored_file_bytes(&layout, &p->update_bytes, e);
    stored_free(&layout);
    p->update_bytes += BLOCK_BYTES;
    return ok;
}

bool run_plan_step_log(StepLogPlan *p, const Job *j, const RunOptions *o, Err *e) {
    *p = (StepLogPlan){0};
    if (!o->history) return true;
    StSizes trained, optimizer;
    if (!weights_sizes(&trained, &j->ring->p, job_trained_role(j), e) ||
        !weights_optimizer_sizes(&optimizer, &j->ring->p, e))
        return false;
    int64_t from = o->history->from, stride = o->history->stride;
    p->line_bytes = history_line_bytes(o->global_batch);
    p->state_bytes = trained.bytes + optimizer.bytes + STATE_FILES * BLOCK_BYTES;
    p->states = stride ? o->total_steps / stride - from / stride : 0;
    if (o->log_updates && !plan_updates(p, j, o, e)) return false;
    int64_t steps = o->total_steps - from, lines = mem_mul((steps + 1) * (1 + o->log_updates), p->line_bytes);
    p->disk_bytes = mem_add(mem_add(lines, mem_mul(p->states, p->state_bytes)), HEADER_BYTES);
    p->disk_bytes = mem_add(p->disk_bytes, mem_mul(steps, p->update_bytes));
    if (p->disk_bytes < 0) p->disk_bytes = INT64_MAX;
    return true;
}

bool run_check_step_log_room(const StepLogPlan *p, const SavePlan *saving, const RunOptions *o, Err *e) {
    if (!o->history) return true;
    const char *folder = o->history->folder;
    int64_t has = file_free_bytes(folder), need = p->disk_bytes;
    if (o->save && file_same_disk(folder, o->out) && saving->disk_bytes > 0) need = mem_add(need, saving->disk_bytes);
    if (need < 0) need = INT64_MAX;
    if (has < 0 || need <= has) return true;
    return fail(e, ERR_BUDGET,
                "does not fit the disk: the step log may take %s bytes (%s) in %s (%lld checkpoints of %s), with what "
                "the run writes to the same disk %s; %s are free there, %s (%s bytes) are missing. Nothing was loaded. "
                "Make room, or write fewer checkpoints: --step-log-stride N%s",
                units_count(p->disk_bytes).s, units_bytes(p->disk_bytes).s, folder, (long long)p->states,
                units_bytes(p->state_bytes).s, units_bytes(need).s, units_bytes(has).s, units_bytes(need - has).s,
                units_count(need - has).s, p->update_bytes ? "; no stored updates: --step-log-updates none" : "");
}

void run_step_log_text(Str *out, const StepLogPlan *p, const Job *j, const RunOptions *o) {
    int64_t steps = MAX2(o->total_steps - o->history->from, 1), trained = model_count(&j->ring->p, true);
    str_addf(out, "step log: %s: at most %s bytes a step, %lld checkpoints of %s: %s a step; updates kept as %s %s %s",
             o->history->folder, units_count(p->line_bytes).s, (long long)p->states, units_bytes(p->state_bytes).s,
             units_bytes(p->disk_bytes / steps).s, o->log_updates ? stored_format_name(o->update_format) : "bf16",
             o->log_updates ? "are" : "would be", units_bytes(o->log_updates ? p->update_bytes : 2 * trained).s);
}

/* ---- lines ---- */

bool run_log_open(Run *r, Err *e) {
    if (!r->o.history) return true;
    if (r->o.log_updates) stored_lay_out(&r->stored, &r->ring->p, r->o.update_format);
    if (r->o.log_updates) stored_begin(&r->stored, &r->ring->x);
    return log_writer_open(r, e);
}

static bool writes_state_after(const Run *r, int64_t step) {
    return r->o.history && r->o.history->stride && step % r->o.history->stride == 0;
}

bool run_logs_state_after(const Run *r, int64_t step) { return r->stored.image || writes_state_after(r, step); }

/* The order of an epoch is a function of the seed: it may be asked for while a feed fills batches. */
bool run_log_step(Run *r, const Update *u, Err *e) {
    if (!r->o.history) return true;
    HistoryStep s = {.step = u->step,
                     .epoch = u->at.epoch,
                     .row = u->at.row,
                     .lr = u->lr,
                     .key = step_key(r, u->step),
                     .scale = u->scaling.scale,
                     .skipped = u->scaling.skipped,
                     .overflowed = u->skipped,
                     .sample = r->rows.member};
    s.n = MIN2(r->o.global_batch, dataset_rows(r->data) - u->at.row);
    for (int64_t i = 0; i < s.n; i++) r->rows.member[i] = dataset_row_at(r->data, u->at.epoch, u->at.row + i);
    double began = sensors_seconds();
    bool ok = log_writer_step(r, &s, e) && (!r->stored.image || log_writer_update(r, u->step, e)) &&
              (!writes_state_after(r, r->step) || log_writer_state(r, e));
    r->log.seconds += sensors_seconds() - began;
    return ok;
}

static bool write_end(Run *r, const char *root, void *checksum, Err *e) {
    (void)root;
    return history_add_end(r->o.history, (HistoryState){r->step, *(const uint64_t *)checksum}, e);
}

bool run_log_end(Run *r, Err *e) {
    if (!r->o.history) return true;
    uint64_t checksum = weights_digest(&r->ring->x, job_trained_role(r->job));
    if (!log_writer_drain(r, e)) return false;
    if (!run_until_written(r, write_end, &checksum, e)) return false;
    log_line("step log: %s bytes in %s, %s a step without its checkpoints", units_count(r->o.history->bytes).s,
             r->o.history->folder, units_bytes(r->o.history->bytes / MAX2(r->step, 1)).s);
    return true;
}
