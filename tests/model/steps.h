/* steps.h - a few updates of a small model on drawn rows, for tests that compare them. */
#ifndef TESTS_MODEL_STEPS_H
#define TESTS_MODEL_STEPS_H

#include "tests/test.h"
#include "train/job.h"

enum { STEPS_SEQ = 24, STEPS_ROWS = 2, STEPS_TOKENS = STEPS_SEQ * STEPS_ROWS, STEPS_VOCAB = 50, STEPS = 3 };

/* Rows of STEPS_SEQ tokens in two micro-batches of STEPS_ROWS: fp32, weights drawn by seed 4. */
JobSpec steps_spec(const ModelConfig *c, bool lora, uint32_t lora_targets);

/* Losses of STEPS updates, and where there is room those of the layers. `docs`: each row has two documents. */
void steps_train(const JobSpec *s, bool docs, double *loss, double *index_loss);

#endif
