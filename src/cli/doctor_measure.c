/* doctor_measure.c - which figures are taken, at which shapes, and how much of the machine they may use. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/units.h"
#include "cli/doctor.h"

/* ---- the host ---- */

/* A file without a name in this folder, written to the disk and read back from it. */
static void time_file(DoctorHost *h, int64_t bytes) {
    const char *path = ".";
    enum { PIECE = 4 << 20 };
    char *piece = mem_alloc(PIECE);
    for (int i = 0; i < PIECE; i++) piece[i] = (char)(i * 2654435761u >> 24);
    int fd;
    if (!file_open_hidden(path, &fd, NULL)) {
        mem_free(piece);
        return;
    }
    double t0 = sensors_seconds();
    bool ok = true;
    for (int64_t at = 0; at < bytes && ok; at += PIECE) ok = file_write(fd, piece, PIECE, path, NULL);
    ok = ok && file_flush(fd, path, NULL);
    double t1 = sensors_seconds();
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    double t2 = sensors_seconds();
    for (int64_t at = 0; at < bytes && ok; at += PIECE) ok = file_pread(fd, piece, PIECE, at, path, NULL);
    if (ok) h->file_write = (double)bytes / (t1 - t0), h->file_read = (double)bytes / (sensors_seconds() - t2);
    file_close(fd);
    mem_free(piece);
}

/* Rates that are taken beside others' work are too low, and plans would use them from then on. */
static void look_at_load(DoctorHost *h) {
    char text[PROCESS_TEXT_BYTES];
    h->machine_cores = (int)MAX2(sysconf(_SC_NPROCESSORS_ONLN), 1);
    h->load = process_read(text, "/proc/loadavg") ? strtod(text, NULL) : 0;
    if (h->load + h->cores < h->machine_cores + 0.5) return;
    log_warn("other programs are at work here (load %.1f on %d cores): the rates that are measured now are too low. "
             "Measure again when the machine is idle",
             h->load, h->machine_cores);
}

void doctor_host(DoctorHost *h, bool quick) {
    *h = (DoctorHost){.cores = threads_available(), .room = sensors_room(), .limits = process_limits()};
    SensorMemory memory = sensors_memory();
    Str text = {0};
    look_at_load(h);
    snprintf(h->processor, sizeof h->processor, "x86-64 processor");
    if (file_read("/proc/cpuinfo", &text, 16 * MIB, NULL)) {
        const char *line = strstr(str_text(&text), "model name");
        if (line) sscanf(line, "model name : %95[^\n]", h->processor);
    }
    str_free(&text);
    h->memory_bytes = memory.total_bytes;
    h->available_bytes = memory.available_bytes;
    h->grouped = memory.limited;
    h->disk_bytes = MAX2(file_free_bytes("."), 0);
    if (h->disk_bytes > 2 * GIB) time_file(h, quick ? 32 * MIB : 128 * MIB);
}

/* ---- a device ---- */

typedef struct Shapes { /* ascending; 0 ends */
    int64_t rows[MACHINE_GRID], widths[MACHINE_GRID], lengths[MACHINE_GRID], heads[MACHINE_GRID];
    int64_t tokens; /* of attention */
    int64_t large;  /* rows and width of one large product */
    int64_t pass_bytes, copy_bytes, load_bytes, pinned_bytes;
    double seconds; /* per figure */
} Shapes;

/* Widths: adapters of rank 16 and 128, then the models from 0.5 to 70 billion parameters. */
static const Shapes on_cuda = {
    .rows = {1024, 4096, 16384}, .widths = {16, 128, 896, 2048, 4096, 8192}, .lengths = {1024, 4096, 16384},
    .heads = {64, 128}, .tokens = 16384, .large = 8192, .pass_bytes = GIB, .copy_bytes = 512 * MIB,
    .load_bytes = 32 * GIB, .pinned_bytes = GIB, .seconds = 0.05};
static const Shapes on_cuda_quick = {
    .rows = {1024, 8192}, .widths = {128, 1024, 4096}, .lengths = {2048}, .heads = {64, 128}, .tokens = 8192,
    .large = 4096, .pass_bytes = 256 * MIB, .copy_bytes = 128 * MIB, .load_bytes = 8 * GIB, .pinned_bytes = 256 * MIB,
    .seconds = 0.02};
