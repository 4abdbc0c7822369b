/* test_faults.c - every command, with every call to the system failing once: it says what failed, leaves with the
 * right code, never leaves half a thing under a final name, and the next run puts everything right.
 *
 * make check-all takes every call of every kind but the heap's, of which it takes an even spread, the first and the
 * last included (120 a command; in a quick check, and with the sanitizers, whose processes are slow to start, 12 of
 * every kind). FAULTS_ALL=1 (make faults-all) takes all; of the heap with the sanitizers a spread of 120, as a refused
 * allocation ends the process there. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/test.h"
#include "tests/world.h"

enum { BRIEF = 12, HEAP_SPREAD = 120, EVERY = 10000, BEYOND = 100000 };

static const char *const kinds[] = {"alloc",  "map",      "open", "read",   "write", "cut",   "flush",
                                    "rename", "exchange", "make", "remove", "lock",  "thread", "process"};
enum { KINDS = sizeof kinds / sizeof *kinds, SEEN = 4096, JOBS = 1 << 18 };

typedef struct Scenario {
    const char *name;
    const char *arguments; /* run in its own folder: inputs are beside it, "out" is its own */
    const char *input;     /* standard input */
    const char *before;    /* a folder that is there as "out" when the command begins; NULL: none */
    const char *want;      /* what "out" is compared with; NULL: with what an undisturbed run leaves */
    bool says_same;        /* its standard output is the same every time */
    bool is_run;           /* "out" is a run's: go on with --resume when there is a checkpoint */
    bool few;              /* a process takes long: as few faults as in a quick check */
} Scenario;

typedef struct Job {
    int kind, n;
    bool beyond; /* more than there are calls: nothing happens */
} Job;

typedef struct Sweep {
    const Scenario *s;
    const char *binary;
    Str said; /* standard output of the undisturbed run */
    char want[300];
    Job *job;
    int jobs;
    unsigned long long seen[SEEN]; /* states of the disk from which going on has been shown (by this process) */
    int n_seen;
    char resume[1000]; /* the arguments with --resume */
} Sweep;

static const char *before_of(const Scenario *s) {
    return s->before ? world_path("%s", s->before) : NULL;
}

/* A fresh folder of this worker, with "out" as the command finds it. */
static bool prepare(const Scenario *s, const char *folder) {
    Err e = {0};
    if (!file_remove_tree(world_path("%s", folder), &e) || !file_make_dirs(world_path("%s", folder), &e))
        return false;
    return !s->before || world_copy_tree(before_of(s), world_path("%s/out", folder));
}

/* ---- one fault ---- */

static bool complain(const Sweep *w, const Job *j, const char *what, const char *said) {
    static int told;
    if (told++ < 5)
        fprintf(stderr, "  %s --fault %s:%d: %s\n%.3000s\n", w->s->arguments, kinds[j->kind], j->n, what, said);
    return false;
}

/* What the hook was told about the call that failed, without the part that a temporary name adds. "": not fired. */
static void fired_at(char *what, size_t size, const Job *j, const char *err) {
    char label[60];
    snprintf(label, sizeof label, "fault: %s %d fails: ", kinds[j->kind], j->n);
    const char *line = strstr(err, label);
    what[0] = 0;
    if (!line) return;
    snprintf(what, size, "%.*s", (int)strcspn(line + strlen(label), "\n"), line + strlen(label));
    char *cut = strstr(what, ".tmp-"), *slash;
    if (cut) *cut = 0;
    if ((slash = strrchr(what, '/'))) memmove(what, slash + 1, strlen(slash));
}

/* The last word is the program's; what failed may have been said before, in a warning. */
static bool message_names(const char *err, const char *kind, const char *what) {
    const char *message = strncmp(err, "snug: ", 6) ? strstr(err, "\nsnug: ") : err,
               *warning = strstr(err, "\nwarning: ");
    if (!message) return false;
    if (warning && strstr(warning, what)) return true;
    if (!strcmp(kind, "alloc")) return strstr(message, "refused") && strstr(message, "bytes of memory");
    if (!strcmp(kind, "thread")) return strstr(message, "thread") != NULL;
    if (!strcmp(kind, "map")) return strstr(message, "pool") != NULL;
    return strstr(message, what) != NULL;
}

static bool is_unclean(const char *err) {
    return strstr(err, "Sanitizer") || strstr(err, "runtime error:") || strstr(err, "snug: bug at");
}

