/* cost.c - what a program should take in time on a machine: enough to rank plans, not to promise seconds.
 *
 * A step takes what its slower side takes, arithmetic or memory, plus a fixed cost. Products and attention (the
 * rows with a flops rule) run at the rate that was measured for their shape, or else at the machine's matrix rate;
 * the rest does little arithmetic and is bound by its bytes. Queues run side by side as far as steps do not wait for each other. */
#include "ir/block_device.h"
#include "plan/plan_int.h"

static double seconds_at(double amount, double per_second) {
    return per_second > 0 ? amount / per_second : 0;
}

/* A product by its tokens and the shorter side of its weight, attention by its length and head size. */
static double measured_rate(const Program *p, const Machine *m, const Step *s) {
    double rows = (double)prog_rows(p, s->in[0] ? s->in[0] : s->in[1]), head_rows = (double)s->attr.head.chunk;
    double width = s->in[0] && s->in[1] ? (double)MIN2(prog_cols(p, s->in[0]), prog_cols(p, s->in[1])) : 0;
    switch (s->op) {
        case OP_LINEAR:
        case OP_LINEAR_SWIGLU:
            width = (double)MIN2(prog_rows(p, s->in[1]), prog_cols(p, s->in[1]));
            return machine_grid_rate(&m->products, PASS_FORWARD, rows, width);
        case OP_LINEAR_DX:
            return machine_grid_rate(&m->products, PASS_DX, rows, width);
        case OP_LINEAR_DW:
            return machine_grid_rate(&m->products, PASS_DW, rows, width);
        case OP_LORA:
            return machine_grid_rate(&m->products, PASS_FORWARD, rows, s->attr.lora.rank);
        case OP_LORA_DU:
        case OP_LORA_DX:
            return machine_grid_rate(&m->products, PASS_DX, rows, s->attr.lora.rank);
        case OP_LORA_DA:
        case OP_LORA_DB:
            return machine_grid_rate(&m->products, PASS_DW, rows, s->attr.lora.rank);
        case OP_HEAD_LOGP:
        case OP_HEAD_SWEEP:
            return machine_grid_rate(&m->products, PASS_FORWARD, MIN2(rows, head_rows), (double)prog_cols(p, s->in[0]));
        case OP_ATTEND:
        case OP_ATTEND_GRAD:
            return machine_grid_rate(&m->attention, s->op == OP_ATTEND ? ATTEND_FORWARD : ATTEND_BACKWARD,
                                     (double)s->attr.heads.seq, s->attr.heads.head_dim);
        default:
            return 0;
    }
}

#define DISK_BYTES_PER_S 1e9 /* a modest NVMe disk; `snug doctor` measures */

static double move_rate(const Machine *m, Queue q) {
    if (q != QUEUE_DISK_IN && q != QUEUE_DISK_OUT) return m->copy_bytes_per_s;
    return m->disk_bytes_per_s > 0 ? m->disk_bytes_per_s : DISK_BYTES_PER_S;
}

/* Attention's products are short and wait for its exponentials: what is left of the rate of large products on an H200
 * (docs/performance.md, "Attention by itself"): `most` of it in long rows, half of that in rows of `half` tokens. */
typedef struct AttendShare {
    double most, half;
} AttendShare;

static double attend_share(const AttrHeads *h, Format f, bool backward) {
    static const AttendShare share[2][2][2] = { /* ours, a library's; heads of 64, of 128; forward, backward */
        {{{0.49, 450}, {0.38, 350}}, {{0.59, 330}, {0.44, 200}}},
        {{{0.63, 700}, {0.55, 1000}}, {{0.80, 340}, {0.65, 770}}}};
    enum { WIDE = 96 };
    AttendShare a = share[device_attend_by_library(h, f)][h->head_dim >= WIDE][backward];
    return a.most * (double)h->seq / ((double)h->seq + a.half);
}

static double rate_unmeasured(const Program *p, const Machine *m, const Step *s) {
    bool backward = s->op == OP_ATTEND_GRAD;
    if (m->kind != MACHINE_CUDA || (s->op != OP_ATTEND && !backward)) return m->matrix_flops;
    return m->matrix_flops * attend_share(&s->attr.heads, prog_t(p, s->in[0])->format, backward);
}

/* ---- what a GPU's kernels do beside that, as --profile of `snug train` and `snug generate` shows it on an H200 ---- */

/* What a kernel reaches of the memory's rate: norms of heads walk their rows more than once, sums over tokens are joined by
 * a second kernel. */
static double byte_share(OpId op) {
    switch (op) {
        case OP_RMSNORM:
        case OP_ADD_RMSNORM:
            return 0.9;
        case OP_RMSNORM_GRAD:
            return 0.8;
        case OP_HEAD_NORM:
        case OP_LINEAR_DB:
            return 0.6;
        case OP_HEAD_NORM_GRAD:
            return 0.45;
        default:
            return 1;
    }
}

/* Bytes that come on top of the arithmetic, not beside it: the second product of an adapter goes over all of y; between
 * the products of a head its chunk of logits is read twice and written once, and a gradient of w is added to for each chunk. */
static double bytes_on_top(const Program *p, const Step *s) {
    if (s->op == OP_LORA) return op_bytes_moved(p, s);
    if (s->op != OP_HEAD_SWEEP) return 0;
    double rows = (double)prog_rows(p, s->in[0]), logits = rows * (double)prog_rows(p, s->in[1]);
    double dw = s->out[3] ? 2 * (double)prog_bytes(p, s->out[3]) * rows / (double)MAX2(s->attr.head.chunk, 1) : 0;
    return 3 * logits * (double)format_item_bytes(prog_t(p, s->in[0])->format) + dw;
}

