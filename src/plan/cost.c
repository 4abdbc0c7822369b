/* cost.c - the cost model: predicted time of a program on a machine. Good enough to rank plans; no promise of seconds.
 *
 * A step takes what its slower side takes, arithmetic or memory, plus a fixed cost. Products and attention (the
 * rows with a flops rule) run at the rate that was measured for their shape, or else at the machine's rate for
 * products of their format; kernels without tensor cores at their share of the vector rate; the rest does little
 * arithmetic and is bound by its bytes. Queues run side by side as far as steps do not wait for each other. */
#include "ir/block_device.h"
#include "ir/product_device.h"
#include "plan/plan_int.h"

static double seconds_at(double amount, double per_second) {
    return per_second > 0 ? amount / per_second : 0;
}

/* ---- arithmetic ---- */

/* Attention's products are short and wait for its exponentials: what is left of the rate of large products on an H200
 * (docs/performance.md, "Attention by itself"): `most` of it in long rows, half of that in rows of `half` tokens. */
typedef struct AttendShare {
    double most, half;
} AttendShare;

static double attend_share(bool library, int head_dim, bool backward, double seq) {
    static const AttendShare share[2][2][2] = { /* ours, a library's; heads of 64, of 128; forward, backward */
        {{{0.49, 450}, {0.38, 350}}, {{0.59, 330}, {0.44, 200}}},
        {{{0.63, 700}, {0.55, 1000}}, {{0.80, 340}, {0.65, 770}}}};
    enum { WIDE = 96 };
    AttendShare a = share[library][head_dim >= WIDE][backward];
    return a.most * seq / (seq + a.half);
}

static bool has_prefix(const Step *s) {
    return (s->op == OP_ATTEND && s->attend.in.prefix) || (s->op == OP_ATTEND_GRAD && s->attend_grad.in.prefix);
}

/* Of our own attention's rate, with a prefix on a GPU. Its tiles are cut at two ranges instead of one: a tile's worth
 * of keys more is computed for each query. On 9.0 it has no kernels by wgmma: what those by mma.sync reach of their
 * rate in rows of 2048 (docs/performance.md, "Attention by itself"). */
static double prefix_share(const Machine *m, const Step *s, OpSize at) {
    static const double by_mma[2][2] = {{0.85, 0.76}, {0.80, 0.61}}; /* heads of 64, of 128; forward, backward */
    double seen = (at.x + 1) / 2;
    if (m->kind != MACHINE_CUDA || !has_prefix(s)) return 1;
    double cut = seen / (seen + DEVICE_ATTEND_TILE);
    bool wgmma = m->capability == 90 && (s->attr.heads.head_dim == 64 || s->attr.heads.head_dim == 128);
    return wgmma ? cut * by_mma[s->attr.heads.head_dim == 128][op_row(s->op)->table == ATTEND_BACKWARD] : cut;
}

static bool by_library(const Program *p, const Step *s) {
    return !has_prefix(s) && device_attend_by_library(&s->attr.heads, prog_t(p, op_token_rows(s))->format);
}

/* `snug doctor` measures our own attention, in rows of some lengths: what a library's reaches, and what rows beyond
 * those lengths do, is taken from the shares. */
static double measured_attention(const Program *p, const Machine *m, const Step *s, OpSize at) {
    const OpRow *row = op_row(s->op);
    const MachineGrid *g = &m->attention;
    double rate = machine_grid_rate(g, row->table, at.x, at.y);
    if (m->kind != MACHINE_CUDA || !(rate > 0)) return rate;
    double inside = MAX2((double)g->x[0], MIN2((double)g->x[g->n_x - 1], at.x));
    bool backward = row->table == ATTEND_BACKWARD;
    int head_dim = s->attr.heads.head_dim;
    double here = attend_share(by_library(p, s), head_dim, backward, at.x);
    return rate * here / attend_share(false, head_dim, backward, inside) * prefix_share(m, s, at);
}

/* A product that is timed by itself finds a cool card: in a run an H200 has lower clocks. Small products do not heat
 * it. */
static double sustained(const Machine *m, OpSize at) {
    enum { HEATING = 2048 };
    return m->kind == MACHINE_CUDA && at.y >= HEATING ? 0.93 : 1;
}

