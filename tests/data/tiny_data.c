/* tiny_data.c - writes the smallest tokenizer files that are complete. */
#include "tests/data/tiny_data.h"

#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"

const char tiny_chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Byte level encodings write a byte as itself where it is printable, else as a character from 256 on. */
static int byte_character(int byte) {
    static int map[256];
    if (!map['a'])
        for (int b = 0, next = 256; b < 256; b++) {
            bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            map[b] = printable ? b : next++;
        }
    return map[byte];
}

static Tokenizer *open_written(const Str *json, const char *folder) {
    char dir[200], name[100];
    Err e;
    Tokenizer *t = NULL;
    snprintf(dir, sizeof dir, "%s/%s", test_tmp(), folder);
    snprintf(name, sizeof name, "%s/tokenizer.json", folder);
    EXPECT_OK(file_make_dirs(dir, &e));
    tiny_file(name, json->data);
    EXPECT_OK(tokenizer_open(&t, dir, &e));
    return t;
}

static void add_special(Str *s, int id, const char *text, const char *after) {
    str_addf(s,
             "{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
             "\"normalized\": false, \"special\": true}%s",
             id, text, after);
}

Tokenizer *tiny_tokenizer(bool adds_bos) {
    Str s = {0};
    str_add(&s, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    add_special(&s, TINY_IM_START, "<|im_start|>", ",");
    add_special(&s, TINY_IM_END, "<|im_end|>", ",");
    add_special(&s, TINY_BOS, "<s>", ",");
    add_special(&s, TINY_EOS, "</s>", "],");
    str_add(&s,
            "\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": ");
    if (adds_bos)
        str_add(
            &s,
            "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": "
            "0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", "
            "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {\"<s>\": "
            "{\"id\": \"<s>\", \"ids\": [258], \"tokens\": [\"<s>\"]}}}");
    else str_add(&s, "null");
    str_add(&s,
            ", \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
            "\"use_regex\": true}, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
            "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
            "\"byte_fallback\": false, \"vocab\": {");
    for (int b = 0; b < 256; b++) str_addf(&s, "\"\\u%04x\": %d%s", byte_character(b), b, b < 255 ? ", " : "");
    str_add(&s, "}, \"merges\": []}}");
    Tokenizer *t = open_written(&s, adds_bos ? "tok_bos" : "tok");
    str_free(&s);
    return t;
}

Tokenizer *tiny_spaced_tokenizer(void) {
    Str s = {0};
    str_add(&s, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    add_special(&s, 0, "<unk>", ",");
    add_special(&s, 1, "<s>", ",");
    add_special(&s, 2, "</s>", "],");
    str_add(
        &s,
        "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
        "\"\u2581\"}, "
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}]}, "
        "\"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": {\"type\": \"Sequence\", \"decoders\": ["
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}, "
        "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, "
        "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}, "
        "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\", "
        "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": true, "
        "\"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2");
    for (int b = 0; b < 256; b++) str_addf(&s, ", \"<0x%02X>\": %d", b, b + 3);
    str_add(&s, ", \"\u2581\": 259");
    for (int c = 'a'; c <= 'z'; c++) str_addf(&s, ", \"%c\": %d", c, 260 + c - 'a');
    str_add(&s, ", \"\u2581a\": 286}, \"merges\": [\"\u2581 a\"]}}");
    Tokenizer *t = open_written(&s, "tok_spaced");
    str_free(&s);
    return t;
}

Template *tiny_template(const char *source) {
    Err e;
    Template *t = NULL;
    EXPECT_OK(template_compile(&t, source, "chat", &e));
    return t;
}

const char *tiny_file(const char *name, const char *text) {
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
    FILE *f = fopen(path, "w"); /* not file_write_all: hundreds of flushes to the disk would take seconds */
    EXPECT(f && fwrite(text, 1, strlen(text), f) == strlen(text));
    if (f) fclose(f);
    return path;
}

DataOptions tiny_options(const Tokenizer *t, int64_t seq) {
    return (DataOptions){.tokenizer = t,
                         .bos_text = "<s>",
                         .eos_text = "</s>",
                         .eos_id = TINY_EOS,
                         .seq = seq,
                         .vocab = TINY_VOCAB};
}

static void add_token(Str *s, int32_t id) {
    if (id < 0) str_add_char(s, '.');
    else if (id == '\n') str_add(s, "\\n");
    else if (id >= 32 && id < 127) str_add_char(s, (char)id);
    else str_addf(s, "<%d>", id);
}

const char *tiny_row(const Dataset *d, int64_t row) {
    static Str s;
    int64_t n = dataset_seq(d), tokens = dataset_row_tokens(d, row), scored = 0;
    int32_t *ids = MEM_NEW(int32_t, n * 4), *labels = ids + n, *positions = ids + 2 * n, *begin = ids + 3 * n;
    float *weight = MEM_NEW(float, n);
    dataset_row_fill(d, row, ids, labels, weight, positions, begin);
    str_clear(&s);
    for (int64_t t = 0; t < n; t++)
        if (t < tokens) add_token(&s, ids[t]);
        else str_add_char(&s, ids[t] ? '?' : '_');
    str_add_char(&s, '|');
    for (int64_t t = 0; t < tokens; t++) add_token(&s, labels[t]);
    if (tokens && begin[tokens - 1]) str_add_char(&s, '|');
    for (int64_t t = 0; t < tokens && begin[tokens - 1]; t++) str_addf(&s, "%d", begin[t]);
    for (int64_t t = 0; t < n; t++) {
        EXPECT(weight[t] == (labels[t] >= 0));
        EXPECT(positions[t] == t - begin[t]);
        EXPECT(t < tokens || (labels[t] == -1 && begin[t] == t));
        scored += labels[t] >= 0;
    }
    EXPECT(scored == dataset_row_scored(d, row));
    mem_free(ids);
    mem_free(weight);
    return s.data;
}
