/* search.c - in which order combinations are tried, and why so few of them are enough.
 *
 * Bytes fall along both ladders (activation level, state rung), time grows along both. So for a micro-batch and an
 * activation level the least rung that fits is found by halving, and the fastest of these few pairs is the answer.
 * A smaller micro-batch is tried as long as the larger one needed anything switched on: it cannot be faster than one
 * that needed nothing, unless updates have rows in different numbers. A ladder is left as soon as a rung on it that does not fit is slower than the best that does:
 * those behind it are slower still. A try is a plan of the whole ring down to the bytes alive at every step; the best is
 * then placed, and if placing takes it over the limit, the next one is. */
#include "train/search.h"

#include <string.h>
#include <time.h>

typedef enum Activations { KEEP_ALL, DROP_NORMS, DROP_SOME_BLOCKS, DROP_BLOCKS, SEND_INPUTS, ACTIVATION_LEVELS } Activations;

typedef struct Walk {
    Search *found;
    const JobSpec *asked;
    SearchMemo *memo;
    int which;        /* of the memo's machines */
    const Machine *m; /* that one */
    const HostBytes *host;
    SearchFreedom free;
    SearchLimits limits;
    Job *job;       /* owns: a place to plan in */
    double fastest; /* of those that fit so far; 0: none */
} Walk;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- one try ---- */

void search_apply(JobSpec *s, const Try *t) {
    s->micro_batch = t->micro_batch;
    s->accum = t->accum;
    s->head_chunk = t->head_chunk;
    s->update_in_backward = t->update_in_backward;
    s->ffn_chunks = t->ffn_chunks;
    if (t->own_attention) s->attend = ATTEND_OWN;
    memcpy(s->away, t->away, sizeof s->away);
    memcpy(s->on_disk, t->on_disk, sizeof s->on_disk);
    if (t->level < 0) return; /* recompute as asked */
    RecomputeLevel whole = t->twice ? RECOMPUTE_TWICE : RECOMPUTE_BLOCK;
    for (int l = 0; l < s->model.layers; l++) s->recompute[l] = l < t->blocks ? whole : (RecomputeLevel)t->level;
}

static bool same_try(const Try *a, const Try *b) {
    return a->micro_batch == b->micro_batch && a->head_chunk == b->head_chunk && a->ffn_chunks == b->ffn_chunks &&
           a->own_attention == b->own_attention && a->update_in_backward == b->update_in_backward &&
           a->blocks == b->blocks && a->twice == b->twice && a->level == b->level &&
           !memcmp(a->away, b->away, sizeof a->away) && !memcmp(a->on_disk, b->on_disk, sizeof a->on_disk);
}

/* ---- plans that were made ---- */

void search_memo_free(SearchMemo *memo) {
    mem_free(memo->kept);
    mem_free(memo->seconds);
    memo->kept = NULL;
    memo->seconds = NULL;
    memo->n = memo->cap = memo->cap_seconds = 0;
}

static int64_t memo_find(const SearchMemo *memo, const Try *t) {
    for (int64_t i = 0; i < memo->n; i++)
        if (same_try(&memo->kept[i], t)) return i;
    return -1;
}

static int64_t memo_plan(Walk *w, Try t) {
    SearchMemo *memo = w->memo;
    JobSpec spec = *w->asked;
    search_apply(&spec, &t);
    spec.estimate = true;
    int64_t at = memo->n++, n = memo->n_machines;
    memo->kept = mem_grow(memo->kept, &memo->cap, memo->n, sizeof *memo->kept);
    memo->seconds = mem_grow(memo->seconds, &memo->cap_seconds, memo->n * n, sizeof *memo->seconds);
    bool opened = job_open(w->job, &spec, w->m, w->host, NULL);
    t.device_bytes = opened ? job_process_bytes(w->job) : INT64_MAX;
    t.host_bytes = opened && w->m->kind != MACHINE_CPU ? job_host_bytes(w->job) : 0;
    t.disk_bytes = opened ? job_disk_bytes(w->job) : 0;
    for (int k = 0; k < n; k++) {
        if (opened) w->job->machine = memo->machine[k];
        memo->seconds[at * n + k] = opened ? job_update_seconds(w->job) : 0;
    }
    if (opened) job_close(w->job);
    memo->kept[at] = t;
    return at;
}

