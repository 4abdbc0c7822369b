/* tokenizer_bpe.c - byte-pair merging: a word becomes single characters, then the pair that was learnt first is
 * joined, again and again, until no pair is known.
 *
 * The queue holds (rank, position) of every pair that could be joined; an entry whose pair has changed since it
 * was put there is recognised by its rank and passed over.
 *
 * Two memories spare most of that work. Each call has a cache of words and their ids. And most words are pieces,
 * of which the vocabulary keeps for good whether merging gives the piece back: found out when first met, by
 * whichever thread, with the same answer for all. */
#include "data/tokenizer_int.h"

#include <string.h>

#include "base/stop.h"

enum { KEPT_WORD = 1 << 14 }; /* the scratch of a longer word is given back at once */
enum { CACHE_KEY = 24, CACHE_IDS = 8, CACHE_LEAST = 16, CACHE_MOST = 16384 };
#define NO_RANK UINT32_MAX

/* TokVocab.settled: merging a piece's text gives the piece, or something else. */
enum { UNSEEN, SETTLED, UNSETTLED };

typedef struct CacheLine { /* 64 bytes: a word and its ids */
    uint32_t hash;
    uint8_t bytes, n; /* bytes 0: empty */
    uint8_t unused[2];
    char key[CACHE_KEY];
    int32_t ids[CACHE_IDS];
} CacheLine;
_Static_assert(sizeof(CacheLine) == 64, "a cache line of ours is one of the processor's");

typedef struct Symbol {
    int32_t piece;
    int32_t before, after; /* neighbours, -1: none */
    int32_t joined;        /* what this and `after` become */
    uint32_t rank;         /* of that merge; NO_RANK: they do not merge, or this symbol is gone */
} Symbol;

struct TokBpe {
    CacheLine *cache; /* owns */
    uint64_t cache_mask;
    Symbol *symbols; /* owns */
    int64_t n, capacity;
    uint64_t *queue; /* owns; a heap of rank << 32 | position */
    int64_t n_queue, queue_capacity;
    char *mapped; /* owns; a word in byte-level characters */
};

TokBpe *tok_bpe_new(const Tokenizer *t, int64_t text_bytes) {
    TokBpe *b = MEM_NEW(TokBpe, 1);
    int64_t lines = CACHE_LEAST;
    while (lines < CACHE_MOST && lines * 32 < text_bytes) lines *= 2;
    b->cache = MEM_NEW(CacheLine, lines);
    b->cache_mask = (uint64_t)lines - 1;
    b->mapped = mem_alloc(2 * (int64_t)t->vocab.longest);
    return b;
}

static void forget_scratch(TokBpe *b) {
    mem_free(b->symbols);
    mem_free(b->queue);
    b->symbols = NULL;
    b->queue = NULL;
    b->capacity = b->queue_capacity = 0;
}

void tok_bpe_free(TokBpe *b) {
    mem_free(b->cache);
    forget_scratch(b);
    mem_free(b->mapped);
    mem_free(b);
}

