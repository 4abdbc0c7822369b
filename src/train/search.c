/* search.c - which axes a job has, what a point on them means, and what it costs. */
#include "train/search.h"

#include <string.h>

#include "base/stop.h"
#include "obs/sensors.h"

enum { AXIS_MICRO, AXIS_SQUEEZE, AXIS_HEAD, AXIS_TASK, AXIS_RECOMPUTE, AXES }; /* the last one is fine (fit.h) */

/* ---- axes ---- */

/* The recompute axis: nothing, norms, 1 to L-1 whole blocks beside norms, all blocks, all with their inputs
 * offloaded. */
enum { KEEP_ALL, DROP_NORMS, DROP_BLOCKS };
static int64_t all_blocks(const SearchSpace *s) { return DROP_NORMS + s->asked.m.config.layers; }
static int64_t all_with_inputs(const SearchSpace *s) { return all_blocks(s) + 1; }

/* Pinned memory saves nothing there. */
static bool has_one_memory(const SearchSpace *s) {
    return s->kind == MACHINE_CPU;
}

static void set_micro_axis(SearchSpace *s) {
    const JobSpec *a = &s->asked;
    int64_t micro = s->free.micro_batch ? job_samples(a) : job_micro_samples(a), *n = &s->fit.settings[AXIS_MICRO];
    for (; *n < SEARCH_MICRO - 1; micro = (micro + 1) / 2) {
        JobSpec at = *a;
        job_set_micro(&at, micro, s->kind);
        if (at.micro_batch * at.seq <= INT32_MAX / 2) {
            s->micro[(*n)++] = (SearchMicro){micro, a->update_in_backward};
            bool early =
                s->free.update_in_backward && at.accum == 1 && !a->update_in_backward && job_can_update_early(a);
            if (early) s->micro[(*n)++] = (SearchMicro){micro, true};
        }
        if (micro == 1 || !s->free.micro_batch) break;
    }
    if (!*n) s->micro[(*n)++] = (SearchMicro){job_micro_samples(a), a->update_in_backward};
}

static void set_recompute_axis(SearchSpace *s) {
    int64_t layers = s->asked.m.config.layers, *stop = s->stops;
    bool free = s->free.recompute && s->asked.train, inputs = free && s->free.offload && !has_one_memory(s);
    int n = 0;
    stop[n++] = KEEP_ALL;
    if (free) stop[n++] = DROP_NORMS;
    for (int64_t quarter = 1; free && quarter < 4; quarter++)
        if (DROP_NORMS + layers * quarter / 4 > stop[n - 1]) stop[n++] = DROP_NORMS + layers * quarter / 4;
    if (free) stop[n++] = all_blocks(s);
    if (inputs) stop[n++] = all_with_inputs(s);
    s->fit.stops = stop;
    s->fit.n_stops = n;
    s->fit.settings[AXIS_RECOMPUTE] = stop[n - 1] + 1;
}

/* A library keeps dq in fp32, and dk and dv of every query head, for all tokens at once; our own kernels go by
 * tiles. */
static bool can_attend_itself(const SearchSpace *s) {
    return s->free.attention && s->asked.attend == ATTEND_FAST && s->kind == MACHINE_CUDA;
}

/* ---- ladders ---- */

/* With the update inside backward, gradients do not live long enough to be offloaded. */
static bool goes(const SearchSpace *s, const FitPoint *p, const SearchSegment *g) {
    return !(g->kind == OFFLOAD_GRADIENTS && s->micro[p->at[AXIS_MICRO]].early);
}

static int64_t rungs_of(const SearchSpace *s, const FitPoint *p) {
    int64_t n = 0;
    for (int i = 0; i < s->n_segments; i++) n += goes(s, p, &s->segment[i]) ? s->segment[i].layers : 0;
    return n;
}

