/* tokenizer_encode.c - the way from text to ids, in the order that decides the ids:
 * repair, added tokens, normalisation, added tokens again, cutting, merging; then what the post-processor adds. */
#include "data/tokenizer_int.h"

void token_ids_add(TokenIds *t, int32_t id) {
    if (t->n == t->capacity) t->ids = mem_grow(t->ids, &t->capacity, t->n + 1, (int64_t)sizeof *t->ids);
    t->ids[t->n++] = id;
}

void token_ids_free(TokenIds *t) {
    mem_free(t->ids);
    *t = (TokenIds){0};
}

int64_t tokenizer_encoding_bytes(const TokenIds *ids, int64_t text_bytes) {
    enum { TEXT_SHARE = 4 };
    return TEXT_SHARE * text_bytes + ids->capacity * (int64_t)sizeof *ids->ids + ids->word_bytes;
}

void tok_call_begin(TokCall *c, const Tokenizer *t, TokenIds *out, int64_t bytes, int flags, Err *e) {
    *c = (TokCall){.t = t, .out = out, .flags = flags, .e = e};
    c->match = (TokMatch){.data = tok_match_data_new(), .newer = true};
    c->bpe = tok_bpe_new(t, bytes);
}

void tok_call_end(TokCall *c) {
    pcre2_match_data_free(c->match.data);
    tok_bpe_free(c->bpe);
    str_free(&c->repaired);
    str_free(&c->normal[0]);
    str_free(&c->normal[1]);
    str_free(&c->code_points);
    for (int i = 0; i < TOK_STEPS_MAX; i++) str_free(&c->split_text[i]);
}

static bool encode_raw_gap(TokCall *c, const char *text, int64_t n, bool at_start) {
    bool open = c->open_end && text + n == c->open_end;
    int64_t settled = c->settled;
    c->settled = 0;
    if (!tok_normal_run(c, &text, &n)) return false;
    c->split_end = open ? text + n : NULL;
    bool ok = tok_added_scan(c, &c->t->normal_trie, text, n, settled, at_start, tok_split_run);
    c->continues = false;
    return ok;
}

bool tok_encode_gaps(TokCall *c, const char *text, int64_t n, bool at_start) {
    c->match.newer = tok_has_newer(text, n);
    return n == 0 || tok_added_scan(c, &c->t->raw_trie, text, n, c->settled, at_start, encode_raw_gap);
}

bool tokenizer_encode(const Tokenizer *t, TokenIds *out, const char *text, int64_t bytes, int flags, Err *e) {
    int64_t before = out->n;
    TokCall c;
    tok_call_begin(&c, t, out, bytes, flags, e);
    if (!tok_utf8_valid(text, bytes)) {
        tok_utf8_repair(&c.repaired, text, bytes);
        text = c.repaired.data;
        bytes = c.repaired.len;
    }
    bool special = flags & TOKENIZE_ADD_SPECIAL;
    for (int64_t i = 0; i < t->prefix.n && special; i++) token_ids_add(out, t->prefix.ids[i]);
    bool ok = tok_encode_gaps(&c, text, bytes, true);
    for (int64_t i = 0; i < t->suffix.n && special; i++) token_ids_add(out, t->suffix.ids[i]);
    out->word_bytes = MAX2(out->word_bytes, c.largest_word * TOK_WORD_COST);
    tok_call_end(&c);
    if (!ok) out->n = before;
    return ok;
}
