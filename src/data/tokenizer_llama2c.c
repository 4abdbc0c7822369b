/* tokenizer_llama2c.c - llama2.c's tokenizer .bin, written anew as tokenizer.json.
 *
 * The file: int32 longest piece, then per token float32 score, int32 length, bytes. Ids 0, 1, 2 are <unk>, <s>, </s>,
 * 3..258 the bytes, and a space is written ' ' where tokenizer.json has U+2581.
 *
 * It has scores where tokenizer.json has a list of merges: of all neighbours whose joint text is a piece, the piece
 * with the best score is made. So every way to cut a piece into two pieces is a merge, and the list runs from the
 * best score down. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/units.h"
#include "data/tokenizer_int.h"

enum { FIRST_BYTE = 3, FIRST_PIECE = 3 + 256, LONGEST_PIECE = 1024 };
static const char mark[] = "\xe2\x96\x81";

typedef struct Piece {
    float score;
    int32_t id;
    const char *text; /* in the arena */
} Piece;

/* The text of one token as tokenizer.json has it. */
static const char *piece_text(Arena *a, int32_t id, const char *bytes, int64_t n) {
    static const char *const control[] = {"<unk>", "<s>", "</s>"};
    if (id < FIRST_BYTE) return control[id]; /* the file has them with newlines around, for show */
    Str s = {0};
    for (int64_t i = 0; i < n; i++)
        if (bytes[i] == ' ')
            str_add(&s, mark);
        else
            str_add_char(&s, bytes[i]);
    const char *text = arena_strdup(a, str_text(&s));
    str_free(&s);
    return text;
}

static bool check_piece(const Piece *p, int64_t n, Err *e) {
    bool valid = n > 0 && strlen(p->text) >= (size_t)(p->id < FIRST_BYTE ? 0 : n);
    for (int64_t i = 0, end = (int64_t)strlen(p->text); i < end && valid;)
        i += tok_utf8_check(p->text + i, end - i, &valid);
    if (!valid || !isfinite(p->score))
        return fail(e, ERR_FAIL, "token %d is empty, not UTF-8, or has no finite score", (int)p->id);
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)(p->id - FIRST_BYTE) & 0xff);
    if (p->id >= FIRST_BYTE && p->id < FIRST_PIECE && strcmp(p->text, name))
        return fail(e, ERR_FAIL, "token %d should be %s and is \"%.20s\": is this llama2.c's tokenizer?", (int)p->id, name,
                    p->text);
    return true;
}

static bool read_pieces(Arena *a, Piece **pieces, int64_t *n, const Str *file, int64_t vocab_size, Err *e) {
    int64_t at = 4, capacity = 0;
    for (*n = 0; at < file->len && (vocab_size <= 0 || *n < vocab_size); ++*n) {
        Piece p = {.id = (int32_t)*n};
        int32_t bytes;
        if (file->len - at < 8) return fail(e, ERR_FAIL, "token %lld is cut short", (long long)*n);
        memcpy(&p.score, file->data + at, 4);
        memcpy(&bytes, file->data + at + 4, 4);
        at += 8;
        if (bytes < 0 || bytes > LONGEST_PIECE || bytes > file->len - at)
            return fail(e, ERR_FAIL, "token %lld says it has %d bytes, %lld are left", (long long)*n, (int)bytes,
                        (long long)(file->len - at));
        p.text = piece_text(a, p.id, file->data + at, bytes);
        if (!check_piece(&p, bytes, e)) return false;
        at += bytes;
        *pieces = mem_grow(*pieces, &capacity, *n + 1, (int64_t)sizeof **pieces);
        (*pieces)[*n] = p;
    }
    if (*n < FIRST_PIECE || (vocab_size > 0 && *n < vocab_size) || at != file->len)
        return fail(e, ERR_FAIL, "it holds %s%lld tokens; the vocabulary should have %lld", at < file->len ? "more than " : "",
                    (long long)*n, (long long)MAX2(vocab_size, FIRST_PIECE));
    return true;
}

static int by_score(const void *a, const void *b) {
    const Piece *p = a, *q = b;
    if (p->score != q->score) return p->score > q->score ? -1 : 1;
    return p->id < q->id ? -1 : 1;
}

static bool is_mergeable(const json_t *vocab, const char *text) {
    const json_t *id = json_object_get(vocab, text);
    return id && json_integer_value(id) >= FIRST_PIECE;
}

/* Every cut of the piece into two pieces. */
static void add_merges(json_t *merges, const json_t *vocab, const Piece *p) {
    char left[4 * LONGEST_PIECE];
    for (const char *right = p->text; *right;) {
        int bytes;
        tok_utf8_decode(right, &bytes);
        right += bytes;
        size_t n = (size_t)(right - p->text);
        memcpy(left, p->text, n);
        left[n] = 0;
        if (*right && is_mergeable(vocab, left) && is_mergeable(vocab, right))
            json_array_append_new(merges, json_sprintf("%s %s", left, right));
    }
}

