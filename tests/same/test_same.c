/* test_same.c - saving memory never changes the answer: each memory feature on equals off, bit for bit; resumed
 * equals uninterrupted; threads 1 equals N. Shown by losses to the last digit and the checksum of what was trained.
 * What is only equal to rounding (another split of the global batch) is held against stated bounds. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

enum { STEPS = 6, ROWS = 22, SEQ = 96, VOCAB = 300 };

typedef struct Outcome {
    double loss[64];
    int n;
    char checksum[24];
    double eval_loss;
} Outcome;

/* Rows of different lengths with a prompt that is not scored; drawn by a fixed key. */
static void write_data(const char *path) {
    Str text = {0};
    uint64_t key = rng_fold(7, 7);
    for (int r = 0; r < ROWS; r++) {
        int n = 20 + (int)(rng_u32(key, (uint64_t)r) % 76), prompt = n / 3;
        str_add(&text, "{\"ids\":[");
        for (int i = 0; i < n; i++)
            str_addf(&text, i ? ",%d" : "%d", (int)(rng_u32(key, (uint64_t)(1000 + r * 200 + i % 7)) % VOCAB));
        str_add(&text, "],\"labels\":[");
        for (int i = 0; i < n; i++)
            str_addf(&text, i ? ",%d" : "%d",
                     i < prompt ? -100 : (int)(rng_u32(key, (uint64_t)(1000 + r * 200 + i % 7)) % VOCAB));
        str_add(&text, "]}\n");
    }
    file_write_all(path, text.data, text.len, NULL);
    str_free(&text);
}

static const char *model(void) {
    static char path[200];
    snprintf(path, sizeof path, "%s/model", test_tmp());
    if (!file_is_dir(path)) {
        Ran r = snug_run(
            "init --model qwen2.5-0.5b --out %s --set num_hidden_layers=3 --set hidden_size=64 --set "
            "num_attention_heads=4 --set num_key_value_heads=2 --set intermediate_size=112 --set vocab_size=%d",
            path, VOCAB);
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
        char data[220];
        snprintf(data, sizeof data, "%s/rows.jsonl", test_tmp());
        write_data(data);
    }
    return path;
}

static void read_outcome(Outcome *o, const Ran *r, const char *out) {
    json_t *j = ran_json(r);
    if (!EXPECT(r->code == 0 && j)) test_note("%s", str_text(&r->err));
    const char *sum = json_string_value(json_object_get(j, "checksum"));
    snprintf(o->checksum, sizeof o->checksum, "%s", sum ? sum : "?");
    o->eval_loss = json_number_value(json_object_get(j, "eval_loss"));
    json_decref(j);
    o->n = snug_metrics(out, "train", "loss", o->loss, 64);
}

static Outcome train(const char *name, const char *flags) {
    Outcome o = {0};
    char out[200];
    snprintf(out, sizeof out, "%s/out-%s", test_tmp(), name);
    Ran r = snug_run(
        "train --model %s --data %s/rows.jsonl --out %s --seq %d --global-batch 8 --steps %d --log-steps 1 --lr 3e-3 "
        "--val-split 0.2 %s",
        model(), test_tmp(), out, SEQ, STEPS, flags);
    read_outcome(&o, &r, out);
    EXPECT(o.n == STEPS);
    ran_free(&r);
    return o;
}

static void drop_run(const char *name) { /* what a hundred runs leave does not fit into memory */
    char folder[200];
    snprintf(folder, sizeof folder, "%s/out-%s", test_tmp(), name);
    file_remove_tree(folder, NULL);
}

static void expect_same(const Outcome *a, const Outcome *b, const char *what) {
    bool same = a->n == b->n && !strcmp(a->checksum, b->checksum) && a->eval_loss == b->eval_loss;
    for (int i = 0; i < a->n && i < b->n; i++) same &= a->loss[i] == b->loss[i];
    if (!EXPECT(same)) {
        test_note("    %s: checksum %s against %s, evaluation %.17g against %.17g", what, a->checksum, b->checksum,
                  a->eval_loss, b->eval_loss);
        for (int i = 0; i < a->n && i < b->n; i++)
            if (a->loss[i] != b->loss[i]) {
                test_note("    step %d: %.17g against %.17g", i + 1, a->loss[i], b->loss[i]);
                break;
            }
    }
}

