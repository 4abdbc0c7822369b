/* plan.h - a recorded program becomes a placed one: passes that rewrite the list, then lifetimes, slots, offsets,
 * waits. Nothing here computes or allocates device memory, so planning works on any machine for any machine.
 *
 *     plan_lower                       every pass in its order (lower.c), told what to do by PlanChoices
 *       plan_adapters_first            turns sums around: other bits, the same numbers
 *       plan_sweep ... materialise     rewrite the list, keep the bits (P5)
 *       plan_all                       = workspaces, lifetimes, place, waits: what prog.h marks "filled by plan/"
 *     plan_verify                      shows from the bytes alone that the result is right
 *     plan_ledger, plan_step_seconds   what it costs
 * P1 to P8 are the rules of ir/prog.h. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/err.h"
#include "base/ledger.h"
#include "ir/op.h"

typedef struct Placement {
    int64_t arena_bytes[POOL_COUNT];       /* rounded up to pages */
    int64_t lower_bound_bytes[POOL_COUNT]; /* most bytes alive at one step: no placement can do with less */
    int peak_step;                         /* of the device pool: where that bound is reached first */
} Placement;

/* ---- passes ---- */

/* What a layer's forward does not keep for its backward. Each level drops more than the one before it. */
typedef enum RecomputeLevel {
    RECOMPUTE_NONE,
    RECOMPUTE_NORM,  /* outputs of norms and of SwiGLU: cheap to recompute */
    RECOMPUTE_FFN,   /* and everything between the second norm and the down projection */
    RECOMPUTE_BLOCK, /* everything but what enters the layer */
    RECOMPUTE_TWICE, /* the same; what attention needs after the feed-forward is recomputed again, not kept */
    RECOMPUTE_LEVELS
} RecomputeLevel;

const char *plan_recompute_name(RecomputeLevel level);

/* "ffn" for all layers, or parts such as "block:0-13,norm:14"; layers not named: none. */
bool plan_parse_recompute(RecomputeLevel *per_layer, int layers, const char *text, Err *e);

void plan_recompute(Program *p, const RecomputeLevel *per_layer, int layers);

/* Where an adapter covers all columns of its layer, the adapter's product comes first and the layer's GEMM adds to it:
 * the same sum, rounded in another order, with one pass over memory less. */
void plan_adapters_first(Program *p);

/* head_logp and head_logp_grad become one head_sweep where d(logp) does not depend on what the head gives. */
void plan_sweep(Program *p);

/* index_loss and its index_loss_grad become one step, in backward. */
void plan_join_losses(Program *p);

/* Chunked feed-forward: its tokens are computed in pieces of so many rows. Weight gradients are summed piece by piece,
 * so their bits change as they do with more accumulation; nothing else changes. */
void plan_chunk_ffn(Program *p, int64_t piece_rows);

/* Fuses an add and the norm behind it into one add_rmsnorm. */
void plan_fuse(Program *p);

/* Fuses a direct linear of a few rows over a quantised weight and the gate behind it into one linear_swiglu. */
void plan_gate(Program *p);

/* Optimizer in backward: in a phase that has both, steps of the update move from behind backward to where their
 * gradients are complete. */
void plan_update_early(Program *p);

/* Activation offload: the inputs of the first `layers` layers are kept in pinned memory between forward and backward.
 * late: an input is copied back only when attention of the layer before it in backward is done. */
void plan_offload(Program *p, int layers, bool late);

/* State whose home is not {device, own format} is brought in before use and, where steps write it, copied back. Its
 * format (and that of its views) becomes the stored one. Copies in are issued `ahead` layers before their use;
 * plan_materialise: one. */
void plan_materialise(Program *p);
void plan_materialise_ahead(Program *p, int ahead);

/* ---- the whole ---- */

/* What the passes are told. Zeros: everything is kept, whole, and at home on the device. */
typedef struct PlanChoices {
    const RecomputeLevel *recompute; /* per layer; borrowed for the call */
    int layers;                      /* that it speaks of; 0: nothing is recomputed */
    int64_t ffn_piece_rows;          /* 0: the feed-forward is not cut */
    int offload_inputs;              /* layers whose input waits in pinned memory */
    bool offload_late;
    bool update_early;
    bool keep_head_gradient_apart;   /* no sweep: only to compare */
    bool estimate;                   /* plan_estimate instead of plan_all: nothing can be played */
} PlanChoices;
Placement plan_lower(Program *p, const PlanChoices *c, const Machine *m);

/* ---- placing ---- */

void plan_workspaces(Program *p, const Machine *m); /* gives every step its scratch, as large as its row says */
void plan_lifetimes(Program *p);

typedef struct PlanOptions {
    const Machine *machine;
    bool share; /* outputs may take the slot of a dying input (P3) */
} PlanOptions;
Placement plan_place_with(Program *p, PlanOptions options);
Placement plan_place(Program *p, const Machine *m); /* with sharing */

void plan_waits(Program *p);

Placement plan_all(Program *p, const Machine *m);
/* The same without offsets and waits: arena_bytes are the lower bound, of which placement comes within 0.2 % (place.c).
 * A tenth of the time: for a search, whose answer is then placed. */
Placement plan_estimate(Program *p, const Machine *m);

/* Simulates the ring: every read finds what its writer wrote, whatever the planner believed about
 * lifetimes; one writer for an activation (P1); clones repeat their originals on the same state (P4, P6); slots
 * shared only by the row (P3); waits order every two steps that touch the same bytes (P8). */
bool plan_verify(const Program *p, Err *e);

/* ---- what it costs ---- */

/* Lines of every pool; those of the arena sum exactly to arena_bytes. What lives always is counted whole, what
 * comes and goes as it stands at the pool's peak step; "slack" is alignment, page rounding, and placement above
 * the bound. */
void plan_ledger(const Program *p, const Placement *pl, const Machine *m, Ledger *l);

/* Of the disk pool, what a model's own files hold (Tensor.in_file). */
int64_t plan_file_bytes(const Program *p);

/* Expected seconds of one play of a phase; phase -1: of the whole ring, repeats counted. */
double plan_step_seconds(const Program *p, const Machine *m, int phase);

/* Products and attention of one play of a phase, without what recompute does a second time. */
double plan_useful_flops(const Program *p, int phase);

/* Bytes alive in a pool, step by step and by ledger line: what a picture of the step shows (timeline.c). At the pool's
 * peak they are the ledger's. */
typedef struct Timeline {
    int n_lines, n_steps;
    const char *name[32]; /* of a line; only lines that are ever there */
    int64_t *bytes;       /* owns: of line k at step i at [k * n_steps + i] */
    int peak_step;
    int64_t peak_bytes;   /* sum of the lines there */
} Timeline;
void plan_timeline(Timeline *t, const Program *p, const Machine *m, Pool pool);
void plan_timeline_free(Timeline *t);

/* The tensors behind it: who counts for the bytes of a slot, and when. */
typedef struct Stay {
    Tid tensor, slot;
    int birth, death; /* it counts from this step to that one; death before birth: never */
    int line;         /* of the ledger: plan_line_name */
} Stay;
int64_t plan_stays(Stay **out, const Program *p, Pool pool); /* by slot and birth; gives their number, *out: mem_free */
const char *plan_line_name(int line);

#endif
