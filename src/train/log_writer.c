/* log_writer.c - how jobs are handed to the thread, what it does with them, and what the run does in its place. */
#include "train/log_writer.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "store/folder.h"
#include "train/run_int.h"
#include "weights/weights.h"

int64_t log_writer_bytes(int64_t most_samples) {
    return mem_add(mem_mul(mem_mul(LOG_JOBS, most_samples), (int64_t)sizeof(int64_t)), LOG_WRITER_STACK_BYTES);
}

/* ---- a job ---- */

static bool write_update(Run *r, const HistoryUpdate *u, Err *e) {
    char path[1200];
    return history_update_path(path, sizeof path, r->o.history->folder, u->step, e) &&
           stored_write(&r->stored, path, e) && history_add_update(r->o.history, u, e);
}

/* From the copy, or from the slots where there is none: then nothing is played meanwhile. */
static Exec *source_of(Run *r) { return r->log.copy.data ? &r->log.copy.x : &r->ring->x; }

static bool write_state_files(Run *r, const char *folder, Err *e) {
    Exec *x = source_of(r);
    return weights_save(x, job_trained_role(r->job), folder, e) &&
           weights_save_optimizer(x, file_in(folder, "optimizer.safetensors").s, e) &&
           (r->log.copy.data || run_sync_device(r, e));
}

static bool write_state(Run *r, int64_t step, Err *e) {
    char path[1024];
    FolderOut f;
    if (!history_state_path(path, sizeof path, r->o.history->folder, step, e) || !folder_remove(path, e) ||
        !folder_begin(&f, path, e))
        return false;
    if (!folder_end(&f, write_state_files(r, f.temporary, e), e)) return false;
    HistoryState s = {step, weights_digest(source_of(r), job_trained_role(r->job))};
    return history_add_state(r->o.history, s, e);
}

static bool write_job(Run *r, const char *root, void *what, Err *e) {
    LogJob *j = what;
    (void)root;
    j->done = j->kind == LOG_STEP     ? history_add_step(r->o.history, &j->step, e)
              : j->kind == LOG_UPDATE ? write_update(r, &j->update, e)
                                      : write_state(r, j->state, e);
    return j->done;
}

static bool run_errand(void *context, const Errand *errand, Err *e) {
    mem_count_no_more();
    return write_job(context, NULL, errand->to, e);
}

/* ---- the queue ---- */

bool log_writer_open(Run *r, Err *e) {
    LogWriter *w = &r->log;
    w->most_samples = MAX2(r->o.global_batch, 1);
    w->samples = MEM_NEW(int64_t, LOG_JOBS * w->most_samples);
    if (r->job->copies_states) state_copy_open(&w->copy, &r->ring->x, job_trained_role(r->job));
    return courier_open(&w->courier, run_errand, r, e);
}

void log_writer_close(Run *r) {
    courier_close(r->log.courier);
    state_copy_close(&r->log.copy);
    mem_free(r->log.samples);
    r->log = (LogWriter){.seconds = r->log.seconds};
}

/* The thread has stopped at something that the system refused. What it has left is written here, in its order. */
static bool write_rest(Run *r, Err *e) {
    LogWriter *w = &r->log;
    Err stopped_by = {0};
    courier_await(w->courier, w->sent, &stopped_by);
    courier_close(w->courier);
    w->courier = NULL;
    for (int64_t k = MAX2(w->sent - LOG_JOBS, 0) + 1; k <= w->sent; k++) {
        LogJob *j = &w->job[k % LOG_JOBS];
        if (!j->done && !run_until_written(r, write_job, j, e)) return false;
    }
    w->sent = w->update = w->state = 0;
    return courier_open(&w->courier, run_errand, r, e);
}

static bool await(Run *r, int64_t number, Err *e) {
    Err stopped_by = {0};
    CHECK(r->log.courier);
    return courier_await(r->log.courier, number, &stopped_by) || write_rest(r, e);
}

bool log_writer_drain(Run *r, Err *e) { return !r->log.courier || await(r, r->log.sent, e); }

/* A place for the next job; it may be filled until it is sent. */
static LogJob *next_job(Run *r, LogJobKind kind, Err *e) {
    LogWriter *w = &r->log;
    if (!await(r, MAX2(w->sent + 1 - LOG_JOBS, 0), e)) return NULL;
    LogJob *j = &w->job[(w->sent + 1) % LOG_JOBS];
    *j = (LogJob){.kind = kind};
    return j;
}

static int64_t send(LogWriter *w, LogJob *j) {
    w->sent = courier_send(w->courier, (Errand){.to = j});
    return w->sent;
}

bool log_writer_step(Run *r, const HistoryStep *s, Err *e) {
    LogWriter *w = &r->log;
    LogJob *j = next_job(r, LOG_STEP, e);
    if (!j) return false;
    int64_t *sample = w->samples + (j - w->job) * w->most_samples;
    CHECK(s->n <= w->most_samples);
    memcpy(sample, s->sample, sizeof *sample * (size_t)s->n);
    j->step = *s;
    j->step.sample = sample;
    send(w, j);
    return true;
}

bool log_writer_update(Run *r, int64_t step, Err *e) {
    LogWriter *w = &r->log;
    if (!await(r, w->update, e)) return false; /* its room is that of the last one */
    HistoryUpdate u = stored_take(&r->stored, &r->ring->x, step);
    r->update_error = fmax(r->update_error, u.error);
    LogJob *j = run_sync_device(r, e) ? next_job(r, LOG_UPDATE, e) : NULL;
    if (!j) return false;
    j->update = u;
    w->update = send(w, j);
    return true;
}

/* Where nothing is copied the slots are read, which is for the thread that plays. */
static bool write_state_now(Run *r, Err *e) {
    LogJob now = {.kind = LOG_STATE, .state = r->step};
    return log_writer_drain(r, e) && run_until_written(r, write_job, &now, e);
}

bool log_writer_state(Run *r, Err *e) {
    LogWriter *w = &r->log;
    if (!w->copy.data) return write_state_now(r, e);
    if (!await(r, w->state, e)) return false;
    state_copy_take(&w->copy, &r->ring->x);
    LogJob *j = run_sync_device(r, e) ? next_job(r, LOG_STATE, e) : NULL;
    if (!j) return false;
    j->state = r->step;
    w->state = send(w, j);
    return true;
}
