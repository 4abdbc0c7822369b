/* test.c - runs the table of tests of one folder and counts. */
#include "tests/test.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

typedef struct Test {
    const char *name, *file;
    TestFn *fn;
    bool slow;
} Test;

typedef struct Reason { /* why tests were skipped */
    char text[200];
    int tests;
} Reason;

static Test tests[4096];
static int n_tests, failures_here, noted;
static Reason reasons[32];
static int n_reasons;
static char skipped_here[1100]; /* why; "": not skipped */
static char tmp[64];
static int n_words;
static char **words; /* of the command line */

void test_register(const char *name, const char *file, TestFn *fn, bool slow) {
    if (n_tests < (int)(sizeof tests / sizeof *tests)) tests[n_tests++] = (Test){name, file, fn, slow};
}

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0");
}

bool test_expect(bool ok, const char *file, int line, const char *what) {
    if (ok) return true;
    if (failures_here++ < 10) fprintf(stderr, "  %s:%d: expected %s\n", file, line, what);
    noted = failures_here <= 10;
    return false;
}

void test_note(const char *fmt, ...) {
    if (failures_here && !noted) return;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* The last reason when there are more than the table holds. */
static void skip_for(const char *reason, const char *why) {
    int i = 0;
    while (i < n_reasons && strncmp(reasons[i].text, reason, sizeof reasons[i].text - 1)) i++;
    if (i == (int)(sizeof reasons / sizeof *reasons)) i--;
    if (i == n_reasons) snprintf(reasons[n_reasons++].text, sizeof reasons[i].text, "%s", reason);
    if (!skipped_here[0]) reasons[i].tests++;
    snprintf(skipped_here, sizeof skipped_here, "%s", why);
}

void test_skip(const char *why) { skip_for(why, why); }

const char *test_assets(const char *name) {
    static char path[1024];
    const char *root = getenv("ASSETS");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/assets", name);
    if (file_exists(path)) return path;
    char why[1100];
    snprintf(why, sizeof why, "%s is not here (ASSETS=DIR)", path);
    skip_for("their real data is not here (ASSETS=DIR names its folder)", why);
    return NULL;
}

const char *test_tmp(void) {
    if (!tmp[0]) {
        snprintf(tmp, sizeof tmp, "/tmp/snug-test-XXXXXX");
        if (!mkdtemp(tmp)) abort();
    }
    return tmp;
}

char *test_path(const char *name) {
    static char path[16][400];
    static int at;
    char *p = path[at++ % 16];
    snprintf(p, sizeof path[0], "%s/%s", test_tmp(), name);
    return p;
}

int64_t test_number(const char *name, int64_t otherwise) {
    size_t n = strlen(name);
    for (int i = 1; i < n_words; i++)
        if (!strncmp(words[i], name, n) && words[i][n] == '=') return strtoll(words[i] + n + 1, NULL, 10);
    return otherwise;
}

bool test_sanitized(void) {
#if defined __SANITIZE_ADDRESS__
    return true;
#elif defined __has_feature
    return __has_feature(address_sanitizer);
#else
    return false;
#endif
}

bool test_brief(void) { return is_set("QUICK") || test_sanitized(); }

/* Some tests put 400 MB there, and three binaries run at a time. In a container it may have 64 MB. */
enum { ROOM_IN_MEMORY = 1 << 30 };

void test_tmp_in_memory(void) {
    struct statvfs room;
    if (tmp[0] || statvfs("/dev/shm", &room) || room.f_bavail * room.f_frsize < (uint64_t)ROOM_IN_MEMORY) return;
    snprintf(tmp, sizeof tmp, "/dev/shm/snug-test-XXXXXX");
    if (!mkdtemp(tmp)) tmp[0] = 0;
}

static void drop_tmp(void) {
    if (tmp[0]) file_remove_tree(tmp, NULL);
    tmp[0] = 0;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Processor seconds of this process and of those it waited for: beside other work they say more than the clock. */
static double worked(void) {
    double sum = 0;
    static const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (int i = 0; i < 2; i++) {
        struct rusage u;
        getrusage(whose[i], &u);
        sum += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec);
        sum += 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return sum;
}

/* ---- a test that does not end ---- */

enum { SECONDS_MOST = 1500, SECONDS_TO_END = 120 }; /* TEST_SECONDS=N: another most */
static const char *running;
static volatile sig_atomic_t expired;

static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) _exit(1);
}

/* What the test has started is shown and ended, so that it fails and the others run; a test that hangs by itself ends
 * the binary. */
static void end_hung_test(int signal) {
    (void)signal;
    say("FAILED ");
    say(running);
    say(expired ? ": hangs by itself\n" : ": has not ended in its time. Below it:\n");
    if (expired) _exit(1);
    expired = 1;
    alarm(SECONDS_TO_END);
    char pid[24];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    pid_t shell = fork();
    if (!shell) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execl("tools/hung.sh", "hung.sh", pid, (char *)NULL);
        _exit(1);
    }
    if (shell > 0) waitpid(shell, NULL, 0);
}

typedef enum Outcome { PASSED, FAILED, SKIPPED, LEFT, OUTCOMES } Outcome;

static Outcome run(const Test *t) {
    double began = seconds(), work = worked();
    failures_here = skipped_here[0] = expired = 0;
    running = t->name;
    alarm(is_set("TEST_SECONDS") ? (unsigned)atoi(getenv("TEST_SECONDS")) : SECONDS_MOST);
    t->fn();
    alarm(0);
    failures_here += expired;
    drop_tmp();
    Outcome o = failures_here ? FAILED : skipped_here[0] ? SKIPPED : PASSED;
    static const char *const said[] = {"ok", "FAILED", "skipped"};
    if (o == FAILED || is_set("VERBOSE"))
        printf("%s %s (%s, %.1f s, %.1f s of processors)%s%s\n", said[o], t->name, t->file, seconds() - began,
               worked() - work, o == SKIPPED ? ": " : "", o == SKIPPED ? skipped_here : "");
    return o;
}

static void list(void) {
    for (int i = 0; i < n_tests; i++) printf("%s%s\n", tests[i].name, tests[i].slow ? " (slow)" : "");
}

int main(int argc, char **argv) {
    int n[OUTCOMES] = {0};
    const char *only = argc > 1 && !strchr(argv[1], '=') ? argv[1] : "";
    n_words = argc;
    words = argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    char jobs[64]; /* what runs here is not announced to the monitor of the person who tests */
    snprintf(jobs, sizeof jobs, "/tmp/snug-test-jobs-%d", (int)getpid());
    setenv("SNUG_JOBS", jobs, 0);
    file_make_private(jobs, NULL);
    if (!strcmp(only, "--list")) return list(), 0;
    signal(SIGALRM, end_hung_test);
    for (int i = 0; i < n_tests; i++)
        if (strstr(tests[i].name, only)) n[is_set("QUICK") && tests[i].slow ? LEFT : run(&tests[i])]++;
    file_remove_tree(jobs, NULL);
    for (int i = 0; i < n_reasons; i++) printf("  %d skipped: %s\n", reasons[i].tests, reasons[i].text);
    printf("%d passed, %d failed, %d skipped, %d left\n", n[PASSED], n[FAILED], n[SKIPPED], n[LEFT]);
    return n[FAILED] != 0;
}
