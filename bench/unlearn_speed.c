/* unlearn_speed.c - how fast LMCleaner's passes over v go, beside a copy of the same memory. One JSON line; processor
 * time, so that it means something on a busy machine: bytes read and written, over the seconds of all threads.
 *
 * usage: unlearn_speed MILLIONS THREADS [REPEATS]    (10 bytes of memory a parameter; bench/unlearn_speed.sh) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/half.h"
#include "unlearn/carry.h"

enum { PIECE_BYTES = 4 << 20 /* as a device hands a tensor over */ };

typedef struct Bench {
    int64_t n;
    int threads, repeats;
    Threads *team;
    Program p;
    Backend device;
    Exec x;
    ParamTensor tensor;
    WalkSpan span;
    Params params;
    Carry carry;
    float *v;
    char *g; /* where the device's gradient would be */
} Bench;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void copy_part(void *context, int64_t from, int64_t end) {
    const Bench *b = context;
    int64_t half = b->n / 2; /* of v, onto the other */
    memcpy(b->v + half + from, b->v + from, sizeof(float) * (size_t)(end - from));
}

static void copy(Bench *b) { vec_for(b->team, b->n / 2, copy_part, b); }
static void norm(Bench *b) { vec_norm(b->team, b->v, b->n); }
static void meet(Bench *b) {
    carry_apply_and_dot(&b->carry);
}
static void settle(Bench *b) {
    b->carry.n_deferred = 1;
    carry_apply_deferred(&b->carry, 0);
}
static void step_and_meet(Bench *b) {
    b->carry.n_deferred = 1;
    carry_apply_and_dot(&b->carry);
}

static const struct {
    const char *name;
    int bytes; /* read and written, a parameter: v 4, a gradient and its copy 2 each */
    void (*run)(Bench *b);
} parts[] = {{"copy", 4, copy},
             {"norm", 4, norm},
             {"meet", 8, meet},
             {"settle", 10, settle},
             {"step_and_meet", 14, step_and_meet}};

static void fetch(Backend *b, const void *device, int64_t bytes, StageFn *fn, void *context) {
    (void)b;
    for (int64_t at = 0; at < bytes; at += PIECE_BYTES)
        fn(context, (char *)device + at, at, MIN2(PIECE_BYTES, bytes - at));
}

/* A gradient and nothing else. */
static void open_bench(Bench *b) {
    int64_t dim[1] = {b->n};
    prog_init(&b->p);
    Tid weight = prog_tensor(&b->p, "w", ROLE_WEIGHT, FMT_BF16, 1, dim);
    b->p.t[weight].grad = prog_tensor(&b->p, "g", ROLE_GRADIENT, FMT_BF16, 1, dim);
    b->p.t[b->p.t[weight].grad].offset = 0;
    b->tensor = (ParamTensor){.weight = weight, .format = FMT_BF16, .count = b->n};
    b->span = (WalkSpan){.count = b->n, .mult = 1, .decay = 0.01};
    b->params = (Params){.tensor = &b->tensor, .span = &b->span, .n_tensors = 1, .n = b->n, .raw_bytes = 2 * b->n,
                         .n_tiles = b->n / 1024 + 1, .team = b->team};
    b->v = vec_new(b->n);
    b->g = mem_alloc_wide(2 * b->n);
    b->device = (Backend){.name = "bench", .fetch = fetch};
    b->x = (Exec){.p = &b->p, .b = &b->device, .pool = {[POOL_DEVICE] = b->g}};
    carry_open(&b->carry, &b->params, &b->x);
    b->carry.v = b->v;
    b->carry.step = (CarryStep){.lr = 1e-3, .times = 1};
    b->carry.scale = 1;
    for (int64_t i = 0; i < b->n; i++) {
        b->v[i] = 1e-3f * (float)(i % 1000);
        ((uint16_t *)b->g)[i] = half_to_bf16(1e-3f * (float)(i % 77));
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: unlearn_speed MILLIONS THREADS [REPEATS]\n"), 2;
    Bench *b = MEM_NEW(Bench, 1);
    Err e = {0};
    b->n = (int64_t)atoi(argv[1]) << 20;
    b->threads = atoi(argv[2]);
    b->repeats = argc > 3 ? atoi(argv[3]) : 3;
    if (!threads_open(&b->team, b->threads, &e)) return fprintf(stderr, "unlearn_speed: %s\n", e.text), 1;
    open_bench(b);
    meet(b); /* the copy's pages */
    printf("{\"parameters\":%lld,\"threads\":%d", (long long)b->n, b->threads);
    for (int i = 0; i < COUNT_OF(parts); i++) {
        double best = 1e9;
        for (int k = 0; k < b->repeats; k++) {
            double start = now_s();
            parts[i].run(b);
            best = MIN2(best, now_s() - start);
        }
        printf(",\"%s_GB_per_s\":%.1f", parts[i].name, 1e-9 * (double)(parts[i].bytes * b->n) / best);
    }
    printf("}\n");
    return 0;
}
