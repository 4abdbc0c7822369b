/* test_hydra.c - words of open-unlearning's command line and configurations of DeepSpeed and accelerate: understood, or
 * answered with the option to use. */
#include <string.h>

#include "base/file.h"
#include "cli/options.h"
#include "tests/cli/words.h"
#include "tests/snug.h"
#include "tests/test.h"

TEST(words_of_open_unlearning_are_the_options_they_mean) {
    static const struct {
        Command command;
        const char *words, *value;
        OptId id;
    } table[] = {
        {CMD_UNLEARN, "trainer=NPO", "npo", OPT_METHOD},
        {CMD_UNLEARN, "trainer=GradAscent", "gradascent", OPT_METHOD},
        {CMD_UNLEARN, "trainer=LMCleanerBatchLevel", "steps", OPT_REMOVE},
        {CMD_UNLEARN, "trainer=LMCleanerSampleLevel", "lmcleaner", OPT_METHOD},
        {CMD_UNLEARN, "forget_split=forget05", "forget05", OPT_FORGET},
        {CMD_UNLEARN, "++trainer.args.learning_rate=2e-5", "2e-05", OPT_LR},
        {CMD_UNLEARN, "trainer.args.num_train_epochs=3", "3", OPT_EPOCHS},
        {CMD_UNLEARN, "trainer.method_args.K=12", "12", OPT_WINDOW},
        {CMD_UNLEARN, "trainer.method_args.hessian_mode=diag", "diagonal", OPT_HESSIAN},
        {CMD_UNLEARN, "trainer.method_args.retain_loss_type=KL", "kl", OPT_RETAIN_LOSS},
        {CMD_UNLEARN, "+trainer.method_args.alpha=2", "2", OPT_LOSS_ALPHA},
        {CMD_UNLEARN, "experiment=unlearn/tofu/default|retain_split=retain90|trainer=WGA", "wga", OPT_METHOD},
    };
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) {
        Options o;
        Err e = {0};
        char words[300];
        snprintf(words, sizeof words, "--run|r|--out|o|%s", table[i].words);
        bool ok = EXPECT(parse(&o, table[i].command, words, &e));
        if (!ok || !EXPECT(opt_text(&o, table[i].id) && !strcmp(opt_text(&o, table[i].id), table[i].value)))
            test_note("    %s: %s", table[i].words, ok ? opt_text(&o, table[i].id) : e.text);
        options_free(&o);
    }
}

TEST(words_without_a_counterpart_are_answered_with_the_option_to_use) {
    static const struct {
        Command command;
        const char *words, *says;
    } table[] = {
        {CMD_UNLEARN, "model=Llama-3.2-1B-Instruct", "--run DIR"},
        {CMD_UNLEARN, "task_name=x", "--out DIR"},
        {CMD_UNLEARN, "trainer.method_args.hessian_mode=GGN", "--hessian exact"},
        {CMD_UNLEARN, "trainer.method_args.beta=0.1", "--loss-beta"},
        {CMD_UNLEARN, "trainer.method_args.use_historical_params=false", "historical"},
        {CMD_UNLEARN, "trainer.args.learnin_rate=1", "learning-rate"},
        {CMD_TRAIN, "trainer=NPO", "snug unlearn"},
        {CMD_UNLEARN, "forget10", "options begin with --"},
    };
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) {
        Options o;
        Err e = {0};
        char words[300];
        const char *must = table[i].command == CMD_TRAIN ? "--model|m|--data|d" : "--run|r|--out|o";
        snprintf(words, sizeof words, "%s|%s", must, table[i].words);
        if (!EXPECT(!parse(&o, table[i].command, words, &e) && e.code == ERR_USAGE && strstr(e.text, table[i].says)))
            test_note("    %s: %s", table[i].words, e.text);
        options_free(&o);
    }
}

TEST(a_configuration_of_deepspeed_or_accelerate_is_answered_with_the_options_it_means) {
    static const struct {
        const char *file, *text, *says[3];
    } table[] = {
        {"ds.json",
         "{\"zero_optimization\":{\"stage\":3,\"offload_optimizer\":{\"device\":\"cpu\"},"
         "\"offload_param\":{\"device\":\"cpu\"},\"reduce_bucket_size\":5e7},"
         "\"train_micro_batch_size_per_gpu\":1,\"gradient_accumulation_steps\":8,\"bf16\":{\"enabled\":true}}",
         {"--offload moments,gradients --offload weights", "--micro-batch 1 --accum 8", "--precision bf16"}},
        {"acc.yaml",
         "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\n"
         "deepspeed_config:\n  offload_param_device: cpu\n  gradient_accumulation_steps: auto\n",
         {"accelerate", "--precision bf16", "--offload weights"}},
    };
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) {
        const char *path = test_path(table[i].file);
        EXPECT(file_write_all(path, table[i].text, (int64_t)strlen(table[i].text), NULL));
        Ran r = snug_run("train --model m --data d --config %s", path);
        for (int k = 0; k < 3; k++)
            if (!EXPECT(r.code == 2 && strstr(str_text(&r.err), table[i].says[k])))
                test_note("    %d, %s", r.code, str_text(&r.err));
        EXPECT(!strstr(str_text(&r.err), "auto"));
        ran_free(&r);
    }
}
