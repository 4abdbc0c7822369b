/* test_offload.c - answers with weights in pinned memory are the same answers, and `snug plan --task generate`
 * plans what `snug generate` takes. */
#include "base/file.h"
#include "base/mem.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { PROMPTS = 3 };

static void make_model_and_prompts(void) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --dtype fp32 --set num_hidden_layers=5 --set hidden_size=32 "
        "--set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=48 --set "
        "initializer_range=0.3 "
        "--set vocab_size=113",
        test_path("m"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    Str s = {0};
    for (int p = 0; p < PROMPTS; p++) str_addf(&s, "{\"ids\":[1,%d,%d,9,%d]}\n", 5 + p, 40 - 3 * p, 60 + p);
    file_write_all(test_path("p.jsonl"), s.data, s.len, NULL);
    str_free(&s);
}

typedef struct Outcome {
    char ids[PROMPTS][400];
    int64_t planned, measured;
} Outcome;

static Outcome generate(const char *flags) {
    Outcome o = {0};
    Ran r =
        snug_run("generate --model %s --prompts %s --max-tokens 12 --ignore-eos --slots 3 --context 64 --json %s",
                 test_path("m"), test_path("p.jsonl"), flags);
    if (!EXPECT(r.code == 0)) test_note("    %s: %s", flags, str_text(&r.err));
    char *save = NULL, *line = r.out.len ? strtok_r(r.out.data, "\n", &save) : NULL;
    for (int i = 0; line; line = strtok_r(NULL, "\n", &save), i++) {
        json_t *j = json_loads(line, 0, NULL);
        if (i < PROMPTS) {
            char *ids = json_dumps(json_object_get(j, "ids"), JSON_COMPACT);
            snprintf(o.ids[i], sizeof o.ids[i], "%s", ids ? ids : "?");
            mem_free(ids);
        }
        o.planned = json_integer_value(json_object_get(j, "planned_bytes"));
        o.measured = json_integer_value(json_object_get(j, "measured_bytes"));
        json_decref(j);
    }
    ran_free(&r);
    return o;
}

TEST(weights_in_pinned_memory_give_the_same_answers) {
    static const char *const kinds[] = {"", "--quantize int8"}, *const homes[] = {"weights=2", "weights"};
    make_model_and_prompts();
    for (int k = 0; k < 2; k++) {
        Outcome at_home = generate(kinds[k]);
        EXPECT(strlen(at_home.ids[0]) > 20 && at_home.planned == at_home.measured);
        for (int h = 0; h < 2; h++) {
            char flags[100];
            snprintf(flags, sizeof flags, "%s --offload %s", kinds[k], homes[h]);
            Outcome sent = generate(flags);
            for (int i = 0; i < PROMPTS; i++)
                if (!EXPECT(!strcmp(sent.ids[i], at_home.ids[i])))
                    test_note("    %s: %s against %s", flags, sent.ids[i], at_home.ids[i]);
            EXPECT(sent.planned < at_home.planned && sent.planned == sent.measured); /* of the device's pool */
        }
    }
    Ran r =
        snug_run("generate --model %s --prompts %s --offload moments", test_path("m"), test_path("p.jsonl"));
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "nothing but weights"));
    ran_free(&r);
}

TEST(a_plan_of_answers_is_the_plan_of_the_run) {
    static const char *const kinds[] = {"", "--quantize nf4", "--offload weights=3",
                                        "--precision fp32 --prefill-chunk 16"};
    make_model_and_prompts();
    for (int k = 0; k < 4; k++) {
        Outcome ran = generate(kinds[k]);
        Ran r = snug_run("plan --task generate --model %s --slots 3 --context 64 --json %s", test_path("m"),
                         kinds[k]);
        json_t *j = ran_json(&r), *device = json_object_get(json_object_get(j, "pools"), "device");
        if (!EXPECT(r.code == 0 && ran.planned > 0 &&
                    json_integer_value(json_object_get(device, "planned_bytes")) == ran.planned))
            test_note("    %s: %s", kinds[k], str_text(&r.err));
        EXPECT(json_is_true(json_object_get(j, "fits")) && json_integer_value(json_object_get(j, "slots")) == 3);
        json_decref(j);
        ran_free(&r);
    }
}
