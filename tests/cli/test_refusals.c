/* test_refusals.c - a refused command changes nothing: for every command a table of refusals, and everything on
 * disk before and after is the same, to the nanosecond of its last change. */
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/test.h"
#include "tests/world.h"

typedef struct Refusal {
    const char *arguments; /* run in the folder "w" beside the inputs */
    int code;
    const char *says;
} Refusal;

#define IN "--model ../model --data ../rows.jsonl --seq 16 --threads 1 --log-steps 1 "
#define RUN "train " IN "--steps 6 --save-steps 3 "

static void put(const char *name, const char *text) {
    file_write_all(world_path("%s", name), text, (int64_t)strlen(text), NULL);
}

/* The first half of a file. */
static void cut(const char *name) {
    int64_t bytes = 0;
    EXPECT(file_size(world_path("%s", name), &bytes, NULL) && truncate(world_path("%s", name), bytes / 2) == 0);
}

/* Names the first line that differs. */
static bool expect_same(const Str *before, const Str *after, const char *arguments) {
    const char *a = str_text(before), *b = str_text(after);
    if (EXPECT(!strcmp(a, b))) return true;
    while (*a && *a == *b) a++, b++;
    while (a > str_text(before) && a[-1] != '\n') a--, b--;
    test_note("    %s changed something: '%.*s' is '%.*s' now", arguments, (int)strcspn(a, "\n"), a,
              (int)strcspn(b, "\n"), b);
    return false;
}

static void expect_unchanged(const Refusal *table, int n) {
    Str before = {0}, after = {0}, err = {0};
    world_snapshot(&before, test_tmp());
    for (int i = 0; i < n; i++) {
        const Refusal *r = &table[i];
        int code = world_run("w", world_binary(), NULL, r->arguments);
        world_said(NULL, &err, "w");
        bool said = code == r->code && strstr(str_text(&err), "snug: ") && strstr(str_text(&err), r->says);
        if (!EXPECT(said))
            test_note("    %s: exit %d, wanted %d with '%s'\n%s", r->arguments, code, r->code, r->says,
                      str_text(&err));
        str_clear(&after);
        world_snapshot(&after, test_tmp());
        if (!expect_same(&before, &after, r->arguments)) break;
    }
    str_free(&before), str_free(&after), str_free(&err);
}

/* Beside the inputs of the world: models that cannot be read, a run with two checkpoints, and what is left of
 * others. */
static bool make_runs(void) {
    if (!world_make(world_binary())) return false;
    world_copy_tree(world_path("model"), world_path("short"));
    cut("short/model.safetensors");
    put("bad.jsonl", "{\"ids\":[1,2,3]}\n{\"ids\":[1,2,9999]}\n");
    bool ok = world_must("w", RUN "--out run") &&
              world_must("w", "train " IN "--steps 4 --mode lora --lora-rank 4 --out lora");
    world_copy_tree(world_path("w/run"), world_path("w/damaged"));
    cut("w/damaged/checkpoint-6/optimizer.safetensors");
    world_copy_tree(world_path("w/run"), world_path("w/begun"));
    world_copy_tree(world_path("w/run/model"), world_path("w/result/model"));
    static const char *const later[] = {"checkpoint-3", "checkpoint-6", "model"};
    for (int i = 0; i < 3; i++) file_remove_tree(world_path("w/begun/%s", later[i]), NULL);
    world_copy_tree(world_path("w/run"), world_path("w/torn"));
    for (int i = 0; i < 2; i++) {
        char state[60];
        snprintf(state, sizeof state, "w/torn/%s/trainer_state.json", later[i]);
        cut(state);
    }
    return ok;
}

