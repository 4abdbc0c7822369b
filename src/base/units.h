/* units.h - sizes as people write them: "24GiB", "1.5GB", "512MiB", "4096". */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

typedef struct UnitText {
    char s[32];
} UnitText;

bool units_parse_bytes(const char *text, int64_t *bytes);
UnitText units_bytes(int64_t bytes);    /* "22.53 GiB", "512 B" */
UnitText units_count(int64_t n);        /* "7,615,616,512" */
UnitText units_seconds(double seconds); /* "3 h 12 min", "42 s" */

static inline int64_t units_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

#endif
