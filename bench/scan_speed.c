/* scan_speed.c - how fast rows are taken out of a JSON lines file, apart from tokenization: one JSON line.
 *
 * usage: scan_speed make text|messages MEGABYTES FILE    writes rows to measure with
 *        scan_speed FILE [REPEATS]                       (bench/scan_speed.sh builds and runs it) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "data/dataset_int.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *const words[] = {"the ",   "a ",     "of ",     "and ",         "river ",       "garden ",
                                    "small ", "in ",    "bright ", "teacher ",     "to ",          "is ",
                                    "it ",    "one, ",  "could ",  "because ",     "everything ",  "don't ",
                                    "said. ", "which ", "\\n",     "\\\"yes\\\" ", "caf\xc3\xa9 ", "\xe2\x80\x94 "};

static int64_t write_words(FILE *f, uint64_t key, int n) {
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        const char *w = words[rng_u32(key, (uint64_t)i) % COUNT_OF(words)];
        fputs(w, f);
        bytes += (int64_t)strlen(w);
    }
    return bytes;
}

static int make(bool turns, int64_t bytes, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) return perror(path), 1;
    for (int64_t row = 0, done = 0; done < bytes; row++) {
        uint64_t key = rng_fold(40, (uint64_t)row);
        int n = 40 + (int)(rng_u32(key, 1u << 20) % 400);
        fputs(turns ? "{\"messages\": [{\"role\": \"user\", \"content\": \"" : "{\"text\": \"", f);
        done += write_words(f, key, turns ? n / 4 : n);
        if (turns) fputs("\"}, {\"role\": \"assistant\", \"content\": \"", f);
        if (turns) done += write_words(f, key + 1, n);
        fputs(turns ? "\"}]}\n" : "\"}\n", f);
    }
    return fclose(f) ? perror(path), 1 : 0;
}

/* The floor: the same bytes read through a window of the reader's size and looked at once, for line ends. */
static double read_s(const char *path, int64_t *bytes, int64_t *lines) {
    static char window[1 << 20];
    double start = now_s();
    int fd = open(path, O_RDONLY);
    *bytes = *lines = 0;
    for (ssize_t n; (n = read(fd, window, sizeof window)) > 0; *bytes += n)
        for (const char *at = window; (at = memchr(at, '\n', (size_t)(window + n - at))); at++) ++*lines;
    close(fd);
    return now_s() - start;
}

static double scan_s(const char *path, int64_t *rows, Err *e) {
    RowReader r;
    json_t *row = NULL;
    double start = now_s();
    *rows = 0;
    if (!dataset_reader_open(&r, path, e)) return -1;
    bool ok;
    while ((ok = dataset_reader_next(&r, &row, e)) && row) {
        json_decref(row);
        ++*rows;
    }
    dataset_reader_close(&r);
    return ok ? now_s() - start : -1;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "make"))
        return make(!strcmp(argv[2], "messages"), atoll(argv[3]) * 1000000, argv[4]);
    if (argc < 2) return fprintf(stderr, "usage: scan_speed FILE [REPEATS]\n"), 2;
    int repeats = argc > 2 ? atoi(argv[2]) : 3;
    int64_t bytes = 0, lines = 0, rows = 0;
    double read = 1e9, scan = 1e9;
    Err e = {0};
    for (int i = 0; i < repeats; i++) {
        double r = read_s(argv[1], &bytes, &lines), s = scan_s(argv[1], &rows, &e);
        if (s < 0) return fprintf(stderr, "scan_speed: %s\n", e.text), 1;
        read = r < read ? r : read;
        scan = s < scan ? s : scan;
    }
    printf("{\"bytes\":%lld,\"rows\":%lld,\"scan_MB_per_s\":%.1f,\"read_MB_per_s\":%.1f}\n", (long long)bytes,
           (long long)rows, (double)bytes / scan / 1e6, (double)bytes / read / 1e6);
    return lines == rows ? 0 : 1;
}
