/* view_text.c - how a snapshot is laid out in a terminal. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "monitor/view.h"

enum { BAR_CELLS = 24, NAME_COLUMNS = 40 };

/* ---- history ---- */

void history_add(History *h, double share) {
    if (h->n == HISTORY_SAMPLES) memmove(h->share, h->share + 1, sizeof *h->share * (size_t)--h->n);
    h->share[h->n++] = (float)(isfinite(share) ? MAX2(0, MIN2(1, share)) : 0);
}

static double share_of(int64_t part, int64_t whole) {
    return part >= 0 && whole > 0 ? (double)part / (double)whole : -1;
}

static int64_t host_used(const MonitorHost *h) {
    return h->total_bytes >= 0 && h->available_bytes >= 0 ? h->total_bytes - h->available_bytes : -1;
}

void past_add(Past *p, const Snapshot *s) {
    history_add(&p->host_memory, share_of(host_used(&s->host), s->host.total_bytes));
    history_add(&p->host_cpu, 0.01 * s->host.cpu_percent);
    for (int i = 0; i < s->n_gpus; i++) {
        history_add(&p->gpu_memory[i], share_of(s->gpu[i].r.used_bytes, s->gpu[i].r.total_bytes));
        history_add(&p->gpu_busy[i], 0.01 * s->gpu[i].r.gpu_percent);
    }
}

void view_spark(Str *out, const History *h, int columns, bool utf8) {
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", ".", "-", "=", "+", "*", "#", "@"};
    for (int i = MAX2(0, h->n - columns); i < h->n; i++) {
        int level = MIN2(7, (int)(8 * h->share[i]));
        str_add(out, utf8 ? blocks[level] : ascii[level]);
    }
}

/* ---- pieces of lines ---- */

static void mark(Str *out, int m) {
    str_add_char(out, (char)m);
}

static void strong(Str *out, const char *text, int columns) {
    mark(out, MARK_STRONG);
    str_add_plain(out, text, columns);
    mark(out, MARK_PLAIN);
}

/* "[######------]  50 %"; runs_out: little is left of it when it is full */
static void add_bar(Str *out, double share, bool runs_out) {
    int full = share < 0 ? 0 : MIN2(BAR_CELLS, (int)(share * BAR_CELLS + 0.5));
    str_add_char(out, '[');
    mark(out, !runs_out || share <= 0.8 ? MARK_GOOD : share > 0.95 ? MARK_HOT : MARK_WARM);
    for (int i = 0; i < full; i++) str_add_char(out, '#');
    mark(out, MARK_PLAIN);
    for (int i = full; i < BAR_CELLS; i++) str_add_char(out, '-');
    if (share < 0)
        str_add(out, "]   ? %");
    else
        str_addf(out, "] %3.0f %%", 100 * share);
}

static void add_memory(Str *out, const char *label, int64_t used, int64_t total) {
    str_addf(out, "  %-7s", label);
    add_bar(out, share_of(used, total), true);
    if (used >= 0 && total >= 0) str_addf(out, "  %s of %s", units_bytes(used).s, units_bytes(total).s);
    str_add_char(out, '\n');
}

static void add_history(Str *out, const char *label, const History *h, ViewShape shape) {
    if (!h || h->n < 2) return;
    str_addf(out, "  %-7s", label);
    view_spark(out, h, MAX2(10, shape.columns - 10), shape.utf8);
    str_add_char(out, '\n');
}

/* ---- the host ---- */

static void add_host(Str *out, const Snapshot *s, const Past *past, ViewShape shape) {
    const MonitorHost *h = &s->host;
    strong(out, "host", 4);
    if (h->load[0] >= 0)
        str_addf(out, "  load %.2f %.2f %.2f on %d cores", h->load[0], h->load[1], h->load[2], h->cores);
    if (h->cpu_percent >= 0) str_addf(out, "  cpu %.0f %%", h->cpu_percent);
    if (h->swap_total_bytes > 0)
        str_addf(out, "  swap %s of %s", units_bytes(h->swap_total_bytes - h->swap_free_bytes).s,
                 units_bytes(h->swap_total_bytes).s);
    str_add_char(out, '\n');
    add_memory(out, "memory", host_used(h), h->total_bytes);
    if (!past) return;
    add_history(out, "", &past->host_memory, shape);
    if (!s->n_gpus) add_history(out, "cpu", &past->host_cpu, shape);
}

/* ---- a GPU ---- */

static void add_gpu_facts(Str *out, const NvmlGpu *g) {
    if (g->celsius >= 0) str_addf(out, "  %d C", g->celsius);
    if (g->watts >= 0) str_addf(out, "  %.0f W", g->watts);
    if (g->watts >= 0 && g->limit_watts > 0) str_addf(out, " of %.0f", g->limit_watts);
    if (g->sm_mhz >= 0) str_addf(out, "  SM %d MHz", g->sm_mhz);
    if (g->memory_mhz >= 0) str_addf(out, "  memory %d MHz", g->memory_mhz);
    if (g->rx_bytes_per_s >= 0) str_addf(out, "  PCIe in %s/s", units_bytes(g->rx_bytes_per_s).s);
    if (g->tx_bytes_per_s >= 0) str_addf(out, " out %s/s", units_bytes(g->tx_bytes_per_s).s);
    str_add_char(out, '\n');
}

