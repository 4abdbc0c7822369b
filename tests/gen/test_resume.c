/* test_resume.c - a `snug generate` that is killed, asked to leave or given prompts it cannot answer: what was finished
 * is kept, --resume goes on to the file of an undisturbed run, and a bad prompt costs nobody else an answer. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

#define HOW                                                                                                    \
    "generate --model ../model --prompts ../prompts.jsonl --max-tokens 300 --ignore-eos --temperature 1 --n 2 " \
    "--slots 3 --logprobs --device cpu --threads 1 "

static const char *binary(void) { return getenv("SNUG") ? getenv("SNUG") : "./snug"; }

static bool make_world(int prompts) {
    Str s = {0};
    if (!world_make(binary())) return false;
    for (int r = 0; r < prompts; r++)
        str_addf(&s, "{\"ids\":[1,%d,%d],\"id\":\"p%d\",\"max_tokens\":%d}\n", 2 + r % 60, 3 + r % 50, r,
                 20 + r * 53 % 280);
    file_write_all(world_path("prompts.jsonl"), s.data, s.len, NULL);
    str_free(&s);
    return true;
}

static int lines_of(const char *path) {
    Str s = {0};
    int n = 0;
    if (file_exists(path)) file_read(path, &s, 0, NULL);
    for (int64_t i = 0; i < s.len; i++) n += s.data[i] == '\n';
    str_free(&s);
    return n;
}


/* Stops before its write number `write`, sends the signal and lets it go on; gives the exit code. */
static int disturb(const char *folder, const char *arguments, int write, int number) {
    char command[600];
    snprintf(command, sizeof command, "%s --fault write:%d:stop", arguments, write);
    pid_t pid = world_start(folder, getenv("FAULTY"), NULL, command);
    if (!EXPECT(world_wait(pid) == 256)) return -1;
    kill(pid, number);
    kill(pid, SIGCONT);
    return world_wait(pid);
}

static bool said(const char *folder, const char *part) {
    Str err = {0};
    world_said(NULL, &err, folder);
    bool has = strstr(str_text(&err), part) != NULL;
    if (!has) test_note("    no '%s' in:\n%s", part, str_text(&err));
    str_free(&err);
    return has;
}

TEST(a_killed_generate_resumes_to_the_same_file) {
    if (!world_faulty() || !make_world(40)) return;
    EXPECT(world_run("whole", binary(), NULL, HOW "--invariant --out o.jsonl") == 0);
    for (int round = 0; round < 3; round++) {
        char folder[20];
        snprintf(folder, sizeof folder, "kill%d", round);
        for (int times = 0; times <= round; times++) /* the second time it has begun from what was kept */
            EXPECT(disturb(folder, HOW "--invariant --out o.jsonl --resume", 10 + 12 * times, SIGKILL) ==
                       128 + SIGKILL &&
                   lines_of(world_path("%s/o.jsonl.progress", folder)) >= 4);
        EXPECT(world_run(folder, binary(), NULL, HOW "--invariant --out o.jsonl --resume") == 0);
        if (!EXPECT(world_same_file(world_path("%s/o.jsonl", folder), world_path("whole/o.jsonl")))) said(folder, "?");
        EXPECT(!file_exists(world_path("%s/o.jsonl.progress", folder)) &&
               world_temporaries(world_path("%s", folder)) == 0);
    }
    EXPECT(world_run("kill0", binary(), NULL, HOW "--invariant --out o.jsonl --resume") == 0 &&
           said("kill0", "already"));
    EXPECT(lines_of(world_path("whole/o.jsonl")) == 80);
}

/* A last line that a kill cut in half is dropped; one that is broken in the middle is refused. */
TEST(half_a_line_of_kept_answers_is_answered_again) {
    if (!world_faulty() || !make_world(12)) return;
    EXPECT(world_run("whole", binary(), NULL, HOW "--invariant --out o.jsonl") == 0);
    EXPECT(disturb("cut", HOW "--invariant --out o.jsonl", 12, SIGKILL) == 128 + SIGKILL);
    Str s = {0};
    const char *log = world_path("cut/o.jsonl.progress");
    file_read(log, &s, 0, NULL);
    file_write_all(log, s.data, s.len - 9, NULL);
    EXPECT(world_run("cut", binary(), NULL, HOW "--invariant --out o.jsonl --resume") == 0);
    EXPECT(world_same_file(world_path("cut/o.jsonl"), world_path("whole/o.jsonl")));
    char *third = strchr(strchr(s.data, '\n') + 1, '\n') + 1;
    *third = '?';
    file_remove_tree(world_path("cut/o.jsonl"), NULL);
    file_write_all(log, s.data, s.len, NULL);
    EXPECT(world_run("cut", binary(), NULL, HOW "--invariant --out o.jsonl --resume") == 1);
    EXPECT(said("cut", "o.jsonl.progress:3") && said("cut", "--overwrite"));
    str_free(&s);
}

