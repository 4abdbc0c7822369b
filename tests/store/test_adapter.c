/* test_adapter.c - PEFT's adapters are read, written, and refused by name when they are more than plain LoRA. */
#include "base/file.h"
#include "store/adapter.h"
#include "tests/store/store_test.h"
#include "tests/test.h"

#define ADAPTER FIXTURES "adapter"

TEST(adapter_reads_what_peft_wrote) {
    Err e = {0};
    AdapterConfig c;
    EXPECT_OK(adapter_config_read(&c, ADAPTER, &e));
    EXPECT(c.rank == 2 && c.use_rslora);
    EXPECT_NEAR(c.alpha, 6, 0);
    EXPECT_NEAR(c.dropout, 0.25, 0);
    EXPECT(c.targets == (1u << ADAPTER_Q | 1u << ADAPTER_V | 1u << ADAPTER_DOWN));
    EXPECT_STR(c.base_model, "tiny/qwen2");
    EXPECT_NEAR(adapter_scale(&c), 6 / sqrt(2.0), 1e-12);
    c.use_rslora = false;
    EXPECT_NEAR(adapter_scale(&c), 3, 0);
}

TEST(adapter_keys_are_those_of_peft) {
    Err e = {0};
    AdapterConfig c;
    StSet s;
    char key[128];
    adapter_key(key, sizeof key, 31, ADAPTER_GATE, true);
    EXPECT_STR(key, "base_model.model.model.layers.31.mlp.gate_proj.lora_B.weight");
    EXPECT_STR(adapter_target_name(ADAPTER_O), "o_proj");
    EXPECT_OK(adapter_config_read(&c, ADAPTER, &e));
    EXPECT_OK(st_open(&s, ADAPTER, &e));
    EXPECT_OK(adapter_check_tensors(&s, &c, 2, &e));
    adapter_key(key, sizeof key, 1, ADAPTER_Q, false);
    const StTensor *a = st_find(&s, key);
    EXPECT(a && a->dim[0] == 2 && a->dim[1] == 8);
    adapter_key(key, sizeof key, 1, ADAPTER_DOWN, false);
    a = st_find(&s, key);
    EXPECT(a && a->dim[0] == 2 && a->dim[1] == 12);
    EXPECT(!adapter_check_tensors(&s, &c, 3, &e));
    EXPECT(strstr(e.text, "layers.2.") && strstr(e.text, "is missing"));
    EXPECT(!adapter_check_tensors(&s, &c, 1, &e));
    EXPECT(strstr(e.text, "layers.1.") && strstr(e.text, "does not belong"));
    AdapterConfig other = c;
    other.targets &= ~(1u << ADAPTER_V);
    EXPECT(!adapter_check_tensors(&s, &other, 2, &e));
    EXPECT(strstr(e.text, "v_proj") && strstr(e.text, "does not belong"));
    other = c;
    other.rank = 4;
    EXPECT(!adapter_check_tensors(&s, &other, 2, &e));
    EXPECT(strstr(e.text, "not of rank 4") != NULL);
    st_close(&s);
}

TEST(adapter_config_goes_round) {
    Err e = {0};
    AdapterConfig c, list[] = {
        {.rank = 8, .alpha = 16, .dropout = 0.05, .targets = ADAPTER_ALL_TARGETS, .base_model = "Qwen/Qwen2.5"},
        {.rank = 1, .alpha = 0.5, .dropout = 0, .targets = 1u << ADAPTER_UP, .base_model = "", .use_rslora = true},
        {.rank = 64, .alpha = 128, .dropout = 0.1, .targets = 5, .base_model = "/a \"b\"/\\ö"},
    };
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(adapter_config_write(test_tmp(), &list[i], &e));
        EXPECT_OK(adapter_config_read(&c, test_tmp(), &e));
        EXPECT(c.rank == list[i].rank && c.targets == list[i].targets && c.use_rslora == list[i].use_rslora);
        EXPECT(c.alpha == list[i].alpha && c.dropout == list[i].dropout);
        EXPECT_STR(c.base_model, list[i].base_model);
    }
    list[0].base_model[0] = (char)0xff;
    EXPECT(!adapter_config_write(test_tmp(), &list[0], &e));
    EXPECT(strstr(e.text, "UTF-8") != NULL);
}