/* The command once more, undisturbed: it ends well, with everything as if nothing had happened. */
static bool go_on(Sweep *w, const Job *j, const char *folder, Str *err) {
    const Scenario *s = w->s;
    const char *now = world_path("%s/out", folder);
    unsigned long long state = world_fingerprint(world_path("%s", folder));
    for (int i = 0; i < w->n_seen; i++)
        if (w->seen[i] == state) return true;
    if (w->n_seen < SEEN) w->seen[w->n_seen++] = state;
    Str why = {0};
    bool done = !s->is_run && file_exists(now) &&
                world_check_tree(&why, now, w->want, NULL, true); /* only the last flush failed */
    str_clear(&why);
    bool resumed = s->is_run && world_has_checkpoint(now);
    bool ok = done || (world_run(folder, w->binary, s->input, resumed ? w->resume : s->arguments) == 0 &&
                       world_check_tree(&why, now, w->want, NULL, true));
    if (ok && s->is_run && world_temporaries(now))
        ok = (str_add(&why, "a temporary remains in the run folder"), false);
    world_said(NULL, err, folder);
    str_addf(&why, "\n%s", str_text(err));
    if (!ok) complain(w, j, resumed ? "the run cannot be resumed" : "the next run fails", str_text(&why));
    str_free(&why);
    return ok;
}

static bool judge(Sweep *w, const Job *j, const char *folder, int code) {
    Str out = {0}, err = {0}, why = {0};
    char what[300];
    world_said(&out, &err, folder);
    fired_at(what, sizeof what, j, str_text(&err));
    bool done = code == 0, ok = true, fewer = !what[0] && world_made_fewer(str_text(&err), kinds[j->kind], j->n),
         beyond = j->beyond || fewer;
    if (beyond ? what[0] || code : !what[0])
        ok = complain(w, j, beyond ? "was to end well" : "did not fire", str_text(&err));
    else if (code != 0 && code != 1)
        ok = complain(w, j, "another exit code than 0 or 1", str_text(&err));
    else if (is_unclean(str_text(&err)))
        ok = complain(w, j, "a report", str_text(&err));
    else if (code && !message_names(str_text(&err), kinds[j->kind], what))
        ok = complain(w, j, "the message does not name it", str_text(&err));
    else if (done && w->s->says_same && strcmp(str_text(&out), str_text(&w->said)))
        ok = complain(w, j, "ended well with another output", str_text(&out));
    else if (!world_check_tree(&why, world_path("%s/out", folder), w->want, before_of(w->s), done))
        ok = complain(w, j, str_text(&why), str_text(&err));
    ok = ok && (done || go_on(w, j, folder, &err));
    str_free(&out), str_free(&err), str_free(&why);
    return ok;
}

static bool one_fault(void *context, int worker, int i) {
    Sweep *w = context;
    const Job *j = &w->job[i];
    char folder[40], arguments[1000];
    snprintf(folder, sizeof folder, "work%d", worker);
    snprintf(arguments, sizeof arguments, "%s --fault %s:%d", w->s->arguments, kinds[j->kind], j->n);
    if (!prepare(w->s, folder)) return complain(w, j, "the test cannot make its folder", "");
    return judge(w, j, folder, world_run(folder, w->binary, w->s->input, arguments));
}

/* ---- all faults of a command ---- */

static int most_of(const Scenario *s, int kind) { /* calls that are made to fail, of those of a kind */
    bool all = getenv("FAULTS_ALL") != NULL, heap = kind == 0;
    if (!all && (test_brief() || s->few)) return BRIEF;
    return heap && (!all || test_sanitized()) ? HEAP_SPREAD : EVERY;
}

static void add_jobs(Sweep *w, int kind, int counted) {
    int most = most_of(w->s, kind), takes = counted < most ? counted : most;
    for (int i = 0; i < takes; i++)
        w->job[w->jobs++] = (Job){kind, takes > 1 ? 1 + (int)((int64_t)i * (counted - 1) / (takes - 1)) : 1, false};
    w->job[w->jobs++] = (Job){kind, counted + BEYOND, true};
}

