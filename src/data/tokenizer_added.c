/* tokenizer_added.c - finds added tokens ("<|im_end|>") in text: leftmost first, and there the longest. */
#include "data/tokenizer_int.h"

#include <string.h>

static int32_t new_node(TokTrie *trie, unsigned char byte) {
    trie->node[trie->n] = (TokTrieNode){.byte = byte, .child = -1, .sibling = -1, .added = -1};
    return trie->n++;
}

static void put(TokTrie *trie, const char *s, int64_t n, int32_t added) {
    int32_t *link = &trie->root[(unsigned char)s[0]], at = -1;
    for (int64_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[i];
        for (at = *link; at >= 0 && trie->node[at].byte != byte; at = *link) link = &trie->node[at].sibling;
        if (at < 0) *link = at = new_node(trie, byte);
        link = &trie->node[at].child;
    }
    if (trie->node[at].added < 0) trie->node[at].added = added;
}

static void trie_init(TokTrie *trie, Arena *a, int64_t bytes) {
    trie->node = ARENA_NEW(a, TokTrieNode, bytes);
    memset(trie->root, 0xff, sizeof trie->root);
}

/* A normalized token is looked for, and shown again, as it looks after normalisation. */
static bool normalize_added(Tokenizer *t, Err *e) {
    TokCall c;
    bool ok = true;
    tok_call_begin(&c, t, NULL, 0, 0, e);
    for (int32_t i = 0; i < t->n_added && ok; i++) {
        TokAdded *a = &t->added[i];
        const char *text = a->text;
        int64_t n = a->bytes;
        a->sought = a->text;
        a->sought_bytes = a->bytes;
        if (!a->normalized || !t->normal.n) continue;
        ok = tok_normal_run(&c, &text, &n);
        if (!ok || (n == a->bytes && !memcmp(text, a->text, (size_t)n))) continue;
        char *sought = arena_alloc(&t->arena, n + 1);
        memcpy(sought, text, (size_t)n);
        a->sought = sought;
        a->sought_bytes = n;
        t->n_renamed++;
    }
    tok_call_end(&c);
    return ok;
}

bool tok_added_build(Tokenizer *t, Err *e) {
    if (!normalize_added(t, e)) return false;
    int64_t bytes[2] = {0};
    for (int32_t i = 0; i < t->n_added; i++) bytes[t->added[i].normalized] += t->added[i].sought_bytes;
    trie_init(&t->raw_trie, &t->arena, bytes[0]);
    trie_init(&t->normal_trie, &t->arena, bytes[1]);
    for (int32_t i = 0; i < t->n_added; i++) {
        const TokAdded *a = &t->added[i];
        if (a->sought_bytes) put(a->normalized ? &t->normal_trie : &t->raw_trie, a->sought, a->sought_bytes, i);
    }
    return true;
}

/* The longest added token that starts here; NULL when none does. */
static const TokAdded *match_here(const TokCall *c, const TokTrie *trie, const char *s, int64_t n,
                                  int64_t *bytes) {
    int32_t best = -1, at = trie->root[(unsigned char)s[0]];
    for (int64_t i = 0; at >= 0;) {
        const TokTrieNode *node = &trie->node[at];
        if (node->byte != (unsigned char)s[i]) {
            at = node->sibling;
            continue;
        }
        i++;
        if (node->added >= 0) {
            best = node->added;
            *bytes = i;
        }
        at = i < n ? node->child : -1;
    }
    return best < 0 ? NULL : &c->t->added[best];
}

static int64_t char_before(const char *s, int64_t at) {
    do at--;
    while (at > 0 && (s[at] & 0xc0) == 0x80);
    return at;
}

static bool stands_alone(const char *s, int64_t n, int64_t start, int64_t end) {
    int bytes;
    if (start > 0 && tok_is_word(tok_utf8_decode(s + char_before(s, start), &bytes))) return false;
    return end == n || !tok_is_word(tok_utf8_decode(s + end, &bytes));
}

/* Takes white space into the token where it asks for that; not what the token before took already. */
static void widen(const TokAdded *a, const char *s, int64_t n, int64_t from, int64_t *start, int64_t *end) {
    int bytes;
    while (a->lstrip && *start > from) {
        int64_t before = char_before(s, *start);
        if (!tok_is_space(tok_utf8_decode(s + before, &bytes))) break;
        *start = before;
    }
    while (a->rstrip && *end < n && tok_is_space(tok_utf8_decode(s + *end, &bytes))) *end += bytes;
}

bool tok_added_scan(TokCall *c, const TokTrie *trie, const char *s, int64_t n, int64_t skip, bool at_start,
                    TokGapFn *gap) {
    int64_t from = 0;
    for (int64_t at = skip; at < n && trie->n;) {
        int64_t bytes = 0;
        if (trie->root[(unsigned char)s[at]] < 0) {
            at++;
            continue;
        }
        const TokAdded *a = match_here(c, trie, s + at, n - at, &bytes);
        int64_t start = at, end = at + bytes;
        at += a ? bytes : 1;
        if (!a || (a->special && (c->flags & TOKENIZE_NO_SPECIAL_PARSE))) continue;
        if (a->single_word && !stands_alone(s, n, start, end)) continue;
        widen(a, s, n, from, &start, &end);
        if (start > from && !gap(c, s + from, start - from, at_start && from == 0)) return false;
        token_ids_add(c->out, a->id);
        from = end;
    }
    return from >= n || gap(c, s + from, n - from, at_start && from == 0);
}