TEST(an_interrupted_generate_keeps_its_answers_and_says_how_to_go_on) {
    if (!world_faulty() || !make_world(60)) return;
    EXPECT(world_run("whole", binary(), NULL, HOW "--out o.jsonl") == 0);
    if (!EXPECT(disturb("left", HOW "--out o.jsonl", 12, SIGTERM) == 1)) return;
    EXPECT(said("left", "interrupted") && said("left", "--resume") && !file_exists(world_path("left/o.jsonl")));
    int kept = lines_of(world_path("left/o.jsonl.progress"));
    EXPECT(kept >= 5);
    /* refused commands change nothing */
    unsigned long long before = world_fingerprint(world_path("left"));
    EXPECT(world_run("left", binary(), NULL, HOW "--out o.jsonl") == 1 && said("left", "--overwrite"));
    EXPECT(world_run("left", binary(), NULL, HOW "--out o.jsonl --resume --seed 7") == 1 && said("left", "seed is 42"));
    EXPECT(world_run("left", binary(), NULL, HOW "--out o.jsonl --resume --budget 1MiB") == 3);
    EXPECT(world_run("left", binary(), NULL, HOW "--out o.jsonl --resume --overwrite") == 2);
    EXPECT(world_run("left", binary(), NULL, HOW "--resume") == 2 && said("left", "--out"));
    EXPECT(world_fingerprint(world_path("left")) == before);
    EXPECT(world_run("left", binary(), NULL, HOW "--out o.jsonl --resume --json") == 0);
    EXPECT(world_same_file(world_path("left/o.jsonl"), world_path("whole/o.jsonl")));
    Str out = {0};
    world_said(&out, NULL, "left");
    json_t *summary = json_loads(str_text(&out), 0, NULL);
    EXPECT(json_integer_value(json_object_get(summary, "resumed")) >= kept - 1); /* the first line is the job */
    json_decref(summary);
    str_free(&out);
    EXPECT(world_run("none", binary(), NULL, HOW "--out o.jsonl --budget 1MiB") == 3);
    EXPECT(!file_exists(world_path("none/o.jsonl.progress")));
}

static bool has_two_lines(const void *path) { return lines_of(path) >= 2; }

TEST(finished_answers_reach_standard_output_on_an_interrupt) {
    enum { PROMPTS = 4000 }; /* it cannot come to their end before it is asked */
    char path[400];
    if (!make_world(PROMPTS)) return;
    snprintf(path, sizeof path, "%s", world_path("out.out"));
    pid_t pid = world_start("out", binary(), NULL, HOW "--out -");
    EXPECT(world_until(has_two_lines, path));
    kill(pid, SIGINT);
    EXPECT(world_wait(pid) == 1 && said("out", "interrupted"));
    Str out = {0};
    world_said(&out, NULL, "out");
    int lines = 0;
    for (char *save = NULL, *line = strtok_r(out.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save), lines++) {
        json_t *j = json_loads(line, 0, NULL);
        EXPECT(j && json_object_get(j, "ids"));
        json_decref(j);
    }
    EXPECT(lines >= 2 && lines < 2 * PROMPTS);
    str_free(&out);
}

/* ---- prompts that cannot be answered ---- */