/* Updates and sums of squares that follow each other are a few launches in all; a token that attends puts its own key, but
 * for a cache in int8. */
static bool joins_the_step_before(const Program *p, const Phase *phase, int i) {
    const Step *s = &p->s[i];
    OpId op = s->op, before = i > phase->begin ? p->s[i - 1].op : OP_COUNT;
    if (op == OP_ATTEND_CACHE)
        return before == OP_ROPE_PUT && s->attr.heads.seq == 1 && p->t[s->in[1]].format == p->t[s->in[0]].format;
    return before == op && (op == OP_ADAMW || op == OP_SGD || op == OP_SUM_SQUARES);
}

/* Passes of up to LINEAR_DIRECT_MOST rows: from 9.0 on their kernels come up while the one in front still runs
 * (backend/cuda/chain.cuh), and wait there; what is left of a start is what the memory stands idle between two. */
static double start_seconds(const Program *p, const Machine *m, const Phase *phase, int i) {
    const Step *s = &p->s[i];
    if (m->kind != MACHINE_CUDA) return m->step_seconds;
    if (joins_the_step_before(p, phase, i)) return 0;
    bool few = s->region == REGION_FORWARD && prog_rows(p, s->out[0]) <= LINEAR_DIRECT_MOST;
    return m->step_seconds * (few && m->capability >= 90 ? 0.75 : 1);
}

/* A product that reads what is stored: the registers that multiply turn codes into numbers first, in between loads, so that
 * the arithmetic comes on top of the bytes, at little more than a quarter of the rate of large products. */
static double decoding_seconds(const Program *p, const Machine *m, const Step *s) {
    bool product = s->op == OP_LINEAR || s->op == OP_LINEAR_SWIGLU || s->op == OP_HEAD_LOGITS;
    if (!product || format_table[prog_t(p, s->in[1])->format].plain || prog_rows(p, s->in[0]) > LINEAR_DIRECT_MOST) return 0;
    return seconds_at(op_flops(p, s), m->matrix_flops * 0.28);
}

/* As op_bytes_moved counts them; a program that was planned knows the bytes of its tensors already. */
static double bytes_moved(const Program *p, const Step *s) {
    double n = 0;
    if (s->op == OP_EMBED || !p->t[s->out[0]].bytes) return op_bytes_moved(p, s);
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) n += (double)p->t[s->in[k]].bytes;
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] && p->t[s->out[k]].role != ROLE_CACHE) n += (double)p->t[s->out[k]].bytes;
    return n;
}

static double step_cost(const Program *p, const Machine *m, const Phase *phase, int i) {
    const Step *s = &p->s[i];
    const OpRow *row = op_row(s->op);
    bool gpu = m->kind == MACHINE_CUDA;
    if (row->flags & OPF_MOVES) /* every byte once across, not once read and once written */
        return seconds_at((double)prog_bytes(p, s->in[0]), move_rate(m, s->queue)) + m->step_seconds;
    double moving = seconds_at(bytes_moved(p, s), m->memory_bytes_per_s * (gpu ? byte_share(s->op) : 1));
    double rate = row->flops ? measured_rate(p, m, s) : m->vector_flops;
    double computing = seconds_at(op_flops(p, s), rate > 0 ? rate : rate_unmeasured(p, m, s));
    if (gpu) computing += seconds_at(bytes_on_top(p, s), m->memory_bytes_per_s);
    if (gpu) moving += decoding_seconds(p, m, s);
    return MAX2(moving, computing) + start_seconds(p, m, phase, i);
}

/* A phase on paper, in list order. Queues run side by side; a step begins when its queue is free, when what other
 * queues bring it is there, and, on a side queue, not before the computing in front of it is over: copies are issued
 * where the bytes they take become free. */
static double phase_seconds(const Program *p, const Machine *m, const Phase *phase) {
    double queue[QUEUE_COUNT] = {0}, *ready = MEM_NEW(double, p->n_t), last = 0;
    for (int i = phase->begin; i < phase->end; i++) {
        const Step *s = &p->s[i];
        double begin = queue[s->queue];
        if (s->queue != QUEUE_COMPUTE) begin = MAX2(begin, queue[QUEUE_COMPUTE]);
        for (int k = 0; k < MAX_IN; k++)
            if (s->in[k]) begin = MAX2(begin, ready[prog_base(p, s->in[k])]);
        queue[s->queue] = begin + step_cost(p, m, phase, i);
        for (int k = 0; k < MAX_OUT; k++)
            if (s->out[k]) ready[prog_base(p, s->out[k])] = queue[s->queue];
    }
    for (int q = 0; q < QUEUE_COUNT; q++) last = MAX2(last, queue[q]);
    mem_free(ready);
    return last;
}

double plan_step_seconds(const Program *p, const Machine *m, int phase) {
    CHECK(phase < p->n_phases);
    if (phase >= 0) return phase_seconds(p, m, &p->phase[phase]);
    double sum = 0;
    for (int i = 0; i < p->n_phases; i++) sum += phase_seconds(p, m, &p->phase[i]) * (double)p->phase[i].repeat;
    return sum;
}

double plan_useful_flops(const Program *p, int phase) {
    CHECK(phase >= 0 && phase < p->n_phases);
    double sum = 0;
    for (int i = p->phase[phase].begin; i < p->phase[phase].end; i++)
        if (op_row(p->s[i].op)->flops && p->s[i].region != REGION_RECOMPUTE) sum += op_flops(p, &p->s[i]);
    return sum;
}
