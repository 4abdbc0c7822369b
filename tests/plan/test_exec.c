/* test_exec.c - the executor itself over drawn programs, on a backend whose every kernel is a hash: placed and
 * poisoned, as written and with side queues held back, each step writes what it writes when all tensors lie apart. */
#include "exec/exec.h"

#include "base/rng.h"
#include "plan/plan.h"
#include "tests/plan/player.h"
#include "tests/plan/random.h"
#include "tests/test.h"

typedef struct Hashing {
    Backend b;
    const Program *p;
    char *pool[POOL_COUNT]; /* own */
    bool *begun;            /* owns, per tensor: a gradient or cache was written since the ring began */
    uint64_t *trace;        /* owns, per step: a hash of all that it wrote */
    uint64_t garbage;
} Hashing;

static void *pool_of(Backend *b, Pool kind, int64_t bytes, Err *e) {
    return ((Hashing *)b)->pool[kind] = mem_alloc(bytes + 8);
}
static void release(Backend *b, Pool kind) {
    mem_free(((Hashing *)b)->pool[kind]);
}
static void mark(Backend *b, Queue q, int event) {
}
static void enter(Backend *b, int id) {
}
static bool again(Backend *b, int id) {
    return false;
}
static void put(Backend *b, void *device, const void *host, int64_t bytes) {
    memcpy(device, host, (size_t)bytes);
}

/* What an output held before: counts where state was begun; a gradient's or cache's first write begins all of it. */
static uint64_t begin_output(Hashing *h, const Tensor *t, char *at) {
    Tid id = (Tid)(t - h->p->t), base = prog_base(h->p, id);
    bool goes = t->role == ROLE_GRADIENT || t->role == ROLE_CACHE, state = prog_is_state(h->p, id);
    if (state && (!goes || h->begun[base])) return player_digest(4, at, t->bytes);
    if (state) player_spread(at - t->view_bytes, h->p->t[base].bytes, ++h->garbage);
    else player_spread(at, t->bytes, ++h->garbage);
    h->begun[base] = true;
    return 0;
}

static uint64_t digest_of(Operand x) {
    return player_digest(3, x.data, x.t->bytes);
}

static void hash_kernel(Backend *b, Queue q, const Args *a) {
    Hashing *h = (Hashing *)b;
    const Step *s = a->step;
    const OpRow *row = op_row(s->op);
    bool shares = row->share && a->out[row->share_out].data && a->in[row->share_in].data;
    uint64_t in = player_digest(s->op, &s->attr, sizeof s->attr), old[MAX_OUT] = {0}, all = 0;
    if (shares) in = rng_fold(in, digest_of(a->in[row->share_in]));
    for (int k = 0; k < MAX_OUT; k++)
        if (a->out[k].data) old[k] = begin_output(h, a->out[k].t, a->out[k].data);
    if (a->workspace) player_spread(a->workspace, a->workspace_bytes, ++h->garbage);
    for (int k = 0; k < MAX_IN; k++) /* after the outputs' bytes are gone: only the shared input is safe by then */
        if (a->in[k].data && !(shares && k == row->share_in)) in = rng_fold(in, digest_of(a->in[k]));
    for (int k = 0; k < MAX_OUT; k++) {
        Operand out = a->out[k];
        if (!out.data) continue;
        player_spread(out.data, out.t->bytes, rng_fold(rng_fold(in, (uint64_t)k), old[k]));
        all = rng_fold(all, player_digest(5, out.data, out.t->bytes));
    }
    uint64_t *trace = &h->trace[s - h->p->s];
    *trace = rng_fold(*trace, all);
}

static Kernel *kernels[OP_COUNT];

static void hashing_open(Hashing *h, const Program *p) {
    for (int i = 0; i < OP_COUNT; i++) kernels[i] = hash_kernel;
    *h = (Hashing){.b = {.name = "hash", .host_memory = true, .pool = pool_of, .release = release, .signal = mark,
                         .wait = mark, .begin = enter, .end = enter, .replay = again, .put = put, .kernels = kernels},
                   .p = p, .begun = MEM_NEW(bool, p->n_t), .trace = MEM_NEW(uint64_t, p->n_s + 1)};
}

static void put_drawn(Exec *x, Tid id, uint64_t play) {
    player_spread(exec_address(x, id), x->p->t[id].bytes, rng_fold((uint64_t)id, play));
}

