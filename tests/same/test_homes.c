/* test_homes.c - state that lives on disk is trained to the same bits as state that never left, takes its room
 * before the first step, and leaves nothing behind. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/same/same.h"
#include "tests/test.h"
#include "tests/world.h"
#include "train/job.h"

static const SnugJob job = {6, 64, 112};

static bool holds_nothing(const char *folder) { /* it is not even made: what is kept there has no name */
    return !file_exists(folder);
}

static Same train_on_disk(const char *name, const char *flags, const char *offload) {
    char all[600];
    snprintf(all, sizeof all, "%s --offload %s --offload-dir %s", flags, offload, test_path("disk"));
    return same_train(name, all);
}

TEST(state_on_disk_keeps_the_bits) {
    static const char *const modes[] = {"--micro-batch 8", "--micro-batch 4 --precision bf16 --recompute block",
                                        "--micro-batch 4 --precision bf16 --master fp32 --moments 8bit",
                                        "--micro-batch 8 --mode lora --lora-dropout 0.1",
                                        "--micro-batch 4 --mode lora --quantize nf4 --recompute ffn"};
    static const char *const homes[] = {"weights=disk", "weights=disk:4,moments=disk,gradients=disk:3",
                                        "weights=2,weights=disk:3,moments=disk:5,gradients=2"};
    snug_make_job(job);
    for (int m = 0; m < COUNT_OF(modes); m += test_brief() ? 3 : 1) {
        Same whole = same_train("whole", modes[m]);
        for (int h = m % 2; h < COUNT_OF(homes); h += 2 - (m == 0)) { /* the first mode with all of them */
            Same away = train_on_disk("away", modes[m], homes[h]);
            same_expect(&away, &whole, homes[h]);
            EXPECT(same_int(&away, "planned_bytes") < same_int(&whole, "planned_bytes"));
            EXPECT(same_int(&away, "planned_bytes") == same_int(&away, "measured_bytes"));
            EXPECT(same_int(&away, "process_measured_bytes") <= same_int(&away, "process_planned_bytes"));
            EXPECT(same_int(&away, "allocations_after_first_step") == 0);
            EXPECT(holds_nothing(test_path("disk")));
            same_free(&away);
        }
        same_free(&whole);
    }
}

/* A frozen model that is not quantised lies in its own files: no second copy is made. */
TEST(frozen_weights_are_read_from_the_models_own_files) {
    snug_make_job(job);
    Same frozen = train_on_disk("frozen", "--micro-batch 8 --mode lora", "weights=disk");
    Same full = train_on_disk("full", "--micro-batch 8", "weights=disk");
    EXPECT(frozen.result && strstr(str_text(&frozen.ran.err), "on disk: 0 B taken"));
    EXPECT(full.result && strstr(str_text(&full.ran.err), ", 0 B read from the model's own files"));
    same_free(&frozen), same_free(&full);
}

static double evaluated(const char *flags) {
    Ran r = snug_run("eval --model %s --data %s --seq 48 --json %s", test_path("m"), test_path("rows.jsonl"),
                     flags);
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("    %s: %s", flags, str_text(&r.err));
    double loss = json_number_value(json_object_get(j, "loss"));
    json_decref(j);
    ran_free(&r);
    return loss;
}

TEST(an_evaluation_is_the_same_with_its_weights_on_disk) {
    static const char *const storage[] = {"", "--quantize int8", "--precision bf16"};
    snug_make_job(job);
    for (int s = 0; s < COUNT_OF(storage); s++) {
        char flags[400];
        snprintf(flags, sizeof flags, "%s --offload weights=disk --offload-dir %s", storage[s],
                 test_path("disk"));
        EXPECT(evaluated(flags) == evaluated(storage[s]));
    }
}

/* A checkpoint knows nothing of homes. */
TEST(a_run_goes_on_with_its_state_on_disk) {
    char flags[400];
    snug_make_job(job);
    Same whole = same_train("whole", "--micro-batch 4");
    Same half = same_train("moved", "--micro-batch 4 --save --save-steps 3");
    EXPECT(file_remove_tree(test_path("moved/checkpoint-5"), NULL));
    snprintf(flags, sizeof flags,
             "--no-overwrite --micro-batch 4 --resume --offload weights=disk:3,moments=disk --offload-dir %s",
             test_path("disk"));
    Same again = same_train("moved", flags);
    EXPECT(strstr(str_text(&again.ran.err), "going on from") != NULL);
    same_expect(&again, &whole, flags);
    same_free(&whole), same_free(&half), same_free(&again);
}

