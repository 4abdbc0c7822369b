/* outside.c - which commands there are, what they are given, and how their end is seen. */
#include "tests/budget/outside.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/test.h"
#include "tests/world.h"

#define TRAIN "train --model ../large --data ../rows.jsonl --out run --overwrite --seq 16 --steps 2 --log-steps 1 "
#define TALLY "--model ../tally "
#define FORGET "unlearn --json --run ../logged --forget ../forget.txt --out made --overwrite "

const OutsideCommand outside_command[] = {
    {"plan", "plan --json --model ../large --data ../rows.jsonl --seq 16 --threads 2", NULL, false},
    {"plan, answers", "plan --json --task generate --model ../large --budget 1GiB --threads 2", NULL, false},
    {"plan, a search", "plan --json --model qwen2.5-7b --gpu rtx-4090 --global-batch 16 --ladder", NULL, false},
    {"init", "init --json --model ../large --out made --overwrite --threads 2", NULL, false},
    {"convert", "convert --json --from llama2c ../tiny.bin --tokenizer ../tokenizer.bin --out made --overwrite",
     NULL, false},
    {"train, all weights", TRAIN "--mode full", NULL, true},
    {"train, fp32", TRAIN "--precision fp32 --micro-batch 2 --accum 2", NULL, true},
    {"train, fp16", TRAIN "--precision fp16", NULL, true},
    {"train, lora", TRAIN "--mode lora --recompute block", NULL, true},
    {"train, qlora", TRAIN "--mode lora --quantize nf4 --quantize-head int8", NULL, true},
    {"train, offload", TRAIN "--offload moments,gradients,inputs", NULL, true},
    {"train, disk", TRAIN "--offload moments=disk,gradients=disk --offload-dir off", NULL, true},
    {"train, evaluated", TRAIN "--val-split 0.3 --eval-steps 1 --save-steps 1 --save-total-limit 1 --moments 8bit",
     NULL, true},
    {"train, words", "train --json --model ../words --data ../text.jsonl --out run --overwrite --seq 32 --steps 2",
     NULL, true},
    {"eval", "eval --json --model ../large --data ../rows.jsonl --seq 16", NULL, true},
    {"eval, adapter", "eval --json --model ../large --adapter ../tuned/adapter --data ../rows.jsonl --seq 16",
     NULL, true},
    {"eval, benchmarks",
     "eval --json " TALLY
     "--suite needle,perplexity --data ../text.jsonl --lengths 384 --depths 1 --limit 1 --threads 2",
     NULL, true},
    {"tokenize", "tokenize --json --tokenizer ../words", "in.jsonl", false},
    {"merge", "merge --json --model ../large --adapter ../tuned/adapter --out made --overwrite --threads 2", NULL,
     false},
    {"quantize", "quantize --json --model ../large --quantize nf4 --quantize-head int8 --out made --overwrite",
     NULL, false},
    {"quantize, report", "quantize --json --model ../large --quantize int8 --report --data ../rows.jsonl --seq 16",
     NULL, true},
    {"generate", "generate --json " TALLY "--prompt 'Tom has 3 apples.' --max-tokens 8", NULL, true},
    {"generate, large", "generate --json --model ../large --prompts ../prompts.jsonl --max-tokens 4", NULL, true},
    {"train, parsed between updates",
     "train --json " TALLY "--data ../graphs.amr --val-split 0.5 --eval-steps 1 --save-best smatch --out run "
     "--overwrite --seq 96 --steps 2",
     NULL, true},
    {"amr parse", "amr parse ../graphs.amr --json " TALLY "--max-tokens 16 --out p.amr --overwrite", NULL, true},
    {"chat", "chat --json " TALLY "--max-tokens 8", "talk.txt", true},
    {"reason",
     "reason --json " TALLY "--dataset arithmetic --num-examples 2 --max-tokens 8 --judge-max-tokens 8 "
     "--out reason.json --overwrite",
     NULL, true},
    {"grpo",
     "grpo --json " TALLY
     "--parser test --max-samples 200 --eval-samples 4 --group 4 --global-batch 8 --prompt-tokens 32 "
     "--max-tokens 8 --steps 2 --out run --overwrite",
     NULL, true},
    {"grpo-eval",
     "grpo-eval --json " TALLY
     "--tuned ../tally --parser test --eval-samples 8 --evaluator same --evaluator-tokens 8 "
     "--prompt-tokens 32 --max-tokens 8 --best-of 2",
     NULL, true},
    {"grpo, two models",
     "grpo --json " TALLY
     "--parser test --max-samples 200 --eval-samples 4 --group 4 --global-batch 8 --prompt-tokens 32 --max-tokens 8 "
     "--evaluator same:int8 --evaluator-tokens 8 --beta 0.1 --mode lora --steps 2 --out run --overwrite",
     NULL, true},
    {"plan, grpo", "plan --json --task grpo " TALLY "--evaluator same:int8 --group 4 --global-batch 8", NULL, false},
    {"train, sparse", "train --json --model ../sparse --data ../text.jsonl --out run --overwrite --seq 64 --steps 2",
     NULL, true},
    {"train, logged", TRAIN "--optimizer sgd --clip 0 --precision fp32 --step-log --step-log-stride 1", NULL, true},
    {"unlearn", FORGET "--window 1", NULL, true},
    {"unlearn, v on the ring", FORGET "--window 1 --remove steps --correction device", NULL, true},
    {"unlearn, gauss-newton", FORGET "--window 1 --hessian gauss-newton", NULL, true},
    {"unlearn, npo", FORGET "--method npo --lr 1e-4 --epochs 2", NULL, true},
    {"unlearn-eval",
     "unlearn-eval --json " TALLY "--retain-model ../tally --data ../tofu --max-tokens 6 --out made --overwrite", NULL,
     true},
    {"prepare", "prepare --json --tokenizer ../tally --out made --overwrite ../text.jsonl", NULL, false},
    {"train, shards", "train --json " TALLY "--data ../shards --out run --overwrite --seq 32 --steps 2", NULL, true},
    {"problems", "problems --json --n 2000", NULL, false},
    {"amr check", "amr check ../graphs.amr --json", NULL, false},
    {"amr rows", "amr rows ../graphs.amr --json --out rows.jsonl --overwrite", NULL, false},
    {"amr draw", "amr draw --n 2000 --json --out drawn.amr --overwrite", NULL, false},
    {"smatch", "smatch ../graphs.amr ../graphs.amr --json", NULL, false},
    {"doctor", "doctor --json --quick --no-write --device cpu", NULL, true},
};
const int outside_commands = COUNT_OF(outside_command);