/* Batches differ, so an epoch is held against the one before. */
static bool learns(const Outcome *o) {
    double first = 0, second = 0;
    for (int i = 0; i < STEPS / 2; i++) first += o->loss[i], second += o->loss[STEPS / 2 + i];
    return second < first;
}

static const char *const modes[] = {
    "--precision fp32", "--precision bf16", "--precision bf16 --master fp32 --moments fp32",
    "--precision bf16 --moments 8bit",
    /* some steps overflow, some grow */
    "--precision fp16 --loss-scale 2e6 --loss-scale-window 2", "--mode lora --lora-rank 8 --lora-dropout 0.1",
    "--mode lora --precision fp32 --lora-targets q,v,down", "--mode lora --quantize int8",
    "--mode lora --quantize nf4 --precision fp32"};
static const char *const plain = "--micro-batch 4 --threads 2 --recompute none";

TEST(every_memory_feature_keeps_the_bits) {
    static const char *const features[] = {
        "--micro-batch 4 --threads 2 --recompute norm",
        "--micro-batch 4 --threads 2 --recompute ffn",
        "--micro-batch 4 --threads 2 --recompute block",
        "--micro-batch 4 --threads 2 --recompute block:0,ffn:1,norm:2",
        "--micro-batch 4 --threads 2 --head-chunk 128",
        "--micro-batch 4 --threads 2 --head-chunk 256",
        "--micro-batch 4 --threads 2 --offload weights",
        "--micro-batch 4 --threads 2 --offload moments,gradients=2",
        "--micro-batch 4 --threads 2 --recompute block --offload inputs",
        "--micro-batch 4 --threads 2 --recompute twice",
        "--micro-batch 4 --threads 2 --recompute twice:0-1,block:2 --offload weights,moments,inputs",
        "--micro-batch 4 --threads 2 --recompute block:0-1 --offload weights=2,moments,gradients,inputs=2",
        "--micro-batch 4 --threads 1",
        "--micro-batch 4 --threads 3 --recompute block --head-chunk 128",
        "--micro-batch 4 --threads 2 --ahead on",
        "--micro-batch 4 --threads 2 --ahead on --data-workers 1",
        "--micro-batch 4 --threads 2 --data-workers 3",
        "--micro-batch 4 --threads 2 --trim-every 2 --ahead on",
    };
    test_tmp_in_memory();
    enum { SHARE = 6 }; /* in brief each mode meets every sixth feature, the next mode those beside them */
    int stride = snug_device() ? 4 : 1; /* on a device each run opens it */
    for (int m = 0; m < (int)(sizeof modes / sizeof *modes); m += stride) {
        char flags[400], name[32];
        snprintf(flags, sizeof flags, "%s %s", modes[m], plain);
        snprintf(name, sizeof name, "m%d", m);
        Outcome base = train(name, flags);
        EXPECT(base.n == STEPS && learns(&base));
        for (int f = 0; f < (int)(sizeof features / sizeof *features); f++) {
            if (test_brief() && (f + m) % SHARE) continue;
            /* on a GPU a head's sums are cut by its chunk, and threads are the host's */
            if (snug_device() && (strstr(features[f], "--head-chunk") || strstr(features[f], "--threads 1"))) continue;
            snprintf(flags, sizeof flags, "%s %s", modes[m], features[f]);
            snprintf(name, sizeof name, "m%d-f%d", m, f);
            Outcome o = train(name, flags);
            expect_same(&o, &base, flags);
            drop_run(name);
        }
    }
}

/* One micro-batch an update: a gradient is written anew by its first writer, and added to by a second. */
TEST(offload_keeps_the_bits_without_accumulation) {
    static const char *const kinds[] = {"gradients", "weights,moments,gradients,inputs --recompute block"};
    Outcome base = train("a", "--precision bf16 --micro-batch 8 --offload none");
    for (int k = 0; k < 2; k++) {
        char flags[200], name[16];
        snprintf(flags, sizeof flags, "--precision bf16 --micro-batch 8 --offload %s", kinds[k]);
        snprintf(name, sizeof name, "a-%d", k);
        Outcome o = train(name, flags);
        expect_same(&o, &base, flags);
    }
}

