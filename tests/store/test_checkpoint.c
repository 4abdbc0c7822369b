/* test_checkpoint.c - which checkpoints count, which go, what a run's state keeps, and who holds a run folder. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/log.h"
#include "store/checkpoint.h"
#include "store/folder.h"
#include "store/lock.h"
#include "store/trainer_state.h"
#include "tests/store/store_test.h"
#include "tests/test.h"

static void save_as(int64_t step, bool passing) {
    Err e = {0};
    char path[600];
    FolderOut f;
    TrainerState s;
    trainer_state_init(&s);
    s.global_step = step;
    s.passing = passing;
    EXPECT_OK(checkpoint_path(path, sizeof path, test_tmp(), step, &e));
    EXPECT_OK(folder_begin(&f, path, &e));
    EXPECT_OK(trainer_state_write(f.temporary, &s, &e));
    EXPECT_OK(folder_commit(&f, &e));
    trainer_state_free(&s);
}

static void save(int64_t step) {
    save_as(step, false);
}

/* The steps that are there, as "10 20 30". */
static const char *listed(void) {
    static char text[256];
    Err e = {0};
    int64_t *steps, n;
    EXPECT_OK(checkpoint_list(test_tmp(), &steps, &n, &e));
    text[0] = 0;
    for (int64_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "", (long long)steps[i]);
    mem_free(steps);
    return text;
}

static int64_t last(void) {
    Err e = {0};
    int64_t step = -1;
    bool found;
    EXPECT_OK(checkpoint_find_last(test_tmp(), &step, &found, &e));
    return found ? step : -1;
}

TEST(checkpoint_list_sorts_by_number_and_ignores_other_names) {
    static const char *const others[] = {
        "checkpoint-",      "checkpoint-5x",     "checkpoint-05", "checkpoint--5", "checkpoint-7.tmp-12",
        "checkpoint-8.old", "checkpoint-9.gone", "model",         "checkpoint-99999999999999999999"};
    Err e = {0};
    EXPECT_STR(listed(), "");
    EXPECT(last() == -1);
    for (int i = 0; i < 9; i++) EXPECT_OK(file_make_dirs(tmp_path(others[i]), &e));
    put_text(tmp_path("checkpoint-77"), "a file");
    save(100);
    save(20);
    save(3);
    EXPECT_STR(listed(), "3 8 20 100"); /* one that was put aside and not brought back is the checkpoint */
    EXPECT(last() == 100);
    int64_t *steps, n;
    EXPECT_OK(checkpoint_list(tmp_path("absent"), &steps, &n, &e));
    EXPECT(n == 0);
    mem_free(steps);
}

TEST(checkpoint_find_last_passes_over_what_is_not_whole) {
    Err e = {0};
    log_quiet(true);
    save(10);
    EXPECT_OK(file_make_dirs(tmp_path("checkpoint-20"), &e));
    EXPECT(last() == 10);
    put_text(tmp_path("checkpoint-20/trainer_state.json"), "{\"global_step\": 2");
    EXPECT(last() == 10);
    put_text(tmp_path("checkpoint-20/trainer_state.json"), "{}");
    EXPECT(last() == 10);
    put_text(tmp_path("checkpoint-20/trainer_state.json"), "{\"global_step\": 20}");
    EXPECT(last() == 20);
    log_quiet(false);
}

TEST(checkpoint_prune_keeps_the_newest_and_the_best) {
    Err e = {0};
    for (int i = 1; i <= 6; i++) save(10 * i);
    EXPECT_OK(checkpoint_prune(test_tmp(), 0, -1, &e));
    EXPECT_STR(listed(), "10 20 30 40 50 60");
    EXPECT_OK(checkpoint_prune(test_tmp(), 4, -1, &e));
    EXPECT_STR(listed(), "30 40 50 60");
    EXPECT_OK(checkpoint_prune(test_tmp(), 2, 30, &e));
    EXPECT_STR(listed(), "30 60");
    EXPECT_OK(checkpoint_prune(test_tmp(), 1, 30, &e));
    EXPECT_STR(listed(), "30 60");
    EXPECT_OK(checkpoint_prune(test_tmp(), 1, 60, &e));
    EXPECT_STR(listed(), "60");
    EXPECT_OK(checkpoint_prune(test_tmp(), 1, 999, &e));
    EXPECT_STR(listed(), "60");
    EXPECT(count_names(test_tmp()) == 1);
}

