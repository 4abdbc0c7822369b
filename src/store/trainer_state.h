/* trainer_state.h - where a run stands: trainer_state.json, readable by Hugging Face's tools, enough to go on.
 *
 * The fields and their names are those of Hugging Face's TrainerState. What snug needs besides stands in the
 * object stateful_callbacks.snug: their reader refuses unknown names at the top. */
#ifndef STORE_TRAINER_STATE_H
#define STORE_TRAINER_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* One row of log_history. A value that is not finite is stored as null. */
typedef struct TrainerLog {
    int64_t step;
    double epoch;
    bool is_eval;                    /* loss is eval_loss, and the two below are not stored */
    double loss;                     /* mean over the scored tokens since the row before */
    double grad_norm, learning_rate;
} TrainerLog;

typedef struct TrainerSetting {
    char *name, *value; /* owns */
} TrainerSetting;

typedef struct LossScale { /* fp16: gradients are computed `scale` times too large, so that small ones are kept */
    double scale;          /* of the next update; 1: not scaled */
    int64_t good;          /* updates since it last changed */
    int64_t skipped;       /* updates that wrote nothing, so far */
} LossScale;

typedef struct RunningMean { /* weighted exponentially, over n numbers so far */
    double mean, variance;
    int64_t n;
} RunningMean;

typedef struct SpikeState { /* what the next update's loss and gradient norm are measured by */
    RunningMean loss, norm;
    int64_t skipped_in_a_row; /* updates before it that wrote nothing */
} SpikeState;

typedef struct TrainerState {
    int64_t global_step, max_steps;
    double epoch;
    int64_t num_train_epochs;
    int64_t logging_steps, eval_steps, save_steps;
    int64_t train_batch_size;         /* rows of a micro-batch */

    int64_t best_step;                /* -1: nothing evaluated yet */
    double best_metric;
    char best_model_checkpoint[1024];

    TrainerLog *log;                  /* owns */
    int64_t n_log, log_capacity;

    /* snug's own */
    int64_t data_epoch, data_row;     /* the next row to be read, counted within its epoch */
    uint64_t shuffle_seed, rng_seed;
    int64_t tokens_seen;
    /* summed over the scored tokens since the last row of the log, and their number */
    double unlogged_loss;
    int64_t unlogged_tokens;
    int64_t micro_batches;            /* per update, over all ranks */
    LossScale scaling;
    SpikeState spikes;
    int64_t warmup_steps, schedule_steps; /* of the learning rate; -1: written before they were kept */
    bool passing;                     /* this checkpoint stands only until a newer one does */
    TrainerSetting *setting;          /* owns: the settings that change the mathematics */
    int64_t n_settings, settings_capacity;
} TrainerState;

void trainer_state_init(TrainerState *s);
void trainer_state_free(TrainerState *s);
void trainer_state_copy(TrainerState *to, const TrainerState *from); /* gives */

/* Room for this many rows, so that logging does not allocate later. */
void trainer_state_reserve_log(TrainerState *s, int64_t rows);
void trainer_state_log(TrainerState *s, const TrainerLog *row);

void trainer_state_set(TrainerState *s, const char *name, const char *value); /* replaces an earlier value */
void trainer_state_set_all(TrainerState *s, const json_t *texts); /* {name: value}; NULL: none */

/* Refuses, naming each with both values, when the settings of a checkpoint and of this run differ. How long the run is
 * does not count: max_steps says it. */
bool trainer_state_check_settings(const TrainerState *saved, const TrainerState *now, Err *e);

bool trainer_state_write(const char *folder, const TrainerState *s, Err *e);
int64_t trainer_state_bytes(const TrainerState *s, int64_t more_rows); /* its file at most, with so many rows more */
bool trainer_state_read(TrainerState *s, const char *folder, Err *e); /* inits s; on failure nothing to free */

/* Is there a trainer_state.json that can be parsed? If not, e says why. passing (may be NULL): see above. */
bool trainer_state_look(const char *folder, bool *passing, Err *e);
static inline bool trainer_state_is_whole(const char *folder, Err *e) { return trainer_state_look(folder, NULL, e); }

#endif