static bool memory_holds(const SearchLimits *l, const Try *t) {
    return t->device_bytes <= l->device_bytes && (!l->host_bytes || t->host_bytes <= l->host_bytes);
}

static bool disk_holds(const SearchLimits *l, const Try *t) { return !l->disk_bytes || t->disk_bytes <= l->disk_bytes; }

static const Try *try_now(Walk *w, Try t) {
    Search *f = w->found;
    for (int i = 0; i < f->n; i++)
        if (same_try(&f->tried[i], &t)) return &f->tried[i];
    if (f->n == SEARCH_TRIES) return NULL;
    int64_t at = memo_find(w->memo, &t);
    if (at < 0) at = memo_plan(w, t);
    CHECK(w->memo->kept && w->memo->seconds);
    Try *kept = &f->tried[f->n++];
    *kept = w->memo->kept[at];
    kept->update_seconds = w->memo->seconds[at * w->memo->n_machines + w->which];
    kept->fits = memory_holds(&w->limits, kept) && disk_holds(&w->limits, kept);
    if (kept->fits && (w->fastest <= 0 || kept->update_seconds < w->fastest)) w->fastest = kept->update_seconds;
    return kept;
}

/* The bytes of the placed arena instead of the bound. */
static void place(Walk *w, Try *t) {
    JobSpec spec = *w->asked;
    search_apply(&spec, t);
    t->placed = true;
    t->fits = job_open(w->job, &spec, w->m, w->host, NULL);
    if (!t->fits) return;
    t->device_bytes = job_process_bytes(w->job);
    t->disk_bytes = job_disk_bytes(w->job);
    t->fits = t->device_bytes <= w->limits.device_bytes && disk_holds(&w->limits, t);
    job_close(w->job);
}

static const AwayKind state_order[] = {AWAY_MOMENTS, AWAY_GRADIENTS, AWAY_WEIGHTS};

/* So many layers' state on disk, of what is away. */
static Try with_on_disk(Try t, int64_t rung) {
    for (int i = 0; i < COUNT_OF(state_order) && rung > 0; i++) {
        AwayKind k = state_order[i];
        t.on_disk[k] = MIN2(rung, t.away[k]);
        rung -= t.on_disk[k];
    }
    return t;
}

/* The same with as much on disk as the host's memory makes necessary. */
static const Try *try_homes(Walk *w, Try t) {
    const Try *done = try_now(w, t);
    bool short_of_host = done && w->limits.host_bytes && done->host_bytes > w->limits.host_bytes;
    if (!short_of_host || !w->free.disk || !w->free.offload || done->device_bytes > w->limits.device_bytes) return done;
    int64_t low = 0, high = t.away[AWAY_MOMENTS] + t.away[AWAY_GRADIENTS] + t.away[AWAY_WEIGHTS];
    const Try *least = high ? try_now(w, with_on_disk(t, high)) : NULL;
    if (!least || !memory_holds(&w->limits, least)) return done;
    while (high - low > 1) { /* the memory does not hold low, and holds high; the disk may hold neither */
        int64_t mid = (low + high) / 2;
        const Try *half = try_now(w, with_on_disk(t, mid));
        if (!half) break;
        if (memory_holds(&w->limits, half)) high = mid, least = half;
        else low = mid;
    }
    return least;
}

static bool fits(Walk *w, Try t) {
    const Try *done = try_homes(w, t);
    return done && done->fits;
}

/* ---- the two ladders ---- */

static bool has_one_memory(const Walk *w) { return w->m->kind == MACHINE_CPU; } /* there pinned memory saves nothing */

