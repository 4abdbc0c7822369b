/* test_offload.c - answers with weights in pinned memory or on disk are the same answers, and `snug plan --task
 * generate` plans what `snug generate` takes. */
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

static void expect_same_answers(const Outcome *a, const Outcome *b, const char *flags) {
    for (int i = 0; i < PROMPTS; i++)
        if (!EXPECT(strlen(a->ids[i]) > 20 && !strcmp(a->ids[i], b->ids[i])))
            test_note("    %s: %s against %s", flags, a->ids[i], b->ids[i]);
}

TEST(weights_on_disk_give_the_same_answers) {
    static const char *const kinds[] = {"", "--quantize int8", "--quantize nf4 --quantize-head int8"},
                      *const homes[] = {"weights=disk:2", "weights=1,weights=disk:3", "weights=disk"};
    make_model_and_prompts();
    for (int k = 0; k < 3; k++) {
        Outcome at_home = generate(kinds[k]);
        for (int h = 0; h < 3; h++) {
            char flags[400];
            snprintf(flags, sizeof flags, "%s --offload %s --offload-dir %s", kinds[k], homes[h], test_path("disk"));
            Outcome away = generate(flags);
            expect_same_answers(&away, &at_home, flags);
            EXPECT(away.planned == away.measured);
            EXPECT(away.planned < at_home.planned + (h == 0)); /* two layers away may be the room of two on their way */
        }
    }
    Ran r = snug_run("generate --model %s --prompts %s --offload weights=disk", test_path("m"), test_path("p.jsonl"));
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "--offload-dir"));
    ran_free(&r);
}

/* A folder that was quantised by snug is read where it lies, as a plain one is: --offload-dir holds what rounds up a
 * page. */
TEST(weights_on_disk_are_the_models_own_files) {
    make_model_and_prompts();
    Ran r = snug_run("quantize --model %s --quantize nf4 --out %s", test_path("m"), test_path("q"));
    EXPECT(r.code == 0);
    ran_free(&r);
    static const char *const models[] = {"m", "q", "m"}, *const kinds[] = {"", "", "--quantize nf4"};
    Str said[3] = {{0}};
    for (int k = 0; k < 3; k++) {
        r = snug_run(
            "generate --model %s --prompts %s --max-tokens 12 --ignore-eos --offload weights=disk --offload-dir %s "
            "--max-memory disk=%s %s",
            test_path(models[k]), test_path("p.jsonl"), test_path("disk"), k == 2 ? "1MiB" : "4KiB", kinds[k]);
        bool copied = strstr(str_text(&r.err), ", 0 B read from the model's own files") != NULL;
        if (!EXPECT(r.code == 0 && copied == (k == 2))) test_note("%s", str_text(&r.err));
        str_add(&said[k], str_text(&r.out));
        ran_free(&r);
    }
    EXPECT(said[1].len > 20 && !strcmp(str_text(&said[1]), str_text(&said[2])) &&
           strcmp(str_text(&said[0]), str_text(&said[1])));
    for (int k = 0; k < 3; k++) str_free(&said[k]);
    r = snug_run(
        "generate --model %s --prompts %s --quantize nf4 --offload weights=disk --offload-dir %s --max-memory "
        "disk=4KiB",
        test_path("m"), test_path("p.jsonl"), test_path("disk"));
    EXPECT(r.code == 3 && strstr(str_text(&r.err), "does not fit the disk"));
    ran_free(&r);
}

/* bf16 weights that are computed with in fp16 stay in the model's own files, and are converted on their way. */
TEST(fp16_answers_read_bf16_weights_from_their_files) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --dtype bf16 --set num_hidden_layers=3 --set hidden_size=32 "
        "--set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=48 --set "
        "initializer_range=0.3 --set vocab_size=113",
        test_path("m16"));
    EXPECT(r.code == 0);
    ran_free(&r);
    const char prompt[] = "{\"ids\":[1,2,3,40,50,60]}\n";
    file_write_all(test_path("p.jsonl"), prompt, (int64_t)strlen(prompt), NULL);
    file_make_dirs(test_path("disk"), NULL);
    static const char *const homes[] = {"none", "weights=disk:2", "weights=disk", "weights=2"};
    Str want = {0};
    for (int k = 0; k < 4; k++) {
        r = snug_run(
            "generate --model %s --prompts %s --max-tokens 20 --ignore-eos --precision fp16 --logprobs --offload %s "
            "--offload-dir %s --max-memory disk=4KiB --device cpu",
            test_path("m16"), test_path("p.jsonl"), homes[k], test_path("disk"));
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        if (k == 0) str_add(&want, str_text(&r.out));
        EXPECT_STR(str_text(&r.out), str_text(&want));
        ran_free(&r);
    }
    str_free(&want);
}

