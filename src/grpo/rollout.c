/* rollout.c - how completions are kept, and how they lie in the rows of a micro-batch. */
#include "grpo/rollout.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

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

static json_t *given_json(const double *given) {
    json_t *list = json_array();
    for (int k = 0; k < REWARDS_MOST; k++)
        json_array_append_new(list, isfinite(given[k]) ? json_real(given[k]) : json_null());
    return list;
}

static void read_given(double *given, const json_t *list) { /* NULL: of a checkpoint that does not say */
    for (int k = 0; k < REWARDS_MOST; k++) {
        const json_t *one = json_array_get(list, (size_t)k);
        given[k] = json_is_number(one) ? json_number_value(one) : (double)NAN;
    }
}

json_t *rollout_json(const Rollout *r) {
    json_t *list = json_array();
    for (int64_t i = 0; i < r->n; i++) {
        const Completion *c = &r->c[i];
        int64_t n = completion_tokens(c);
        json_array_append_new(
            list,
            json_pack("{s:I, s:i, s:I, s:o, s:o, s:o, s:o, s:b, s:b, s:o, s:f, s:f}", "item", (json_int_t)c->item,
                      "sample", c->sample, "prompt", (json_int_t)c->n_prompt, "ids", json_ids(c->ids, c->n),
                      "sampled", json_floats(c->sampled, n), "ref", json_floats(c->ref, n), "old",
                      json_floats(c->old, n), "truncated", c->truncated, "failed", c->failed, "given",
                      given_json(c->given), "reward", c->reward, "advantage", c->advantage));
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
    read_given(c->given, json_object_get(from, "given"));
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
    return ok ||
           fail(e, ERR_FAIL,
                "the checkpoint's rollout has another number or length of answers than this run. Resume with the "
                "options it was made with, or begin anew in another --out");
}

/* ---- rows ---- */

void rollout_rows_init(RolloutRows *l, Arena *a, int64_t most, bool shares) {
    *l = (RolloutRows){.shares = shares, .first = ARENA_NEW(a, int64_t, most + 1)};
    int64_t **lists[] = {&l->member, &l->prompt, &l->from, &l->sorted, &l->left, &l->row};
    for (int i = 0; i < COUNT_OF(lists); i++) *lists[i] = ARENA_NEW(a, int64_t, most);
}

/* An insertion sort, as there are some hundreds of them: the longest first, or, where prompts are shared, as they
 * were asked, a group's answers side by side. */
static int64_t sort_members(RolloutRows *l, const Rollout *r, const int64_t *member, int64_t n) {
    int64_t *sorted = l->sorted, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = kept;
        if (r->c[member[i]].failed) continue;
        for (; at > 0; at--) {
            bool behind = l->shares ? sorted[at - 1] > member[i] : r->c[sorted[at - 1]].n < r->c[member[i]].n;
            if (!behind) break;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = member[i];
        kept++;
    }
    return kept;
}

static void put_member(RolloutRows *l, int64_t at, int64_t member, int64_t prompt, int64_t from) {
    l->member[at] = member;
    l->prompt[at] = prompt;
    l->from[at] = from;
}

/* First-fit. */
static void pack_alone(RolloutRows *l, const Rollout *r, int64_t kept, int64_t seq) {
    int64_t *sorted = l->sorted, *left = l->left, *row = l->row, next = 0;
    for (int64_t i = 0; i < kept; i++) {
        int64_t at = 0, tokens = r->c[sorted[i]].n;
        CHECK(tokens <= seq);
        while (at < l->rows && left[at] < tokens) at++;
        if (at == l->rows) left[l->rows++] = seq;
        left[at] -= tokens;
        row[i] = at;
    }
    for (int64_t k = 0; k < l->rows; k++) {
        int64_t begin = 0;
        l->first[k] = next;
        for (int64_t i = 0; i < kept; i++) {
            if (row[i] != k) continue;
            const Completion *c = &r->c[sorted[i]];
            put_member(l, next++, sorted[i], begin, begin + c->n_prompt - 1);
            begin += c->n;
        }
    }
}

static bool same_prompt(const Completion *a, const Completion *b) {
    return a->n_prompt == b->n_prompt && !memcmp(a->ids, b->ids, (size_t)a->n_prompt * sizeof *a->ids);
}

/* Next-fit: a row that does not hold the next answer is closed. */
static void pack_shared(RolloutRows *l, const Rollout *r, int64_t kept, int64_t seq) {
    int64_t used = 0, prompt = 0;
    const Completion *before = NULL;
    for (int64_t i = 0; i < kept; i++) {
        const Completion *c = &r->c[l->sorted[i]];
        int64_t own = c->n_prompt - 1, tokens = completion_tokens(c);
        CHECK(own >= 0 && own + tokens <= seq);
        bool joins = before && same_prompt(before, c);
        if (!l->rows || used + (joins ? 0 : own) + tokens > seq) {
            l->first[l->rows++] = i;
            used = 0;
            joins = false;
        }
        if (!joins) prompt = used, used += own;
        put_member(l, i, l->sorted[i], prompt, used);
        used += tokens;
        before = c;
    }
}

void rollout_rows_pack(RolloutRows *l, const Rollout *r, const int64_t *member, int64_t n, int64_t seq) {
    int64_t kept = sort_members(l, r, member, n);
    l->rows = 0;
    if (l->shares)
        pack_shared(l, r, kept, seq);
    else
        pack_alone(l, r, kept, seq);
    l->first[l->rows] = kept;
}

void rollout_batch_init(RolloutBatch *b, Arena *a, int64_t rows, int64_t seq, bool shares) {
    float **more[] = {&b->sampled, &b->old, &b->ref, &b->advantage, &b->scored};
    batch_init(&b->b, a, rows, seq);
    for (int i = 0; i < COUNT_OF(more); i++) *more[i] = ARENA_NEW(a, float, rows *seq);
    b->prefix = shares ? ARENA_NEW(a, int32_t, 2 * rows * seq) : NULL;
}

int64_t rollout_batch_bytes(int64_t rows, int64_t seq, bool shares) {
    return batch_bytes(rows, seq) + (shares ? 28 : 20) * rows * seq;
}

/* Tokens [t, upto) of a completion, from that place of the row on. The token at t is predicted at the one before
 * it. */
static void put_tokens(RolloutBatch *b, int64_t at, const Completion *c, int64_t t, int64_t upto, int64_t doc,
                       float weight) {
    for (b->b.tokens += upto - t; t < upto; t++, at++) {
        int64_t next = t + 1 - c->n_prompt; /* of the answer's tokens */
        bool scored = next >= 0 && t + 1 < c->n;
        b->b.ids[at] = c->ids[t];
        b->b.positions[at] = (int32_t)t;
        b->b.doc_begin[at] = (int32_t)doc;
        b->b.labels[at] = scored ? c->ids[t + 1] : -1;
        b->b.weight[at] = scored ? weight : 0;
        b->sampled[at] = scored ? c->sampled[next] : 0;
        b->old[at] = scored ? c->old[next] : 0;
        b->ref[at] = scored ? c->ref[next] : 0;
        b->advantage[at] = scored ? (float)c->advantage : 0;
        b->scored[at] = scored && weight != 0;
        b->b.scored += scored;
    }
}

/* Gives where the row goes on. fresh: its prompt does not stand there yet. */
static int64_t put_completion(RolloutBatch *b, int64_t row, const RolloutRows *l, int64_t i, const Completion *c,
                              bool fresh, float weight) {
    int64_t at = row * b->b.seq, prompt = l->prompt[i], from = l->from[i], own = c->n_prompt - 1;
    if (!l->shares) {
        put_tokens(b, at + prompt, c, 0, c->n, prompt, weight);
        return prompt + c->n;
    }
    if (fresh) put_tokens(b, at + prompt, c, 0, own, prompt, weight);
    put_tokens(b, at + from, c, own, c->n - 1, from, weight);
    for (int64_t k = from; k < from + completion_tokens(c); k++) {
        b->prefix[2 * (at + k)] = (int32_t)prompt;
        b->prefix[2 * (at + k) + 1] = (int32_t)(prompt + own);
    }
    return from + completion_tokens(c);
}

void rollout_batch_fill(RolloutBatch *b, const Rollout *r, const RolloutRows *l, int64_t first, const double *weight) {
    int64_t numbers = b->b.rows * b->b.seq * (int64_t)sizeof(float);
    float *more[] = {b->sampled, b->old, b->ref, b->advantage, b->scored};
    for (int i = 0; i < COUNT_OF(more); i++) memset(more[i], 0, (size_t)numbers);
    if (b->prefix) memset(b->prefix, 0, 2 * (size_t)numbers);
    b->b.tokens = b->b.scored = 0;
    for (int64_t row = 0; row < b->b.rows; row++) {
        int64_t end = 0, begin = first + row < l->rows ? l->first[first + row] : 0,
                upto = first + row < l->rows ? l->first[first + row + 1] : 0;
        for (int64_t i = begin; i < upto; i++) {
            const Completion *c = &r->c[l->member[i]];
            bool fresh = i == begin || !same_prompt(&r->c[l->member[i - 1]], c);
            end = put_completion(b, row, l, i, c, fresh, weight ? (float)weight[l->member[i]] : 1.0f);
        }
        batch_pad(&b->b, row, end);
    }
    batch_sort(&b->b);
}

void rollout_take(Rollout *r, const RolloutBatch *b, const RolloutRows *l, int64_t first, const float *numbers,
                  RolloutLogp to) {
    for (int64_t row = 0; row < b->b.rows && first + row < l->rows; row++) {
        for (int64_t i = l->first[first + row]; i < l->first[first + row + 1]; i++) {
            Completion *c = &r->c[l->member[i]];
            float *kept = to == ROLLOUT_REF ? c->ref : to == ROLLOUT_OLD ? c->old : c->sampled;
            const float *own = numbers + row * b->b.seq + l->from[i];
            memcpy(kept, own, (size_t)completion_tokens(c) * sizeof *kept);
        }
    }
}