TEST(a_refused_train_changes_nothing) {
    static const Refusal table[] = {
        {RUN "--out new --sqe 3", 2, "no such option"},
        {RUN "--out new --lora-rank 8", 2, "--mode lora"},
        {RUN "--out new --save-best", 2, "--eval-data"},
        {RUN "--out new --budget 1KiB", 3, "does not fit"},
        {RUN "--out new/and/deeper --save-steps 1 --steps 1000000000000", 3, "does not fit the disk"},
        {RUN "--out new --data ../bad.jsonl", 1, "bad.jsonl:2"},
        {RUN "--out new --data ../nothing.jsonl", 1, "nothing.jsonl"},
        {RUN "--out new --model ../nothing", 1, "no such folder"},
        {RUN "--out new --model qwen2.5-0.5b", 1, "huggingface-cli download Qwen/Qwen2.5-0.5B"},
        {RUN "--out new --model ../short", 1, "model.safetensors"},
        {RUN "--out new --model ../short --offload moments=disk --offload-dir made/by/it", 1, "model.safetensors"},
        {RUN "--model ../short", 1, "model.safetensors"}, /* no --out: runs/short */
        {RUN "--out new --adapter ../nothing --mode lora", 1, "no such folder"},
        {RUN "--out new --adapter lora/adapter --mode lora --lora-rank 8", 2, "rank 4"},
        {RUN "--out new --spare-dir nothing", 1, "--spare-dir"},
        {RUN "--out new --resume", 1, "no run to go on with"},
        {RUN "--out begun --resume", 1, "ended before its first one, which comes after 10 minutes"},
        {RUN "--out torn --resume", 1, "has 2 checkpoints and none that is complete"},
        {RUN "--out torn --resume", 1, "passing over a checkpoint: torn/checkpoint-6/trainer_state.json"},
        {RUN "--out ../rows.jsonl", 1, "is a file"},
        {RUN "--out run", 1, "--resume"},
        {RUN "--out result", 1, "holds a result"},
        {RUN "--out run --resume --lr 1", 1, "lr was"},
        {RUN "--out run --resume --steps 5", 2, "stands at step 6"},
        {RUN "--out new --nproc_per_node 4", 2, "a run uses one device; `snug reason --ranks N --rank I`"},
        {RUN "--out new --nproc-per-node=2 --redirects 3", 2, "one device"},
        {RUN "--out new --log-dir logs", 2, "a run's log is train.log in --out"},
        {RUN "--out run --resume checkpoint-7", 1, "checkpoint-7"},
        {RUN "--out run --resume --overwrite", 2, "give one of them"},
        {RUN "--out damaged --resume --steps 8", 1, "optimizer.safetensors"},
        {RUN "--out damaged --resume --steps 8", 1, "An earlier one stands: --resume checkpoint-3"},
        {RUN "--out damaged --resume --budget 1KiB", 3, "does not fit"},
        {RUN "--out run --overwrite --model ../short", 1, "model.safetensors"},
        {RUN "--out run --overwrite --data ../bad.jsonl", 1, "bad.jsonl:2"},
        {RUN "--out run --overwrite --model run/model", 2, "which this run reads"},
        {RUN "--out lora --overwrite --mode lora --adapter lora/adapter", 2, "which this run reads"},
    };
    if (make_runs()) expect_unchanged(table, COUNT_OF(table));
}

/* The report that this promise began with. */
TEST(a_refused_resume_leaves_a_run_that_can_be_resumed) {
    Str err = {0};
    if (!make_runs()) return;
    EXPECT(file_remove_tree(world_path("w/run/checkpoint-6"), NULL) &&
           file_remove_tree(world_path("w/run/model"), NULL));
    EXPECT(world_run("w", world_binary(), NULL, "train --config run/config.yaml --resume --steps 1") == 2);
    EXPECT(world_run("w", world_binary(), NULL, "train --config run/config.yaml --resume") == 0);
    world_said(NULL, &err, "w");
    EXPECT(strstr(str_text(&err), "going on from run/checkpoint-3: step 3") && strstr(str_text(&err), "step 6/6"));
    str_free(&err);
}