/* The 188 bytes that print stand for themselves, the others are characters from U+0100 on, in order. */
static bool prints(int byte) {
    return (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
}

int32_t tok_byte_char(int byte) {
    if (prints(byte)) return byte;
    if (byte <= 32) return 256 + byte;
    return byte <= 160 ? 256 + 33 + byte - 127 : 256 + 67;
}

int tok_char_byte(int32_t c) {
    if (c < 256) return c >= 0 && prints(c) ? c : -1;
    if (c < 256 + 33) return c - 256;
    if (c < 256 + 67) return c - 256 - 33 + 127;
    return c == 256 + 67 ? 173 : -1;
}

void tok_bpe_prepare(Tokenizer *t) {
    static const char hex[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        char name[8] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        int64_t bytes = 6;
        if (t->byte_level) bytes = tok_utf8_encode(tok_byte_char(b), name);
        t->byte_id[b] = tok_vocab_find(&t->vocab, name, bytes);
    }
    for (int c = 0; c < 128; c++) {
        char text = (char)c;
        t->ascii_id[c] = tok_vocab_find(&t->vocab, &text, 1);
    }
}

/* ---- the queue ---- */

static void queue_push(TokBpe *b, uint64_t entry) {
    if (b->n_queue == b->queue_capacity)
        b->queue = mem_grow(b->queue, &b->queue_capacity, b->n_queue + 1, (int64_t)sizeof *b->queue);
    int64_t at = b->n_queue++;
    for (; at > 0 && b->queue[(at - 1) / 2] > entry; at = (at - 1) / 2) b->queue[at] = b->queue[(at - 1) / 2];
    b->queue[at] = entry;
}

static uint64_t queue_pop(TokBpe *b) {
    uint64_t top = b->queue[0], last = b->queue[--b->n_queue];
    int64_t at = 0;
    for (int64_t child = 1; child < b->n_queue; child = 2 * at + 1) {
        if (child + 1 < b->n_queue && b->queue[child + 1] < b->queue[child]) child++;
        if (last <= b->queue[child]) break;
        b->queue[at] = b->queue[child];
        at = child;
    }
    b->queue[at] = last;
    return top;
}

/* ---- symbols ---- */

static void add_symbol(TokBpe *b, int32_t piece) {
    if (b->n == b->capacity)
        b->symbols = mem_grow(b->symbols, &b->capacity, b->n + 1, (int64_t)sizeof *b->symbols);
    b->symbols[b->n] = (Symbol){.piece = piece, .before = (int32_t)b->n - 1, .after = (int32_t)b->n + 1};
    b->n++;
}

/* A character that is no piece: its bytes where all of them are pieces, else the unknown token. *unknown says that
 * one is due: it is added before the next known character, so that several can be one. */
static bool add_unknown(TokCall *c, const char *s, int bytes, bool *unknown) {
    const Tokenizer *t = c->t;
    bool fallback = t->byte_fallback && !t->byte_level;
    for (int i = 0; i < bytes && fallback; i++) fallback = t->byte_id[(unsigned char)s[i]] >= 0;
    if (fallback) {
        for (int i = 0; i < bytes; i++) add_symbol(c->bpe, t->byte_id[(unsigned char)s[i]]);
        return true;
    }
    if (!t->unk_named) return true; /* such characters are left out */
    if (t->unk < 0) return fail(c->e, ERR_FAIL, "the tokenizer's unknown token is not in its vocabulary");
    if (*unknown && !t->fuse_unk) add_symbol(c->bpe, t->unk);
    *unknown = true;
    return true;
}

/* The piece that the first byte (byte level) or character of s is; -1 when it is none. */
static int32_t first_piece(const Tokenizer *t, const char *s, int *bytes) {
    unsigned char first = (unsigned char)*s;
    *bytes = 1;
    if (t->byte_level) return t->byte_id[first];
    if (first < 128) return t->ascii_id[first];
    tok_utf8_decode(s, bytes);
    return tok_vocab_find(&t->vocab, s, *bytes);
}

static bool add_characters(TokCall *c, const char *word, int64_t n) {
    bool unknown = false;
    for (int64_t i = 0; i < n;) {
        int bytes;
        int32_t piece = first_piece(c->t, word + i, &bytes);
        if (piece < 0) {
            if (!add_unknown(c, word + i, bytes, &unknown)) return false;
        } else {
            if (unknown) add_symbol(c->bpe, c->t->unk);
            unknown = false;
            add_symbol(c->bpe, piece);
        }
        i += bytes;
    }
    if (unknown) add_symbol(c->bpe, c->t->unk);
    return true;
}

/* Looks up what the symbol at `at` and the one after it become. */
static void look_up(const TokVocab *v, TokBpe *b, int32_t at) {
    Symbol *s = &b->symbols[at];
    const TokMerge *m = s->after < 0 ? NULL : tok_vocab_merge(v, s->piece, b->symbols[s->after].piece);
    s->rank = m ? (uint32_t)m->rank : NO_RANK;
    if (!m) return;
    s->joined = m->piece;
    queue_push(b, (uint64_t)s->rank << 32 | (uint32_t)at);
}

static void merge(const TokVocab *v, TokBpe *b) {
    b->symbols[b->n - 1].after = -1;
    b->n_queue = 0;
    for (int32_t i = 0; i < b->n; i++) look_up(v, b, i);
    while (b->n_queue) {
        uint64_t top = queue_pop(b);
        int32_t at = (int32_t)(uint32_t)top;
        Symbol *s = &b->symbols[at];
        if (s->rank != top >> 32) continue; /* the pair that was here is no more */
        Symbol *gone = &b->symbols[s->after];
        s->piece = s->joined;
        s->after = gone->after;
        gone->rank = NO_RANK;
        if (s->after >= 0) b->symbols[s->after].before = at;
        look_up(v, b, at);
        if (s->before >= 0) look_up(v, b, s->before);
    }
}

/* A word that is a piece as it stands; -1 when it is none. */
static int32_t whole_word(const TokCall *c, const char *word, int64_t n) {
    if (n > c->t->vocab.longest) return -1;
    if (!c->t->byte_level) return tok_vocab_find(&c->t->vocab, word, n);
    char *mapped = c->bpe->mapped;
    int64_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned point = (unsigned)tok_byte_char((unsigned char)word[i]); /* one or two bytes long */
        if (point >= 0x80) mapped[used++] = (char)(0xc0 | point >> 6);
        mapped[used++] = (char)(point >= 0x80 ? 0x80 | (point & 0x3f) : point);
    }
    return tok_vocab_find(&c->t->vocab, mapped, used);
}