static void put_inputs(Exec *x, const Phase *phase, uint64_t play) {
    for (int i = phase->begin; i < phase->end; i++)
        for (int k = 0; k < MAX_IN; k++) {
            Tid id = x->p->s[i].in[k] ? prog_base(x->p, x->p->s[i].in[k]) : NONE;
            if (id && (x->p->t[id].role == ROLE_INPUT || x->p->t[id].role == ROLE_DIAL)) put_drawn(x, id, play);
        }
}

/* Twice round the ring; gives what every step wrote: mem_free. */
static uint64_t *play_ring(const Program *p, const Placement *pl, ExecOrder order, bool poison) {
    Hashing h;
    Exec x;
    Err e = {0};
    uint64_t play = 0;
    hashing_open(&h, p);
    EXPECT_OK(exec_open(&x, p, &h.b, pl->arena_bytes, &e));
    x.order = order;
    for (Tid id = 1; id < p->n_t; id++) {
        Role r = p->t[id].role;
        bool always = r == ROLE_TABLE || (r >= ROLE_WEIGHT && r != ROLE_GRADIENT && r != ROLE_CACHE);
        if (!p->t[id].base && p->t[id].birth >= 0 && always) put_drawn(&x, id, 0);
    }
    for (int round = 0; round < 2; round++) {
        memset(h.begun, 0, (size_t)p->n_t * sizeof *h.begun);
        for (int ph = 0; ph < p->n_phases; ph++)
            for (int64_t k = 0; k < p->phase[ph].repeat; k++) {
                if (poison && !k) exec_poison(&x, ph);
                put_inputs(&x, &p->phase[ph], ++play);
                exec_play(&x, ph);
            }
    }
    exec_close(&x);
    mem_free(h.begun);
    return h.trace;
}

static Placement plan_drawn(Program *p, uint64_t seed, bool apart) {
    Machine m = random_machine();
    random_record(p, seed);
    plan_lifetimes(p);
    for (Tid id = 1; id < p->n_t && apart; id++)
        if (p->t[id].birth >= 0) p->t[id].birth = 0, p->t[id].death = (int)p->n_s - 1;
    Placement pl = plan_place_with(p, (PlanOptions){.machine = &m, .share = !apart});
    plan_waits(p);
    return pl;
}

/* Whether a play of the placed program writes what one with all tensors apart does; a wait may be taken away first. */
static bool plays_right(uint64_t seed, ExecOrder order, bool drop_wait, bool *dropped) {
    Program apart, placed;
    Placement far = plan_drawn(&apart, seed, true), near = plan_drawn(&placed, seed, false);
    for (int64_t i = 0; i < placed.n_s && drop_wait && !*dropped; i++)
        for (int q = 1; q < QUEUE_COUNT; q++)
            if (placed.s[i].queue == QUEUE_COMPUTE && placed.s[i].wait[q] >= 0)
                placed.s[i].wait[q] = -1, *dropped = true;
    uint64_t *truth = play_ring(&apart, &far, EXEC_AS_WRITTEN, false), *have = play_ring(&placed, &near, order, true);
    bool same = !memcmp(truth, have, (size_t)placed.n_s * sizeof *have);
    mem_free(truth);
    mem_free(have);
    prog_free(&apart);
    prog_free(&placed);
    return same;
}

TEST(the_executor_plays_random_programs_poisoned_and_late) {
    int64_t n = test_number("programs", test_brief() ? 300 : 3000), first = test_number("seed", 1);
    int bad = 0;
    for (int64_t i = 0; i < n && bad < 3; i++)
        for (int order = EXEC_AS_WRITTEN; order <= EXEC_LATE; order++)
            if (!EXPECT(plays_right((uint64_t)(first + i), (ExecOrder)order, false, NULL))) {
                bad++;
                test_note("    seed %lld, %s", (long long)(first + i), order == EXEC_LATE ? "late" : "as written");
            }
}

TEST(the_late_executor_notices_a_missing_wait) {
    int planted = 0, found = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        bool dropped = false;
        bool right = plays_right(200000 + seed, EXEC_LATE, true, &dropped);
        planted += dropped;
        found += dropped && !right;
        EXPECT(dropped || right);
    }
    EXPECT(planted > 100 && found * 2 > planted);
    test_note("    wait dropped: %d planted, %d found by the late executor", planted, found);
}