TEST(a_refused_command_that_makes_a_folder_changes_nothing) {
    static const Refusal init[] = {
        {"init --model llama-3.2-1b --out new --set hiden_size=3", 2, "hidden_size"},
        {"init --model llama-9 --out new", 1, "Presets"},
        {"init --model llama-3.2-1b --out new --tokenizer nothing", 1, "--tokenizer"},
        {"init --model llama-3.2-1b --out run", 1, "not empty"},
        {"init --model llama-3.2-1b --out .. --overwrite", 1, "name of its own"},
        {"init --model llama-3.2-1b --out run/checkpoint-3/../../run --overwrite", 1, "holds no model"},
        {"convert ../nothing.bin --from llama2c --out new", 1, "nothing.bin"},
        {"convert ../rows.jsonl --from llama2c --out new", 1, "llama2.c"},
        {"convert ../cut.bin --from llama2c --out new", 1, "cut short"},
        {"convert ../tiny.bin --from llama2c --tokenizer ../rows.jsonl --out new", 1, "rows.jsonl"},
        {"convert ../tiny.bin --from llama2c --out run", 1, "not empty"},
        {"convert ../tiny.bin --from llama2c --out new --dtype bf16", 2, "belongs to: init"},
        {"merge --model ../model --adapter nothing --out new", 1, "no such folder"},
        {"merge --model ../other --adapter lora/adapter --out new", 1, "another model"},
        {"merge --model ../short --adapter lora/adapter --out new", 1, "model.safetensors"},
        {"merge --model qwen2.5-0.5b --adapter lora/adapter --out new", 1, "huggingface-cli"},
        {"merge --model ../model --adapter lora/adapter --out run", 1, "not empty"},
        {"quantize --model ../short --quantize nf4 --out new", 1, "model.safetensors"},
        {"quantize --model ../model --quantize nf4 --out run --report --data ../rows.jsonl --seq 16", 1,
         "not empty"},
        {"quantize --model ../model --quantize nf4 --out new --report", 2, "--data"},
        {"quantize --model ../model --out new", 2, "--quantize"},
    };
    if (!make_runs()) return;
    world_must(
        "w",
        "init --model llama-3.2-1b --out ../other --dtype fp32 --set num_hidden_layers=1 --set hidden_size=32 "
        "--set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=16 --set vocab_size=64");
    EXPECT(file_copy(world_path("tiny.bin"), world_path("cut.bin"), NULL));
    cut("cut.bin");
    expect_unchanged(init, COUNT_OF(init));
}

