/* zlib.h - the compressed size of a text, by zlib, which is loaded at run time. */
#ifndef BASE_ZLIB_H
#define BASE_ZLIB_H

#include <stdint.h>

int64_t zlib_bytes(const char *text, int64_t bytes); /* at its usual level; -1: there is no zlib */

#endif