static void sweep(const Scenario *s) {
    Sweep *w = MEM_NEW(Sweep, 1);
    Str err = {0};
    w->s = s;
    w->binary = getenv("FAULTY");
    w->job = MEM_NEW(Job, JOBS);
    snprintf(w->want, sizeof w->want, "%s", world_path("%s", s->want ? s->want : "base/out"));
    snprintf(w->resume, sizeof w->resume, "%s%s", s->arguments,
             strstr(s->arguments, "--resume") ? "" : " --resume");
    bool ok = EXPECT(prepare(s, "base")) && EXPECT(world_run("base", w->binary, s->input, s->arguments) == 0);
    world_said(&w->said, &err, "base");
    if (!ok) test_note("    %s", str_text(&err));
    for (int k = 0; k < KINDS && ok; k++) {
        int calls = world_calls(str_text(&err), kinds[k]);
        if (EXPECT(calls >= 0)) add_jobs(w, k, calls);
    }
    ok = ok && EXPECT(world_share(one_fault, w, w->jobs));
    if (getenv("VERBOSE"))
        printf("  %s: %d faults of\n  %s", s->name, w->jobs, strstr(str_text(&err), "fault: calls"));
    str_free(&w->said), str_free(&err);
    mem_free(w->job);
    mem_free(w);
}

#define TINY                                                                                                  \
    "--set num_hidden_layers=1 --set hidden_size=16 --set num_attention_heads=2 --set num_key_value_heads=1 " \
    "--set intermediate_size=16 --set vocab_size=64"
#define RUN                                                                                                  \
    "train --model ../model --data ../rows.jsonl --out out --seq 16 --steps 5 --save-steps 2 --log-steps 1 " \
    "--threads 1 "                                                                                           \
    "--budget 1GiB --micro-batch 2"

TEST(plan_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty())) return;
    sweep(&(Scenario){.name = "plan", .arguments = "plan --model ../model --seq 16 --budget 1GiB"});
    sweep(&(Scenario){.name = "plan a recipe", .arguments = "plan --config ../recipe.yaml --budget 1GiB --json"});
}

TEST(init_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty())) return;
    sweep(&(Scenario){.name = "init", .arguments = "init --model llama-3.2-1b --out out " TINY});
    sweep(&(Scenario){.name = "init over a model",
                      .arguments = "init --model llama-3.2-1b --seed 5 --overwrite --out out " TINY,
                      .before = "model"});
    sweep(&(Scenario){
        .name = "init over a model, where names cannot be exchanged",
        .before = "model",
        .arguments = "init --model llama-3.2-1b --seed 5 --overwrite --out out " TINY " --fault exchange:1"});
}

TEST(convert_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty())) return;
    sweep(&(Scenario){.name = "convert",
                      .arguments = "convert ../tiny.bin --from llama2c --tokenizer ../tokenizer.bin --out out"});
}

TEST(tokenize_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty())) return;
    sweep(&(Scenario){.name = "tokenize",
                      .arguments = "tokenize --tokenizer ../words",
                      .input = "../in.jsonl",
                      .says_same = true});
}

#define PREPARE "prepare --tokenizer ../reader --shard-tokens 40 --threads 1 ../text.jsonl --out "

/* A model that names an end of text, which stands behind every document. */
static bool make_reader(void) {
    return world_faulty() && world_make(world_faulty()) &&
           EXPECT(world_run("made", getenv("FAULTY"), NULL,
                            "init --model llama-3.2-1b --out ../reader --tokenizer ../words --dtype fp32 --set "
                            "eos_token_id=2 "
                            "--set num_hidden_layers=1 --set hidden_size=16 --set num_attention_heads=2 "
                            "--set num_key_value_heads=1 --set intermediate_size=16 --set vocab_size=424") == 0);
}

TEST(prepare_survives_every_fault) {
    if (!make_reader()) return;
    sweep(&(Scenario){.name = "prepare", .arguments = PREPARE "out"});
}

TEST(train_from_shards_survives_every_fault) {
    if (!make_reader()) return;
    if (!EXPECT(world_run("made", getenv("FAULTY"), NULL, PREPARE "../tokens") == 0)) return;
    sweep(&(Scenario){.name = "train from shards",
                      .is_run = true,
                      .arguments =
                          "train --model ../reader --data ../tokens --out out --seq 16 --steps 3 --save-steps 2 "
                          "--log-steps 1 --threads 1 --budget 1GiB --micro-batch 2"});
}

