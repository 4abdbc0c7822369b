/* setup_history.c - from options to a step log: where it is, and what of a run fixes its bits. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "cli/setup.h"
#include "store/identity.h"
#include "train/stored_update.h"

/* Another binary may order its sums in another way. It is read piece by piece: with its libraries linked in, it is
 * larger than many a plan. */
static bool hash_program(char hex[SHA256_HEX], Err *e) {
    enum { PIECE = 1 << 20 };
    char path[1100], *piece;
    int fd;
    int64_t got = 0;
    Sha256 s;
    sha256_begin(&s);
    if (!file_of_program(path, sizeof path))
        return fail(e, ERR_FAIL, "--step-log: the system does not tell which binary this is");
    if (!file_open_read(path, &fd, e)) return false;
    piece = mem_alloc(PIECE);
    bool ok;
    while ((ok = file_read_some(fd, piece, &got, PIECE, path, e)) && got) sha256_add(&s, piece, got);
    sha256_end_hex(&s, hex);
    mem_free(piece);
    file_close(fd);
    return ok;
}

/* Bits depend on the kind of processor and its products, not on how many threads there are. */
static void set_device(json_t *to, const Machine *m) {
    char name[sizeof m->name], part[32];
    snprintf(name, sizeof name, "%s", m->name);
    snprintf(part, sizeof part, ", %d thread%s", m->threads, m->threads == 1 ? "" : "s");
    char *at = m->kind == MACHINE_CPU ? strstr(name, part) : NULL;
    if (at) memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
    json_object_set_new(to, "device", json_string(name));
}

json_t *setup_history_job(const JobSetup *j, Err *e) {
    const Options *o = j->o;
    char binary[SHA256_HEX];
    uint64_t model = 0, adapter = 0;
    bool from_files = j->model.has_folder && !j->spec.m.random_init;
    if (!hash_program(binary, e) || (from_files && !identity_of(&model, j->model.folder, e)) ||
        (opt_given(o, OPT_ADAPTER) && !identity_of(&adapter, opt_text(o, OPT_ADAPTER), e)))
        return NULL;
    json_t *job = options_json(o, true);
    json_object_set_new(job, "binary", json_string(binary));
    if (from_files) json_set_hex(job, "model", model);
    if (opt_given(o, OPT_ADAPTER)) json_set_hex(job, "adapter", adapter);
    json_set_hex(job, "data", dataset_fingerprint(j->data));
    json_object_set_new(job, "micro-batch", json_sprintf("%lld", (long long)j->spec.micro_batch));
    json_object_set_new(job, "accum", json_sprintf("%lld", (long long)j->spec.accum));
    set_device(job, &j->machine);
    return job;
}

void setup_history_folder(char *to, size_t size, const Options *o) {
    const char *given = opt_text(o, OPT_STEP_LOG);
    bool own = !strcmp(given, "auto");
    snprintf(to, size, "%s", own ? file_in(opt_text(o, OPT_OUT), "step-log").s : given);
}

bool setup_history_updates(Format *f, const Options *o) {
    *f = FMT_F32;
    return opt_given(o, OPT_STEP_LOG) && stored_format(f, opt_text(o, OPT_STEP_LOG_UPDATES));
}

void setup_history_host(JobSetup *j) {
    HostBytes *h = &j->host;
    const char *copying = opt_text(j->o, OPT_STEP_LOG_STATES);
    h->logged_samples = opt_given(j->o, OPT_STEP_LOG) ? j->global_batch : 0;
    h->stores_updates = setup_history_updates(&h->update_format, j->o);
    h->state_copying = !strcmp(copying, "copied")   ? STATES_COPIED
                       : !strcmp(copying, "direct") ? STATES_DIRECT
                                                    : STATES_AUTO;
}

bool setup_history(HistoryLog *l, const JobSetup *j, int64_t resumed_step, Err *e) {
    const Options *o = j->o;
    char folder[1024];
    *l = (HistoryLog){0};
    if (!opt_given(o, OPT_STEP_LOG)) return true;
    if (dataset_is_packed(j->data) && !dataset_packs_updates(j->data))
        return fail(
            e, ERR_USAGE,
            "--step-log: its lines name samples, and a row holds parts of several here; give --pack update or off");
    if (j->machine.kind != MACHINE_CPU && !opt_flag(o, OPT_DETERMINISTIC))
        return fail(e, ERR_USAGE,
                    "--step-log: on a GPU product algorithms are chosen by the clock, and a replay would differ; add "
                    "--deterministic");
    json_t *job = setup_history_job(j, e);
    if (!job) return false;
    setup_history_folder(folder, sizeof folder, o);
    /* in the run's own folder, which has no checkpoint: of a run that was killed before its first */
    bool left = !resumed_step && opt_is(o, OPT_STEP_LOG, "auto") && !history_has_ended(folder);
    if (!history_look(l, folder, job, opt_int(o, OPT_STEP_LOG_STRIDE), resumed_step,
                      left || opt_flag(o, OPT_OVERWRITE), j->global_batch, e))
        return false;
    l->threads = j->machine.threads;
    return true;
}
