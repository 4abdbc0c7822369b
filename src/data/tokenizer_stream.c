/* tokenizer_stream.c - up to where text that goes on can be encoded already, so that the ids are those of the
 * whole.
 *
 * Three rules keep them so.
 *   T1  A part ends where no added token can stand across (cut_place), and before a character that normalisation
 *       leaves alone whatever stands before it.
 *   T2  Of its last gap only words are given out whose end was decided without looking at the end of the part:
 *       PCRE2's hard partial matching says so. The pattern looks at nothing before a word, so it goes on from there
 *       as it would have.
 *   T3  What is left of the gap stands in front of the next part, normalised once already, and is not searched for
 *       added tokens again.
 * Tokenizers for which one of them cannot be kept are not streamed: all of the text is held until it ends. */
#include <string.h>

#include "data/tokenizer_int.h"

#ifdef FUZZING
enum { PART_BYTES = 24 }; /* parts then end in every place */
#else
enum { PART_BYTES = 1 << 16 }; /* held before words are given out */
#endif

struct TokenStream {
    const Tokenizer *t; /* keeps */
    TokCall call;
    Str text;           /* valid UTF-8: what is left, then what came since */
    int64_t settled;    /* bytes of what is left */
    int64_t wait_bytes; /* nothing is tried before there are so many */
    bool begun, open;   /* open: the gap that was left goes on, whether something is left of it or not */
    char tail[4];       /* the beginning of a character */
    int n_tail;
    int64_t most_bytes;
};

void tok_stream_prepare(Tokenizer *t) {
    t->stream_step = tok_split_stream_step(t);
    if (!tok_normal_streams(t) || (t->normal.n && t->normal_trie.n)) t->stream_step = -1;
    for (int32_t i = 0; i < t->n_added; i++) {
        const TokAdded *a = &t->added[i];
        if (a->single_word || a->lstrip || a->rstrip) t->stream_step = -1; /* these look at what is around them */
    }
}

bool token_stream_is_bounded(const Tokenizer *t) { return t->stream_step >= 0; }

TokenStream *token_stream_open(const Tokenizer *t, int flags) {
    TokenStream *s = MEM_NEW(TokenStream, 1);
    s->t = t;
    s->wait_bytes = PART_BYTES;
    tok_call_begin(&s->call, t, NULL, INT64_MAX / 64, flags, NULL);
    return s;
}

void token_stream_close(TokenStream *s) {
    if (!s) return;
    tok_call_end(&s->call);
    str_free(&s->text);
    mem_free(s);
}

void token_stream_limit(TokenStream *s, int64_t bytes) { s->call.word_limit = bytes; }

void token_stream_reset(TokenStream *s) {
    str_clear(&s->text);
    s->settled = 0;
    s->wait_bytes = PART_BYTES;
    s->begun = s->open = false;
    s->n_tail = 0;
}

/* ---- where a part may end ---- */

/* Whether an added token could stand across `at`, as far as its bytes are known. */
static bool is_inside_added(const TokenStream *s, int64_t at) {
    const char *text = s->text.data;
    for (int32_t i = 0; i < s->t->n_added; i++) {
        const TokAdded *a = &s->t->added[i];
        for (int64_t k = 1; k < a->sought_bytes && k <= at - s->settled; k++) {
            int64_t known = MIN2(a->sought_bytes, s->text.len - at + k);
            if (text[at - k] == a->sought[0] && !memcmp(text + at - k, a->sought, (size_t)known)) return true;
        }
    }
    return false;
}

/* The last place where a part may end (T1); s->settled: there is none. */
static int64_t cut_place(const TokenStream *s) {
    for (int64_t at = s->text.len - 1; at > s->settled; at--) {
        int bytes;
        if ((s->text.data[at] & 0xc0) == 0x80) continue;
        if (tok_normal_cuts(s->t, tok_utf8_decode(s->text.data + at, &bytes)) && !is_inside_added(s, at)) return at;
    }
    return s->settled;
}

/* ---- encoding ---- */

