/* tokenizer.c - opens tokenizer.json: which parts it has, which are understood, and what they amount to. */
#include "data/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/units.h"
#include "data/tokenizer_int.h"

static const int64_t file_limit_bytes = 512 * MIB;

/* ---- lists of steps ---- */

TokStep *tok_steps_add(TokSteps *s, TokStepKind kind, Err *e) {
    if (s->n == TOK_STEPS_MAX) {
        fail(e, ERR_FAIL, "a Sequence of more than %d steps is not supported", TOK_STEPS_MAX);
        return NULL;
    }
    s->step[s->n] = (TokStep){.kind = kind};
    return &s->step[s->n++];
}

bool tok_step_text(Tokenizer *t, TokStep *s, const json_t *component, const char *key, Err *e) {
    const char *text;
    if (!tok_json_text(component, key, &text, e)) return false;
    s->text = arena_strdup(&t->arena, text);
    s->text_bytes = (int64_t)strlen(text);
    return true;
}

bool tok_replace_load(Tokenizer *t, TokStep *s, const json_t *component, Err *e) {
    return tok_step_text(t, s, component, "content", e) &&
           tok_pattern_load(&s->pattern, &t->arena, json_object_get(component, "pattern"), e);
}

bool tok_steps_load(Tokenizer *t, const json_t *component, const char *list_key, TokStepLoader *load, Err *e) {
    if (!component || json_is_null(component)) return true;
    if (strcmp(tok_json_type(component), "Sequence")) return load(t, component, e);
    const json_t *list = json_object_get(component, list_key);
    if (!json_is_array(list)) return fail(e, ERR_FAIL, "a Sequence without its list \"%s\"", list_key);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!tok_steps_load(t, json_array_get(list, i), list_key, load, e)) return false;
    return true;
}

/* ---- the model: what is beside vocabulary and merges ---- */

static bool is_blank(const json_t *j) {
    return !j || json_is_null(j) || (json_is_string(j) && json_string_length(j) == 0);
}

static bool check_model(const json_t *model, Err *e) {
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type && strcmp(type, "BPE")) return fail(e, ERR_FAIL, "model type \"%s\" is not supported; BPE is", type);
    static const char *const unsupported[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < COUNT_OF(unsupported); i++)
        if (!is_blank(json_object_get(model, unsupported[i])))
            return fail(e, ERR_FAIL, "model.%s is not supported", unsupported[i]);
    return json_number_value(json_object_get(model, "dropout")) == 0 ||
           fail(e, ERR_FAIL, "model.dropout is not supported: ids would be random");
}

static bool load_model(Tokenizer *t, const json_t *model, Err *e) {
    const json_t *unk = json_object_get(model, "unk_token");
    t->unk_named = unk && !json_is_null(unk);
    if (t->unk_named && !json_is_string(unk)) return fail(e, ERR_FAIL, "model.unk_token is not a string");
    if (t->unk_named) t->unk = tok_vocab_find(&t->vocab, json_string_value(unk), (int64_t)json_string_length(unk));
    return tok_json_bool(model, "byte_fallback", false, &t->byte_fallback, e) &&
           tok_json_bool(model, "fuse_unk", false, &t->fuse_unk, e) &&
           tok_json_bool(model, "ignore_merges", false, &t->ignore_merges, e);
}

/* ---- the post-processor ---- */