static json_t *added_token(const Piece *p) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)p->id, "content", p->text, "single_word", 0,
                     "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

/* Everything but the model: a space before the text and for every space the mark, <s> in front, and the way back. */
static json_t *describe(const Piece *pieces) {
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:[o, o, o],"
        " s:{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}, s:n,"
        " s:{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}],"
        "    s:{s:{s:s, s:[i], s:[s]}}},"
        " s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}}",
        "version", "1.0", "truncation", "padding", "added_tokens", added_token(&pieces[0]), added_token(&pieces[1]),
        added_token(&pieces[2]),
        "normalizer", "type", "Sequence", "normalizers", "type", "Prepend", "prepend", mark, "type", "Replace", "pattern",
        "String", " ", "content", mark, "pre_tokenizer",
        "post_processor", "type", "TemplateProcessing", "single", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence",
        "id", "A", "type_id", 0, "pair", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence", "id", "A", "type_id", 0,
        "SpecialToken", "id", "<s>", "type_id", 1, "Sequence", "id", "B", "type_id", 1, "special_tokens", "<s>", "id",
        "<s>", "ids", 1, "tokens", "<s>",
        "decoder", "type", "Sequence", "decoders", "type", "Replace", "pattern", "String", mark, "content", " ", "type",
        "ByteFallback", "type", "Fuse", "type", "Strip", "content", " ", "start", 1, "stop", 0);
    CHECK(root);
    return root;
}

static bool build_json(json_t **root, Piece *pieces, int64_t n, Err *e) {
    json_t *vocab = json_object(), *merges = json_array();
    *root = describe(pieces);
    json_object_set_new(*root, "model", json_pack("{s:s, s:n, s:s, s:n, s:n, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                                                  "unk_token", "<unk>", "continuing_subword_prefix", "end_of_word_suffix",
                                                  "fuse_unk", 1, "byte_fallback", 1, "vocab", vocab, "merges", merges));
    for (int64_t i = 0; i < n; i++) {
        if (json_object_get(vocab, pieces[i].text))
            return fail(e, ERR_FAIL, "the piece \"%.60s\" is there twice", pieces[i].text);
        json_object_set_new(vocab, pieces[i].text, json_integer(pieces[i].id));
    }
    qsort(pieces, (size_t)n, sizeof *pieces, by_score);
    for (int64_t i = 0; i < n; i++)
        if (pieces[i].id >= FIRST_PIECE) add_merges(merges, vocab, &pieces[i]);
    return true;
}

static int add_to_str(const char *bytes, size_t n, void *str) {
    str_add_bytes(str, bytes, (int64_t)n);
    return 0;
}

static bool write_json(const char *folder, const char *name, const json_t *root, Err *e) {
    Str text = {0}, path = {0};
    str_addf(&path, "%s/%s", folder, name);
    json_dump_callback(root, add_to_str, &text, JSON_INDENT(1));
    str_add_char(&text, '\n');
    bool ok = file_write_all(path.data, text.data, text.len, e);
    str_free(&path);
    str_free(&text);
    return ok;
}

static bool write_config(const char *folder, Err *e) {
    json_t *config = json_pack("{s:b, s:b, s:s, s:b, s:s, s:s, s:s}", "add_bos_token", 1, "add_eos_token", 0, "bos_token",
                               "<s>", "clean_up_tokenization_spaces", 0, "eos_token", "</s>", "tokenizer_class",
                               "PreTrainedTokenizerFast", "unk_token", "<unk>");
    CHECK(config);
    bool ok = write_json(folder, "tokenizer_config.json", config, e);
    json_decref(config);
    return ok;
}

bool tokenizer_write_llama2c(const char *tok_bin, int64_t vocab_size, const char *out_folder, Err *e) {
    Str file = {0};
    Arena arena;
    Piece *pieces = NULL;
    int64_t n = 0;
    json_t *root = NULL;
    arena_init(&arena, "llama2.c tokenizer");
    bool ok = file_read(tok_bin, &file, 64 * MIB, e);
    if (ok)
        ok = (read_pieces(&arena, &pieces, &n, &file, vocab_size, e) && build_json(&root, pieces, n, e)) ||
             fail_within(e, "%s", tok_bin);
    ok = ok && file_make_dirs(out_folder, e) && write_json(out_folder, "tokenizer.json", root, e) &&
         write_config(out_folder, e);
    json_decref(root);
    mem_free(pieces);
    arena_free(&arena);
    str_free(&file);
    return ok;
}
