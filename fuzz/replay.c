/* replay.c - runs every kept file through its target, as a part of `make check`: a bug once found stays away. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"

static char current[512]; /* the file that is being run, for the line that names it when it ends the process */

static void name_current(void) {
    (void)!write(STDERR_FILENO, "FAILED on ", 10);
    (void)!write(STDERR_FILENO, current, strlen(current));
    (void)!write(STDERR_FILENO, "\n", 1);
}

static void on_signal(int signal) {
    name_current();
    raise(signal); /* SA_RESETHAND: as if there had been no handler */
}

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void catch_ends(void) {
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(name_current);
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    for (int i = 0; i < COUNT_OF(fatal); i++) sigaction(fatal[i], &act, NULL);
}

static bool replay(const FuzzTarget *t, const char *corpus) {
    char path[400], **names;
    int64_t n;
    Err e;
    snprintf(path, sizeof path, "%s/%s", corpus, t->name);
    if (!file_list(path, &names, &n, &e)) return fprintf(stderr, "%s\n", e.text), false;
    for (int64_t i = 0; i < n; i++) {
        Str file = {0};
        snprintf(current, sizeof current, "%s/%s", path, names[i]);
        bool read = file_read(current, &file, 0, &e);
        CHECK_MSG(read, "%s", e.text);
        alarm(120); /* an endless loop ends the run, with its file named */
        fuzz_run(t, (const uint8_t *)str_text(&file), file.len);
        alarm(0);
        str_free(&file);
        mem_free(names[i]);
    }
    mem_free(names);
    printf("%s %s (%lld files)\n", n ? "ok    " : "FAILED", t->name, (long long)n);
    return n > 0;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    catch_ends();
    for (int i = 0; i < fuzz_n_targets; i++) {
        bool ok = replay(&fuzz_target[i], argc > 1 ? argv[1] : "fuzz/corpus");
        passed += ok;
        failed += !ok;
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0 || passed == 0;
}
