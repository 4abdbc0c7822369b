/* report.c - the placed arena as ledger lines: whose bytes they are.
 *
 * The arena is smaller than the sum of all tensors, because many never live together. So what lives always counts
 * whole, and what comes and goes counts as it stands at the pool's peak step. The line "slack" closes the sum:
 * alignment of slots, rounding to pages, and what the placement lies above the lower bound. */
#include "plan/plan_int.h"

typedef enum LineId {
    LINE_WEIGHTS,
    LINE_QUANTISED, /* weights in a format with scales */
    LINE_ADAPTERS,
    LINE_MASTER,
    LINE_GRADIENTS,
    LINE_OPTIMIZER,
    LINE_CORRECTION,
    LINE_CACHE,
    LINE_ACTIVATIONS,
    LINE_HEAD, /* what the head's steps write: logits in scratch, log-probabilities, the hidden gradient */
    LINE_WORKSPACE,
    LINE_STAGING, /* state that is being copied in or out */
    LINE_STATISTICS,
    LINE_INPUTS, /* and dials and tables */
    LINE_COUNT
} LineId;

static const char *const line_names[LINE_COUNT] = {
    "weights", "quantised weights", "adapters", "master",  "gradients",  "optimizer", "correction", "cache",
    "activations", "head",          "workspace", "staging", "statistics", "inputs"};

typedef enum Origin { ORIGIN_PLAIN, ORIGIN_HEAD, ORIGIN_MOVE } Origin; /* of an activation or a scratch */

static uint8_t *origins(const Program *p) {
    uint8_t *origin = MEM_NEW(uint8_t, p->n_t);
    for (int64_t i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        bool head = op_row(s->op)->flags & OPF_HEAD;
        uint8_t o = head ? ORIGIN_HEAD : s->region == REGION_MOVE ? ORIGIN_MOVE : ORIGIN_PLAIN;
        for (int k = 0; k < MAX_OUT; k++)
            if (s->out[k]) origin[prog_base(p, s->out[k])] = o;
        if (s->workspace) origin[s->workspace] = o;
    }
    return origin;
}

static LineId line_of(const Tensor *t, Origin origin) {
    switch (t->role) {
        case ROLE_WEIGHT:
            return format_table[t->format].plain ? LINE_WEIGHTS : LINE_QUANTISED;
        case ROLE_ADAPTER:
            return LINE_ADAPTERS;
        case ROLE_MASTER:
            return LINE_MASTER;
        case ROLE_MOMENT:
            return LINE_OPTIMIZER;
        case ROLE_CORRECTION:
            return LINE_CORRECTION;
        case ROLE_GRADIENT:
            return LINE_GRADIENTS;
        case ROLE_CACHE:
            return LINE_CACHE;
        case ROLE_STATISTIC:
            return LINE_STATISTICS;
        case ROLE_SCRATCH:
            return origin == ORIGIN_HEAD ? LINE_HEAD : LINE_WORKSPACE;
        case ROLE_STAGED:
            return LINE_STAGING;
        case ROLE_ACTIVATION: /* a copy that stays is what its original is */
            if (t->home.load) return format_table[t->format].plain ? LINE_WEIGHTS : LINE_QUANTISED;
            break;
        default:
            return LINE_INPUTS;
    }
    return origin == ORIGIN_HEAD ? LINE_HEAD : origin == ORIGIN_MOVE ? LINE_STAGING : LINE_ACTIVATIONS;
}

_Static_assert((int)LINE_COUNT == (int)REPORT_LINES, "plan_int.h counts the lines");
const char *plan_line_name(int line) { return line_names[line]; }

uint8_t *plan_lines_of(const Program *p) {
    uint8_t *line = origins(p);
    for (Tid id = 1; id < p->n_t; id++) line[id] = (uint8_t)line_of(&p->t[id], (Origin)line[id]);
    return line;
}

/* Who is in each slot at the peak: where one takes over from another in that very step, the newcomer. */
static Tid *tenants_at(const Program *p, Pool pool, int step) {
    Tid *tenant = MEM_NEW(Tid, p->n_t);
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (t->base || t->home.pool != pool || t->birth < 0 || t->birth > step || t->death < step) continue;
        Tid before = tenant[t->slot];
        if (!before || t->birth > p->t[before].birth) tenant[t->slot] = id;
    }
    return tenant;
}

static void ledger_of_pool(const Program *p, const Placement *pl, const Machine *m, Pool pool,
                           const uint8_t *line_of_tensor, Ledger *l) {
    int64_t bytes[LINE_COUNT][FMT_COUNT] = {{0}}, rest = pl->arena_bytes[pool];
    int peak;
    plan_peak(p, m->align_bytes, pool, &peak);
    Tid *tenant = tenants_at(p, pool, peak);
    for (Tid slot = 1; slot < p->n_t; slot++) {
        const Tensor *t = &p->t[tenant[slot]];
        if (tenant[slot]) bytes[line_of_tensor[tenant[slot]]][t->format] += t->bytes;
    }
    mem_free(tenant);
    for (int line = 0; line < LINE_COUNT; line++) {
        int64_t sum = 0;
        int most = 0; /* a line that mixes formats shows the one most of its bytes are in */
        for (int f = 0; f < FMT_COUNT; f++) {
            sum += bytes[line][f];
            if (bytes[line][f] > bytes[line][most]) most = f;
        }
        bool noted = line <= LINE_ACTIVATIONS;
        if (sum) ledger_add(l, pool, line_names[line], noted ? format_name((Format)most) : NULL, sum, true);
        rest -= sum;
    }
    CHECK(rest >= 0);
    if (rest) ledger_add(l, pool, "slack", NULL, rest, true);
}

int64_t plan_file_bytes(const Program *p) {
    int64_t bytes = 0;
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (!t->base && t->birth >= 0 && t->home.pool == POOL_DISK && t->in_file) bytes += t->bytes;
    }
    return bytes;
}

void plan_ledger(const Program *p, const Placement *pl, const Machine *m, Ledger *l) {
    uint8_t *line = plan_lines_of(p);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        ledger_of_pool(p, pl, m, (Pool)pool, line, l);
        l->arena_bytes[pool] = pl->arena_bytes[pool];
        l->lower_bound_bytes[pool] = pl->lower_bound_bytes[pool];
    }
    mem_free(line);
}