static bool reads(const char *text, AdapterConfig *c, Err *e) {
    put_text(tmp_path("adapter_config.json"), text);
    return adapter_config_read(c, test_tmp(), e);
}

#define LORA(rest) "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]" rest "}"

TEST(adapter_refuses_by_name_what_is_not_plain_lora) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"{\"peft_type\":\"ADALORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}",
         "peft_type is 'ADALORA'"},
        {"{\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}", "no peft_type"},
        {LORA(",\"bias\":\"all\""), "bias is 'all'"},
        {LORA(",\"task_type\":\"SEQ_CLS\""), "task_type is 'SEQ_CLS'"},
        {LORA(",\"use_dora\":true"), "sets use_dora"},
        {LORA(",\"modules_to_save\":[\"lm_head\"]"), "sets modules_to_save"},
        {LORA(",\"rank_pattern\":{\"q_proj\":8}"), "sets rank_pattern"},
        {LORA(",\"alpha_pattern\":{\"q_proj\":8}"), "sets alpha_pattern"},
        {LORA(",\"layers_to_transform\":[0,1]"), "sets layers_to_transform"},
        {LORA(",\"layers_to_transform\":3"), "sets layers_to_transform"},
        {LORA(",\"fan_in_fan_out\":true"), "sets fan_in_fan_out"},
        {LORA(",\"lora_bias\":true"), "sets lora_bias"},
        {LORA(",\"exclude_modules\":\"v_proj\""), "sets exclude_modules"},
        {LORA(",\"layer_replication\":[[0,2]]"), "sets layer_replication"},
        {LORA(",\"a_later_idea\":1"), "sets a_later_idea"},
        {LORA(",\"init_lora_weights\":\"pissa\""), "init_lora_weights 'pissa'"},
        {LORA(",\"lora_dropout\":1"), "lora_dropout"},
        {LORA(",\"lora_dropout\":\"0\""), "lora_dropout"},
        {"{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}", "r must be"},
        {"{\"peft_type\":\"LORA\",\"r\":1e9,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}", "r must be"},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"target_modules\":[\"q_proj\"]}", "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":\".*q_proj\"}",
         "'.*q_proj' is a pattern"},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"lm_head\"]}", "'lm_head'"},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[1]}", "not text"},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[]}", "names no module"},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}", "names no module"},
        {"{", "not valid JSON"},
        {"7", "not valid JSON"},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        Err e = {0};
        AdapterConfig c;
        bool refused = !reads(rows[i].text, &c, &e) && strstr(e.text, rows[i].why) && e.code == ERR_FAIL;
        if (!EXPECT(refused)) test_note("    row %d gave '%s'", i, e.text);
    }
}

TEST(adapter_accepts_settings_that_are_off) {
    Err e = {0};
    AdapterConfig c;
    EXPECT_OK(
        reads(LORA(",\"use_dora\":false,\"modules_to_save\":null,\"rank_pattern\":{},\"layers_pattern\":\"\","
                   "\"a_later_idea\":[],\"init_lora_weights\":\"gaussian\",\"bias\":\"none\""),
              &c, &e));
    EXPECT(c.targets == 1u << ADAPTER_Q && c.dropout == 0 && c.base_model[0] == 0 && !c.use_rslora);
    EXPECT_OK(
        reads("{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8.5,\"target_modules\":\"all-linear\"}", &c, &e));
    EXPECT(c.targets == ADAPTER_ALL_TARGETS && c.alpha == 8.5);
    EXPECT(!adapter_config_read(&c, tmp_path("absent"), &e));
}
