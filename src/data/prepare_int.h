/* prepare_int.h - what the files of the preparation share with each other, and with nobody else. */
#ifndef DATA_PREPARE_INT_H
#define DATA_PREPARE_INT_H

#include "data/dataset_int.h"
#include "data/prepare.h"
#include "data/shard.h"

typedef struct PrepareInput {
    char *path; /* owns */
    FileFacts facts;
    int64_t rows, documents, dropped, tokens;
} PrepareInput;

typedef struct PreparePlace { /* where reading goes on */
    int64_t input;            /* of the list */
    int64_t at, line;         /* in it, unpacked; 0: from its beginning */
} PreparePlace;

/* What was decided, what is done: progress.json and manifest.json. */
typedef struct PrepareJob {
    const char *out; /* borrows, like o */
    const PrepareOptions *o;
    PrepareInput *input; /* owns */
    int64_t n_inputs, capacity;
    ShardFacts like;   /* of every shard */
    ShardFacts *shard; /* owns: those that are written */
    int64_t n_shards, shard_capacity;
    bool packed;        /* train.bin is there, in the place of shards */
    bool replaces;      /* what is in the folder, once there are tokens to write */
    PreparePlace place; /* behind the last shard */
} PrepareJob;

/* Lists the inputs, and finds what an earlier run has done. *done: all of it. */
bool prepare_job_open(PrepareJob *j, bool *done, const char *const *names, int n, Err *e);
void prepare_job_free(PrepareJob *j);
bool prepare_job_clear(PrepareJob *j, Err *e);        /* before the first shard: what is replaced goes away */
bool prepare_job_save(const PrepareJob *j, Err *e);   /* progress.json */
bool prepare_job_finish(const PrepareJob *j, Err *e); /* manifest.json; progress.json is removed */
void prepare_shard_path(char *to, size_t size, const PrepareJob *j, int64_t shard);
bool prepare_pack(PrepareJob *j, Err *e); /* train.bin and metadata.json of the shards, which are removed */

#endif
