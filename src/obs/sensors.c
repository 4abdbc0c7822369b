/* sensors.c - which files of the system hold the figures, and how they are read without touching the heap.
 *
 * Control groups: the limit that counts is the lowest on the way from this process's group up to the root.
 * Inside a container the group's own path may not be visible; then only the root of the mount is.
 *     v2: /proc/self/cgroup "0::/a/b"          /sys/fs/cgroup/a/b/memory.max, memory.current
 *     v1: /proc/self/cgroup "4:memory:/a/b"    /sys/fs/cgroup/memory/a/b/memory.limit_in_bytes,
 * memory.usage_in_bytes Cached file pages that are not in active use count as usage there, although they can be
 * had: memory.stat says how many. */
#include "obs/sensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/file.h"

enum { FILE_BYTES = 8192, PATH_BYTES = 1024 };

typedef struct GroupFiles {
    const char *mount, *limit, *usage, *cache; /* cache: the line of memory.stat */
} GroupFiles;

static const GroupFiles version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "\ninactive_file "};
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

/* ---- small files ---- */

/* The file's first bytes behind a newline, so that every line of it can be searched as "\nname". */
static bool read_small(char to[FILE_BYTES], const char *root, const char *folder, const char *name) {
    char path[PATH_BYTES * 2];
    int fd, used = 1;
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    if (!file_open_read(path, &fd, NULL)) return false;
    to[0] = '\n';
    for (int64_t n; used < FILE_BYTES - 1; used += (int)n)
        if (!file_read_some(fd, to + used, &n, FILE_BYTES - 1 - used, path, NULL) || n == 0) break;
    file_close(fd);
    to[used] = 0;
    return used > 1;
}

/* The number behind a label; -1: absent, or no number ("max"). */
static int64_t number_after(const char *text, const char *label) {
    const char *at = strstr(text, label);
    char *end;
    if (!at) return -1;
    at += strlen(label);
    int64_t number = strtoll(at, &end, 10);
    return end == at || number < 0 ? -1 : number;
}

static int64_t kilobytes(int64_t n) {
    return n < 0 || n > INT64_MAX / 1024 ? -1 : n * 1024;
}

/* ---- this process ---- */

int64_t sensors_anon_bytes_at(const char *root) {
    char text[FILE_BYTES];
    int64_t bytes = -1;
    if (read_small(text, root, "/proc/self", "status")) bytes = kilobytes(number_after(text, "\nRssAnon:"));
    if (bytes < 0 && read_small(text, root, "/proc/self", "smaps_rollup"))
        bytes = kilobytes(number_after(text, "\nAnonymous:"));
    return bytes;
}

int64_t sensors_anon_bytes(void) {
    return sensors_anon_bytes_at("");
}

/* ---- the machine ---- */

/* Holds the figures against one group's limit. */
static void apply_group(SensorMemory *m, const char *root, const GroupFiles *files, const char *group) {
    char folder[PATH_BYTES], text[FILE_BYTES];
    snprintf(folder, sizeof folder, "%s%s", files->mount, group);
    if (!read_small(text, root, folder, files->limit)) return;
    int64_t limit = number_after(text, "\n");
    if (limit < 0) return;
    if (m->total_bytes < 0 || limit < m->total_bytes) {
        m->total_bytes = limit;
        m->limited = true;
    }
    int64_t usage = read_small(text, root, folder, files->usage) ? number_after(text, "\n") : -1;
    int64_t cache = read_small(text, root, folder, "memory.stat") ? number_after(text, files->cache) : 0;
    if (usage < 0) return;
    int64_t taken = MAX2(usage - MAX2(cache, 0), 0), left = MAX2(limit - taken, 0);
    if (m->available_bytes >= 0 && left >= m->available_bytes) return;
    m->available_bytes = left; /* also when an outer, larger group has less left */
    m->limited = true;
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
    SensorMemory m = {-1, -1, false};
    char text[FILE_BYTES];
    if (read_small(text, root, "/proc", "meminfo")) {
        m.total_bytes = kilobytes(number_after(text, "\nMemTotal:"));
        m.available_bytes = kilobytes(number_after(text, "\nMemAvailable:"));
    }
    if (read_small(text, root, "/proc/self", "cgroup")) {
        apply_groups(&m, root, &version_2, text, "\n0::");
        apply_groups(&m, root, &version_1, text, ":memory:");
    }
    return m;
}

SensorMemory sensors_memory(void) {
    return sensors_memory_at("");
}
