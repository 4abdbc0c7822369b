/* view_data.c - how programs read a snapshot: JSON, CSV with the ten columns of a GPU log, Prometheus text. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/units.h"
#include "monitor/view.h"

/* ---- JSON ---- */

/* Unknown figures are null. */
static void set_count(json_t *to, const char *name, int64_t n) {
    json_object_set_new(to, name, n < 0 ? json_null() : json_integer(n));
}

static void set_real(json_t *to, const char *name, double v) {
    json_object_set_new(to, name, isfinite(v) && v >= 0 ? json_real(v) : json_null());
}

/* Names may be anything: what is no text is shown as '?'. */
static void set_text(json_t *to, const char *name, const char *text) {
    Str plain = {0};
    str_add_plain(&plain, text, 1 << 20);
    json_object_set_new(to, name, json_string(str_text(&plain)));
    str_free(&plain);
}

static json_t *host_json(const MonitorHost *h) {
    json_t *o = json_object(), *load = json_array();
    set_count(o, "memory_total_bytes", h->total_bytes);
    set_count(o, "memory_available_bytes", h->available_bytes);
    set_count(o, "swap_total_bytes", h->swap_total_bytes);
    set_count(o, "swap_free_bytes", h->swap_free_bytes);
    set_count(o, "cores", h->cores);
    set_real(o, "cpu_percent", h->cpu_percent);
    for (int i = 0; i < 3; i++) json_array_append_new(load, json_real(h->load[i]));
    json_object_set_new(o, "load", load);
    return o;
}

static json_t *gpu_json(const MonitorGpu *g, int index) {
    const NvmlGpu *r = &g->r;
    json_t *o = json_object(), *list = json_array();
    set_count(o, "index", index);
    set_text(o, "name", r->name);
    set_text(o, "bus_id", r->bus_id);
    set_count(o, "memory_used_bytes", r->used_bytes);
    set_count(o, "memory_total_bytes", r->total_bytes);
    set_count(o, "utilization_gpu_percent", r->gpu_percent);
    set_count(o, "utilization_memory_percent", r->memory_percent);
    set_count(o, "temperature_c", r->celsius);
    set_real(o, "power_w", r->watts);
    set_real(o, "power_limit_w", r->limit_watts);
    set_count(o, "sm_clock_mhz", r->sm_mhz);
    set_count(o, "memory_clock_mhz", r->memory_mhz);
    set_count(o, "pcie_rx_bytes_per_s", r->rx_bytes_per_s);
    set_count(o, "pcie_tx_bytes_per_s", r->tx_bytes_per_s);
    for (int p = 0; p < r->n_processes; p++) {
        json_t *process = json_object();
        set_count(process, "pid", r->process[p].pid);
        set_text(process, "name", g->process_name[p]);
        set_count(process, "bytes", r->process[p].bytes);
        json_array_append_new(list, process);
    }
    json_object_set_new(o, "processes", list);
    return o;
}

static json_t *job_json(const MonitorJob *j) {
    json_t *o = json_object();
    set_text(o, "name", j->s.name);
    set_text(o, "command", j->s.command);
    set_count(o, "pid", j->s.pid);
    set_text(o, "state", j->alive ? "running" : "died");
    set_text(o, "phase", j->s.phase);
    set_text(o, "out", j->s.out);
    set_text(o, "device", j->s.device);
    set_count(o, "step", j->s.step);
    set_count(o, "total_steps", j->s.total_steps);
    set_text(o, "unit", j->s.unit[0] ? j->s.unit : "step");
    set_count(o, "tokens", j->s.tokens);
    json_object_set_new(o, "loss", isfinite(j->s.loss) ? json_real(j->s.loss) : json_null());
    set_real(o, "tokens_per_s", j->s.tokens_per_s);
    set_real(o, "step_seconds", j->s.step_seconds);
    set_real(o, "left_seconds", j->s.left_seconds);
    set_count(o, "planned_bytes", j->s.planned_bytes);
    set_count(o, "measured_bytes", j->s.measured_bytes);
    set_real(o, "began", j->s.began);
    set_real(o, "updated", j->s.updated);
    return o;
}

json_t *view_json(const Snapshot *s) {
    json_t *o = json_object(), *gpus = json_array(), *jobs = json_array();
    set_real(o, "time", s->time);
    set_text(o, "driver", s->driver);
    json_object_set_new(o, "host", host_json(&s->host));
    for (int i = 0; i < s->n_gpus; i++) json_array_append_new(gpus, gpu_json(&s->gpu[i], i));
    json_object_set_new(o, "gpus", gpus);
    for (int i = 0; i < s->n_jobs; i++) json_array_append_new(jobs, job_json(&s->job[i]));
    json_object_set_new(o, "jobs", jobs);
    if (s->no_gpu[0]) set_text(o, "notice", s->no_gpu);
    return o;
}

/* ---- CSV ---- */

void view_csv_head(Str *out) {
    str_add(out,
            "Timestamp,Elapsed,GPU_Index,GPU_Name,Temperature,GPU_Utilization,Memory_Utilization,Memory_Used,"
            "Memory_Total,Power_Draw\n");
}

static void add_cell(Str *out, const char *text) {
    Str plain = {0};
    str_add_plain(&plain, text, 200);
    str_add_char(out, '"');
    for (const char *c = str_text(&plain); *c; c++) str_addf(out, *c == '"' ? "\"\"" : "%c", *c);
    str_add_char(out, '"');
    str_free(&plain);
}

