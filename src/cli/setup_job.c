/* setup_job.c - in which order what a job stands on is opened, and that all of it is closed. */
#include "cli/setup.h"

bool setup_job_model(JobSetup *j, const Options *o, bool train, Err *e) {
    j->o = o;
    return setup_model(&j->model, o, e) && (train || setup_need_weights(&j->model, o, e)) &&
           setup_spec(&j->spec, train ? &j->global_batch : NULL, o, &j->model.config, train, e);
}

bool setup_job_machine(JobSetup *j, Err *e) {
    return setup_backend(&j->backend, &j->machine, j->o, e) && setup_fall_back(&j->spec, j->o, &j->machine, e) &&
           setup_limits(&j->limits, j->o, &j->machine, e);
}

bool setup_job_data(JobSetup *j, FitLimits limits, Err *e) {
    const Options *o = j->o;
    if (!setup_words(&j->words, o, &j->model, e)) return false;
    int64_t room = j->backend ? setup_data_room(&j->machine, limits, &j->words) : 0; /* no card: no host */
    if (!setup_data(&j->data, o, &j->words, &j->model, OPT_DATA, room, e)) return false;
    if (room) room = MAX2(room - dataset_bytes(j->data), 1);
    bool own = opt_given(o, OPT_EVAL_DATA), split = !own && opt_real(o, OPT_VAL_SPLIT) > 0;
    if (own && !setup_data(&j->held_out, o, &j->words, &j->model, OPT_EVAL_DATA, room, e)) return false;
    if (split && !dataset_split(j->data, &j->held_out, opt_real(o, OPT_VAL_SPLIT), e)) return false;
    setup_job_count(j);
    return true;
}

void setup_job_count(JobSetup *j) {
    j->host.data = dataset_bytes(j->data) + (j->held_out ? dataset_bytes(j->held_out) : 0);
    j->host.reading = setup_reading_bytes(j->data, j->held_out);
    j->host.tokenizer = j->words.tokenizer ? tokenizer_bytes(j->words.tokenizer) : 0;
}

bool setup_job_plan(JobSetup *j, Err *e) {
    return job_plan(&j->job, &j->ring, &j->spec, &j->machine, &j->host, e) &&
           setup_check_budget(&j->job, &j->host, j->limits, e) && setup_check_free(&j->ring, j->backend, e);
}

RunOptions setup_job_options(JobSetup *j) {
    const Options *o = j->o;
    return (RunOptions){.model_folder = j->model.has_folder && !j->spec.m.random_init ? j->model.folder : NULL,
                        .side_folder = setup_words_folder(j->words_folder, o, &j->model),
                        .adapter_folder = opt_given(o, OPT_ADAPTER) ? opt_text(o, OPT_ADAPTER) : NULL,
                        .base_name = opt_text(o, OPT_MODEL),
                        .global_batch = j->global_batch};
}

void setup_job_close_data(JobSetup *j) {
    if (j->held_out) dataset_close(j->held_out);
    if (j->data) dataset_close(j->data);
    j->data = j->held_out = NULL;
    setup_words_free(&j->words);
}

void setup_job_close_device(JobSetup *j) {
    run_close(&j->run);
    ring_close(&j->ring);
    if (j->backend) j->backend->close(j->backend);
    j->backend = NULL;
}

void setup_job_close(JobSetup *j) {
    setup_job_close_device(j);
    setup_job_close_data(j);
    update_rows_free(&j->rows);
}
