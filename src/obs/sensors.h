/* sensors.h - what the system says about this process and this machine, now. Sampling allocates nothing. */
#ifndef OBS_SENSORS_H
#define OBS_SENSORS_H

#include <stdbool.h>
#include <stdint.h>

double sensors_seconds(void);      /* monotonic: for durations */
double sensors_wall_seconds(void); /* since 1970: for records */

/* Anonymous resident bytes of this process: heap, stacks and pools, without mapped files; -1: unknown. */
int64_t sensors_anon_bytes(void);

typedef struct SensorMemory {
    int64_t
        total_bytes; /* of the machine, or the limit of this process's group where that is lower; -1: unknown */
    int64_t available_bytes; /* what could be taken now without swapping; -1: unknown */
    bool limited;            /* a control group's limit decides */
} SensorMemory;

SensorMemory sensors_memory(void);

/* The same from a tree of files under root ("": the real one): <root>/proc/... and <root>/sys/... */
SensorMemory sensors_memory_at(const char *root);
int64_t sensors_anon_bytes_at(const char *root);

#endif
