/* engine.h - continuous batching: requests are submitted at any time, a step prefills a piece of a prompt or adds a
 * token to every answer, and the results are polled as events. Nothing here waits for a request: an idle engine is a
 * valid state.
 *
 *     Engine n;
 *     engine_open(&n, &gen, tokenizer, (EngineOptions){0});  // the ring is open, weights are loaded, gen_warm
 *                                                            // was called
 *     for (;;) {
 *         while (engine_room(&n) > 0 && there is another) engine_submit(&n, &request, &ticket, &e);
 *         if (engine_step(&n, &e) == ENGINE_BROKEN) ...              // the device failed: nothing can go on
 *         for (EngineEvent ev; engine_event(&n, &ev);) ...
 *     }
 *     engine_close(&n);
 *
 * Words: a *slot* is a row of the cache and the answer that has it; a *sample* is one answer to a request.
 *
 * E1 engine_submit copies the request. One that cannot be answered is refused alone, by a message that names it.
 * E2 Every sample that begins ends in exactly one event, DONE or FAILED; a request cancelled while none of its samples
 *    runs gives one DONE. The last event of a request says so, and nothing of the request is kept after it.
 * E3 What an event points to is good until the next step or close. All events of a step are taken before the next one.
 * E4 A request fails alone: logits that are not finite end its sample, the KV cache of its slot is cleared, and the
 *    other requests continue.
 * E5 A step plays at most one prefill pass, then (when no prompt waits, or EngineOptions.piece says so) one decode of
 *    all running answers. So a caller that polls the clock, a socket or signals between steps waits for at most one
 *    pass of each kind.
 * E6 Random numbers depend on the request alone: on its key, the sample, the position. Other requests in the batch
 *    can change a token by rounding only, and with GenSpec.invariant not at all (batch-invariant).
 * E7 One thread. Slots are filled in the order of submission; the samples of a request share one prefill. */
#ifndef GEN_ENGINE_H
#define GEN_ENGINE_H

#include "gen/gen.h"
#include "gen/text_stream.h"
#include "obs/status.h"

typedef struct Request {
    const int32_t *prompt;
    int64_t n_prompt;
    const int32_t *forced; /* ids the answer begins with: not drawn, but run through the model and given with their log-
                              probabilities. With max_new = n_forced the request scores a given continuation */
    int64_t n_forced;
    int64_t max_new;       /* tokens of an answer, forced ones included; at least 1 */
    int samples;           /* answers to it, at least 1 */
    int first_sample;      /* the number of the first of them */
    Sampling sampling;
    uint64_t key;          /* of its random numbers; each sample folds its own from it */
    const int32_t *stop_id;
    int n_stop_ids;
    StopTexts stops;
    bool want_logp;
    bool logp_at_temperature; /* log-probabilities of what is drawn from, before penalties and cuts */
    bool stream;           /* EVENT_TEXT as the text grows, not only all of it at the end */
    int64_t number;        /* the caller's name for it, in messages and events */
} Request;

/* How a sample of the request is drawn; drawable: ids below it have a text, 0: all. */
DrawHow request_how(const Request *r, int sample, int32_t drawable);
bool request_stops(const Request *r, int32_t id); /* it is one of its stop ids */

typedef enum GenEnd { GEN_END_ID, GEN_END_TEXT, GEN_END_LENGTH, GEN_END_CANCELLED } GenEnd;
const char *gen_end_name(GenEnd end); /* "stop", "stop", "length", "interrupted" */

typedef enum EventKind { EVENT_TEXT, EVENT_DONE, EVENT_FAILED } EventKind;

typedef struct EngineEvent {
    EventKind kind;
    int64_t ticket;
    const Request *request;          /* as it was submitted */
    int sample;
    bool last;                       /* of its request */
    const int32_t *ids;              /* of the answer so far, with the id that ended it */
    const float *logp;               /* of each; NULL: not wanted. The model's own: before penalties and temperature */
    int64_t n;
    const Str *text;                 /* so far; NULL: there is no tokenizer. TEXT and DONE */
    const char *fresh;               /* TEXT: what is new of it */
    int64_t fresh_bytes;
    GenEnd end;                      /* DONE */
    const char *error;               /* FAILED: what happened */
} EngineEvent;

typedef enum EngineState { ENGINE_IDLE, ENGINE_BUSY, ENGINE_BROKEN } EngineState;

typedef struct EngineOptions {
    /* Prompt tokens prefilled between two decode steps while other answers run, rounded up to a pass, so that these
     * answers continue during a long prompt (chunked prefill). 0: waiting prompts are prefilled first, which takes the
     * fewest passes. Without other answers, prompts are read as with 0. */
    int64_t piece;
    JobStatus *status; /* keeps; updated about once a second with the number of tokens. NULL: none */
} EngineOptions;

typedef struct EngineCounts {
    int64_t prefill_tokens, shared_tokens, new_tokens, plays; /* shared: found in the cache */
    double prefill_seconds, decode_seconds;
} EngineCounts;

