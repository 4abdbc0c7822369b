/* homes.c - which of a job's tensors live outside the device, in pinned memory or on disk, by kind and by layer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/job.h"

static const char *const kind_names[AWAY_KINDS] = {"weights", "moments", "gradients", "inputs"};

static bool parse_kind(AwayKind *kind, const char *word, int64_t len, Err *e) {
    char copy[32] = "";
    memcpy(copy, word, (size_t)MIN2(len, (int64_t)sizeof copy - 1));
    for (int k = 0; k < AWAY_KINDS; k++)
        if (!strcmp(copy, kind_names[k])) {
            *kind = (AwayKind)k;
            return true;
        }
    const char *near = str_nearest(copy, kind_names, AWAY_KINDS);
    return fail(e, ERR_USAGE,
                "offload: '%s' cannot be kept outside the device.%s%s%s Kinds: weights, moments, gradients, inputs",
                copy, near ? " Did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* "12", "disk" or "disk:12" behind a kind's equals sign; *at moves behind it. */
static bool parse_layers(int64_t *n, bool *disk, const char **at, AwayKind kind, int layers, Err *e) {
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
    if (*disk && kind == AWAY_INPUTS)
        return fail(e, ERR_USAGE, "offload: inputs are kept in pinned memory only, not on disk");
    *at = end;
    return true;
}

bool job_parse_away(int64_t *away, int64_t *on_disk, int layers, const char *text, Err *e) {
    int64_t pinned[AWAY_KINDS] = {0};
    memset(away, 0, AWAY_KINDS * sizeof *away);
    memset(on_disk, 0, AWAY_KINDS * sizeof *on_disk);
    if (!strcmp(text, "none") || !*text) return true;
    for (const char *at = text;;) {
        AwayKind kind = AWAY_WEIGHTS;
        int64_t len = (int64_t)strcspn(at, "=,"), n = layers;
        bool disk = false;
        if (!parse_kind(&kind, at, len, e)) return false;
        at += len;
        if (*at == '=' && (at++, !parse_layers(&n, &disk, &at, kind, layers, e))) return false;
        int64_t *to = disk ? &on_disk[kind] : &pinned[kind];
        if (*to) return fail(e, ERR_USAGE, "offload: %s is named twice", kind_names[kind]);
        *to = n;
        away[kind] = pinned[kind] + on_disk[kind];
        if (away[kind] > layers)
            return fail(e, ERR_USAGE, "offload: %s of %lld layers in pinned memory and of %lld on disk, the model has %d",
                        kind_names[kind], (long long)pinned[kind], (long long)on_disk[kind], layers);
        if (!*at) return true;
        at++;
    }
}

void job_away_text(Str *out, const int64_t *away, const int64_t *on_disk, int layers) {
    int n = 0;
    for (int k = 0; k < AWAY_KINDS; k++) {
        int64_t pinned = away[k] - on_disk[k];
        if (pinned) str_addf(out, "%s%s", n++ ? "," : "", kind_names[k]);
        if (pinned && pinned < layers) str_addf(out, "=%lld", (long long)pinned);
        if (on_disk[k]) str_addf(out, "%s%s=disk", n++ ? "," : "", kind_names[k]);
        if (on_disk[k] && on_disk[k] < layers) str_addf(out, ":%lld", (long long)on_disk[k]);
    }
    if (!n) str_add(out, "none");
}

static int kind_of(Role role) {
    switch (role) {
        case ROLE_WEIGHT: return AWAY_WEIGHTS;
        case ROLE_MASTER:
        case ROLE_MOMENT: return AWAY_MOMENTS;
        case ROLE_GRADIENT: return AWAY_GRADIENTS;
        default: return -1;
    }
}

/* n of `all` are chosen, spread evenly: between two that are brought in, those at home give the copies time. */
static bool is_one_of(int64_t i, int64_t n, int64_t all) { return (i + 1) * n / all > i * n / all; }

/* Of the layers that are away, those on disk are spread evenly too. */
static Pool pool_of(int layer, int64_t away, int64_t on_disk, int layers) {
    if (!is_one_of(layer, away, layers)) return POOL_DEVICE;
    return is_one_of(layer * away / layers, on_disk, away) ? POOL_DISK : POOL_PINNED;
}

/* Matrices only: vectors (norms, biases) are not worth a copy. Those outside the layers go when all layers do, and to disk when
 * all of those lie there. On the CPU, where a buffer between disk and device is the same memory, they stay where disk is
 * meant: two of them would pass through two buffers as large. */
void job_set_homes(Program *p, const JobSpec *s, MachineKind machine, Format stored) {
    int layers = s->model.layers;
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        int kind = kind_of(t->role);
        if (t->base || t->rank < 2 || kind < 0 || t->model) continue; /* another model's homes are its own affair */
        if (kind == AWAY_WEIGHTS && !t->trainable && t->layer >= 0) t->home.stored = stored;
        bool outside = s->away[kind] >= layers && !(machine == MACHINE_CPU && s->on_disk[kind]);
        if (t->layer >= 0) t->home.pool = pool_of(t->layer, s->away[kind], s->on_disk[kind], layers);
        else if (outside) t->home.pool = s->on_disk[kind] >= layers ? POOL_DISK : POOL_PINNED;
    }
}
