/* growth.c - when memory that should stay constant has grown enough to warn. */
#include "obs/growth.h"

#include "base/check.h"

void growth_init(Growth *g, int64_t limit_bytes, int settle_steps) {
    CHECK(limit_bytes >= 0 && settle_steps >= 1);
    *g = (Growth){.limit_bytes = limit_bytes, .settle_steps = settle_steps};
}

bool growth_feed(Growth *g, int64_t *grown_bytes, int64_t resident_bytes) {
    *grown_bytes = 0;
    if (!g->limit_bytes || resident_bytes < 0) return false;
    if (g->seen < g->settle_steps) {
        g->seen++;
        g->base_bytes = MAX2(g->base_bytes, resident_bytes);
        g->alarm_bytes = g->limit_bytes;
        return false;
    }
    *grown_bytes = MAX2(resident_bytes - g->base_bytes, 0);
    if (*grown_bytes < g->alarm_bytes) return false;
    g->alarm_bytes = (*grown_bytes / g->limit_bytes + 1) * g->limit_bytes; /* not the same news every step */
    return true;
}
