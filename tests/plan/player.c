/* player.c - the made-up arithmetic, and the orders in which queues may run. */
#include "tests/plan/player.h"

#include <string.h>

#include "base/rng.h"

enum { MAX_PLAYS = 3 }; /* of a repeated phase in one round */

typedef struct Player {
    const Program *p;
    PlayOptions o;
    unsigned char *pool[POOL_COUNT], **own; /* own; placed: pool, else per base tensor */
    bool *begun, *written;                  /* own: per tensor */
    uint64_t garbage, plays;
    Played r;
} Player;

uint64_t player_digest(uint64_t h, const void *data, int64_t n) {
    const unsigned char *b = data;
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t word;
        memcpy(&word, b, 8);
        h = (h ^ word) * 0x9fb21c651e98df25ull;
        h ^= h >> 29;
    }
    for (; n > 0; n--) h = (h ^ *b++) * 0x100000001b3ull;
    return rng_mix(h);
}

void player_spread(void *data, int64_t n, uint64_t seed) {
    unsigned char *b = data;
    for (; n > 0; n -= 8, b += 8) {
        seed = rng_fold(seed, 1);
        memcpy(b, &seed, (size_t)(n < 8 ? n : 8));
    }
}

static unsigned char *bytes_of(const Player *pl, Tid id) {
    const Tensor *t = &pl->p->t[id];
    if (pl->o.placed) return pl->pool[t->home.pool] + t->offset;
    return pl->own[prog_base(pl->p, id)] + t->view_bytes;
}

/* A weight's contents follow from its name, wherever and in whatever format it is kept. */
static uint64_t name_seed(const char *name) {
    return player_digest(7, name, (int64_t)strlen(name));
}

/* Its old contents count when a step changes it. */
static bool changes_in_place(const Player *pl, Tid id) {
    return prog_is_state(pl->p, id) || pl->p->t[id].role == ROLE_STAGED;
}

static uint64_t head_of_hash(const Step *s, OpId op) {
    uint64_t h = rng_fold(1, op);
    if (op_row(op)->flags & (OPF_RANDOM | OPF_WRITES_STATE)) h = rng_fold(h, s->key);
    return player_digest(h, &s->attr, sizeof s->attr);
}

static void write_initial(Player *pl, Tid id) {
    const Tensor *t = &pl->p->t[id];
    uint64_t seed = name_seed(t->name);
    if (t->role == ROLE_WEIGHT && t->home.stored != t->format) { /* what decoding the stored one gives */
        int64_t n = format_bytes(t->home.stored, prog_rows(pl->p, id), prog_cols(pl->p, id));
        void *stored = mem_alloc(n);
        player_spread(stored, n, seed);
        Step s = {.op = OP_DECODE};
        seed = rng_fold(rng_fold(head_of_hash(&s, OP_DECODE), player_digest(3, stored, n)), 0);
        mem_free(stored);
    }
    player_spread(bytes_of(pl, id), t->bytes, seed);
}

static void begin(Player *pl) {
    const Program *p = pl->p;
    pl->own = MEM_NEW(unsigned char *, p->n_t);
    pl->begun = MEM_NEW(bool, p->n_t);
    pl->written = MEM_NEW(bool, p->n_t);
    pl->r = (Played){.state = MEM_NEW(uint64_t, p->n_t), .carried = MEM_NEW(bool, p->n_t), .n_t = p->n_t};
    pl->r.step = MEM_NEW(uint64_t, p->n_s * pl->o.rounds * MAX_PLAYS + 1);
    for (int i = 0; i < POOL_COUNT && pl->o.placed; i++) {
        pl->pool[i] = mem_alloc(pl->o.arena[i] + 8);
        player_spread(pl->pool[i], pl->o.arena[i], 99 + (uint64_t)i);
    }
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (t->base || t->birth < 0) continue;
        if (!pl->o.placed) pl->own[id] = mem_alloc(t->bytes + 8);
        if (t->role == ROLE_TABLE || (t->role >= ROLE_WEIGHT && t->role != ROLE_GRADIENT && t->role != ROLE_CACHE))
            write_initial(pl, id);
    }
}

static void host_writes(Player *pl, const Phase *phase) {
    pl->plays++;
    for (int i = phase->begin; i < phase->end; i++)
        for (int k = 0; k < MAX_IN; k++) {
            Tid id = pl->p->s[i].in[k] ? prog_base(pl->p, pl->p->s[i].in[k]) : NONE;
            if (id && (pl->p->t[id].role == ROLE_INPUT || pl->p->t[id].role == ROLE_DIAL))
                player_spread(bytes_of(pl, id), pl->p->t[id].bytes, rng_fold(name_seed(pl->p->t[id].name), pl->plays));
        }
}

