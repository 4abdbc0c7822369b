/* cmd_doctor.c - snug doctor: what this machine is and can do, measured, and kept in the machine file. */
#include "base/log.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/doctor.h"
#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/show.h"

typedef struct Visit {
    const Options *o;
    const DoctorHost *host;
    Str text;
    json_t *devices;
    MachineFile file;
    Machine machine;       /* the last that was opened: beside a GPU other figures of the process count (peak.h) */
    int64_t planned_bytes; /* the most of any */
} Visit;

/* Measures one device: its table, its JSON, its entry in the file. */
static bool visit_device(Visit *v, const char *name, Err *e) {
    Backend *b;
    DoctorDevice d = {.choice = NULL};
    BackendOptions options = {.threads = (int)opt_int(v->o, OPT_THREADS)};
    if (!backend_open(&b, name, options, e)) return false;
    bool ok = doctor_device(&d, b, name, opt_flag(v->o, OPT_QUICK), e);
    v->machine = d.m;
    v->planned_bytes = MAX2(v->planned_bytes, d.planned_bytes);
    if (ok) {
        str_add(&v->text, "\n");
        doctor_show_device(&v->text, &d);
        json_array_append_new(v->devices, doctor_device_json(&d));
        d.m.disk_bytes_per_s = MIN2(v->host->file_read, v->host->file_write);
        MachineEntry *entry = machinefile_put(&v->file, &d.m);
        entry->context_bytes = d.facts.context_bytes;
        entry->code_bytes = MAX2(d.code_bytes, 0);
        entry->graph_bytes = MAX2(d.extras.graph_bytes, 0);
        machinefile_add_choices(entry, d.choice, d.n_choices);
    }
    doctor_device_free(&d);
    b->close(b);
    return ok;
}

/* Without --device: the processor, and the first GPU when one opens; why it does not is worth a line. */
static bool visit_devices(Visit *v, Err *e) {
    if (opt_given(v->o, OPT_DEVICE)) return visit_device(v, opt_text(v->o, OPT_DEVICE), e);
    Err why = {0};
    if (!visit_device(v, "cpu", e)) return false;
    if (!visit_device(v, "cuda", &why)) str_addf(&v->text, "\ncuda: %s\n", why.text);
    return true;
}

static void print_visit(const Visit *v, const DoctorHost *host, const Peak *peak) {
    bool json = opt_flag(v->o, OPT_JSON);
    show_print_report(&v->text, json);
    if (!json) return;
    json_t *root = json_pack("{s:o, s:O, s:I}", "host", doctor_host_json(host), "devices", v->devices,
                             "process_planned_bytes", (json_int_t)v->planned_bytes);
    peak_json(root, peak);
    show_print_digits(root, 6);
}

/* The place was not asked for where --write is not given: then the figures, which are shown by now, are worth more. */
static bool keep_rates(const Visit *v, const char *path, Err *e) {
    if (machinefile_write(&v->file, path, e)) {
        log_line("written: %s; plan, train and eval use these rates from now on (--no-write: none is written; without "
                 "the file the catalogue's count)",
                 path);
        return true;
    }
    if (opt_given(v->o, OPT_WRITE) || stop_caused(e)) return false;
    log_warn("the rates are not kept: %s. --write FILE names another place, --machine FILE uses it", e->text);
    *e = (Err){0};
    return true;
}

bool cmd_doctor(const Options *o, Err *e) {
    DoctorHost host = {0};
    Visit v = {.o = o, .host = &host, .devices = json_array()};
    char path[1024];
    bool there = false, writes = !opt_is(o, OPT_WRITE, "none");
    if (writes && !setup_machine_path(path, sizeof path, opt_given(o, OPT_WRITE) ? opt_text(o, OPT_WRITE) : NULL))
        writes = false; /* no folder for it is known: nothing is lost but the file */
    bool ok = !writes || machinefile_read(&v.file, &there, path, e); /* other devices of the file stay */
    if (ok) {
        doctor_host(&host, opt_flag(o, OPT_QUICK));
        doctor_show_host(&v.text, &host);
        ok = visit_devices(&v, e);
        Peak peak = peak_of_job(&v.machine, v.planned_bytes, v.planned_bytes, 0);
        if (ok) print_visit(&v, &host, &peak);
        if (ok && writes) ok = keep_rates(&v, path, e);
        ok = ok && peak_settle(&peak, o, e);
    }
    machinefile_free(&v.file);
    json_decref(v.devices);
    str_free(&v.text);
    return ok;
}
