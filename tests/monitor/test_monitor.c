/* test_monitor.c - snug monitor from outside: every way of it, with a driver that is not one, without any, with
 * jobs that run, end and die, and with names that would do harm. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "monitor/wrap.h"
#include "obs/status.h"
#include "tests/monitor/fakes.h"
#include "tests/snug.h"
#include "tests/terminal.h"
#include "tests/test.h"
#include "tests/world.h"

#define GIB_NUMBER 1073741824LL

static int64_t number(const json_t *j, const char *key) {
    return json_integer_value(json_object_get(j, key));
}

static const char *text(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "(none)";
}

/* Nothing but printable text and line ends: no name can move a terminal's cursor. */
static bool is_plain(const Str *s) {
    for (int64_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->data[i];
        if ((c < 0x20 && c != '\n') || c == 0x7f) return false;
    }
    return true;
}

static json_t *look(void) {
    Ran r = snug_run("monitor --once --json");
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("%s%s", str_text(&r.out), str_text(&r.err));
    ran_free(&r);
    return j;
}

/* ---- one look ---- */

TEST(one_look_tells_every_reading_of_every_gpu) {
    if (!use_nvml("fake_nvml.so")) return;
    json_t *j = look();
    const json_t *gpus = json_object_get(j, "gpus"), *a = json_array_get(gpus, 0), *b = json_array_get(gpus, 1);
    EXPECT(json_array_size(gpus) == 2);
    EXPECT_STR(text(j, "driver"), "555.42.02");
    EXPECT_STR(text(a, "name"), "Fake GPU");
    EXPECT_STR(text(a, "bus_id"), "00000000:1B:00.0");
    EXPECT(number(a, "memory_used_bytes") == 20 * GIB_NUMBER &&
           number(a, "memory_total_bytes") == 24 * GIB_NUMBER);
    EXPECT(number(a, "utilization_gpu_percent") == 97 && number(a, "utilization_memory_percent") == 41);
    EXPECT(number(a, "temperature_c") == 66 && number(a, "sm_clock_mhz") == 1980);
    EXPECT(number(a, "memory_clock_mhz") == 10501);
    EXPECT_NEAR(json_number_value(json_object_get(a, "power_w")), 312.5, 1e-9);
    EXPECT_NEAR(json_number_value(json_object_get(a, "power_limit_w")), 450, 1e-9);
    EXPECT(number(a, "pcie_rx_bytes_per_s") == 2048 * 1024 && number(a, "pcie_tx_bytes_per_s") == 1024 * 1024);
    const json_t *list = json_object_get(a, "processes"), *first = json_array_get(list, 0);
    EXPECT(json_array_size(list) == 2 && number(first, "pid") == 1 && number(first, "bytes") == 3 * GIB_NUMBER);
    EXPECT(json_is_null(json_object_get(json_array_get(list, 1), "bytes")));
    EXPECT(json_is_null(json_object_get(b, "power_limit_w")) && json_is_null(json_object_get(b, "sm_clock_mhz")));
    EXPECT(!json_object_get(j, "notice"));
    json_decref(j);
}

TEST(names_that_would_do_harm_are_shown_as_plain_text) {
    if (!use_nvml("fake_nvml.so")) return;
    Ran r = snug_run("monitor --once");
    EXPECT(r.code == 0 && is_plain(&r.out) && strstr(str_text(&r.out), "Evil?[2J?\"GPU\", </script><b>"));
    ran_free(&r);
    r = snug_run("monitor --csv %s --interval 0.05 --duration 0", test_path("g.csv"));
    Str csv = {0};
    EXPECT(r.code == 0 && file_read(test_path("g.csv"), &csv, 0, NULL) && is_plain(&csv));
    EXPECT(strstr(str_text(&csv), ",1,\"Evil?[2J?\"\"GPU\"\", </script><b>\",35,0,0,1024,24576,25.00\n"));
    str_free(&csv);
    ran_free(&r);
}

TEST(a_driver_with_hardly_any_calls_leaves_readings_unknown) {
    if (!use_nvml("bare_nvml.so")) return;
    json_t *j = look();
    const json_t *a = json_array_get(json_object_get(j, "gpus"), 0);
    EXPECT(json_array_size(json_object_get(j, "gpus")) == 2 &&
           json_is_null(json_object_get(a, "memory_used_bytes")));
    EXPECT_STR(text(a, "name"), "GPU");
    json_decref(j);
    Ran r = snug_run("monitor --once");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "GPU 1"));
    ran_free(&r);
}

