/* machinefile.c - the machine file's JSON: what each field means, and what is refused. */
#include "store/machinefile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "store/jsonfile.h"

enum { MOST_ENTRIES = 64, MOST_CHOICES = 4096 };
#define FORMAT "snug machine 1"
#define MOST_BYTES (16 * MIB)
#define MOST_RATE 1e20

/* Of a choice's numbers, in their order, as files that stand already name them: never to be renamed. */
static const char choice_fields[] =
    "rows cols inner lda ldb ldc ld_add workspace align_a align_b align_c align_add in out "
    "a_flip b_flip bias adds in_place times"; /* flip: transposed */

/* ---- entries ---- */

void machinefile_free(MachineFile *f) {
    for (int64_t i = 0; i < f->n; i++) mem_free(f->entry[i].choice);
    mem_free(f->entry);
    *f = (MachineFile){0};
}

/* A computer's free memory varies a little from start to start, a card's does not. */
static bool same_device(const Machine *a, const Machine *b) {
    return a->kind == b->kind && !strcmp(a->name, b->name) &&
           (a->kind == MACHINE_CPU || a->total_bytes[POOL_DEVICE] == b->total_bytes[POOL_DEVICE]);
}

MachineEntry *machinefile_find(const MachineFile *f, const Machine *m) {
    for (int64_t i = 0; i < f->n; i++)
        if (same_device(&f->entry[i].m, m)) return &f->entry[i];
    return NULL;
}

static MachineEntry *add_entry(MachineFile *f) {
    f->entry = mem_grow(f->entry, &f->cap, f->n + 1, sizeof *f->entry);
    f->entry[f->n] = (MachineEntry){0};
    return &f->entry[f->n++];
}

MachineEntry *machinefile_put(MachineFile *f, const Machine *m) {
    MachineEntry *entry = machinefile_find(f, m);
    if (!entry) entry = add_entry(f);
    if (strcmp(entry->m.library, m->library)) entry->n_choices = 0;
    entry->m = *m;
    return entry;
}

static bool same_product(const MachineChoice *a, const MachineChoice *b) {
    return !memcmp(a->number, b->number, sizeof a->number);
}

int64_t machinefile_add_choices(MachineEntry *entry, const MachineChoice *list, int64_t n) {
    int64_t before = entry->n_choices;
    for (int64_t i = 0; i < n && entry->n_choices < MOST_CHOICES; i++) {
        bool there = false;
        for (int64_t k = 0; k < before && !there; k++) there = same_product(&entry->choice[k], &list[i]);
        if (there) continue;
        entry->choice = mem_grow(entry->choice, &entry->cap_choices, entry->n_choices + 1, sizeof *entry->choice);
        entry->choice[entry->n_choices++] = list[i];
    }
    return entry->n_choices - before;
}

void machinefile_apply(const MachineEntry *entry, Machine *m) {
    const Machine *from = &entry->m;
    m->matrix_flops = from->matrix_flops;
    if (from->f32_flops > 0) m->f32_flops = from->f32_flops;
    m->memory_bytes_per_s = from->memory_bytes_per_s;
    m->copy_bytes_per_s = from->copy_bytes_per_s;
    m->disk_bytes_per_s = from->disk_bytes_per_s;
    m->products = from->products;
    m->attention = from->attention;
    m->source = "measured";
    if (strcmp(from->driver, m->driver)) return;
    m->context_bytes = MAX2(m->context_bytes, units_round_up(entry->context_bytes, m->page_bytes));
    m->code_bytes = MAX2(m->code_bytes, units_round_up(entry->code_bytes, m->page_bytes));
    m->graph_bytes = MAX2(m->graph_bytes, units_round_up(entry->graph_bytes, m->page_bytes));
}

/* ---- writing ---- */

static json_t *axis_json(const int64_t *v, int n) {
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(v[i]));
    return a;
}

