/* run_int.h - what the files of a run share among themselves. */
#ifndef TRAIN_RUN_INT_H
#define TRAIN_RUN_INT_H

#include "train/run.h"

int64_t run_epoch_rows(const Run *r); /* of what it is fed with */

/* resume.c */
bool run_resume(Run *r, Err *e);

/* save.c: what cannot be written now is tried again until it is, or goes to the spare folder; false: a signal
 * ended the waiting, or it is no matter of the disk. */
typedef bool RunWrite(Run *r, const char *root, void *what, Err *e); /* root: the run folder, or one in its place */
bool run_until_written(Run *r, RunWrite *put, void *what, Err *e);
bool run_save_checkpoint(Run *r, Err *e);
bool run_save_result(Run *r, RunResult *out, Err *e);
bool run_has_result(const Run *r); /* it stands in the run folder */
void run_name_result(const Run *r, RunResult *out);

/* room.c */
bool run_is_passing(const RunOptions *o, int64_t step); /* a checkpoint made then stands until the next one does */
AdapterConfig run_adapter_config(const JobSpec *s, const char *base_name);

/* report.c: what attention does on the next batch, as a row of metrics. Nothing where the model does not say. */
bool run_reports_after(const Run *r, int64_t step);
bool run_report(Run *r, AttentionReport *out, Err *e);

/* step_log.c: the lines of the step log. */
bool run_log_open(Run *r, Err *e); /* the weights that the first update begins with are there */
bool run_logs_state_after(const Run *r, int64_t step); /* the log looks at the state then */
bool run_log_step(Run *r, const Update *u, Err *e);    /* an update that is done, and the checkpoint behind it */
bool run_log_end(Run *r, Err *e);
/* log_writer.c: what a step hands over to be written beside the next ones. Nothing without a step log. */
bool log_writer_open(Run *r, Err *e);
void log_writer_close(Run *r); /* what was handed over is written first */
bool log_writer_step(Run *r, const HistoryStep *s, Err *e);
bool log_writer_update(Run *r, int64_t step, Err *e);
bool log_writer_state(Run *r, Err *e);
bool log_writer_drain(Run *r, Err *e); /* all of it is written */

/* gradient_noise.c */
void gradient_noise_add(GradientNoise *n, double few_norm, double few_tokens, double many_norm, double many_tokens);
double gradient_noise_scale(const GradientNoise *n); /* tokens; NaN: not known, the signal drowns */

/* spike.c */
SpikeLimits spike_limits(const SpikeState *s, const SpikeRule *rule); /* of the next update */
SpikeState spike_after(SpikeState s, const SpikeRule *rule, double loss, double norm, bool skipped);
bool spike_is_one(const SpikeLimits *limits, double loss, double norm);
void spike_text(char *out, size_t size, const SpikeLimits *limits, double loss, double norm);

/* warm.c: plays every program until the device keeps it, changing no state; fills the ledger's measured column. */
bool run_warm(Run *r, Err *e);

/* loss_scale.c: what follows from an update whose gradients were finite or not. window 0: the loss is not scaled. */
LossScale loss_scale_after(LossScale s, int64_t window, bool finite);

/* step.c: queueing never waits; reading waits for that update alone. */
/* before: still in flight; NULL: none is. False: u is not complete and nothing of the state has changed; without a
 * code in e the process was asked to leave. */
bool step_queue_micros(Run *r, Update *u, const Update *before, Err *e);
bool step_read(Run *r, Update *u, Err *e); /* its numbers; advances the run; explains what is not finite */
void step_load_micro(Run *r, int64_t micro); /* inputs and dials of one micro-batch of the next update */
void step_put_limits(Run *r, SpikeLimits limits, double scale); /* scale: of the loss */

/* trim.c: after an update whose numbers are read: idle memory is given back, and taken again. */
bool run_trim(Run *r, Err *e);

#endif
