/* weights.h - moves parameters between their files (or a random start) and their planned slots, without ever holding
 * them twice. */
#ifndef WEIGHTS_WEIGHTS_H
#define WEIGHTS_WEIGHTS_H

#include "base/threads.h"
#include "exec/exec.h"
#include "model/model.h"
#include "store/safetensors.h"

/* ---- random starts (start.c) ---- */

AttrFill weights_fill(const ModelConfig *c, const char *file_name, uint64_t seed); /* how a parameter starts */
/* In the phase at hand: the model's fresh adapters and, where it is not loaded, its weights. */
void weights_record_start(Program *p, const Model *m);

/* ---- files (load.c, save.c) ---- */

/* Reads every tensor of that role (weights or adapters) of that model (Model.name) from a folder into its slot,
 * converting dtypes and quantising on the way. A tensor that is missing or has another shape is refused by name. */
bool weights_load(Exec *x, const char *model, Role role, const char *folder, Err *e);

/* Writes them, those of the model without a name: model.safetensors (in shards of at most 5 GB) or
 * adapter_model.safetensors. */
bool weights_save(Exec *x, Role role, const char *folder, Err *e);

/* What weights_save and weights_save_optimizer will write, to the byte; from the plan alone. */
bool weights_sizes(StSizes *s, const Program *p, Role role, Err *e);
bool weights_optimizer_sizes(StSizes *s, const Program *p, Err *e);

/* Moments and masters under the program's own names, bit for bit. */
bool weights_save_optimizer(Exec *x, const char *path, Err *e);
bool weights_load_optimizer(Exec *x, const char *path, Err *e);

/* Masters start as what their weights hold. */
void weights_start_masters(Exec *x);

/* ---- models made without a run (make.c) ---- */

/* A random model as an HF folder, written tensor by tensor; the same for any number of threads. A signal interrupts
 * this and what follows (base/stop.h). */
bool weights_write_random(const ModelConfig *c, const char *folder, uint64_t seed, int threads, Err *e);

/* A model of which the folder holds a part, written whole: what is missing there is drawn, the rest is the same
 * numbers as c->dtype. *drawn: how many tensors that were. */
bool weights_complete(const ModelConfig *c, const char *model_folder, const char *out_folder, uint64_t seed,
                      int threads, int64_t *drawn, Err *e);

/* The same model with the projections of its layers stored as c->quant_format (weights_int.h: rows as bytes), with
 * c->quant_head its head as int8, and the rest as c->dtype; read tensor by tensor from a plain folder or one by
 * bitsandbytes. */
bool weights_quantise(const ModelConfig *c, const char *model_folder, const char *out_folder, Err *e);
/* All of it is there, in shape. *bytes: of the files that will hold it. */
bool weights_check_quantise(const ModelConfig *c, const char *model_folder, int64_t *bytes, Err *e);

uint64_t weights_checksum(Exec *x, Role role); /* of all bytes, in program order */
uint64_t weights_digest(Exec *x, Role role);   /* the same purpose, made by all threads: for states of a step log */

/* Its parts: of up to a few ten thousand bytes, and one after the other. */
uint64_t weights_digest_block(const void *data, int64_t bytes);
uint64_t weights_digest_mix(uint64_t sum, uint64_t of_block);

/* For moving that many bytes: gives a team (threads_close), or NULL where one thread is enough, or there are no more.
 * What reads or hashes gigabytes waits for one processor otherwise. */
Threads *weights_team(int64_t bytes);

/* base + scale * B A into a new folder, some rows at a time. */
bool weights_merge(const char *model_folder, const char *adapter_folder, const char *out_folder, int threads, Err *e);
bool weights_check_merge(const char *model_folder, const char *adapter_folder, Err *e); /* they belong together */

/* Heap that these take beside threads: a stretch of numbers, as read and as written, names and headers; for a
 * merge also the adapter's largest pair. adapter_folder: NULL for the others. */
/* Beside them: config.json, by which a folder is a model. */
bool weights_write_config(const ModelConfig *c, const char *folder, Err *e);
bool weights_make_bytes(int64_t *bytes, const ModelConfig *c, const char *adapter_folder, Err *e);

#endif
