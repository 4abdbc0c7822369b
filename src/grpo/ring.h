/* ring.h - group-relative policy optimisation (GRPO) as one planned ring: a policy that generates and is trained, an
 * evaluator that reads its answers, a reference for the KL term.
 *
 * The phases, in the ring's order: init; the evaluator's passes over its cache (evaluator.prefillN, evaluator.decodeN);
 * the policy's (prefillN, decodeN); reference (log-probabilities of a micro-batch); old (the same of the policy
 * itself, where answers are trained on more than once); micro x accumulation; update. A rollout begins with the
 * policy's. Each is recorded by the room that runs it (gen, train), all into one program, so one placement covers
 * them, and memory of one phase is reused by the next. Frozen weights may be loaded by phase: they are kept in pinned
 * memory, the phase evaluator.load copies the evaluator's in before it answers, load the policy's base when the
 * evaluator is done, and both take the same bytes. The evaluator stands first, so that the policy's base stays from one
 * evaluation to the next. The policy's tensors have no prefix, the others' names begin with GRPO_EVALUATOR or
 * GRPO_REFERENCE. The policy generates with the very weights that are trained.
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
    bool reference_may_move, evaluator_may_move; /* the planner may choose where their weights are kept */
    ReferenceKind reference_kind;
    ModelSpec reference; /* REFERENCE_MODEL */
    bool share_prompts;  /* answers of a group share a row and the prompt in front of them (layout.h) */
    int64_t group;       /* answers to a prompt */
    int64_t prompt_tokens;
    int64_t answer_tokens;    /* the policy's; prompt and answer are a row of training */
    int64_t expected_tokens;  /* of an answer on average, for predicted times; 0: answer_tokens */
    int64_t evaluator_tokens; /* the evaluator's answer, to the prompt and the policy's answer */
    int64_t slots;            /* answers at a time; 0: all of an update, up to GRPO_SLOTS, fewer where memory asks */
    int64_t chunk;            /* prompt tokens of one pass */
    AttrPolicy loss;          /* clips, and the weight of the distance to the reference */
    bool exact;               /* answers are drawn from what the trainer computes: a phase draws them again */
    bool policy_is_frozen;    /* only adapters are trained: its base may come by phase */
    bool weights_stay;        /* pinned memory is the device's own, or --offload says so: none come by phase */
    bool needs_old;           /* some update trains on answers of earlier weights (Batches.needs_old_logps) */
} GrpoSpec;
enum { GRPO_SLOTS = 64 };
static inline int64_t grpo_expected_tokens(const GrpoSpec *s) {
    return s->expected_tokens ? s->expected_tokens : s->answer_tokens;
}

typedef struct GrpoRing {
    /* passes and caches; evaluator: none when there is none. A voice whose weights come by phase is loaded (gen_load)
     * before it answers, and the policy before it is trained, whenever the other one was loaded in between. */
    Gen policy, evaluator;
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
    Tid prefix;  /* (N, 2): what a token sees in front of its answer, as rollout.h lays it; NONE: rows are not
                    shared */
    Tid scored;  /* 1 for a token of an answer, else 0 */
    Tid facts;   /* (POLICY_FACTS): statistic of an update */
    Tid entropy; /* (1): the same, summed over the tokens of answers and divided by the job's divisor */
} GrpoRing;

enum { GRPO_SIDE_REFERENCE, GRPO_SIDE_EVALUATOR }; /* Task.side; offloaded layers are JobSpec.side_offload's */

typedef struct Layouts Layouts;
typedef struct GrpoTask {
    Task task;
    GrpoSpec spec;
    const Layouts *layouts; /* layout.h; NULL: of an update's rows nothing is known. Keeps */
} GrpoTask;
GrpoTask grpo_task(const GrpoSpec *s);
static inline GrpoRing *grpo_ring(const Job *j) { return j->own; }

/* What the savings of the task (JobSpec.task_saving) do: first the evaluator's weights are loaded by phase, then the
 * policy's base too, then fewer answers are generated at a time, the evaluator's first: it has the longer rows. */
typedef struct GrpoSavings {
    bool policy_by_phase, evaluator_by_phase;
    int64_t policy_slots, evaluator_slots;
} GrpoSavings;
GrpoSavings grpo_savings_at(const GrpoSpec *s, int saving, int64_t rows);

/* How often an update plays the passes of the answers, of the evaluator's, and the reference's. */
typedef struct GrpoPlays {
    int64_t prefill, decode, evaluator_prefill, evaluator_decode, reference;
} GrpoPlays;
GrpoPlays grpo_plays(const GrpoSpec *s, const GrpoSavings *v, int64_t rows, int64_t micro_batches);

#endif