static double measured_rate(const Program *p, const Machine *m, const Step *s) {
    const OpRow *row = op_row(s->op);
    if (row->grid == GRID_NONE) return 0;
    OpSize at = row->size(p, s);
    if (row->grid == GRID_ATTENTION) return measured_attention(p, m, s, at);
    return machine_grid_rate(&m->products, row->table, at.x, at.y) * sustained(m, at);
}

/* A weight's gradient is summed over tokens: with few of them a GPU's product is short and its output large. What
 * `snug doctor` measured on an H200: 399 TFLOP/s over 1024 tokens, 634 over 8192. On a processor it is a narrow weight
 * (an adapter's rank) that leaves the vectors half empty. */
static double product_share(const Program *p, const Machine *m, const Step *s) {
    const OpRow *row = op_row(s->op);
    enum { FEW_TOKENS = 1200, MANY_TOKENS = 8192, NARROW = 32 };
    if (row->grid != GRID_PRODUCTS) return 1;
    OpSize at = row->size(p, s);
    if (m->kind == MACHINE_CPU) return at.y / (at.y + NARROW);
    double tokens = MIN2(at.x, MANY_TOKENS);
    return row->table == PASS_DW ? tokens / (tokens + FEW_TOKENS) * (MANY_TOKENS + FEW_TOKENS) / MANY_TOKENS : 1;
}

static double rate_unmeasured(const Program *p, const Machine *m, const Step *s, bool f32) {
    const OpRow *row = op_row(s->op);
    double rate = machine_product_flops(m, f32);
    if (m->kind != MACHINE_CUDA || row->grid != GRID_ATTENTION) return rate * product_share(p, m, s);
    const AttrHeads *h = &s->attr.heads;
    OpSize at = row->size(p, s);
    if (f32) return m->vector_flops * (row->table == ATTEND_BACKWARD ? 0.087 : 0.155); /* without tensor cores */
    return rate * attend_share(by_library(p, s), h->head_dim, row->table == ATTEND_BACKWARD, at.x) *
           prefix_share(m, s, at);
}

/* On a processor products of 16-bit numbers are made of fp32 ones: what turning them over costs. */
#define TURNED_SHARE 0.87

static double flops_rate(const Program *p, const Machine *m, const Step *s) {
    const OpRow *row = op_row(s->op);
    bool gpu = m->kind == MACHINE_CUDA;
    if (!row->flops) return m->vector_flops;
    double share = gpu && row->matrix_share ? row->matrix_share(p, s, m) : 0;
    if (share > 0) return m->matrix_flops * share;
    if (gpu && row->vector_share) return m->vector_flops * row->vector_share(p, s);
    bool f32 = prog_t(p, op_token_rows(s))->format == FMT_F32;
    double rate = gpu && f32 ? 0 : measured_rate(p, m, s); /* in the machine's working format */
    if (!(rate > 0)) rate = rate_unmeasured(p, m, s, f32);
    return gpu || f32 ? rate : rate * TURNED_SHARE;
}

/* ---- bytes ---- */

#define DISK_BYTES_PER_S 1e9 /* a modest NVMe disk; `snug doctor` measures */

static double move_rate(const Machine *m, Queue q) {
    if (q != QUEUE_DISK_IN && q != QUEUE_DISK_OUT) return m->copy_bytes_per_s;
    return m->disk_bytes_per_s > 0 ? m->disk_bytes_per_s : DISK_BYTES_PER_S;
}

/* ---- launches and decoding on a GPU, as --profile shows them on an H200 ---- */

static bool joins_the_step_before(const Program *p, const Phase *phase, int i) {
    const Step *s = &p->s[i];
    const OpRow *row = op_row(s->op);
    if (i == phase->begin) return false;
    return row->joins ? row->joins(p, s - 1, s) : row->flags & OPF_TOGETHER && p->s[i - 1].op == s->op;
}

/* A product that reads a quantised weight as it is stored. */
static bool reads_codes(const Program *p, const Step *s) {
    const OpPlaces *at = op_places(s->op);
    if (!(op_row(s->op)->flags & OPF_DECODES) || prog_rows(p, op_token_rows(s)) > LINEAR_DIRECT_MOST) return false;
    for (int k = 0; k < at->n_in; k++)
        if (at->in[k].marks & MARK_STORED && !format_table[prog_t(p, s->in[k])->format].plain) return true;
    return false;
}

