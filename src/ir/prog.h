/* prog.h - a training step written down: tensors, steps, phases. Nothing here computes.
 *
 * Words
 *   Tensor   a named block of numbers. Its id (Tid) is its place in the program's list; NONE is no tensor.
 *   Step     one op on some tensors. A Program is a flat list of steps, in the order they were written down.
 *   Phase    a range of steps that is played as a whole, `repeat` times in a row (micro-step x accumulation).
 *   Ring     the phases in order, and round again: the life of a job. A tensor lives from its first to its last
 *            use on the ring, and one placement covers the whole ring.
 *   State    a tensor that outlives a play: weights, adapters, gradients, moments, caches, statistics.
 *
 * Rules (cited by number in code and tests)
 *   P1  an activation has one writer; a tensor may be a view of another, and disjoint parts of one base may have
 *       different writers. State, and what is staged of it, is changed in place by several.
 *   P2  what a side queue writes dies when it is awaited, not when it is issued; what a copy out reads stays until
 *       the next layer's copy out: whoever takes its bytes waits (P8), and by then hardly has to.
 *   P3  sharing a slot with an input is none, may or must, by the op's row; the planner decides, kernels never.
 *   P4  state changes only by steps that list it as output. State has versions: no pass moves or clones a read
 *       across a write, and a step that writes state is never cloned.
 *   P5  a pass keeps results bit-identical on the CPU unless it declares otherwise.
 *   P6  random numbers are keyed, never a stream; a clone keeps its key.
 *   P7  attributes are constants of the plan; whatever changes between two plays is a tensor (a dial).
 *   P8  after placement, waits between queues are derived from byte ranges. */
#ifndef IR_PROG_H
#define IR_PROG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ledger.h"
#include "base/mem.h"
#include "base/str.h"
#include "ir/attr.h"
#include "ir/format.h"

typedef int32_t Tid;
enum { NONE = 0, MAX_RANK = 4, MAX_IN = 11, MAX_OUT = 5, MAX_PHASES = 64 };

typedef enum Role {
    ROLE_INPUT,      /* written by the host before a phase is played */
    ROLE_DIAL,       /* a small input that changes between plays: learning rate, divisor, keys (P7) */
    ROLE_TABLE,      /* constants that stand in the program: rotary frequencies; written when it is opened */
    ROLE_ACTIVATION, /* one writer, dies after its last reader */
    ROLE_SCRATCH,    /* a step's workspace */
    ROLE_STAGED,     /* state on a visit to the device: copied in, changed by steps, copied back (plan/materialise) */
    ROLE_WEIGHT,     /* from here on: state */
    ROLE_ADAPTER,
    ROLE_MASTER,     /* fp32 twin of a trained weight */
    ROLE_MOMENT,
    ROLE_CORRECTION, /* of a trained weight (op_carry.c): offloaded with the moments, in no file */
    ROLE_STATISTIC,  /* loss sums, norms: read by the host after a play */
    ROLE_GRADIENT,   /* carried from the first micro-step to the update, dead elsewhere on the ring */
    ROLE_CACHE,      /* keys and values: carried from prefill to the last decode */
    ROLE_COUNT
} Role;

typedef enum Queue { QUEUE_COMPUTE, QUEUE_COPY_IN, QUEUE_COPY_OUT, QUEUE_DISK_IN, QUEUE_DISK_OUT, QUEUE_COUNT } Queue;
/* Which half of a layer's block a step belongs to: said by the model while it records, never guessed from op names. */
typedef enum Part { PART_NONE, PART_ATTENTION, PART_FFN } Part;
typedef enum Region {
    REGION_FORWARD,
    REGION_BACKWARD,
    REGION_RECOMPUTE,
    REGION_UPDATE,
    REGION_MOVE,
    REGION_COUNT
} Region;

typedef enum OpId {
#define OP(NAME, name, ins, outs) OP_##NAME,
#include "ir/ops.def"
    OP_COUNT
} OpId;

enum { /* how many operands an op has: N_IN_linear, N_OUT_linear */
#define IN(operand, marks) +1
#define OUT(operand, marks) +1
#define OP(NAME, name, ins, outs) N_IN_##name = 0 ins, N_OUT_##name = 0 outs,
#include "ir/ops.def"
};