static bool add_template_ids(const Tokenizer *t, TokenIds *to, const json_t *template, const json_t *item,
                             Err *e) {
    const char *name = json_string_value(json_object_get(item, "id"));
    const json_t *entry = name ? json_object_get(json_object_get(template, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(entry, "ids");
    if (!json_is_array(ids))
        return fail(e, ERR_FAIL, "TemplateProcessing has no ids for \"%.60s\"", name ? name : "?");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *j = json_array_get(ids, i);
        int64_t id = json_is_integer(j) ? json_integer_value(j) : -1;
        if (id >= t->vocab.n || !tok_vocab_piece(&t->vocab, (int32_t)MAX2(id, -1)))
            return fail(e, ERR_FAIL, "TemplateProcessing adds an id for \"%.60s\" that no token has", name);
        token_ids_add(to, (int32_t)id);
    }
    return true;
}

static bool load_template(Tokenizer *t, const json_t *template, Err *e) {
    const json_t *single = json_object_get(template, "single");
    bool text_seen = false;
    if (t->prefix.n || t->suffix.n) return fail(e, ERR_FAIL, "two TemplateProcessing parts are not supported");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i), *token = json_object_get(part, "SpecialToken");
        if (token) {
            if (!add_template_ids(t, text_seen ? &t->suffix : &t->prefix, template, token, e)) return false;
        } else if (json_object_get(part, "Sequence") && !text_seen) {
            text_seen = true;
        } else {
            return fail(e, ERR_FAIL, "part %d of TemplateProcessing \"single\" is not supported", (int)i);
        }
    }
    return text_seen || fail(e, ERR_FAIL, "TemplateProcessing \"single\" has no place for the text");
}

static bool load_post_processor(Tokenizer *t, const json_t *component, Err *e) {
    const char *type = tok_json_type(component);
    if (!strcmp(type, "TemplateProcessing")) return load_template(t, component, e);
    return !strcmp(type, "ByteLevel") || fail(e, ERR_FAIL, "post-processor \"%s\" is not supported", type);
}

/* ---- files ---- */

/* Reads a small JSON file whole. */
static bool read_config(const char *path, json_t **root, Err *e) {
    Str text = {0};
    json_error_t where;
    bool ok = file_read(path, &text, file_limit_bytes, e);
    *root = ok ? json_loadb(str_text(&text), (size_t)text.len, 0, &where) : NULL;
    str_free(&text);
    if (!ok) return false;
    return *root || fail(e, ERR_FAIL, "%s: line %d: %s. Was the copy cut short?", path, where.line, where.text);
}

static bool load_tokenizer(Tokenizer *t, const json_t *root, TokList vocab, TokList merges, int64_t file_bytes,
                           Err *e) {
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) return fail(e, ERR_FAIL, "it has no \"model\": is this a tokenizer.json?");
    if (!check_model(model, e) || !tok_vocab_load(t, root, vocab, merges, file_bytes, e) ||
        !load_model(t, model, e))
        return false;
    const json_t *decoder = json_object_get(root, "decoder");
    t->has_decoder = decoder && !json_is_null(decoder);
    if (!tok_steps_load(t, json_object_get(root, "normalizer"), "normalizers", tok_normal_load, e) ||
        !tok_steps_load(t, json_object_get(root, "pre_tokenizer"), "pretokenizers", tok_split_load, e) ||
        !tok_steps_load(t, json_object_get(root, "post_processor"), "processors", load_post_processor, e) ||
        !tok_steps_load(t, decoder, "decoders", tok_decode_load, e))
        return false;
    tok_bpe_prepare(t);
    t->special_bits = ARENA_NEW(&t->arena, uint8_t, t->vocab.n / 8 + 1);
    for (int32_t i = 0; i < t->n_added; i++)
        if (t->added[i].special) t->special_bits[t->added[i].id / 8] |= (uint8_t)(1 << t->added[i].id % 8);
    if (!tok_split_finish(t, e) || !tok_added_build(t, e)) return false;
    tok_stream_prepare(t);
    return true;
}

/* bos_token and the like: a string, or {"content": string}. */
static int32_t config_token(const Tokenizer *t, const json_t *config, const char *key) {
    const json_t *j = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(j) ? json_object_get(j, "content") : j);
    return text ? tokenizer_id(t, text) : -1;
}

static bool load_config(Tokenizer *t, const char *path, Err *e) {
    json_t *config;
    if (!file_exists(path)) return true;
    if (!read_config(path, &config, e)) return false;
    t->bos = config_token(t, config, "bos_token");
    t->eos = config_token(t, config, "eos_token");
    t->pad = config_token(t, config, "pad_token");
    json_decref(config);
    return true;
}