/* What leaves the device, in this order: a frozen model has only weights to send, and inside backward no gradients. */
static int kinds_that_go(AwayKind *order, const Walk *w, const Try *t) {
    bool full = w->asked->train && !w->asked->lora;
    int n = 0;
    for (int i = 0; i < COUNT_OF(state_order); i++) {
        bool goes = state_order[i] == AWAY_WEIGHTS || (full && (state_order[i] == AWAY_MOMENTS || !t->update_in_backward));
        if (goes) order[n++] = state_order[i];
    }
    return n;
}

static int64_t state_rungs(const Walk *w, const Try *t) {
    AwayKind order[AWAY_KINDS];
    if (!w->free.offload || (has_one_memory(w) && !w->free.disk)) return 0;
    return w->asked->model.layers * kinds_that_go(order, w, t);
}

static void set_rung(Try *t, const Walk *w, int64_t rung) {
    AwayKind order[AWAY_KINDS];
    int64_t layers = w->asked->model.layers;
    kinds_that_go(order, w, t);
    for (int i = 0; rung > 0; i++, rung -= layers) {
        t->away[order[i]] = MIN2(rung, layers);
        if (has_one_memory(w)) t->on_disk[order[i]] = t->away[order[i]];
    }
}

static bool can_set(const Walk *w, Activations a) {
    if (a == KEEP_ALL) return true;
    if (!w->free.recompute || !w->asked->train) return false;
    return a != SEND_INPUTS || (w->free.offload && w->m->kind != MACHINE_CPU);
}

static void set_activations(Try *t, const Walk *w, Activations a, int blocks) {
    int layers = w->asked->model.layers;
    if (!w->free.recompute) {
        t->level = -1;
        return;
    }
    t->level = a == KEEP_ALL ? RECOMPUTE_NONE : RECOMPUTE_NORM;
    t->blocks = a == DROP_SOME_BLOCKS ? blocks : a > DROP_SOME_BLOCKS ? layers : 0;
    /* the last two are needed again at once: sent only where memory is all that counts */
    if (a == SEND_INPUTS) t->away[AWAY_INPUTS] = t->twice ? layers : MAX2(layers - 2, 1);
}

typedef struct Ladder {
    Try base;
    Activations level;
    bool of_blocks; /* n counts whole blocks, not state rungs */
} Ladder;

static Try at_rung(const Walk *w, const Ladder *l, int64_t n) {
    Try t = l->base;
    set_activations(&t, w, l->level, l->of_blocks ? (int)n : 0);
    if (!l->of_blocks) set_rung(&t, w, n);
    return t;
}

#define SAME_TIME 1e-3 /* two times so near to each other are the same: the model knows no better */

static bool is_hopeless(const Walk *w, const Try *t) {
    return !t || (!t->fits && w->fastest > 0 && t->update_seconds > (1 + SAME_TIME) * w->fastest);
}

/* The device holds it; what the host does not hold may go to disk. */
static bool is_small_enough(const Walk *w, const Try *t) {
    return t->fits || (w->free.disk && w->free.offload && t->device_bytes <= w->limits.device_bytes);
}

/* The least n in [low, high] for which it fits; high + 1 when none does, or none that does could be the fastest. Bytes
 * fall with n, time grows. */
static int64_t least_that_fits(Walk *w, const Ladder *l, int64_t low, int64_t high) {
    int64_t none = high + 1;
    const Try *t = try_now(w, at_rung(w, l, low));
    if (is_hopeless(w, t)) return none;
    if (is_small_enough(w, t)) return fits(w, at_rung(w, l, low)) ? low : none;
    t = low == high ? NULL : try_now(w, at_rung(w, l, high));
    if (!t || !is_small_enough(w, t)) return none;
    while (high - low > 1) { /* low is too large, high is not */
        int64_t mid = (low + high) / 2;
        t = try_now(w, at_rung(w, l, mid));
        if (is_hopeless(w, t)) break;
        *(is_small_enough(w, t) ? &high : &low) = mid;
    }
    return fits(w, at_rung(w, l, high)) ? high : none;
}

/* Pieces of 2,048 tokens lose nothing of a product's speed. Below four of them there is not much to save; above 32 what one
 * takes is little beside what attention does. */
