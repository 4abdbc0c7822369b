/* safetensors.h - tensors by name in one file or in the shards of a folder, read and written.
 *
 * The format: 8 bytes header length (little endian), a JSON header, then the data area. The header says for each
 * tensor its dtype, shape and [begin, end) within the data area; together they cover it without holes. */
#ifndef STORE_SAFETENSORS_H
#define STORE_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

typedef enum StDtype {
    ST_F64, ST_F32, ST_F16, ST_BF16, ST_I64, ST_I32, ST_I16, ST_I8, ST_U8, ST_BOOL,
    ST_U64, ST_U32, ST_U16, ST_F8_E4M3, ST_F8_E5M2,
    ST_DTYPE_COUNT
} StDtype;

enum { ST_MAX_RANK = 8, ST_MAX_FILES = 4096 };

typedef struct StTensor {
    const char *name; /* keeps: owned by the set it came from, or by the caller who writes */
    StDtype dtype;
    int rank;
    int64_t dim[ST_MAX_RANK];
    int64_t offset; /* of the first byte in its file */
    int64_t bytes;
    int file;       /* which file of the set */
} StTensor;

const char *st_dtype_name(StDtype dtype);               /* "BF16" */
int st_dtype_bytes(StDtype dtype);                      /* of one element */
int64_t st_tensor_bytes(const StTensor *t);             /* from dtype and shape; -1: negative or too large */

typedef struct StPair {
    const char *key, *value;
} StPair;

/* One file, or all the shards named by model.safetensors.index.json. Opening reads the headers only. */
typedef struct StSet {
    StTensor *tensor;         /* by file, then by place in the file: this order reads forward; owns */
    int64_t n, capacity;
    const StTensor **by_name; /* the same tensors in the order of their names */
    int64_t total_bytes;      /* of all tensors */
    char **path;              /* of each file */
    int *fd;
    int n_files;
    StPair *meta;             /* __metadata__ of the first file */
    int n_meta;
    Arena arena;              /* owns the names, paths and tables */
} StSet;

/* A folder: its model.safetensors, else model.safetensors.index.json and its shards, else
 * adapter_model.safetensors. Or a .safetensors file, or a .index.json file. On failure nothing stays open. */
bool st_open(StSet *s, const char *folder_or_file, Err *e);
void st_close(StSet *s);
int64_t st_bytes_of(const char *folder); /* of its tensors; 0: it cannot be read, which is said where it is */

const StTensor *st_find(const StSet *s, const char *name);  /* NULL when absent; borrows from s */
const char *st_meta(const StSet *s, const char *key);       /* NULL when absent; borrows from s */

/* Any byte range of the tensor, straight into `to`. May be called from several threads. */
bool st_read(const StSet *s, const StTensor *t, void *to, int64_t at_byte, int64_t bytes, Err *e);

/* Writing: all sizes are declared first, then the data is streamed in the declared order. A file appears under its
 * name only when complete. Of each tensor name, dtype, rank and dim are read; names are copied.
 * Readers map the data as typed arrays, so a tensor that would not begin at a multiple of its element size is
 * refused: declare wide types before narrow ones. meta_pairs is key, value, ..., NULL, or NULL; "format": "pt" is
 * always written. */
typedef struct StWriter StWriter;
bool st_write_begin(StWriter **w, const char *path, const StTensor *tensors, int64_t n,
                    const char *const *meta_pairs, Err *e);

/* The same into a folder: model.safetensors when everything fits in max_shard_bytes (0: no limit), otherwise
 * model-00001-of-0000N.safetensors and so on with their model.safetensors.index.json. A tensor is never split.
 * Meant for a folder that is itself being written (folder.h): an abort removes the shards that are already
 * complete. */
bool st_write_folder_begin(StWriter **w, const char *folder, const StTensor *tensors, int64_t n,
                           int64_t max_shard_bytes, const char *const *meta_pairs, Err *e);

/* Continues the current tensor and moves on when it is complete. After a failure: st_write_abort. */
bool st_write_data(StWriter *w, const void *data, int64_t bytes, Err *e);
bool st_write_end(StWriter *w, Err *e);  /* refuses when bytes are missing; frees w either way */
void st_write_abort(StWriter *w);        /* leaves no file of this writer behind; NULL is fine */
bool st_write_close(StWriter *w, bool ok, Err *e); /* end, or where it is not ok abort: gives whether all is there */

/* From here on st_write_data is refused once the process was asked to leave (base/stop.h). */
void st_write_interruptible(StWriter *w);

/* The customary size of a shard, 5 GB, or what a limit on file sizes (ulimit -f) leaves of it. A file that such a
 * limit would cut is refused (ERR_BUDGET) before any is begun. */
int64_t st_shard_bytes(void);

/* What the files of such a writer will hold, to the byte, before one is begun. folder: of st_write_folder_begin. */
typedef struct StSizes {
    int64_t bytes;   /* of all files, headers and index included */
    int64_t largest; /* of one of them */
    int files;
} StSizes;
bool st_write_sizes(StSizes *sizes, const StTensor *tensors, int64_t n, bool folder, int64_t max_shard_bytes, Err *e);

/* Which shard each tensor goes to, in the given order: fills file and bytes of each tensor. */
bool st_shard_plan(StTensor *tensors, int64_t n, int64_t max_shard_bytes, int *n_files, Err *e);

#endif