static json_t *line_at(const char *path, int at) { /* gives */
    Str s = {0};
    file_read(path, &s, 0, NULL);
    char *line = s.data;
    for (int i = 0; i < at && line; i++) line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    json_t *j = line ? json_loads(line, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    str_free(&s);
    return j;
}

TEST(a_prompt_that_is_too_long_fails_by_itself_and_names_its_line) {
    if (!make_world(1)) return;
    Str s = {0};
    str_add(&s, "{\"ids\":[1,2,3],\"seed\":1}\n\n{\"ids\":[9");
    for (int i = 0; i < 60; i++) str_addf(&s, ",%d", i);
    str_add(&s,
            "],\"id\":\"long\"}\n{\"ids\":[]}\n{\"ids\":[4,5],\"seed\":2}\n{\"ids\":[4,100000]}\n{\"ids\":[6],"
            "\"seed\":3}\n");
    file_write_all(world_path("mixed.jsonl"), s.data, s.len, NULL);
    str_clear(&s);
    str_add(&s, "{\"ids\":[1,2,3],\"seed\":1}\n{\"ids\":[4,5],\"seed\":2}\n{\"ids\":[6],\"seed\":3}\n");
    file_write_all(world_path("good.jsonl"), s.data, s.len, NULL);
    str_free(&s);
#define MIXED "generate --model ../model --context 40 --max-tokens 12 --ignore-eos --temperature 1 --device cpu --json "
    EXPECT(world_run("good", binary(), NULL, MIXED "--prompts ../good.jsonl --out o.jsonl") == 0);
    for (int n = 1; n <= 2; n++) {
        char arguments[400], folder[24];
        snprintf(folder, sizeof folder, "mixed%d", n);
        snprintf(arguments, sizeof arguments, MIXED "--prompts ../mixed.jsonl --out o.jsonl --n %d", n);
        EXPECT(world_run(folder, binary(), NULL, arguments) == 1);
        EXPECT(said(folder, "3 of 6 prompts were not answered") && said(folder, "mixed.jsonl, lines 3, 4, 6"));
        EXPECT(said(folder, "mixed.jsonl:3: 61 tokens of prompt and 12 of answer are more than the context of 40"));
        EXPECT(lines_of(world_path("%s/o.jsonl", folder)) == 3 + 3 * n);
        EXPECT(!file_exists(world_path("%s/o.jsonl.progress", folder)));
        static const int good_at[] = {0, 3, 5}, bad_at[] = {1, 2, 4}, line[] = {3, 4, 6};
        for (int i = 0; i < 3; i++) { /* answers before it have n lines each, errors one */
            json_t *want = line_at(world_path("good/o.jsonl"), i),
                   *have = line_at(world_path("%s/o.jsonl", folder), good_at[i] + (n - 1) * i),
                   *bad = line_at(world_path("%s/o.jsonl", folder), bad_at[i] + (n - 1) * (i == 2 ? 2 : 1));
            EXPECT(want && json_equal(json_object_get(want, "ids"), json_object_get(have, "ids")));
            EXPECT(json_integer_value(json_object_get(have, "index")) == good_at[i]);
            EXPECT(json_integer_value(json_object_get(bad, "index")) == bad_at[i] &&
                   json_integer_value(json_object_get(bad, "line")) == line[i] &&
                   json_is_string(json_object_get(bad, "error")) && !json_object_get(bad, "ids"));
            json_decref(want), json_decref(have), json_decref(bad);
        }
        Str out = {0};
        world_said(&out, NULL, folder);
        json_t *summary = json_loads(str_text(&out), 0, NULL);
        EXPECT(json_integer_value(json_object_get(summary, "failed")) == 3);
        json_decref(summary);
        str_free(&out);
    }
    json_t *bad = line_at(world_path("mixed1/o.jsonl"), 1);
    EXPECT_STR(json_string_value(json_object_get(bad, "id")), "long");
    json_decref(bad);
}

TEST(prompts_come_from_standard_input_and_answers_go_to_standard_output) {
    if (!make_world(5)) return;
    EXPECT(world_run("file", binary(), NULL, HOW "--out o.jsonl") == 0);
    EXPECT(world_run(
               "pipe", binary(), "../prompts.jsonl",
               "generate --model ../model --prompts - --max-tokens 300 --ignore-eos --temperature 1 --n 2 --slots 3 "
               "--logprobs --device cpu --threads 1 --out -") == 0);
    EXPECT(world_same_file(world_path("file/o.jsonl"), world_path("pipe.out")));
    EXPECT(!file_exists(world_path("pipe/-")) && !file_exists(world_path("pipe/-.progress")));
    EXPECT(world_run("pipe", binary(), "/dev/null", "generate --model ../model --prompts - --device cpu") == 1);
    EXPECT(said("pipe", "standard input: holds no prompts"));
}

/* Weights of which some are no numbers. */
TEST(logits_that_are_not_finite_are_an_error_in_their_line) {
    if (!make_world(2)) return;
    Str s = {0};
    const char *path = world_path("model/model.safetensors");
    file_read(path, &s, 0, NULL);
    memset(s.data + s.len - 64, 0xff, 64);
    file_write_all(path, s.data, s.len, NULL);
    str_free(&s);
    EXPECT(world_run("wild", binary(), NULL, HOW "--out o.jsonl") == 1);
    EXPECT(lines_of(world_path("wild/o.jsonl")) == 4);
    json_t *j = line_at(world_path("wild/o.jsonl"), 3);
    const char *error = json_string_value(json_object_get(j, "error"));
    EXPECT(error && strstr(error, "not finite") && said("wild", "2 of 2 prompts were not answered"));
    EXPECT(json_integer_value(json_object_get(j, "sample")) == 1 &&
           json_integer_value(json_object_get(j, "index")) == 1);
    json_decref(j);
}

TEST(a_generate_that_found_no_room_for_its_first_line_is_no_interrupted_one) {
    char command[3000];
    if (!make_world(2)) return;
    EXPECT(file_make_dirs(world_path("w"), NULL)); /* file sizes of 0: as on a full disk */
    snprintf(command, sizeof command,
             "program=$(realpath %s); cd %s && (ulimit -f 0; $program " HOW "--out o.jsonl >/dev/null 2>&1)", binary(),
             world_path("w"));
    EXPECT(system(command) != 0);
    EXPECT(!file_exists(world_path("w/o.jsonl.progress")) && !file_exists(world_path("w/o.jsonl")));
    EXPECT(world_run("w", binary(), NULL, HOW "--out o.jsonl") == 0);
}
