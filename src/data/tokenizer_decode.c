/* tokenizer_decode.c - ids back to text: pieces, rewritten by the steps of the decoder, one list of texts to the
 * next. */
#include "data/tokenizer_int.h"

#include <string.h>

/* Texts one behind the other: text i ends at end[i] and starts where the one before ends. */
typedef struct Texts {
    Str bytes;
    int64_t *end; /* owns */
    int64_t n, capacity;
} Texts;

static void texts_end_one(Texts *t) { /* what was added to bytes since the last call is a text */
    t->end = mem_grow(t->end, &t->capacity, t->n + 1, (int64_t)sizeof *t->end);
    t->end[t->n++] = t->bytes.len;
}

static const char *texts_get(const Texts *t, int64_t i, int64_t *n) {
    int64_t from = i ? t->end[i - 1] : 0;
    *n = t->end[i] - from;
    return str_text(&t->bytes) + from;
}

static void texts_free(Texts *t) {
    str_free(&t->bytes);
    mem_free(t->end);
}

/* ---- reading tokenizer.json ---- */

static bool load_strip(Tokenizer *t, TokStep *s, const json_t *component, Err *e) {
    if (!tok_step_text(t, s, component, "content", e)) return false;
    if (!s->text_bytes) return fail(e, ERR_FAIL, "decoder Strip with empty content");
    return tok_json_count(component, "start", &s->strip_left, e) &&
           tok_json_count(component, "stop", &s->strip_right, e);
}

bool tok_decode_load(Tokenizer *t, const json_t *component, Err *e) {
    static const struct {
        const char *name;
        TokStepKind kind;
    } known[] = {{"ByteLevel", DECODE_BYTE_LEVEL},
                 {"Replace", DECODE_REPLACE},
                 {"ByteFallback", DECODE_BYTE_FALLBACK},
                 {"Fuse", DECODE_FUSE},
                 {"Strip", DECODE_STRIP},
                 {"Metaspace", DECODE_METASPACE}};
    const char *type = tok_json_type(component);
    for (int i = 0; i < COUNT_OF(known); i++) {
        if (strcmp(type, known[i].name)) continue;
        TokStep *s = tok_steps_add(&t->decode, known[i].kind, e);
        if (!s) return false;
        if (s->kind == DECODE_REPLACE) return tok_replace_load(t, s, component, e);
        if (s->kind == DECODE_STRIP) return load_strip(t, s, component, e);
        return s->kind != DECODE_METASPACE || tok_metaspace_load(t, s, component, e);
    }
    return fail(e, ERR_FAIL, "decoder \"%s\" is not supported", type);
}

/* ---- the steps ---- */

/* A piece of byte-level characters gives its bytes; any other (an added token) stands for itself. */
static void add_piece_bytes(Str *out, const char *s, int64_t n) {
    int64_t before = out->len;
    for (int64_t i = 0; i < n;) {
        int bytes, byte = tok_char_byte(tok_utf8_decode(s + i, &bytes));
        if (byte < 0) {
            out->len = before;
            str_add_bytes(out, s, n);
            return;
        }
        str_add_char(out, (char)byte);
        i += bytes;
    }
}

