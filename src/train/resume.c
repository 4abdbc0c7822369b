/* resume.c - what a resumed run must agree on with its checkpoint, what may have changed, and what that does to
 * its learning rate. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "store/adapter.h"
#include "store/checkpoint.h"
#include "train/run_int.h"
#include "weights/weights.h"

/* The schedule that the checkpoint's run had; its kind, rates and floor are among the settings that agree. */
static Schedule earlier_schedule(const TrainerState *saved, const Schedule *now) {
    Schedule s = *now;
    s.total_steps = saved->schedule_steps >= 0 ? saved->schedule_steps : saved->max_steps;
    if (saved->warmup_steps >= 0) s.warmup_steps = saved->warmup_steps;
    return s;
}

static bool check_length(const TrainerState *saved, const RunOptions *o, const char *path, Err *e) {
    if (o->total_steps >= saved->global_step) return true;
    return fail(e, ERR_USAGE,
                "--resume %s: stands at step %lld, and the run is to have %lld. A run can be shortened to the "
                "step where it stands at most: give --steps %lld or more",
                path, (long long)saved->global_step, (long long)o->total_steps, (long long)saved->global_step);
}

static bool check_place(const TrainerState *saved, const Dataset *d, const char *path, Err *e) {
    int64_t rows = dataset_rows(d);
    if (saved->data_row < rows || !saved->data_row) return true;
    return fail(e, ERR_FAIL,
                "--resume %s: stands at row %lld of its data, which has %lld rows now. Was the file changed?",
                path, (long long)saved->data_row, (long long)rows);
}

bool run_agree(const RunFolder *f, const RunOptions *o, const Dataset *d, Err *e) {
    TrainerState now;
    if (!run_folder_resumes(f)) return true;
    trainer_state_init(&now);
    trainer_state_set_all(&now, o->settings);
    bool ok = trainer_state_check_settings(&f->saved, &now, e) || fail_within(e, "--resume %s", f->checkpoint);
    trainer_state_free(&now);
    return ok && check_length(&f->saved, o, f->checkpoint, e) &&
           (!d || check_place(&f->saved, d, f->checkpoint, e));
}

void run_say_length(const RunFolder *f, const RunOptions *o) {
    const TrainerState *saved = &f->saved;
    const Schedule *now = &o->schedule;
    Schedule then = earlier_schedule(saved, now);
    int64_t step = saved->global_step - saved->scaling.skipped;
    bool other_length = saved->max_steps != o->total_steps, other_rate = then.total_steps != now->total_steps;
    if (!run_folder_resumes(f) || (!other_length && !other_rate)) return;
    char length[120] = "the schedule is changed";
    if (other_length)
        snprintf(length, sizeof length, "the run is %s from %lld to %lld steps",
                 saved->max_steps < o->total_steps ? "lengthened" : "shortened", (long long)saved->max_steps,
                 (long long)o->total_steps);
    if (now->kind == SCHEDULE_CONSTANT)
        log_line("%s: the learning rate is constant and stays as it was", length);
    else if (!other_rate)
        log_line("%s: the learning rate keeps its %s schedule over %lld steps", length, schedule_names[now->kind],
                 (long long)now->total_steps);
    else
        log_line("%s: %s now runs over %lld steps, so the rate of the next step is %.3g and not %.3g "
                 "(--schedule-steps %lld keeps the old schedule)",
                 length, schedule_names[now->kind], (long long)now->total_steps, schedule_lr(now, step),
                 schedule_lr(&then, step), (long long)then.total_steps);
}

/* Adapters are bound to the weights beneath them, which no checkpoint holds. A folder may have been moved. */
void run_say_model(const RunFolder *f, const RunOptions *o) {
    AdapterConfig c;
    Err e;
    if (!run_folder_resumes(f) || !o->base_name || !adapter_config_read(&c, f->checkpoint, &e)) return;
    if (c.base_model[0] && strcmp(file_last_name(c.base_model), file_last_name(o->base_name)))
        log_warn("--model %s: the adapters of %s were trained on %s. On other weights this is another run",
                 o->base_name, f->checkpoint, c.base_model);
}

/* Says which earlier checkpoint stands, where the one that was asked for cannot be read. Gives false. */
static bool name_earlier(const Run *r, Err *e) {
    Err why = *e, none = {0};
    int64_t *steps = NULL, n = 0, earlier = -1;
    if (why.code != ERR_FAIL || stop_asked() || !checkpoint_list(r->o.out, &steps, &n, &none)) return false;
    for (int64_t i = 0; i < n && steps[i] < r->step; i++) earlier = steps[i];
    mem_free(steps);
    if (earlier < 0) return false;
    return fail(e, why.code, "%s. An earlier one stands: --resume checkpoint-%lld", why.text, (long long)earlier);
}

bool run_resume(Run *r, Err *e) {
    RunFolder *f = r->o.folder;
    const char *path = f->checkpoint;
    trainer_state_free(&r->state);
    trainer_state_copy(&r->state, &f->saved);
    r->step = r->state.global_step;
    if (!weights_load(&r->ring->x, NULL, r->job->spec.lora ? ROLE_ADAPTER : ROLE_WEIGHT, path, e) ||
        !weights_load_optimizer(&r->ring->x, file_in(path, "optimizer.safetensors").s, e))
        return name_earlier(r, e);
    const RunSource *source = r->o.source;
    if (source && source->restore && !source->restore(source->user, r, path, e)) return false;
    char own[1024]; /* one that lies elsewhere is not this run's */
    bool ours = checkpoint_locate(own, sizeof own, r->o.out, r->step, NULL) && file_is_within(path, own);
    r->saved_step = ours ? r->step : -1;
    log_line("going on from %s: step %lld, epoch %.3f", path, (long long)r->step, r->state.epoch);
    return true;
}