/* Of the n first pieces, how many layers' are of that segment. */
static int64_t layers_of(const SearchSpace *s, const FitPoint *p, int segment, int64_t n) {
    for (int i = 0; i < segment; i++) n -= goes(s, p, &s->segment[i]) ? s->segment[i].layers : 0;
    return goes(s, p, &s->segment[segment]) ? MAX2(MIN2(n, s->segment[segment].layers), 0) : 0;
}

static int64_t state_bytes(const SearchSpace *s, const FitPoint *p, int64_t pieces) {
    int64_t bytes = 0;
    for (int i = 0; i < s->n_segments; i++) {
        const SearchSegment *g = &s->segment[i];
        int64_t n = layers_of(s, p, i, pieces);
        bytes += n * g->layer_bytes + (n && n == g->layers ? g->outer_bytes : 0);
    }
    return bytes;
}

static int64_t relief(void *user, const FitPoint *p, int64_t rung) { return state_bytes(user, p, rung); }
static int64_t disk_relief(void *user, const FitPoint *p, int64_t disk) { return state_bytes(user, p, disk); }
static int64_t disk_rungs(void *user, const FitPoint *p) { return p->rung; }

/* ---- a point as a job ---- */

static void apply_recompute(JobSpec *j, const SearchSpace *s, int64_t at, bool twice) {
    if (!s->free.recompute || !s->asked.train) return;
    RecomputeLevel whole = twice ? RECOMPUTE_TWICE : RECOMPUTE_BLOCK,
                   rest = at == KEEP_ALL ? RECOMPUTE_NONE : RECOMPUTE_NORM;
    for (int l = 0; l < j->m.config.layers; l++) j->recompute[l] = l < at - DROP_NORMS ? whole : rest;
    /* backward needs the last two at once: offloaded only where memory is all that counts */
    int64_t layers = j->m.config.layers;
    if (at == all_with_inputs(s)) j->m.offload.layers[OFFLOAD_INPUTS] = twice ? layers : MAX2(layers - 2, 1);
}

static bool apply_squeeze(JobSpec *j, const SearchSpace *s, const FitPoint *p) {
    int64_t squeeze = p->at[AXIS_SQUEEZE], pieces = s->free.ffn_chunks ? job_useful_pieces(j) : 0;
    bool whole = !s->free.recompute || p->at[AXIS_RECOMPUTE] >= all_blocks(s);
    if (!squeeze) return true;
    if (squeeze < 3 && (!pieces || !whole)) return false; /* activations that are kept cannot be computed in chunks */
    if (squeeze == 2 && !s->free.recompute) return false;
    if (squeeze == 3 && !can_attend_itself(s)) return false;
    if (pieces && whole) j->ffn_chunks = pieces;
    if (squeeze == 3) j->attend = ATTEND_OWN;
    return true;
}

static void apply_offload(JobSpec *j, const SearchSpace *s, const FitPoint *p) {
    Offload *o = &j->m.offload;
    for (int i = 0; i < s->n_segments; i++) {
        int k = s->segment[i].kind;
        int64_t n = layers_of(s, p, i, p->rung);
        if (n && k >= OFFLOAD_KINDS) j->side_offload[k - OFFLOAD_KINDS] = n;
        if (k >= OFFLOAD_KINDS) continue; /* other models' weights go to pinned memory alone */
        if (n) o->layers[k] = n, o->on_disk[k] = has_one_memory(s) ? n : 0;
        if (p->disk) o->on_disk[k] = MIN2(o->layers[k], layers_of(s, p, i, p->disk));
    }
}