TEST(without_a_gpu_the_host_is_shown_and_it_says_so) {
    use_no_nvml();
    json_t *j = look();
    const json_t *host = json_object_get(j, "host");
    EXPECT(json_array_size(json_object_get(j, "gpus")) == 0 && strstr(text(j, "notice"), "no NVIDIA driver"));
    EXPECT(number(host, "memory_total_bytes") > number(host, "memory_available_bytes"));
    json_decref(j);
    Ran r = snug_run("monitor --once");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "no GPU") && strstr(str_text(&r.out), "memory ["));
    ran_free(&r);
    if (!use_nvml("fake_nvml.so")) return;
    setenv("FAKE_NVML_FAIL", "1", 1);
    j = look();
    EXPECT(strstr(text(j, "notice"), "Driver Not Loaded"));
    json_decref(j);
    unsetenv("FAKE_NVML_FAIL");
}

/* ---- CSV ---- */

static const char head[] =
    "Timestamp,Elapsed,GPU_Index,GPU_Name,Temperature,GPU_Utilization,Memory_Utilization,"
    "Memory_Used,Memory_Total,Power_Draw\n";

static int lines_of(const char *name, Str *s) {
    int n = 0;
    str_clear(s);
    EXPECT(file_read(test_path(name), s, 0, NULL));
    for (const char *c = str_text(s); *c; c++) n += *c == '\n';
    return n;
}

TEST(a_csv_has_the_ten_columns_and_a_row_for_each_gpu_and_look) {
    if (!use_nvml("fake_nvml.so")) return;
    Str csv = {0};
    Ran r = snug_run("monitor --csv %s --interval 0.1 --duration 0.25", test_path("g.csv"));
    int n = lines_of("g.csv", &csv); /* a machine that is busy takes fewer looks */
    EXPECT(r.code == 0 && n >= 3 && n <= 7 && n % 2 == 1 && str_starts(str_text(&csv), head));
    EXPECT(strstr(str_text(&csv), ",0,\"Fake GPU\",66,97,41,20480,24576,312.50\n"));
    ran_free(&r);
    r = snug_run("monitor --csv %s --interval 0.1 --duration 0.25", test_path("g.csv"));
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "--overwrite"));
    EXPECT(lines_of("g.csv", &csv) == n);
    ran_free(&r);
    use_no_nvml();
    r = snug_run("monitor --output %s --interval 0.1 --duration 0 --overwrite", test_path("g.csv"));
    EXPECT(r.code == 0 && lines_of("g.csv", &csv) == 2 && strstr(str_text(&csv), ",-1,\"host (no GPU)\",,,,"));
    EXPECT(strstr(str_text(&r.err), "the host's memory"));
    ran_free(&r);
    str_free(&csv);
}

static bool has_a_row(const void *path) {
    int64_t bytes = 0;
    return file_exists(path) && file_size(path, &bytes, NULL) && bytes >= (int64_t)sizeof head + 20;
}

TEST(a_csv_that_is_interrupted_holds_whole_rows) {
    use_no_nvml();
    pid_t pid = world_start("i", world_binary(), NULL, "monitor --csv ../g.csv --interval 0.05");
    Str csv = {0};
    EXPECT(world_until(has_a_row, test_path("g.csv")));
    kill(pid, SIGINT);
    EXPECT(world_wait(pid) == 0);
    EXPECT(lines_of("g.csv", &csv) >= 2 && csv.data[csv.len - 1] == '\n');
    str_free(&csv);
}

/* ---- a command ---- */

TEST(a_wrapped_command_keeps_its_output_and_exit_code) {
    use_no_nvml();
    Ran r = snug_run("monitor -- sh -c 'echo out; echo err >&2; exit 7'");
    EXPECT(r.code == 7);
    EXPECT_STR(str_text(&r.out), "out\n");
    EXPECT(strstr(str_text(&r.err), "err\n") && strstr(str_text(&r.err), "exit code 7"));
    EXPECT(strstr(str_text(&r.err), "host memory  peak"));
    ran_free(&r);
    r = snug_run("monitor -- sh -c 'kill -9 $$'");
    EXPECT(r.code == 128 + 9);
    ran_free(&r);
    r = snug_run("monitor -- /nonexistent/command");
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "/nonexistent/command: cannot be started"));
    ran_free(&r);
    r = snug_run("monitor --json -- echo --once --help");
    EXPECT(r.code == 0 && str_starts(str_text(&r.out), "--once --help\n{"));
    ran_free(&r);
}

