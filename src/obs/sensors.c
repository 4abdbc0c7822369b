/* sensors.c - which files of the system hold the figures of the machine, and which limits bind this process.
 *
 * Control groups: the limit that counts is the lowest on the way from this process's group up to the root.
 * Inside a container the group's own path may not be visible; then only the root of the mount is.
 *     v2: /proc/self/cgroup "0::/a/b"          /sys/fs/cgroup/a/b/memory.max, memory.high, memory.current
 *     v1: /proc/self/cgroup "4:memory:/a/b"    /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes,
 *                                              memory.usage_in_bytes
 * memory.high does not refuse: beyond it a process is held up until it hardly moves, so it counts like a limit.
 * Cached file pages that are not in active use count as usage there, although they can be had: memory.stat says
 * how many. */
#include "obs/sensors.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/process.h"

enum { PATH_BYTES = 1024 };

typedef struct GroupFiles {
    const char *mount, *limit, *usage, *cache; /* cache: the line of memory.stat */
} GroupFiles;

static const GroupFiles version_2[] = {{"/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "},
                                       {"/sys/fs/cgroup", "memory.high", "memory.current", "\ninactive_file "}};
static const GroupFiles version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "\ntotal_inactive_file "};

static double clock_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double sensors_seconds(void) {
    return clock_seconds(CLOCK_MONOTONIC);
}
double sensors_wall_seconds(void) {
    return clock_seconds(CLOCK_REALTIME);
}

static bool read_below(char to[PROCESS_TEXT_BYTES], const char *root, const char *folder, const char *name) {
    char path[PATH_BYTES * 2];
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return process_read(to, path);
}

/* ---- this process ---- */

int64_t sensors_anon_bytes_at(const char *root) {
    char text[PROCESS_TEXT_BYTES];
    int64_t bytes = process_memory_at(root).anon_bytes;
    if (bytes < 0 && read_below(text, root, "/proc/self", "smaps_rollup"))
        bytes = process_kilobytes(text, "\nAnonymous:");
    return bytes;
}

int64_t sensors_anon_bytes(void) {
    return sensors_anon_bytes_at("");
}

/* ---- the machine ---- */

/* Holds the figures against one group's limit. */
static void apply_group(SensorMemory *m, const char *root, const GroupFiles *files, const char *group) {
    char folder[PATH_BYTES], text[PROCESS_TEXT_BYTES];
    snprintf(folder, sizeof folder, "%s%s", files->mount, group);
    if (!read_below(text, root, folder, files->limit)) return;
    int64_t limit = process_number(text, "\n");
    if (limit < 0) return;
    if (m->total_bytes < 0 || limit < m->total_bytes) {
        m->total_bytes = limit;
        m->limited = true;
    }
    int64_t usage = read_below(text, root, folder, files->usage) ? process_number(text, "\n") : -1;
    int64_t cache = read_below(text, root, folder, "memory.stat") ? process_number(text, files->cache) : 0;
    if (usage < 0) return;
    int64_t taken = MAX2(usage - MAX2(cache, 0), 0), left = MAX2(limit - taken, 0);
    if (m->available_bytes >= 0 && left >= m->available_bytes) return;
    m->available_bytes = left; /* also when an outer, larger group has less left */
    m->limited = true;
    m->limit = files->limit;
    m->limit_bytes = limit;
}

/* The group of this process in the hierarchy whose line of /proc/self/cgroup holds the label. */
static bool group_path(char to[PATH_BYTES], const char *text, const char *label) {
    const char *at = strstr(text, label);
    if (!at) return false;
    at += strlen(label);
    snprintf(to, PATH_BYTES, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

static void apply_groups(SensorMemory *m, const char *root, const GroupFiles *files, const char *text,
                         const char *label) {
    char group[PATH_BYTES];
    if (!group_path(group, text, label)) return;
    if (strstr(group, "/..")) group[0] = 0; /* outside this container's view */
    for (char *slash; (slash = strrchr(group, '/')); *slash = 0)
        if (slash[1]) apply_group(m, root, files, group);
    apply_group(m, root, files, "");
}

SensorMemory sensors_memory_at(const char *root) {
    SensorMemory m = {.total_bytes = -1, .available_bytes = -1};
    char text[PROCESS_TEXT_BYTES];
    if (read_below(text, root, "/proc", "meminfo")) {
        m.total_bytes = process_kilobytes(text, "\nMemTotal:");
        m.available_bytes = process_kilobytes(text, "\nMemAvailable:");
    }
    if (read_below(text, root, "/proc/self", "cgroup")) {
        for (int i = 0; i < COUNT_OF(version_2); i++) apply_groups(&m, root, &version_2[i], text, "\n0::");
        apply_groups(&m, root, &version_1, text, ":memory:");
    }
    return m;
}

SensorMemory sensors_memory(void) {
    return sensors_memory_at("");
}

/* What is held already, and the program itself, are in a plan too: so they are added to what can still be taken. */
SensorRoom sensors_room(void) {
    SensorMemory m = sensors_memory();
    ProcessMemory now = process_memory();
    ProcessLimits set = process_limits();
    int64_t held = sensors_anon_bytes(), program = process_program_bytes();
    held = MAX2(held, 0), program = MAX2(program, 0);
    SensorRoom r = {m.available_bytes < 0 ? -1 : m.available_bytes + held, m.limit, m.limit_bytes};
    const struct {
        const char *name;
        int64_t limit, used;
    } limits[] = {{"ulimit -v", set.address_bytes, now.address_bytes},
                  {"ulimit -d", set.data_bytes, now.data_bytes}};
    for (int i = 0; i < COUNT_OF(limits); i++) {
        if (limits[i].limit < 0 || limits[i].used < 0) continue;
        int64_t left = MAX2(limits[i].limit - limits[i].used + held + program, 0);
        if (r.bytes < 0 || left < r.bytes) r = (SensorRoom){left, limits[i].name, limits[i].limit};
    }
    return r;
}
