/* job.h - training or evaluation as phases on a ring: {init, micro-step x accumulation, update, evaluate}, and what a
 * task puts between them. With the update inside backward the micro-step is the whole step, and there is no phase of
 * its own for it.
 *
 * A *task* is what is learned from: it records the loss, and whatever else its ring holds (other models, passes over
 * the trained one). Nothing is loaded here: `plan` prints the ring, `train` plays it. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "data/dataset.h"
#include "model/model.h"
#include "ring/ring.h"

typedef enum OptimizerKind { OPTIMIZER_ADAMW, OPTIMIZER_SGD } OptimizerKind;
typedef enum MomentKind { MOMENTS_F32, MOMENTS_BF16, MOMENTS_8BIT } MomentKind;

enum { JOB_RULES = 16, JOB_LAYERS = 1024, JOB_ROOTS = 16, JOB_SIDES = 2 };

typedef struct NameRule { /* a multiplier for the parameters whose name holds `part`, in which * stands for anything */
    const char *part;
    float mult;
    bool may_miss; /* it is a default: a model without such parameters is fine */
} NameRule;

typedef struct NameRules { /* of several that fit, the last counts */
    const char *option;    /* that gives them */
    NameRule rule[JOB_RULES];
    int n;
} NameRules;

typedef struct Job Job;
typedef struct JobSpec JobSpec;
typedef struct Task Task;

typedef struct JobRoots { /* of backward: what the loss is the sum of */
    Root root[JOB_ROOTS];
    int n;
} JobRoots;

typedef struct TaskSide { /* a frozen model that a task has beside the trained one */
    const char *name;     /* of its tensors (Tensor.model) */
    int layers;
    bool may_offload;     /* nobody has said where its weights are: the planner may */
} TaskSide;

struct Task {
    const char *name;
    TaskSide side[JOB_SIDES];
    int n_sides;
    /* Settings of its own that save memory and cost time, each more than the one before; JobSpec.task_saving is how far
     * the job has gone. describe adds what that setting does. */
    int savings;
    void (*describe_saving)(const Task *t, const JobSpec *s, Str *out);
    /* How it lays `samples` into the rows of a micro-batch on such a machine: fills seq, row_samples, shared_tokens and
     * rows (those as long as it has them); NULL: a sample has a row of its own, as long as seq. */
    void (*lay_out)(const Task *t, JobSpec *s, int64_t samples, MachineKind kind);
    bool fp32_logits; /* its head's log-probabilities are compared with a sampler's, which has its logits in fp32 */
    /* What stands on the ring before training's own phases; NULL: nothing. Plays are added for one update. */
    bool (*record)(const Task *t, Job *j, Err *e);
    /* The loss of a pass of m over j->in, summed into stat (1) fp64. */
    void (*loss)(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots);
};
extern const Task task_supervised; /* - sum of weight * log-probability of the label, over all tokens / divisor */

/* A correction (op_carry.c) beside every trained tensor; recorded by a task, updated by the update steps. */
typedef struct JobCarry {
    bool recording; /* update steps recorded now are sgd_carry, not sgd */
    Tid dials;      /* CARRY_* words; NONE: the job has no correction */
    Tid sums;       /* (trained tensors, CARRY_SUMS), in the order of the program */
    /* of each tensor, by its number; NONE: none so far. In the program's arena */
    Tid *correction, *last, *master;
} JobCarry;

/* Everything that decides the program. */
struct JobSpec {
    ModelSpec m;
    bool train;            /* false: evaluation only */
    bool lora;             /* the adapters are trained; otherwise all weights */
    Format weights;        /* of what is trained; a frozen base keeps its file's dtype */
    Format gradients;
    bool master;           /* an fp32 twin of every trained weight */
    MomentKind moments;
    OptimizerKind optimizer;
    AttrUpdate update;     /* beta1, beta2, eps, weight_decay */
    NameRules lr_rules, decay_rules; /* decay: beside them, norms and biases (rank 1) have none */
    bool limited;          /* an update above limits (Job.limits) writes nothing */
    bool whole_updates;    /* an update is written as a whole or not at all: none inside backward */
    bool gradient_noise;   /* the norm of the first micro-batch's gradient is measured, where an update has several */
    int64_t seq, micro_batch; /* of rows */
    int64_t row_samples;   /* of a task that lays several into a row (Task.lay_out); 0, 1: one */
    int64_t shared_tokens; /* at the beginning of a row, which all its samples have in front of them */
    int64_t accum;         /* micro-batches of an update; at most, where updates differ */
    const UpdateRows *rows; /* of the updates of the run; NULL: micro_batch x accum each. Keeps */
    bool evaluate;         /* a held-out set is evaluated between updates */
    bool report;           /* evaluation also measures attention (Job.report_stat) */
    RecomputeLevel recompute[JOB_LAYERS];
    int64_t head_chunk;    /* 0: chosen */
    float head_scale;      /* of the logits: 1 / temperature; 0: 1 */
    int64_t ffn_chunks;    /* pieces the feed-forward's tokens are cut into; 0, 1: whole */
    bool update_in_backward; /* a weight is updated as soon as its gradient is complete: accumulation 1, no clip */
    AttendBy attend;       /* other than ATTEND_OWN: no row is packed */
    AttendBy attend_asked; /* what it was before a plan may have chosen our own kernels, which take less memory */
    bool estimate;         /* not placed: bytes are lower bounds, nothing can be played (a search) */
    const Task *task;      /* NULL: task_supervised */
    int64_t warmup_steps;  /* the first updates are the model's own warm-up (ModelInput.warmup); 0: it has none */
    bool warmup_frozen;    /* in which nothing else learns */
    int64_t side_offload[JOB_SIDES]; /* layers of the task's other models whose weights wait in pinned memory */
    int task_saving;       /* how many of the task's own savings are switched on (Task.savings) */
    bool no_sweep;         /* the head's forward and gradient are not fused; only to compare */
};

