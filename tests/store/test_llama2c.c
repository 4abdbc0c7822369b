/* test_llama2c.c - a llama2.c model.bin becomes a Hugging Face folder: names, shapes, and rows put in halves. */
#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/llama2c.h"
#include "store/safetensors.h"
#include "tests/store/store_test.h"
#include "tests/test.h"

enum { DIM = 8, HIDDEN = 12, LAYERS = 2, HEADS = 2, KV = 1, VOCAB = 5, SEQ = 3 }; /* heads of 4 */

/* Every fp32 of the file is its own place: value i at word 7 + i. Gives the number of words in all. */
static int64_t put_model(const char *path, int vocab, int extra_words) {
    int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, KV, vocab, SEQ};
    int64_t n = VOCAB * DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * (DIM / 2) * DIM + 3 * DIM * HIDDEN) + DIM +
                SEQ * 4 + (vocab < 0 ? VOCAB * DIM : 0) + extra_words;
    float *x = mem_alloc(28 + 4 * n);
    memcpy(x, header, 28);
    for (int64_t i = 0; i < n; i++) x[7 + i] = (float)i;
    put_file(path, x, 28 + 4 * n);
    mem_free(x);
    return n;
}

static float first_of_row(const StSet *s, const char *name, int64_t row) {
    const StTensor *t = st_find(s, name);
    float x = -1;
    if (EXPECT(t != NULL)) EXPECT(st_read(s, t, &x, row * (t->rank > 1 ? t->dim[1] : 1) * 4, 4, NULL));
    return x;
}

TEST(llama2c_puts_every_matrix_in_its_place) {
    Err e = {0};
    StSet s;
    put_model(tmp_path("m.bin"), VOCAB, 0);
    EXPECT_OK(llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e));
    EXPECT_OK(st_open(&s, tmp_path("out"), &e));
    EXPECT(s.n == 2 + 9 * LAYERS);
    float at = 0; /* word where each run of matrices begins in the file */
    EXPECT(first_of_row(&s, "model.embed_tokens.weight", 4) == at + 4 * DIM);
    at += VOCAB * DIM;
    EXPECT(first_of_row(&s, "model.layers.1.input_layernorm.weight", 3) == at + DIM + 3);
    at += LAYERS * DIM;
    static const int half_of[4] = {0, 2, 1, 3}; /* a head of 4: rows 0 2 | 1 3 */
    for (int row = 0; row < DIM; row++)
        EXPECT(first_of_row(&s, "model.layers.1.self_attn.q_proj.weight", row) ==
               at + DIM * DIM + (float)((row / 4 * 4 + half_of[row % 4]) * DIM));
    at += LAYERS * DIM * DIM;
    for (int row = 0; row < 4; row++)
        EXPECT(first_of_row(&s, "model.layers.0.self_attn.k_proj.weight", row) ==
               at + (float)(half_of[row] * DIM));
    at += LAYERS * 4 * DIM;
    EXPECT(first_of_row(&s, "model.layers.1.self_attn.v_proj.weight", 1) == at + 4 * DIM + DIM);
    at += LAYERS * 4 * DIM;
    EXPECT(first_of_row(&s, "model.layers.1.self_attn.o_proj.weight", 1) == at + DIM * DIM + DIM);
    at += LAYERS * DIM * DIM;
    EXPECT(first_of_row(&s, "model.layers.0.post_attention_layernorm.weight", 0) == at);
    at += LAYERS * DIM;
    EXPECT(first_of_row(&s, "model.layers.1.mlp.gate_proj.weight", 2) == at + DIM * HIDDEN + 2 * DIM);
    at += LAYERS * DIM * HIDDEN;
    EXPECT(first_of_row(&s, "model.layers.1.mlp.down_proj.weight", 2) == at + DIM * HIDDEN + 2 * HIDDEN);
    at += LAYERS * DIM * HIDDEN;
    EXPECT(first_of_row(&s, "model.layers.0.mlp.up_proj.weight", 2) == at + 2 * DIM);
    at += LAYERS * DIM * HIDDEN;
    EXPECT(first_of_row(&s, "model.norm.weight", 7) == at + 7);
    EXPECT(st_find(&s, "lm_head.weight") == NULL);
    st_close(&s);
}

static json_t *config(void) { return json_load_file(tmp_path("out/config.json"), 0, NULL); }