static void add_gpu(Str *out, const Snapshot *s, int i, const Past *past, ViewShape shape) {
    const MonitorGpu *g = &s->gpu[i];
    char title[24];
    snprintf(title, sizeof title, "GPU %d", i);
    strong(out, title, 8);
    str_add(out, "  ");
    str_add_plain(out, g->r.name, NAME_COLUMNS);
    add_gpu_facts(out, &g->r);
    add_memory(out, "memory", g->r.used_bytes, g->r.total_bytes);
    add_history(out, "", past ? &past->gpu_memory[i] : NULL, shape);
    str_add(out, "  busy   ");
    add_bar(out, g->r.gpu_percent < 0 ? -1 : 0.01 * g->r.gpu_percent, false);
    if (g->r.memory_percent >= 0) str_addf(out, "  memory accessed %d %% of the time", g->r.memory_percent);
    str_add_char(out, '\n');
    add_history(out, "", past ? &past->gpu_busy[i] : NULL, shape);
    for (int p = 0; p < g->r.n_processes; p++) {
        const NvmlProcess *process = &g->r.process[p];
        str_addf(out, "    %7d  %11s  ", process->pid, process->bytes < 0 ? "?" : units_bytes(process->bytes).s);
        str_add_plain(out, g->process_name[p][0] ? g->process_name[p] : "(in another container)", NAME_COLUMNS);
        str_add_char(out, '\n');
    }
}

/* ---- jobs ---- */

static void add_job_state(Str *out, const JobStatus *j, const char *word, int colour) {
    str_add(out, "  ");
    mark(out, colour);
    str_add_plain(out, word, 20);
    mark(out, MARK_PLAIN);
    if (j->total_steps > 0) {
        str_add(out, "  ");
        str_add_plain(out, j->unit[0] ? j->unit : "step", 20);
        str_addf(out, " %lld/%lld", (long long)j->step, (long long)j->total_steps);
    }
    if (j->tokens > 0) str_addf(out, "  %s tokens", units_count(j->tokens).s);
    if (isfinite(j->loss)) str_addf(out, "  loss %.4f", j->loss);
}

static void add_job(Str *out, const MonitorJob *job, double now) {
    const JobStatus *j = &job->s;
    str_add(out, "  ");
    strong(out, j->name, NAME_COLUMNS);
    str_add(out, " (");
    str_add_plain(out, j->command, 20);
    str_addf(out, ", pid %d)", j->pid);
    add_job_state(out, j, job->alive ? j->phase : "DIED", job->alive ? MARK_GOOD : MARK_HOT);
    if (job->alive && isfinite(j->tokens_per_s))
        str_addf(out, "  %s tok/s", units_count((int64_t)j->tokens_per_s).s);
    if (job->alive && isfinite(j->left_seconds)) str_addf(out, "  left %s", units_seconds(j->left_seconds).s);
    if (!job->alive) str_addf(out, "  last heard of %s ago", units_seconds(MAX2(0, now - j->updated)).s);
    str_addf(out, "\n    %s of %s planned", units_bytes(j->measured_bytes).s, units_bytes(j->planned_bytes).s);
    if (j->device[0]) str_add(out, " on ");
    str_add_plain(out, j->device, NAME_COLUMNS);
    str_add(out, job->alive || !j->out[0] ? "  " : "  not finished: ");
    str_add_plain(out, j->out, 200);
    str_add_char(out, '\n');
}

void view_text(Str *out, const Snapshot *s, const Past *past, ViewShape shape) {
    char when[40];
    time_t seconds = (time_t)s->time;
    struct tm local;
    localtime_r(&seconds, &local);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    str_addf(out, "%s", when);
    if (s->driver[0]) str_add(out, "  NVIDIA driver ");
    str_add_plain(out, s->driver, 40);
    str_add_char(out, '\n');
    add_host(out, s, past, shape);
    for (int i = 0; i < s->n_gpus; i++) add_gpu(out, s, i, past, shape);
    str_add_plain(out, s->no_gpu, 200);
    if (s->no_gpu[0]) str_add_char(out, '\n');
    strong(out, "jobs of snug", 20);
    str_add(out, s->n_jobs ? "\n" : ": none is running\n");
    for (int i = 0; i < s->n_jobs; i++) add_job(out, &s->job[i], s->time);
}

void view_paint(Str *out, const char *text, bool colours) {
    static const char *const codes[MARK_COUNT] = {[MARK_GOOD] = "\033[32m",
                                                  [MARK_WARM] = "\033[33m",
                                                  [MARK_HOT] = "\033[1;31m",
                                                  [MARK_STRONG] = "\033[1m",
                                                  [MARK_PLAIN] = "\033[0m"};
    for (; *text; text++) {
        bool is_mark = *text > 0 && *text < MARK_COUNT;
        if (!is_mark)
            str_add_char(out, *text);
        else if (colours)
            str_add(out, codes[(int)*text]);
    }
}