static double number(json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

/* A 7B model in bf16 on a card of 16 GiB beside little memory: as few layers leave it as must, as few of them lie on
 * disk. */
TEST(what_neither_the_device_nor_the_host_holds_lies_on_disk_and_no_more) {
    static const char *const caps[] = {"device=8GiB,host=32GiB", "device=8GiB,host=6GiB"};
    double sent[2], on_disk[2], host[2];
    for (int k = 0; k < 2; k++) {
        Ran r = snug_run(
            "plan --task generate --model qwen2.5-7b --gpu T4 --slots 4 --max-memory %s --offload-dir d --json",
            caps[k]);
        json_t *j = ran_json(&r), *pools = json_object_get(j, "pools");
        if (!EXPECT(r.code == 0 && j)) test_note("%s", str_text(&r.err));
        sent[k] = number(j, "layers_sent"), on_disk[k] = number(j, "layers_on_disk");
        host[k] = number(json_object_get(pools, "pinned"), "process_planned_bytes") +
                  number(json_object_get(pools, "host"), "process_planned_bytes");
        EXPECT(number(json_object_get(pools, "device"), "process_planned_bytes") <= 8.0 * 1073741824 &&
               number(j, "offload_dir_bytes") < 4e6); /* what aligns them: a layer has 466e6 */
        json_decref(j);
        ran_free(&r);
    }
    EXPECT(sent[0] > 8 && sent[1] == sent[0] && on_disk[0] == 0 && on_disk[1] > 0 && on_disk[1] < sent[1]);
    EXPECT(host[0] > 6.0 * 1073741824 && host[1] <= 6.0 * 1073741824 && host[1] > 5.0 * 1073741824);
    Ran r = snug_run("plan --task generate --model qwen2.5-7b --gpu T4 --slots 4 --max-memory %s", caps[1]);
    EXPECT(r.code == 3 && strstr(str_text(&r.err), "host"));
    ran_free(&r);
}

/* Where there is but one memory, a budget sends layers to disk, when there is a folder. */
TEST(a_budget_on_the_processor_sends_layers_to_disk) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --dtype fp32 --set num_hidden_layers=12 --set hidden_size=256 "
        "--set num_attention_heads=4 --set num_key_value_heads=2 --set intermediate_size=512 --set vocab_size=113",
        test_path("deep"));
    EXPECT(r.code == 0);
    ran_free(&r);
    static const char command[] =
        "generate --model %s --prompts %s --max-tokens 6 --ignore-eos --slots 1 --json --device cpu %s";
    file_write_all(test_path("p.jsonl"), "{\"ids\":[1,2,3]}\n", 16, NULL);
    char less[300];
    double needs[2];
    Str said[2] = {{0}};
    for (int k = 0; k < 2; k++) {
        r = snug_run(command, test_path("deep"), test_path("p.jsonl"), k ? less : "");
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) test_note("%s", str_text(&r.err));
        needs[k] = number(j, "process_planned_bytes");
        str_add_bytes(&said[k], r.out.data, strcspn(str_text(&r.out), "\n"));
        EXPECT(!k || strstr(str_text(&r.err), "layers on disk (--offload)"));
        json_decref(j);
        ran_free(&r);
        snprintf(less, sizeof less, "--budget %lld --offload-dir %s", (long long)(needs[0] - 12e6), test_path("disk"));
    }
    EXPECT(needs[1] <= needs[0] - 12e6 && said[0].len > 20 && !strcmp(str_text(&said[0]), str_text(&said[1])));
    *strstr(less, " --offload-dir") = 0;
    r = snug_run(command, test_path("deep"), test_path("p.jsonl"), less);
    EXPECT(r.code == 3);
    ran_free(&r);
    str_free(&said[0]), str_free(&said[1]);
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