static void poison(Player *pl, Tid id) {
    player_spread(bytes_of(pl, id), pl->p->t[id].bytes, ++pl->garbage);
}

static void note_reads(Player *pl, const Step *s) { /* in memory of its own: what comes around the ring */
    for (int k = 0; k < MAX_IN; k++) {
        Tid id = s->in[k], base = id ? prog_base(pl->p, id) : NONE;
        Role role = pl->p->t[base].role;
        bool made = role == ROLE_ACTIVATION || role == ROLE_GRADIENT || role == ROLE_CACHE;
        if (id && made && !pl->written[id] && !pl->written[base]) pl->r.carried[base] = true;
    }
}

/* Contents of an output: op and constants, the inputs that a row of this op has, old contents of begun state. */
static uint64_t out_hash(const Player *pl, const Step *s, OpId op, int place, const uint64_t *in, int n_in,
                         Tid out, uint64_t old) {
    uint64_t h = head_of_hash(s, op);
    for (int k = 0; k < n_in; k++) h = rng_fold(h, in[k]);
    if (out && changes_in_place(pl, out)) h = rng_fold(h, old);
    return rng_fold(h, (uint64_t)place);
}

/* A gradient that nothing has written yet is copied in, perhaps in two hops, for a step that will not look at it. */
static bool begins(const Player *pl, const Step *s) {
    Tid from = s->op == OP_COPY ? prog_base(pl->p, s->copy.in.src) : NONE;
    bool may_be_nothing = pl->p->t[from].role == ROLE_GRADIENT || pl->p->t[from].role == ROLE_ACTIVATION;
    return !from || !may_be_nothing || pl->begun[from];
}

/* What the norm of an add_rmsnorm reads: the sum as add would have written it. */
static uint64_t digest_of_sum(const Player *pl, const Step *s, const uint64_t *in) {
    Step add = {.op = OP_ADD};
    int64_t n = pl->p->t[s->add_rmsnorm.out.sum].bytes;
    unsigned char *sum = mem_alloc(n + 8);
    player_spread(sum, n, out_hash(pl, &add, OP_ADD, 0, in, 2, NONE, 0));
    uint64_t d = player_digest(3, sum, n);
    mem_free(sum);
    return d;
}

/* A head_sweep's outputs are those of head_logp, then those of head_logp_grad. */
static uint64_t sweep_hash(const Player *pl, const Step *s, int k, const uint64_t *in, uint64_t old) {
    Tid lse = s->head_sweep.out.lse;
    uint64_t logp_in[N_IN_head_logp] = {0}; /* it has no how */
    logp_in[OP_IN(head_logp, x)] = in[OP_IN(head_sweep, x)];
    logp_in[OP_IN(head_logp, w)] = in[OP_IN(head_sweep, w)];
    logp_in[OP_IN(head_logp, labels)] = in[OP_IN(head_sweep, labels)];
    logp_in[OP_IN(head_logp, terms)] = in[OP_IN(head_sweep, terms)];
    logp_in[OP_IN(head_logp, target_x)] = in[OP_IN(head_sweep, target_x)];
    logp_in[OP_IN(head_logp, target_w)] = in[OP_IN(head_sweep, target_w)];
    if (k < OP_OUT(head_sweep, dx)) return out_hash(pl, s, OP_HEAD_LOGP, k, logp_in, N_IN_head_logp, NONE, 0);
    uint64_t grad_in[N_IN_head_logp_grad];
    grad_in[OP_IN(head_logp_grad, x)] = in[OP_IN(head_sweep, x)];
    grad_in[OP_IN(head_logp_grad, w)] = in[OP_IN(head_sweep, w)];
    grad_in[OP_IN(head_logp_grad, labels)] = in[OP_IN(head_sweep, labels)];
    grad_in[OP_IN(head_logp_grad, lse)] = player_digest(3, bytes_of(pl, lse), pl->p->t[lse].bytes);
    grad_in[OP_IN(head_logp_grad, dlogp)] = in[OP_IN(head_sweep, dlogp)];
    grad_in[OP_IN(head_logp_grad, beta)] = in[OP_IN(head_sweep, beta)];
    grad_in[OP_IN(head_logp_grad, clock)] = in[OP_IN(head_sweep, clock)];
    grad_in[OP_IN(head_logp_grad, terms)] = in[OP_IN(head_sweep, terms)];
    grad_in[OP_IN(head_logp_grad, target_x)] = in[OP_IN(head_sweep, target_x)];
    grad_in[OP_IN(head_logp_grad, target_w)] = in[OP_IN(head_sweep, target_w)];
    int place = s->out[k] == s->head_sweep.out.dx ? OP_OUT(head_logp_grad, dx) : OP_OUT(head_logp_grad, dw);
    return out_hash(pl, s, OP_HEAD_LOGP_GRAD, place, grad_in, N_IN_head_logp_grad, s->out[k], old);
}

