/* distance.c - how far a token's hidden state is from a reference's, or from a fixed vector (ir/op_token.c). */
#include "backend/cpu/cpu.h"

enum { CHUNK = 1024 };

typedef struct Distance {
    Operand x, ref, toward;
    const float *how; /* rows of DISTANCE_WORDS */
    float *v;         /* [rows], or ... */
    const float *dv;  /* ... [rows], ... */
    Operand dx;       /* ... and where the gradient goes */
} Distance;

/* Numbers [c, c+n) of a row's difference; a word of 0: its operand is not read. */
static void subtract(float *off, const Distance *d, int64_t row, int64_t c, int64_t n) {
    float room[CHUNK];
    const float *how = d->how + row * DISTANCE_WORDS;
    int64_t at = row * cpu_cols(d->x.t) + c;
    cpu_load(off, d->x.data, d->x.t->format, at, n);
    if (how[DISTANCE_REF] != 0.0f) {
        const float *ref = cpu_read(room, d->ref, at, n);
        for (int64_t i = 0; i < n; i++) off[i] -= how[DISTANCE_REF] * ref[i];
    }
    if (how[DISTANCE_TOWARD] != 0.0f) {
        const float *toward = cpu_read(room, d->toward, c, n);
        for (int64_t i = 0; i < n; i++) off[i] -= how[DISTANCE_TOWARD] * toward[i];
    }
}

static void distance_row(void *context, int64_t row, int worker) {
    const Distance *d = context;
    int64_t cols = cpu_cols(d->x.t);
    double sum = 0;
    for (int64_t c = 0; c < cols; c += CHUNK) {
        float off[CHUNK];
        int64_t n = MIN2(CHUNK, cols - c);
        subtract(off, d, row, c, n);
        for (int64_t i = 0; i < n; i++) sum += (double)off[i] * (double)off[i];
    }
    d->v[row] = (float)(sum / (double)cols);
}

static void gradient_row(void *context, int64_t row, int worker) {
    const Distance *d = context;
    int64_t cols = cpu_cols(d->x.t);
    float slope = (float)(2.0 * (double)d->dv[row] / (double)cols);
    for (int64_t c = 0; c < cols; c += CHUNK) {
        float off[CHUNK] = {0};
        int64_t n = MIN2(CHUNK, cols - c);
        if (slope != 0.0f) subtract(off, d, row, c, n);
        for (int64_t i = 0; i < n; i++) off[i] *= slope;
        cpu_write(d->dx, row * cols + c, off, n);
    }
}

void cpu_row_distance(Backend *b, Queue q, const Args *a) {
    Distance d = {.x = a->row_distance.in.x, .ref = a->row_distance.in.ref, .toward = a->row_distance.in.toward,
                  .how = a->row_distance.in.how.data, .v = a->row_distance.out.v.data};
    threads_for(cpu_threads(b), cpu_rows(d.x.t), distance_row, &d);
}

void cpu_row_distance_grad(Backend *b, Queue q, const Args *a) {
    Distance d = {.x = a->row_distance_grad.in.x, .ref = a->row_distance_grad.in.ref,
                  .toward = a->row_distance_grad.in.toward, .how = a->row_distance_grad.in.how.data,
                  .dv = a->row_distance_grad.in.dv.data, .dx = a->row_distance_grad.out.dx};
    threads_for(cpu_threads(b), cpu_rows(d.x.t), gradient_row, &d);
}