static json_t *table_json(const MachineGrid *g, int table) {
    json_t *rows = json_array();
    for (int x = 0; x < g->n_x; x++) {
        json_t *row = json_array();
        for (int y = 0; y < g->n_y; y++) json_array_append_new(row, json_real(g->rate[table][x][y]));
        json_array_append_new(rows, row);
    }
    return rows;
}

typedef struct GridNames {
    const char *x, *y, *table[MACHINE_TABLES]; /* NULL: fewer tables */
} GridNames;
static const GridNames product_names = {"rows", "widths", {"forward", "dx", "dw"}};
static const GridNames attention_names = {"lengths", "head_sizes", {"forward", "backward", NULL}};

static json_t *grid_json(const MachineGrid *g, const GridNames *names) {
    json_t *o = json_object();
    json_object_set_new(o, names->x, axis_json(g->x, g->n_x));
    json_object_set_new(o, names->y, axis_json(g->y, g->n_y));
    for (int t = 0; t < MACHINE_TABLES && names->table[t]; t++)
        json_object_set_new(o, names->table[t], table_json(g, t));
    return o;
}

static json_t *choice_json(
    const MachineChoice *c) { /* "1024 896 ...": "hex" would repeat keys; a pair keeps the order */
    Str numbers = {0}, hex = {0};
    for (int i = 0; i < CHOICE_NUMBERS; i++) str_addf(&numbers, i ? " %lld" : "%lld", (long long)c->number[i]);
    for (int i = 0; i < c->n_bytes; i++) str_addf(&hex, "%02x", c->algorithm[i]);
    json_t *pair = json_pack("[s, s]", str_text(&numbers), str_text(&hex));
    str_free(&numbers);
    str_free(&hex);
    return pair;
}

static json_t *entry_json(const MachineEntry *entry) {
    const Machine *m = &entry->m;
    json_t *o = json_object(), *choices = json_array();
    jsonfile_set(&o, "name", json_string(m->name));
    jsonfile_set(&o, "kind", json_string(m->kind == MACHINE_CUDA ? "cuda" : "cpu"));
    jsonfile_set(&o, "memory_bytes", json_integer(m->total_bytes[POOL_DEVICE]));
    jsonfile_set(&o, "driver", json_string(m->driver));
    jsonfile_set(&o, "library", json_string(m->library));
    jsonfile_set(&o, "matrix_flops", json_real(m->matrix_flops));
    if (m->f32_flops > 0) jsonfile_set(&o, "f32_flops", json_real(m->f32_flops));
    jsonfile_set(&o, "memory_bytes_per_s", json_real(m->memory_bytes_per_s));
    jsonfile_set(&o, "copy_bytes_per_s", json_real(m->copy_bytes_per_s));
    if (m->disk_bytes_per_s > 0) jsonfile_set(&o, "disk_bytes_per_s", json_real(m->disk_bytes_per_s));
    jsonfile_set(&o, "context_bytes", json_integer(entry->context_bytes));
    jsonfile_set(&o, "code_bytes", json_integer(entry->code_bytes));
    jsonfile_set(&o, "graph_bytes", json_integer(entry->graph_bytes));
    jsonfile_set(&o, "products", grid_json(&m->products, &product_names));
    jsonfile_set(&o, "attention", grid_json(&m->attention, &attention_names));
    jsonfile_set(&o, "choice_fields", json_string(choice_fields));
    for (int64_t i = 0; i < entry->n_choices; i++) json_array_append_new(choices, choice_json(&entry->choice[i]));
    jsonfile_set(&o, "choices", choices);
    return o;
}

bool machinefile_write(const MachineFile *f, const char *path, Err *e) {
    json_t *root = json_object(), *devices = json_array();
    jsonfile_set(&root, "format", json_string(FORMAT));
    for (int64_t i = 0; i < f->n; i++) json_array_append_new(devices, entry_json(&f->entry[i]));
    jsonfile_set(&root, "devices", devices);
    bool ok = file_make_parents(path, e) && jsonfile_write(path, root, e);
    json_decref(root);
    return ok;
}

