/* sample.c - which tokens are kept, and which one a random number picks (the contract stands in ir/op_sample.c). */
#include "backend/cpu/sample.h"

#include "backend/cpu/cpu.h"

Sampler sampler_at(void *scratch, int64_t vocab) {
    SampleItem *item = scratch;
    return (Sampler){.vocab = vocab, .item = item, .score = (float *)(item + vocab)};
}

/* ---- scores ---- */

static int32_t likeliest(const float *score, int64_t n) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (score[i] > score[at]) at = i;
    return (int32_t)at;
}

/* -infinity is a token that cannot come; NaN and +infinity are a model that went wrong. However often a token came, its
 * score is made from its logit once more, with the same result. */
static bool load_scores(Sampler *s, const float *logits, const DrawHow *how, const int32_t *before, int64_t n_before) {
    float top = -INFINITY;
    bool sound = true;
    for (int64_t i = 0; i < s->vocab; i++) {
        s->score[i] = logits[i];
        sound &= logits[i] < INFINITY;
        if (logits[i] > top) top = logits[i];
    }
    bool penalise = how->repetition != 1 && how->repetition > 0;
    for (int64_t i = 0; penalise && i < n_before; i++)
        if (before[i] >= 0 && before[i] < s->vocab)
            s->score[before[i]] = draw_penalised(logits[before[i]], how->repetition);
    return sound && top > -INFINITY;
}

/* ---- what is kept ---- */

/* The largest score s for which the items with scores >= s weigh at least `limit`; all of them do. Puts the items in
 * another order: [0,i) above the pivot, [i,j) equal, [k,n) below. */
static float least_that_reaches(SampleItem *x, int64_t n, uint64_t limit) {
    for (;;) {
        float pivot = x[n / 2].score;
        int64_t i = 0, j = 0, k = n;
        uint64_t above = 0, equal = 0;
        while (j < k) {
            SampleItem t = x[j];
            if (t.score > pivot) {
                x[j++] = x[i];
                x[i++] = t;
                above += t.weight;
            } else if (t.score < pivot) {
                x[j] = x[--k];
                x[k] = t;
            } else {
                j++;
                equal += t.weight;
            }
        }
        if (above >= limit) {
            n = i;
        } else if (above + equal >= limit || k == n) {
            return pivot;
        } else {
            limit -= above + equal;
            x += k;
            n -= k;
        }
    }
}

static int64_t items_from(Sampler *s, float least, bool weighted, uint64_t *sum) {
    int64_t n = 0;
    *sum = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        float score = s->score[i];
        if (!(score >= least) || score == -INFINITY) continue;
        uint64_t w = weighted ? draw_weight(score, s->top, s->temperature) : 1;
        s->item[n++] = (SampleItem){score, w};
        *sum += w;
    }
    return n;
}

bool sample_keep(Sampler *s, const float *logits, const DrawHow *how, const int32_t *before, int64_t n_before) {
    if (!load_scores(s, logits, how, before, n_before)) return false;
    s->top = s->score[likeliest(s->score, s->vocab)];
    s->temperature = how->temperature;
    s->least = how->temperature > 0 ? -INFINITY : s->top;
    s->least_weight = how->min_p > 0 ? draw_share(how->min_p, DRAW_ONE) : 1;
    if (how->temperature > 0 && how->top_k > 0 && how->top_k < s->vocab) {
        int64_t n = items_from(s, s->least, false, &s->total);
        if (how->top_k < n) s->least = least_that_reaches(s->item, n, (uint64_t)how->top_k);
    }
    if (how->temperature > 0 && how->top_p < 1) {
        int64_t n = items_from(s, s->least, true, &s->total);
        s->least = least_that_reaches(s->item, n, draw_share(how->top_p, s->total));
    }
    s->total = 0;
    for (int64_t i = 0; i < s->vocab; i++) s->total += sample_weight(s, i);
    return true;
}

uint64_t sample_weight(const Sampler *s, int64_t id) {
    float score = s->score[id];
    if (!(score >= s->least) || score == -INFINITY) return 0;
    uint64_t w = draw_weight(score, s->top, s->temperature);
    return w >= s->least_weight ? w : 0;
}

