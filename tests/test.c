/* test.c - runs the table of tests of one folder and counts. */
#include "tests/test.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"

typedef struct Test {
    const char *name, *file;
    TestFn *fn;
} Test;

static Test tests[4096];
static int n_tests, failures_here, skipped_here, noted;
static char tmp[64];
static int n_words;
static char **words; /* of the command line */

void test_register(const char *name, const char *file, TestFn *fn) {
    if (n_tests < (int)(sizeof tests / sizeof *tests)) tests[n_tests++] = (Test){name, file, fn};
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

void test_skip(const char *why) {
    skipped_here = 1;
    printf("  skipped: %s\n", why);
}

const char *test_assets(const char *name) {
    static char path[1024];
    const char *root = getenv("ASSETS");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/assets", name);
    if (file_exists(path)) return path;
    char why[1100];
    snprintf(why, sizeof why, "%s is not here (make check ASSETS=DIR)", path);
    test_skip(why);
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
#ifdef __SANITIZE_ADDRESS__
    return true;
#else
    return false;
#endif
}

void test_tmp_in_memory(void) {
    struct statvfs room;
    if (tmp[0] || statvfs("/dev/shm", &room) || room.f_bavail * room.f_frsize < 48u << 20) return;
    snprintf(tmp, sizeof tmp, "/dev/shm/snug-test-XXXXXX");
    if (!mkdtemp(tmp)) tmp[0] = 0;
}

static void drop_tmp(void) {
    if (tmp[0]) file_remove_tree(tmp, NULL);
    tmp[0] = 0;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0, skipped = 0;
    const char *only = argc > 1 && !strchr(argv[1], '=') ? argv[1] : "";
    n_words = argc;
    words = argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < n_tests; i++) {
        if (!strcmp(only, "--list")) {
            printf("%s\n", tests[i].name);
            continue;
        }
        if (!strstr(tests[i].name, only)) continue;
        failures_here = skipped_here = 0;
        tests[i].fn();
        drop_tmp();
        passed += !failures_here && !skipped_here;
        failed += failures_here > 0;
        skipped += !failures_here && skipped_here;
        if (failures_here || skipped_here || getenv("VERBOSE"))
            printf("%s %s (%s)\n", failures_here ? "FAILED" : skipped_here ? "skipped" : "ok", tests[i].name, tests[i].file);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}