enum { FFN_PIECE = 2048, FFN_LEAST_PIECES = 4, FFN_MOST_PIECES = 32 };

static int64_t more_pieces(const Walk *w, int64_t tokens) { /* 0: not worth it, or not ours to say */
    int64_t n = MIN2((tokens + FFN_PIECE - 1) / FFN_PIECE, FFN_MOST_PIECES);
    return w->free.ffn_chunks && w->asked->train && n >= FFN_LEAST_PIECES ? n : 0;
}

/* A library keeps dq in fp32, and dk and dv of every query head, for all tokens at once; our own kernels go by tiles. */
static bool can_attend_itself(const Walk *w) {
    return w->free.attention && w->asked->attend == ATTEND_FAST && w->m->kind == MACHINE_CUDA;
}

/* Long rows: what attention needs after the feed-forward is worth making a second time. */
static bool can_make_twice(const Walk *w, int64_t tokens) { return w->free.recompute && more_pieces(w, tokens) > 0; }

/* Gives true when nothing had to be switched on. */
static bool try_micro_batch(Walk *w, Try base) {
    Ladder plain = {base, KEEP_ALL, false};
    if (fits(w, at_rung(w, &plain, 0))) return true;
    if (w->free.update_in_backward && base.accum == 1 && !base.update_in_backward && job_can_update_early(w->asked)) {
        plain.base.update_in_backward = base.update_in_backward = true; /* costs next to nothing: before all else */
        if (fits(w, at_rung(w, &plain, 0))) return false;
    }
    int layers = w->asked->model.layers;
    int64_t rungs = state_rungs(w, &base);
    for (int a = KEEP_ALL; a < ACTIVATION_LEVELS; a++) {
        if (!can_set(w, (Activations)a)) continue;
        if (base.ffn_chunks > 1 && w->free.recompute && a < DROP_BLOCKS) continue; /* kept: nothing to cut */
        Ladder l = {base, (Activations)a, a == DROP_SOME_BLOCKS};
        if (l.of_blocks) least_that_fits(w, &l, 1, layers - 1);
        else if (least_that_fits(w, &l, 0, rungs) == 0) return false; /* a later level is slower and needs no less state */
    }
    return false;
}

/* ---- the whole ---- */

static int64_t smaller_chunk(const Walk *w, int64_t tokens) {
    int64_t chunk = w->asked->head_chunk ? w->asked->head_chunk : job_default_chunk(w->asked, w->m->kind);
    return chunk > HEAD_TILE && tokens > HEAD_TILE ? HEAD_TILE : 0;
}

/* Of two that take the same time, the one that moves less. */
static bool is_better(const Try *a, const Try *b) {
    double apart = a->update_seconds - b->update_seconds;
    if (apart < -SAME_TIME * b->update_seconds) return true;
    return apart <= SAME_TIME * b->update_seconds && a->host_bytes < b->host_bytes;
}

static void rank(Search *f) {
    f->best = f->next_best = -1;
    for (int i = 0; i < f->n; i++) {
        if (!f->tried[i].fits) continue;
        if (f->best < 0 || is_better(&f->tried[i], &f->tried[f->best])) f->next_best = f->best, f->best = i;
        else if (f->next_best < 0 || is_better(&f->tried[i], &f->tried[f->next_best])) f->next_best = i;
    }
}

static bool fits_so(Walk *w, Try base) {
    try_micro_batch(w, base);
    rank(w->found);
    return w->found->best >= 0;
}

/* What is left when not even one row fits: its feed-forward in pieces, attention's inputs made twice, attention without a library, the
 * head in small chunks, each on top of those before. Where something fits without them they would gain a hundredth at most. */