TEST(a_command_that_is_missing_is_asked_for) {
    use_no_nvml();
    Ran r = snug_run("monitor --");
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "no command stands behind `--`"));
    ran_free(&r);
}

TEST(the_peak_of_a_command_counts_all_that_it_started) {
    if (!use_nvml("fake_nvml.so")) return;
    char pid_file[400];
    snprintf(pid_file, sizeof pid_file, "%s", test_path("pid"));
    setenv("FAKE_NVML_PID_FILE", pid_file, 1);
    Ran r = snug_run( /* it ends when it has been looked at */
        "monitor --json --interval 0.05 -- sh -c 'echo $$ >%s; head -c 60000000 /dev/zero | tail -c 50000000 >%s; "
        "until [ \"$(wc -c <%s.looks)\" -gt 3 ]; do sleep 0.05; done 2>/dev/null'",
        pid_file, test_path("sink"), pid_file);
    json_t *j = ran_json(&r);
    EXPECT(r.code == 0 && number(j, "exit_code") == 0);
    EXPECT(number(j, "host_peak_bytes") > 50000000); /* of tail, a process of a process */
    EXPECT(number(j, "gpu_peak_bytes") == 3 * GIB_NUMBER);
    const json_t *curve = json_object_get(j, "curve");
    int64_t most = 0;
    for (size_t i = 0; i < json_array_size(curve); i++) {
        int64_t gpu = number(json_array_get(curve, i), "gpu_bytes");
        if (gpu > most) most = gpu;
    }
    EXPECT(json_array_size(curve) > 2 && most == 3 * GIB_NUMBER);
    json_decref(j);
    ran_free(&r);
    unsetenv("FAKE_NVML_PID_FILE");
}

TEST(a_peak_that_nobody_saw_is_not_zero) {
    Wrapped w = {.gpu_peak_bytes = -1};
    Str text = {0};
    json_t *j = wrap_json(&w);
    wrap_text(&text, &w, false);
    EXPECT(json_is_null(json_object_get(j, "host_peak_bytes")) && strstr(str_text(&text), "not seen"));
    json_decref(j);
    str_free(&text);
}

/* No look may meet it: the kernel's own figure counts, and nothing of ours but what a started process begins with. */
TEST(a_command_that_ends_at_once_has_a_peak) {
    use_no_nvml();
    Ran r = snug_run("monitor --json -- true");
    json_t *j = ran_json(&r);
    int64_t peak = number(j, "host_peak_bytes");
    EXPECT(r.code == 0 && peak > 500000 && (peak < 5000000 || test_sanitized()));
    json_decref(j);
    ran_free(&r);
}

TEST(a_signal_to_the_monitor_reaches_the_command) {
    use_no_nvml();
    pid_t pid =
        world_start("s", world_binary(), NULL,
                    "monitor -- sh -c 'trap \"exit 5\" TERM; echo ready >&2; while :; do sleep 0.05; done'");
    EXPECT(world_says("s", "ready"));
    kill(pid, SIGTERM);
    EXPECT(world_wait(pid) == 5);
}

/* ---- jobs ---- */

static const json_t *only_job(const json_t *j) {
    const json_t *jobs = json_object_get(j, "jobs");
    EXPECT(json_array_size(jobs) == 1);
    return json_array_get(jobs, 0);
}

