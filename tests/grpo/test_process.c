/* test_process.c - a reward command that hangs, dies, babbles or is not there: each costs its sample and nothing
 * else. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "grpo/process.h"
#include "obs/sensors.h"
#include "tests/test.h"
#include "tests/world.h"

/* ---- what a test sees ---- */

enum { MOST = 400 };

typedef struct Seen {
    Score score[MOST];
    int n;
} Seen;

static void see(void *user, const Score *s) {
    Seen *seen = user;
    if (EXPECT(s->id >= 0 && s->id < MOST)) seen->score[s->id] = *s;
    seen->n++;
}

static int open_files(void) {
    char **names;
    int64_t n = 0;
    Err e = {0};
    EXPECT_OK(file_list("/proc/self/fd", &names, &n, &e));
    for (int64_t i = 0; i < n; i++) mem_free(names[i]);
    mem_free(names);
    return (int)n;
}

static void expect_no_children(void) {
    EXPECT(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

/* A script that answers by what stands in the line. */
static const char script[] =
    "while read -r line; do case \"$line\" in\n"
    "*hang*) sleep 1000 & wait ;;\n"
    "*die*) exit 3 ;;\n"
    "*killed*) kill -9 $$ ;;\n"
    "*junk*) echo 'loading model...' ;;\n"
    "*empty*) echo ;;\n"
    "*null*) echo null ;;\n"
    "*text*) echo '{\"reward\": \"high\"}' ;;\n"
    "*other*) echo '{\"id\": 99999, \"reward\": 1}' ;;\n"
    "*twice*) printf '0.25\\n0.75\\n' ;;\n"
    "*nan*) echo NaN ;;\n"
    "*big*) head -c 200000 /dev/zero | tr '\\0' x; echo ;;\n"
    "*half*) printf 0.5; exec 1>&-; sleep 1000 ;;\n"
    "*) echo '{\"reward\": 0.5}' ;;\n"
    "esac; done\n";

static const char *write_script(const char *text) {
    static char path[300];
    Err e = {0};
    snprintf(path, sizeof path, "%s/reward.sh", test_tmp());
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
    return path;
}

enum { LONG = 300 }; /* seconds that no reply takes */

static bool open_scorer(Scorer **s, Seen *seen, const char *const *argv, int processes, double seconds) {
    Err e = {0};
    ScorerSpec spec = {
        .argv = argv, .processes = processes, .seconds = seconds, .start_seconds = seconds, .err_fd = -1};
    memset(seen, 0, sizeof *seen);
    bool ok = scorer_open(s, &spec, see, seen, &e);
    EXPECT_OK(ok);
    return ok;
}

static void submit(Scorer *s, int64_t id, const char *word) {
    char line[200], name[60];
    snprintf(line, sizeof line, "{\"id\": %lld, \"answer\": \"%s\"}\n", (long long)id, word);
    snprintf(name, sizeof name, "item %lld", (long long)id);
    scorer_submit(s, id, name, line);
}

/* ---- tests ---- */

static const struct {
    const char *word;
    ScoreEnd end;
    double reward;
    const char *why;
} words[] = {
    {"fine", SCORE_GIVEN, 0.5, ""},
    {"hang", SCORE_LATE, NAN, "no reply in"},
    {"die", SCORE_DIED, NAN, "exit code 3"},
    {"killed", SCORE_DIED, NAN, "signal 9"},
    {"junk", SCORE_RUBBISH, NAN, "not JSON: loading model..."},
    {"empty", SCORE_RUBBISH, NAN, "not JSON"},
    {"null", SCORE_NONE, NAN, ""},
    {"text", SCORE_RUBBISH, NAN, "no number"},
    {"other", SCORE_RUBBISH, NAN, "another id"},
    {"twice", SCORE_GIVEN, 0.25, ""},
    {"nan", SCORE_RUBBISH, NAN, "not JSON: NaN"},
    {"big", SCORE_RUBBISH, NAN, "more than 64.00 KiB"},
    {"half", SCORE_DIED, NAN, "ended its output"},
    {"fine", SCORE_GIVEN, 0.5, ""},
};

static void expect_word(const Score *s, int i) {
    EXPECT(s->end == words[i].end && (isnan(words[i].reward) ? isnan(s->reward) : s->reward == words[i].reward));
    if (!EXPECT(strstr(s->why, words[i].why))) test_note("    %s: %s", words[i].word, s->why);
}

/* Every word `times` times, through so many processes; false: another than the one that hangs was late too. */
static bool try_words(int processes, int times, double seconds) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    int before = open_files(), n = COUNT_OF(words), late = 0;
    const char *argv[] = {"sh", write_script(script), NULL};
    if (!open_scorer(&s, &seen, argv, processes, seconds)) return true;
    for (int i = 0; i < times * n; i++) submit(s, i, words[i % n].word);
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    EXPECT(seen.n == times * n && scorer_pending(s) == 0);
    for (int i = 0; i < times * n; i++) late += seen.score[i].end == SCORE_LATE;
    bool counts = late == times || seconds >= LONG;
    for (int i = 0; i < times * n && counts; i++) expect_word(&seen.score[i], i % n);
    ScorerFacts f = scorer_facts(s);
    if (counts) {
        EXPECT(f.ended[SCORE_GIVEN] == 3 * times && f.ended[SCORE_NONE] == times && f.ended[SCORE_LATE] == times);
        EXPECT(f.ended[SCORE_DIED] == 3 * times && f.ended[SCORE_RUBBISH] == 6 * times);
        EXPECT(f.restarts >= 10 * times - processes);
    }
    scorer_close(s);
    expect_no_children();
    EXPECT(open_files() == before);
    return counts;
}

/* The one that hangs is waited for; where the machine is so busy that others come too late as well, longer. */
TEST(a_process_that_goes_wrong_costs_its_sample_and_nothing_else) {
    log_quiet(true);
    for (int processes = 1; processes <= 3; processes += 2)
        for (double seconds = 0.4; !try_words(processes, processes > 1 ? 2 : 1, seconds);) seconds *= 4;
    log_quiet(false);
}

TEST(many_samples_go_through_a_few_processes) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    /* the reply says which line it is for, after a while that depends on it */
    const char *argv[] = {
        "sh",
        write_script("while read -r line; do n=${line#*: }; n=${n%%,*}; case $n in *[02468]) sleep 0.01;; "
                     "esac; echo \"{\\\"id\\\": $n, \\\"reward\\\": $n.5}\"; done\n"),
        NULL};
    if (!open_scorer(&s, &seen, argv, 8, LONG)) return;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 200; i++) submit(s, 200 * round + i, "x");
        EXPECT(scorer_pending(s) == 200);
        EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    }
    EXPECT(seen.n == 400 && scorer_facts(s).restarts == 0);
    for (int i = 0; i < 400; i++) EXPECT(seen.score[i].reward == i + 0.5);
    scorer_close(s);
    expect_no_children();
}

