/* process.c - which files and calls of the system hold these figures, and how they are read without touching the
 * heap. */
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"
#include "base/units.h"

enum { PATH_BYTES = 2048 };

/* ---- small files ---- */

bool process_read(char to[PROCESS_TEXT_BYTES], const char *path) {
    int fd, used = 1;
    if (!file_open_read(path, &fd, NULL)) return false;
    to[0] = '\n';
    for (int64_t n; used < PROCESS_TEXT_BYTES - 1; used += (int)n)
        if (!file_read_some(fd, to + used, &n, PROCESS_TEXT_BYTES - 1 - used, path, NULL) || n == 0) break;
    file_close(fd);
    to[used] = 0;
    return used > 1;
}

int64_t process_number(const char *text, const char *label) {
    const char *at = strstr(text, label);
    char *end;
    if (!at) return -1;
    at += strlen(label);
    int64_t number = strtoll(at, &end, 10);
    return end == at || number < 0 ? -1 : number;
}

int64_t process_kilobytes(const char *text, const char *label) {
    int64_t n = process_number(text, label);
    return n < 0 || n > INT64_MAX / KIB ? -1 : n * KIB;
}

/* ---- memory ---- */

ProcessMemory process_memory_at(const char *root) {
    char path[PATH_BYTES], text[PROCESS_TEXT_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    if (!process_read(text, path)) return (ProcessMemory){-1, -1, -1, -1};
    return (ProcessMemory){.anon_bytes = process_kilobytes(text, "\nRssAnon:"),
                           .peak_bytes = process_kilobytes(text, "\nVmHWM:"),
                           .address_bytes = process_kilobytes(text, "\nVmSize:"),
                           .data_bytes = process_kilobytes(text, "\nVmData:")};
}

ProcessMemory process_memory(void) {
    ProcessMemory m = process_memory_at("");
    struct rusage used; /* counts what was before the program was started, too: only where nothing else tells */
    if (m.peak_bytes < 0 && !getrusage(RUSAGE_SELF, &used)) m.peak_bytes = used.ru_maxrss * KIB;
    return m;
}

/* The bytes of one line of maps, "7f..-7f.. r-xp 00001000 08:01 1234   /lib/x.so", if a file (an inode) stands
 * behind it. */
static int64_t file_bytes_of(const char *line) {
    char *at;
    unsigned long long begin = strtoull(line, &at, 16), end = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
    for (int word = 0; word < 3; word++) { /* rights, offset, device */
        at += strspn(at, " ");
        at += strcspn(at, " ");
    }
    return end > begin && strtoull(at, NULL, 10) ? (int64_t)(end - begin) : 0;
}

int64_t process_program_bytes_at(const char *root) {
    char path[PATH_BYTES], text[PROCESS_TEXT_BYTES];
    int fd;
    int64_t sum = 0, used = 0, n;
    snprintf(path, sizeof path, "%s/proc/self/maps", root);
    if (!file_open_read(path, &fd, NULL)) return -1;
    while (file_read_some(fd, text + used, &n, (int64_t)sizeof text - 1 - used, path, NULL) && n > 0) {
        char *line = text, *stop;
        text[used + n] = 0;
        for (; (stop = strchr(line, '\n')); line = stop + 1) {
            *stop = 0;
            sum += file_bytes_of(line);
        }
        used = (int64_t)strlen(line);
        if (used == (int64_t)sizeof text - 1) used = 0; /* a path longer than any: what it begins with was lost */
        memmove(text, line, (size_t)used);
    }
    file_close(fd);
    return sum;
}

int64_t process_program_bytes(void) {
    return process_program_bytes_at("");
}

/* The heap of small things: options, a header of weights, JSON on its way out, and what the allocator keeps. Seen
 * in all commands with models of up to 80 layers: 2 to 5 MiB. */
#define HEAP_BYTES (8 * MIB)

int64_t process_runtime_bytes(int threads) {
    int64_t program = process_program_bytes();
    return MAX2(program, 0) + HEAP_BYTES + threads * (int64_t)THREAD_STACK_BYTES;
}

/* ---- other processes ---- */

/* "12 (a name) S 1 ...": the name may hold anything, so that the fields are counted from its last ')'. */
static bool read_facts(ProcessFacts *f, int pid, const char *text) {
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ') return false;
    char state = at[2];
    int64_t field[25] = {0}; /* numbered as in proc(5); the first three are read already */
    at += 3;
    for (int i = 4; i < COUNT_OF(field); i++) {
        char *end;
        field[i] = strtoll(at, &end, 10);
        if (end == at) return false;
        at = end;
    }
    *f = (ProcessFacts){.pid = pid,
                        .parent = (int)field[4],
                        .start_ticks = field[22],
                        .resident_bytes = field[24] * sysconf(_SC_PAGESIZE),
                        .ended = state == 'Z' || state == 'X'};
    return true;
}

static bool read_of(char to[PROCESS_TEXT_BYTES], int pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return process_read(to, path);
}

bool process_facts(ProcessFacts *f, int pid) {
    char text[PROCESS_TEXT_BYTES];
    return read_of(text, pid, "stat") && read_facts(f, pid, text);
}

void process_name(char *to, int size, int pid) {
    char text[PROCESS_TEXT_BYTES];
    to[0] = 0;
    if (read_of(text, pid, "comm")) snprintf(to, (size_t)size, "%.*s", (int)strcspn(text + 1, "\n"), text + 1);
}

int64_t process_peak_bytes(int pid) {
    char text[PROCESS_TEXT_BYTES];
    return read_of(text, pid, "status") ? process_kilobytes(text, "\nVmHWM:") : -1;
}

/* Everybody, as far as there is room. */
static int all_processes(ProcessFacts *list, int room) {
    char **names = NULL;
    int64_t count = 0;
    int n = 0;
    if (!file_list("/proc", &names, &count, NULL)) return 0;
    for (int64_t i = 0; i < count; i++) {
        int pid = names[i][strspn(names[i], "0123456789")] ? 0 : (int)strtol(names[i], NULL, 10);
        if (pid > 0 && n < room && process_facts(&list[n], pid)) n++;
        mem_free(names[i]);
    }
    mem_free(names);
    return n;
}

int process_tree(ProcessFacts *list, int room, int root) {
    enum { MOST = 65536 };
    ProcessFacts *all = MEM_NEW(ProcessFacts, MOST);
    int n_all = all_processes(all, MOST), n = 0;
    for (int from = -1; from < n; from++) { /* -1: the root itself */
        int parent = from < 0 ? root : list[from].pid;
        for (int i = 0; i < n_all && n < room; i++)
            if (all[i].parent == parent && all[i].pid != parent) list[n++] = all[i];
    }
    mem_free(all);
    return n;
}

/* ---- limits ---- */

static int64_t limit_of(int resource) {
    struct rlimit r;
    if (getrlimit(resource, &r) || r.rlim_cur == RLIM_INFINITY || r.rlim_cur > INT64_MAX) return -1;
    return (int64_t)r.rlim_cur;
}

ProcessLimits process_limits(void) {
    return (ProcessLimits){.address_bytes = limit_of(RLIMIT_AS),
                           .data_bytes = limit_of(RLIMIT_DATA),
                           .locked_bytes = limit_of(RLIMIT_MEMLOCK),
                           .file_bytes = limit_of(RLIMIT_FSIZE)};
}

bool process_need_stack(Err *e) {
    enum { LEAST = 512 << 10, USUAL = 8 << 20 }; /* arrays nested as deep as JSON may be take 200 KiB */
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= LEAST) return true;
    r.rlim_cur = MIN2(r.rlim_max, USUAL); /* the kernel asks for the limit whenever the stack grows */
    if (r.rlim_cur >= LEAST && !setrlimit(RLIMIT_STACK, &r)) return true;
    return fail(e, ERR_FAIL,
                "the stack may have %lld KiB (ulimit -s), and %d KiB are needed. Raise that limit, for example: "
                "ulimit -s %d",
                (long long)r.rlim_cur / 1024, LEAST / 1024, USUAL / 1024);
}

ProcessRefusal process_refusal(void) {
    ProcessLimits l = process_limits();
    ProcessMemory now = process_memory();
    bool addresses = l.address_bytes >= 0;
    ProcessRefusal r = {.code = addresses || l.data_bytes >= 0 ? ERR_BUDGET : ERR_FAIL};
    if (r.code == ERR_BUDGET)
        snprintf(r.why, sizeof r.why, " (ulimit %s is %s, %s are taken)", addresses ? "-v" : "-d",
                 units_bytes(addresses ? l.address_bytes : l.data_bytes).s,
                 units_bytes(MAX2(addresses ? now.address_bytes : now.data_bytes, 0)).s);
    return r;
}