static const Shapes on_cpu = {
    .rows = {64, 512}, .widths = {16, 512, 2048}, .lengths = {128, 512}, .heads = {64, 128}, .tokens = 512,
    .large = 1024, .pass_bytes = 64 * MIB, .copy_bytes = 64 * MIB, .load_bytes = GIB, .pinned_bytes = 64 * MIB,
    .seconds = 0.2};
static const Shapes on_cpu_quick = {
    .rows = {256}, .widths = {16, 1024}, .lengths = {256}, .heads = {64}, .tokens = 256, .large = 512,
    .pass_bytes = 32 * MIB, .copy_bytes = 32 * MIB, .load_bytes = 128 * MIB, .pinned_bytes = 16 * MIB, .seconds = 0.05};

static int points(int64_t *to, const int64_t *from) {
    int n = 0;
    while (n < MACHINE_GRID && from[n]) to[n] = from[n], n++;
    return n;
}

/* The weight of a width: as wide as a model and four times as long, or down to an adapter's rank. */
static void weight_of(int64_t *in, int64_t *out, int64_t width) {
    *in = width < 512 ? 4096 : width;
    *out = width < 512 ? width : 4 * width;
}

static bool has_room(const Machine *m, int64_t rows, int64_t width) {
    int64_t in, out;
    weight_of(&in, &out, width);
    int64_t bytes = 4 * (2 * rows * in + 2 * rows * out + 2 * in * out) + GIB / 2;
    return !m->free_bytes[POOL_DEVICE] || bytes < m->free_bytes[POOL_DEVICE] / 10 * 8;
}

static bool find_products(DoctorDevice *d, const Measure *c, const Shapes *s, Format f, Err *e) {
    MachineGrid *g = &d->m.products;
    int64_t in, out;
    g->n_x = points(g->x, s->rows);
    g->n_y = points(g->y, s->widths);
    while (g->n_y > 1 && !has_room(&c->m, g->x[g->n_x - 1], g->y[g->n_y - 1])) g->n_y--;
    for (int x = 0; x < g->n_x; x++)
        for (int y = 0; y < g->n_y; y++) {
            double flops[MACHINE_TABLES];
            weight_of(&in, &out, g->y[y]);
            log_progress("%s: products, %lld rows, weight %lld x %lld", d->device, (long long)g->x[x],
                         (long long)out, (long long)in);
            if (!measure_product(c, flops, f, g->x[x], in, out, e)) return false;
            for (int t = 0; t < MACHINE_TABLES; t++) g->rate[t][x][y] = flops[t];
            d->m.matrix_flops = MAX2(x || y ? d->m.matrix_flops : 0, flops[PASS_FORWARD]);
        }
    double flops[MACHINE_TABLES];
    log_progress("%s: products, %lld x %lld x %lld in fp32 and bf16", d->device, (long long)s->large,
                 (long long)s->large, (long long)s->large);
    if (!measure_product(c, flops, FMT_F32, s->large, s->large, s->large, e)) return false;
    d->f32_flops = flops[PASS_FORWARD];
    if (d->m.kind == MACHINE_CUDA) d->m.f32_flops = d->f32_flops;
    if (!measure_product(c, flops, FMT_BF16, s->large, s->large, s->large, e)) return false;
    d->bf16_flops = flops[PASS_FORWARD];
    return true;
}

static bool find_attention(DoctorDevice *d, const Measure *c, const Shapes *s, Format f, Err *e) {
    MachineGrid *g = &d->m.attention;
    g->n_x = points(g->x, s->lengths);
    g->n_y = points(g->y, s->heads);
    for (int x = 0; x < g->n_x; x++)
        for (int y = 0; y < g->n_y; y++) {
            double flops[ATTEND_TABLES];
            log_progress("%s: attention, length %lld, head size %lld", d->device, (long long)g->x[x],
                         (long long)g->y[y]);
            if (!measure_attention(c, flops, f, (int)g->y[y], g->x[x], s->tokens, e)) return false;
            g->rate[ATTEND_FORWARD][x][y] = flops[ATTEND_FORWARD];
            g->rate[ATTEND_BACKWARD][x][y] = flops[ATTEND_BACKWARD];
        }
    return true;
}

