/* growth.h - an alarm for memory that grows while a run repeats the same steps. */
#ifndef OBS_GROWTH_H
#define OBS_GROWTH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Growth {
    int64_t limit_bytes; /* growth that is worth a word; 0: never */
    int settle_steps;    /* the first steps may still take memory: their highest figure is the base */
    int seen;            /* steps fed so far, up to settle_steps */
    int64_t base_bytes;
    int64_t alarm_bytes; /* the next alarm: each time, one limit further */
} Growth;

void growth_init(Growth *g, int64_t limit_bytes, int settle_steps); /* settle_steps >= 1 */

/* True when the process has grown by (another) limit since the first steps; *grown_bytes: by how much in all.
 * A figure below 0 (unknown) is passed over. */
bool growth_feed(Growth *g, int64_t *grown_bytes, int64_t resident_bytes);

#endif
