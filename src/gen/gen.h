/* gen.h - a generation engine: requests in, answers out, inside a plan made before anything is loaded.
 *
 * Words: a *slot* is a row of the cache and the request that has it; a *pass* is a recorded phase of a fixed shape:
 * prefill takes so many tokens of one prompt, a pack the tokens of up to GEN_PACKED short ones, decode one token of so many
 * slots. All passes are phases of one
 * ring over one placement. A request that ends leaves its slot to the next one at once.
 *
 *     if (!gen_plan(&g, &ring, &spec, &machine, &host, &e)) ...   // bytes are known: ring_process_bytes
 *     if (!ring_open(&ring, backend, &e) || !gen_open(&g, &e)) ...  // then load weights into ring.x, settle, then
 *     if (!gen_warm(&g, &e)) ...
 *     gen_run(&g, tokenizer, &calls, &e);
 *     gen_close(&g), ring_close(&ring) */
#ifndef GEN_GEN_H
#define GEN_GEN_H

#include <signal.h>

#include "exec/exec.h"
#include "gen/spoken.h"
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
    bool invariant;     /* one prefill and one decode shape, whatever there is to do: the same tokens in any company */
} GenSpec;

typedef struct GenHost { /* host memory of others, for the plan */
    int64_t tokenizer, requests;
} GenHost;

typedef struct GenPass {
    int phase;
    int64_t rows, seq; /* shape */
    ModelInput in;
    Tid last;          /* prefill: which of its tokens the logits are of; NONE: of every row's, and tokens are drawn */
    Tid ends, end_slots, end_positions; /* pack: the rows that end a prompt, a token is drawn for each; NONE: not a pack */
} GenPass;

typedef struct Request {
    const int32_t *prompt; /* borrows until its last answer is done */
    int64_t n_prompt;
    int64_t max_new;
    int samples;           /* answers to it, at least 1; they share the prefill */
    Sampling sampling;
    uint64_t key;          /* of its random numbers; each sample folds its own from it */
    const int32_t *stop_id;
    int n_stop_ids;
    StopTexts stops;
    bool want_logp;
    int64_t number;        /* the caller's name for it */
} Request;

typedef enum GenEnd { GEN_END_ID, GEN_END_TEXT, GEN_END_LENGTH, GEN_END_ASKED } GenEnd;
const char *gen_end_name(GenEnd end); /* "stop", "length", "interrupted" */

typedef struct Answer { /* borrowed by the calls below */
    const Request *request;
    int sample;
    const int32_t *ids; /* with the id that ended it */
    const float *logp;  /* when wanted */
    int64_t n;
    const Str *text;    /* NULL: there is no tokenizer */
    GenEnd end;
} Answer;

typedef struct GenCalls {
    void *user;
    bool (*next)(void *user, Request *r);                                       /* false: none now; asked again later */
    bool (*said)(void *user, const Answer *a, const char *text, int64_t bytes); /* as it comes; false: enough. May be NULL */
    bool (*done)(void *user, const Answer *a, Err *e);
    const volatile sig_atomic_t *stop; /* set: every answer ends where it is. May be NULL */
} GenCalls;

typedef struct GenSlot {
    bool busy;
    int64_t serial;       /* of its request */
    int64_t ticket;       /* of its answer */
    Request r;
    int sample;
    int32_t *ids;         /* (context): prompt and answer */
    float *logp;          /* (context): of the answer */
    int64_t n, n_cached;  /* ids; the first n_cached of them are in the cache, also when the slot is free */
    int64_t n_drawn;      /* ids, with those that are still on their way to the host */
    Spoken spoken;
} GenSlot;

/* Tokens on their way from the device: drawn by what was queued before, at most one a slot. A slot whose answer has ended
 * meanwhile has another ticket, and its token is dropped. */
typedef struct GenNews {
    int *slot;            /* (slots) */
    int64_t *ticket;      /* (slots) */
    int64_t n;
    bool first;           /* of answers: drawn after a prefill */
} GenNews;

typedef struct GenPack { /* prompts that have a slot and wait to be prefilled together */
    int slot[GEN_PACKED];
    int64_t from[GEN_PACKED]; /* what is before is in the cache */
    int n;
    int64_t tokens;
} GenPack;

typedef struct GenCounts {
    int64_t prefill_tokens, shared_tokens, new_tokens, plays; /* shared: found in the cache */
    double prefill_seconds, decode_seconds;
} GenCounts;

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

    /* once open */
    Arena arena;            /* slots and scratch */
    GenSlot *slot;
    int32_t *ids, *positions, *rows; /* of one pass */
    Drawn *drawn;           /* (slots) */
    int32_t drawable;       /* ids below it have a text; 0: all */
    bool late;              /* tokens are read one step late: the device has the next step before the host looks */
    GenPack waiting;
    GenNews news[BACKEND_NOTES]; /* a queue: n_news of them, the oldest at first_news */
    int first_news, n_news;
    double heard_seconds;   /* when the host read last */
    int64_t tickets, rounds;
    int64_t serial;         /* of the prompt prefilled last */
    int prompt_slot;        /* where it is cached */
    GenCounts counts;
} Gen;

/* record.c: the passes into a ring, which may hold others too: over the weights of m, or (m NULL) over weights of its own, under
 * the name p.model. */
bool gen_record(Gen *g, Ring *r, const GenSpec *spec, const Model *m, Err *e);
/* The same as all that a ring holds, planned. Nothing is taken. Gives: ring_close, also where it fails. */
bool gen_plan(Gen *g, Ring *r, const GenSpec *spec, const Machine *m, const GenHost *host, Err *e);

/* fit.c: the most slots up to s->slots, then the longest context from least_context up to s->context, then (s->may_send) as few
 * layers elsewhere as fit the budget: in pinned memory, then (s->may_use_disk) as few of them on disk as the host needs. ERR_BUDGET with
 * the missing bytes when nothing does. */
bool gen_fit(GenSpec *s, const Machine *m, const GenHost *host, bool fewer_slots, int64_t least_context,
             int64_t budget_bytes, Err *e);

/* The most slots that fit, whatever s->slots says; 0: not even one. */
int64_t gen_most_slots(const GenSpec *s, const Machine *m, const GenHost *host, int64_t budget_bytes);

/* run.c: slots and scratch, once the ring is open; random weights are drawn, others are the caller's to load. */
bool gen_open(Gen *g, Err *e);
void gen_close(Gen *g); /* after gen_plan, whatever it gave; the ring is the caller's */

/* warm.c: on a device that keeps plays, plays every pass twice on idle rows, so that all the memory it will ever take is
 * taken. After the weights are there. */
bool gen_warm(Gen *g, Err *e);
/* Where the time of the largest prefill and the largest decode goes, op by op. What is cached is lost. */
bool gen_profile(Gen *g, Str *out, Err *e);

/* Until every answer is done and next gives nothing more. Random numbers depend on the request alone. */
bool gen_run(Gen *g, const Tokenizer *t, const GenCalls *calls, Err *e);

#endif