TEST(a_running_job_is_shown_and_one_that_dies_leaves_the_monitor_alive) {
    use_no_nvml();
    setenv("SNUG_JOBS", test_path("jobs"), 1);
    snug_make_job((SnugJob){1, 32, 32});
    pid_t pid =
        world_start("r", world_binary(), NULL,
                    "train --model ../m --data ../rows.jsonl --out run --seq 16 --steps 1000000 --log-steps 1 "
                    "--run-name 'bad\033[2Jname' --device cpu");
    EXPECT(world_says("r", "step 3/"));
    json_t *j = look();
    const json_t *job = only_job(j);
    EXPECT_STR(text(job, "name"), "bad?[2Jname");
    EXPECT_STR(text(job, "state"), "running");
    EXPECT_STR(text(job, "command"), "train");
    EXPECT(number(job, "pid") == pid && number(job, "step") >= 1 && number(job, "total_steps") == 1000000);
    EXPECT(number(job, "planned_bytes") >= number(job, "measured_bytes") && number(job, "measured_bytes") > 0);
    EXPECT(json_is_real(json_object_get(job, "loss")) && strstr(text(job, "out"), "/r/run"));
    EXPECT(number(job, "tokens") > number(job, "step"));
    json_decref(j);
    kill(pid, SIGKILL);
    world_wait(pid);
    Ran r = snug_run("monitor --once");
    EXPECT(r.code == 0 && is_plain(&r.out) && strstr(str_text(&r.out), "DIED") &&
           strstr(str_text(&r.out), "not finished"));
    ran_free(&r);
    j = look();
    EXPECT_STR(text(only_job(j), "state"), "died");
    json_decref(j);
    setenv("SNUG_JOBS", test_path("jobs"), 1);
    EXPECT(world_run(
               "r", world_binary(), NULL,
               "train --model ../m --data ../rows.jsonl --out run --overwrite --seq 16 --steps 2 --device cpu") ==
           0);
    j = look(); /* another run in its place ended well: nothing is left */
    EXPECT(json_array_size(json_object_get(j, "jobs")) == 0);
    json_decref(j);
}

/* Looks until the only job has come to the phase and has counted tokens where it should; NULL: it did not. */
static json_t *look_for(const char *phase, bool tokens) {
    for (int i = 0; i < 3000; i++, world_sleep(0.1)) {
        json_t *j = look();
        const json_t *job = json_array_get(json_object_get(j, "jobs"), 0);
        if (job && !strcmp(text(job, "phase"), phase) && (!tokens || number(job, "tokens") > 0)) return j;
        json_decref(j);
    }
    return NULL;
}

static void write_prompts(const char *name, int n) {
    Str rows = {0};
    for (int i = 0; i < n; i++)
        str_addf(&rows, "{\"prompt\": \"Ada has %d apples.\", \"problem\": \"%d and 1?\", \"answer\": \"%d\"}\n", i,
                 i, i + 1);
    EXPECT(file_write_all(test_path(name), rows.data, rows.len, NULL));
    str_free(&rows);
}

/* Each while it answers, with its plan beside what it took; afterwards nothing of it is left. */
TEST(commands_that_answer_are_shown_with_their_phase_and_tokens) {
    static const struct {
        const char *arguments, *command, *phase, *unit;
        bool tokens;
    } rows[] = {
        {"generate --model tally --prompts ../p.jsonl --ignore-eos --max-tokens 400 --out a.jsonl", "generate",
         "answering", "answer", true},
        {"reason --model tally --data ../p.jsonl --num-examples 2000 --out r.json", "reason", "answering", "problem",
         true},
        {"eval --model tally --data ../p.jsonl --seq 64 --micro-batch 1", "eval", "evaluating", "row", true},
        {"eval --model tally --suite needle --lengths 500 --depths 9 --limit 200", "eval", "evaluating", "request",
         true},
        {"grpo-eval --model tally --tuned ../tuned --parser test --eval-samples 5000 --prompt-tokens 32 --max-tokens "
         "160",
         "grpo-eval", "answering", "answer", true},
    };
    use_no_nvml();
    setenv("SNUG_JOBS", test_path("jobs"), 1);
    write_prompts("p.jsonl", 20000);
    char *tally = realpath("models/tally", NULL);
    EXPECT(tally && !symlink(tally, test_path("tuned")));
    free(tally);
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char folder[16], words[400];
        snprintf(folder, sizeof folder, "g%d", i);
        snprintf(words, sizeof words, "%s --threads 1 --device cpu", rows[i].arguments);
        pid_t pid = world_start(folder, world_binary(), NULL, words);
        json_t *j = look_for(rows[i].phase, rows[i].tokens);
        if (!EXPECT(j != NULL)) world_complain(folder, 0, rows[i].arguments);
        const json_t *job = j ? only_job(j) : NULL;
        EXPECT_STR(text(job, "command"), rows[i].command);
        EXPECT_STR(text(job, "unit"), rows[i].unit);
        EXPECT(number(job, "total_steps") > 0); /* n of total */
        double planned = number(job, "planned_bytes"), measured = number(job, "measured_bytes");
        EXPECT(number(job, "pid") == pid);
        /* with sanitizers freed blocks are kept aside, and grow with the answers */
        if (!EXPECT(planned >= measured || test_sanitized()))
            test_note("    %s: %.0f of %.0f planned", rows[i].arguments, measured, planned);
        EXPECT(measured > 0 && json_is_real(json_object_get(job, "tokens_per_s")));
        json_decref(j);
        kill(pid, SIGINT);
        world_wait(pid);
        j = look();
        EXPECT(json_array_size(json_object_get(j, "jobs")) == 0);
        json_decref(j);
    }
}

