/* show.c - how a plan is shown. */
#include "cli/show.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/units.h"

static int bar_width(int64_t bytes, int64_t whole) {
    return whole > 0 ? (int)(24.0 * (double)bytes / (double)whole + 0.5) : 0;
}

static void show_line(Str *out, const char *name, int64_t bytes, int64_t whole, const char *note) {
    char bar[32];
    int n = MAX2(0, MIN2(24, bar_width(bytes, whole)));
    memset(bar, '#', (size_t)n);
    bar[n] = 0;
    str_addf(out, "  %-14s %16s  %11s  %-24s %s\n", name, units_count(bytes).s, units_bytes(bytes).s, bar,
             note ? note : "");
}

void show_dtypes(Str *out, const JobSpec *s) {
    static const char *const moments[] = {"fp32", "bf16", "8bit"};
    bool full = s->train && !s->lora;
    str_addf(out, "weights %s%s, activations %s", format_name(full ? s->weights : s->m.config.dtype),
             full ? s->weights == FMT_BF16 && !s->master ? " (rounded at random)" : "" : " (frozen, as on file)",
             format_name(s->m.activations));
    if (s->m.head_int8) str_add(out, ", head int8");
    if (s->m.adapter.rank) str_addf(out, ", adapters %s", format_name(s->m.adapter.format));
    if (s->train) str_addf(out, ", gradients %s, moments %s", format_name(s->gradients), moments[s->moments]);
    if (s->train && s->master) str_add(out, ", master fp32");
}

static void show_lines(Str *out, const Ledger *l, Pool pool, bool in_arena, int64_t whole) {
    for (int i = 0; i < l->n; i++) {
        const LedgerLine *line = &l->line[i];
        if (line->pool == pool && line->in_arena == in_arena && line->planned_bytes)
            show_line(out, line->name, line->planned_bytes, whole, line->note);
    }
}

/* Memory of the host: beside a device a page of its own, on the CPU part of the process. */
static void show_host(Str *out, const Ledger *l, int64_t whole) {
    static const Pool pools[] = {POOL_PINNED, POOL_HOST};
    for (int i = 0; i < COUNT_OF(pools); i++) {
        int64_t bytes = ledger_process_bytes(l, pools[i]);
        if (!bytes) continue;
        str_addf(out, "  in %s memory\n", pools[i] == POOL_PINNED ? "pinned host" : "the host's ordinary");
        show_lines(out, l, pools[i], true, whole);
        show_lines(out, l, pools[i], false, whole);
        show_line(out, pools[i] == POOL_PINNED ? "= pinned" : "= host", bytes, whole, NULL);
    }
}

static void show_measured(Str *out, int64_t bytes, int64_t planned) {
    show_line(out, "  measured", bytes, planned, bytes <= planned ? "within the plan" : "ABOVE THE PLAN");
}

void show_ledger(Str *out, const Ledger *l, int64_t process, bool one_memory, const Measured *measured) {
    int64_t arena = l->arena_bytes[POOL_DEVICE];
    str_addf(out, "\n  %-14s %16s\n", "", "planned bytes");
    show_lines(out, l, POOL_DEVICE, true, process); /* first what is in the arena, then what stands beside it */
    show_line(out, "= arena", arena, process, NULL);
    if (measured)
        show_line(out, "  measured", measured->arena_bytes, process,
                  measured->arena_bytes == arena ? "equal" : "DIFFERS");
    show_lines(out, l, POOL_DEVICE, false, process);
    if (one_memory) show_host(out, l, process);
    show_line(out, "= process", process, process, NULL);
    if (measured) show_measured(out, measured->process_bytes, process);
    int64_t host = ledger_process_bytes(l, POOL_PINNED) + ledger_process_bytes(l, POOL_HOST);
    if (!one_memory) show_host(out, l, host);
    if (!one_memory && measured && measured->host_bytes > 0) show_measured(out, measured->host_bytes, host);
    int64_t disk = ledger_process_bytes(l, POOL_DISK);
    if (!disk) return;
    str_add(out, "  on disk\n");
    show_lines(out, l, POOL_DISK, true, disk);
    show_line(out, "= disk", disk, disk, NULL);
}

static void show_budget(Str *out, int64_t process, int64_t budget_bytes) {
    bool fits = process <= budget_bytes;
    double share = (double)process / (double)budget_bytes;
    str_addf(out, "budget: %s bytes; %s by %s (", units_count(budget_bytes).s, fits ? "FITS" : "DOES NOT FIT",
             units_bytes(fits ? budget_bytes - process : process - budget_bytes).s);
    if (share < 10) str_addf(out, "%.1f %% of it %s)\n", 100 * share, fits ? "taken" : "needed");
    else str_addf(out, "%.0f times as much is needed)\n", share);
}

void show_disk(Str *out, const Ring *r) {
    int64_t disk = r->ledger.arena_bytes[POOL_DISK], own = ring_disk_bytes(r);
    if (disk)
        str_addf(out, "on disk: %s in --offload-dir, %s in the model's own files\n", units_bytes(own).s,
                 units_bytes(disk - own).s);
}