/* Beside a device, what lies outside the layers follows them: into pinned memory with all of them, to disk when
 * all lie there; a frozen embedding waits in pinned memory, where its rows are read in place. */
TEST(embedding_and_head_follow_the_layers) {
    for (int k = 0; k < 12; k++) {
        bool lora = k & 1;
        JobSpec s = {.train = true, .lora = lora, .m.activations = FMT_BF16, .weights = FMT_BF16, .gradients = FMT_BF16,
                     .moments = MOMENTS_BF16, .update = {.beta1 = 0.9f, .beta2 = 0.99f}, .seq = 256, .micro_batch = 1,
                     .accum = 1 + (k >> 1 & 1), .evaluate = true};
        const char *small[] = {"num_hidden_layers=3", "vocab_size=4096",
                               k & 2 ? "tie_word_embeddings=true" : "tie_word_embeddings=false"};
        int64_t on_disk = k / 4 == 0 ? 3 : k / 4 == 1 ? 2 : 0;
        Err e = {0};
        EXPECT(config_from_preset(&s.m.config, "qwen2.5-0.5b"));
        EXPECT_OK(config_set(&s.m.config, small, NULL, COUNT_OF(small), &e));
        if (lora) s.m.adapter = (LoraSpec){.rank = 8, .alpha = 16, .targets = 127, .format = FMT_BF16};
        for (int kind = OFFLOAD_WEIGHTS; kind <= (lora ? OFFLOAD_WEIGHTS : OFFLOAD_GRADIENTS); kind++)
            s.m.offload.layers[kind] = 3, s.m.offload.on_disk[kind] = on_disk;
        Job *j = MEM_NEW(Job, 1);
        Ring r;
        Machine m = machine_generic_cpu(2);
        m.kind = MACHINE_CUDA;
        EXPECT_OK(job_plan(j, &r, &s, &m, NULL, &e));
        EXPECT_OK(plan_verify(&r.p, &e));
        Pool head = on_disk == 3 ? POOL_DISK : POOL_PINNED,
             embedding = lora ? POOL_PINNED : head; /* frozen: read by rows */
        if (lora && s.m.config.tied) head = POOL_PINNED;
        EXPECT(prog_t(&r.p, j->m.embedding)->home.pool == embedding && prog_t(&r.p, j->m.head)->home.pool == head);
        ring_close(&r);
        mem_free(j);
    }
}

/* ---- the planner ---- */

TEST(the_planner_goes_to_disk_only_with_a_folder) {
    snug_make_job((SnugJob){12, 64, 112});
    Same whole = same_train("whole", "--micro-batch 4 --accum 2 --seq 16 --recompute none");
    if (!EXPECT(whole.result)) return;
    char without[300], with[600];
    snprintf(without, sizeof without, "--micro-batch 4 --accum 2 --seq 16 --recompute none --budget %lldB",
             (long long)(same_int(&whole, "process_planned_bytes") - same_int(&whole, "planned_bytes") / 8));
    snprintf(with, sizeof with, "%s --offload-dir %s --explain", without, test_path("disk"));
    Same refused = same_train("without", without), fits = same_train("with", with);
    EXPECT(refused.ran.code == 3);
    same_expect(&fits, &whole, with);
    if (!EXPECT(strstr(str_text(&fits.ran.err), "it fits with") &&
                strstr(str_text(&fits.ran.err), "moments=disk")))
        test_note("%s", str_text(&fits.ran.err));
    same_free(&whole), same_free(&refused), same_free(&fits);
}

