/* spec.h - how a model is stored and computed: its sizes, formats, adapters, quantisation and offload.
 *
 * Training, generation and frozen references all describe a model this way, so that options, plans and loading treat
 * them alike. */
#ifndef MODEL_SPEC_H
#define MODEL_SPEC_H

#include "base/str.h"
#include "ir/prog.h"
#include "model/config.h"

typedef struct LoraSpec {
    int rank; /* 0: no adapters */
    float alpha, dropout;
    uint32_t targets; /* a bit per projection of the family (model.h) */
    Format format;
} LoraSpec;

/* What may live in pinned host memory, or on disk, and visit the device only when it is used. */
typedef enum OffloadKind {
    OFFLOAD_WEIGHTS, OFFLOAD_MOMENTS /* and masters */, OFFLOAD_GRADIENTS, OFFLOAD_INPUTS /* kept for backward */,
    OFFLOAD_KINDS
} OffloadKind;

typedef struct Offload {
    /* of so many layers, spread evenly; inputs: of the first. Of all: embedding and head too */
    int64_t layers[OFFLOAD_KINDS];
    int64_t on_disk[OFFLOAD_KINDS]; /* of these, so many on disk; the others in pinned memory */
} Offload;

/* "weights=12,weights=disk:4,moments" - kinds, and of how many layers; without a number: of all. */
bool offload_parse(Offload *o, int layers, const char *text, Err *e);
void offload_text(Str *out, const Offload *o, int layers);

typedef struct ModelSpec {
    ModelConfig config;
    Format activations;
    LoraSpec adapter;
    bool quantised;   /* frozen projections are stored as `stored`, not as in the file */
    Format stored;
    bool recast;      /* the file's plain weights are bf16 and are kept as config.dtype, fp16 */
    bool head_int8;   /* a frozen head is stored as int8; where it is tied, so is the embedding */
    bool random_init; /* drawn in place by `seed`, not loaded */
    uint64_t seed;
    Offload offload;
    bool by_phase;    /* frozen weights wait in pinned memory and are all copied in when the phases of the model begin;
                         those that are offloaded besides are brought in layer by layer */
} ModelSpec;

#endif