TEST(a_line_longer_than_a_pipe_is_sent_whole) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    const char *argv[] = {"sh", write_script("while read -r line; do echo ${#line}; done\n"), NULL};
    Str line = {0};
    if (!open_scorer(&s, &seen, argv, 2, LONG)) return;
    str_add(&line, "{\"answer\": \"");
    for (int i = 0; i < 300000; i++) str_add_char(&line, 'y');
    str_add(&line, "\"}\n");
    scorer_submit(s, 1, "a long one", line.data);
    submit(s, 2, "short");
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    EXPECT(seen.score[1].reward == (double)line.len - 1 && seen.score[2].reward > 10);
    str_free(&line);
    scorer_close(s);
}

/* The number in a file that a script has written; 0: none. */
static int number_in(const char *path) {
    Err e = {0};
    Str text = {0};
    EXPECT_OK(file_read(path, &text, 0, &e));
    int n = atoi(str_text(&text));
    str_free(&text);
    return n;
}

TEST(a_process_that_leaves_while_idle_costs_no_sample) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    char note[300], text[700];
    snprintf(note, sizeof note, "%s", test_path("pid"));
    snprintf(text, sizeof text, "read -r line; echo $$ > %s; echo 0.5\n", note); /* one line, then it leaves */
    const char *argv[] = {"sh", write_script(text), NULL};
    if (!open_scorer(&s, &seen, argv, 1, LONG)) return;
    for (int i = 0; i < 5; i++) {
        submit(s, i, "x");
        EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
        EXPECT(world_is_gone(number_in(note)));
    }
    EXPECT(scorer_facts(s).ended[SCORE_GIVEN] == 5 && scorer_facts(s).restarts == 4);
    scorer_close(s);
    expect_no_children();
}