/* False: there is no such point, or another one gives the same plan. */
static bool apply(JobSpec *j, const SearchSpace *s, const FitPoint *p) {
    const SearchMicro *micro = &s->micro[p->at[AXIS_MICRO]];
    bool least = p->at[AXIS_MICRO] == s->fit.settings[AXIS_MICRO] - 1,
         asked = micro->samples == job_micro_samples(&s->asked);
    *j = s->asked;
    if (p->rung > rungs_of(s, p)) return false;
    /* a smaller micro-batch saves more for less time */
    if ((p->at[AXIS_SQUEEZE] || p->at[AXIS_HEAD]) && !least && !asked) return false;
    job_set_micro(j, micro->samples, s->kind);
    j->update_in_backward = micro->early;
    if (p->at[AXIS_TASK]) j->task_saving = (int)p->at[AXIS_TASK];
    if (!apply_squeeze(j, s, p)) return false;
    bool twice = p->at[AXIS_SQUEEZE] >= 2 && j->ffn_chunks > 1 && s->free.recompute;
    apply_recompute(j, s, p->at[AXIS_RECOMPUTE], twice);
    if (p->at[AXIS_HEAD]) {
        int64_t chunk = j->head_chunk ? j->head_chunk : job_default_chunk(j, s->kind);
        if (chunk <= HEAD_TILE || j->micro_batch * j->seq <= HEAD_TILE) return false;
        j->head_chunk = HEAD_TILE;
    }
    apply_offload(j, s, p);
    return true;
}

/* ---- the space ---- */

static bool is_in_segment(const Tensor *t, const SearchSegment *g, const Task *task) {
    static const int kind_of[ROLE_COUNT] = {[ROLE_WEIGHT] = 1 + OFFLOAD_WEIGHTS,
                                            [ROLE_MASTER] = 1 + OFFLOAD_MOMENTS,
                                            [ROLE_MOMENT] = 1 + OFFLOAD_MOMENTS,
                                            [ROLE_CORRECTION] = 1 + OFFLOAD_MOMENTS,
                                            [ROLE_GRADIENT] = 1 + OFFLOAD_GRADIENTS};
    if (t->base || t->rank < 2 || !kind_of[t->role]) return false;
    if (g->kind < OFFLOAD_KINDS) return !t->model && kind_of[t->role] == 1 + g->kind;
    return t->model && t->role == ROLE_WEIGHT && !strcmp(t->model, task->side[g->kind - OFFLOAD_KINDS].name);
}

/* How many bytes of each segment a layer holds at most, and what is outside the layers. */
static void weigh_state(SearchSpace *s, const Program *p) {
    for (int i = 0; i < s->n_segments; i++) {
        SearchSegment *g = &s->segment[i];
        int64_t *layer = MEM_NEW(int64_t, g->layers);
        for (Tid id = 1; id < p->n_t; id++) {
            const Tensor *t = &p->t[id];
            if (is_in_segment(t, g, s->asked.task))
                *(t->layer >= 0 ? &layer[t->layer] : &g->outer_bytes) += prog_bytes(p, id);
        }
        for (int64_t l = 0; l < g->layers; l++) g->layer_bytes = MAX2(g->layer_bytes, layer[l]);
        mem_free(layer);
    }
}

/* In the order of what a byte costs: a reference is read once for many rows, an evaluator once for every token. On
 * the CPU pinned memory saves nothing, and only what is trained may go to disk. */
static void set_ladder(SearchSpace *s) {
    const JobSpec *a = &s->asked;
    bool full = a->train && !a->lora, sides = a->task && !has_one_memory(s);
    const struct {
        int kind;
        bool goes;
    } order[] = {{OFFLOAD_KINDS, sides}, {OFFLOAD_MOMENTS, full}, {OFFLOAD_GRADIENTS, full}, {OFFLOAD_WEIGHTS, true},
                 {OFFLOAD_KINDS + 1, sides}};
    if (!s->free.offload || (has_one_memory(s) && !s->free.disk)) return;
    for (int i = 0; i < COUNT_OF(order); i++) {
        int side = order[i].kind - OFFLOAD_KINDS;
        if (!order[i].goes || (side >= 0 && (side >= a->task->n_sides || !a->task->side[side].may_offload))) continue;
        s->segment[s->n_segments++] = (SearchSegment){
            .kind = order[i].kind, .layers = side < 0 ? a->m.config.layers : a->task->side[side].layers};
        s->fit.rungs += s->segment[s->n_segments - 1].layers;
    }
}