/* Leaves the first checkpoint of a finished run in `to`, as if the process had ended there. */
static bool first_checkpoint_only(const char *from, const char *to) {
    static const char *const later[] = {"checkpoint-4", "checkpoint-5", "model", "adapter"};
    bool ok = world_copy_tree(world_path("%s", from), world_path("%s", to));
    for (int i = 0; i < 4; i++) ok = ok && file_remove_tree(world_path("%s/%s", to, later[i]), NULL);
    return EXPECT(ok);
}

/* An undisturbed run that keeps all its checkpoints, as out of `folder`. */
static bool make_run(const char *folder, const char *more) {
    char arguments[1000];
    snprintf(arguments, sizeof arguments, RUN " %s", more);
    return EXPECT(world_run(folder, world_faulty(), NULL, arguments) == 0);
}

TEST(full_training_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_run("full", "")) return;
    sweep(&(Scenario){.name = "train dry", .arguments = RUN " --threads 2 --dry-run"});
    sweep(&(Scenario){.name = "train", .arguments = RUN, .want = "full/out", .is_run = true});
}

/* What the system refuses to the thread that writes the log, the run writes itself. */
TEST(training_with_a_step_log_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty())) return;
    sweep(&(Scenario){.name = "train, logged",
                      .is_run = true,
                      .few = true,
                      .arguments = RUN " --optimizer sgd --step-log --step-log-stride 2 --step-log-updates int8 "
                                       "--step-log-states copied"});
}

TEST(resumed_training_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_run("full", "")) return;
    if (!first_checkpoint_only("full/out", "part")) return;
    sweep(&(Scenario){
        .name = "resume", .arguments = RUN " --resume", .want = "full/out", .before = "part", .is_run = true});
    sweep(&(Scenario){.name = "resume what is done",
                      .arguments = RUN " --resume",
                      .want = "full/out",
                      .before = "full/out",
                      .is_run = true});
}

#define LORA "--mode lora --val-split 0.25 --eval-steps 2 --data-workers 2"

TEST(adapter_training_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_run("lora", LORA)) return;
    sweep(&(Scenario){.name = "train an adapter", .arguments = RUN " " LORA, .want = "lora/out", .is_run = true});
}

TEST(resumed_adapter_training_that_drops_checkpoints_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_run("lora", LORA)) return;
    if (!make_run("lora2", LORA " --save-total-limit 2") || !first_checkpoint_only("lora/out", "part")) return;
    sweep(&(Scenario){.name = "resume an adapter",
                      .arguments = RUN " " LORA " --save-total-limit 2 --resume",
                      .want = "lora2/out",
                      .before = "part",
                      .is_run = true});
}

TEST(eval_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_run("lora", LORA)) return;
    sweep(&(Scenario){.name = "eval",
                      .arguments = "eval --model ../words --data ../text.jsonl --seq 16 --threads 2",
                      .says_same = true});
    sweep(&(Scenario){.name = "eval an adapter",
                      .arguments = "eval --model ../model --adapter ../lora/out/adapter --data ../rows.jsonl "
                                   "--seq 16 --threads 2",
                      .says_same = true});
}

TEST(merge_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_run("lora", LORA)) return;
    sweep(&(Scenario){.name = "merge",
                      .arguments = "merge --model ../model --adapter ../lora/out/adapter --out out --threads 2"});
}

/* A model whose words are all in its tokenizer: random weights say anything. */
static bool make_talker(void) {
    char cwd[400], arguments[1000];
    if (!getcwd(cwd, sizeof cwd)) return false;
    snprintf(arguments, sizeof arguments,
             "init --model llama-3.2-1b --out ../talker --tokenizer \"%s/tests/data/tok_smollm2\" --dtype fp32 " TINY
             " --set vocab_size=424",
             cwd);
    return EXPECT(world_run("made", world_faulty(), NULL, arguments) == 0);
}

TEST(reason_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_talker()) return;
    sweep(&(Scenario){.name = "reason",
                      .arguments = "reason --model ../talker --num-examples 2 --max-iterations 1 --max-tokens 6 "
                                   "--judge-max-tokens 4 --context 512 --invariant --threads 1 --budget 1GiB "
                                   "--out out/reason.json"});
}

TEST(benchmarks_survive_every_fault) {
    static const char rows[] = "{\"passage\":\"A cat sat.\",\"question\":\"did a cat sit\",\"label\":1}\n"
                               "{\"passage\":\"A dog ran.\",\"question\":\"did a cat run\",\"label\":0}\n";
    if (!world_faulty() || !world_make(world_faulty()) ||
        !EXPECT(file_write_all(world_path("boolq.jsonl"), rows, sizeof rows - 1, NULL)))
        return;
    sweep(&(Scenario){.name = "benchmarks",
                      .arguments =
                          "eval --model ../words --suite boolq --suite-data .. --slots 2 --invariant --threads 1 "
                          "--budget 1GiB --items items.jsonl"});
}