static bool load_file(Tokenizer *t, const char *path, Err *e) {
    Str file = {0};
    json_t *root = NULL;
    TokList vocab, merges;
    bool ok = file_read(path, &file, file_limit_bytes, e);
    if (ok)
        ok = (tok_json_read(&root, &vocab, &merges, &file, e) &&
              load_tokenizer(t, root, vocab, merges, file.len, e)) ||
             fail_within(e, "%s", path);
    json_decref(root);
    str_free(&file);
    return ok;
}

bool tokenizer_open(Tokenizer **out, const char *folder_or_file, Err *e) {
    *out = NULL;
    bool folder = file_is_dir(folder_or_file);
    const char *slash = strrchr(folder_or_file, '/');
    int stem = folder ? (int)strlen(folder_or_file) : slash ? (int)(slash - folder_or_file) : 0;
    Str path = {0}, config = {0};
    str_addf(&path, folder ? "%s/tokenizer.json" : "%s", folder_or_file);
    str_addf(&config, "%.*s%stokenizer_config.json", stem, folder_or_file, folder || slash ? "/" : "");
    Tokenizer *t = MEM_NEW(Tokenizer, 1);
    arena_init(&t->arena, "tokenizer");
    t->unk = t->bos = t->eos = t->pad = -1;
    bool ok = load_file(t, path.data, e) && load_config(t, config.data, e);
    str_free(&path);
    str_free(&config);
    if (ok)
        *out = t;
    else
        tokenizer_close(t);
    mem_trim();
    return ok;
}

static void free_patterns(TokSteps *s) {
    for (int i = 0; i < s->n; i++) tok_pattern_free(&s->step[i].pattern);
}

void tokenizer_close(Tokenizer *t) {
    if (!t) return;
    free_patterns(&t->normal);
    free_patterns(&t->split);
    free_patterns(&t->decode);
    token_ids_free(&t->prefix);
    token_ids_free(&t->suffix);
    arena_free(&t->arena);
    mem_free(t);
}

/* ---- questions ---- */

int64_t tokenizer_vocab_size(const Tokenizer *t) {
    return t->vocab.n;
}

int32_t tokenizer_id(const Tokenizer *t, const char *token) {
    for (int32_t i = 0; i < t->n_added; i++)
        if (!strcmp(t->added[i].text, token)) return t->added[i].id;
    return tok_vocab_find(&t->vocab, token, (int64_t)strlen(token));
}

const char *tokenizer_piece(const Tokenizer *t, int32_t id) {
    return tok_vocab_piece(&t->vocab, id);
}

uint64_t tokenizer_identity(const Tokenizer *t) {
    uint64_t h = rng_fold(0x746f6b, (uint64_t)t->vocab.n);
    for (int64_t id = 0; id < t->vocab.n; id++) {
        const char *piece = tok_vocab_piece(&t->vocab, (int32_t)id);
        for (const char *c = piece ? piece : ""; *c; c++) h = rng_fold(h, (unsigned char)*c);
        h = rng_fold(h, (uint64_t)id << 8);
    }
    return h;
}

int32_t tokenizer_bos(const Tokenizer *t) {
    return t->bos;
}
int32_t tokenizer_eos(const Tokenizer *t) {
    return t->eos;
}
int32_t tokenizer_pad(const Tokenizer *t) {
    return t->pad;
}

static int64_t steps_bytes(const TokSteps *s) {
    int64_t bytes = 0;
    for (int i = 0; i < s->n; i++) bytes += tok_pattern_bytes(&s->step[i].pattern);
    return bytes;
}

int64_t tokenizer_bytes(const Tokenizer *t) {
    return (int64_t)sizeof *t + t->arena.used_bytes + steps_bytes(&t->normal) + steps_bytes(&t->split) +
           steps_bytes(&t->decode) + (t->prefix.capacity + t->suffix.capacity) * (int64_t)sizeof(int32_t);
}