static void space_init(SearchSpace *s, const JobSpec *asked, const Machine *m, SearchFreedom free) {
    *s = (SearchSpace){.asked = *asked, .free = free, .kind = m->kind};
    s->fit = (FitSpace){.axes = AXES, .relief = relief, .disk_relief = disk_relief, .disk_rungs = disk_rungs};
    job_set_micro(&s->asked, job_micro_samples(asked), m->kind); /* it may be laid out for another machine */
    set_micro_axis(s);
    s->fit.unordered[AXIS_MICRO] = asked->rows != NULL; /* a smaller micro-batch may compute fewer rows of padding */
    set_recompute_axis(s);
    s->fit.settings[AXIS_SQUEEZE] = SEARCH_SQUEEZE;
    s->fit.settings[AXIS_HEAD] = 1 + free.head_chunk;
    s->fit.settings[AXIS_TASK] = 1 + (asked->task && !asked->task_saving ? asked->task->savings : 0);
    set_ladder(s);
    s->fit.disk = free.offload && free.disk && !has_one_memory(s);
    s->fit.user = s;
}

JobSpec search_spec(const Search *f, int64_t trial) {
    JobSpec spec;
    CHECK(apply(&spec, &f->space, &f->fit.trial[trial].p));
    return spec;
}

void search_tightest(JobSpec *spec, const Machine *m, SearchFreedom free) {
    SearchSpace *s = MEM_NEW(SearchSpace, 1);
    space_init(s, spec, m, free);
    FitPoint p = {0};
    for (int a = 0; a < AXES; a++) p.at[a] = s->fit.settings[a] - 1;
    p.rung = rungs_of(s, &p);
    /* what does not exist there is the nearest that does */
    JobSpec tight;
    bool ok = apply(&tight, s, &p);
    for (p.at[AXIS_SQUEEZE] = SEARCH_SQUEEZE - 1; !ok && p.at[AXIS_SQUEEZE] >= 0; p.at[AXIS_SQUEEZE]--)
        for (p.at[AXIS_HEAD] = s->fit.settings[AXIS_HEAD] - 1; !ok && p.at[AXIS_HEAD] >= 0; p.at[AXIS_HEAD]--)
            ok = apply(&tight, s, &p);
    CHECK(ok);
    *spec = tight;
    mem_free(s);
}

/* ---- plans ---- */

typedef struct Planner { /* what a trial needs beside the point */
    SearchSpace *space;
    SearchMemo *memo;
    int which; /* of the memo's machines */
    const HostBytes *host;
    Job *job;   /* owns: a place to plan in */
    Ring *ring; /* owns: likewise */
    FitCost taken; /* Search.taken */
} Planner;

void search_memo_free(SearchMemo *memo) {
    mem_free(memo->kept);
    mem_free(memo->seconds);
    memo->kept = NULL;
    memo->seconds = NULL;
    memo->n = memo->cap = memo->cap_seconds = 0;
}

static int64_t memo_find(const SearchMemo *memo, const FitPoint *p) {
    for (int64_t i = 0; i < memo->n; i++)
        if (!memcmp(&memo->kept[i].p, p, sizeof *p)) return i;
    return -1;
}

static int64_t memo_plan(Planner *w, const JobSpec *spec, const FitPoint *p) {
    SearchMemo *memo = w->memo;
    int64_t at = memo->n++, n = memo->n_machines;
    memo->kept = mem_grow(memo->kept, &memo->cap, memo->n, sizeof *memo->kept);
    memo->seconds = mem_grow(memo->seconds, &memo->cap_seconds, memo->n * n, sizeof *memo->seconds);
    bool planned = job_plan(w->job, w->ring, spec, &memo->machine[w->which], w->host, NULL);
    memo->kept[at] = (FitTrial){.p = *p, .fits = planned};
    if (planned)
        memo->kept[at].c = (FitCost){.device_bytes = ring_process_bytes(w->ring),
                                     .host_bytes = ring_host_bytes(w->ring),
                                     .disk_bytes = ring_disk_bytes(w->ring)};
    for (int k = 0; k < n; k++)
        memo->seconds[at * n + k] = planned ? ring_round_seconds(w->ring, &memo->machine[k]) : -1;
    ring_close(w->ring);
    return at;
}

