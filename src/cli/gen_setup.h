/* gen_setup.h - from options to a generation engine: its shape, its memory, what a prompt is, when an answer ends. */
#ifndef CLI_GEN_SETUP_H
#define CLI_GEN_SETUP_H

#include "cli/setup.h"
#include "gen/gen.h"

enum { GEN_STOP_IDS = 16, GEN_STOP_TEXTS = 16 };

typedef struct Engine {
    const Options *o;
    ModelFiles model;
    Words words;
    Backend *backend;
    Machine machine;
    GenSpec spec;
    Gen *gen;             /* NULL until planned */
    Ring ring;
    int64_t budget_bytes;
    int32_t stop_id[GEN_STOP_IDS];
    int n_stop_ids;
} Engine;

/* How the model is kept and computed, by the options; slots and context are the caller's. */
bool engine_spec(GenSpec *s, const Options *o, const ModelConfig *c, const Machine *m, Err *e);
/* "weights of 8 of 28 layers in pinned memory, of 4 more on disk"; "": none */
void engine_offload_text(Str *out, const GenSpec *s);
/* The model, its words and the device; nothing of the engine's shape is settled yet. */
bool engine_begin(Engine *n, const Options *o, Err *e);
/* Plans with slots and context as in n->spec, or with what of them fits; takes the memory; loads the weights. */
bool engine_start(Engine *n, const GenHost *host, bool fewer_slots, int64_t least_context, Err *e);
void engine_end(Engine *n); /* after engine_begin, whatever it gave */

void engine_show(const Engine *n, bool measured); /* the plan as a table, for people */

/* A request with everything but its prompt. */
Request engine_request(const Engine *n, uint64_t seed);

/* Ids of a text, or of a conversation (JSON array of messages) asking for an answer. */
bool engine_encode_text(const Engine *n, TokenIds *out, const char *text, int64_t bytes, Err *e);
bool engine_encode_chat(const Engine *n, TokenIds *out, const json_t *messages, Err *e);

#endif
