/* llama2c.h - llama2.c's model.bin files, turned into Hugging Face folders. */
#ifndef STORE_LLAMA2C_H
#define STORE_LLAMA2C_H

#include <signal.h>
#include <stdbool.h>

#include "base/err.h"

/* Writes config.json and model.safetensors (fp32) into out_folder, which must not exist or be empty. Streams:
 * takes about one attention head's rows of memory, whatever the size of the model. stop: see st_write_until. */
bool llama2c_convert(const char *bin, const char *out_folder, const volatile sig_atomic_t *stop, Err *e);

#endif