/* The sums over a global batch are grouped otherwise: equal to rounding, that of fp32 sums or of 16-bit gradients,
 * which are rounded once for each micro-batch. The bounds are stated in docs/techniques.md. Before the first
 * update nothing differs but the sum of the rows' losses, which is fp64. */
TEST(every_split_of_the_global_batch_gives_the_same_losses) {
    static const char *const splits[] = {"--micro-batch 8", "--micro-batch 4", "--micro-batch 2",
                                         "--micro-batch 1", "--micro-batch 3", "--micro-batch 5"};
    static const struct {
        const char *flags;
        double most; /* of |loss - loss of one micro-batch| / loss */
    } kinds[] = {{"--precision fp32", 2e-5},
                 {"--mode lora --precision fp32 --lora-dropout 0.2", 2e-5},
                 {"--precision bf16", 5e-3},
                 {"--precision fp16", 5e-3}};
    test_tmp_in_memory();
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        Outcome base = {0};
        for (int i = 0; i < COUNT_OF(splits); i += test_brief() ? 4 : 1) {
            char flags[300], name[32];
            snprintf(flags, sizeof flags, "%s %s", kinds[k].flags, splits[i]);
            snprintf(name, sizeof name, "s%d-%d", k, i);
            Outcome o = train(name, flags);
            drop_run(name);
            if (!i) base = o;
            for (int s = 0; s < STEPS; s++) {
                double most = s || snug_device() ? kinds[k].most : 1e-12;
                if (!EXPECT(fabs(o.loss[s] - base.loss[s]) <= most * base.loss[s]))
                    test_note("    %s, step %d: %.9g against %.9g", flags, s + 1, o.loss[s], base.loss[s]);
            }
        }
    }
}

/* What holds nothing between updates leaves the process, and comes back: "step 2: 8,871,936 bytes given back in 0.3 ms
 * (12,443,648 bytes held, then 3,571,712), ..." */
static int64_t number_before(const char *text, const char *word) {
    const char *end = strstr(text, word), *c = end;
    int64_t n = 0;
    while (c && c > text && (c[-1] == ',' || (c[-1] >= '0' && c[-1] <= '9'))) c--;
    for (; c && c < end; c++)
        if (*c != ',') n = n * 10 + *c - '0';
    return n;
}

TEST(trimmed_memory_leaves_the_process_and_comes_back) {
    enum { TOKENS = 8 * SEQ };
    char out[200];
    snprintf(out, sizeof out, "%s/out-trim", test_tmp());
    Ran r = snug_run(
        "train --model %s --data %s/rows.jsonl --out %s --seq %d --global-batch 8 --micro-batch 8 --steps 5 "
        "--log-steps 1 --precision fp32 --trim-every 2 --cleanup-delay 0.01 --no-save",
        model(), test_tmp(), out, SEQ);
    const char *line = strstr(str_text(&r.err), "step 2: ");
    if (!EXPECT(r.code == 0 && line && strstr(line, "step 4: ") && !strstr(line, "step 3: ")))
        test_note("%s", str_text(&r.err));
    if (line) {
        int64_t given = number_before(line, " bytes given"), held = number_before(line, " bytes held");
        int64_t then = number_before(line, "), taken");
        if (!EXPECT(given > TOKENS * VOCAB * 4 && held - then > given / 10 * 9 &&
                    held - then < given / 10 * 11)) /* logits, at least */
            test_note("    %lld given back, %lld held, then %lld", (long long)given, (long long)held, (long long)then);
    }
    json_t *j = ran_json(&r);
    EXPECT(json_integer_value(json_object_get(j, "allocations_after_first_step")) == 0);
    json_decref(j);
    ran_free(&r);
}