int32_t sample_token(Sampler *s, const float *logits, const DrawHow *how, const int32_t *before, int64_t n_before,
                     int64_t number) {
    if (!(how->temperature > 0))
        return load_scores(s, logits, how, before, n_before) ? likeliest(s->score, s->vocab) : -1;
    if (!sample_keep(s, logits, how, before, n_before)) return -1;
    uint64_t place = draw_place(rng_u32(how->key, (uint64_t)number) >> 8, s->total), sum = 0;
    int64_t id = 0;
    while (id < s->vocab - 1 && (sum += sample_weight(s, id)) <= place) id++;
    return (int32_t)id;
}

float sample_logp(const float *logits, int64_t vocab, int32_t id, float scale) {
    float top = logits[likeliest(logits, vocab)];
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += expf((logits[i] - top) * scale);
    if (sum <= 0) return -INFINITY; /* numbers that are none */
    return (float)((double)((logits[id] - top) * scale) - log(sum));
}

static bool is_sound(const float *logits, int64_t vocab) { /* as load_scores judges them */
    float top = -INFINITY;
    for (int64_t i = 0; i < vocab; i++) {
        if (!(logits[i] < INFINITY)) return false;
        top = MAX2(top, logits[i]);
    }
    return top > -INFINITY;
}

/* ---- the ops ---- */

static void sample_rows(void *context, int64_t part, int worker) { /* rows part, part + SAMPLE_WORKERS, ... */
    const Args *a = context;
    const Tensor *shape = a->sample.in.logits.t;
    int64_t rows = cpu_rows(shape), vocab = cpu_cols(shape), room = cpu_cols(a->sample.out.ids.t);
    const int32_t *slots = a->sample.in.slots.data, *positions = a->sample.in.positions.data;
    Sampler s = sampler_at(cpu_scratch(a, 0, sample_row_bytes(vocab), (int)part), vocab);
    for (int64_t n = part; n < rows; n += SAMPLE_WORKERS) {
        if (positions[n] < 0) continue;
        CHECK(slots[n] >= 0 && slots[n] < cpu_rows(a->sample.out.drawn.t) && positions[n] < room);
        const float *logits = (const float *)a->sample.in.logits.data + n * vocab;
        const DrawHow *how = (const DrawHow *)a->sample.in.how.data + slots[n];
        int32_t *ids = (int32_t *)a->sample.out.ids.data + slots[n] * room;
        s.vocab = how->vocab > 0 ? MIN2(how->vocab, vocab) : vocab;
        int64_t next = positions[n] + 1;
        bool forced = next - how->first < how->forced && next < room;
        int32_t id = !forced                     ? sample_token(&s, logits, how, ids, next, next - how->first)
                     : is_sound(logits, s.vocab) ? ids[next]
                                                 : -1;
        float scale = how->logp_scale > 0 ? how->logp_scale : 1;
        float logp = how->want_logp && id >= 0 ? sample_logp(logits, vocab, id, scale) : 0;
        ((Drawn *)a->sample.out.drawn.data)[slots[n]] = (Drawn){id, logp};
        if (next < room) ids[next] = id;
    }
}

void cpu_sample(Backend *b, Queue q, const Args *a) {
    threads_for(cpu_threads(b), MIN2(cpu_rows(a->sample.in.logits.t), SAMPLE_WORKERS), sample_rows, (void *)a);
}

void cpu_pick(Backend *b, Queue q, const Args *a) {
    const int32_t *ids = a->pick.in.ids.data, *slots = a->pick.in.slots.data, *positions = a->pick.in.positions.data;
    int64_t context = cpu_cols(a->pick.in.ids.t), count = cpu_count(a->pick.out.picked.t);
    int32_t *picked = a->pick.out.picked.data;
    for (int64_t n = 0; n < count; n++)
        picked[n] = positions[n] < 0 ? 0 : MAX2(ids[slots[n] * context + positions[n]], 0);
}
