/* job.h - a training or evaluation job as one planned program: {init, micro-step x accumulation, update, evaluate}.
 * With the update inside backward the micro-step is the whole step, and there is no phase of its own for it.
 *
 * The same object is the estimate and the run: `plan` prints it, `train` plays it. Nothing is loaded here. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "base/ledger.h"
#include "data/dataset.h"
#include "model/decoder.h"
#include "plan/plan.h"

typedef enum OptimizerKind { OPTIMIZER_ADAMW, OPTIMIZER_SGD } OptimizerKind;
typedef enum MomentKind { MOMENTS_F32, MOMENTS_BF16, MOMENTS_8BIT } MomentKind;

enum { JOB_LR_RULES = 16, JOB_LAYERS = 1024, JOB_PLAYS = 8 };

/* What may live in pinned host memory, or on disk, and visit the device only when it is used. */
typedef enum AwayKind { AWAY_WEIGHTS, AWAY_MOMENTS, AWAY_GRADIENTS, AWAY_INPUTS, AWAY_KINDS } AwayKind;

typedef struct LrRule { /* learning-rate multiplier of the parameters whose name contains `part` */
    const char *part;
    float mult;
} LrRule;

/* What stands beside the trained model on the same ring: other models, and passes over the trained one. It is recorded between
 * the phases init and micro, and notes in the job how often an update plays each of its phases. */
typedef struct Job Job;
typedef struct JobBeside {
    const void *user;
    bool (*record)(const void *user, Job *j, Err *e);
    int64_t (*host_bytes)(const Job *j); /* ordinary memory that running it takes */
} JobBeside;

/* Everything that decides the program. */
typedef struct JobSpec {
    ModelConfig model;
    bool train;            /* false: evaluation only */
    bool lora;
    LoraSpec adapter;      /* rank 0: none (an evaluation may have one) */
    Format activations;    /* fp32, bf16, or fp16: then the loss is scaled */
    Format weights;        /* of what is trained; a frozen base keeps its file's dtype */
    Format gradients;
    bool master;           /* an fp32 twin of every trained weight */
    MomentKind moments;
    OptimizerKind optimizer;
    AttrUpdate update;     /* beta1, beta2, eps, weight_decay */
    LrRule lr_rule[JOB_LR_RULES];
    int n_lr_rules;
    int64_t seq, micro_batch;
    int64_t accum;         /* micro-batches of an update; at most, where updates differ */
    const UpdateRows *rows; /* of the updates of the run; NULL: micro_batch x accum each. Keeps */
    bool evaluate;         /* a held-out set is evaluated between updates */
    RecomputeLevel recompute[JOB_LAYERS];
    int64_t head_chunk;    /* 0: chosen */
    int64_t ffn_chunks;    /* pieces the feed-forward's tokens are cut into; 0, 1: whole */
    int64_t away[AWAY_KINDS]; /* how many layers' weights, moments (and masters), gradients live outside the device, spread
                                 evenly; inputs kept for backward: of the first layers. As many as the model has:
                                 embedding and head too */
    int64_t on_disk[AWAY_KINDS]; /* of these, how many layers' on disk; the others' in pinned memory */
    bool update_in_backward; /* a weight is updated as soon as its gradient is complete: accumulation 1, no clip */
    bool quantised;        /* a frozen model's products are stored as `stored`, not as in its file */
    Format stored;
    bool head_int8;        /* a frozen model's head is stored as int8; where it is tied, the embedding is too */
    bool random_init;
    uint64_t seed;
    AttendBy attend;       /* other than ATTEND_OWN: no row is packed */
    bool estimate;         /* not placed: bytes are lower bounds, nothing can be played (a search) */
    const JobBeside *beside; /* NULL: nothing */
    bool sweep;            /* fuse the head's forward and gradient; off only to compare */
} JobSpec;

