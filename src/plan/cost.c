/* cost.c - what a program should take in time on a machine: enough to rank plans, not to promise seconds.
 *
 * A step takes what its slower side takes, arithmetic or memory, plus a fixed cost. Products and attention (the
 * rows with a flops rule) run at the machine's matrix rate; the rest does little arithmetic and is bound by its
 * bytes. Queues run side by side, so a phase takes as long as its busiest queue. */
#include "plan/plan_int.h"

static double seconds_at(double amount, double per_second) {
    return per_second > 0 ? amount / per_second : 0;
}

static double step_cost(const Program *p, const Machine *m, const Step *s) {
    const OpRow *row = op_row(s->op);
    if (row->flags & OPF_MOVES) /* every byte once across, not once read and once written */
        return seconds_at((double)prog_bytes(p, s->in[0]), m->copy_bytes_per_s) + m->step_seconds;
    double moving = seconds_at(op_bytes_moved(p, s), m->memory_bytes_per_s);
    double computing = seconds_at(op_flops(p, s), row->flops ? m->matrix_flops : m->vector_flops);
    return MAX2(moving, computing) + m->step_seconds;
}

static double phase_seconds(const Program *p, const Machine *m, const Phase *phase) {
    double busy[QUEUE_COUNT] = {0}, most = 0;
    for (int i = phase->begin; i < phase->end; i++) busy[p->s[i].queue] += step_cost(p, m, &p->s[i]);
    for (int q = 0; q < QUEUE_COUNT; q++) most = MAX2(most, busy[q]);
    return most;
}

double plan_step_seconds(const Program *p, const Machine *m, int phase) {
    CHECK(phase < p->n_phases);
    if (phase >= 0) return phase_seconds(p, m, &p->phase[phase]);
    double sum = 0;
    for (int i = 0; i < p->n_phases; i++) sum += phase_seconds(p, m, &p->phase[i]) * (double)p->phase[i].repeat;
    return sum;
}