TEST(resumed_equals_uninterrupted) {
    for (int m = 0; m < (int)(sizeof modes / sizeof *modes); m += snug_device() || test_brief() ? 4 : 1) {
        char flags[400], name[32], out[200];
        snprintf(flags, sizeof flags, "%s %s --save-steps 2", modes[m], plain);
        snprintf(name, sizeof name, "whole%d", m);
        Outcome whole = train(name, flags);
        /* the same run cut off after step 4: the later checkpoint is gone */
        snprintf(out, sizeof out, "%s/out-whole%d", test_tmp(), m);
        char cut[260];
        snprintf(cut, sizeof cut, "%s/checkpoint-6", out);
        file_remove_tree(cut, NULL);
        Ran r = snug_run(
            "train --model %s --data %s/rows.jsonl --out %s --seq %d --global-batch 8 --steps %d --log-steps 1 --lr "
            "3e-3 "
            "--val-split 0.2 %s --micro-batch 4 --threads 1 --recompute block --save-steps 2 --resume %s",
            model(), test_tmp(), out, SEQ, STEPS, modes[m], m % 2 ? "--ahead on --data-workers 2" : "");
        Outcome again;
        read_outcome(&again, &r, out);
        EXPECT(strstr(str_text(&r.err), "going on from") != NULL);
        expect_same(&again, &whole, flags);
        ran_free(&r);
    }
}

/* Without accumulation a gradient starts anew in every update, but a tied embedding's has two writers: the head's part
 * is fetched back before the embedding's is added. */
TEST(gradients_away_without_accumulation_keep_the_bits) {
    static const char *const away[] = {"gradients", "weights,moments,gradients,inputs=2",
                                       "gradients --recompute block"};
    Outcome base = train("one", "--precision fp32 --micro-batch 8 --threads 2");
    for (int i = 0; i < 3; i++) {
        char flags[200], name[32];
        snprintf(flags, sizeof flags, "--precision fp32 --micro-batch 8 --threads 2 --offload %s", away[i]);
        snprintf(name, sizeof name, "one-away%d", i);
        Outcome o = train(name, flags);
        expect_same(&o, &base, flags);
    }
}

/* A checkpoint knows nothing of homes: what was trained with one part away goes on with another, or with none. */
TEST_SLOW(resumed_with_another_offload_equals_uninterrupted) {
    static const char *const homes[][2] = {{"none", "weights,moments,gradients"},
                                           {"weights,moments,gradients,inputs --recompute block", "none"},
                                           {"moments=2", "weights=1,gradients=2"}};
    static const int chosen[] = {3, 6, 2, 7}; /* 8-bit moments, int8, masters, nf4 */
    for (int k = 0; k < 4; k++) {
        int m = chosen[k];
        char flags[400], name[32], out[200], cut[260];
        snprintf(flags, sizeof flags, "%s --micro-batch 4 --threads 2 --save-steps 3", modes[m]);
        snprintf(name, sizeof name, "home%d", m);
        Outcome whole = train(name, flags);
        const char *const *from = homes[k % 3];
        snprintf(flags, sizeof flags, "%s --micro-batch 4 --threads 2 --save-steps 3 --offload %s", modes[m], from[0]);
        snprintf(name, sizeof name, "moved%d", m);
        Outcome first = train(name, flags);
        expect_same(&first, &whole, flags);
        snprintf(out, sizeof out, "%s/out-moved%d", test_tmp(), m);
        snprintf(cut, sizeof cut, "%s/checkpoint-6", out);
        EXPECT(file_is_dir(cut));
        file_remove_tree(cut, NULL);
        Ran r = snug_run(
            "train --model %s --data %s/rows.jsonl --out %s --seq %d --global-batch 8 --steps %d --log-steps 1 --lr "
            "3e-3 "
            "--val-split 0.2 %s --micro-batch 4 --threads 1 --save-steps 3 --offload %s --resume",
            model(), test_tmp(), out, SEQ, STEPS, modes[m], from[1]);
        Outcome again;
        read_outcome(&again, &r, out);
        EXPECT(strstr(str_text(&r.err), "going on from") != NULL);
        expect_same(&again, &whole, from[1]);
        ran_free(&r);
    }
}

static double evaluated(const char *flags, int64_t *arena_bytes) {
    Ran r = snug_run("eval --model %s --data %s/rows.jsonl --seq %d --json %s", model(), test_tmp(), SEQ, flags);
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("    %s: %s", flags, str_text(&r.err));
    double loss = json_number_value(json_object_get(j, "loss"));
    *arena_bytes = (int64_t)json_number_value(json_object_get(j, "planned_bytes"));
    EXPECT(*arena_bytes == (int64_t)json_number_value(json_object_get(j, "measured_bytes")));
    json_decref(j);
    ran_free(&r);
    return loss;
}

