/* sha256.h - SHA-256 (FIPS 180-4), a collision-resistant digest: for records in which a later change must be detected.
 * */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64, SHA256_HEX = 2 * SHA256_BYTES + 1 };

typedef struct Sha256 {
    uint32_t state[8];
    uint64_t bytes; /* taken so far */
    unsigned char block[SHA256_BLOCK];
} Sha256;

void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, int64_t bytes);
void sha256_end(Sha256 *s, unsigned char digest[SHA256_BYTES]);
void sha256_end_hex(Sha256 *s, char hex[SHA256_HEX]); /* lower case, with its end */

#endif