/* No more than a share of what is free. */
static Shapes within(const Shapes *shapes, const Machine *m) {
    Shapes s = *shapes;
    bool cpu = m->kind == MACHINE_CPU;
    int64_t host = MAX2(sensors_room().bytes, 0);
    int64_t device = cpu ? host : m->free_bytes[POOL_DEVICE], share = cpu ? 8 : 2;
    s.pass_bytes = MIN2(s.pass_bytes, device / 8);
    s.copy_bytes = MIN2(s.copy_bytes, MIN2(host, device) / 16);
    s.load_bytes = MAX2(MIN2(s.load_bytes, device / share), MIB);
    s.pinned_bytes = MAX2(MIN2(s.pinned_bytes, host / 8), MIB);
    return s;
}

/* The host's share of the largest measurement. On the CPU all of it: a product with its gradients, copies between
 * two pools of two halves, the load. */
static int64_t largest_bytes(const Shapes *s, const Machine *m) {
    int64_t in, out, rows = s->large, most = MAX2(2 * s->copy_bytes, s->pinned_bytes);
    if (m->kind != MACHINE_CPU) return most;
    most = MAX2(2 * most, MAX2(s->load_bytes, 4 * s->pass_bytes));
    for (int i = 0; i < MACHINE_GRID && s->widths[i]; i++) {
        weight_of(&in, &out, s->widths[i]);
        most = MAX2(most, 4 * (2 * rows * in + 2 * rows * out + 2 * in * out));
    }
    return most;
}

static bool find_memory(DoctorDevice *d, const Measure *c, const Shapes *s, Err *e) {
    log_progress("%s: memory and copies", d->device);
    if (!measure_pass(c, &d->m.memory_bytes_per_s, s->pass_bytes, e)) return false;
    if (!measure_copies(c, &d->copies, s->copy_bytes, e)) return false;
    d->m.copy_bytes_per_s = MIN2(d->copies.in, d->copies.out);
    log_progress("%s: a real load", d->device);
    return measure_load(c, &d->load, s->load_bytes, e) && measure_extras(c, &d->extras, s->pinned_bytes, e);
}

/* Which shapes, and whether the process may take what they need. */
static bool choose_shapes(DoctorDevice *d, Shapes *s, bool quick, Err *e) {
    bool cpu = d->m.kind == MACHINE_CPU;
    *s = within(cpu ? quick ? &on_cpu_quick : &on_cpu : quick ? &on_cuda_quick : &on_cuda, &d->m);
    d->planned_bytes = d->m.runtime_bytes + largest_bytes(s, &d->m);
    SensorRoom room = sensors_room();
    if (!cpu || room.bytes < 0 || d->planned_bytes <= room.bytes) return true;
    return fail(e, ERR_BUDGET, "%s: measuring takes %s, %s is free now%s%s. Raise the limit%s", d->device,
                units_bytes(d->planned_bytes).s, units_bytes(room.bytes).s, room.limit ? " under " : "",
                room.limit ? room.limit : "", quick ? "" : ", or give --quick");
}

bool doctor_device(DoctorDevice *d, Backend *b, const char *device, bool quick, Err *e) {
    Shapes s;
    *d = (DoctorDevice){.code_bytes = -1};
    snprintf(d->device, sizeof d->device, "%s", device);
    int64_t before = b->in_use(b);
    double began = sensors_seconds();
    b->facts(b, &d->facts);
    b->describe(b, &d->m);
    if (!choose_shapes(d, &s, quick, e)) return false;
    bool cpu = d->m.kind == MACHINE_CPU;
    Format f = cpu ? FMT_F32 : machine_has_bf16(&d->m) ? FMT_BF16 : FMT_F16; /* as --precision auto takes it */
    Measure c = measure_on(b, s.seconds);
    c.process_bytes = sensors_anon_bytes;
    if (!find_products(d, &c, &s, f, e) || !find_attention(d, &c, &s, f, e) || !find_memory(d, &c, &s, e))
        return false;
    if (before >= 0) d->code_bytes = MAX2(b->in_use(b) - before, 0);
    d->n_choices = b->choices(b, NULL, 0);
    d->choice = MEM_NEW(MachineChoice, MAX2(d->n_choices, 1));
    b->choices(b, d->choice, d->n_choices);
    d->m.source = "measured";
    d->seconds = sensors_seconds() - began;
    return true;
}

void doctor_device_free(DoctorDevice *d) {
    mem_free(d->choice);
}