static bool merge_word(TokCall *c, const char *word, int64_t n) {
    TokBpe *b = c->bpe;
    if (n > INT32_MAX / 4) return fail(c->e, ERR_FAIL, "a word of %lld bytes is too long to merge", (long long)n);
    c->largest_word = MAX2(c->largest_word, n);
    if (c->word_limit && n > KEPT_WORD && n * TOK_WORD_COST > c->word_limit)
        return fail(c->e, ERR_BUDGET,
                    "%lld bytes without a break are one word: merging it would take %lld bytes, %lld are left of "
                    "the budget",
                    (long long)n, (long long)n * TOK_WORD_COST, (long long)c->word_limit);
    b->n = 0;
    if (!add_characters(c, word, n)) return false;
    if (!b->n) return true;
    merge(&c->t->vocab, b);
    for (int32_t i = 0; i >= 0; i = b->symbols[i].after) token_ids_add(c->out, b->symbols[i].piece);
    if (n > KEPT_WORD) forget_scratch(b);
    return true;
}

static bool encode_word(TokCall *c, const char *word, int64_t n) {
    int32_t whole = whole_word(c, word, n);
    if (whole < 0) return merge_word(c, word, n);
    atomic_uchar *settled = &c->t->vocab.settled[whole];
    unsigned char known = c->t->ignore_merges ? SETTLED : atomic_load_explicit(settled, memory_order_relaxed);
    if (known == SETTLED) return token_ids_add(c->out, whole), true;
    int64_t before = c->out->n;
    if (!merge_word(c, word, n)) return false;
    bool same = c->out->n == before + 1 && c->out->ids[before] == whole;
    atomic_store_explicit(settled, same ? SETTLED : UNSETTLED, memory_order_relaxed);
    return true;
}

bool tok_bpe_word(TokCall *c, const char *word, int64_t n) {
    if (stop_asked()) return stop_check(c->e); /* a text may have millions of words */
    if (n > CACHE_KEY) return encode_word(c, word, n);
    uint64_t hash = tok_hash(word, n);
    CacheLine *line = &c->bpe->cache[hash & c->bpe->cache_mask];
    if (line->bytes == n && line->hash == hash >> 32 && !memcmp(line->key, word, (size_t)n)) {
        TokenIds *out = c->out;
        if (out->capacity - out->n < CACHE_IDS)
            out->ids = mem_grow(out->ids, &out->capacity, out->n + CACHE_IDS, (int64_t)sizeof *out->ids);
        memcpy(out->ids + out->n, line->ids, sizeof line->ids); /* a fixed size is quicker than the right one */
        out->n += line->n;
        return true;
    }
    int64_t before = c->out->n;
    if (!encode_word(c, word, n)) return false;
    int64_t got = c->out->n - before;
    if (got > CACHE_IDS) return true;
    line->hash = (uint32_t)(hash >> 32);
    line->bytes = (uint8_t)n;
    line->n = (uint8_t)got;
    memcpy(line->key, word, (size_t)n);
    if (got) memcpy(line->ids, c->out->ids + before, (size_t)got * sizeof *line->ids);
    return true;
}
