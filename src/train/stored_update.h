/* stored_update.h - u[t] = theta[t+1] - theta[t] as a file of a step log: of which tensors, in which format, and how
 * far that format is off.
 *
 * A safetensors file with every trained tensor under the program's name. fp32 and bf16: its numbers. int8: bytes, for
 * every STORED_TILE numbers their codes and then a scale for each FORMAT_MOMENT_BLOCK of them. theta is the fp32 twin
 * where there is one. The digest is of the tiles in order, so that many threads can read, check and use a file in one
 * pass. */
#ifndef TRAIN_STORED_UPDATE_H
#define TRAIN_STORED_UPDATE_H

#include "base/threads.h"
#include "exec/exec.h"
#include "store/history.h"
#include "store/safetensors.h"

enum { STORED_TILE = 1 << 14, STORED_TILE_BYTES = 4 * STORED_TILE };

typedef struct StoredTensor {
    Tid theta; /* the slot whose update it is: a weight or its master */
    int64_t count;
    int64_t at;     /* of its first byte, in an image of all of them */
    int64_t before; /* the same in a copy of theta */
    int64_t first_tile;
} StoredTensor;

typedef struct StoredTile { /* what a thread finds about one */
    uint64_t digest;
    double uu, dd; /* squares of u; of what the format leaves of it */
} StoredTile;

typedef struct StoredUpdate {
    Format format;
    StoredTensor *tensor; /* owns */
    StTensor *entry;      /* owns; in the file */
    int n;
    int64_t image_bytes, before_bytes, tiles;
    char *before, *image; /* own; NULL: no update is taken */
    StoredTile *tile;     /* owns; the same */
} StoredUpdate;

bool stored_format(Format *f, const char *name); /* fp32, bf16 or int8; false: another word */
const char *stored_format_name(Format f);

void stored_lay_out(StoredUpdate *s, const Program *p, Format f); /* gives: stored_free */
void stored_free(StoredUpdate *s);                                /* all zero is fine */
int64_t stored_host_bytes(const StoredUpdate *s);                 /* that taking updates holds */
bool stored_file_bytes(const StoredUpdate *s, int64_t *bytes, Err *e);

void stored_begin(StoredUpdate *s, Exec *x); /* theta stands in the slots */
/* An update later: u, as it will be written. */
HistoryUpdate stored_take(StoredUpdate *s, Exec *x, int64_t step);
bool stored_write(const StoredUpdate *s, const char *path, Err *e); /* what was taken last */

/* ---- reading ---- */

typedef struct StoredSource {
    StoredUpdate layout;
    StSet set;
    const StTensor **found; /* owns; of each tensor */
    HistoryUpdate known;
    char path[1200];
} StoredSource;

/* The file of that update, of this program. One that is missing, cut short or of another shape is refused by name. */
bool stored_open(StoredSource *s, const Program *p, const char *folder, const HistoryUpdate *known, Err *e);
void stored_close(StoredSource *s);
/* fn gets all of its numbers, a tile at a time, in any order and several at once. False: a read was refused, or these
 * are not the bytes that were logged: what fn has made of them is void. */
typedef void StoredFn(void *context, int tensor, int64_t tile, int64_t at, const float *u, int64_t n);
bool stored_read(StoredSource *s, Threads *team, StoredFn *fn, void *context, Err *e);

#endif