/* Bytes beside the arena that the process takes in host memory, known before the run. */
typedef struct HostBytes {
    int64_t data, tokenizer, batches;
    int64_t reading; /* taken besides `data` while it is read, and given back before the pools are taken */
} HostBytes;

typedef struct JobPlays { /* of one update */
    int phase;
    double times;
} JobPlays;

struct Job {
    JobSpec spec;
    Machine machine;
    Program p;             /* owns */
    Decoder d, d_eval;     /* d_eval: the same weights, no dropout */
    DecoderInput in;
    Tid labels, weight;    /* inputs (N) */
    Tid divisor;           /* dial: scored tokens of the global batch, divided by the loss scale */
    Tid dials;             /* dial: DIAL_* of the update */
    Tid max_norm;          /* dial */
    Tid unscale;           /* dial: 1 / loss scale; NONE: the loss is not scaled */
    Tid loss, eval_loss;   /* statistics */
    Tid parts, verdict;    /* statistics of the update */
    int phase_init, phase_micro, phase_update, phase_eval; /* -1: absent */
    void *beside;          /* what spec.beside recorded; in the program's arena */
    JobPlays plays[JOB_PLAYS]; /* its phases */
    int n_plays;
    Placement placement;
    Ledger ledger;
    double plan_ms;
};

/* Records, rewrites and places; refuses only what the spec makes impossible. */
bool job_open(Job *j, const JobSpec *spec, const Machine *m, const HostBytes *host, Err *e);
void job_close(Job *j);

int64_t job_process_bytes(const Job *j);  /* what --budget is compared with */
int64_t job_host_bytes(const Job *j);     /* beside a device: pinned and ordinary memory of the host */
int64_t job_disk_bytes(
    const Job *j); /* taken in --offload-dir; the rest of the disk pool lies in the model's own files */
double job_update_seconds(const Job *j);  /* cost model: one optimizer step, on average */
double job_micro_steps(const JobSpec *s); /* that an update plays, on average */
int64_t job_rows(const JobSpec *s);       /* of an update at most: accum for a micro-batch of m is job_rows / m, rounded up */
void job_batch_flags(Str *out, const JobSpec *s, int64_t micro_batch, int64_t accum); /* as flags that keep the global batch */
double job_useful_flops(const Job *j);    /* of one optimizer step: what must be computed at least */
int64_t job_ffn_rows(const JobSpec *s);   /* tokens of one of the pieces */
AttrHead job_head_attr(const Job *j);     /* in which chunks the head is computed */
int64_t job_default_chunk(const JobSpec *s, MachineKind kind);
/* Accumulation and clip aside: it trains, and no overflow takes an update back. */
static inline bool job_can_update_early(const JobSpec *s) { return s->train && s->activations != FMT_F16; }
uint64_t job_fill_key(uint64_t seed, const char *file_name); /* of a parameter's random start */
AttrFill job_fill(const ModelConfig *c, const char *file_name, uint64_t seed); /* how a parameter starts */

/* homes.c: "weights=12,weights=disk:4,moments" - kinds, and of how many layers; without a number: of all. */
bool job_parse_away(int64_t *away, int64_t *on_disk, int layers, const char *text, Err *e);
void job_away_text(Str *out, const int64_t *away, const int64_t *on_disk, int layers);
void job_set_homes(Program *p, const JobSpec *s, MachineKind machine, Format stored);

/* A change that would make a job smaller: flags to paste, and what they do. */
typedef struct Change {
    char flags[160];
    int64_t saves_bytes;
    double slowdown;    /* 1.31: 31 % more time a token; 0: not known */
    bool maths;         /* changes the mathematics: offered, never taken */
} Change;
enum { JOB_CHANGES = 12 };

/* The cheapest changes (by slowdown, then by bytes) that fit budget_bytes (0: any that saves). Gives their number. */
int job_changes(const Job *j, const HostBytes *host, int64_t budget_bytes, Change *out);

#endif
