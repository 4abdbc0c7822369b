/* gen.h - the passes that answer prompts, recorded, planned and opened as one ring; engine.h runs requests through it.
 *
 * Words: a *slot* is a row of the cache; a *pass* is a recorded phase of a fixed shape: prefill takes so many tokens of
 * one prompt, a pack the tokens of up to GEN_PACKED short prompts, decode one token of so many slots. All passes are
 * phases of one ring over one placement.
 *
 *     Gen g;
 *     if (!gen_plan(&g, &spec, &machine, &host, &e)) ...   // bytes are known: gen_process_bytes
 *     if (!gen_open(&g, backend, &e)) ...                  // then load weights into g.x, then
 *     if (!gen_warm(&g, &e)) ...                           // then open an Engine on it
 *     gen_close(&g); */
#ifndef GEN_GEN_H
#define GEN_GEN_H

#include "exec/exec.h"
#include "model/decoder.h"
#include "plan/plan.h"

enum { GEN_PASSES = 12, GEN_INVARIANT_ROWS = 8, GEN_MOST_SLOTS = 1024, GEN_PACKED = 8, GEN_PACK_TOKENS = 256 };

typedef struct GenSpec {
    ModelConfig model;
    LoraSpec adapter;   /* rank 0: none */
    Format activations;
    Format cache;       /* of keys and values: as the activations, or int8 */
    bool quantised;     /* the products are stored as `stored`, not as in the file */
    Format stored;
    bool recast;        /* the file's plain weights are bf16 and are kept in model.dtype, fp16 */
    bool head_int8;     /* so is the head, as int8; where it is tied, the embedding too */
    int64_t slots;      /* requests at a time */
    int64_t context;    /* tokens of one: prompt and answer */
    int64_t chunk;      /* the most prompt tokens of one pass */
    int64_t sent;       /* layers whose weights wait in pinned memory or on disk; all: embedding and head too */
    int64_t on_disk;    /* of these, how many on disk */
    bool may_send;      /* gen_fit may send some, when nothing else fits */
    bool may_use_disk;  /* and some of them to disk, where the host has no room for them (where there is but one memory:
                           all) */
    int64_t host_room_bytes; /* for gen_fit: pinned and ordinary memory beside a device; 0: not known */
    bool estimate;      /* only the largest shapes, which take the most: for a search, not to be run */
    bool invariant;     /* one prefill and one decode shape, whatever there is to do: the same tokens in any company */
    /* Random weights, drawn in place: how each of a file's tensors is filled. NULL: they are loaded. */
    AttrFill (*fill)(const ModelConfig *c, const char *file_name, uint64_t seed);
    uint64_t seed;      /* of those */
} GenSpec;

typedef struct GenHost { /* host memory of others, for the plan */
    int64_t tokenizer, requests;
} GenHost;

typedef struct GenPass {
    int phase;
    int64_t rows, seq; /* shape */
    DecoderInput in;
    Tid last;          /* prefill: which of its tokens the logits are of; NONE: of every row's, and tokens are drawn */
    Tid ends, end_slots, end_positions; /* pack: the rows that end a prompt, a token is drawn for each; NONE: not a pack */
} GenPass;

typedef struct Gen {
    GenSpec spec;
    Machine machine;
    Program p;              /* owns */
    Decoder d;
    Tid *cache;             /* one per layer; in the program's arena */
    GenPass prefill[GEN_PASSES], decode[GEN_PASSES]; /* ascending */
    GenPass pack[GEN_PASSES];
    int n_prefill, n_decode, n_packs;
    DrawTensors draw;       /* per slot: sampling, what was drawn, ids so far */
    Tid prompt_logits;      /* (1,V): of the prompt prefilled last, for each of its samples */
    Tid first_slot, first_position; /* (1): the phase that draws from those */
    int phase_first, phase_init;    /* init: random weights; -1: none */
    Placement placement;
    Ledger ledger;
    double plan_ms;

    /* once open */
    Backend *b;             /* keeps */
    Exec x;
    Arena arena;            /* scratch of gen_warm and gen_profile */
    int32_t *ids, *positions, *rows; /* of one pass */
    int64_t measured_bytes; /* device memory when it was looked at last */
} Gen;

/* record.c: records every pass and places the ring. Nothing is taken. */
bool gen_plan(Gen *g, const GenSpec *spec, const Machine *m, const GenHost *host, Err *e);
int64_t gen_process_bytes(const Gen *g); /* what --budget is compared with */
int64_t gen_beside_bytes(
    const Gen *g); /* pinned and ordinary memory of the host; on the CPU part of the above, and 0 here */
int64_t gen_disk_bytes(
    const Gen *g); /* taken in --offload-dir; the rest of the disk pool lies in the model's own files */

/* The passes alone, into a program that holds others too: over the weights of d, or (d NULL) over weights of its own, under
 * the name p->model. Afterwards g knows its passes and cache; g->p is empty, because the program is the caller's. */
bool gen_record(Gen *g, Program *p, const GenSpec *spec, const Machine *m, const Decoder *d, Err *e);
int64_t gen_host_bytes(const Gen *g); /* ordinary memory that an engine on them takes */
int64_t gen_pass_tokens(const Gen *g); /* of the largest pass */

/* fit.c: the most slots up to s->slots, then the longest context from least_context up to s->context, then (s->may_send) as few
 * layers elsewhere as fit the budget: in pinned memory, then (s->may_use_disk) as few of them on disk as the host needs. ERR_BUDGET with
 * the missing bytes when nothing does. */
bool gen_fit(GenSpec *s, const Machine *m, const GenHost *host, bool fewer_slots, int64_t least_context,
             int64_t budget_bytes, Err *e);

/* The most slots that fit, whatever s->slots says; 0: not even one. */
int64_t gen_most_slots(const GenSpec *s, const Machine *m, const GenHost *host, int64_t budget_bytes);

/* open.c: takes the memory. Weights are the caller's to load into g->x; once they are there, settle takes the room on
 * disk of those that are no file's (gives how many bytes). */
bool gen_open(Gen *g, Backend *b, Err *e);
bool gen_settle(Gen *g, int64_t *own_bytes, Err *e);
void gen_close(Gen *g); /* after gen_plan, whatever it gave */

/* warm.c: on a device that keeps plays, plays every pass twice on idle rows, so that all the memory it will ever take is
 * taken. After the weights are there. */
bool gen_warm(Gen *g, Err *e);
/* Where the time of the largest prefill and the largest decode goes, op by op. What is cached is lost. */
bool gen_profile(Gen *g, Str *out, Err *e);
void gen_measure_line(Gen *g, const char *name, int64_t less_bytes); /* what was taken since the last look, as that line's */

#endif