static void try_last_resorts(Walk *w, int64_t rows) {
    const JobSpec *s = w->asked;
    int64_t micro = w->free.micro_batch ? 1 : s->micro_batch, pieces = more_pieces(w, micro * s->seq);
    int64_t chunk = w->free.head_chunk ? smaller_chunk(w, micro * s->seq) : 0;
    Try base = {.micro_batch = micro, .accum = (rows + micro - 1) / micro, .head_chunk = s->head_chunk};
    base.ffn_chunks = MAX2(pieces, s->ffn_chunks);
    memcpy(base.away, s->away, sizeof base.away);
    if (pieces && fits_so(w, base)) return;
    base.twice = can_make_twice(w, micro * s->seq);
    if (base.twice && fits_so(w, base)) return;
    base.own_attention = can_attend_itself(w);
    if (base.own_attention && fits_so(w, base)) return;
    if (!chunk || (!pieces && !base.own_attention)) return; /* a small chunk alone was tried with every micro-batch */
    base.head_chunk = chunk;
    fits_so(w, base);
}

/* On a GPU the gradient of a head's weight passes through memory once a chunk: all rows at a time, or half of them, and so
 * on, where the plan that was found leaves room for their logits; more rows where memory is not worth a recomputation and
 * the run is a fast one: a deterministic one has the same bits recomputed or not, so the same chunks. */
static void give_head_room(Walk *w) {
    enum { MOST_ROWS = 32768, SAME_ROWS = 8192, MOST_PIECES = 8 };
    Try t = w->found->tried[w->found->best];
    JobSpec spec = *w->asked;
    search_apply(&spec, &t);
    bool same = spec.attend == ATTEND_OWN;
    for (int l = 0; l < spec.model.layers; l++) same |= spec.recompute[l] != RECOMPUTE_NONE;
    int64_t rows = t.micro_batch * spec.seq, most = MIN2(rows, same ? SAME_ROWS : MOST_ROWS);
    bool trained = w->asked->train && !w->asked->lora;
    if (w->m->kind != MACHINE_CUDA || !trained || !w->free.head_room || t.head_chunk) return;
    for (int pieces = 1; pieces <= MOST_PIECES; pieces *= 2) {
        t.head_chunk = mem_round_up((most + pieces - 1) / pieces, HEAD_TILE);
        if (t.head_chunk <= job_default_chunk(w->asked, w->m->kind)) return;
        place(w, &t);
        if (!t.fits) continue;
        w->found->tried[w->found->best] = t;
        return;
    }
}

bool job_search(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                SearchLimits limits) {
    SearchMemo memo = {.machine = m, .n_machines = 1};
    bool fits_somehow = job_search_memo(found, spec, &memo, 0, host, free, limits);
    search_memo_free(&memo);
    return fits_somehow;
}

void search_tightest(JobSpec *spec, const Machine *m, SearchFreedom free) {
    Walk w = {.asked = spec, .m = m, .free = free};
    int64_t rows = job_rows(spec), micro = free.micro_batch ? 1 : spec->micro_batch;
    Try t = {.micro_batch = micro, .accum = free.micro_batch ? rows : spec->accum, .head_chunk = spec->head_chunk};
    int64_t chunk = free.head_chunk ? smaller_chunk(&w, micro * spec->seq) : 0;
    if (chunk) t.head_chunk = chunk;
    t.ffn_chunks = MAX2(spec->ffn_chunks, more_pieces(&w, micro * spec->seq));
    t.own_attention = can_attend_itself(&w);
    t.twice = can_make_twice(&w, micro * spec->seq);
    memcpy(t.away, spec->away, sizeof t.away);
    memcpy(t.on_disk, spec->on_disk, sizeof t.on_disk);
    Activations least = KEEP_ALL;
    for (int a = KEEP_ALL; a < ACTIVATION_LEVELS; a++)
        if (can_set(&w, (Activations)a)) least = (Activations)a;
    bool early = free.update_in_backward && t.accum == 1 && job_can_update_early(spec);
    t.update_in_backward = spec->update_in_backward || early;
    set_activations(&t, &w, least, 0);
    set_rung(&t, &w, state_rungs(&w, &t));
    search_apply(spec, &t);
}

