/* hf.h - where a model's folder is, and which small files belong to it besides configuration and weights. */
#ifndef STORE_HF_H
#define STORE_HF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* model: a folder with config.json, or a hub id ("owner/name") in the local Hugging Face cache, whose folder is `cache`
 * (NULL: there is none). found false without an error: it is neither. A folder or a cache entry that is there but
 * cannot be used is an error. */
bool hf_resolve(char *out_path, size_t size, bool *found, const char *model, const char *cache, Err *e);

/* Copies tokenizer files, chat templates and generation_config.json, those that are there. Not config.json, not
 * weights. */
bool hf_copy_side_files(const char *from_folder, const char *to_folder, Err *e);
int64_t hf_side_bytes(const char *from_folder, int *files); /* of those; adds their number to *files */

#endif
