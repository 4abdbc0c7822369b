/* grpo_setup.h - from options to the ring of a policy: its models, its batches, its loss. */
#ifndef CLI_GRPO_SETUP_H
#define CLI_GRPO_SETUP_H

#include "cli/gen_setup.h"
#include "grpo/answers.h"
#include "grpo/batches.h"
#include "grpo/items.h"
#include "grpo/layout.h"
#include "grpo/ring.h"
#include "grpo/score.h"

typedef struct GrpoSetup {
    GrpoSpec spec;
    GrpoTask task; /* of the spec; the job keeps it */
    Batches batches;
    Layouts layouts;                 /* owns */
    ModelFiles evaluator, reference; /* where their weights are */
    Items items, held_out;           /* owns */
    Words evaluator_words;           /* owns; no tokenizer: it has the policy's */
    int64_t remote_bytes;        /* of --evaluator-url; 0: there is none */
    const char *repeats; /* why prompts cannot be shared; NULL: they can */
    /* what an update of the fastest plan takes; 0: not asked (--share-prompts), or none fits */
    double shared_seconds, repeated_seconds;
} GrpoSetup;

/* Fills g and what of the job's spec belongs to it: seq, task, batches. g stays where it is while the job is used. */
bool grpo_setup(GrpoSetup *g, JobSpec *s, int64_t *global_batch, const Options *o, const ModelFiles *policy, Err *e);
void grpo_setup_free(GrpoSetup *g); /* zeros are fine */

/* MODEL[:HOW] of --evaluator or --reference; same: what "same" stands for. may_move: HOW does not say where it is. */
bool grpo_setup_side(ModelSpec *m, ModelFiles *files, bool *may_move, const char *flag, const char *text,
                     const ModelFiles *same, Err *e);

/* Those of --data or --eval-data (from); the latter, and all of grpo-eval, are counted by --eval-samples. */
bool grpo_setup_items(Items *out, const Options *o, OptId from, const Words *policy, Err *e);
/* Reads the items, and the words of an evaluator that has some. */
bool grpo_setup_read(GrpoSetup *g, const Options *o, const Words *policy, Err *e);

Sampling grpo_setup_evaluator_sampling(const Options *o);
GrpoGenerator grpo_setup_voice(const Words *w, const StopIds *stop, Sampling how); /* keeps both */
bool grpo_setup_remote(RemoteSpec *r, const Options *o, int64_t max_tokens, Err *e); /* --evaluator-url; keeps o */

enum { REWARD_COMMAND_WORDS = 64 };
typedef struct RewardSetup { /* stays where it is while the set is used */
    RewardSet set;
    ScorerSpec scorer;
    char *command; /* owns: the words of --reward-command, cut */
    const char *argv[REWARD_COMMAND_WORDS + 1];
} RewardSetup;
bool grpo_setup_rewards(RewardSetup *r, const Options *o, Err *e); /* gives: mem_free(r->command) */

/* Before the planner decides: what lies in rows, how many updates have, and who attends. Refuses prompts that are
 * to be shared where they cannot be. */
bool grpo_setup_shape(GrpoSetup *g, JobSpec *s, int64_t global_batch, const Options *o, MachineKind kind, Err *e);
/* Then, where nobody has said: whether prompts are shared, by the predicted times of both. */
void grpo_setup_layout(GrpoSetup *g, JobSpec *s, const Options *o, const Machine *m, const Words *policy,
                       FitLimits limits);
/* What a run takes of the host beside its ring. */
HostBytes grpo_setup_host(const GrpoSetup *g, const JobSpec *s, const Words *policy);
/* Of the whole run: --steps, or those of --epochs. */
int64_t grpo_setup_updates(const GrpoSetup *g, const Options *o, int64_t *per_epoch);

#endif