TEST(a_refused_command_that_answers_changes_nothing) {
    static const Refusal table[] = {
        {"eval --model ../short --data ../rows.jsonl --seq 16", 1, "model.safetensors"},
        {"eval --model ../model --data ../bad.jsonl --seq 16", 1, "bad.jsonl:1"},
        {"eval --model ../model --data ../rows.jsonl --seq 16 --budget 1KiB", 3, "does not fit"},
        {"generate --model ../model --prompts ../ids.jsonl --out ../rows.jsonl", 1, "already there"},
        {"generate --model ../model --prompts ../bad.jsonl --out new.jsonl", 1, "9999"},
        {"generate --model ../model --prompts ../ids.jsonl --out new.jsonl --budget 1KiB", 3, "fit"},
        {"generate --model ../short --prompts ../ids.jsonl --out new.jsonl", 1, "model.safetensors"},
        {"generate --model ../model --out new.jsonl", 2, "--prompts"},
        {"reason --model ../talker --num-examples 2 --max-tokens 6 --out new/and/deeper/r.json --budget 1KiB", 3,
         "fit"},
        {"reason --model ../lame --num-examples 2 --max-tokens 6 --out new/r.json", 1, "model.safetensors"},
        {"reason --model ../talker --data ../nothing.jsonl --out new/r.json", 1, "nothing.jsonl"},
        {"reason --model ../talker --num-examples 2 --max-tokens 6 --out ../rows.jsonl", 1, "already there"},
        {"reason --model ../talker --num-examples 2 --max-tokens 6 --out of.json", 1, "another job"},
        {"reason --merge --out nowhere/r.json", 1, "rank-0"},
        {"reason --model ../talker --out new/r.json --nproc_per_node 4", 2, "--ranks N --rank I"},
        {"reason --model ../talker --out new/r.json --tee 3", 2, "2> rank-I.log"},
        {"grpo --model ../talker --parser test --out new --budget 1KiB", 3, "fit"},
        {"grpo --model ../talker --data ../nothing.jsonl --out new", 1, "nothing.jsonl"},
        {"grpo-eval --model ../talker --tuned ../talker --parser test --out ../rows.jsonl", 1, "already there"},
        {"grpo-eval --model ../talker --tuned ../nothing --parser test --out new.jsonl", 1, "nothing"},
        {"grpo-eval --model ../talker --tuned ../talker --parser test --out new.jsonl --budget 1KiB", 3, "fit"},
        {"problems --n 4 --out ../rows.jsonl", 1, "already there"},
        {"problems --n 4 --out new.jsonl --roles sing", 2, "solve"},
        {"problems --n 4 --out no/folder/new.jsonl", 1, "new.jsonl"},
        {"tokenize --tokenizer ../nothing", 1, "nothing"},
        {"chat --model ../nothing", 1, "nothing"},
        {"doctor --device abacus --quick --write new/machine.json", 2, "abacus"},
        {"doctor --device cpu --quick --write ../rows.jsonl", 1, "rows.jsonl"},
        {"plan --model ../nothing --svg new.svg --html new.html", 1, "no such folder"},
        {"plan --model ../model --seq 16 --svg new.svg --group 4", 2, "--task grpo"},
    };
    char cwd[400], arguments[1000];
    if (!make_runs() || !EXPECT(getcwd(cwd, sizeof cwd))) return;
    snprintf(
        arguments, sizeof arguments,
        "init --model llama-3.2-1b --out ../talker --tokenizer %s/tests/data/tok_smollm2 --dtype fp32 --set "
        "num_hidden_layers=1 "
        "--set hidden_size=16 --set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=16 "
        "--set vocab_size=424",
        cwd);
    if (!world_must("w", arguments)) return;
    world_copy_tree(world_path("talker"), world_path("lame"));
    cut("lame/model.safetensors");
    put("ids.jsonl", "{\"ids\":[1,2,3]}\n");
    put("bad.jsonl", "{\"ids\":[1,2,9999]}\n");
    put("w/of.json.progress", "{\"reason\":1,\"job\":{\"seed\":\"another\"}}\n");
    expect_unchanged(table, COUNT_OF(table));
}

TEST(a_refused_monitor_changes_nothing) {
    static const Refusal table[] = {
        {"monitor --csv ../rows.jsonl --duration 0", 1, "is already there; --overwrite"},
        {"monitor --csv ../no/such/folder.csv --duration 0", 1, "folder.csv"},
        {"monitor --csv ../rows.jsonl -- touch made", 1, "is already there; --overwrite"},
        {"monitor -- ./no-such-command", 1, "no-such-command: cannot be started"},
        {"monitor --interval 0", 2, "out of range"},
        {"monitor --serve 99999", 2, "neither a port"},
        {"monitor --model x", 2, "not to `snug monitor`"},
    };
    if (!make_runs()) return;
    expect_unchanged(table, COUNT_OF(table));
}

/* A model that was merged into itself, sentences replaced by their own parses: the only copy would be gone. */
TEST(what_a_command_reads_is_never_replaced_by_what_it_writes) {
    static const Refusal table[] = {
        {"merge --model ../model --adapter lora/adapter --out ../model --overwrite", 2, "which this command reads"},
        {"merge --model ../model --adapter lora/adapter --out ./lora/../lora/adapter --overwrite", 2, "reads"},
        {"quantize --model ../model --quantize nf4 --out ../model --overwrite", 2, "reads"},
        {"convert --from dense ../model --out ../model --overwrite", 2, "reads"},
        {"init --model ../model --out ../model --overwrite", 2, "reads"},
        {"generate --model ../model --prompts ../rows.jsonl --out ../rows.jsonl --overwrite", 2, "reads"},
        {"reason --model ../model --data ../rows.jsonl --out ../rows.jsonl --overwrite", 2, "reads"},
        {"amr rows ../graphs.amr --out ../graphs.amr --overwrite", 2, "reads"},
        {"amr parse ../graphs.amr --model ../words --out ../link.amr --overwrite", 2, "reads"},
        {"eval --model ../model --data ../rows.jsonl --attention-report ../rows.jsonl", 2, "reads"},
        {"plan --config ../recipe.yaml --html ../recipe.yaml", 2, "reads"},
    };
    if (!make_runs()) return;
    put("graphs.amr", "#::snt A boy sings.\n(s / sing-01 :ARG0 (b / boy))\n");
    EXPECT(symlink("graphs.amr", world_path("link.amr")) == 0);
    expect_unchanged(table, COUNT_OF(table));
}

