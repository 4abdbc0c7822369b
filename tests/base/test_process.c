/* test_process.c - the kernel's figures of this process: from the real files, and from made-up ones. */
#include <stdatomic.h>
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/threads.h"
#include "base/units.h"
#include "tests/test.h"

static void put(const char *name, const char *text) {
    char path[500];
    Err e = {0};
    snprintf(path, sizeof path, "%s/proc/self", test_tmp());
    EXPECT_OK(file_make_dirs(path, &e));
    snprintf(path, sizeof path, "%s/proc/self/%s", test_tmp(), name);
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
}

TEST(process_figures_are_those_of_the_status_file) {
    ProcessMemory none = process_memory_at(test_tmp());
    EXPECT(none.peak_bytes == -1 && none.anon_bytes == -1 && none.address_bytes == -1);
    put("status",
        "Name:\tsnug\nVmPeak:\t 99 kB\nVmSize:\t 90 kB\nVmHWM:\t    70 kB\nVmRSS:\t 60 kB\nRssAnon:\t 20 kB\n"
        "RssFile:\t 40 kB\nRssShmem:\t 5 kB\nVmData:\t 50 kB\n");
    ProcessMemory m = process_memory_at(test_tmp());
    EXPECT(m.address_bytes == 90 * KIB && m.peak_bytes == 70 * KIB && m.anon_bytes == 20 * KIB);
    EXPECT(m.data_bytes == 50 * KIB);
}

TEST(process_program_bytes_are_those_of_mapped_files) {
    EXPECT(process_program_bytes_at(test_tmp()) == -1);
    put("maps",
        "55d0c0000000-55d0c0010000 r-xp 00000000 08:01 1311  /usr/bin/snug with spaces\n"
        "55d0c0010000-55d0c0020000 rw-p 00010000 08:01 1311  /usr/bin/snug\n"
        "55d0c1000000-55d0c9000000 rw-p 00000000 00:00 0     [heap]\n"
        "7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n"
        "7f1000000000-7f1000001000 r--p 00000000 08:01 22   /lib/libm.so.6\n");
    EXPECT(process_program_bytes_at(test_tmp()) == 0x10000 + 0x10000 + 0x1000);
    Str many = {0}; /* more than is read at a time, so that lines are cut anywhere */
    for (int i = 0; i < 500; i++)
        str_addf(&many, "7f%010x-7f%010x r--p 00000000 08:01 %d  /lib/library-number-%d.so\n", i * 8192,
                 i * 8192 + 4096, i + 1, i);
    put("maps", str_text(&many));
    str_free(&many);
    EXPECT(process_program_bytes_at(test_tmp()) == 500 * 4096);
}

TEST(process_program_bytes_bound_what_is_resident_of_the_program) {
    char text[PROCESS_TEXT_BYTES];
    if (!EXPECT(process_read(text, "/proc/self/status"))) return;
    EXPECT(process_program_bytes() >= process_kilobytes(text, "\nRssFile:"));
    EXPECT(process_runtime_bytes(3) - process_runtime_bytes(1) == 2 * THREAD_STACK_BYTES);
}

TEST(process_peak_follows_what_was_touched_and_does_not_fall) {
    int64_t bytes = 32 * MIB, before = process_memory().peak_bytes;
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(p != MAP_FAILED);
    for (int64_t i = 0; i < bytes; i += 4096) p[i] = 1;
    munmap(p, (size_t)bytes);
    int64_t after = process_memory().peak_bytes;
    EXPECT(after >= before && after >= bytes);
}

TEST(process_limits_are_read_and_name_the_one_that_refuses) {
    struct rlimit old, some;
    getrlimit(RLIMIT_FSIZE, &old);
    some = (struct rlimit){.rlim_cur = 12345, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &some);
    EXPECT(process_limits().file_bytes == 12345);
    setrlimit(RLIMIT_FSIZE, &old);
    getrlimit(RLIMIT_AS, &old);
    if (old.rlim_cur != RLIM_INFINITY) return;
    EXPECT(process_limits().address_bytes == -1 && process_refusal().code == ERR_FAIL &&
           !process_refusal().why[0]);
    some = (struct rlimit){.rlim_cur = (rlim_t)1 << 46, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_AS, &some);
    ProcessRefusal no = process_refusal();
    EXPECT(process_limits().address_bytes == (int64_t)1 << 46);
    EXPECT(no.code == ERR_BUDGET && strstr(no.why, "ulimit -v is 64.00 TiB"));
    setrlimit(RLIMIT_AS, &old);
}

TEST(process_figures_allocate_nothing) {
    int64_t before = mem_stats().requests;
    process_memory();
    process_program_bytes();
    process_limits();
    EXPECT(mem_stats().requests == before);
}

