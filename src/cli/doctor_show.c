/* doctor_show.c - how a machine is shown: tables for people, JSON for programs. */
#include "base/units.h"
#include "base/json.h"
#include "cli/doctor.h"

/* ---- for people ---- */

static void row(Str *out, const char *name, const char *value) {
    str_addf(out, "  %-22s %s\n", name, value);
}

static const char *tera(char *text, double flops) { /* 3 digits that matter */
    if (flops >= 1e12)
        snprintf(text, 32, "%.*f TFLOP/s", flops < 1e13 ? 2 : flops < 1e14 ? 1 : 0, flops / 1e12);
    else
        snprintf(text, 32, "%.*f GFLOP/s", flops < 1e10 ? 2 : flops < 1e11 ? 1 : 0, flops / 1e9);
    return text;
}

static const char *giga(char *text, double bytes) {
    snprintf(text, 32, "%.*f GB/s", bytes < 1e10 ? 2 : bytes < 1e11 ? 1 : 0, bytes / 1e9);
    return text;
}

static void show_limit(Str *out, const char *name, int64_t bytes, const char *note) {
    if (bytes < 0)
        row(out, name, "no limit");
    else
        str_addf(out, "  %-22s %s (%s)\n", name, units_bytes(bytes).s, note);
}

void doctor_show_host(Str *out, const DoctorHost *h) {
    char a[32], b[32];
    str_addf(out, "host\n  %-22s %s, %d cores allowed\n", "processor", h->processor, h->cores);
    str_addf(out, "  %-22s %s, %s available%s\n", "memory", units_bytes(h->memory_bytes).s,
             units_bytes(h->available_bytes).s, h->grouped ? " (the limit of this process's control group)" : "");
    str_addf(out, "  %-22s %s%s%s%s\n", "this process may take", units_bytes(h->room.bytes).s,
             h->room.limit ? ", by " : "", h->room.limit ? h->room.limit : "",
             h->room.limit && h->room.limit[0] == 'm' ? " of its control group" : "");
    show_limit(out, "address space", h->limits.address_bytes, "ulimit -v");
    show_limit(out, "data", h->limits.data_bytes, "ulimit -d");
    show_limit(out, "locked memory", h->limits.locked_bytes,
               "ulimit -l; nothing is locked here, and a GPU's driver pins memory without asking for it");
    show_limit(out, "file size", h->limits.file_bytes, "ulimit -f: of each file that is written");
    row(out, "disk free here", units_bytes(h->disk_bytes).s);
    if (h->file_read > 0)
        str_addf(out, "  %-22s write %s, read %s\n", "file in this folder", giga(a, h->file_write),
                 giga(b, h->file_read));
}

static void show_grid(Str *out, const MachineGrid *g, const char *title, const char *x, const char *y,
                      const char *const *tables, int n_tables) {
    if (!g->n_x) return;
    double unit = 0;
    for (int i = 0; i < g->n_x; i++)
        for (int k = 0; k < g->n_y; k++) unit = MAX2(unit, g->rate[0][i][k]);
    bool big = unit >= 1e12;
    unit = big ? 1e12 : 1e9;
    str_addf(out, "  %s, %s\n  %10s", title, big ? "TFLOP/s" : "GFLOP/s", x);
    for (int k = 0; k < g->n_y; k++) {
        char head[40];
        snprintf(head, sizeof head, "%s %lld", y, (long long)g->y[k]);
        str_addf(out, " %*s", 6 * n_tables + 1, head);
    }
    str_add(out, "\n            ");
    for (int k = 0; k < g->n_y; k++) {
        str_add(out, " ");
        for (int t = 0; t < n_tables; t++) str_addf(out, " %5s", tables[t]);
        str_add(out, " ");
    }
    for (int i = 0; i < g->n_x; i++) {
        str_addf(out, "\n  %10lld", (long long)g->x[i]);
        for (int k = 0; k < g->n_y; k++) {
            str_add(out, " ");
            for (int t = 0; t < n_tables; t++) {
                double v = g->rate[t][i][k] / unit;
                str_addf(out, " %5.*f", v < 10 ? 2 : v < 100 ? 1 : 0, v);
            }
            str_add(out, " ");
        }
    }
    str_add(out, "\n");
}