static void run_byte_level(Texts *to, const Texts *from) {
    Str raw = {0};
    for (int64_t i = 0; i < from->n; i++) {
        int64_t n;
        const char *s = texts_get(from, i, &n);
        add_piece_bytes(&raw, s, n);
    }
    tok_utf8_repair(&to->bytes, str_text(&raw), raw.len);
    texts_end_one(to);
    str_free(&raw);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_byte_piece(const char *s, int64_t n, char *byte) {
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return false;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    if (high < 0 || low < 0) return false;
    *byte = (char)(high << 4 | low);
    return true;
}

/* A run of bytes is one text when it is UTF-8, and otherwise as many U+FFFD as it has bytes. */
static void end_byte_run(Texts *to, Str *run) {
    bool valid = true;
    for (int64_t i = 0; i < run->len && valid;) i += tok_utf8_check(run->data + i, run->len - i, &valid);
    if (valid && run->len) {
        str_add_bytes(&to->bytes, run->data, run->len);
        texts_end_one(to);
    }
    for (int64_t i = 0; i < run->len && !valid; i++) {
        str_add(&to->bytes, "\xef\xbf\xbd");
        texts_end_one(to);
    }
    str_clear(run);
}

static void run_byte_fallback(Texts *to, const Texts *from) {
    Str run = {0};
    for (int64_t i = 0; i < from->n; i++) {
        int64_t n;
        char byte;
        const char *s = texts_get(from, i, &n);
        if (is_byte_piece(s, n, &byte)) {
            str_add_char(&run, byte);
            continue;
        }
        end_byte_run(to, &run);
        str_add_bytes(&to->bytes, s, n);
        texts_end_one(to);
    }
    end_byte_run(to, &run);
    str_free(&run);
}

static void run_strip(Texts *to, const TokStep *step, const char *s, int64_t n) {
    int64_t m = step->text_bytes;
    const char *all = s;
    int64_t all_bytes = n;
    for (int64_t i = 0; i < step->strip_left && n >= m && !memcmp(s, step->text, (size_t)m); i++) {
        s += m;
        n -= m;
    }
    int64_t right = 0; /* counted on the whole text, as the left side is */
    while (right < step->strip_right && (right + 1) * m <= all_bytes &&
           !memcmp(all + all_bytes - (right + 1) * m, step->text, (size_t)m))
        right++;
    str_add_bytes(&to->bytes, s, MAX2(n - right * m, 0));
    texts_end_one(to);
}

/* Marks become spaces; in the first text they go, because encoding put one there. */
static void run_metaspace(Texts *to, const TokStep *step, const char *s, int64_t n, bool first) {
    while (n > 0) {
        const char *mark = memmem(s, (size_t)n, step->text, (size_t)step->text_bytes);
        int64_t plain = mark ? mark - s : n;
        str_add_bytes(&to->bytes, s, plain);
        if (mark && !(first && step->prepend != PREPEND_NEVER)) str_add_char(&to->bytes, ' ');
        s += plain + (mark ? step->text_bytes : 0);
        n -= plain + (mark ? step->text_bytes : 0);
    }
    texts_end_one(to);
}

static bool run_each(Texts *to, const Texts *from, const TokStep *step, TokMatch *match, Err *e) {
    for (int64_t i = 0; i < from->n; i++) {
        int64_t n;
        const char *s = texts_get(from, i, &n);
        if (step->kind == DECODE_STRIP) {
            run_strip(to, step, s, n);
        } else if (step->kind == DECODE_METASPACE) {
            run_metaspace(to, step, s, n, i == 0);
        } else {
            if (!tok_pattern_replace(step, match, &to->bytes, s, n, e)) return false;
            texts_end_one(to);
        }
    }
    return true;
}

static bool run_step(Texts *to, const Texts *from, const TokStep *step, TokMatch *match, Err *e) {
    switch (step->kind) {
        case DECODE_BYTE_LEVEL:
            run_byte_level(to, from);
            return true;
        case DECODE_BYTE_FALLBACK:
            run_byte_fallback(to, from);
            return true;
        case DECODE_FUSE:
            str_add_bytes(&to->bytes, str_text(&from->bytes), from->bytes.len);
            texts_end_one(to);
            return true;
        default:
            return run_each(to, from, step, match, e);
    }
}

bool tokenizer_is_special(const Tokenizer *t, int32_t id) {
    return t->special_bits[id / 8] >> id % 8 & 1;
}

/* The text that decoding starts from. */
static const char *piece_shown(const Tokenizer *t, int32_t id) {
    for (int32_t i = 0; i < t->n_added && t->n_renamed; i++)
        if (t->added[i].id == id) return t->added[i].sought;
    return tok_vocab_piece(&t->vocab, id);
}

static bool add_pieces(const Tokenizer *t, Texts *to, const int32_t *ids, int64_t n, bool skip_special, Err *e) {
    for (int64_t i = 0; i < n; i++) {
        const char *piece = piece_shown(t, ids[i]);
        if (!piece)
            return fail(e, ERR_FAIL, "token id %d (number %lld of %lld) is not in the vocabulary of %d",
                        (int)ids[i], (long long)i, (long long)n, (int)t->vocab.n);
        if (skip_special && tokenizer_is_special(t, ids[i])) continue;
        if (!t->has_decoder && to->n) str_add_char(&to->bytes, ' '); /* pieces side by side */
        str_add(&to->bytes, piece);
        texts_end_one(to);
    }
    return true;
}

bool tokenizer_decode(const Tokenizer *t, Str *out, const int32_t *ids, int64_t n, bool skip_special, Err *e) {
    Texts from = {0};
    TokMatch match = {.data = tok_match_data_new(), .newer = true};
    bool ok = add_pieces(t, &from, ids, n, skip_special, e);
    for (int i = 0; i < t->decode.n && ok; i++) {
        Texts to = {0};
        ok = run_step(&to, &from, &t->decode.step[i], &match, e);
        texts_free(&from);
        from = to;
    }
    if (ok) str_add_bytes(out, str_text(&from.bytes), from.bytes.len);
    texts_free(&from);
    pcre2_match_data_free(match.data);
    return ok;
}
