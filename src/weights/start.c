/* start.c - random initialisation of parameters that no file holds: the usual distributions, keyed by seed and name. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "weights/weights.h"

static uint64_t fill_key(uint64_t seed, const char *file_name) {
    uint64_t key = rng_fold(seed, 0x1417);
    for (const char *c = file_name; *c; c++) key = rng_fold(key, (unsigned char)*c);
    return key;
}

AttrFill weights_fill(const ModelConfig *c, const char *file_name, uint64_t seed) {
    AttrFill f = {.kind = FILL_CONSTANT, .key = fill_key(seed, file_name)};
    if (model_family(c)->start) {
        AttrFill own = model_family(c)->start(c, file_name);
        return own.key = f.key, own;
    }
    if (strstr(file_name, "norm.weight")) f.scale = 1;
    else if (!strstr(file_name, ".bias")) f = (AttrFill){FILL_NORMAL, (float)c->init_std, f.key};
    return f;
}

/* A uniform in +-1/sqrt(K) as PEFT draws it, B zero. */
static AttrFill adapter_fill(const Tensor *t, uint64_t seed) {
    AttrFill f = {FILL_CONSTANT, 0, fill_key(seed, t->file_name)};
    if (strstr(t->file_name, "lora_A")) f = (AttrFill){FILL_UNIFORM, 1.0f / sqrtf((float)t->dim[1]), f.key};
    return f;
}

void weights_record_start(Program *p, const Model *m) {
    const ModelSpec *s = &m->spec;
    for (Tid id = 1, n = (Tid)p->n_t; id < n; id++) {
        Tensor t = *prog_t(p, id);
        bool own = m->name ? t.model && !strcmp(t.model, m->name) : !t.model;
        if (!t.file_name || !own) continue;
        p->layer = t.layer;
        if (t.role == ROLE_WEIGHT && s->random_init) op_fill(p, id, weights_fill(&s->config, t.file_name, s->seed));
        if (t.role == ROLE_ADAPTER) op_fill(p, id, adapter_fill(&t, s->seed));
    }
    p->layer = -1;
}
