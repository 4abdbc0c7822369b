/* llama2c.c - the layout of llama2.c's legacy model.bin, and how its rotary pairs differ from Hugging Face's.
 *
 * The file: seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len), then fp32 matrices,
 * each kind for all layers in a row. A negative vocab_size says that the classifier is stored apart at the end.
 *
 * llama2.c rotates neighbours (2i, 2i+1) of a head, Hugging Face rotates the halves (i, i + head/2). So row i of
 * the first half is the head's row 2i, row i of the second half its row 2i+1. */
#include "store/llama2c.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/folder.h"
#include "store/jsonfile.h"
#include "store/safetensors.h"

enum { HEADER_WORDS = 7, COPY_BYTES = 1 << 20, NAME_BYTES = 96, MAX_SECTIONS = 14, MAX_LAYERS = 10000 };

typedef struct Shape {
    int64_t dim, hidden, layers, heads, kv_heads, vocab, seq;
    int64_t head_size, kv_dim;
    bool tied; /* the classifier is the embedding */
} Shape;

/* One run of matrices in the file. */
typedef struct Section {
    const char *name;  /* with %lld where the layer goes; NULL: not carried over */
    int64_t copies;    /* layers, or 1 */
    int64_t rows, cols;/* cols 0: a vector */
    bool rotary;       /* rows are to be put from neighbours to halves, head by head */
    int64_t offset;    /* in the file */
} Section;

typedef struct Source {
    int fd;
    const char *path;
    Shape shape;
    Section section[MAX_SECTIONS];
    int n_sections;
    int64_t bytes; /* what the file must have */
} Source;