TEST(a_conversation_that_waits_for_its_next_line_says_so) {
    use_no_nvml();
    setenv("SNUG_JOBS", test_path("jobs"), 1);
    char command[1200];
    snprintf(command, sizeof command, "mkfifo %s", test_path("typed"));
    EXPECT(system(command) == 0);
    pid_t pid = world_start("c", world_binary(), test_path("typed"), "chat --model tally --max-tokens 8 --device cpu");
    int fd = open(test_path("typed"), O_WRONLY);
    EXPECT(write(fd, "2 and 3?\n", 9) == 9);
    json_t *j = look_for("waiting", false);
    while (j && number(only_job(j), "step") < 1) {
        json_decref(j);
        j = look_for("waiting", false);
    }
    const json_t *job = j ? only_job(j) : NULL;
    EXPECT_STR(text(job, "command"), "chat");
    EXPECT_STR(text(job, "name"), "tally");
    EXPECT_STR(text(job, "out"), "");
    EXPECT(number(job, "step") == 1 && number(job, "planned_bytes") > 0);
    json_decref(j);
    close(fd);
    EXPECT(world_wait(pid) == 0);
}

TEST(files_in_the_folder_of_jobs_that_are_none_are_passed_over) {
    use_no_nvml();
    Err e = {0};
    EXPECT_OK(file_make_private(test_path("jobs"), &e));
    setenv("SNUG_JOBS", test_path("jobs"), 1);
    static const char *const files[] = {"", "{", "[1]", "null", "{\"pid\": \"x\"}", "{\"pid\": -3}", "\xff\xfe"};
    for (int i = 0; i < 7; i++) {
        char name[40];
        snprintf(name, sizeof name, "jobs/%d.json", i + 1);
        EXPECT_OK(file_write_all(test_path(name), files[i], (int64_t)strlen(files[i]), &e));
    }
    json_t *j = look();
    EXPECT(json_array_size(json_object_get(j, "jobs")) == 0);
    json_decref(j);
}

TEST(a_folder_of_jobs_that_others_can_write_is_not_used) {
    Err e = {0};
    JobStatus s;
    EXPECT_OK(file_make_dirs(test_path("open"), &e));
    char command[600];
    snprintf(command, sizeof command, "chmod 777 %s", test_path("open"));
    EXPECT(system(command) == 0);
    status_init(&s);
    status_begin(&s, test_path("open"));
    EXPECT(!s.path[0]);
    status_begin(&s, test_path("own"));
    EXPECT(s.path[0] && file_exists(s.path) && status_is_alive(&s));
    char path[1100];
    snprintf(path, sizeof path, "%s", s.path);
    status_end(&s);
    EXPECT(!file_exists(path));
}

TEST(a_status_whose_folder_was_taken_away_is_written_again) {
    JobStatus s, back;
    Err e = {0};
    status_init(&s);
    snprintf(s.out, sizeof s.out, "/x/y");
    status_begin(&s, test_path("jobs"));
    EXPECT_OK(file_remove_tree(test_path("jobs"), &e));
    s.step = 7;
    status_put(&s);
    EXPECT(status_list(&back, 1, test_path("jobs")) == 1 && back.step == 7);
    status_end(&s);
}