static bool cost(void *user, const FitPoint *p, FitCost *out) {
    Planner *w = user;
    int64_t at = memo_find(w->memo, p);
    if (at < 0) {
        JobSpec spec;
        if (!apply(&spec, w->space, p)) return false;
        spec.estimate = true;
        at = memo_plan(w, &spec, p);
    }
    *out = w->memo->kept[at].c;
    out->seconds = w->memo->seconds[at * w->memo->n_machines + w->which];
    return w->memo->kept[at].fits;
}

/* The space's own functions take the space; a trial takes the planner. */
static int64_t planner_relief(void *user, const FitPoint *p, int64_t n) {
    return relief(((Planner *)user)->space, p, n);
}
static int64_t planner_disk_rungs(void *user, const FitPoint *p) { return p->rung; }

/* The bytes of the placed arena instead of the bound. */
static bool place(Planner *w, const JobSpec *spec, FitCost *c, FitLimits limits) {
    const Machine *m = &w->memo->machine[w->which];
    bool ok = job_plan(w->job, w->ring, spec, m, w->host, NULL);
    if (ok) {
        c->device_bytes = ring_process_bytes(w->ring);
        c->disk_bytes = ring_disk_bytes(w->ring);
        ok = fit_holds(&limits, c);
    }
    if (ok) {
        w->taken = *c;
        w->taken.host_bytes = ring_host_bytes(w->ring);
        w->taken.seconds = ring_round_seconds(w->ring, m);
    }
    ring_close(w->ring);
    return ok;
}

/* On a GPU the gradient of a head's weight passes through memory once a chunk: all rows at a time, or half of them,
 * and so on, where the plan that was found leaves room for their logits; more rows where memory is not worth a
 * recomputation and the run is a fast one: a deterministic one has the same bits recomputed or not, so the same
 * chunks. */
static void give_head_room(Planner *w, JobSpec *spec, FitLimits limits) {
    enum { MOST_ROWS = 32768, SAME_ROWS = 8192, MOST_PIECES = 8 };
    const SearchSpace *s = w->space;
    bool same = spec->attend == ATTEND_OWN, trained = spec->train && !spec->lora;
    for (int l = 0; l < spec->m.config.layers; l++) same |= spec->recompute[l] != RECOMPUTE_NONE;
    int64_t most = MIN2(spec->micro_batch * spec->seq, (same ? SAME_ROWS : MOST_ROWS) >> job_logits_fp32(spec));
    if (s->kind != MACHINE_CUDA || !trained || !s->free.head_room || spec->head_chunk) return;
    for (int pieces = 1; pieces <= MOST_PIECES; pieces *= 2) {
        JobSpec more = *spec;
        FitCost c = {0};
        more.head_chunk = mem_round_up((most + pieces - 1) / pieces, HEAD_TILE);
        if (more.head_chunk <= job_default_chunk(spec, s->kind)) return;
        if (!place(w, &more, &c, limits)) continue;
        *spec = more;
        return;
    }
}

/* Searches until the best plan also fits once it is placed. Where placement puts a plan over a limit, the memo gets its
 * real bytes, and the points that were skipped because of it are tried again. */
static bool search_placed(Planner *w, Fit *f, const FitSpace *space, JobSpec *spec, FitLimits limits) {
    while (fit_search(f, space, limits)) {
        FitTrial *t = &f->trial[f->best];
        JobSpec found;
        apply(&found, w->space, &t->p);
        bool fits = place(w, &found, &t->c, limits);
        w->memo->kept[memo_find(w->memo, &t->p)].c = t->c;
        if (fits) {
            give_head_room(w, &found, limits);
            *spec = found;
            return true;
        }
        if (stop_asked()) return false; /* nothing is planned any more: the same point would be tried for ever */
        fit_free(f);
    }
    return false;
}