TEST(checkpoint_that_passes_stands_until_a_newer_one_does) {
    Err e = {0};
    int64_t kept, passing;
    save(10);
    save_as(13, true);
    EXPECT_OK(checkpoint_prune(test_tmp(), 0, -1, &e));
    EXPECT_STR(listed(), "10 13"); /* the newest stays, whatever it is */
    EXPECT_OK(checkpoint_count(test_tmp(), &kept, &passing, &e));
    EXPECT(kept == 1 && passing == 1);
    save_as(16, true);
    EXPECT_OK(checkpoint_prune(test_tmp(), 0, -1, &e));
    EXPECT_STR(listed(), "10 16");
    save(20);
    EXPECT_OK(checkpoint_prune(test_tmp(), 0, 16, &e)); /* the best passes too, once another is */
    EXPECT_STR(listed(), "10 16 20");
    save(30);
    EXPECT_OK(checkpoint_prune(test_tmp(), 2, 30, &e));
    EXPECT_STR(listed(), "20 30");
}

TEST(checkpoint_prune_never_counts_what_is_not_whole) {
    Err e = {0};
    save(10);
    save(20);
    EXPECT_OK(file_make_dirs(tmp_path("checkpoint-30"), &e));
    EXPECT_OK(checkpoint_prune(test_tmp(), 1, -1, &e));
    EXPECT_STR(listed(), "20 30");
    log_quiet(true);
    EXPECT(last() == 20);
    log_quiet(false);
}

TEST(checkpoint_of_a_killed_run_is_ignored_then_swept) {
    Err e = {0};
    save(10);
    pid_t child = fork();
    if (child == 0) { /* dies while writing */
        FolderOut f;
        TrainerState s;
        trainer_state_init(&s);
        if (folder_begin(&f, tmp_path("checkpoint-20"), NULL)) trainer_state_write(f.temporary, &s, NULL);
        kill(getpid(), SIGKILL);
    }
    EXPECT(child > 0 && waitpid(child, NULL, 0) == child);
    EXPECT(count_names(test_tmp()) == 2);
    EXPECT_STR(listed(), "10");
    EXPECT(last() == 10);
    EXPECT(rename(tmp_path("checkpoint-10"), tmp_path("checkpoint-10.old")) == 0);
    EXPECT_OK(checkpoint_recover(test_tmp(), &e));
    EXPECT_STR(listed(), "10");
    EXPECT(count_names(test_tmp()) == 1);
}

static void fill(TrainerState *s) {
    trainer_state_init(s);
    s->global_step = 12;
    s->max_steps = 100;
    s->epoch = 0.1234567890123456789;
    s->num_train_epochs = 3;
    s->logging_steps = 5;
    s->eval_steps = 6;
    s->save_steps = 7;
    s->train_batch_size = 2;
    s->best_step = 6;
    s->best_metric = 1.25;
    snprintf(s->best_model_checkpoint, sizeof s->best_model_checkpoint, "run/checkpoint-6");
    s->data_epoch = 1;
    s->data_row = 1ll << 40;
    s->shuffle_seed = 0xffffffffffffffffull;
    s->rng_seed = 0x8000000000000001ull;
    s->tokens_seen = 987654321;
    s->micro_batches = 8;
    s->warmup_steps = 4;
    s->schedule_steps = 90;
    s->passing = true;
    trainer_state_log(
        s, &(TrainerLog){.step = 5, .epoch = 0.05, .loss = 2.5, .grad_norm = 0.75, .learning_rate = 1e-4});
    trainer_state_log(s, &(TrainerLog){.step = 6, .epoch = 0.06, .is_eval = true, .loss = 1.25});
    trainer_state_log(
        s, &(TrainerLog){.step = 10, .epoch = 0.1, .loss = NAN, .grad_norm = INFINITY, .learning_rate = 0});
    trainer_state_set(s, "learning_rate", "1e-4");
    trainer_state_set(s, "seq", "128");
    trainer_state_set(s, "seq", "256");
}