static void run_step(Player *pl, int step, uint64_t *trace) {
    const Program *p = pl->p;
    const Step *s = &p->s[step];
    const OpRow *row = op_row(s->op);
    uint64_t in[MAX_IN + 1] = {0}, old[MAX_OUT] = {0}, all = 0;
    Tid shared_out = row->share ? s->out[row->share_out] : NONE,
        shared_in = row->share ? s->in[row->share_in] : NONE;
    if (!pl->o.placed) note_reads(pl, s);
    if (shared_in) in[row->share_in] = player_digest(3, bytes_of(pl, shared_in), p->t[shared_in].bytes);
    for (int k = 0; k < MAX_OUT; k++) {
        Tid id = s->out[k], base = id ? prog_base(p, id) : NONE;
        if (id && s->op == OP_COPY && !changes_in_place(pl, id)) pl->begun[base] = begins(pl, s);
        if (!id || !changes_in_place(pl, id)) continue;
        bool comes_and_goes =
            p->t[id].role == ROLE_GRADIENT || p->t[id].role == ROLE_CACHE || p->t[id].role == ROLE_STAGED;
        if (!comes_and_goes || pl->begun[base])
            old[k] = player_digest(4, bytes_of(pl, id), p->t[id].bytes);
        else
            poison(pl, base);
        pl->begun[base] = begins(pl, s);
    }
    /* a kernel may write its outputs while it still reads: only the shared input is safe by then */
    if (s->workspace) poison(pl, s->workspace);
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] && !changes_in_place(pl, s->out[k])) poison(pl, s->out[k]);
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] && !(shared_in && shared_out && k == row->share_in))
            in[k] = player_digest(3, bytes_of(pl, s->in[k]), p->t[s->in[k]].bytes);
    for (int k = 0; k < MAX_OUT; k++) {
        Tid id = s->out[k];
        if (!id) continue;
        int64_t n = p->t[id].bytes;
        uint64_t h = out_hash(pl, s, s->op, k, in, op_places(s->op)->n_in, id, old[k]);
        if (s->op == OP_HEAD_SWEEP) h = sweep_hash(pl, s, k, in, old[k]);
        if (s->op == OP_ADD_RMSNORM &&
            id == s->add_rmsnorm.out.sum) { /* as add, as rmsnorm: the sum is made before the rest */
            Step add = {.op = OP_ADD};
            h = out_hash(pl, &add, OP_ADD, 0, in, 2, NONE, 0);
        } else if (s->op == OP_ADD_RMSNORM) {
            uint64_t norm_in[] = {digest_of_sum(pl, s, in), in[OP_IN(add_rmsnorm, w)]};
            h = out_hash(pl, s, OP_RMSNORM, k, norm_in, 2, NONE, 0);
        }
        if (s->op == OP_COPY)
            memmove(bytes_of(pl, id), bytes_of(pl, s->copy.in.src), (size_t)n);
        else
            player_spread(bytes_of(pl, id), n, h);
        pl->written[id] = true;
        uint64_t d = player_digest(5, bytes_of(pl, id), n);
        all = rng_fold(all, d);
        if (prog_is_state(p, id)) pl->r.state[id] = rng_fold(pl->r.state[id], d);
    }
    *trace = all;
}