TEST(a_job_of_short_steps_is_not_written_at_every_step) {
    JobStatus s, back;
    status_init(&s);
    snprintf(s.out, sizeof s.out, "/x/y");
    status_begin(&s, test_path("jobs"));
    s.updated += 3600; /* whatever the machine does meanwhile, the last writing is not long ago */
    s.step = 1;
    status_update(&s, "training"); /* another phase */
    s.updated += 3600;
    s.step = 2;
    status_update(&s, "training");
    EXPECT(status_list(&back, 1, test_path("jobs")) == 1 && back.step == 1);
    EXPECT_STR(back.phase, "training");
    s.updated = 0;
    status_update(&s, "training");
    EXPECT(status_list(&back, 1, test_path("jobs")) == 1 && back.step == 2);
    status_update(NULL, "training");
    status_end(&s);
}

TEST(a_status_is_read_back_as_it_was_written) {
    JobStatus s, back;
    status_init(&s);
    snprintf(s.name, sizeof s.name, "a \"name\" with \\ and \xff\n");
    snprintf(s.out, sizeof s.out, "/x/y");
    s.step = 12, s.total_steps = 34, s.loss = -1.25, s.planned_bytes = 1LL << 40;
    status_begin(&s, test_path("jobs"));
    EXPECT(status_list(&back, 1, test_path("jobs")) == 1);
    EXPECT_STR(back.name, "a \"name\" with \\ and ?\n");
    EXPECT_STR(back.out, "/x/y");
    EXPECT(back.step == 12 && back.total_steps == 34 && back.planned_bytes == 1LL << 40 && back.pid == getpid());
    EXPECT(back.loss == -1.25 && isnan(back.left_seconds) && status_is_alive(&back));
    back.start_ticks++; /* another process with the same number */
    EXPECT(!status_is_alive(&back));
    status_end(&s);
}

/* ---- live ---- */

static bool has_two_looks(const void *path) {
    Str out = {0};
    if (file_exists(path)) file_read(path, &out, 0, NULL);
    const char *first = strstr(str_text(&out), "Fake GPU");
    bool two = first && strstr(first + 1, "Fake GPU");
    str_free(&out);
    return two;
}

TEST(without_a_terminal_looks_follow_each_other) {
    if (!use_nvml("fake_nvml.so")) return;
    Str out = {0};
    pid_t pid = world_start("f", world_binary(), NULL, "monitor --interval 0.1");
    EXPECT(world_until(has_two_looks, test_path("f.out")));
    kill(pid, SIGINT);
    EXPECT(world_wait(pid) == 0);
    world_said(&out, NULL, "f");
    EXPECT(is_plain(&out));
    str_free(&out);
    Ran r = snug_run("monitor --interval 0.1 --duration 0.35");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "Fake GPU"));
    ran_free(&r);
}

TEST(a_terminal_is_drawn_live_and_q_gives_it_back) {
    if (!use_nvml("fake_nvml.so")) return;
    void *library = dlopen("libncursesw.so.6", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        test_skip("there is no ncurses");
        return;
    }
    dlclose(library);
    Terminal t;
    if (!terminal_start(&t, "TERM=xterm LC_ALL=C.UTF-8 ", "monitor --interval 0.1")) return;
    EXPECT(terminal_wait(&t, "q leaves") && terminal_wait(&t, "Fake GPU") && terminal_wait(&t, "Evil?[2J?"));
    EXPECT(terminal_more(&t, 20)); /* and drawn again */
    EXPECT(strstr(str_text(&t.shown), "[32m"));
    terminal_type(&t, "q");
    EXPECT(terminal_end(&t) == 0);
    str_free(&t.shown);
    if (!terminal_start(&t, "NO_COLOR=1 TERM=xterm LC_ALL=C.UTF-8 ", "monitor --interval 0.1")) return;
    EXPECT(terminal_wait(&t, "q leaves") && terminal_wait(&t, "Fake GPU"));
    EXPECT(!strstr(str_text(&t.shown), "[32m"));
    terminal_type(&t, "q");
    EXPECT(terminal_end(&t) == 0);
    str_free(&t.shown);
}

TEST(a_terminal_that_cannot_be_drawn_on_gets_plain_lines) {
    if (!use_nvml("fake_nvml.so")) return;
    Terminal t;
    if (!terminal_start(&t, "TERM=dumb LC_ALL=C ", "monitor --interval 0.1 --duration 0.3")) return;
    EXPECT(terminal_wait(&t, "plain lines instead") && terminal_wait(&t, "Fake GPU"));
    EXPECT(terminal_end(&t) == 0);
    str_free(&t.shown);
}