static void show_facts(Str *out, const DoctorDevice *d) {
    const DeviceFacts *f = &d->facts;
    if (f->capability[0]) row(out, "capability", f->capability);
    if (f->driver[0]) row(out, "driver", f->driver);
    row(out, "products by", f->products);
    if (f->attention[0]) row(out, "attention library", f->attention);
    if (f->partition[0]) row(out, "slices", f->partition);
    for (int i = 0; i < f->n_slices; i++) row(out, "", f->slice[i]);
    str_addf(out, "  %-22s %s, %s free\n", "memory", units_bytes(d->m.total_bytes[POOL_DEVICE]).s,
             units_bytes(d->m.free_bytes[POOL_DEVICE]).s);
    if (d->m.kind != MACHINE_CUDA) return;
    Str who = {0};
    backend_holders(&who, f);
    row(out, "held by others", str_text(&who));
    str_free(&who);
}

static void show_bytes(Str *out, const char *name, int64_t bytes, const char *note) {
    str_addf(out, "  %-22s %16s  %11s  %s\n", name, bytes < 0 ? "not known" : units_count(bytes).s,
             bytes < 0 ? "" : units_bytes(bytes).s, note);
}

static void show_ledger(Str *out, const DoctorDevice *d) {
    char note[96];
    if (d->m.kind == MACHINE_CUDA) {
        str_add(out, "  bytes beside the arena\n");
        show_bytes(out, "  context", d->facts.context_bytes ? d->facts.context_bytes : -1,
                   "the driver's own, when the device is opened");
        show_bytes(out, "  code", d->code_bytes, "kernels loaded for these measurements");
        snprintf(note, sizeof note, "a play of %lld steps, kept", (long long)d->extras.graph_steps);
        show_bytes(out, "  graphs", d->extras.graph_bytes, note);
        snprintf(note, sizeof note, "for %s of pinned memory", units_bytes(d->extras.pinned_bytes).s);
        show_bytes(out, "  mappings", d->extras.mapping_bytes, note);
    }
    const MeasuredLoad *l = &d->load;
    str_addf(out, "  a real load: %s asked in %.2f s, filled in %.2f s, released in %.2f s\n",
             units_bytes(l->asked_bytes).s, l->take_s, l->fill_s, l->release_s);
    show_bytes(out, "  asked", l->asked_bytes, "");
    show_bytes(out, "  taken", l->taken_bytes, "seen in use while it was held");
    show_bytes(out, "  left", l->left_bytes < 0 ? 0 : l->left_bytes, "still in use after the release");
}

void doctor_show_device(Str *out, const DoctorDevice *d) {
    static const char *const passes[] = {"fwd", "dx", "dw"}, *const ways[] = {"fwd", "bwd"};
    char a[32], b[32], c[32], e[32];
    str_addf(out, "%s: %s\n", d->device, d->m.name);
    show_facts(out, d);
    show_ledger(out, d);
    show_grid(out, &d->m.products, "products", "rows", "width", passes, 3);
    str_addf(out, "  %-22s fp32 %s, bf16 %s\n", "one large product", tera(a, d->f32_flops),
             tera(b, d->bf16_flops));
    show_grid(out, &d->m.attention, "attention", "length", "head", ways, 2);
    str_addf(out, "  %-22s %s\n", "element-wise", giga(a, d->m.memory_bytes_per_s));
    if (d->m.kind == MACHINE_CUDA)
        str_addf(out, "  %-22s in %s, out %s; together in %s, out %s\n", "copies, pinned", giga(a, d->copies.in),
                 giga(b, d->copies.out), giga(c, d->copies.in_both), giga(e, d->copies.out_both));
    else
        str_addf(out, "  %-22s %s\n", "memory copies", giga(a, d->copies.in));
    str_addf(out, "  measured in %.1f s; %lld product algorithms chosen\n", d->seconds, (long long)d->n_choices);
}

/* ---- for programs ---- */