/* ---- reading ---- */

static bool read_text(char *to, size_t size, const json_t *o, const char *key, Err *e) {
    const char *s = json_string_value(json_object_get(o, key));
    if (!s || strlen(s) >= size) return fail(e, ERR_FAIL, "\"%s\" is not a short text", key);
    snprintf(to, size, "%s", s);
    return true;
}

static bool read_bytes(int64_t *to, const json_t *o, const char *key, Err *e) {
    const json_t *v = json_object_get(o, key);
    *to = json_integer_value(v);
    return (json_is_integer(v) && *to >= 0) || fail(e, ERR_FAIL, "\"%s\" is not a number of bytes", key);
}

static bool is_rate(const json_t *v) {
    double r = json_number_value(v);
    return json_is_number(v) && isfinite(r) && r > 0 && r < MOST_RATE;
}

static bool read_rate(double *to, const json_t *o, const char *key, Err *e) {
    const json_t *v = json_object_get(o, key);
    *to = json_number_value(v);
    return is_rate(v) || fail(e, ERR_FAIL, "\"%s\" is not a rate", key);
}

static bool read_axis(int64_t *to, int *n, const json_t *o, const char *key, Err *e) {
    const json_t *a = json_object_get(o, key);
    *n = (int)json_array_size(a);
    if (!json_is_array(a) || json_array_size(a) > MACHINE_GRID)
        return fail(e, ERR_FAIL, "\"%s\" is not a list of at most %d sizes", key, MACHINE_GRID);
    for (int i = 0; i < *n; i++) {
        to[i] = json_integer_value(json_array_get(a, (size_t)i));
        if (to[i] <= (i ? to[i - 1] : 0)) return fail(e, ERR_FAIL, "\"%s\" is not ascending", key);
    }
    return true;
}

static bool read_grid(MachineGrid *g, const json_t *entry, const char *key, const GridNames *names, Err *e) {
    const json_t *o = json_object_get(entry, key);
    if (!json_is_object(o)) return fail(e, ERR_FAIL, "\"%s\" is missing", key);
    if (!read_axis(g->x, &g->n_x, o, names->x, e) || !read_axis(g->y, &g->n_y, o, names->y, e)) return false;
    for (int t = 0; t < MACHINE_TABLES && names->table[t]; t++) {
        const json_t *rows = json_object_get(o, names->table[t]);
        if ((int)json_array_size(rows) != g->n_x)
            return fail(e, ERR_FAIL, "\"%s\": \"%s\" has not one row per size", key, names->table[t]);
        for (int x = 0; x < g->n_x; x++) {
            const json_t *row = json_array_get(rows, (size_t)x);
            if ((int)json_array_size(row) != g->n_y)
                return fail(e, ERR_FAIL, "\"%s\": \"%s\" has an uneven row", key, names->table[t]);
            for (int y = 0; y < g->n_y; y++) {
                if (!is_rate(json_array_get(row, (size_t)y)))
                    return fail(e, ERR_FAIL, "\"%s\": \"%s\" holds what is not a rate", key, names->table[t]);
                g->rate[t][x][y] = json_number_value(json_array_get(row, (size_t)y));
            }
        }
    }
    return true;
}

