/* ring.h - group-relative policy optimisation as one planned ring: a policy that answers and is trained, an
 * evaluator that reads its answers, a reference it is held near to.
 *
 * The phases, in order: init; the policy's passes over its cache (prefillN, decodeN); the evaluator's
 * (evaluator.prefillN, evaluator.decodeN); reference (log-probabilities of a micro-batch); old (the same of the policy
 * itself, where answers are trained on more than once); micro x accumulation; update. Each is recorded by the room that runs it (gen, train), all into one program, so one placement covers
 * them: what one phase needs for itself takes bytes that another has left. The policy's tensors have no prefix,
 * the others' names begin with GRPO_EVALUATOR or GRPO_REFERENCE. The policy answers with the very weights that are
 * trained.
 *
 *     GrpoTask task = grpo_task(&spec);
 *     job.task = &task.task;                     // the task outlives the job
 *     job_plan(&j, &ring, &job, ...)             // or a search over it; then grpo_ring(&j) */
#ifndef GRPO_RING_H
#define GRPO_RING_H

#include "gen/gen.h"
#include "train/job.h"

#define GRPO_EVALUATOR "evaluator"
#define GRPO_REFERENCE "reference"

typedef enum ReferenceKind {
    REFERENCE_NONE,
    REFERENCE_BASE, /* the policy's own frozen weights, without its adapters */
    REFERENCE_MODEL /* weights of its own */
} ReferenceKind;

typedef struct GrpoSpec {
    bool has_evaluator;
    ModelSpec evaluator;
    bool reference_may_move, evaluator_may_move; /* nobody has said where their weights are */
    ReferenceKind reference_kind;
    ModelSpec reference; /* REFERENCE_MODEL */
    int64_t group;       /* answers to a prompt */
    int64_t prompt_tokens;
    int64_t answer_tokens;    /* the policy's; prompt and answer are a row of training */
    int64_t evaluator_tokens; /* the evaluator's answer, to the prompt and the policy's answer */
    int64_t slots;            /* answers at a time; 0: all of an update, up to GRPO_SLOTS */
    int64_t chunk;            /* prompt tokens of one pass */
    AttrPolicy loss;          /* clips, and the weight of the distance to the reference */
    bool exact;               /* answers are drawn from what the trainer computes: a phase draws them again */
    bool needs_old;           /* some update trains on answers of earlier weights (Batches.needs_old_logps) */
} GrpoSpec;
enum { GRPO_SLOTS = 64 };

typedef struct GrpoRing {
    Gen policy, evaluator; /* passes and caches; evaluator: none when there is none */
    Model reference;
    int phase_reference; /* -1: none */
    Tid reference_logp;  /* (N): read after each play */
    int phase_old;       /* the policy's own log-probabilities, as reference; -1: not needed */
    Tid old_logp;
    int phase_verify;    /* the policy's own log-probabilities, and the token each row draws; -1: not needed */
    Tid verify_logp;     /* (N): read after each play, as the next */
    Tid verify_how;      /* (N, DRAW_WORDS) */
    Tid verify_drawn;    /* (N) */
    /* inputs (N) of a micro-step beside the job's own; old, ref: NONE where there is none */
    Tid sampled, old, ref, advantage;
    Tid scored;  /* 1 for a token of an answer, else 0 */
    Tid facts;   /* (POLICY_FACTS): statistic of an update */
    Tid entropy; /* (1): the same, summed over the tokens of answers and divided by the job's divisor */
} GrpoRing;

enum { GRPO_SIDE_REFERENCE, GRPO_SIDE_EVALUATOR }; /* Task.side; offloaded layers are JobSpec.side_offload's */

typedef struct GrpoTask {
    Task task;
    GrpoSpec spec;
} GrpoTask;
GrpoTask grpo_task(const GrpoSpec *s);
static inline GrpoRing *grpo_ring(const Job *j) { return j->own; }

/* How often an update plays the passes of the answers, of the evaluator's, and the reference's. */
typedef struct GrpoPlays {
    int64_t prefill, decode, evaluator_prefill, evaluator_decode, reference;
} GrpoPlays;
GrpoPlays grpo_plays(const GrpoSpec *s, int64_t rows, int64_t micro_batches);

#endif
