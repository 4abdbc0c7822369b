/* units.c - sizes as people write and read them. */
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool units_parse_bytes(const char *text, int64_t *bytes) {
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},                {"b", 1},
                 {"k", 1024.0},          {"ki", 1024.0},          {"kib", 1024.0},          {"kb", 1e3},
                 {"m", 1048576.0},       {"mi", 1048576.0},       {"mib", 1048576.0},       {"mb", 1e6},
                 {"g", 1073741824.0},    {"gi", 1073741824.0},    {"gib", 1073741824.0},    {"gb", 1e9},
                 {"t", 1099511627776.0}, {"ti", 1099511627776.0}, {"tib", 1099511627776.0}, {"tb", 1e12}};
    char *end;
    double value = strtod(text, &end);
    if (end == text || strpbrk(text, "xX") || !isfinite(value) || value < 0) return false; /* strtod reads 0x10 */
    while (isspace((unsigned char)*end)) end++;
    for (int i = 0; i < (int)(sizeof units / sizeof *units); i++) {
        if (strcasecmp(end, units[i].name)) continue;
        value *= units[i].factor;
        if (value > 9.0e18) return false;
        *bytes = (int64_t)value;
        return true;
    }
    return false;
}

UnitText units_bytes(int64_t bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    UnitText t;
    double v = (double)bytes;
    int i = 0;
    while (fabs(v) >= 1024 && i < 4) {
        v /= 1024;
        i++;
    }
    snprintf(t.s, sizeof t.s, i ? "%.2f %s" : "%.0f %s", v, names[i]);
    return t;
}

UnitText units_count(int64_t n) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)llabs(n)), at = 0;
    UnitText t;
    if (n < 0) t.s[at++] = '-';
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) t.s[at++] = ',';
        t.s[at++] = digits[i];
    }
    t.s[at] = 0;
    return t;
}

UnitText units_seconds(double seconds) {
    UnitText t;
    if (!(seconds >= 0) || seconds > 1e9)
        snprintf(t.s, sizeof t.s, "-");
    else if (seconds < 10)
        snprintf(t.s, sizeof t.s, "%.1f s", seconds);
    else if (seconds < 120)
        snprintf(t.s, sizeof t.s, "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(t.s, sizeof t.s, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(t.s, sizeof t.s, "%d h %02d min", (int)(seconds / 3600), (int)fmod(seconds / 60, 60));
    return t;
}