static void put(const char *name, const char *text) {
    Err e = {0};
    EXPECT_OK(file_write_all(world_path("%s", name), text, (int64_t)strlen(text), &e));
}

/* A folder like TOFU's: four sets of questions with right and wrong answers. */
static void put_tofu(void) {
    static const char *const sets[] = {"forget10", "retain_perturbed", "real_authors_perturbed",
                                       "world_facts_perturbed", "retain90"};
    char name[60];
    file_make_dirs(world_path("tofu"), NULL);
    for (int i = 0; i < COUNT_OF(sets); i++) {
        snprintf(name, sizeof name, "tofu/%s.json", sets[i]);
        put(name, "{\"question\":\"who is it\",\"answer\":\"it is Ada\",\"paraphrased_answer\":\"Ada\","
                  "\"perturbed_answer\":[\"Tom\",\"Eve\"]}\n"
                  "{\"question\":\"who was it\",\"answer\":\"it was Tom\",\"paraphrased_answer\":\"Tom\","
                  "\"perturbed_answer\":[\"Ada\",\"Eve\"]}\n");
    }
}

static bool make(const char *arguments) {
    Outside o = outside_run("made", arguments, NULL, NULL);
    bool ok = EXPECT(o.code == 0);
    if (!ok) test_note("    %s\n%s", arguments, str_text(&o.err));
    outside_free(&o);
    return ok;
}

bool outside_make(int embedding_mib) {
    enum { HIDDEN = 512 };
    const char *binary = getenv("SNUG");
    char arguments[600];
    if (!world_make(binary ? binary : "./snug")) return false;
    put("talk.txt", "hello\nhow much is 2 + 3?\n");
    put("graphs.amr", "#::snt A boy sings.\n(s / sing-01 :ARG0 (b / boy))\n\n"
                      "#::snt A dog runs.\n(r / run-02 :ARG0 (d / dog))\n");
    put("forget.txt", "1\n");
    put_tofu();
    put("prompts.jsonl", "{\"ids\":[1,2,3]}\n{\"ids\":[4,5,6,7]}\n{\"ids\":[8]}\n");
    snprintf(arguments, sizeof arguments,
             "init --model qwen2.5-0.5b --out ../large --set num_hidden_layers=2 --set hidden_size=%d --set "
             "num_attention_heads=4 --set num_key_value_heads=2 --set intermediate_size=512 --set vocab_size=%lld",
             HIDDEN, (long long)(embedding_mib * MIB / HIDDEN / 2));
    return make(arguments) && world_copy_tree("models/tally", world_path("tally"));
}

