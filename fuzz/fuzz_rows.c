/* fuzz_rows.c - JSON lines, a JSON array or plain text as a data set, in every layout of rows that dataset.h knows:
 * the fields of the first row choose it. What is accepted gives whole rows with ids below the vocabulary. */
#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"
#include "fuzz/fuzz.h"

enum { SEQ = 24, VOCAB = 300 };

/* A byte-level tokenizer without merges; 256 to 259 are special. */
static Tokenizer *small_tokenizer(void) {
    static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<s>", "</s>"};
    Str s = {0};
    Err e;
    Tokenizer *t = NULL;
    str_add(&s, "{\"added_tokens\": [");
    for (int i = 0; i < COUNT_OF(special); i++)
        str_addf(&s, "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", i ? ", " : "", 256 + i, special[i]);
    str_add(&s, "], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true},"
                "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int b = 0, next = 256; b < 256; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        str_addf(&s, "%s\"\\u%04x\": %d", b ? ", " : "", printable ? b : next++, b);
    }
    str_add(&s, "}, \"merges\": []}}");
    CHECK_MSG(tokenizer_open(&t, fuzz_write("tokenizer.json", s.data, s.len), &e), "%s", e.text);
    str_free(&s);
    return t;
}

static Template *small_template(void) {
    Template *t;
    Err e;
    CHECK(template_compile(&t,
                           "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                           "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
                           "chat", &e));
    return t;
}

static void use(const char *path, const DataOptions *o) {
    int32_t ids[SEQ], labels[SEQ], positions[SEQ], begins[SEQ];
    float weight[SEQ];
    Dataset *d = NULL;
    Err e;
    Str text = {0};
    if (!dataset_open(&d, path, o, &e)) return;
    for (int64_t row = 0; row < dataset_rows(d); row++) {
        dataset_row_fill(d, row, ids, labels, weight, positions, begins);
        for (int i = 0; i < SEQ; i++) {
            CHECK(ids[i] >= 0 && ids[i] < VOCAB && labels[i] >= -1 && labels[i] < VOCAB);
            CHECK(positions[i] >= 0 && positions[i] < SEQ && begins[i] >= 0 && begins[i] <= i);
        }
    }
    dataset_report_text(&text, d);
    str_free(&text);
    dataset_close(d);
}

/* The constant covers the reader's window (1 MB, doubled as it grows); the factor, documents of single tokens. */
FUZZ(rows, 6 * MIB, 256) {
    static Tokenizer *tokenizer;
    static Template *chat;
    if (!tokenizer) tokenizer = small_tokenizer();
    if (!chat) chat = small_template();
    DataOptions o = {.tokenizer = tokenizer, .chat = chat, .bos_text = "<s>", .eos_text = "</s>", .eos_id = 259,
                     .seq = SEQ, .vocab = VOCAB, .seed = 7, .shuffle = true};
    use(fuzz_write("rows.jsonl", data, size), &o);
    o.template_mode = TEMPLATE_CHAT;
    o.score = SCORE_LAST;
    o.pack = PACK_ON;
    use(fuzz_path("rows.jsonl"), &o);
    o.template_mode = TEMPLATE_AUTO;
    o.prompt_template = "{{Q}}: {question} {text}";
    o.answer_field = "answer";
    use(fuzz_path("rows.jsonl"), &o);
    o.prompt_template = NULL;
    o.answer_field = NULL;
    use(fuzz_write("rows.txt", data, size), &o);
}
