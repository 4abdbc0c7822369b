/* gen.h - generation: the passes that prefill prompts and decode answers over a KV cache, recorded, planned and opened
 * as one ring; engine.h runs requests through it.
 *
 * Words: a *slot* is a row of the cache; a *pass* is a recorded phase of a fixed shape: prefill takes so many tokens of
 * one prompt, a pack the tokens of up to GEN_PACKED short prompts, decode one token of so many slots. All passes are
 * phases of one ring over one placement.
 *
 *     if (!gen_plan(&g, &ring, &spec, &machine, &host, &e)) ...     // bytes are known: ring_process_bytes
 *     if (!ring_open(&ring, backend, &e) || !gen_open(&g, &e)) ...  // then load weights into ring.x, settle, then
 *     if (!gen_warm(&g, &e)) ...                                    // then open an Engine on it
 *     gen_close(&g), ring_close(&ring) */
#ifndef GEN_GEN_H
#define GEN_GEN_H

#include "exec/exec.h"
#include "model/model.h"
#include "ring/ring.h"

enum { GEN_PASSES = 12, GEN_INVARIANT_ROWS = 8, GEN_MOST_SLOTS = 1024, GEN_PACKED = 8, GEN_PACK_TOKENS = 256 };

typedef struct GenSpec {
    ModelSpec m;
    Format cache;       /* of keys and values: as the activations, or int8 */
    int64_t slots;      /* requests at a time */
    int64_t context;    /* tokens of one: prompt and answer */
    int64_t chunk;      /* the most prompt tokens of one pass */
    bool may_offload;   /* gen_fit may offload weights of some layers, when nothing else fits */
    bool may_use_disk;  /* and some of them to disk, where the host has no room for them (where there is but one memory:
                           all) */
    int64_t host_room_bytes; /* for gen_fit: pinned and ordinary memory beside a device; 0: not known */
    bool estimate;      /* only the largest shapes, which take the most: for a search, not to be run */
    bool shares_arena;  /* other phases of the ring use the cache's bytes in between: engine_forget clears it */
    bool invariant;     /* batch-invariant: one prefill and one decode shape, so other requests change no token */
} GenSpec;

typedef struct GenHost { /* host memory of others, for the plan */
    int64_t tokenizer, requests;
} GenHost;

typedef struct GenPass {
    int phase;
    int64_t rows, seq; /* shape */
    ModelInput in;
    Tid last;          /* prefill: which of its tokens the logits are of; NONE: of every row's, and tokens are drawn */
    /* pack: the rows that end a prompt, a token is drawn for each; NONE: not a pack */
    Tid ends, end_slots, end_positions;
} GenPass;

typedef struct Gen {
    GenSpec spec;
    Ring *ring;             /* keeps */
    Model m;
    const Tid *cache;       /* model_cache's */
    GenPass prefill[GEN_PASSES], decode[GEN_PASSES]; /* ascending */
    GenPass pack[GEN_PASSES];
    int n_prefill, n_decode, n_packs;
    DrawTensors draw;       /* per slot: sampling, what was drawn, ids so far */
    Tid prompt_logits;      /* (1,V): of the prompt prefilled last, for each of its samples */
    Tid first_slot, first_position; /* (1): the phase that draws from those */
    int phase_first, phase_init;    /* init: random weights; -1: none */
    int phase_clear;        /* the cache becomes zeros; -1: none */
    int phase_load;         /* the weights are copied in (ModelSpec.by_phase); -1: they are where they are used */

    /* once open */
    Arena arena;            /* scratch of gen_warm and gen_profile */
    int32_t *ids, *positions, *rows; /* of one pass */
} Gen;

/* record.c: the passes into a ring, which may hold others too: over the weights of m, or (m NULL) over weights of its
 * own, under the name p.model. */
bool gen_record(Gen *g, Ring *r, const GenSpec *spec, const Model *m, Err *e);
/* The same as all that a ring holds, planned. Nothing is taken. Gives: ring_close, also where it fails. */
bool gen_plan(Gen *g, Ring *r, const GenSpec *spec, const Machine *m, const GenHost *host, Err *e);
/* Before the passes, and again whenever other phases have taken the bytes of the weights; nothing is done where they
 * do not come by phase. */
void gen_load(Gen *g);
int64_t gen_pass_tokens(const Gen *g); /* of the largest pass */

/* fit.c: the most slots up to s->slots, then the longest context from least_context up to s->context, then
 * (s->may_offload) as few layers offloaded as fit the budget: to pinned memory, then (s->may_use_disk) as few of them
 * on disk as the host needs. ERR_BUDGET with the missing bytes when nothing does. */
bool gen_fit(GenSpec *s, const Machine *m, const GenHost *host, bool fewer_slots, int64_t least_context,
             int64_t budget_bytes, Err *e);

/* What the process would take, planned so; 0 where it cannot be. */
bool gen_bytes(int64_t *bytes, const GenSpec *s, const Machine *m, const GenHost *host, Err *e);
/* The most slots that fit, whatever s->slots says; 0: not even one. */
int64_t gen_most_slots(const GenSpec *s, const Machine *m, const GenHost *host, int64_t budget_bytes);

/* open.c: scratch, once the ring is open; random weights are drawn, others are the caller's to load. */
bool gen_open(Gen *g, Err *e);
void gen_close(Gen *g); /* after gen_plan, whatever it gave; the ring is the caller's */

/* warm.c: on a device that keeps plays as graphs, plays every pass twice on idle rows, so that all the memory it will
 * ever take is taken. Call it once the weights are loaded. */
bool gen_warm(Gen *g, Err *e);
/* Profiles the largest prefill and the largest decode op by op. The KV cache is overwritten. */
bool gen_profile(Gen *g, Str *out, Err *e);

#endif