bool job_search_memo(Search *found, JobSpec *spec, SearchMemo *memo, int which, const HostBytes *host, SearchFreedom free,
                     SearchLimits limits) {
    double began = now_ms();
    JobSpec asked = *spec;
    Walk w = {.found = found, .asked = &asked, .memo = memo, .which = which, .m = &memo->machine[which], .host = host, .free = free,
              .limits = limits, .job = MEM_NEW(Job, 1)};
    int64_t rows = job_rows(&asked);
    *found = (Search){.best = -1, .next_best = -1};
    for (int64_t micro = free.micro_batch ? rows : asked.micro_batch;; micro = (micro + 1) / 2) {
        Try base = {.micro_batch = micro, .accum = (rows + micro - 1) / micro, .head_chunk = asked.head_chunk,
                    .ffn_chunks = asked.ffn_chunks, .update_in_backward = asked.update_in_backward};
        memcpy(base.away, asked.away, sizeof base.away);
        memcpy(base.on_disk, asked.on_disk, sizeof base.on_disk);
        if (micro * asked.seq > INT32_MAX / 2) continue;
        if (is_hopeless(&w, try_now(&w, at_rung(&w, &(Ladder){base, KEEP_ALL, false}, 0)))) break;
        bool plain = try_micro_batch(&w, base);
        if (!plain && free.head_chunk && smaller_chunk(&w, micro * asked.seq)) {
            base.head_chunk = smaller_chunk(&w, micro * asked.seq);
            rank(found);
            if (found->best < 0) try_micro_batch(&w, base);
        }
        /* where updates differ, a smaller one computes fewer rows that hold nothing */
        if ((plain && !asked.rows) || !free.micro_batch || micro == 1) break;
    }
    rank(found);
    if (found->best < 0) try_last_resorts(&w, rows);
    for (rank(found); found->best >= 0 && !found->tried[found->best].placed; rank(found))
        place(&w, &found->tried[found->best]);
    if (found->best >= 0) give_head_room(&w);
    mem_free(w.job);
    if (found->best >= 0) search_apply(spec, &found->tried[found->best]);
    found->ms = now_ms() - began;
    return found->best >= 0;
}

void job_plan_flags(Str *out, const JobSpec *s) {
    int blocks = 0;
    bool twice = s->recompute[0] == RECOMPUTE_TWICE;
    RecomputeLevel whole = twice ? RECOMPUTE_TWICE : RECOMPUTE_BLOCK;
    while (blocks < s->model.layers && s->recompute[blocks] == whole) blocks++;
    Try t = {.micro_batch = s->micro_batch, .accum = s->accum, .head_chunk = s->head_chunk, .blocks = blocks, .twice = twice,
             .ffn_chunks = s->ffn_chunks, .update_in_backward = s->update_in_backward,
             .level = blocks < s->model.layers ? s->recompute[blocks] : RECOMPUTE_NONE};
    memcpy(t.away, s->away, sizeof t.away);
    memcpy(t.on_disk, s->on_disk, sizeof t.on_disk);
    search_flags(out, &t, s);
}

void search_flags(Str *out, const Try *t, const JobSpec *spec) {
    int layers = spec->model.layers;
    const char *whole = plan_recompute_name(t->twice ? RECOMPUTE_TWICE : RECOMPUTE_BLOCK);
    job_batch_flags(out, spec, t->micro_batch, t->accum);
    if (t->level >= 0 && t->blocks && t->blocks < layers)
        str_addf(out, " --recompute %s:0-%d,%s:%d-%d", whole, t->blocks - 1,
                 plan_recompute_name((RecomputeLevel)t->level), t->blocks, layers - 1);
    else if (t->level >= 0)
        str_addf(out, " --recompute %s", t->blocks ? whole : plan_recompute_name((RecomputeLevel)t->level));
    str_add(out, " --offload ");
    job_away_text(out, t->away, t->on_disk, layers);
    if (t->update_in_backward) str_add(out, " --update-in-backward on");
    if (t->head_chunk) str_addf(out, " --head-chunk %lld", (long long)t->head_chunk);
    if (t->ffn_chunks > 1) str_addf(out, " --ffn-chunks %lld", (long long)t->ffn_chunks);
    if (t->own_attention) str_add(out, " --attention own");
}