TEST(trainer_state_goes_round) {
    Err e = {0};
    TrainerState a, b;
    fill(&a);
    EXPECT_OK(trainer_state_write(test_tmp(), &a, &e));
    EXPECT_OK(trainer_state_read(&b, test_tmp(), &e));
    EXPECT(b.global_step == 12 && b.max_steps == 100 && b.epoch == a.epoch && b.num_train_epochs == 3);
    EXPECT(b.logging_steps == 5 && b.eval_steps == 6 && b.save_steps == 7 && b.train_batch_size == 2);
    EXPECT(b.best_step == 6 && b.best_metric == 1.25);
    EXPECT_STR(b.best_model_checkpoint, "run/checkpoint-6");
    EXPECT(b.data_epoch == 1 && b.data_row == 1ll << 40 && b.tokens_seen == 987654321 && b.micro_batches == 8);
    EXPECT(b.shuffle_seed == a.shuffle_seed && b.rng_seed == a.rng_seed);
    EXPECT(b.n_log == 3 && b.n_settings == 2 && b.warmup_steps == 4 && b.schedule_steps == 90 && b.passing);
    TrainerState c;
    trainer_state_copy(&c, &b);
    EXPECT(c.n_log == 3 && c.log != b.log && c.log[1].loss == 1.25 && c.n_settings == 2 &&
           !strcmp(c.setting[1].value, "256"));
    EXPECT_OK(trainer_state_check_settings(&c, &b, &e));
    trainer_state_set(&c, "steps", "9"); /* how long a run is may change */
    EXPECT_OK(trainer_state_check_settings(&c, &b, &e));
    int64_t bytes = 0;
    EXPECT(file_size(tmp_path("trainer_state.json"), &bytes, &e) && trainer_state_bytes(&b, 0) >= bytes &&
           trainer_state_bytes(&b, 10) > bytes + 1000);
    trainer_state_free(&c);
    if (b.n_log == 3) {
        EXPECT(b.log[0].step == 5 && b.log[0].loss == 2.5 && b.log[0].grad_norm == 0.75 &&
               b.log[0].learning_rate == 1e-4);
        EXPECT(b.log[1].is_eval && b.log[1].loss == 1.25 && !b.log[0].is_eval);
        EXPECT(isnan(b.log[2].loss) && isnan(b.log[2].grad_norm) && b.log[2].learning_rate == 0);
    }
    EXPECT_OK(trainer_state_check_settings(&b, &a, &e));
    trainer_state_free(&a);
    trainer_state_free(&b);
    trainer_state_init(&a);
    EXPECT_OK(trainer_state_write(test_tmp(), &a, &e));
    EXPECT_OK(trainer_state_read(&b, test_tmp(), &e));
    EXPECT(b.best_step == -1 && b.n_log == 0 && b.best_model_checkpoint[0] == 0);
    trainer_state_free(&b);
}

TEST(trainer_state_names_every_setting_that_differs) {
    Err e = {0};
    TrainerState a, b;
    fill(&a);
    fill(&b);
    trainer_state_set(&b, "learning_rate", "2e-4");
    trainer_state_set(&b, "rank", "8");
    EXPECT(!trainer_state_check_settings(&a, &b, &e));
    EXPECT(strstr(e.text, "learning_rate was 1e-4 and is 2e-4") && strstr(e.text, "rank was not set and is 8"));
    EXPECT(strstr(e.text, "seq") == NULL);
    EXPECT(!trainer_state_check_settings(&b, &a, &e));
    EXPECT(strstr(e.text, "rank was 8 and is not set") != NULL);
    trainer_state_set(&b, "learning_rate", "0.0001"); /* the same number in another spelling */
    trainer_state_set(&a, "rank", "8");
    EXPECT_OK(trainer_state_check_settings(&b, &a, &e));
    trainer_state_free(&a);
    trainer_state_free(&b);
}

TEST(trainer_state_reserved_rows_do_not_allocate) {
    TrainerState s;
    trainer_state_init(&s);
    trainer_state_reserve_log(&s, 1000);
    int64_t before = mem_stats().requests;
    for (int i = 0; i < 1000; i++) trainer_state_log(&s, &(TrainerLog){.step = i});
    EXPECT(mem_stats().requests == before && s.n_log == 1000);
    trainer_state_free(&s);
}

static bool reads(const char *from, const char *to) { /* after replacing one piece of a good file */
    Err e = {0};
    TrainerState s;
    Str text = {0}, changed = {0};
    fill(&s);
    EXPECT_OK(trainer_state_write(test_tmp(), &s, &e));
    trainer_state_free(&s);
    EXPECT_OK(file_read(tmp_path("trainer_state.json"), &text, 0, &e));
    const char *at = strstr(str_text(&text), from);
    if (!EXPECT(at != NULL)) return true;
    str_add_bytes(&changed, text.data, at - text.data);
    str_add(&changed, to);
    str_add(&changed, at + strlen(from));
    put_text(tmp_path("trainer_state.json"), changed.data);
    bool ok = trainer_state_read(&s, test_tmp(), &e);
    if (ok) trainer_state_free(&s);
    else EXPECT(strstr(e.text, "trainer_state.json") != NULL);
    str_free(&text);
    str_free(&changed);
    return ok;
}