/* -1, what is not told, leaves the cell empty. */
static void add_number(Str *out, double n, int digits) {
    str_add_char(out, ',');
    if (n >= 0) str_addf(out, "%.*f", digits, n);
}

static void add_row(Str *out, const char *when, double elapsed, int index, const NvmlGpu *g) {
    double mib = (double)MIB;
    str_addf(out, "%s,%.3f,%d,", when, elapsed, index);
    add_cell(out, g->name);
    add_number(out, g->celsius, 0);
    add_number(out, g->gpu_percent, 0);
    add_number(out, g->memory_percent, 0);
    add_number(out, (double)g->used_bytes / mib, 0);
    add_number(out, (double)g->total_bytes / mib, 0);
    add_number(out, g->watts, 2);
    str_add_char(out, '\n');
}

void view_csv_rows(Str *out, const Snapshot *s, double elapsed) {
    char when[40], text[48];
    time_t seconds = (time_t)s->time;
    struct tm local;
    localtime_r(&seconds, &local);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(text, sizeof text, "%s.%03d", when, (int)(1e3 * (s->time - (double)seconds)));
    for (int i = 0; i < s->n_gpus; i++) add_row(out, text, elapsed, i, &s->gpu[i].r);
    if (s->n_gpus) return;
    NvmlGpu host = {.name = "host (no GPU)",
                    .celsius = -1,
                    .gpu_percent = -1,
                    .memory_percent = -1,
                    .watts = -1,
                    .used_bytes = s->host.total_bytes - s->host.available_bytes,
                    .total_bytes = s->host.total_bytes};
    add_row(out, text, elapsed, -1, &host);
}

/* ---- Prometheus ---- */

static void add_label(Str *out, const char *name, const char *text) {
    Str plain = {0};
    str_add_plain(&plain, text, 200);
    str_addf(out, "%s=\"", name);
    for (const char *c = str_text(&plain); *c; c++) str_addf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    str_add_char(out, '"');
    str_free(&plain);
}

static void add_help(Str *out, const char *name, const char *help) {
    str_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
}

static void prometheus_host(Str *out, const MonitorHost *h) {
    const struct {
        const char *name, *help;
        double value;
    } rows[] = {
        {"snug_host_memory_total_bytes", "Memory of the host, or of its control group.", (double)h->total_bytes},
        {"snug_host_memory_available_bytes", "What can be taken without swapping.", (double)h->available_bytes},
        {"snug_host_load1", "Processes that ran or waited to, over a minute.", h->load[0]},
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].value < 0) continue;
        add_help(out, rows[i].name, rows[i].help);
        str_addf(out, "%s %.15g\n", rows[i].name, rows[i].value);
    }
}

static void add_gauge(Str *out, const char *name, const char *key, int number, const char *label, double value) {
    str_addf(out, "%s{%s=\"%d\",", name, key, number);
    add_label(out, "name", label);
    str_addf(out, "} %.15g\n", value);
}

static void prometheus_gpus(Str *out, const Snapshot *s) {
    static const struct {
        const char *name, *help;
    } rows[] = {
        {"snug_gpu_memory_used_bytes", "Memory taken by anybody."},
        {"snug_gpu_memory_total_bytes", "Memory of the GPU."},
        {"snug_gpu_utilization_ratio", "Share of the time in which a kernel ran."},
        {"snug_gpu_temperature_celsius", "Temperature."},
        {"snug_gpu_power_watts", "Power drawn."},
    };
    for (int r = 0; r < COUNT_OF(rows) && s->n_gpus; r++) {
        add_help(out, rows[r].name, rows[r].help);
        for (int i = 0; i < s->n_gpus; i++) {
            const NvmlGpu *g = &s->gpu[i].r;
            const double value[COUNT_OF(rows)] = {(double)g->used_bytes, (double)g->total_bytes,
                                                  g->gpu_percent < 0 ? -1 : 0.01 * g->gpu_percent, g->celsius,
                                                  g->watts};
            if (value[r] >= 0) add_gauge(out, rows[r].name, "gpu", i, g->name, value[r]);
        }
    }
}

static void prometheus_jobs(Str *out, const Snapshot *s) {
    static const struct {
        const char *name, *help;
    } rows[] = {
        {"snug_job_up", "1: the job runs; 0: it died."},
        {"snug_job_step", "Updates, answers or problems done."},
        {"snug_job_steps", "Those of the whole job."},
        {"snug_job_tokens", "Tokens read and answered so far."},
        {"snug_job_loss", "Loss of the last steps that were logged."},
        {"snug_job_tokens_per_second", "Speed of the last steps."},
        {"snug_job_planned_bytes", "Memory the plan gives the process."},
        {"snug_job_measured_bytes", "The most the process has taken so far."},
    };
    for (int r = 0; r < COUNT_OF(rows) && s->n_jobs; r++) {
        add_help(out, rows[r].name, rows[r].help);
        for (int i = 0; i < s->n_jobs; i++) {
            const JobStatus *j = &s->job[i].s;
            const double value[COUNT_OF(rows)] = {
                s->job[i].alive, (double)j->step, (double)j->total_steps, j->tokens ? (double)j->tokens : (double)NAN,
                j->loss, j->tokens_per_s, (double)j->planned_bytes, (double)j->measured_bytes};
            if (isfinite(value[r])) add_gauge(out, rows[r].name, "pid", j->pid, j->name, value[r]);
        }
    }
}

void view_prometheus(Str *out, const Snapshot *s) {
    prometheus_host(out, &s->host);
    prometheus_gpus(out, s);
    prometheus_jobs(out, s);
}
