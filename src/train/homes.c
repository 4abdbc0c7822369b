/* homes.c - which of a job's tensors live outside the device, by kind and by layer. */
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
    return fail(e, ERR_USAGE, "offload: '%s' cannot be kept outside the device.%s%s%s Kinds: weights, moments, gradients, inputs",
                copy, near ? " Did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bool job_parse_away(int64_t *away, int layers, const char *text, Err *e) {
    memset(away, 0, AWAY_KINDS * sizeof *away);
    if (!strcmp(text, "none") || !*text) return true;
    for (const char *at = text;;) {
        AwayKind kind = AWAY_WEIGHTS;
        int64_t len = (int64_t)strcspn(at, "=,");
        if (!parse_kind(&kind, at, len, e)) return false;
        if (away[kind]) return fail(e, ERR_USAGE, "offload: %s is named twice", kind_names[kind]);
        at += len;
        away[kind] = layers;
        if (*at == '=') {
            char *end;
            long n = strtol(at + 1, &end, 10);
            if (end == at + 1 || n < 1 || n > layers || (*end && *end != ','))
                return fail(e, ERR_USAGE, "offload: '%s' is not a number of layers; write %s=N with 1 to %d", at + 1,
                            kind_names[kind], layers);
            away[kind] = n;
            at = end;
        }
        if (!*at) return true;
        at++;
    }
}

void job_away_text(Str *out, const int64_t *away, int layers) {
    int n = 0;
    for (int k = 0; k < AWAY_KINDS; k++) {
        if (!away[k]) continue;
        str_addf(out, "%s%s", n++ ? "," : "", kind_names[k]);
        if (away[k] < layers) str_addf(out, "=%lld", (long long)away[k]);
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

/* n of `layers` layers, spread evenly: between two that are brought in, those at home give the copies time. */
static bool is_one_of(int layer, int64_t n, int layers) { return (layer + 1) * n / layers > layer * n / layers; }

/* Matrices only: vectors (norms, biases) are not worth a copy. Those outside the layers go when all layers do. */
void job_set_homes(Program *p, const int64_t *away, int layers, Format stored) {
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        int kind = kind_of(t->role);
        if (t->base || t->rank < 2 || kind < 0 || t->model) continue; /* another model's homes are its own affair */
        if (kind == AWAY_WEIGHTS && !t->trainable && t->layer >= 0) t->home.stored = stored;
        if (t->layer < 0 ? away[kind] >= layers : is_one_of(t->layer, away[kind], layers)) t->home.pool = POOL_PINNED;
    }
}