TEST(trainer_state_refuses_damaged_files) {
    EXPECT(reads("\"seq\"", "\"seq\""));
    EXPECT(!reads("\"global_step\"", "\"global_stop\""));
    EXPECT(!reads("\"global_step\": 12", "\"global_step\": \"12\""));
    EXPECT(!reads("\"snug\"", "\"other\""));
    EXPECT(!reads("\"format\": 1", "\"format\": 2"));
    EXPECT(!reads("\"18446744073709551615\"", "\"18446744073709551616\""));
    EXPECT(!reads("\"18446744073709551615\"", "\"-1\""));
    EXPECT(!reads("\"18446744073709551615\"", "5"));
    EXPECT(!reads("\"fingerprint\": {", "\"fingerprint\": 3, \"x\": {"));
    EXPECT(!reads("\"seq\": \"256\"", "\"seq\": 256"));
    EXPECT(!reads("\"log_history\": [", "\"log_history\": {}, \"x\": ["));
    EXPECT(!reads("\"log_history\": [", "\"log_history\": [1, "));
    EXPECT(!reads("\"eval_loss\": 1.25", "\"eval_loss\": \"1.25\""));
    EXPECT(!reads("\"trial_params\": null\n}", "\"trial_params\": null\n"));
    Err e = {0};
    TrainerState s;
    EXPECT(!trainer_state_read(&s, tmp_path("absent"), &e));
    trainer_state_init(&s);
    trainer_state_set(&s, "name", "\xff");
    EXPECT(!trainer_state_write(test_tmp(), &s, &e));
    EXPECT(strstr(e.text, "UTF-8") != NULL);
    trainer_state_free(&s);
}

TEST(lock_refuses_the_second_run_naming_the_first) {
    Err e = {0};
    RunLock a = {.fd = -1}, b = {.fd = -1};
    char me[32];
    snprintf(me, sizeof me, "process %d on", (int)getpid());
    EXPECT_OK(runlock_take(&a, test_tmp(), &e));
    EXPECT(!runlock_take(&b, test_tmp(), &e));
    EXPECT(strstr(e.text, me) && strstr(e.text, test_tmp()));
    runlock_release(&b);
    EXPECT(!runlock_take(&b, test_tmp(), &e)); /* a release that held nothing gave nothing up */
    runlock_release(&a);
    runlock_release(&a);
    EXPECT_OK(runlock_take(&b, test_tmp(), &e));
    runlock_release(&b);
    EXPECT(!runlock_take(&b, tmp_path("absent"), &e));
}

/* A run that may still be refused holds the folder without a trace; whoever comes second learns who it is all the
 * same. */
TEST(lock_that_is_only_looked_at_changes_nothing_and_names_its_holder) {
    Err e = {0};
    RunLock l = {.fd = -1}, other = {.fd = -1};
    Str before = {0}, after = {0};
    EXPECT_OK(runlock_look(&l, tmp_path("absent"), &e));
    EXPECT_OK(runlock_look(&l, test_tmp(), &e)); /* no run has been there */
    EXPECT(l.fd < 0 && !file_exists(tmp_path(".lock")) && !file_exists(tmp_path("absent")));
    EXPECT_OK(file_write_all(tmp_path(".lock"), "1 on elsewhere\n", 15, &e));
    EXPECT_OK(runlock_look(&l, test_tmp(), &e));
    char me[32];
    snprintf(me, sizeof me, "process %d on", (int)getpid());
    EXPECT(!runlock_look(&other, test_tmp(), &e) && strstr(e.text, "in use"));
    if (file_exists("/proc/locks") && !strstr(e.text, me))
        test_note("    %s", e.text); /* not every system lists locks */
    EXPECT(file_read(tmp_path(".lock"), &before, 0, &e) && !strcmp(str_text(&before), "1 on elsewhere\n"));
    EXPECT_OK(runlock_take(&l, test_tmp(), &e));
    EXPECT(file_read(tmp_path(".lock"), &after, 0, &e) && strstr(me, "process") &&
           atoi(str_text(&after)) == (int)getpid());
    runlock_release(&l);
    str_free(&before), str_free(&after);
}

TEST(lock_of_a_killed_process_is_free_again) {
    Err e = {0};
    RunLock l = {.fd = -1};
    int ready[2];
    EXPECT(pipe(ready) == 0 && test_tmp() != NULL); /* made before the fork, so that both mean the same folder */
    pid_t child = fork();
    if (child == 0) {
        bool ok = runlock_take(&l, test_tmp(), NULL);
        if (write(ready[1], ok ? "y" : "n", 1) == 1) pause();
        kill(getpid(), SIGKILL);
    }
    char answer = 0, who[32];
    EXPECT(read(ready[0], &answer, 1) == 1 && answer == 'y');
    snprintf(who, sizeof who, "process %d on", (int)child);
    EXPECT(!runlock_take(&l, test_tmp(), &e));
    EXPECT(strstr(e.text, who) != NULL);
    kill(child, SIGKILL);
    EXPECT(waitpid(child, NULL, 0) == child);
    EXPECT_OK(runlock_take(&l, test_tmp(), &e));
    runlock_release(&l);
    close(ready[0]);
    close(ready[1]);
}
