/* homes.c - which of a model's tensors live outside the device, in pinned memory or on disk, by kind and by layer,
 * and in which format frozen projections are stored. Tensors are told apart by role, layer and shape, never by
 * name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/choose.h"
#include "model/model.h"

static const char *const kind_names[OFFLOAD_KINDS] = {"weights", "moments", "gradients", "inputs"};

/* ---- the option's text ---- */

static bool parse_kind(OffloadKind *kind, const char *word, int64_t len, Err *e) {
    char copy[32] = "";
    int which;
    memcpy(copy, word, (size_t)MIN2(len, (int64_t)sizeof copy - 1));
    if (!choose_name(&which, copy, kind_names, OFFLOAD_KINDS, "offload kind", e)) return false;
    *kind = (OffloadKind)which;
    return true;
}

/* "12", "disk" or "disk:12" behind a kind's equals sign; *at moves behind it. */
static bool parse_layers(int64_t *n, bool *disk, const char **at, OffloadKind kind, int layers, Err *e) {
    const char *text = *at;
    char *end = (char *)text + strcspn(text, ":,");
    *n = layers;
    *disk = !strncmp(text, "disk", 4) && end == text + 4;
    if (!*disk || *end == ':') {
        const char *digits = *disk ? end + 1 : text;
        *n = strtol(digits, &end, 10);
        if (end == digits || *n < 1 || *n > layers || (*end && *end != ','))
            return fail(e, ERR_USAGE, "offload: '%s' is not a number of layers; write %s=N or %s=disk:N with 1 to %d",
                        digits, kind_names[kind], kind_names[kind], layers);
    }
    if (*disk && kind == OFFLOAD_INPUTS)
        return fail(e, ERR_USAGE, "offload: inputs are kept in pinned memory only, not on disk");
    *at = end;
    return true;
}

bool offload_parse(Offload *o, int layers, const char *text, Err *e) {
    int64_t pinned[OFFLOAD_KINDS] = {0};
    *o = (Offload){0};
    if (!strcmp(text, "none") || !*text) return true;
    for (const char *at = text;;) {
        OffloadKind kind = OFFLOAD_WEIGHTS;
        int64_t len = (int64_t)strcspn(at, "=,"), n = layers;
        bool disk = false;
        if (!parse_kind(&kind, at, len, e)) return false;
        at += len;
        if (*at == '=' && (at++, !parse_layers(&n, &disk, &at, kind, layers, e))) return false;
        int64_t *to = disk ? &o->on_disk[kind] : &pinned[kind];
        if (*to) return fail(e, ERR_USAGE, "offload: %s is named twice", kind_names[kind]);
        *to = n;
        o->layers[kind] = pinned[kind] + o->on_disk[kind];
        if (o->layers[kind] > layers)
            return fail(e, ERR_USAGE,
                        "offload: %s of %lld layers in pinned memory and of %lld on disk, the model has %d",
                        kind_names[kind], (long long)pinned[kind], (long long)o->on_disk[kind], layers);
        if (!*at) return true;
        at++;
    }
}

void offload_text(Str *out, const Offload *o, int layers) {
    int n = 0;
    for (int k = 0; k < OFFLOAD_KINDS; k++) {
        int64_t pinned = o->layers[k] - o->on_disk[k];
        if (pinned) str_addf(out, "%s%s", n++ ? "," : "", kind_names[k]);
        if (pinned && pinned < layers) str_addf(out, "=%lld", (long long)pinned);
        if (o->on_disk[k]) str_addf(out, "%s%s=disk", n++ ? "," : "", kind_names[k]);
        if (o->on_disk[k] && o->on_disk[k] < layers) str_addf(out, ":%lld", (long long)o->on_disk[k]);
    }
    if (!n) str_add(out, "none");
}

/* ---- homes ---- */

static int kind_of(Role role) {
    switch (role) {
        case ROLE_WEIGHT: return OFFLOAD_WEIGHTS;
        case ROLE_MASTER:
        case ROLE_MOMENT:
        case ROLE_CORRECTION: return OFFLOAD_MOMENTS;
        case ROLE_GRADIENT: return OFFLOAD_GRADIENTS;
        default: return -1;
    }
}

/* n of `all` are chosen, spread evenly: between two that are brought in, those at home give the copies time. */
static bool is_one_of(int64_t i, int64_t n, int64_t all) { return (i + 1) * n / all > i * n / all; }

/* Of the layers that are offloaded, those on disk are spread evenly too. */
static Pool pool_of(int layer, int64_t offloaded, int64_t on_disk, int layers) {
    if (!is_one_of(layer, offloaded, layers)) return POOL_DEVICE;
    return is_one_of(layer * offloaded / layers, on_disk, offloaded) ? POOL_DISK : POOL_PINNED;
}

/* Those outside the layers go when all layers do, and to disk when all of those lie there. A frozen embedding
 * waits in pinned memory at most: a pass reads a few of its rows in place (M6). On the CPU, where a buffer between
 * disk and device is the same memory, they stay where disk is meant: two of them would pass through two buffers as
 * large. */
static Pool outer_pool(const Model *m, Tid id, bool frozen, OffloadKind kind, MachineKind machine) {
    int64_t layers = m->spec.config.layers, n = m->spec.offload.layers[kind], on_disk = m->spec.offload.on_disk[kind];
    if (n < layers || (machine == MACHINE_CPU && on_disk)) return POOL_DEVICE;
    return on_disk >= layers && !(id == m->embedding && frozen) ? POOL_DISK : POOL_PINNED;
}

static bool is_of(const Tensor *t, const Model *m) {
    return m->name ? t->model && !strcmp(t->model, m->name) : !t->model;
}

/* The model's file holds the matrix in the format of its home. */
static bool is_stored_so(const ModelSpec *s, const Tensor *t, bool is_head) {
    const ModelConfig *c = &s->config;
    if (c->quant == QUANT_BNB_NF4 && t->layer >= 0) return false; /* decoded while loading */
    if (c->quant == QUANT_OWN && t->layer >= 0) return t->home.stored == c->quant_format;
    if (c->quant == QUANT_OWN && c->quant_head && is_head) return t->home.stored == FMT_INT8;
    return t->home.stored == (s->recast ? FMT_BF16 : c->dtype);
}

/* Matrices only: vectors (norms, biases) are not worth a copy. */
void model_homes(Program *p, const Model *m, MachineKind machine) {
    const ModelSpec *s = &m->spec;
    const Offload *o = &s->offload;
    int layers = s->config.layers;
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        int kind = kind_of(t->role);
        if (t->base || t->rank < 2 || kind < 0 || !is_of(t, m)) continue;
        bool frozen = kind == OFFLOAD_WEIGHTS && !t->trainable;
        if (frozen && t->layer >= 0 && s->quantised) t->home.stored = s->stored;
        if (frozen && id == m->head && s->head_int8) t->home.stored = FMT_INT8;
        t->home.pool = t->layer < 0 ? outer_pool(m, id, frozen, (OffloadKind)kind, machine)
                                    : pool_of(t->layer, o->layers[kind], o->on_disk[kind], layers);
        if (frozen && m->load && t->home.pool == POOL_DEVICE)
            t->home = (Home){.pool = POOL_PINNED, .stored = t->home.stored, .load = m->load};
        if (s->recast && t->home.pool == POOL_DISK && t->home.stored == s->config.dtype)
            t->home.stored = FMT_BF16; /* what lies in the model's own files is converted on its way */
        t->in_file = frozen && !s->random_init && is_stored_so(s, t, id == m->head);
    }
}
