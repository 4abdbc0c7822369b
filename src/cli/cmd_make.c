/* cmd_make.c - snug init, convert, merge: folders that are made, not trained. */
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/share.h"
#include "store/folder.h"
#include "store/hf.h"
#include "store/llama2c.h"
#include "weights/weights.h"

/* Heap for each byte of a llama2.c vocabulary, which becomes a tree of JSON and then text. */
enum { VOCABULARY_SHARE = 24 };
enum { READING_SHARE = 2 }; /* the same of a tokenizer.json, for each byte of what is kept of it (as in tokenize) */

bool setup_check_out(const Options *o, Err *e) { /* nothing of somebody's is replaced without being asked */
    const char *out = opt_text(o, OPT_OUT);
    if (!file_exists(out) || opt_flag(o, OPT_OVERWRITE)) return folder_check(out, e);
    char **names;
    int64_t n;
    if (!file_list(out, &names, &n, e)) return false;
    file_list_free(names, n);
    return n == 0 || fail(e, ERR_FAIL, "--out %s: is not empty. Choose another, or give --overwrite", out);
}

bool setup_check_room(const Options *o, int64_t bytes, Err *e) {
    const char *out = opt_text(o, OPT_OUT);
    int64_t has = file_free_bytes(out);
    if (has < 0 || bytes <= has) return true;
    return fail(e, ERR_BUDGET,
                "does not fit the disk: the weights take %s bytes (%s) in %s, %s are free there, %s (%s bytes) are "
                "missing. Nothing was loaded or written",
                units_count(bytes).s, units_bytes(bytes).s, out, units_bytes(has).s, units_bytes(bytes - has).s,
                units_count(bytes - has).s);
}

static int64_t config_bytes(const ModelConfig *c) { return format_bytes(c->dtype, 1, config_parameters(c)); }

/* --tokenizer of init, found by name too: something must be there to be copied, and the model know all of its ids.
 * bytes: the most that reading it took. */
static bool check_tokenizer(const Options *o, const ModelConfig *c, int64_t *bytes, Err *e) {
    char own[SHARE_PATH];
    int files = 0;
    const char *folder = share_find(own, "models", opt_text(o, OPT_TOKENIZER));
    Tokenizer *t;
    hf_side_bytes(folder, &files);
    if (!files)
        return fail(e, ERR_FAIL, "--tokenizer %s: is no folder with a tokenizer.json", opt_text(o, OPT_TOKENIZER));
    if (!tokenizer_open(&t, folder, e)) return false;
    int64_t ids = tokenizer_vocab_size(t);
    *bytes = READING_SHARE * tokenizer_bytes(t);
    tokenizer_close(t);
    return ids <= c->vocab ||
           fail(e, ERR_FAIL,
                "--tokenizer %s: has %lld ids, and the model's vocabulary has %lld. Give --set vocab_size=%lld, or "
                "the tokenizer that belongs to the model",
                opt_text(o, OPT_TOKENIZER), (long long)ids, (long long)c->vocab, (long long)ids);
}

/* The last words, and with --json the last line. */
static bool finish(const Options *o, const ModelConfig *c, int64_t planned_bytes, Err *e) {
    json_t *result = json_pack("{s:s, s:I, s:s}", "out", opt_text(o, OPT_OUT), "parameters",
                               (json_int_t)config_parameters(c), "dtype", format_name(c->dtype));
    return peak_finish(result, planned_bytes, o, e);
}

bool cmd_init(const Options *o, Err *e) {
    ModelFiles m;
    const char *const *set;
    if (!setup_check_out(o, e) || !setup_model(&m, o, e)) return false;
    m.config.quant = QUANT_NONE; /* what is drawn is not quantised */
    int n = opt_list(o, OPT_SET, &set);
    if (n && !config_set(&m.config, set, opt_list_origins(o, OPT_SET), n, e)) return false;
    if (opt_is(o, OPT_DTYPE, "fp32")) m.config.dtype = FMT_F32;
    if (opt_is(o, OPT_DTYPE, "fp16")) m.config.dtype = FMT_F16;
    if (opt_is(o, OPT_DTYPE, "bf16")) m.config.dtype = FMT_BF16;
    FolderOut f;
    int64_t heap, words = 0;
    if (opt_given(o, OPT_TOKENIZER) && !check_tokenizer(o, &m.config, &words, e)) return false;
    if (!weights_make_bytes(&heap, &m.config, NULL, e) || !setup_check_room(o, config_bytes(&m.config), e) ||
        !folder_begin(&f, opt_text(o, OPT_OUT), e))
        return false;
    bool ok =
        weights_write_config(&m.config, f.temporary, e) &&
        weights_write_random(&m.config, f.temporary, (uint64_t)opt_int(o, OPT_SEED), setup_threads(o), e);
    char own[SHARE_PATH];
    if (ok && opt_given(o, OPT_TOKENIZER))
        ok = hf_copy_side_files(share_find(own, "models", opt_text(o, OPT_TOKENIZER)), f.temporary, e);
    else if (ok && m.has_folder) ok = hf_copy_side_files(m.folder, f.temporary, e);
    if (!folder_end(&f, ok, e)) return false;
    log_line("%s: %s random parameters in %s", opt_text(o, OPT_OUT), units_count(config_parameters(&m.config)).s,
             format_name(m.config.dtype));
    return finish(o, &m.config, process_runtime_bytes(setup_threads(o)) + heap + words, e);
}