/* A 7B model trained in full on 24 GB beside 16 GiB of host memory: what exceeds both is on disk, no more. */
TEST(a_cap_on_the_host_sends_the_rest_to_disk) {
    static const char plan[] =
        "plan --model qwen2.5-7b --seq 512 --micro-batch 1 --gpu rtx-4090 --max-memory device=20GiB,host=%s "
        "--json %s";
    const double gib = 1073741824;
    for (int disk = 0; disk < 2; disk++) {
        Ran r = snug_run(plan, "16GiB", disk ? "--offload-dir d" : "");
        json_t *root = ran_json(&r), *pools = json_object_get(root, "pools");
        double host =
            json_number_value(json_object_get(json_object_get(pools, "pinned"), "process_planned_bytes"));
        double on_disk = json_number_value(json_object_get(json_object_get(pools, "disk"), "planned_bytes"));
        if (!EXPECT(disk ? r.code == 0 && host < 16 * gib && on_disk > 15 * gib && on_disk < 35 * gib
                         : r.code == 3))
            test_note("    exit %d, %.1f GiB pinned, %.1f GiB on disk\n%s", r.code, host / gib, on_disk / gib,
                      str_text(&r.err));
        json_decref(root);
        ran_free(&r);
    }
    Ran roomy = snug_run(plan, "128GiB", "--offload-dir d");
    EXPECT(roomy.code == 0 && !strstr(str_text(&roomy.out), "=disk"));
    ran_free(&roomy);
}

typedef struct Planned {
    int code;
    long long process, arena, disk;
    bool says_disk;
} Planned;

static Planned plan_small(const char *flags) {
    Ran r =
        snug_run("plan --model smollm2-135m --seq 512 --micro-batch 4 --threads 2 --offload-dir d --json %s", flags);
    json_t *root = ran_json(&r), *device = json_object_get(json_object_get(root, "pools"), "device");
    Planned p = {.code = r.code, .process = json_integer_value(json_object_get(device, "process_planned_bytes")),
                 .arena = json_integer_value(json_object_get(device, "planned_bytes")),
                 .disk = json_integer_value(json_object_get(root, "offload_dir_bytes")),
                 .says_disk = strstr(str_text(&r.err), "does not fit the disk")};
    json_decref(root);
    ran_free(&r);
    return p;
}

/* What is fastest with state on disk is done without, or with less of it, where the disk may hold less; what nothing
 * can be done about is refused by name. */
TEST(a_cap_on_the_disk_is_kept_by_the_search) {
    char flags[200];
    Planned plain = plan_small("--recompute none --offload none");
    long long budget = plain.process - plain.arena * 35 / 100;
    EXPECT(plain.code == 0 && plain.arena > 0);
    snprintf(flags, sizeof flags, "--max-memory device=%lldB", budget);
    Planned free = plan_small(flags);
    EXPECT(free.code == 0 && free.disk > 100000000 && free.process <= budget);
    snprintf(flags, sizeof flags, "--max-memory device=%lldB,disk=%lldB", budget, free.disk);
    EXPECT(plan_small(flags).disk == free.disk);
    snprintf(flags, sizeof flags, "--max-memory device=%lldB,disk=%lldB", budget, free.disk - 1);
    Planned less = plan_small(flags);
    if (!EXPECT(less.code == 0 && less.disk < free.disk && less.process <= budget))
        test_note("    exit %d, %lld bytes on disk instead of %lld, %lld of %lld", less.code, less.disk, free.disk,
                  less.process, budget);
    snprintf(flags, sizeof flags, "--recompute none --max-memory device=%lldB,disk=1MiB",
             plain.process - plain.arena / 8);
    Planned none = plan_small(flags);
    EXPECT(none.code == 3 && none.says_disk);
}

TEST(wrong_homes_are_refused_by_name) {
    static const struct {
        const char *flags, *part;
    } wrong[] = {{"weights=disk", "--offload-dir"},
                 {"weights=disk:9 --offload-dir d", "1 to 6"},
                 {"weights=4,weights=disk:4 --offload-dir d", "the model has 6"},
                 {"inputs=disk --offload-dir d", "pinned memory only"},
                 {"weights=disk,weights=disk:2 --offload-dir d", "twice"},
                 {"weights=disc --offload-dir d", "weights=disk:N"}};
    snug_make_job(job);
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        Ran r = snug_run("plan --model %s --offload %s", test_path("m"), wrong[i].flags);
        if (!EXPECT(r.code == 2 && strstr(str_text(&r.err), wrong[i].part)))
            test_note("    %s: %s", wrong[i].flags, str_text(&r.err));
        ran_free(&r);
    }
}

/* ---- the world says no ---- */

