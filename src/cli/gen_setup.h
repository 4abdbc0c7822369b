/* gen_setup.h - from options to a generation engine: its shape, its memory, what a prompt is, when an answer ends. */
#ifndef CLI_GEN_SETUP_H
#define CLI_GEN_SETUP_H

#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "gen/engine.h"

enum { GEN_STOP_IDS = 16 };

typedef struct StopIds { /* any of them ends an answer */
    int32_t id[GEN_STOP_IDS];
    int n;
} StopIds;
/* Whatever the model's files call an end of text, and what ends a turn of its chat template: a base model that was
 * tuned by a template says that, and no configuration of it names it. */
bool gen_setup_stop_ids(StopIds *s, const ModelFiles *m, const Words *w, Err *e);

typedef struct GenSetup {
    const Options *o;
    ModelFiles model;
    Words words;
    Backend *backend;
    Machine machine;
    GenSpec spec;
    Ring ring;
    Gen *gen;             /* NULL until planned */
    Engine engine;        /* on it, once started */
    FitLimits limits;     /* what may be taken: gen_setup_limits */
    StopIds stop;
    JobStatus status;     /* told to the monitor from the start to the end; step: the command's */
} GenSetup;

/* The model, how it is kept, its words and the device; slots and context are the caller's. */
bool gen_setup_begin(GenSetup *n, const Options *o, Err *e);
int64_t gen_setup_slots(const GenSetup *n, int64_t most); /* --slots, or as many as are usual here, most at most */
bool gen_setup_limits(GenSetup *n, GenHost *host, Err *e); /* what may be taken, and what the tokenizer takes of it */
/* Plans with slots and context as in n->spec, or with what of them fits; takes the memory; loads the weights. */
bool gen_setup_start(GenSetup *n, const GenHost *host, bool fewer_slots, int64_t least_context, Err *e);
/* For the monitor: what the command does now, in steps of which kind, and how many there will be (0: not known). */
void gen_setup_tell(GenSetup *n, const char *phase, const char *unit, int64_t total);
void gen_setup_end(GenSetup *n); /* after gen_setup_begin, whatever it gave */

/* The plan as a table, with what was measured unless that is NULL. */
void gen_setup_text(Str *out, const GenSetup *n, const Measured *measured);
/* "weights of 8 of 28 layers in pinned memory, of 4 more on disk"; "": none */
void gen_setup_offload_text(Str *out, const GenSpec *s);
Peak gen_setup_peak(const GenSetup *n);          /* what the process took so far beside its plan */
Peak gen_setup_show_measured(const GenSetup *n); /* the table with it */

/* What decides the answers, by name and text: what a job's log belongs to (store/joblog.h). same: the options that do;
 * with model, adapter and context. Gives; NULL: refused. */
json_t *gen_setup_job(const GenSetup *n, const OptId *same, int n_same, Err *e);

Sampling gen_setup_sampling(const Options *o, float temperature); /* that one where none is given */
/* A request with everything but its prompt. */
Request gen_setup_request(const GenSetup *n, uint64_t seed);

/* Ids of a text; of a conversation (JSON array of messages) asking for an answer; of one that a text begins. */
bool gen_setup_encode_text(const GenSetup *n, TokenIds *out, const char *text, int64_t bytes, Err *e);
bool gen_setup_encode_chat(const GenSetup *n, TokenIds *out, const json_t *messages, Err *e);
bool gen_setup_encode_turn(const GenSetup *n, TokenIds *out, const char *text, int64_t bytes, Err *e);

#endif