/* Gates and --set values; the sizes that the dense model's weights have stay. */
static bool set_sparse(ModelConfig *c, const Options *o, Err *e) {
    const char *const *set;
    int n = opt_list(o, OPT_SET, &set);
    ModelConfig dense = *c;
    if (opt_given(o, OPT_GATES) && !config_gates(c, opt_text(o, OPT_GATES), e)) return false;
    if (n && !config_set(c, set, opt_list_origins(o, OPT_SET), n, e)) return false;
    return config_same_sizes(c, &dense) ||
           fail(e, ERR_USAGE,
                "--set %s: the weights of %s are kept as they are, so its sizes and number of layers cannot "
                "change; what can are the values of indexer, gates, k_base, k_min, k_max, sparse_layers",
                opt_text(o, OPT_SET), c->name);
}

/* A dense model's folder as one of type gsa. */
static bool convert_dense(const Options *o, Err *e) {
    const char *from = o->positional[0];
    ModelFiles m;
    FolderOut f;
    int64_t heap, drawn = 0;
    if (!setup_check_out(o, e) || !setup_model_named(&m, "convert", from, e)) return false;
    if (!m.has_folder)
        return fail(e, ERR_FAIL,
                    "convert %s: is a preset without weights; name a folder with config.json and *.safetensors", from);
    if (!config_make_sparse(&m.config, e) || !set_sparse(&m.config, o, e) ||
        !weights_make_bytes(&heap, &m.config, NULL, e) || !setup_check_room(o, st_bytes_of(m.folder), e) ||
        !folder_begin(&f, opt_text(o, OPT_OUT), e))
        return false;
    bool ok = weights_write_config(&m.config, f.temporary, e) &&
              weights_complete(&m.config, m.folder, f.temporary, (uint64_t)opt_int(o, OPT_SEED), 1, &drawn, e) &&
              hf_copy_side_files(m.folder, f.temporary, e);
    if (!folder_end(&f, ok, e)) return false;
    log_line("%s: %s parameters, %lld tensors drawn, the others from %s", opt_text(o, OPT_OUT),
             units_count(config_parameters(&m.config)).s, (long long)drawn, from);
    return finish(o, &m.config, process_runtime_bytes(1) + heap, e);
}

bool cmd_convert(const Options *o, Err *e) {
    if (o->n_positional == 1 && opt_is(o, OPT_FROM, "dense")) return convert_dense(o, e);
    if (o->n_positional != 1) return fail(e, ERR_USAGE, "convert: name one file to read, such as stories260K.bin");
    const char *tokenizer = opt_text(o, OPT_TOKENIZER);
    int64_t vocab, bytes, heap = 0, words = 0;
    if (!setup_check_out(o, e) || !llama2c_check(o->positional[0], &vocab, e) ||
        (tokenizer && !(tokenizer_write_llama2c(tokenizer, vocab, NULL, e) && file_size(tokenizer, &words, e))))
        return false;
    FolderOut f;
    if (!file_size(o->positional[0], &bytes, e) || !setup_check_room(o, bytes, e) || /* fp32 there and here */
        !folder_begin(&f, opt_text(o, OPT_OUT), e))
        return false;
    ModelConfig c = {0};
    bool ok = llama2c_convert(o->positional[0], f.temporary, e) && config_from_file(&c, f.temporary, e) &&
              weights_make_bytes(&heap, &c, NULL, e);
    if (ok && tokenizer) ok = tokenizer_write_llama2c(tokenizer, c.vocab, f.temporary, e);
    if (!folder_end(&f, ok, e)) return false;
    log_line("%s: %s parameters from %s", opt_text(o, OPT_OUT), units_count(config_parameters(&c)).s, o->positional[0]);
    return finish(o, &c, process_runtime_bytes(1) + heap + VOCABULARY_SHARE * words, e);
}

bool cmd_merge(const Options *o, Err *e) {
    ModelFiles m;
    if (!setup_check_out(o, e) || !setup_model(&m, o, e)) return false;
    if (!setup_need_weights(&m, o, e)) return false;
    if (m.config.quant != QUANT_NONE)
        return fail(e, ERR_FAIL, "--model %s: is quantised; merge into the model before it was",
                    opt_text(o, OPT_MODEL));
    FolderOut f;
    int64_t heap;
    if (!weights_check_merge(m.folder, opt_text(o, OPT_ADAPTER), e) ||
        !weights_make_bytes(&heap, &m.config, opt_text(o, OPT_ADAPTER), e) ||
        !setup_check_room(o, st_bytes_of(m.folder), e) || !folder_begin(&f, opt_text(o, OPT_OUT), e))
        return false;
    bool ok = file_copy(file_in(m.folder, "config.json").s, file_in(f.temporary, "config.json").s, e) &&
              hf_copy_side_files(m.folder, f.temporary, e) &&
              weights_merge(m.folder, opt_text(o, OPT_ADAPTER), f.temporary, setup_threads(o), e);
    if (!folder_end(&f, ok, e)) return false;
    log_line("%s: %s with %s merged in", opt_text(o, OPT_OUT), m.folder, opt_text(o, OPT_ADAPTER));
    return finish(o, &m.config, process_runtime_bytes(setup_threads(o)) + heap, e);
}
