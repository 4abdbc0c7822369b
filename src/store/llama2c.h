/* llama2c.h - llama2.c's model.bin files, turned into Hugging Face folders. */
#ifndef STORE_LLAMA2C_H
#define STORE_LLAMA2C_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Whether the file is such a model; gives its number of tokens. */
bool llama2c_check(const char *bin, int64_t *vocab, Err *e);

/* Writes config.json and model.safetensors (fp32) into out_folder, which must not exist or be empty. Streams:
 * takes about one attention head's rows of memory, whatever the size of the model. */
bool llama2c_convert(const char *bin, const char *out_folder, Err *e);

#endif