TEST(what_a_reward_command_started_ends_with_it) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    char note[300], text[1200];
    snprintf(note, sizeof note, "%s", test_path("pid"));
    snprintf(text, sizeof text, "sleep 1000 & echo $! > %s.new; mv %s.new %s; while read -r line; do :; done\n", note,
             note, note);
    const char *argv[] = {text, NULL};
    ScorerSpec spec = {
        .argv = argv, .shell = true, .processes = 1, .seconds = 0.2, .start_seconds = 0.1, .err_fd = -1};
    memset(&seen, 0, sizeof seen);
    EXPECT_OK(scorer_open(&s, &spec, see, &seen, &e));
    EXPECT(world_appears(note)); /* its time begins with a line */
    log_quiet(true);
    submit(s, 0, "x");
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    log_quiet(false);
    EXPECT(seen.score[0].end == SCORE_LATE);
    scorer_close(s);
    int sleeper = number_in(note);
    EXPECT(sleeper > 1 && world_is_gone(sleeper));
}

TEST(a_killed_run_leaves_no_process_that_waits_for_lines) {
    char note[300], text[1200];
    Err e = {0};
    snprintf(note, sizeof note, "%s", test_path("pid"));
    snprintf(text, sizeof text, "echo $$ > %s.new; mv %s.new %s; while read -r line; do :; done\n", note, note,
             note);
    const char *argv[] = {"sh", write_script(text), NULL};
    pid_t run = fork();
    if (run == 0) { /* the run: it waits to be killed */
        Scorer *s;
        ScorerSpec spec = {.argv = argv, .processes = 1, .err_fd = -1};
        if (scorer_open(&s, &spec, see, NULL, &e)) pause();
        _exit(1);
    }
    EXPECT(world_appears(note));
    kill(run, SIGKILL);
    waitpid(run, NULL, 0);
    int worker = number_in(note);
    EXPECT(worker > 1 && world_is_gone(worker));
}

static bool stop_at_once(void *user) {
    return --*(int *)user > 0;
}

TEST(waiting_for_rewards_can_be_interrupted) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    int asked = 2, before = open_files();
    const char *argv[] = {"sleep", "1000", NULL};
    if (!open_scorer(&s, &seen, argv, 2, 1000)) return;
    for (int i = 0; i < 5; i++) submit(s, i, "x");
    double began = sensors_seconds();
    EXPECT(!scorer_finish(s, stop_at_once, &asked, &e) && strstr(e.text, "5 rewards"));
    EXPECT(scorer_pending(s) == 0 && sensors_seconds() - began < 100);
    scorer_close(s);
    expect_no_children();
    EXPECT(open_files() == before);
}

TEST(a_process_that_cannot_be_started_again_costs_its_sample) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    struct rlimit usual, low;
    const char *argv[] = {"sh", write_script(script), NULL};
    if (!open_scorer(&s, &seen, argv, 1, LONG)) return;
    log_quiet(true);
    submit(s, 0, "die");
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    getrlimit(RLIMIT_NOFILE, &usual);
    low = usual;
    low.rlim_cur = (rlim_t)open_files(); /* no room for the pipes */
    EXPECT(setrlimit(RLIMIT_NOFILE, &low) == 0);
    submit(s, 1, "fine");
    submit(s, 2, "fine");
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    EXPECT(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    submit(s, 3, "fine");
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    log_quiet(false);
    for (int i = 1; i < 3; i++)
        EXPECT(seen.score[i].end == SCORE_DIED && strstr(seen.score[i].why, "cannot be started"));
    EXPECT(seen.score[3].end == SCORE_GIVEN && scorer_facts(s).ended[SCORE_DIED] == 3);
    scorer_close(s);
    expect_no_children();
}

