/* store_test.c - files made and compared for the tests of this folder. */
#include "tests/store/store_test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"

const char *tmp_path(const char *name) {
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", test_tmp(), name);
    return p;
}

void put_file(const char *path, const void *data, int64_t n) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, (size_t)n, f) != (size_t)n || fclose(f)) abort();
}

void put_text(const char *path, const char *text) { put_file(path, text, (int64_t)strlen(text)); }

bool same_bytes(const char *a, const char *b) {
    Str x = {0}, y = {0};
    Err e = {0};
    bool same = file_read(a, &x, 0, &e) && file_read(b, &y, 0, &e) && x.len == y.len &&
                (x.len == 0 || !memcmp(x.data, y.data, (size_t)x.len));
    str_free(&x);
    str_free(&y);
    return same;
}

int64_t count_names(const char *folder) {
    char **names;
    int64_t n;
    if (!file_list(folder, &names, &n, NULL)) return 0;
    for (int64_t i = 0; i < n; i++) mem_free(names[i]);
    mem_free(names);
    return n;
}

int64_t count_open_files(void) { return count_names("/proc/self/fd"); }

void limit_files(int64_t bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes ? (rlim_t)bytes : limit.rlim_max;
    signal(SIGXFSZ, bytes ? SIG_IGN : SIG_DFL); /* a refused write instead of the end of the process */
    setrlimit(RLIMIT_FSIZE, &limit);
}
