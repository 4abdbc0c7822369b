/* decoder.h - a decoder (Qwen2, Qwen3, Llama, Mistral) written down as a program. Records; computes nothing. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "ir/op.h"
#include "model/config.h"

/* The seven projections an adapter may sit on; bits of LoraSpec.targets. The order is PEFT's usual one. */
typedef enum Projection { PROJ_Q, PROJ_K, PROJ_V, PROJ_O, PROJ_GATE, PROJ_UP, PROJ_DOWN, PROJ_COUNT } Projection;
const char *decoder_projection_name(Projection proj); /* "q_proj" */

typedef struct LoraSpec {
    int rank; /* 0: no adapters */
    float alpha, dropout;
    uint32_t targets;
    Format format;
} LoraSpec;

typedef struct WeightSpec {
    Format format;       /* of the weights in memory */
    Format activations;
    Format cache;        /* of keys and values, where there is one: a plain format or int8 */
    Format stored;       /* at home; another format than `format` is decoded before use (frozen weights only) */
    Pool pool;           /* home of the block's products */
    bool train;          /* full training */
    Format gradients;    /* of what is trained */
    LoraSpec lora;
} WeightSpec;

typedef struct Adapter { /* beside one product, for one to three projections */
    Tid a, b;            /* (groups*r, K), (sum of rows, r); NONE: no adapter */
    AttrLora attr;
} Adapter;

typedef struct DecoderLayer {
    Tid attn_norm, qkv, qkv_bias, q_norm, k_norm, out, out_bias, ffn_norm, gate_up, down;
    Adapter on_qkv, on_out, on_gate_up, on_down;
} DecoderLayer;

typedef struct Decoder {
    ModelConfig c;
    WeightSpec spec;
    Tid embedding, head, final_norm; /* head == embedding when tied */
    Tid inv_freq;                    /* table (D/2) */
    float rope_scale;
    DecoderLayer *layer;             /* in the program's arena */
} Decoder;

/* One batch of rows of fixed length; all (rows*seq). */
typedef struct DecoderInput {
    int64_t rows, seq;
    Tid ids, positions, doc_begin;
    AttendBy attend; /* other than ATTEND_OWN: every row is one document */
    bool direct;    /* products read quantised weights as they are stored: rows*seq <= linear_direct_rows */
    Tid cache_rows; /* (rows): which row of the cache; NONE: a row's own number */
    bool distinct_cache_rows; /* no two rows have the same row of the cache, unless idle */
    Tid id_order; /* tokens sorted by id: only when the embedding is trained; NONE otherwise */
} DecoderInput;

void decoder_weights(Program *p, Decoder *d, const ModelConfig *c, const WeightSpec *spec);
DecoderInput decoder_input(Program *p, const Decoder *d, const char *prefix, int64_t rows, int64_t seq);

/* The hidden states after the last norm, (rows*seq, C). caches: one tensor per layer (decode), or NULL. */
Tid decoder_hidden(Program *p, const Decoder *d, const DecoderInput *in, const Tid *caches, int64_t cache_slots);
Tid decoder_cache(Program *p, const Decoder *d, int layer, int64_t rows, int64_t slots);

/* twin.c: the same weights without dropout and, when they are not wanted, without adapters. */
Decoder decoder_twin(Program *p, const Decoder *d, bool adapters);

/* homes.c: how a frozen model's projections are stored, and of how many layers they wait outside the device, spread evenly. */
typedef struct DecoderAway {
    int64_t layers;   /* so many layers' */
    int64_t on_disk;  /* of these, so many on disk; the others in pinned memory */
    bool outside;     /* embedding and head too: in pinned memory; a head of its own on disk when all layers' are there */
} DecoderAway;
void decoder_homes(Program *p, const Decoder *d, Format stored, DecoderAway away);

/* The head of a frozen model in int8; where it is tied, so is the embedding: it is the same matrix. */
void decoder_quantise_head(Program *p, const Decoder *d);

/* Marks a tensor as trained: gives it a gradient. */
void decoder_train(Program *p, Tid weight, Format gradient);

int64_t decoder_count(const Program *p, bool trainable_only); /* parameters */

#endif