void show_plan(Str *out, const Job *j, int64_t budget_bytes, const Measured *measured) {
    const JobSpec *s = &j->spec;
    const Ledger *l = &j->ring->ledger;
    int64_t process = ring_process_bytes(j->ring), arena = l->arena_bytes[POOL_DEVICE];
    str_addf(out, "%s: %s parameters", s->m.config.name, units_count(config_parameters(&s->m.config)).s);
    if (s->train)
        str_addf(out, ", %s trained (%s)", units_count(model_count(&j->ring->p, true)).s,
                 s->lora ? "lora" : "full");
    str_addf(out, "\n%lld x %lld tokens a micro-batch", (long long)s->micro_batch, (long long)s->seq);
    if (s->train)
        str_addf(out, s->rows ? ", up to %lld micro-batches an update" : ", %lld micro-batches an update",
                 (long long)s->accum);
    str_addf(out, ", on %s; planned in %.1f ms (%lld tensors, %lld steps)\n", j->ring->machine.name, j->ring->plan_ms,
             (long long)j->ring->p.n_t, (long long)j->ring->p.n_s);
    str_add(out, "dtypes: ");
    show_dtypes(out, s);
    str_add(out, "\n");
    show_ledger(out, l, process, j->ring->machine.kind == MACHINE_CPU, measured);
    show_disk(out, j->ring);
    int64_t bound = j->ring->placement.lower_bound_bytes[POOL_DEVICE];
    str_addf(out, "placement: %.4f of the lower bound (%s bytes alive at step %d, %s)\n",
             bound ? (double)arena / (double)bound : 1, units_count(bound).s, j->ring->placement.peak_step,
             j->ring->placement.peak_step >= 0 && j->ring->placement.peak_step < j->ring->p.n_s
                 ? op_name(j->ring->p.s[j->ring->placement.peak_step].op)
                 : "-");
    if (budget_bytes) show_budget(out, process, budget_bytes);
}

static json_t *pool_json(const Ledger *l, Pool pool, int64_t budget_bytes) {
    json_t *lines = json_array();
    for (int i = 0; i < l->n; i++) {
        const LedgerLine *line = &l->line[i];
        if (line->pool != pool) continue;
        json_t *row = json_pack("{s:s, s:I, s:b}", "name", line->name, "bytes", (json_int_t)line->planned_bytes,
                                "in_arena", line->in_arena);
        if (line->note) json_object_set_new(row, "note", json_string(line->note));
        json_array_append_new(lines, row);
    }
    return json_pack("{s:o, s:I, s:I, s:I, s:o}", "budget_bytes",
                     budget_bytes ? json_integer(budget_bytes) : json_null(), "planned_bytes",
                     (json_int_t)l->arena_bytes[pool], "process_planned_bytes",
                     (json_int_t)ledger_process_bytes(l, pool), "lower_bound_bytes",
                     (json_int_t)l->lower_bound_bytes[pool], "lines", lines);
}

json_t *show_pools_json(const Ledger *l, int64_t budget_bytes) {
    json_t *pools = json_object();
    json_object_set_new(pools, "device", pool_json(l, POOL_DEVICE, budget_bytes));
    json_object_set_new(pools, "pinned", pool_json(l, POOL_PINNED, 0));
    json_object_set_new(pools, "host", pool_json(l, POOL_HOST, 0));
    if (l->arena_bytes[POOL_DISK]) json_object_set_new(pools, "disk", pool_json(l, POOL_DISK, 0));
    return pools;
}

void show_print_report(const Str *text, bool json) {
    if (!json) fputs(str_text(text), stdout);
    for (const char *at = str_text(text); json && *at;) {
        int n = (int)strcspn(at, "\n");
        log_line("%.*s", n, at);
        at += n + (at[n] == '\n');
    }
}

void show_print_json(json_t *root) { show_print_digits(root, JSON_DIGITS); }

void show_print_digits(json_t *root, int digits) {
    Str line = {0};
    json_add(&line, root, digits);
    printf("%s\n", str_text(&line));
    str_free(&line);
    json_decref(root);
}

json_t *show_plan_json(const Job *j, const HostBytes *host, int64_t budget_bytes) {
    int64_t process = ring_process_bytes(j->ring);
    bool fits = !budget_bytes || process <= budget_bytes;
    json_t *changes = json_array();
    Change change[JOB_CHANGES];
    int n = job_changes(j, host, fits ? 0 : budget_bytes, change);
    for (int i = 0; i < n; i++)
        json_array_append_new(changes, json_pack("{s:s, s:I, s:o, s:b}", "flags", change[i].flags, "saves_bytes",
                                                 (json_int_t)change[i].saves_bytes, "slowdown",
                                                 change[i].slowdown > 0 ? json_real(change[i].slowdown) : json_null(),
                                                 "changes_mathematics", change[i].maths));
    return json_pack("{s:b, s:s, s:I, s:I, s:o, s:I, s:o, s:s, s:f, s:I, s:I, s:f}", "fits", fits, "model",
                     j->spec.m.config.name, "parameters", (json_int_t)config_parameters(&j->spec.m.config),
                     "trainable_parameters", (json_int_t)model_count(&j->ring->p, true), "pools",
                     show_pools_json(&j->ring->ledger, budget_bytes), "offload_dir_bytes",
                     (json_int_t)ring_disk_bytes(j->ring), "changes", changes, "machine", j->ring->machine.name,
                     "plan_ms", j->ring->plan_ms, "tensors", (json_int_t)j->ring->p.n_t - 1, "steps",
                     (json_int_t)j->ring->p.n_s, "predicted_update_seconds",
                     ring_round_seconds(j->ring, &j->ring->machine));
}
