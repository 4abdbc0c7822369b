/* rollout.c - how completions are kept, and how they lie in the rows of a micro-batch. */
#include "grpo/rollout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void rollout_init(Rollout *r, int64_t completions, int64_t context, int64_t answer) {
    *r = (Rollout){.n = completions, .context = context, .answer = answer, .number = -1};
    arena_init(&r->arena, "rollout");
    r->c = ARENA_NEW(&r->arena, Completion, completions);
    for (int64_t i = 0; i < completions; i++) {
        Completion *c = &r->c[i];
        *c = (Completion){.ids = ARENA_NEW(&r->arena, int32_t, context)};
        c->sampled = ARENA_NEW(&r->arena, float, answer);
        c->ref = ARENA_NEW(&r->arena, float, answer);
        c->old = ARENA_NEW(&r->arena, float, answer);
    }
}

void rollout_free(Rollout *r) {
    for (int64_t i = 0; r->c && i < r->n; i++) {
        str_free(&r->c[i].text);
        str_free(&r->c[i].answer);
        str_free(&r->c[i].why);
    }
    arena_free(&r->arena);
    *r = (Rollout){0};
}

int64_t rollout_bytes(int64_t completions, int64_t context, int64_t answer) {
    return completions * ((int64_t)sizeof(Completion) + 4 * context + 12 * answer + 64) + 65536;
}

/* ---- checkpoints ---- */

static json_t *ids_json(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *floats_json(const float *x, int64_t n) { /* a float as a double: what is read back is the same */
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)x[i]));
    return list;
}

json_t *rollout_json(const Rollout *r) {
    json_t *list = json_array();
    for (int64_t i = 0; i < r->n; i++) {
        const Completion *c = &r->c[i];
        int64_t n = completion_tokens(c);
        json_array_append_new(
            list, json_pack("{s:I, s:i, s:I, s:o, s:o, s:o, s:o, s:b, s:b, s:f, s:f}", "item", (json_int_t)c->item,
                            "sample", c->sample, "prompt", (json_int_t)c->n_prompt, "ids", ids_json(c->ids, c->n),
                            "sampled", floats_json(c->sampled, n), "ref", floats_json(c->ref, n), "old",
                            floats_json(c->old, n), "truncated", c->truncated, "failed", c->failed, "reward",
                            c->reward, "advantage", c->advantage));
    }
    return json_pack("{s:I, s:o}", "number", (json_int_t)r->number, "completions", list);
}

static bool read_floats(float *to, const json_t *list, int64_t n) {
    bool ok = (int64_t)json_array_size(list) == n;
    for (int64_t i = 0; ok && i < n; i++) to[i] = (float)json_number_value(json_array_get(list, (size_t)i));
    return ok;
}

static bool read_completion(Completion *c, const Rollout *r, const json_t *from) {
    const json_t *ids = json_object_get(from, "ids");
    c->item = json_integer_value(json_object_get(from, "item"));
    c->sample = (int)json_integer_value(json_object_get(from, "sample"));
    c->n_prompt = json_integer_value(json_object_get(from, "prompt"));
    c->n = (int64_t)json_array_size(ids);
    c->truncated = json_is_true(json_object_get(from, "truncated"));
    c->failed = json_is_true(json_object_get(from, "failed"));
    c->reward = json_number_value(json_object_get(from, "reward"));
    c->advantage = json_number_value(json_object_get(from, "advantage"));
    int64_t n = completion_tokens(c);
    if (c->n_prompt < 0 || n < 0 || c->n > r->context || n > r->answer) return false;
    for (int64_t i = 0; i < c->n; i++) c->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    return read_floats(c->sampled, json_object_get(from, "sampled"), n) &&
           read_floats(c->ref, json_object_get(from, "ref"), n) && read_floats(c->old, json_object_get(from, "old"), n);
}

bool rollout_from_json(Rollout *r, const json_t *from, Err *e) {
    const json_t *list = json_object_get(from, "completions");
    bool ok = (int64_t)json_array_size(list) == r->n;
    for (int64_t i = 0; ok && i < r->n; i++) ok = read_completion(&r->c[i], r, json_array_get(list, (size_t)i));
    r->number = json_integer_value(json_object_get(from, "number"));
    return ok || fail(e, ERR_FAIL, "the checkpoint's rollout is not one of this run");
}

/* ---- rows ---- */

void rollout_rows_init(RolloutRows *l, Arena *a, int64_t most) {
    *l = (RolloutRows){.member = ARENA_NEW(a, int64_t, most), .first = ARENA_NEW(a, int64_t, most + 1),
                       .sorted = ARENA_NEW(a, int64_t, most), .left = ARENA_NEW(a, int64_t, most),
                       .row = ARENA_NEW(a, int64_t, most)};
}