/* The limit that its reason speaks of; -1: it is no sample that came late. */
static double limit_of(const Score *s) {
    static const char says[] = "no reply in ";
    return strncmp(s->why, says, sizeof says - 1) ? -1 : strtod(s->why + sizeof says - 1, NULL);
}

static bool score_three(Seen *seen, const char *const *said, double start_seconds) {
    Scorer *s;
    Err e = {0};
    const char *argv[] = {"sh", write_script(script), NULL};
    ScorerSpec spec = {.argv = argv, .processes = 1, .seconds = 0.2, .start_seconds = start_seconds, .err_fd = -1};
    memset(seen, 0, sizeof *seen);
    if (!scorer_open(&s, &spec, see, seen, &e)) return EXPECT(false);
    for (int i = 0; i < 3; i++) submit(s, i, said[i]);
    EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
    scorer_close(s);
    expect_no_children();
    return true;
}

/* The time to start up is given in full until one start was seen, quick or in vain. */
TEST(a_command_that_hangs_does_not_cost_its_start_again_and_again) {
    static const char *const never[] = {"hang", "hang", "hang"}, *const sometimes[] = {"fine", "hang", "hang"};
    Seen seen;
    log_quiet(true);
    if (score_three(&seen, never, 1)) {
        EXPECT(limit_of(&seen.score[0]) == 1.2);
        EXPECT(limit_of(&seen.score[1]) == 0.2 && limit_of(&seen.score[2]) == 0.2);
    }
    if (score_three(&seen, sometimes, 1000)) {
        EXPECT(seen.score[0].end == SCORE_GIVEN && limit_of(&seen.score[1]) == 0.2);
        EXPECT(limit_of(&seen.score[2]) > 0.2 && limit_of(&seen.score[2]) < 1000); /* started again, and quickly */
    }
    log_quiet(false);
}

/* A start in vain was paid for every sample. */
TEST(a_command_that_dies_while_it_starts_does_not_cost_its_start_for_every_sample) {
    enum { SAMPLES = 40, PROCESSES = 2 };
    static const char starts[] = "echo x >>\"$0\"; read -r line; exit 3\n";
    Scorer *s;
    Seen seen;
    Str starts_of = {0};
    Err e = {0};
    char file[600];
    snprintf(file, sizeof file, "%s/starts", test_tmp());
    const char *argv[] = {"sh", "-c", starts, file, NULL};
    log_quiet(true);
    if (open_scorer(&s, &seen, argv, PROCESSES, LONG)) {
        for (int i = 0; i < SAMPLES; i++) submit(s, i, "any");
        EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
        EXPECT(seen.n == SAMPLES && scorer_facts(s).ended[SCORE_DIED] == SAMPLES);
        EXPECT(strstr(seen.score[SAMPLES - 1].why, "is not started again"));
        scorer_close(s);
        EXPECT(file_read(file, &starts_of, 0, &e) && starts_of.len <= 2 * (SCORER_TRIES + PROCESSES));
    }
    log_quiet(false);
    str_free(&starts_of);
}

TEST(a_command_that_never_scores_a_sample_costs_every_one_and_the_run_goes_on) {
    Scorer *s;
    Seen seen;
    Err e = {0};
    const char *argv[] = {"sh", write_script(script), NULL};
    log_quiet(true);
    if (open_scorer(&s, &seen, argv, 2, 20)) {
        for (int i = 0; i < 40; i++) submit(s, i, "die");
        EXPECT_OK(scorer_finish(s, NULL, NULL, &e));
        EXPECT(scorer_pending(s) == 0 && seen.n == 40 && scorer_facts(s).ended[SCORE_DIED] == 40);
        scorer_close(s);
        expect_no_children();
    }
    log_quiet(false);
}