/* Where a weight is kept and how. When it is not {device, its own format}, plan/materialise brings it in. */
typedef struct Home {
    Pool pool;
    Format stored; /* format at home */
    /* outside the device: a load phase that copies it in for all phases of its stay; 0: copied in for every use. On
     * the device: the load phase that puts it there. */
    int load;
} Home;

typedef struct Tensor {
    const char *name;      /* "layers.3.qkv"; keeps: the program's arena */
    const char *file_name; /* its name in an HF folder or adapter file; NULL when it is not a file's tensor */
    const char *model;     /* whose it is, where a program holds several; NULL: the one that has no name */
    int layer;             /* -1: none */
    Role role;
    Format format;
    int rank;
    int64_t dim[MAX_RANK]; /* (rows, ..., cols), dense, row-major */
    Tid base;              /* a view: whose bytes these are; NONE otherwise. Views are never views of views */
    int64_t view_bytes;    /* byte offset inside the base */
    const void *table;     /* ROLE_TABLE: its contents; keeps: the program's arena. NULL: the host puts them */
    Home home;             /* pool of this tensor's slot; stored format when it differs from `format` */
    bool in_file;          /* a weight: its model's file holds these very bytes. On disk, that file is the home */
    bool trainable;        /* weights and adapters: has a gradient and an update */
    bool needs_grad;       /* a gradient must flow through it */
    Tid grad;              /* of a trainable tensor: its gradient; NONE until backward is recorded */
    int recorded;          /* while recording: the last step that wrote it; -1: none. Passes do not keep it */

    /* filled by plan/ */
    int birth, death;      /* first and last step of its slot's life on the ring; -1: never used */
    Tid slot;              /* the tensor whose slot it shares (itself when its own) */
    int64_t bytes;         /* of its contents */
    int64_t offset;        /* in its pool's arena */
} Tensor;

