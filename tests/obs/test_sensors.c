/* test_sensors.c - figures of the system, from the real files and from made-up ones; and the growth alarm. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/units.h"
#include "obs/growth.h"
#include "obs/sensors.h"
#include "tests/test.h"

static void put(const char *folder, const char *name, const char *text) {
    char path[500];
    Err e;
    snprintf(path, sizeof path, "%s%s", test_tmp(), folder);
    EXPECT_OK(file_make_dirs(path, &e));
    snprintf(path, sizeof path, "%s%s/%s", test_tmp(), folder, name);
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
}

#define MEMINFO "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:   12000 kB\n"

TEST(sensors_anon_bytes_follow_touched_memory_and_not_files) {
    int64_t bytes = 64 * MIB, before = sensors_anon_bytes();
    if (before < 0) {
        test_skip("the system does not tell anonymous bytes");
        return;
    }
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(p != MAP_FAILED);
    EXPECT_NEAR((double)(sensors_anon_bytes() - before), 0, 4e6); /* reserved is not taken */
    for (int64_t i = 0; i < bytes; i += 4096) p[i] = 1;
    EXPECT_NEAR((double)(sensors_anon_bytes() - before), (double)bytes, 4e6);
    munmap(p, (size_t)bytes);
    EXPECT_NEAR((double)(sensors_anon_bytes() - before), 0, 4e6);
}

TEST(sensors_anon_bytes_from_status_or_the_rollup) {
    EXPECT(sensors_anon_bytes_at(test_tmp()) == -1);
    put("/proc/self", "smaps_rollup", "5580-7ffe ---p 00000000 [rollup]\nRss:  900 kB\nAnonymous:   30 kB\n");
    put("/proc/self", "status", "Name:\tsnug\nVmRSS:\t 900 kB\n");
    EXPECT(sensors_anon_bytes_at(test_tmp()) == 30 * KIB);
    put("/proc/self", "status", "Name:\tsnug\nVmRSS:\t 900 kB\nRssAnon:\t     152 kB\nRssFile:\t 7 kB\n");
    EXPECT(sensors_anon_bytes_at(test_tmp()) == 152 * KIB);
}

TEST(sensors_memory_of_this_machine_is_plausible) {
    SensorMemory m = sensors_memory();
    EXPECT(m.total_bytes > 16 * MIB && m.available_bytes > 0 && m.available_bytes <= m.total_bytes);
}

TEST(sensors_memory_without_limits) {
    SensorMemory m = sensors_memory_at(test_tmp());
    EXPECT(m.total_bytes == -1 && m.available_bytes == -1 && !m.limited);
    put("/proc", "meminfo", MEMINFO);
    put("/proc/self", "cgroup", "0::/user/me\n");
    put("/sys/fs/cgroup/user/me", "memory.max", "max\n");
    put("/sys/fs/cgroup/user/me", "memory.current", "99999999999\n");
    m = sensors_memory_at(test_tmp());
    EXPECT(m.total_bytes == 16000 * KIB && m.available_bytes == 12000 * KIB && !m.limited);
}

TEST(sensors_memory_honours_version_2_limits_up_the_tree) {
    put("/proc", "meminfo", MEMINFO);
    put("/proc/self", "cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job", "memory.max", "8192000\n"); /* 8000 KiB */
    put("/sys/fs/cgroup/slice/job", "memory.current", "3072000\n");
    put("/sys/fs/cgroup/slice/job", "memory.stat", "anon 5\nfile 9\ninactive_anon 7\ninactive_file 1024000\n");
    SensorMemory m = sensors_memory_at(test_tmp());
    EXPECT(m.limited && m.total_bytes == 8000 * KIB && m.available_bytes == 6000 * KIB);
    put("/sys/fs/cgroup/slice", "memory.max", "10240000\n"); /* larger, but the neighbours have most of it */
    put("/sys/fs/cgroup/slice", "memory.current", "9216000\n");
    m = sensors_memory_at(test_tmp());
    EXPECT(m.total_bytes == 8000 * KIB && m.available_bytes == 1000 * KIB);
    put("/sys/fs/cgroup/slice", "memory.max", "4096000\n"); /* smaller, and over its limit */
    m = sensors_memory_at(test_tmp());
    EXPECT(m.total_bytes == 4000 * KIB && m.available_bytes == 0);
}