/* First-fit, the longest first: an insertion sort, as there are some hundreds of them. */
void rollout_rows_pack(RolloutRows *l, const Rollout *r, const int64_t *member, int64_t n, int64_t seq) {
    int64_t *sorted = l->sorted, *left = l->left, *row = l->row, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = kept;
        if (r->c[member[i]].failed) continue;
        for (; at > 0 && r->c[sorted[at - 1]].n < r->c[member[i]].n; at--) sorted[at] = sorted[at - 1];
        sorted[at] = member[i];
        kept++;
    }
    l->rows = 0;
    for (int64_t i = 0; i < kept; i++) {
        int64_t at = 0, tokens = r->c[sorted[i]].n;
        CHECK(tokens <= seq);
        while (at < l->rows && left[at] < tokens) at++;
        if (at == l->rows) left[l->rows++] = seq;
        left[at] -= tokens;
        row[i] = at;
    }
    int64_t next = 0;
    for (int64_t k = 0; k < l->rows; k++) {
        l->first[k] = next;
        for (int64_t i = 0; i < kept; i++)
            if (row[i] == k) l->member[next++] = sorted[i];
    }
    l->first[l->rows] = next;
}

void rollout_batch_init(RolloutBatch *b, Arena *a, int64_t rows, int64_t seq) {
    float **more[] = {&b->sampled, &b->old, &b->ref, &b->advantage, &b->scored};
    batch_init(&b->b, a, rows, seq);
    for (int i = 0; i < COUNT_OF(more); i++) *more[i] = ARENA_NEW(a, float, rows *seq);
}

int64_t rollout_batch_bytes(int64_t rows, int64_t seq) { return batch_bytes(rows, seq) + 20 * rows * seq; }

/* The token at place t of a completion is predicted at the place before it. */
static void put_completion(RolloutBatch *b, int64_t row, int64_t begin, const Completion *c, float weight) {
    for (int64_t t = 0; t < c->n; t++) {
        int64_t at = row * b->b.seq + begin + t, next = t + 1 - c->n_prompt; /* of the answer's tokens */
        bool scored = next >= 0 && t + 1 < c->n;
        b->b.ids[at] = c->ids[t];
        b->b.positions[at] = (int32_t)t;
        b->b.doc_begin[at] = (int32_t)begin;
        b->b.labels[at] = scored ? c->ids[t + 1] : -1;
        b->b.weight[at] = scored ? weight : 0;
        b->sampled[at] = scored ? c->sampled[next] : 0;
        b->old[at] = scored ? c->old[next] : 0;
        b->ref[at] = scored ? c->ref[next] : 0;
        b->advantage[at] = scored ? (float)c->advantage : 0;
        b->scored[at] = scored && weight != 0;
        b->b.scored += scored;
    }
    b->b.tokens += c->n;
}

void rollout_batch_fill(RolloutBatch *b, const Rollout *r, const RolloutRows *l, int64_t first, const double *weight) {
    int64_t numbers = b->b.rows * b->b.seq * (int64_t)sizeof(float);
    float *more[] = {b->sampled, b->old, b->ref, b->advantage, b->scored};
    for (int i = 0; i < COUNT_OF(more); i++) memset(more[i], 0, (size_t)numbers);
    b->b.tokens = b->b.scored = 0;
    for (int64_t row = 0; row < b->b.rows; row++) {
        int64_t begin = 0, from = first + row < l->rows ? l->first[first + row] : 0,
                to = first + row < l->rows ? l->first[first + row + 1] : 0;
        for (int64_t i = from; i < to; i++) {
            const Completion *c = &r->c[l->member[i]];
            put_completion(b, row, begin, c, weight ? (float)weight[l->member[i]] : 1.0f);
            begin += c->n;
        }
        batch_pad(&b->b, row, begin);
    }
    batch_sort(&b->b);
}

void rollout_take(Rollout *r, const RolloutBatch *b, const RolloutRows *l, int64_t first, const float *numbers,
                  RolloutLogp to) {
    for (int64_t row = 0; row < b->b.rows && first + row < l->rows; row++) {
        int64_t begin = row * b->b.seq;
        for (int64_t i = l->first[first + row]; i < l->first[first + row + 1]; i++) {
            Completion *c = &r->c[l->member[i]];
            float *kept = to == ROLLOUT_REF ? c->ref : to == ROLLOUT_OLD ? c->old : c->sampled;
            for (int64_t k = 0; k < completion_tokens(c); k++) kept[k] = numbers[begin + c->n_prompt - 1 + k];
            begin += c->n;
        }
    }
}