bool job_search(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                FitLimits limits) {
    SearchMemo memo = {.machine = m, .n_machines = 1};
    bool fits = job_search_memo(found, spec, &memo, 0, host, free, limits);
    search_memo_free(&memo);
    return fits;
}

bool job_search_memo(Search *found, JobSpec *spec, SearchMemo *memo, int which, const HostBytes *host,
                     SearchFreedom free, FitLimits limits) {
    double began = sensors_seconds();
    *found = (Search){.asked_bytes = INT64_MAX};
    SearchSpace *s = &found->space;
    space_init(s, spec, &memo->machine[which], free);
    Planner w = {
        .space = s, .memo = memo, .which = which, .host = host, .job = MEM_NEW(Job, 1), .ring = MEM_NEW(Ring, 1)};
    JobSpec plain = s->asked;
    plain.estimate = true;
    if (job_plan(w.job, w.ring, &plain, &memo->machine[which], host, NULL)) weigh_state(s, &w.ring->p);
    ring_close(w.ring);
    FitSpace fit = s->fit;
    fit.user = &w;
    fit.cost = cost;
    fit.relief = fit.disk_relief = planner_relief;
    fit.disk_rungs = planner_disk_rungs;
    bool fits = search_placed(&w, &found->fit, &fit, spec, limits);
    if (found->fit.n) found->asked_bytes = found->fit.trial[0].c.device_bytes;
    found->taken = w.taken;
    mem_free(w.job);
    mem_free(w.ring);
    found->ms = 1e3 * (sensors_seconds() - began);
    return fits;
}

void search_free(Search *f) { fit_free(&f->fit); }

/* ---- what --allow gives up ---- */

/* Bytes fall along the axes: where the smallest plan does not fit, none does. */
static bool smallest_fits(const JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                          FitLimits limits) {
    Job *j = MEM_NEW(Job, 1);
    Ring *r = MEM_NEW(Ring, 1);
    JobSpec tight = *spec;
    search_tightest(&tight, m, free);
    bool fits = job_plan(j, r, &tight, m, host, NULL) && ring_process_bytes(r) <= limits.device_bytes;
    ring_close(r);
    mem_free(r);
    mem_free(j);
    return fits;
}

bool search_least_taken(JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free, FitLimits limits,
                        unsigned allow) {
    while (technique_take(spec, allow, m->kind))
        if (smallest_fits(spec, m, host, free, limits)) return true;
    return false;
}

/* What was taken on the way and is not needed with what came after it is given back. */
static void give_back(JobSpec *now, const JobSpec *asked, const Machine *m, const HostBytes *host, SearchFreedom free,
                      FitLimits limits) {
    for (int i = 0; i < technique_count; i++) {
        const Technique *t = &technique_table[i];
        if (!t->allow || t->allow == ALLOW_SEQ || !t->is_on(t, now, asked)) continue;
        JobSpec less = *now;
        t->undo(t, &less, asked);
        if (smallest_fits(&less, m, host, free, limits)) *now = less;
    }
}

bool job_search_allowed(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                        FitLimits limits, unsigned allow) {
    JobSpec now = *spec;
    *found = (Search){.fit.best = -1};
    while (search_least_taken(&now, m, host, free, limits, allow)) {
        JobSpec fitted = now;
        give_back(&fitted, spec, m, host, free, limits);
        search_free(found);
        bool fits = job_search(found, &fitted, m, host, free, limits);
        if (!fits) { /* the host's memory: only with all of it */
            fitted = now;
            search_free(found);
            fits = job_search(found, &fitted, m, host, free, limits);
        }
        if (!fits) continue;
        *spec = fitted;
        return true;
    }
    return false;
}