static void keep_left(TokenStream *s, int64_t end) {
    TokCall *c = &s->call;
    int64_t rest = s->text.len - end;
    Str *text = &s->text;
    bool in_place = c->left_bytes && c->left >= text->data && c->left < text->data + text->len;
    if (!c->left_bytes || in_place) {
        if (in_place) memmove(text->data, c->left, (size_t)c->left_bytes);
        memmove(text->data + c->left_bytes, text->data + end, (size_t)rest);
    } else { /* in scratch of the call, and of any length */
        Str joined = {0};
        str_add_bytes(&joined, c->left, c->left_bytes);
        str_add_bytes(&joined, text->data + end, rest);
        str_free(text);
        *text = joined;
    }
    text->len = c->left_bytes + rest;
    s->settled = c->left_bytes;
    s->open = c->left_open;
    s->wait_bytes = MAX2(PART_BYTES, 2 * text->len); /* a long word is not looked through again for every piece */
}

static void count_bytes(TokenStream *s) {
    const TokCall *c = &s->call;
    int64_t held = s->text.capacity + c->normal[0].capacity + c->normal[1].capacity + c->code_points.capacity;
    for (int i = 0; i < TOK_STEPS_MAX; i++) held += c->split_text[i].capacity;
    held += c->largest_word * TOK_WORD_COST;
    s->most_bytes = MAX2(s->most_bytes, held);
}

/* Encodes the first `end` bytes; more: text follows. */
static bool encode_part(TokenStream *s, TokenIds *out, int64_t end, bool more, Err *e) {
    TokCall *c = &s->call;
    c->out = out;
    c->e = e;
    c->open_end = more ? s->text.data + end : NULL;
    c->split_end = NULL;
    c->settled = s->settled;
    c->continues = s->open;
    c->left = NULL;
    c->left_bytes = 0;
    c->left_open = false;
    bool ok = tok_encode_gaps(c, str_text(&s->text), end, !s->begun);
    s->begun = true;
    count_bytes(s);
    if (ok) keep_left(s, end);
    return ok;
}

/* Adds a piece; what is not UTF-8 is replaced, a character that is cut at the end waits for the rest of it. */
static void add_text(TokenStream *s, const char *text, int64_t bytes, bool last) {
    if (!s->n_tail && tok_utf8_valid(text, bytes)) {
        str_add_bytes(&s->text, text, bytes);
        return;
    }
    Str piece = {0};
    str_add_bytes(&piece, s->tail, s->n_tail);
    str_add_bytes(&piece, text, bytes);
    s->n_tail = 0;
    for (int back = 1; back <= 3 && back <= piece.len && !last; back++) {
        unsigned char first = (unsigned char)piece.data[piece.len - back];
        if ((first & 0xc0) == 0x80) continue;
        int need = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
        if (need > back) s->n_tail = back;
        break;
    }
    piece.len -= s->n_tail;
    memcpy(s->tail, piece.data + piece.len, (size_t)s->n_tail);
    tok_utf8_repair(&s->text, piece.data, piece.len);
    str_free(&piece);
}

bool token_stream_put(TokenStream *s, TokenIds *out, const char *text, int64_t bytes, Err *e) {
    while (bytes > 0) {
        int64_t n = MIN2(bytes, PART_BYTES);
        while (n < bytes && n > PART_BYTES - 4 && (text[n] & 0xc0) == 0x80) n--;
        add_text(s, text, n, false);
        text += n;
        bytes -= n;
        if (!token_stream_is_bounded(s->t) || s->text.len < s->wait_bytes) continue;
        int64_t end = cut_place(s);
        if (end > s->settled && !encode_part(s, out, end, true, e)) return false;
    }
    return true;
}

bool token_stream_end(TokenStream *s, TokenIds *out, Err *e) {
    add_text(s, "", 0, true);
    bool ok = !s->text.len || encode_part(s, out, s->text.len, false, e);
    token_stream_reset(s);
    if (s->text.capacity > 4 * PART_BYTES) str_free(&s->text);
    return ok;
}

int64_t token_stream_bytes(const TokenStream *s) { return s->most_bytes; }
