/* weights_int.h - a tensor of a file as a stream of numbers, whatever its stored format, converted to another format.
 * */
#ifndef WEIGHTS_WEIGHTS_INT_H
#define WEIGHTS_WEIGHTS_INT_H

#include "base/threads.h"
#include "ir/prog.h"
#include "store/bnb.h"

enum { PIECE = 1 << 16 }; /* numbers converted at a time */

/* In the metadata of a file of ours whose projections are quantised: the name of their format. */
#define QUANTISED_KEY "snug_quantised"
#define QUANTISED_HEAD_KEY "snug_quantised_head" /* the same of the head, where it is */

typedef struct Piece { /* one conversion's scratch */
    char raw[PIECE * 8];
    float value[PIECE];
} Piece;

/* A plain format as a file names it; blocked formats travel as bytes. */
static inline StDtype weights_dtype(Format f) {
    return f == FMT_F32 ? ST_F32 : f == FMT_BF16 ? ST_BF16 : f == FMT_F16 ? ST_F16 : ST_U8;
}

static inline bool weights_in_optimizer(const Tensor *t) {
    return !t->base && (t->role == ROLE_MOMENT || t->role == ROLE_MASTER);
}

typedef struct Chosen { /* tensors of one file, in writing order */
    Tid *id;
    StTensor *entry;
    int64_t n, capacity_id, capacity_entry;
} Chosen;
StTensor *chosen_add(Chosen *c, const Program *p, Tid id, const char *name, StDtype dtype); /* with its shape */
void chosen_free(Chosen *c);

typedef struct Source {
    const StSet *s;    /* keeps */
    const StTensor *f;
    Format format;     /* of the stored numbers; of a tensor by bitsandbytes: fp32 after dequantising */
    bool is_bnb;
    BnbTensor bnb;
} Source;

/* Finds the tensor; a missing one, another shape or a dtype that is not a weight's is refused by name. */
bool source_open(Source *o, const StSet *s, const char *name, int rank, const int64_t *dim, Err *e);

/* Stored bytes in the new format, a range at a time, from the first byte to the last. */
typedef bool SinkFn(void *context, const void *data, int64_t at, int64_t bytes, Err *e);

/* The same n numbers as `to` (rows of cols), a few rows at a time: a model is never held twice. What is not finite
 * is refused where it would be hidden by quantising. */
bool source_convert(const Source *o, Piece *piece, Format to, int64_t n, int64_t cols, SinkFn *sink, void *context,
                    Err *e);

#endif