bool outside_make_all(int embedding_mib) {
    return outside_make(embedding_mib) &&
           make("convert --from dense ../tally --out ../sparse --overwrite") &&
           make("prepare --tokenizer ../tally --out ../shards --overwrite ../text.jsonl") &&
           make(
               "train --model ../large --data ../rows.jsonl --out ../logged --overwrite --seq 16 --steps 3 "
               "--optimizer sgd --clip 0 --precision fp32 --step-log --step-log-stride 2 --threads 2") &&
           make(
               "train --model ../large --data ../rows.jsonl --out ../tuned --overwrite --seq 16 --steps 1 --mode lora");
}

/* ---- processes ---- */

/* In the child: what it may take; then the command, in its folder. */
static void become(const char *folder, const char *arguments, const char *input, int input_fd,
                   const OutsideLimit *l) {
    static const struct rlimit cpu = {600, 600}; /* what hangs is ended */
    char command[3000], cwd[1000], pid[24];
    const char *binary = getenv("SNUG") ? getenv("SNUG") : "./snug";
    bool whole = binary[0] == '/';
    if (!getcwd(cwd, sizeof cwd)) _exit(126);
    snprintf(command, sizeof command, "%s exec %s%s%s %s >../%s.out 2>../%s.err",
             l && l->environment ? l->environment : "", whole ? "" : cwd, whole ? "" : "/", binary, arguments,
             folder, folder);
    int fd = input_fd >= 0 ? input_fd : open(input ? world_path("%s", input) : "/dev/null", O_RDONLY);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    int group = l && l->group ? open(l->group, O_WRONLY) : -1;
    if (l && l->group && (group < 0 || write(group, pid, strlen(pid)) < 0)) _exit(125);
    struct rlimit some = {l ? (rlim_t)l->bytes : 0, l ? (rlim_t)l->bytes : 0};
    if (fd < 0 || dup2(fd, 0) < 0 || chdir(world_path("%s", folder)) || setrlimit(RLIMIT_CPU, &cpu)) _exit(126);
    if (l && l->bytes && setrlimit(l->resource, &some)) _exit(125);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static pid_t start(const char *folder, const char *arguments, const char *input, int input_fd,
                   const OutsideLimit *l) {
    file_make_dirs(world_path("%s", folder), NULL);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become(folder, arguments, input, input_fd, l);
    return pid;
}

Outside outside_wait(pid_t pid, const char *folder) {
    int status = 0;
    struct rusage used = {0};
    Outside o = {.code = -1};
    if (wait4(pid, &status, 0, &used) != pid) return o;
    o.signalled = WIFSIGNALED(status);
    o.code = o.signalled ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    o.peak_bytes = used.ru_maxrss * KIB;
    world_said(&o.out, &o.err, folder);
    return o;
}

Outside outside_run(const char *folder, const char *arguments, const char *input, const OutsideLimit *limit) {
    return outside_wait(start(folder, arguments, input, -1, limit), folder);
}

pid_t outside_start(const char *folder, const char *arguments, int *input) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return -1;
    pid_t pid = start(folder, arguments, NULL, ends[0], NULL);
    close(ends[0]);
    *input = ends[1];
    return pid;
}

void outside_free(Outside *o) {
    str_free(&o->out);
    str_free(&o->err);
}

int64_t outside_number(const Outside *o, const char *key) {
    const char *text = str_text(&o->out), *last = text;
    for (const char *c = text; *c; c++)
        if (*c == '\n' && c[1]) last = c + 1;
    json_t *j = json_loads(last, 0, NULL);
    const json_t *v = json_object_get(j, key);
    int64_t n = json_is_integer(v) ? (int64_t)json_integer_value(v) : -1;
    json_decref(j);
    return n;
}