TEST(sensors_memory_counts_memory_high_and_names_what_decides) {
    put("/proc", "meminfo", MEMINFO);
    put("/proc/self", "cgroup", "0::/slice/job\n");
    put("/sys/fs/cgroup/slice/job", "memory.max", "8192000\n");
    put("/sys/fs/cgroup/slice/job", "memory.current", "1024000\n");
    SensorMemory m = sensors_memory_at(test_tmp());
    EXPECT(m.available_bytes == 7000 * KIB && m.limit_bytes == 8000 * KIB);
    EXPECT_STR(m.limit, "memory.max");
    put("/sys/fs/cgroup/slice/job", "memory.high", "max\n");
    EXPECT_STR(sensors_memory_at(test_tmp()).limit, "memory.max");
    put("/sys/fs/cgroup/slice", "memory.high", "4096000\n"); /* of the group above */
    put("/sys/fs/cgroup/slice", "memory.current", "2048000\n");
    m = sensors_memory_at(test_tmp());
    EXPECT(m.limited && m.total_bytes == 4000 * KIB && m.available_bytes == 2000 * KIB &&
           m.limit_bytes == 4000 * KIB);
    EXPECT_STR(m.limit, "memory.high");
    put("/proc", "meminfo", "MemTotal: 16000 kB\nMemAvailable: 100 kB\n"); /* the machine itself has less */
    m = sensors_memory_at(test_tmp());
    EXPECT(m.limited && m.total_bytes == 4000 * KIB && m.available_bytes == 100 * KIB && !m.limit);
}

TEST(sensors_room_is_what_is_held_and_what_is_available) {
    SensorRoom r = sensors_room();
    EXPECT(r.bytes >= sensors_anon_bytes());
    struct rlimit old;
    getrlimit(RLIMIT_AS, &old);
    if (old.rlim_cur != RLIM_INFINITY || test_sanitized()) return;
    ProcessMemory now = process_memory();
    struct rlimit some = {.rlim_cur = (rlim_t)(now.address_bytes + 64 * MIB), .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_AS, &some);
    SensorRoom limited = sensors_room();
    setrlimit(RLIMIT_AS, &old);
    EXPECT_STR(limited.limit, "ulimit -v");
    EXPECT_NEAR((double)limited.bytes, (double)(64 * MIB + now.anon_bytes + process_program_bytes()), 1e6);
    EXPECT(limited.limit_bytes == (int64_t)some.rlim_cur);
}

TEST(sensors_memory_honours_version_1_limits_and_containers) {
    put("/proc", "meminfo", MEMINFO);
    put("/proc/self", "cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "5120000\n"); /* the path itself is outside the view */
    put("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "2048000\n");
    put("/sys/fs/cgroup/memory", "memory.stat", "inactive_file 7\ntotal_inactive_file 1024000\n");
    SensorMemory m = sensors_memory_at(test_tmp());
    EXPECT(m.limited && m.total_bytes == 5000 * KIB && m.available_bytes == 4000 * KIB);
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n"); /* version 1's "none" */
    m = sensors_memory_at(test_tmp());
    EXPECT(!m.limited && m.total_bytes == 16000 * KIB && m.available_bytes == 12000 * KIB);
}

TEST(sensors_clocks_run) {
    double a = sensors_seconds(), b = sensors_seconds();
    EXPECT(b >= a && sensors_wall_seconds() > 1.6e9);
}

TEST(sensors_sampling_allocates_nothing) {
    int64_t before = mem_stats().requests;
    sensors_memory();
    sensors_anon_bytes();
    EXPECT(mem_stats().requests == before);
}

TEST(growth_alarm_compares_with_the_first_steps_and_repeats_only_news) {
    Growth g;
    int64_t grown;
    growth_init(&g, 10, 3);
    EXPECT(!growth_feed(&g, &grown, 100) && !growth_feed(&g, &grown, 150) && !growth_feed(&g, &grown, 120));
    EXPECT(!growth_feed(&g, &grown, 159) && grown == 9);
    EXPECT(!growth_feed(&g, &grown, -1));
    EXPECT(growth_feed(&g, &grown, 160) && grown == 10);
    EXPECT(!growth_feed(&g, &grown, 160) && !growth_feed(&g, &grown, 169));
    EXPECT(growth_feed(&g, &grown, 195) && grown == 45);
    EXPECT(!growth_feed(&g, &grown, 199) && growth_feed(&g, &grown, 200));
    EXPECT(!growth_feed(&g, &grown, 50) && grown == 0);
    growth_init(&g, 0, 1);
    EXPECT(!growth_feed(&g, &grown, 1) && !growth_feed(&g, &grown, 1 << 30));
}