/* The next step to run: the head of a queue whose waits are over, by the order that was asked for. */
static int next_step(Player *pl, const Phase *phase, const int *head, const bool *done) {
    int ready[QUEUE_COUNT], n = 0;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (head[q] >= phase->end) continue;
        bool free_to_go = true;
        for (int r = 0; r < QUEUE_COUNT; r++) {
            int w = pl->p->s[head[q]].wait[r];
            free_to_go &= w < 0 || done[w];
        }
        if (free_to_go) ready[n++] = q;
    }
    CHECK_MSG(n, "no queue of %s can go on", phase->name);
    if (pl->o.random) {
        pl->o.random = rng_fold(pl->o.random, 5);
        return ready[pl->o.random % (uint64_t)n];
    }
    int best = -1;
    for (int i = 0; i < n; i++)
        if (best < 0 || best == pl->o.late || (ready[i] != pl->o.late && head[ready[i]] < head[best]))
            best = ready[i];
    return best;
}

static int after(const Program *p, const Phase *phase, int q, int from) {
    while (from < phase->end && (int)p->s[from].queue != q) from++;
    return from;
}

static void play_phase(Player *pl, const Phase *phase) {
    const Program *p = pl->p;
    uint64_t *trace = pl->r.step + pl->r.n;
    pl->r.n += phase->end - phase->begin;
    host_writes(pl, phase);
    if (pl->o.late < 0 && !pl->o.random) {
        for (int i = phase->begin; i < phase->end; i++) run_step(pl, i, &trace[i - phase->begin]);
        return;
    }
    int head[QUEUE_COUNT];
    bool *done = MEM_NEW(bool, p->n_s + 1);
    for (int q = 0; q < QUEUE_COUNT; q++) head[q] = after(p, phase, q, phase->begin);
    for (int left = phase->end - phase->begin; left > 0; left--) {
        int q = next_step(pl, phase, head, done), i = head[q];
        run_step(pl, i, &trace[i - phase->begin]);
        done[i] = true;
        head[q] = after(p, phase, q, i + 1);
    }
    mem_free(done);
}

static void play_ring(Player *pl) {
    for (int round = 0; round < pl->o.rounds; round++) {
        memset(pl->begun, 0, (size_t)pl->p->n_t * sizeof *pl->begun);
        for (int ph = 0; ph < pl->p->n_phases; ph++)
            for (int64_t k = 0; k < MIN2(pl->p->phase[ph].repeat, MAX_PLAYS); k++)
                play_phase(pl, &pl->p->phase[ph]);
    }
}

static void end(Player *pl) {
    for (int i = 0; i < POOL_COUNT; i++) mem_free(pl->pool[i]);
    for (int64_t i = 0; i < pl->p->n_t; i++) mem_free(pl->own[i]);
    mem_free(pl->own);
    mem_free(pl->begun);
    mem_free(pl->written);
}

static Played play_after(const Program *p, PlayOptions o, const Played *truth) {
    Player pl = {.p = p, .o = o, .garbage = o.placed ? 1000 : 500000};
    begin(&pl);
    for (Tid id = 1; truth && id < p->n_t;
         id++) /* what the first round reads before it was written: zeros for all */
        if (truth->carried[id]) memset(bytes_of(&pl, id), 0, (size_t)p->t[id].bytes);
    play_ring(&pl);
    end(&pl);
    return pl.r;
}

Played play(const Program *p, PlayOptions o) {
    return play_after(p, o, NULL);
}

void played_free(Played *r) {
    mem_free(r->step);
    mem_free(r->state);
    mem_free(r->carried);
    *r = (Played){0};
}

int play_differs(const Program *p, const int64_t arena[POOL_COUNT]) {
    enum { RANDOM_ORDERS = 2, ROUNDS = 2 };
    Played truth = play(p, (PlayOptions){.late = -1, .rounds = ROUNDS});
    int differs = -1;
    for (int order = 0; order < 1 + QUEUE_COUNT + RANDOM_ORDERS && differs < 0; order++) {
        PlayOptions o = {.placed = true, .arena = arena, .late = order - 1, .rounds = ROUNDS};
        if (order > QUEUE_COUNT) o.random = (uint64_t)order, o.late = -1;
        Played r = play_after(p, o, &truth);
        if (memcmp(r.step, truth.step, (size_t)truth.n * sizeof *r.step)) differs = order;
        played_free(&r);
    }
    played_free(&truth);
    return differs;
}

bool play_same_state(const Program *a, const Program *b, int64_t n_t) {
    Played x = play(a, (PlayOptions){.late = -1, .rounds = 2}),
           y = play(b, (PlayOptions){.late = -1, .rounds = 2});
    bool same = true, any = false;
    for (int64_t i = 0; i < n_t; i++) same &= x.state[i] == y.state[i], any |= x.state[i] != 0;
    played_free(&x);
    played_free(&y);
    return same && any;
}