json_t *doctor_host_json(const DoctorHost *h) {
    json_t *limits = json_pack("{s:o, s:o, s:o, s:o}", "address_bytes", json_known(h->limits.address_bytes),
                               "data_bytes", json_known(h->limits.data_bytes), "locked_bytes",
                               json_known(h->limits.locked_bytes), "file_bytes", json_known(h->limits.file_bytes));
    json_t *room = json_pack("{s:o, s:o}", "bytes", json_known(h->room.bytes), "limit",
                             h->room.limit ? json_string(h->room.limit) : json_null());
    return json_pack("{s:s, s:i, s:I, s:I, s:b, s:o, s:o, s:I, s:f, s:f, s:f}", "processor", h->processor, "cores",
                     h->cores, "memory_bytes", (json_int_t)h->memory_bytes, "available_bytes",
                     (json_int_t)h->available_bytes, "memory_limited_by_group", h->grouped, "limits", limits,
                     "room", room, "disk_free_bytes", (json_int_t)h->disk_bytes, "file_write_bytes_per_s",
                     h->file_write, "file_read_bytes_per_s", h->file_read, "load", h->load);
}

static json_t *grid_points(const MachineGrid *g, const char *x, const char *y, const char *const *tables,
                           int n_tables) {
    json_t *list = json_array();
    for (int i = 0; i < g->n_x; i++)
        for (int k = 0; k < g->n_y; k++) {
            json_t *point = json_pack("{s:I, s:I}", x, (json_int_t)g->x[i], y, (json_int_t)g->y[k]);
            for (int t = 0; t < n_tables; t++) json_object_set_new(point, tables[t], json_real(g->rate[t][i][k]));
            json_array_append_new(list, point);
        }
    return list;
}

static json_t *facts_json(const DeviceFacts *f) {
    json_t *holders = json_array(), *slices = json_array();
    for (int i = 0; i < f->n_holders; i++)
        json_array_append_new(holders, json_pack("{s:I, s:s, s:o}", "pid", (json_int_t)f->holder[i].pid, "name",
                                                 f->holder[i].name, "bytes", json_known(f->holder[i].bytes)));
    for (int i = 0; i < f->n_slices; i++) json_array_append_new(slices, json_string(f->slice[i]));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "capability", f->capability, "driver", f->driver,
                     "products", f->products, "attention", f->attention, "partition", f->partition, "slices",
                     slices, "holders", holders, "others_bytes", json_known(f->others_bytes));
}

static json_t *memory_json(const DoctorDevice *d) {
    const MeasuredLoad *l = &d->load;
    json_t *load = json_pack("{s:I, s:o, s:o, s:f, s:f, s:f}", "asked_bytes", (json_int_t)l->asked_bytes,
                             "taken_bytes", json_known(l->taken_bytes), "left_bytes", json_known(l->left_bytes),
                             "take_s", l->take_s, "fill_s", l->fill_s, "release_s", l->release_s);
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:I, s:o}", "total_bytes",
                     (json_int_t)d->m.total_bytes[POOL_DEVICE], "free_bytes",
                     (json_int_t)d->m.free_bytes[POOL_DEVICE], "context_bytes",
                     json_known(d->facts.context_bytes ? d->facts.context_bytes : -1), "code_bytes",
                     json_known(d->code_bytes), "graph_bytes", json_known(d->extras.graph_bytes), "graph_steps",
                     (json_int_t)d->extras.graph_steps, "mapping_bytes", json_known(d->extras.mapping_bytes),
                     "pinned_bytes", (json_int_t)d->extras.pinned_bytes, "load", load);
}

json_t *doctor_device_json(const DoctorDevice *d) {
    static const char *const passes[] = {"forward_flops", "dx_flops", "dw_flops"};
    static const char *const ways[] = {"forward_flops", "backward_flops"};
    json_t *copies = json_pack("{s:f, s:f, s:f, s:f}", "in", d->copies.in, "out", d->copies.out, "in_both",
                               d->copies.in_both, "out_both", d->copies.out_both);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:o, s:I, s:f}", "device", d->device, "name",
                     d->m.name, "facts", facts_json(&d->facts), "memory", memory_json(d), "products",
                     grid_points(&d->m.products, "rows", "width", passes, 3), "attention",
                     grid_points(&d->m.attention, "length", "head_size", ways, 2), "fp32_flops", d->f32_flops,
                     "bf16_flops", d->bf16_flops, "element_wise_bytes_per_s", d->m.memory_bytes_per_s,
                     "copy_bytes_per_s", copies, "choices", (json_int_t)d->n_choices, "seconds", d->seconds);
}