TEST(a_reward_command_that_is_not_there_is_refused_at_once) {
    Scorer *s;
    Err e = {0};
    int before = open_files();
    const char *argv[] = {"/no/such/program", NULL}, *nothing[] = {NULL};
    ScorerSpec spec = {.argv = argv, .processes = 2, .err_fd = -1};
    EXPECT(!scorer_open(&s, &spec, see, NULL, &e) && strstr(e.text, "/no/such/program: cannot be started"));
    spec.argv = nothing;
    EXPECT(!scorer_open(&s, &spec, see, NULL, &e) && strstr(e.text, "empty"));
    spec = (ScorerSpec){.argv = argv, .processes = 65, .err_fd = -1};
    EXPECT(!scorer_open(&s, &spec, see, NULL, &e) && strstr(e.text, "1 to 64"));
    expect_no_children();
    EXPECT(open_files() == before);
}

TEST(a_line_holds_what_a_reward_needs) {
    char question[] = "q", gold[] = "g";
    Item item = {.question = question, .gold = gold, .columns = json_pack("{s:i}", "level", 3)};
    item.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "q");
    Str line = {0};
    scorer_line(&line, 7, &(RewardInput){&item, "rewritten\n\xff", "42"});
    EXPECT(str_ends(line.data, "}\n") && strchr(line.data, '\n') == line.data + line.len - 1);
    json_t *v = json_loads(line.data, 0, NULL);
    EXPECT(json_integer_value(json_object_get(v, "id")) == 7);
    EXPECT(json_equal(json_object_get(v, "prompt"), item.messages) &&
           json_equal(json_object_get(v, "columns"), item.columns));
    EXPECT_STR(json_string_value(json_object_get(v, "completion")), "rewritten\n\xef\xbf\xbd");
    EXPECT_STR(json_string_value(json_object_get(v, "answer")), "42");
    json_decref(v);
    json_decref(item.messages);
    json_decref(item.columns);
    str_free(&line);
}

/* ---- child.h alone ---- */

/* What a program says until it ends, given one line. */
static void ask_child(char *text, int64_t room, const char *command) {
    Child c;
    Err e = {0};
    int64_t got = 0, n;
    char how[CHILD_HOW];
    const char *argv[] = {"sh", "-c", command, NULL};
    EXPECT_OK(child_start(&c, argv, -1, &e));
    EXPECT(child_write(&c, "back\n", 5) == 5);
    child_end_input(&c);
    while ((n = child_read(&c, text + got, room - 1 - got)) >= 0) {
        ChildWait w = {.c = &c};
        got += n;
        child_wait(&w, 1, 1000);
    }
    text[got] = 0;
    child_stop(&c, LONG, how);
    EXPECT_STR(how, "exit code 0");
}

TEST(a_child_gets_no_file_of_ours_and_usual_signals) {
    char text[4096];
    Child other;
    Err e = {0};
    int fd, alone;
    unsigned long long ignored = ~0ull;
    const char *argv[] = {"cat", NULL}, *count = "ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status; cat";
    ask_child(text, sizeof text, count);
    alone = atoi(text);
    EXPECT_OK(file_open_append(test_path("file"), &fd, &e));
    EXPECT_OK(child_start(&other, argv, -1, &e));
    signal(SIGPIPE, SIG_IGN);
    ask_child(text, sizeof text, count);
    signal(SIGPIPE, SIG_DFL);
    EXPECT(atoi(text) == alone && strstr(text, "back"));
    const char *line = strstr(text, "SigIgn:");
    if (EXPECT(line)) sscanf(line + 7, "%llx", &ignored);
    EXPECT(!(ignored & (1ull << (SIGPIPE - 1))));
    file_close(fd);
    child_stop(&other, 5, NULL);
    expect_no_children();
}

TEST(writing_to_a_child_that_left_is_no_signal) {
    Child c;
    Err e = {0};
    const char *argv[] = {"true", NULL};
    EXPECT_OK(child_start(&c, argv, -1, &e));
    EXPECT(world_is_gone(c.pid));
    EXPECT(child_write(&c, "x", 1) < 0); /* SIGPIPE would have ended this test */
    child_stop(&c, 1, NULL);
    expect_no_children();
}