TEST(a_disk_without_room_is_refused_before_the_first_step) {
    char script[1500];
    const char *binary = getenv("SNUG"), *in = test_tmp();
    snug_make_job(job);
    snprintf(script, sizeof script,
             "bash -c 'ulimit -f 1024; exec %s train --model %s/m --data %s/rows.jsonl --out %s/out --seq 48 "
             "--steps 3 --log-steps 1 --no-save --offload moments=disk,gradients=disk --offload-dir %s/disk' "
             "2>%s/err >/dev/null",
             binary ? binary : "./snug", in, in, in, in, in);
    EXPECT(system(script) != 0);
    Str err = {0};
    file_read(test_path("err"), &err, 0, NULL);
    if (!EXPECT(strstr(str_text(&err), "files may have 1.00 MiB (ulimit -f). Nothing was loaded") &&
                !strstr(str_text(&err), "step 1/3")))
        test_note("%s", str_text(&err));
    EXPECT(holds_nothing(test_path("disk")));
    str_free(&err);
}

/* What a folder must hold is known before anything is loaded: less than there is, or than may be taken, is refused. */
TEST(a_plan_knows_what_its_folder_must_hold) {
    char words[500];
    snug_make_job(job);
    snprintf(words, sizeof words,
             "--model %s --data %s --seq 48 --mode %%s --offload weights=disk --offload-dir %s --json",
             test_path("m"), test_path("rows.jsonl"), test_path("disk/not/there/yet"));
    static const char *const modes[] = {"full", "lora", "lora --quantize int8"};
    for (int m = 0; m < COUNT_OF(modes); m++) {
        char flags[600], command[700];
        snprintf(flags, sizeof flags, words, modes[m]);
        snprintf(command, sizeof command, "plan %s", flags);
        Ran r = snug_run("%s", command);
        json_t *root = ran_json(&r), *pools = json_object_get(root, "pools");
        long long own = json_integer_value(json_object_get(root, "offload_dir_bytes")),
                  all = json_integer_value(json_object_get(json_object_get(pools, "disk"), "planned_bytes"));
        /* frozen and plain: in its own files */
        EXPECT(r.code == 0 && all > 0 && (m == 1 ? own < all / 20 : own == all));
        json_decref(root);
        ran_free(&r);
        if (m == 1) continue;
        for (int less = 0; less < 2; less++) {
            r = snug_run("%s --max-memory disk=%lldB", command, own - less);
            if (!EXPECT(r.code == (less ? 3 : 0) && !less == !strstr(str_text(&r.err), "(1 bytes) are missing")))
                test_note("    %s: exit %d, %s", modes[m], r.code, str_text(&r.err));
            ran_free(&r);
        }
        r = snug_run("train %s --out %s --steps 1 --max-memory disk=1KiB", flags, test_path("refused"));
        EXPECT(r.code == 3 && strstr(str_text(&r.err), "does not fit the disk") &&
               !strstr(str_text(&r.err), "step 1/1"));
        ran_free(&r);
    }
    EXPECT(file_free_bytes(test_path("no/such/folder")) == file_free_bytes(test_tmp()) && file_free_bytes("none") > 0);
}

TEST(a_failing_disk_ends_the_run_with_its_name) {
    static const char *const kinds[] = {" read=", " write="}, *const calls[] = {"read", "write"};
    const char *faulty = world_faulty(), *before = getenv("SNUG");
    char kept[500];
    if (!faulty) return;
    snprintf(kept, sizeof kept, "%s", before ? before : "./snug");
    snug_make_job(job);
    setenv("SNUG", faulty, 1);
    Same well = train_on_disk("well", "--micro-batch 8", "weights=disk,moments=disk");
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        const char *line = strstr(str_text(&well.ran.err), "fault: calls"),
                   *at = line ? strstr(line, kinds[k]) : NULL;
        int n = at ? atoi(at + strlen(kinds[k])) : 0;
        char flags[200];
        snprintf(flags, sizeof flags, "--micro-batch 8 --fault %s:%d", calls[k], n - 40); /* in the last step */
        Same hurt = train_on_disk("hurt", flags, "weights=disk,moments=disk");
        const char *message = strstr(str_text(&hurt.ran.err), "snug: ");
        if (!EXPECT(n > 100 && hurt.ran.code == 1 && message && strstr(message, "/disk: cannot") &&
                    strstr(message, calls[k])))
            test_note("    %s %d: exit %d, %s", calls[k], n, hurt.ran.code, message ? message : "");
        same_free(&hurt);
    }
    setenv("SNUG", kept, 1);
    same_free(&well);
}