TEST(llama2c_writes_the_configuration_and_an_untied_head) {
    Err e = {0};
    StSet s;
    int64_t n = put_model(tmp_path("m.bin"), -VOCAB, 0);
    EXPECT_OK(llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e));
    EXPECT_OK(st_open(&s, tmp_path("out"), &e));
    EXPECT(first_of_row(&s, "lm_head.weight", 0) == (float)(n - VOCAB * DIM));
    st_close(&s);
    json_t *c = config();
    EXPECT(json_integer_value(json_object_get(c, "hidden_size")) == DIM);
    EXPECT(json_integer_value(json_object_get(c, "intermediate_size")) == HIDDEN);
    EXPECT(json_integer_value(json_object_get(c, "num_attention_heads")) == HEADS);
    EXPECT(json_integer_value(json_object_get(c, "num_key_value_heads")) == KV);
    EXPECT(json_integer_value(json_object_get(c, "num_hidden_layers")) == LAYERS);
    EXPECT(json_integer_value(json_object_get(c, "max_position_embeddings")) == SEQ);
    EXPECT(json_integer_value(json_object_get(c, "vocab_size")) == VOCAB);
    EXPECT(json_is_false(json_object_get(c, "tie_word_embeddings")));
    EXPECT_NEAR(json_number_value(json_object_get(c, "rms_norm_eps")), 1e-5, 0);
    EXPECT_STR(json_string_value(json_object_get(c, "model_type")), "llama");
    json_decref(c);
    put_model(tmp_path("m.bin"), VOCAB, 0);
    EXPECT(!llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e));
    EXPECT(strstr(e.text, "is there already") != NULL);
}

TEST(llama2c_refuses_wrong_sizes_with_both_numbers) {
    Err e = {0};
    int64_t n = put_model(tmp_path("m.bin"), VOCAB, 1);
    char want[64], found[64];
    snprintf(want, sizeof want, "takes %lld bytes", (long long)(28 + 4 * (n - 1)));
    snprintf(found, sizeof found, "the file has %lld", (long long)(28 + 4 * n));
    EXPECT(!llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e));
    EXPECT(strstr(e.text, want) && strstr(e.text, found));
    put_model(tmp_path("m.bin"), VOCAB, -1);
    EXPECT(!llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e));
    put_text(tmp_path("m.bin"), "short");
    EXPECT(!llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e));
    EXPECT(!llama2c_convert(tmp_path("absent"), tmp_path("out"), &e));
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(llama2c_on_a_full_disk_leaves_nothing) {
    Err e = {0};
    put_model(tmp_path("m.bin"), VOCAB, 0);
    limit_files(1000);
    bool ok = llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e);
    limit_files(0);
    EXPECT(!ok && strstr(e.text, "cannot write") != NULL);
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(llama2c_whose_tensors_no_file_may_hold_is_refused_before_one_is_begun) {
    Err e = {0};
    put_model(tmp_path("m.bin"), VOCAB, 0);
    limit_files(300);
    bool ok = llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e);
    limit_files(0);
    EXPECT(!ok && e.code == ERR_BUDGET && strstr(e.text, "ulimit -f") != NULL);
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(llama2c_refuses_impossible_headers) {
    static const int32_t rows[][7] = {
        {0, 12, 2, 2, 1, 5, 3},
        {8, -1, 2, 2, 1, 5, 3},
        {8, 12, 0, 2, 1, 5, 3},
        {8, 12, 2, 0, 1, 5, 3},
        {8, 12, 2, 2, 0, 5, 3},
        {8, 12, 2, 2, 1, 0, 3},
        {8, 12, 2, 2, 1, 5, 0},
        {8, 12, 2, 3, 1, 5, 3},
        {8, 12, 2, 8, 1, 5, 3},
        {8, 12, 2, 4, 3, 5, 3},
        {INT32_MAX - 1, INT32_MAX, 10000, 1, 1, INT32_MIN, INT32_MAX},
        {8, 12, INT32_MAX, 2, 1, 5, 3},
        {1 << 30, 1 << 30, 9999, 2, 1, INT32_MAX, INT32_MAX},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        Err e = {0};
        put_file(tmp_path("m.bin"), rows[i], 28);
        if (!EXPECT(!llama2c_convert(tmp_path("m.bin"), tmp_path("out"), &e) && e.text[0]))
            test_note("    row %d", i);
    }
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(llama2c_converts_the_stories_model) {
    const char *bin = test_assets("stories260K/stories260K.bin");
    if (!bin) return;
    Err e = {0};
    StSet s;
    EXPECT_OK(llama2c_convert(bin, tmp_path("out"), &e));
    EXPECT_OK(st_open(&s, tmp_path("out"), &e));
    const StTensor *t = st_find(&s, "model.layers.4.self_attn.k_proj.weight");
    EXPECT(s.n == 2 + 9 * 5 && t && t->dim[0] == 32 && t->dim[1] == 64);
    st_close(&s);
}