/* States of a step log: copied, and written while the run goes on, or written at once. */
typedef enum StateCopying { STATES_AUTO, STATES_COPIED, STATES_DIRECT } StateCopying;

/* Bytes of host memory that a run takes beside the ring's own, known before it. */
typedef struct HostBytes {
    int64_t data, tokenizer, batches;
    int64_t vectors; /* as long as the model, beside it: what unlearning carries */
    int64_t logged_samples; /* of an update; above 0: the run has a step log */
    bool stores_updates;    /* in it, in that format */
    Format update_format;
    StateCopying state_copying;
    int64_t reading; /* taken besides `data` while it is read, and given back before the pools are taken */
} HostBytes;

struct Job {
    JobSpec spec;
    Ring *ring;            /* keeps */
    Model m, m_eval;       /* m_eval: the same weights, no dropout */
    ModelInput in;
    Tid labels, weight;    /* inputs (N) */
    Tid divisor;           /* dial: scored tokens of the global batch, divided by the loss scale */
    Tid dials;             /* dial: DIAL_* of the update */
    Tid max_norm;          /* dial */
    Tid limits;            /* dial: LIMIT_*; NONE: there are none */
    Tid unscale;           /* dial: 1 / loss scale; NONE: the loss is not scaled */
    Tid loss, eval_loss;   /* statistics */
    Tid parts, verdict;    /* statistics of the update */
    Tid noise_verdict;     /* the same of the phase noise */
    int init, micro, update, evaluate; /* phases; -1: absent */
    /* what is played instead of micro and update in the first warmup_steps updates */
    int warmup, warmup_update;
    bool copies_states;                /* of a step log; in the plan */
    int noise;                         /* the gradient's norm behind the first micro-batch */
    int report;                        /* ModelOut.report over a batch */
    const Tid *report_stat;            /* a layer each: of the report; spec.report: of the evaluation; NULL: none */
    Tid index_loss;        /* statistic: the model's own loss, over all layers; NONE: it has none */
    Tid warmup_index_loss; /* the same of the warm-up */
    JobCarry carry;
    void *own;             /* the task's; in the program's arena */
};

/* Records, rewrites and places on a ring of its own; refuses only what the spec makes impossible. Gives: ring_close,
 * also where it fails. */
bool job_plan(Job *j, Ring *r, const JobSpec *spec, const Machine *m, const HostBytes *host, Err *e);

/* Predicted time of an update, on average over so many from the first: a warm-up's are others. */
double job_update_seconds(const Job *j, int64_t updates);
AttrHead job_head_attr(const Job *j);   /* in which chunks the head is computed */
Tid job_hidden(Job *j, const Model *m); /* records a pass of m over j->in that nothing goes back through */
/* Records forward, loss and backward over a batch in a phase of that name, which is left open. It draws as training's
 * own phase does. */
int job_record_pass(Job *j, const char *name);
void job_supervised_loss(const Task *t, Job *j, const Model *m, Tid stat, JobRoots *roots); /* task_supervised's */
double job_micro_steps(const JobSpec *s); /* that an update plays, on average */
/* of an update at most: accum for a micro-batch of m is job_rows / m, rounded up */
int64_t job_rows(const JobSpec *s);
/* What --micro-batch counts, rows or a task's samples: of a micro-batch, of an update at most; and a micro-batch of so
 * many, accum with it. */
static inline int64_t job_micro_samples(const JobSpec *s) { return s->micro_batch * MAX2(s->row_samples, 1); }
int64_t job_samples(const JobSpec *s);
int64_t job_sample_tokens(const JobSpec *s); /* of a row that a sample would have of its own */
void job_set_micro(JobSpec *s, int64_t samples, MachineKind kind);
int64_t job_useful_pieces(const JobSpec *s); /* of the feed-forward, where cutting it is worth it; 0: it is not */
static inline bool job_logits_fp32(const JobSpec *s) { return s->task && s->task->fp32_logits; }
int64_t job_default_chunk(const JobSpec *s, MachineKind kind);
static inline Role job_trained_role(const Job *j) { return j->spec.lora ? ROLE_ADAPTER : ROLE_WEIGHT; }
/* Accumulation and clip aside: it trains in one stage, and no overflow or spike takes an update back. */
static inline bool job_can_update_early(const JobSpec *s) {
    return s->train && s->m.activations != FMT_F16 && !s->warmup_steps && !s->whole_updates &&
           !s->gradient_noise;
}

/* update.c: the optimizer's steps, in a phase of their own or behind backward. */
bool job_record_update(Job *j, Err *e);
/* job_begin_carry makes the tensors of j->carry; their contents count from the first update whose CARRY_KEEP is 0.
 * job_record_carry records the update with sgd_carry steps into the open phase, behind its pass, and ends the phase.
 * job_record_carry_apply records a phase that adds the correction to the weights. */
void job_begin_carry(Job *j);
bool job_record_carry(Job *j, Err *e);
bool job_record_carry_apply(Job *j, int *phase, Err *e);
/* The norm of the gradients that the micro phase gave, in a phase of its own (JobSpec.gradient_noise). */
void job_record_noise(Job *j);
/* Every rule by name is about a parameter that is trained. Refuses: what was asked for would have no effect. */
bool job_check_names(const Job *j, Err *e);
/* A phase that updates only what the last recorded phase gave a gradient; moments are those of the other update. */
bool job_record_warmup_update(Job *j, Err *e);

#endif