static bool by_library_of_products(const Program *p, const Step *s) {
    const OpRow *row = op_row(s->op);
    bool own = row->flags & OPF_DECODES && prog_rows(p, op_token_rows(s)) <= DEVICE_PLAIN_ROWS;
    return row->grid == GRID_PRODUCTS && !own && !reads_codes(p, s);
}

/* Passes of up to LINEAR_DIRECT_MOST rows: from 9.0 on our kernels are launched while the one in front still runs
 * (programmatic dependent launch: backend/cuda/chain.cuh); what is left of a launch is the time that the memory is idle
 * between two. A library's products are not. */
static double start_seconds(const Program *p, const Machine *m, const Phase *phase, int i) {
    const Step *s = &p->s[i];
    const OpRow *row = op_row(s->op);
    if (m->kind != MACHINE_CUDA) return m->step_seconds;
    if (joins_the_step_before(p, phase, i)) return 0;
    bool few = s->region == REGION_FORWARD && prog_rows(p, prog_first_out(s)) <= LINEAR_DIRECT_MOST;
    bool chained = few && m->capability >= 90 && !by_library_of_products(p, s);
    return m->step_seconds * (chained ? 0.75 : 1) * (row->launches ? row->launches(p, s, m) : 1);
}

/* The registers that multiply turn codes into numbers first, in between loads, so that the arithmetic comes on top of
 * the bytes, at little more than a quarter of the rate of large products. */
static double decoding_seconds(const Program *p, const Machine *m, const Step *s) {
    return reads_codes(p, s) ? seconds_at(op_flops(p, s), m->matrix_flops * 0.28) : 0;
}

/* Of a step that reads a cache: how much of it a play finds filled. */
static double filled_share(const Program *p, const Phase *phase, const Step *s) {
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] && p->t[prog_base(p, s->in[k])].role == ROLE_CACHE && phase->filled > 0) return phase->filled;
    return 1;
}

/* As op_bytes_moved counts them; a program that was planned knows the bytes of its tensors already. */
static double bytes_moved(const Program *p, const Step *s) {
    const OpPlaces *at = op_places(s->op);
    double n = 0;
    if (!p->t[prog_first_out(s)].bytes) return op_bytes_moved(p, s);
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) n += (double)p->t[at->in[k].marks & MARK_GATHERED ? prog_first_out(s) : s->in[k]].bytes;
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] && p->t[s->out[k]].role != ROLE_CACHE) n += (double)p->t[s->out[k]].bytes;
    return n;
}

/* What an optimizer's kernel reaches depends on what it writes: an H200 moves 3.6 to 4.1 TB/s where all is bf16 or
 * all fp32, 3.2 where both are, 2.5 where moments are codes, of which it has to know the largest of a block before
 * it writes one. */
static double byte_share(const Program *p, const Step *s) {
    const OpRow *row = op_row(s->op);
    bool codes = false, wide = false, half = false;
    if (s->op != OP_ADAMW && s->op != OP_SGD && s->op != OP_SGD_CARRY) return row->byte_share > 0 ? row->byte_share : 1;
    for (int k = 0; k < MAX_OUT; k++) {
        if (!s->out[k]) continue;
        Format f = prog_t(p, s->out[k])->format;
        codes |= !format_table[f].plain;
        wide |= f == FMT_F32;
        half |= f == FMT_BF16 || f == FMT_F16;
    }
    return codes ? 0.6 : wide && half ? 0.75 : 0.9;
}

static double step_cost(const Program *p, const Machine *m, const Phase *phase, int i) {
    const Step *s = &p->s[i];
    const OpRow *row = op_row(s->op);
    bool gpu = m->kind == MACHINE_CUDA;
    if (row->flags & OPF_MOVES) /* every byte once across, not once read and once written */
        return seconds_at((double)prog_bytes(p, prog_first_out(s)), move_rate(m, s->queue)) + m->step_seconds;
    double filled = filled_share(p, phase, s); /* of what such a step moves, next to nothing is not the cache */
    double moving = seconds_at(filled * bytes_moved(p, s), m->memory_bytes_per_s * (gpu ? byte_share(p, s) : 1));
    double computing = seconds_at(filled * op_flops(p, s), flops_rate(p, m, s));
    if (gpu && row->bytes_on_top) computing += seconds_at(row->bytes_on_top(p, s), m->memory_bytes_per_s);
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
