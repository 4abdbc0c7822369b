/* unpack.h - streaming decompression: a file's bytes as they are read, unpacked where it is compressed (gzip, zstd).
 * It exposes nothing else of the two libraries. A build without one of them refuses its files by name. */
#ifndef DATA_UNPACK_H
#define DATA_UNPACK_H

#include <stdint.h>

#include "base/err.h"

typedef struct Unpack Unpack;

/* Looks at the beginning of a file that is open and can be read at any place. *u NULL: it is not compressed.
 * Borrows fd and keeps path. Gives: unpack_close. */
bool unpack_open(Unpack **u, int fd, const char *path, Err *e);
void unpack_close(Unpack *u);                                              /* NULL is fine */
bool unpack_read(Unpack *u, void *to, int64_t *got, int64_t room, Err *e); /* 0: the end */
int64_t unpack_packed_bytes(const Unpack *u);                              /* of the file, read so far */

enum { UNPACK_MOST_BYTES = 36 << 20 }; /* memory that it takes at most; a file that wants more is refused */

/* "gzip" or "zstd", told by the first n bytes of a file; NULL: neither. */
const char *unpack_format(const char *bytes, int64_t n);

/* Bytes of the name without ".gz" or ".zst": what the file is called once it is unpacked. */
int64_t unpack_name_bytes(const char *path);

#endif