TEST(an_evaluation_is_the_same_with_its_weights_away) {
    static const char *const storage[] = {"", "--quantize int8", "--quantize nf4", "--precision fp32"};
    static const char *const homes[] = {"--offload weights", "--offload weights=2 --micro-batch 3",
                                        "--offload weights --threads 1"};
    for (int s = 0; s < 4; s++) {
        int64_t whole_bytes, bytes;
        double whole = evaluated(storage[s], &whole_bytes);
        for (int h = 0; h < 3; h++) {
            char flags[200];
            snprintf(flags, sizeof flags, "%s %s", storage[s], homes[h]);
            double loss = evaluated(flags, &bytes);
            bool split = strstr(homes[h], "micro") != NULL; /* sums over other rows: the last bits */
            if (!EXPECT(split ? fabs(loss - whole) <= 1e-7 * whole : loss == whole))
                test_note("    %s: %.17g against %.17g", flags, loss, whole);
            if (!split && !EXPECT(bytes < whole_bytes))
                test_note("    %s: %lld bytes against %lld", flags, (long long)bytes, (long long)whole_bytes);
        }
    }
}

TEST(a_resumed_run_with_other_mathematics_is_refused_by_name) {
    Outcome o = train("refuse", "--precision fp32 --micro-batch 4 --save-steps 3");
    EXPECT(o.n == STEPS);
    const char *const changes[][2] = {{"--lr 1e-3", "lr"},
                                      {"--precision bf16", "precision"},
                                      {"--seed 3", "seed"},
                                      {"--weight-decay 0.5", "weight-decay"}};
    for (int i = 0; i < 4; i++) {
        Ran r = snug_run(
            "train --model %s --data %s/rows.jsonl --out %s/out-refuse --seq %d --global-batch 8 --steps %d "
            "--log-steps 1 "
            "--lr 3e-3 --val-split 0.2 --precision fp32 --micro-batch 4 --resume checkpoint-3 %s",
            model(), test_tmp(), test_tmp(), SEQ, STEPS, changes[i][0]);
        EXPECT(r.code == 1 || r.code == 2);
        if (!EXPECT(strstr(str_text(&r.err), changes[i][1]) && strstr(str_text(&r.err), "resume")))
            test_note("%s", str_text(&r.err));
        ran_free(&r);
    }
}

TEST(a_signal_saves_and_the_run_goes_on_as_if_nothing_happened) {
    Outcome whole = train("calm", "--precision fp32 --micro-batch 1 --epochs 1");
    const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < 3; i++) {
        char out[200], command[1500];
        snprintf(out, sizeof out, "%s/out-signal%d", test_tmp(), i);
        const char *binary = getenv("SNUG");
        snprintf(command, sizeof command,
                 "exec %s train --model %s --data %s/rows.jsonl --out %s --seq %d --global-batch 8 --steps %d "
                 "--log-steps 1 --lr 3e-3 --val-split 0.2 --precision fp32 --micro-batch 1 --epochs 1 %s",
                 binary ? binary : "./snug", model(), test_tmp(), out, SEQ, STEPS,
                 i ? "--ahead on --data-workers 1" : "");
        pid_t child = fork();
        if (!child) {
            char log[260];
            snprintf(log, sizeof log, "%s/child.log", test_tmp());
            if (!freopen(log, "w", stderr) || !freopen(log, "a", stdout)) _exit(1);
            execl("/bin/sh", "sh", "-c", command, (char *)NULL);
            _exit(127);
        }
        char begun[260]; /* the run has opened its folder */
        snprintf(begun, sizeof begun, "%s/metrics.jsonl", out);
        EXPECT(world_appears(begun));
        usleep(5000 * (unsigned)i);
        kill(child, signals[i]);
        int status;
        waitpid(child, &status, 0);
        EXPECT(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 128 + signals[i]));
        char resume[16] = "", state[300];
        snprintf(state, sizeof state, "ls %s/checkpoint-* >/dev/null 2>&1", out);
        if (system(state) == 0) snprintf(resume, sizeof resume, "--resume");
        Ran r = snug_run("%s %s", strstr(command, "train"), resume);
        Outcome o;
        read_outcome(&o, &r, out);
        EXPECT(!strcmp(o.checksum, whole.checksum));
        ran_free(&r);
    }
}