static bool read_hex(MachineChoice *c, const char *s) {
    size_t n = strlen(s);
    if (n % 2 || n / 2 > CHOICE_BYTES || strspn(s, "0123456789abcdef") != n) return false;
    for (size_t i = 0; i < n / 2; i++) {
        char byte[3] = {s[2 * i], s[2 * i + 1], 0};
        c->algorithm[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    c->n_bytes = (int)(n / 2);
    return true;
}

static bool read_choice(MachineChoice *c, const json_t *pair) {
    const char *numbers = json_string_value(json_array_get(pair, 0)),
               *hex = json_string_value(json_array_get(pair, 1));
    *c = (MachineChoice){0};
    if (json_array_size(pair) != 2 || !numbers || !hex || !read_hex(c, hex)) return false;
    for (int i = 0; i < CHOICE_NUMBERS; i++) {
        char *end;
        c->number[i] = strtoll(numbers, &end, 10);
        if (end == numbers) return false;
        numbers = end;
    }
    return !*numbers;
}

static bool read_choices(MachineEntry *entry, const json_t *o, Err *e) {
    const json_t *list = json_object_get(o, "choices"), *pair;
    const char *fields = json_string_value(json_object_get(o, "choice_fields"));
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > MOST_CHOICES || !fields)
        return fail(e, ERR_FAIL, "\"choices\" is not a list of at most %d, with its \"choice_fields\"", MOST_CHOICES);
    if (strcmp(fields, choice_fields)) return true; /* another version's: the rates hold, products are timed anew */
    entry->n_choices = entry->cap_choices = (int64_t)json_array_size(list);
    entry->choice = MEM_NEW(MachineChoice, MAX2(entry->n_choices, 1));
    json_array_foreach(list, i, pair) {
        if (!read_choice(&entry->choice[i], pair))
            return fail(e, ERR_FAIL, "\"choices\": number %zu cannot be read", i + 1);
    }
    return true;
}

static bool read_entry(MachineEntry *entry, const json_t *o, Err *e) {
    Machine *m = &entry->m;
    char kind[8];
    if (!read_text(m->name, sizeof m->name, o, "name", e) || !read_text(kind, sizeof kind, o, "kind", e) ||
        !read_text(m->driver, sizeof m->driver, o, "driver", e) ||
        !read_text(m->library, sizeof m->library, o, "library", e))
        return false;
    if (strcmp(kind, "cpu") && strcmp(kind, "cuda")) return fail(e, ERR_FAIL, "\"kind\" is neither cpu nor cuda");
    m->kind = !strcmp(kind, "cuda") ? MACHINE_CUDA : MACHINE_CPU;
    return read_bytes(&m->total_bytes[POOL_DEVICE], o, "memory_bytes", e) &&
           read_rate(&m->matrix_flops, o, "matrix_flops", e) &&
           (!json_object_get(o, "f32_flops") || read_rate(&m->f32_flops, o, "f32_flops", e)) &&
           read_rate(&m->memory_bytes_per_s, o, "memory_bytes_per_s", e) &&
           read_rate(&m->copy_bytes_per_s, o, "copy_bytes_per_s", e) &&
           (!json_object_get(o, "disk_bytes_per_s") || read_rate(&m->disk_bytes_per_s, o, "disk_bytes_per_s", e)) &&
           read_bytes(&entry->context_bytes, o, "context_bytes", e) &&
           read_bytes(&entry->code_bytes, o, "code_bytes", e) &&
           read_bytes(&entry->graph_bytes, o, "graph_bytes", e) &&
           read_grid(&m->products, o, "products", &product_names, e) &&
           read_grid(&m->attention, o, "attention", &attention_names, e) && read_choices(entry, o, e);
}

bool machinefile_read(MachineFile *f, bool *found, const char *path, Err *e) {
    *f = (MachineFile){0};
    *found = file_exists(path);
    if (!*found) return true;
    json_t *root, *devices, *one;
    size_t i;
    if (!jsonfile_read(&root, path, MOST_BYTES, e)) return false;
    const char *format = json_string_value(json_object_get(root, "format"));
    devices = json_object_get(root, "devices");
    bool ok =
        (format && !strcmp(format, FORMAT) && json_is_array(devices) &&
         json_array_size(devices) <= MOST_ENTRIES) ||
        fail(e, ERR_FAIL,
             "%s: is not a machine file of this version (\"%s\"). Write a new one with snug doctor --write FILE",
             path, FORMAT);
    if (ok) json_array_foreach(devices, i, one) {
            if (read_entry(add_entry(f), one, e)) continue;
            ok = fail_within(e, "%s: device %zu", path, i + 1);
            break;
        }
    json_decref(root);
    return ok;
}
