/* sha256.c - the compression function and the padding of SHA-256. */
#include "base/sha256.h"

#include <string.h>

#include "base/check.h"

static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void expand(uint32_t w[64], const unsigned char *block) {
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               (uint32_t)block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
}

/* One round; instead of moving the eight words along, the next round names them one further. */
static inline void play_round(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g,
                              uint32_t *h, uint32_t added) {
    uint32_t choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
    uint32_t one = *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + added;
    *d += one;
    *h = one + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
}

static void compress(Sha256 *s, const unsigned char *block) {
    uint32_t w[64], a = s->state[0], b = s->state[1], c = s->state[2], d = s->state[3], e = s->state[4],
                    f = s->state[5], g = s->state[6], h = s->state[7];
    expand(w, block);
    for (int i = 0; i < 64; i++) w[i] += round_constant[i];
    for (int i = 0; i < 64; i += 8) {
        play_round(a, b, c, &d, e, f, g, &h, w[i]);
        play_round(h, a, b, &c, d, e, f, &g, w[i + 1]);
        play_round(g, h, a, &b, c, d, e, &f, w[i + 2]);
        play_round(f, g, h, &a, b, c, d, &e, w[i + 3]);
        play_round(e, f, g, &h, a, b, c, &d, w[i + 4]);
        play_round(d, e, f, &g, h, a, b, &c, w[i + 5]);
        play_round(c, d, e, &f, g, h, a, &b, w[i + 6]);
        play_round(b, c, d, &e, f, g, h, &a, w[i + 7]);
    }
    const uint32_t now[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) s->state[i] += now[i];
}

void sha256_begin(Sha256 *s) {
    *s = (Sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(Sha256 *s, const void *data, int64_t bytes) {
    const unsigned char *from = data;
    while (bytes > 0) {
        int64_t have = (int64_t)(s->bytes % SHA256_BLOCK), n = MIN2(SHA256_BLOCK - have, bytes);
        memcpy(s->block + have, from, (size_t)n);
        s->bytes += (uint64_t)n;
        from += n;
        bytes -= n;
        if (have + n == SHA256_BLOCK) compress(s, s->block);
    }
}

void sha256_end(Sha256 *s, unsigned char digest[SHA256_BYTES]) {
    static const unsigned char padding[SHA256_BLOCK] = {0x80};
    uint64_t bits = 8 * s->bytes;
    int64_t have = (int64_t)(s->bytes % SHA256_BLOCK);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, padding, (have < 56 ? 56 : 120) - have);
    sha256_add(s, length, sizeof length);
    for (int i = 0; i < SHA256_BYTES; i++) digest[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_end_hex(Sha256 *s, char hex[SHA256_HEX]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[SHA256_BYTES];
    sha256_end(s, digest);
    for (int i = 0; i < SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * SHA256_BYTES] = 0;
}
