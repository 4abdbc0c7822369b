/* tokenizer_llama2c.c - llama2.c's tokenizer .bin, written anew as tokenizer.json.
 *
 * The file: int32 longest piece, then per token float32 score, int32 length, bytes. Ids 0, 1, 2 are <unk>, <s>,
 * </s>, 3..258 the bytes, and a space is written ' ' where tokenizer.json has U+2581.
 *
 * It has scores where tokenizer.json has a list of merges: of all neighbours whose joint text is a piece, the
 * piece with the best score is made. So every way to cut a piece into two pieces is a merge, and the list runs
 * from the best score down. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
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
    int64_t bytes = (int64_t)strlen(p->text);
    bool whole = p->id < FIRST_BYTE || bytes >= n; /* no zero among its bytes */
    if (n == 0 || !whole || !tok_utf8_valid(p->text, bytes) || !isfinite(p->score))
        return fail(e, ERR_FAIL, "token %d is empty, not UTF-8, or has no finite score", (int)p->id);
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)(p->id - FIRST_BYTE) & 0xff);
    if (p->id >= FIRST_BYTE && p->id < FIRST_PIECE && strcmp(p->text, name))
        return fail(e, ERR_FAIL, "token %d should be %s and is \"%.20s\": is this llama2.c's tokenizer?",
                    (int)p->id, name, p->text);
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
        return fail(e, ERR_FAIL, "it holds %s%lld tokens; the vocabulary should have %lld",
                    at < file->len ? "more than " : "", (long long)*n, (long long)MAX2(vocab_size, FIRST_PIECE));
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

/* Everything but vocabulary and merges: a space before the text, the mark for every space, <s> in front, bytes for
 * characters that are no piece; and the way back. */
static const char tokenizer_frame[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,"
    " \"added_tokens\": ["
    "  {\"id\": 0, \"content\": \"<unk>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
    "   \"normalized\": false, \"special\": true},"
    "  {\"id\": 1, \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
    "   \"normalized\": false, \"special\": true},"
    "  {\"id\": 2, \"content\": \"</s>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
    "   \"normalized\": false, \"special\": true}],"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["
    "  {\"type\": \"Prepend\", \"prepend\": \"\\u2581\"},"
    "  {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}]},"
    " \"pre_tokenizer\": null,"
    " \"post_processor\": {\"type\": \"TemplateProcessing\","
    "  \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
    "\"type_id\": 0}}],"
    "  \"pair\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
    "\"type_id\": 0}},"
    "   {\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 1}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],"
    "  \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}},"
    " \"decoder\": {\"type\": \"Sequence\", \"decoders\": ["
    "  {\"type\": \"Replace\", \"pattern\": {\"String\": \"\\u2581\"}, \"content\": \" \"},"
    "  {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
    "  {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\", \"continuing_subword_prefix\": "
    "null,"
    "  \"end_of_word_suffix\": null, \"fuse_unk\": true, \"byte_fallback\": true, \"vocab\": {}, \"merges\": []}}";

static const char config_text[] =
    "{\n \"add_bos_token\": true,\n \"add_eos_token\": false,\n \"bos_token\": \"<s>\",\n"
    " \"clean_up_tokenization_spaces\": false,\n \"eos_token\": \"</s>\",\n"
    " \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n \"unk_token\": \"<unk>\"\n}\n";

static bool build_json(json_t **root, Piece *pieces, int64_t n, Err *e) {
    *root = json_loads(tokenizer_frame, 0, NULL);
    CHECK(*root && pieces);
    const json_t *model = json_object_get(*root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
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

static bool write_files(const char *folder, const json_t *root, Err *e) {
    Str text = {0}, path = {0}, config_path = {0};
    str_addf(&path, "%s/tokenizer.json", folder);
    str_addf(&config_path, "%s/tokenizer_config.json", folder);
    json_print(&text, root, JSON_INDENT(1));
    str_add_char(&text, '\n');
    bool ok = file_make_dirs(folder, e) && file_write_all(path.data, text.data, text.len, e) &&
              file_write_all(config_path.data, config_text, (int64_t)sizeof config_text - 1, e);
    str_free(&text);
    str_free(&path);
    str_free(&config_path);
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
    ok = ok && (!out_folder || write_files(out_folder, root, e));
    json_decref(root);
    mem_free(pieces);
    arena_free(&arena);
    str_free(&file);
    return ok;
}
