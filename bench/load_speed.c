/* load_speed.c - how fast a model's weights come from their files into their planned slots, beside the floor: the same
 * files read into the same memory in order. One JSON line; processor time, so that it means something on a busy
 * machine.
 *
 * usage: load_speed FOLDER bf16|fp32 [REPEATS]    (bench/cpu_all.sh builds and runs it; the files should be cached) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "train/job.h"
#include "weights/weights.h"

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int complain(const Err *e) {
    fprintf(stderr, "load_speed: %s\n", e->text);
    return 1;
}

/* The floor: every file of the set, 8 MiB at a time, one after the other in memory; over again where that is short. */
static double read_s(const StSet *s, char *to, int64_t room) {
    enum { PIECE = 8 << 20 };
    double start = now_s();
    for (int f = 0; f < s->n_files; f++) {
        int64_t at = 0;
        for (ssize_t n; (n = pread(s->fd[f], to + at % (room - PIECE), PIECE, at)) > 0;) at += n;
    }
    return now_s() - start;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: load_speed FOLDER bf16|fp32 [REPEATS]\n"), 2;
    int repeats = argc > 3 ? atoi(argv[3]) : 3;
    bool converts = !strcmp(argv[2], "fp32");
    Err e = {0};
    Backend *b;
    Machine m = {0};
    Job *j = MEM_NEW(Job, 1);
    JobSpec *s = MEM_NEW(JobSpec, 1);
    Ring *r = MEM_NEW(Ring, 1);
    StSet set;
    *s = (JobSpec){.train = converts, .m.activations = FMT_F32, .weights = FMT_F32, .gradients = FMT_F32,
                   .optimizer = OPTIMIZER_SGD, .seq = 16, .micro_batch = 1, .accum = 1};
    if (!config_from_file(&s->m.config, argv[1], &e) || !backend_open(&b, "cpu", (BackendOptions){0}, &e))
        return complain(&e);
    b->describe(b, &m);
    if (!job_plan(j, r, s, &m, NULL, &e) || !ring_open(r, b, &e)) return complain(&e);
    if (!st_open(&set, argv[1], &e)) return complain(&e);
    double load = 1e9, read = 1e9;
    for (int i = 0; i < repeats; i++) {
        double start = now_s();
        if (!weights_load(&r->x, NULL, ROLE_WEIGHT, argv[1], &e)) return complain(&e);
        load = MIN2(load, now_s() - start);
        read = MIN2(read, read_s(&set, r->x.pool[POOL_DEVICE], r->x.pool_bytes[POOL_DEVICE]));
    }
    printf("{\"bytes\":%lld,\"into\":\"%s\",\"load_MB_per_s\":%.0f,\"read_MB_per_s\":%.0f,\"ratio\":%.3f}\n",
           (long long)set.total_bytes, argv[2], (double)set.total_bytes / load / 1e6,
           (double)set.total_bytes / read / 1e6, read / load);
    st_close(&set);
    exec_close(&r->x);
    ring_close(r);
    b->close(b);
    mem_free(r);
    mem_free(j);
    mem_free(s);
    return 0;
}