/* ---- inside; engine_int.h has what only engine_*.c need ---- */

typedef struct Ticket Ticket; /* an accepted request */

typedef struct EngineSlot {
    Ticket *ticket;       /* NULL: free */
    int sample;
    int64_t serial;       /* of the answer; a pending token of an earlier one is dropped */
    int32_t *ids;         /* (context): prompt and answer */
    float *logp;          /* (context): of the answer */
    int64_t n, n_cached;  /* ids; the first n_cached of them are in the cache, also when the slot is free */
    int64_t n_drawn;      /* ids, with those that the host has not read yet */
    GenEnd end;           /* of the answer, once it has ended */
    bool text_pending;    /* an EVENT_TEXT of it waits to be taken */
    TextStream stream;
} EngineSlot;

/* Tokens drawn by what is queued, which the host has not read yet: at most one a slot. */
typedef struct PendingTokens {
    int *slot;            /* (slots) */
    int64_t *serial;      /* (slots) */
    int64_t n;
    bool first;           /* the first tokens of answers: drawn after a prefill */
} PendingTokens;

typedef struct PromptPack { /* prompts that have a slot and wait to be prefilled in one pass */
    int slot[GEN_PACKED];
    int64_t from[GEN_PACKED]; /* ids before it are in the cache */
    int n;
    int64_t tokens;
} PromptPack;

typedef struct PendingEvent {
    EventKind kind;
    Ticket *ticket;
    int slot;             /* -1: its request had none */
    int sample;
    bool last;
    char *error;          /* owns */
} PendingEvent;

typedef struct Engine {
    const Gen *g;             /* keeps: passes, cache and settings' tensors */
    Exec *x;                  /* keeps: of the ring they are in */
    const Tokenizer *tokenizer; /* keeps; NULL: ids only */
    EngineOptions options;
    bool late;                /* asynchronous readback: the next step is queued before the host reads the tokens */
    Arena arena;
    EngineSlot *slot;
    int64_t n_busy;           /* slots */
    int32_t *ids, *positions, *rows; /* inputs of one pass */
    Drawn *drawn;             /* (slots) */
    int32_t drawable;         /* ids below it have a text; 0: all */

    Ticket *queue, *queue_end; /* requests with samples that have no slot yet, in order */
    int64_t n_queued;         /* those samples */
    int64_t tickets, serials; /* given so far */
    PromptPack pack;
    int reading;              /* the slot whose prompt is being prefilled; -1: none */
    int64_t read_from;        /* ids before it are in the cache */
    int64_t prefilled;        /* prompt tokens since the last decode */
    int64_t prompt_ticket;    /* whose logits are in Gen.prompt_logits; -1: none */
    int prompt_slot;          /* where that prompt is cached */

    PendingTokens pending[BACKEND_NOTES]; /* a ring: n_pending of them, the oldest at first_pending */
    int first_pending, n_pending;
    PendingEvent *event;      /* owns; of this step */
    int64_t n_events, n_taken, event_capacity;

    EngineCounts counts;
    double read_seconds;      /* when the host read tokens last */
    int64_t decodes;
} Engine;

/* Takes the host memory of slots and passes (engine_host_bytes); the tokens come from where g was recorded. */
void engine_open(Engine *n, const Gen *g, const Tokenizer *t, EngineOptions options);
void engine_close(Engine *n); /* drops running and queued requests without events; zeros are fine */
int64_t engine_host_bytes(const GenSpec *s); /* at most, beside what queued requests and texts take */

bool engine_submit(Engine *n, const Request *r, int64_t *ticket, Err *e);
/* Ends a request early: running samples give DONE with what they have (E2). Unknown tickets and those that have ended
 * are fine. Between steps only. */
void engine_cancel(Engine *n, int64_t ticket);
void engine_cancel_all(Engine *n);

EngineState engine_step(Engine *n, Err *e); /* the state after it: IDLE when nothing runs or is queued */
bool engine_event(Engine *n, EngineEvent *out); /* false: there are no more */

/* Submits requests 0 .. total-1, each as soon as the engine has room, and steps until all are answered. A callback ends
 * it by returning false; looked is called after every step (NULL: not wanted). It also ends with false, and a code in
 * e, after SIGINT or SIGTERM. */
typedef struct EngineAsk {
    int64_t total;
    bool (*submit)(void *user, int64_t i, Err *e);
    bool (*take)(void *user, const EngineEvent *ev, Err *e);
    bool (*looked)(void *user, Err *e);
    void *user;
} EngineAsk;
bool engine_ask(Engine *n, const EngineAsk *ask, Err *e);

/* Invalidates and clears the KV cache, after other phases of the ring were played. Only while nothing runs or is
 * queued. */
void engine_forget(Engine *n);

/* How many samples may be submitted so that one of them waits when all slots are taken; 0 or less: none. */
int64_t engine_room(const Engine *n);

#endif
