/* encode.c - texts as requests: where a continuation begins, what stands for an empty context, how texts are cut. */
#include <string.h>

#include "suite/suite_int.h"

static const int32_t *keep(Suite *s, const int32_t *ids, int64_t n) {
    int32_t *to = ARENA_NEW(&s->arena, int32_t, MAX2(n, 1));
    memcpy(to, ids, (size_t)n * sizeof *ids);
    return to;
}

bool encode_text(const Suite *s, TokenIds *out, const char *text, int64_t bytes, Err *e) {
    bool begun =
        s->prefix_text && str_starts(text, s->prefix_text); /* it begins with the token that would be added */
    return tokenizer_encode(s->spec.tokenizer, out, text, bytes, begun ? TOKENIZE_PLAIN : TOKENIZE_ADD_SPECIAL, e);
}

/* What a text took while it was encoded: its row parsed and rendered, its ids, the merging of its longest word. */
static void count_reading(Suite *s, int64_t bytes, const TokenIds *ids) {
    s->reading_bytes = MAX2(s->reading_bytes, tokenizer_encoding_bytes(ids, bytes));
}

/* The model sees all ids but the last: that many fit. What is too much is cut from the beginning. */
static void fit(Suite *s, Piece *p) {
    int64_t over = p->n_prompt + p->n_forced - (s->spec.positions + 1);
    if (over > 0) p->prompt += over, p->n_prompt -= over;
    s->context = MAX2(s->context, p->n_prompt + p->n_forced);
}

static bool check_lengths(const Suite *s, const Piece *p, Err *e) {
    if (p->n_prompt < 1 || p->n_forced < 1) return fail(e, ERR_FAIL, "a choice has no tokens of its own");
    return p->n_forced <= s->spec.positions ||
           fail(e, ERR_FAIL, "a choice has %lld tokens, the model sees %lld at once", (long long)p->n_forced,
                (long long)s->spec.positions);
}

/* An empty context: the token that begins a text (BOS, else EOS) stands in for it. */
static bool encode_alone(Suite *s, Piece *p, const char *text, Err *e) {
    TokenIds ids = {0};
    if (s->prefix < 0)
        return fail(e, ERR_FAIL, "the tokenizer has neither a BOS nor an EOS token to stand for an empty context");
    if (!tokenizer_encode(s->spec.tokenizer, &ids, text, (int64_t)strlen(text), TOKENIZE_PLAIN, e)) return false;
    bool there = ids.n && ids.ids[0] == s->prefix;
    p->prompt = keep(s, &s->prefix, 1);
    p->n_prompt = 1;
    p->n_forced = ids.n - there;
    p->forced = keep(s, ids.ids + there, p->n_forced);
    token_ids_free(&ids);
    return true;
}

/* Encodes both together and takes off as many ids as the context has alone. */
static bool encode_behind(Suite *s, Piece *p, const char *context, int64_t bytes, const char *whole,
                          TokenIds *known, Err *e) {
    TokenIds ids = {0}, own = {0}, *first = known ? known : &own;
    bool fresh = !first->n, ok = !fresh || encode_text(s, first, context, bytes, e);
    ok = ok && encode_text(s, &ids, whole, (int64_t)strlen(whole), e);
    if (ok) {
        static const int32_t none[1];
        count_reading(s, (int64_t)strlen(whole), &ids);
        p->n_prompt = first->n;
        p->prompt = keep(s, first->ids, first->n);
        p->n_forced = MAX2(ids.n - first->n, 0);
        p->forced = keep(s, p->n_forced ? ids.ids + first->n : none, p->n_forced);
    }
    token_ids_free(&ids);
    token_ids_free(&own);
    return ok;
}

bool encode_pair(Suite *s, Piece *p, const char *context, const char *continuation, TokenIds *known, Err *e) {
    Str whole = {0};
    int64_t bytes = (int64_t)strlen(context);
    str_add(&whole, context);
    str_add(&whole, continuation);
    bool ok = bytes ? encode_behind(s, p, context, bytes - text_space_at_end(context), str_text(&whole), known, e)
                    : encode_alone(s, p, continuation, e);
    str_free(&whole);
    if (!ok || !check_lengths(s, p, e)) return false;
    fit(s, p);
    return true;
}

bool encode_prompt(Suite *s, Piece *p, const char *prompt, int64_t most_new, Err *e) {
    TokenIds ids = {0};
    int64_t room = s->spec.positions - most_new;
    if (room < 1)
        return fail(e, ERR_FAIL, "an answer takes up to %lld tokens, and the model sees %lld at once",
                    (long long)most_new, (long long)s->spec.positions);
    if (!encode_text(s, &ids, prompt, (int64_t)strlen(prompt), e)) return false;
    count_reading(s, (int64_t)strlen(prompt), &ids);
    p->n_prompt = MIN2(ids.n, room);
    p->prompt = keep(s, ids.ids + ids.n - p->n_prompt, p->n_prompt);
    token_ids_free(&ids);
    s->context = MAX2(s->context, p->n_prompt + most_new);
    return p->n_prompt > 0 || fail(e, ERR_FAIL, "the prompt has no tokens");
}

/* ---- windows over a whole text ---- */

int64_t encode_window_count(const Suite *s, int64_t n) {
    return (n + s->spec.positions - 1) / s->spec.positions;
}

/* Disjoint windows: each id is scored once. The first one begins behind the token that begins a text; the last one
 * sees as many ids before its own as fit. */
void encode_windows(Suite *s, Item *item, const int32_t *ids, int64_t n) {
    int64_t most = s->spec.positions;
    const int32_t *all = keep(s, ids, n);
    for (int i = 0; i < item->n; i++) {
        int64_t from = i * most, to = MIN2(from + most, n), begin = MAX2(to - most - 1, 0);
        Piece *p = &item->piece[i];
        *p = (Piece){.prompt = all + begin, .n_prompt = from - begin, .forced = all + from, .n_forced = to - from};
        if (!i) p->prompt = keep(s, &s->prefix, 1), p->n_prompt = 1;
        s->context = MAX2(s->context, p->n_prompt + p->n_forced);
    }
}
