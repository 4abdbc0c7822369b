/* identity.h - which model a folder holds, as one number, without reading all of it. */
#ifndef STORE_IDENTITY_H
#define STORE_IDENTITY_H

#include <stdint.h>

#include "base/err.h"

/* Of config.json, adapter_config.json and the tokenizer's files as a whole, and of every .safetensors file its
 * name, its length and samples of its bytes, head and tail included: other weights of the same shape give another
 * number. */
bool identity_of(uint64_t *out, const char *folder, Err *e);

#endif
