/* haystack.c - how many sentences fill a prompt of a given length, and the items of every length and depth. */
#include <string.h>

#include "base/rng.h"
#include "suite/suite_int.h"

enum { DEPTHS = 5, EACH_CELL = 4, EACH_LENGTH = 20 }; /* unless asked otherwise */
static const int64_t usual[] = {512, 1024, 2048, 4096};

static bool tokens_of(const Suite *s, int64_t *n, const char *text, Err *e) {
    TokenIds ids = {0};
    bool ok = encode_text(s, &ids, text, (int64_t)strlen(text), e);
    *n = ids.n;
    token_ids_free(&ids);
    return ok;
}

/* Units fill the length from below: their average tells how many, then what is too much is taken off again. */
static bool fill(const Suite *s, Str *out, Hay *h, int64_t room, Err *e) {
    enum { PROBE = 400 };
    int64_t none, some, n;
    Str probe = {0};
    hay_prompt(&probe, h, 0);
    bool ok = tokens_of(s, &none, str_text(&probe), e);
    str_clear(&probe);
    hay_prompt(&probe, h, PROBE);
    ok = ok && tokens_of(s, &some, str_text(&probe), e);
    str_free(&probe);
    if (!ok) return false;
    double each = (double)MAX2(some - none, 1) / PROBE;
    int64_t units = (int64_t)((double)(room - none) / each);
    while (units >= 0) {
        str_clear(out);
        hay_prompt(out, h, units);
        if (!tokens_of(s, &n, str_text(out), e)) return false;
        if (n <= room) return true;
        units -= MAX2((int64_t)((double)(n - room) / each), 1);
    }
    return fail(e, ERR_FAIL,
                "a prompt of %lld tokens has no room for the question; give a larger one of --lengths",
                (long long)room);
}

static bool add_item(Suite *s, int task, int64_t length, int depth, int64_t number, Err *e) {
    Task *t = &s->task[task];
    Str text = {0};
    uint64_t key = rng_fold(rng_fold_text(s->spec.seed, t->name), (uint64_t)number);
    Hay h = {.spec = t->row->hay,
             .key = rng_fold(rng_fold(key, (uint64_t)length), (uint64_t)(depth + 1)),
             .depth = depth};
    bool ok = fill(s, &text, &h, length - t->row->most_new, e);
    if (ok) {
        Item *it = suite_add_item(s, t, 1);
        const char **want = ARENA_NEW(&s->arena, const char *, h.n_want);
        for (int i = 0; i < h.n_want; i++) want[i] = arena_strdup(&s->arena, h.want[i]);
        it->want = want;
        it->n_want = h.n_want;
        it->length = length;
        it->depth = depth;
        s->answer_bytes += t->row->most_new * 8;
        t->rows++;
        ok = encode_prompt(s, &it->piece[0], str_text(&text), t->row->most_new, e);
    }
    str_free(&text);
    return ok;
}

static bool add_length(Suite *s, int task, int64_t length, Err *e) {
    const TaskRow *row = s->task[task].row;
    int depths = row->hay.by_depth ? (s->spec.depths ? s->spec.depths : DEPTHS) : 1;
    int64_t each = s->spec.limit ? s->spec.limit : row->hay.by_depth ? EACH_CELL : EACH_LENGTH;
    for (int d = 0; d < depths; d++)
        for (int64_t i = 0; i < each; i++) {
            int depth = !row->hay.by_depth ? -1 : depths > 1 ? d * 100 / (depths - 1) : 50;
            if (!add_item(s, task, length, depth, i, e)) return fail_within(e, "%s", row->name);
        }
    return true;
}

static bool check_length(const Suite *s, int64_t length, Err *e) {
    return length <= s->spec.positions || fail(e, ERR_USAGE, "--lengths %lld: the model sees %lld tokens at once",
                                               (long long)length, (long long)s->spec.positions);
}

bool haystack_add(Suite *s, const TaskRow *row, Err *e) {
    int task = (int)(suite_add_task(s, row, row->name) - s->task);
    const int64_t *length = s->spec.n_lengths ? s->spec.length : usual;
    int n = s->spec.n_lengths ? s->spec.n_lengths : COUNT_OF(usual);
    if (n > MEASURES) return fail(e, ERR_USAGE, "--lengths: %d at most", MEASURES);
    while (!s->spec.n_lengths && n > 1 && length[n - 1] > s->spec.positions) n--;
    const int64_t all[1] = {s->spec.positions}; /* the usual lengths are too long: one, of all positions */
    if (!s->spec.n_lengths && length[0] > s->spec.positions) length = all, n = 1;
    for (int i = 0; i < n; i++)
        if (!check_length(s, length[i], e) || !add_length(s, task, length[i], e)) return false;
    return true;
}