TEST(amr_parse_survives_every_fault) {
    static const char blocks[] = "#::snt a b\n(a / b)\n\n#::snt c\n(c / d)\n";
    if (!world_faulty() || !world_make(world_faulty()) ||
        !EXPECT(file_write_all(world_path("graphs.amr"), blocks, sizeof blocks - 1, NULL)))
        return;
    sweep(&(Scenario){
        .name = "amr parse",
        .arguments = "amr parse ../graphs.amr --model ../words --max-tokens 4 --slots 2 --invariant --threads 1 "
                     "--budget 1GiB --resume --out out/graphs.amr"});
}

TEST(generate_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty())) return;
    sweep(&(Scenario){.name = "generate",
                      .arguments = "generate --model ../model --prompts ../rows.jsonl --max-tokens 4 --ignore-eos "
                                   "--n 2 --temperature 1 --slots 3 --invariant --threads 1 --budget 1GiB --resume "
                                   "--out out/answers.jsonl"});
}

/* ---- a policy, samples taken out again, graphs ---- */

#define POLICY                                                                                                        \
    "--parser test --eval-samples 2 --prompt-tokens 48 --max-tokens 4 --group 2 --global-batch 4 --threads 1 "         \
    "--budget 1GiB "

/* A folder for a file: commands that write lines do not make the folder they lie in. */
static bool make_place(void) {
    return EXPECT(file_make_dirs(world_path("place"), NULL) &&
                  file_write_all(world_path("place/note.txt"), "a\n", 2, NULL));
}

TEST(grpo_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_talker()) return;
    sweep(&(Scenario){.name = "grpo",
                      .is_run = true,
                      .arguments = "grpo --model ../talker " POLICY "--max-samples 8 --steps 3 --save-steps 2 "
                                   "--log-steps 1 --micro-batch 2 --out out"});
}

TEST(a_comparison_of_policies_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_talker() || !make_place()) return;
    sweep(&(Scenario){.name = "grpo-eval",
                      .before = "place",
                      .arguments =
                          "grpo-eval --model ../talker --tuned ../talker --parser test --eval-samples 2 "
                          "--prompt-tokens 48 --max-tokens 4 --threads 1 --budget 1GiB --out out/lines.jsonl"});
}

#define FORGET                                                                                       \
    "unlearn --run ../logged/out --forget ../forget.txt --other-binary --threads 1 --budget 1GiB --out out --overwrite "

static bool make_logged_run(void) {
    return EXPECT(file_write_all(world_path("forget.txt"), "1\n", 2, NULL)) &&
           EXPECT(world_run("logged", world_faulty(), NULL,
                            "train --model ../model --data ../rows.jsonl --out out --seq 16 --steps 4 --optimizer sgd "
                            "--clip 0 --precision fp32 --step-log --step-log-stride 2 --threads 1 --budget 1GiB") == 0);
}

/* Each process compares its own binary with the log's, which takes a while. */
TEST_SLOW(unlearning_along_a_log_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_logged_run()) return;
    sweep(&(Scenario){.name = "unlearn", .arguments = FORGET "--window 2", .few = true});
}

TEST(unlearning_by_a_loss_survives_every_fault) {
    if (!world_faulty() || !world_make(world_faulty()) || !make_logged_run()) return;
    sweep(&(Scenario){.name = "unlearn by a loss", .arguments = FORGET "--method npo --lr 1e-3 --epochs 1"});
}

TEST(scores_of_graphs_survive_every_fault) {
    static const char blocks[] = "#::snt a b\n(a / b :mod (c / d))\n\n#::snt c\n(c / d)\n";
    if (!world_faulty() || !world_make(world_faulty()) ||
        !EXPECT(file_write_all(world_path("graphs.amr"), blocks, sizeof blocks - 1, NULL)) || !make_place())
        return;
    sweep(&(Scenario){.name = "smatch", .arguments = "smatch ../graphs.amr ../graphs.amr", .says_same = true});
    sweep(&(Scenario){.name = "amr rows",
                      .arguments = "amr rows ../graphs.amr --out out/rows.jsonl", .before = "place"});
}