static int64_t read_word(const unsigned char *p) {
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static bool read_shape(Source *s, Err *e) {
    unsigned char word[4 * HEADER_WORDS];
    if (!file_pread(s->fd, word, sizeof word, 0, s->path, e)) return false;
    int64_t v[HEADER_WORDS];
    for (int i = 0; i < HEADER_WORDS; i++) v[i] = read_word(word + 4 * i);
    Shape *h = &s->shape;
    *h = (Shape){.dim = v[0], .hidden = v[1], .layers = v[2], .heads = v[3], .kv_heads = v[4],
                 .vocab = v[5] < 0 ? -v[5] : v[5], .seq = v[6], .tied = v[5] > 0};
    if (h->dim <= 0 || h->hidden <= 0 || h->layers <= 0 || h->layers > MAX_LAYERS || h->heads <= 0 ||
        h->kv_heads <= 0 || h->vocab <= 0 || h->seq <= 0)
        return fail(e, ERR_FAIL, "%s: its first seven numbers are no model. Is it a legacy llama2.c model.bin?",
                    s->path);
    if (h->dim % h->heads || h->dim / h->heads % 2 || h->heads % h->kv_heads)
        return fail(e, ERR_FAIL, "%s: %lld heads (%lld for keys) do not divide a width of %lld evenly", s->path,
                    (long long)h->heads, (long long)h->kv_heads, (long long)h->dim);
    h->head_size = h->dim / h->heads;
    h->kv_dim = h->head_size * h->kv_heads; /* at most dim */
    return true;
}

static int64_t copy_bytes(const Section *x) { return mem_mul(mem_mul(x->rows, x->cols ? x->cols : 1), 4); }

static bool add_section(Source *s, Section x) {
    CHECK(s->n_sections < MAX_SECTIONS);
    int64_t bytes = mem_mul(copy_bytes(&x), x.copies);
    x.offset = s->bytes;
    s->section[s->n_sections++] = x;
    s->bytes = mem_add(s->bytes, bytes);
    return s->bytes >= 0;
}

/* The order of the file. */
static bool lay_out(Source *s, Err *e) {
    const Shape h = s->shape;
    s->bytes = 4 * HEADER_WORDS;
#define LAYER "model.layers.%lld."
    const Section order[] = {
        {"model.embed_tokens.weight", 1, h.vocab, h.dim, false, 0},
        {LAYER "input_layernorm.weight", h.layers, h.dim, 0, false, 0},
        {LAYER "self_attn.q_proj.weight", h.layers, h.dim, h.dim, true, 0},
        {LAYER "self_attn.k_proj.weight", h.layers, h.kv_dim, h.dim, true, 0},
        {LAYER "self_attn.v_proj.weight", h.layers, h.kv_dim, h.dim, false, 0},
        {LAYER "self_attn.o_proj.weight", h.layers, h.dim, h.dim, false, 0},
        {LAYER "post_attention_layernorm.weight", h.layers, h.dim, 0, false, 0},
        {LAYER "mlp.gate_proj.weight", h.layers, h.hidden, h.dim, false, 0},
        {LAYER "mlp.down_proj.weight", h.layers, h.dim, h.hidden, false, 0},
        {LAYER "mlp.up_proj.weight", h.layers, h.hidden, h.dim, false, 0},
        {"model.norm.weight", 1, h.dim, 0, false, 0},
        {NULL, 2, h.seq, h.head_size / 2, false, 0}, /* cosines and sines of the positions */
        {"lm_head.weight", 1, h.vocab, h.dim, false, 0},
    };
#undef LAYER
    for (int i = 0; i < COUNT_OF(order) - (h.tied ? 1 : 0); i++)
        if (!add_section(s, order[i])) return fail(e, ERR_FAIL, "%s: its sizes are impossible", s->path);
    int64_t found;
    if (!file_size(s->path, &found, e)) return false;
    if (found == s->bytes) return true;
    return fail(e, ERR_FAIL,
                "%s: a model of this shape takes %lld bytes, the file has %lld. Was the copy cut short?", s->path,
                (long long)s->bytes, (long long)found);
}

/* Fills out, when not NULL, with the tensors in the order of the file; gives their number. */
static int64_t declare(const Source *s, StTensor *out, Arena *names) {
    int64_t n = 0;
    for (int i = 0; i < s->n_sections; i++) {
        const Section *x = &s->section[i];
        for (int64_t layer = 0; x->name && layer < x->copies; layer++, n++) {
            if (!out) continue;
            char *name = arena_alloc(names, NAME_BYTES);
            const char *mark = strstr(x->name, "%lld");
            int before = mark ? (int)(mark - x->name) : 0;
            if (!mark) snprintf(name, NAME_BYTES, "%s", x->name);
            else snprintf(name, NAME_BYTES, "%.*s%lld%s", before, x->name, (long long)layer, mark + 4);
            out[n] = (StTensor){.name = name, .dtype = ST_F32, .rank = x->cols ? 2 : 1, .dim = {x->rows, x->cols}};
        }
    }
    return n;
}

static bool copy_plain(const Source *s, StWriter *w, int64_t offset, int64_t bytes, char *block, Err *e) {
    for (int64_t at = 0; at < bytes; at += COPY_BYTES) {
        int64_t part = MIN2(bytes - at, COPY_BYTES);
        if (!file_pread(s->fd, block, part, offset + at, s->path, e) || !st_write_data(w, block, part, e))
            return false;
    }
    return true;
}

/* block holds one head's rows. */
static bool copy_rotary(const Source *s, StWriter *w, const Section *x, int64_t offset, char *block, Err *e) {
    int64_t row_bytes = x->cols * 4, head = s->shape.head_size;
    for (int64_t first = 0; first < x->rows; first += head) {
        if (!file_pread(s->fd, block, head * row_bytes, offset + first * row_bytes, s->path, e)) return false;
        for (int64_t i = 0; i < head; i++) {
            int64_t from = i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1;
            if (!st_write_data(w, block + from * row_bytes, row_bytes, e)) return false;
        }
    }
    return true;
}

static bool copy_all(const Source *s, StWriter *w, Err *e) {
    /* not more than the file: see lay_out */
    int64_t head_bytes = mem_mul(mem_mul(s->shape.head_size, s->shape.dim), 4);
    char *block = mem_alloc(MAX2((int64_t)COPY_BYTES, head_bytes));
    bool ok = true;
    for (int i = 0; ok && i < s->n_sections; i++) {
        const Section *x = &s->section[i];
        for (int64_t layer = 0; ok && x->name && layer < x->copies; layer++) {
            int64_t bytes = copy_bytes(x), offset = x->offset + layer * bytes;
            ok = x->rotary ? copy_rotary(s, w, x, offset, block, e) : copy_plain(s, w, offset, bytes, block, e);
        }
    }
    mem_free(block);
    return ok;
}

static bool write_weights(const Source *s, const char *folder, Err *e) {
    StWriter *w;
    Arena arena;
    arena_init(&arena, "llama2c");
    int64_t n = declare(s, NULL, NULL);
    StTensor *tensors = ARENA_NEW(&arena, StTensor, n);
    declare(s, tensors, &arena);
    bool ok = st_write_folder_begin(&w, folder, tensors, n, st_shard_bytes(), NULL, e);
    arena_free(&arena);
    if (!ok) return false;
    st_write_interruptible(w);
    return st_write_close(w, copy_all(s, w, e), e);
}

static bool write_config(const Source *s, const char *folder, Err *e) {
    char path[1100];
    const Shape *h = &s->shape;
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *root = json_object();
    jsonfile_set(&root, "architectures", json_pack("[s]", "LlamaForCausalLM"));
    jsonfile_set(&root, "attention_bias", json_false());
    jsonfile_set(&root, "attention_dropout", json_real(0));
    jsonfile_set(&root, "bos_token_id", json_integer(1));
    jsonfile_set(&root, "eos_token_id", json_integer(2));
    jsonfile_set(&root, "head_dim", json_integer(h->head_size));
    jsonfile_set(&root, "hidden_act", json_string("silu"));
    jsonfile_set(&root, "hidden_size", json_integer(h->dim));
    jsonfile_set(&root, "intermediate_size", json_integer(h->hidden));
    jsonfile_set(&root, "max_position_embeddings", json_integer(h->seq));
    jsonfile_set(&root, "mlp_bias", json_false());
    jsonfile_set(&root, "model_type", json_string("llama"));
    jsonfile_set(&root, "num_attention_heads", json_integer(h->heads));
    jsonfile_set(&root, "num_hidden_layers", json_integer(h->layers));
    jsonfile_set(&root, "num_key_value_heads", json_integer(h->kv_heads));
    jsonfile_set(&root, "rms_norm_eps", json_real(1e-5));
    jsonfile_set(&root, "rope_scaling", json_null());
    jsonfile_set(&root, "rope_theta", json_real(10000));
    jsonfile_set(&root, "tie_word_embeddings", json_boolean(h->tied));
    jsonfile_set(&root, "torch_dtype", json_string("float32"));
    jsonfile_set(&root, "vocab_size", json_integer(h->vocab));
    bool ok = jsonfile_write(path, root, e);
    json_decref(root);
    return ok;
}

static bool refuse_filled(const char *folder, Err *e) {
    char **names;
    int64_t n;
    if (!file_exists(folder)) return true;
    if (!file_list(folder, &names, &n, e)) return false;
    file_list_free(names, n);
    return n == 0 || fail(e, ERR_FAIL, "%s: is there already: remove it or choose another folder", folder);
}

static bool convert(Source *s, const char *out_folder, Err *e) {
    FolderOut out;
    if (!read_shape(s, e) || !lay_out(s, e) || !refuse_filled(out_folder, e) || !folder_begin(&out, out_folder, e))
        return false;
    return folder_end(&out, write_weights(s, out.temporary, e) && write_config(s, out.temporary, e), e);
}

bool llama2c_check(const char *bin, int64_t *vocab, Err *e) {
    Source s = {.fd = -1, .path = bin};
    bool ok = file_open_read(bin, &s.fd, e) && read_shape(&s, e) && lay_out(&s, e);
    file_close(s.fd);
    *vocab = s.shape.vocab;
    return ok;
}

bool llama2c_convert(const char *bin, const char *out_folder, Err *e) {
    Source s = {.fd = -1, .path = bin};
    bool ok = file_open_read(bin, &s.fd, e) && convert(&s, out_folder, e);
    file_close(s.fd);
    return ok;
}