/* Found at the end, such a place costs all the work before it. */
TEST(a_place_that_cannot_be_written_is_refused_before_any_work) {
    static const Refusal table[] = {
        {"eval --model ../model --data ../nothing.jsonl --attention-report .", 1, "--attention-report .: is a folder"},
        {"eval --model ../nothing --suite needle --items no/items.jsonl", 1, "there is no folder no"},
        {"eval --model ../nothing --suite needle --svg ..", 1, "--svg ..: is a folder"},
        {"plan --model ../nothing --html no/plan.html", 1, "there is no folder no"},
        {"grpo-eval --model ../nothing --tuned ../nothing --parser test --out no/items.jsonl", 1, "no folder no"},
        {"unlearn-eval --model ../nothing --data ../nothing --out ../rows.jsonl", 1, "rows.jsonl: is a file"},
        {"unlearn-eval --model ../nothing --data ../nothing --out old", 1, "TOFU_EVAL.json: is already there"},
        {"unlearn --run ../nothing --forget forget01 --out ../rows.jsonl", 1, "rows.jsonl: is a file"},
        {"doctor --quick --device cpu --write .", 1, "--write .: is a folder"},
        {"monitor --csv . --duration 0", 1, "--csv .: is a folder"},
        {"generate --model ../nothing --prompts ../rows.jsonl --out .", 1, "--out .: is a folder"},
        {"generate --model ../nothing --prompt hi --out ../null --overwrite", 1, "is a device or a pipe"},
        {"problems --n 3 --out ../null --overwrite", 1, "leave it out"},
        {"plan --model qwen2.5-0.5b --svg ../null", 1, "--svg ../null: is a device or a pipe"},
        {"merge --model ../model --adapter lora/adapter --out ../rows.jsonl/x", 1, "cannot create the folder"},
    };
    if (!make_runs()) return;
    EXPECT(symlink("/dev/null", world_path("null")) == 0);
    EXPECT(file_make_dirs(world_path("w/old"), NULL));
    put("w/old/TOFU_EVAL.json", "{}\n");
    expect_unchanged(table, COUNT_OF(table));
}

/* A dry run and a run that is finished write nothing either. */
TEST(a_dry_run_and_a_finished_run_change_nothing) {
    static const char *const calm[] = {
        RUN "--out new --dry-run", RUN "--out run --resume", RUN "--out run --resume --dry-run --steps 9",
        "train --config run/config.yaml --resume", RUN "--out run --overwrite --dry-run"};
    Str before = {0}, after = {0}, out = {0}, err = {0};
    if (!make_runs()) return;
    world_snapshot(&before, test_tmp());
    for (int i = 0; i < COUNT_OF(calm); i++) {
        int code = world_run("w", world_binary(), NULL, calm[i]);
        str_clear(&after);
        world_snapshot(&after, test_tmp());
        world_said(&out, &err, "w");
        if (!EXPECT(code == 0)) test_note("    %s: exit %d\n%s", calm[i], code, str_text(&err));
        expect_same(&before, &after, calm[i]);
        if (i == 1 || i == 3)
            EXPECT(strstr(str_text(&err), "this run is finished: 6 of 6 steps") &&
                   strstr(str_text(&out), "\"finished_before\":true") && !strstr(str_text(&err), "nan") &&
                   strstr(str_text(&out), "\"result\":\"run/model\""));
    }
    str_free(&before), str_free(&after), str_free(&out), str_free(&err);
}