typedef struct Step {
    OpId op;
    union { /* its operands, NONE where absent: by number in loops over all of them, by name where the op is known */
        struct {
            Tid in[MAX_IN], out[MAX_OUT];
        };
#define IN(operand, marks) Tid operand;
#define OUT(operand, marks) Tid operand;
#define OP(NAME, name, ins, outs)             \
    struct {                                  \
        struct {                              \
            ins Tid none[MAX_IN - N_IN_##name]; \
        } in;                                 \
        struct {                              \
            outs Tid none[MAX_OUT - N_OUT_##name]; \
        } out;                                \
    } name; /* step->linear.in.x, step->linear.out.y */
#include "ir/ops.def"
    };
    Attr attr;                    /* the op's own constants */
    Queue queue;
    Region region;
    int layer;                    /* -1: none */
    int clone_of;                 /* the step this one repeats; -1: an original */
    uint32_t key;                 /* names its random draws (P6) */
    bool fresh; /* the first writer of a gradient in a phase that does not repeat: it starts from nothing */
    uint8_t part;                 /* a Part; a gradient's step has that of the step it belongs to */
    Tid workspace;                /* scratch of this step; NONE when it needs none */
    int wait[QUEUE_COUNT];        /* filled by plan/: before it runs, that queue has finished this step; -1: no wait */
} Step;

/* The number of a named operand: OP_IN(linear, so_far) is 3. */
#define OP_IN(name, operand) ((int)((offsetof(Step, name.in.operand) - offsetof(Step, in)) / sizeof(Tid)))
#define OP_OUT(name, operand) ((int)((offsetof(Step, name.out.operand) - offsetof(Step, out)) / sizeof(Tid)))

typedef struct Phase {
    const char *name;
    int begin, end;  /* steps [begin, end) */
    int64_t repeat;  /* plays in a row; more than 1 carries gradients and caches across */
    double filled;   /* the share of a cache's slots that a play finds filled, on average, for its time; 0: all */
    int stay;        /* a load phase: the last phase that finds what it has copied in; 0: not a load phase */
} Phase;

typedef struct Program {
    Arena arena;    /* names */
    Tensor *t;      /* owns; t[0] is unused (NONE) */
    int64_t n_t, cap_t;
    Step *s;        /* owns */
    int64_t n_s, cap_s;
    Phase phase[MAX_PHASES];
    int n_phases;
    uint32_t next_key;

    /* where recording stands; stamped on what is recorded */
    const char *model; /* names of tensors and phases begin with it: "evaluator.layers.3.qkv"; NULL: they do not */
    int layer;
    Part part;
    Region region;
    Queue queue;
    Tid beta;  /* dial: 0 in the first micro-step of an update, 1 after it */
    Tid clock; /* dial: CLOCK_* words below */
} Program;

/* The words of the clock dial (i64): what random draws and roundings are keyed by. */
enum { CLOCK_KEY, CLOCK_FIRST_TOKEN, CLOCK_MICRO, CLOCK_STEP, CLOCK_WORDS };

void prog_init(Program *p);
void prog_free(Program *p);
void prog_copy(Program *to, const Program *from); /* to is initialised by this; for trying out passes */

int prog_begin_phase(Program *p, const char *name, int64_t repeat); /* gives the phase's number */
void prog_end_phase(Program *p);
/* A phase that copies in the weights whose home names it (Home.load). They stay on the device to the end of the ring,
 * or of the phase recorded last when prog_end_stay is called; whoever plays the ring plays it again when other phases
 * have taken their bytes. */
int prog_load_phase(Program *p, const char *name);
void prog_end_stay(Program *p, int load);
void prog_keys_of(Program *p, const char *phase); /* what follows draws as in a phase of that name (P6) */
int prog_find_phase(const Program *p, const char *name); /* -1 when absent */
int prog_phase_of(const Program *p, int step);

/* ---- tensors ---- */
#define DIMS(...) ((const int64_t[MAX_RANK]){__VA_ARGS__})
Tid prog_tensor(Program *p, const char *name, Role role, Format f, int rank, const int64_t *dim);
Tid prog_view(Program *p, const char *name, Tid base, int64_t first_row, int64_t rows); /* rows of a plain base */
Tid prog_like(Program *p, const char *name, Tid of); /* an activation of the same shape and format */
Tid prog_table(Program *p, const char *name, const float *values, int64_t n); /* constants (n) fp32; copied */
Tid prog_find(const Program *p, const char *name);   /* NONE when absent */

static inline Tensor *prog_t(const Program *p, Tid id) { return &p->t[id]; }
static inline Tid prog_base(const Program *p, Tid id) { return p->t[id].base ? p->t[id].base : id; }
int64_t prog_elements(const Program *p, Tid id);
int64_t prog_cols(const Program *p, Tid id); /* last dimension */
int64_t prog_rows(const Program *p, Tid id); /* all others together */
int64_t prog_bytes(const Program *p, Tid id);
int64_t prog_heap_bytes(const Program *p);    /* of the program itself, and of an executor that plays it */
bool prog_is_state(const Program *p, Tid id); /* weights ... caches */
const char *prog_region_name(Region r);

/* ---- steps ---- */
/* Appends a step; stamps layer, part, region, queue, key; checks it against its row. A BUG if it does not hold. */
int prog_emit(Program *p, Step s);
static inline Tid prog_first_out(const Step *s) { return s->out[0]; } /* the output a step is known by */
void prog_clear_operands(Step *s); /* all NONE: for a pass that makes another op of it */

/* ---- gradients ---- */
typedef struct Grads { /* g[t]: the gradient of tensor t so far; NONE when none has flowed */
    Tid *g;
    int64_t n;
} Grads;
/* Records the backward of phase steps [begin, now) from the given roots, each with its incoming gradient
 * (NONE: the root is a scalar loss and the gradient is 1). Nothing is recorded below the first trainable tensor. */
typedef struct Root {
    Tid tensor, grad;
} Root;
void prog_backward(Program *p, int begin, const Root *roots, int n_roots);

Tid grad_get(const Grads *g, Tid t);
void grad_flow(Program *p, Grads *g, Tid t, Tid contribution); /* a second contribution emits an add */
void grad_set(Grads *g, Tid t, Tid total);                     /* for rules that added what was there themselves */
/* The gradient tensor of a trainable weight. *beta: the dial to scale what is already there by, or NONE when an
 * earlier step of this program has written it, so that this one must add. */
Tid grad_of_weight(Program *p, Tid weight, Tid *beta);
bool prog_is_written(const Program *p, Tid t); /* while recording: by a step of the phase at hand, also by parts */

/* ---- reading ---- */
void prog_listing(Str *out, const Program *p); /* the program as text, one step a line */

#endif
