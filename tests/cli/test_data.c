/* test_data.c - data as a person names it: several files, weights, tables and texts; what was taken for what is
 * said, and the configuration that is written repeats it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/snug.h"
#include "tests/test.h"

static void put_file(const char *name, const char *text) {
    file_write_all(test_path(name), text, (int64_t)strlen(text), NULL);
}

/* Rows of ids from `from` on, n of them, that differ. */
static void put_ids(const char *name, int from, int n) {
    Str s = {0};
    for (int i = from; i < from + n; i++) {
        str_addf(&s, "{\"ids\":[%d", i % SNUG_JOB_VOCAB);
        for (int k = 1; k < 6 + i % 9; k++) str_addf(&s, ",%d", (i * 7 + k * k) % SNUG_JOB_VOCAB);
        str_add(&s, "]}\n");
    }
    put_file(name, str_text(&s));
    str_free(&s);
}

static void checksum(char to[40], const char *flags) {
    Ran r = snug_run(
        "train --model %s --out %s --overwrite --seq 16 --steps 5 --threads 1 --no-save --json --device cpu %s",
        test_path("m"), test_path("o"), flags);
    json_t *j = r.code ? NULL : ran_json(&r);
    const char *sum = json_string_value(json_object_get(j, "checksum"));
    snprintf(to, 40, "%s", sum ? sum : "none");
    if (!EXPECT(sum)) test_note("    %s: %s", flags, str_text(&r.err));
    json_decref(j);
    ran_free(&r);
}

TEST(several_files_of_data_are_joined_and_the_written_configuration_repeats_it) {
    char flags[900], one[40], two[40], comma[40], again[40];
    snug_make_job((SnugJob){1, 16, 16});
    put_ids("a.jsonl", 0, 30);
    put_ids("b.jsonl", 30, 10);
    put_ids("ab.jsonl", 0, 40);
    snprintf(flags, sizeof flags, "--data %s", test_path("ab.jsonl"));
    checksum(one, flags);
    snprintf(flags, sizeof flags, "--data %s --data %s", test_path("a.jsonl"), test_path("b.jsonl"));
    checksum(two, flags);
    snprintf(flags, sizeof flags, "--data %s,%s", test_path("a.jsonl"), test_path("b.jsonl"));
    checksum(comma, flags);
    EXPECT_STR(two, one); /* no file is dropped */
    EXPECT_STR(comma, one);
    snprintf(flags, sizeof flags, "--config %s", test_path("o/config.yaml"));
    file_copy(test_path("o/config.yaml"), test_path("kept.yaml"), NULL);
    snprintf(flags, sizeof flags, "--config %s", test_path("kept.yaml"));
    checksum(again, flags);
    EXPECT_STR(again, one);
    /* by weight: another order, the same whenever it is asked for */
    snprintf(flags, sizeof flags, "--data %s:1,%s:3", test_path("a.jsonl"), test_path("b.jsonl"));
    checksum(two, flags);
    checksum(again, flags);
    EXPECT(strcmp(two, one));
    EXPECT_STR(again, two);
}

TEST(data_is_said_for_what_it_is_taken_or_refused) {
    static const struct {
        const char *name, *text, *more;
        int code;
        const char *says;
    } some[] = {
        {"a.txt", "# ::id 1\n# ::snt The boy wants to go.\n(w / want-01\n   :ARG0 (b / boy))\n", "", 1,
         "a.txt:1: text can only be encoded with the model's tokenizer"}, /* no longer taken for plain text */
        {"a.amr", "# ::id 1\n# ::snt Go.\n(g / go-02)\n", "", 1, "a.amr:1: text can only be encoded"},
        {"a.md", "# Title\n", "", 1, "is not a list of samples: it begins with \"# Title\""},
        {"a.jsonl", "{\"ids\":[1,2,3]}\n", ",%s/none.jsonl", 1, "none.jsonl: cannot open"},
        {"a.jsonl", "{\"ids\":[1,2,3]}\n", ",tatsu-lab/alpaca", 1, "tatsu-lab/alpaca: there is no such file or folder"},
        {"a.jsonl", "{\"ids\":[1,2,3]}\n", ",https://a.b/c.jsonl", 1, "nothing is downloaded"},
        {"a.jsonl", "{\"ids\":[1,2,3]}\n", ":0", 2, "a weight lies above 0"},
        {"a.jsonl", "{\"ids\":[1,2,3]}\n", " --eval-data %s/a.jsonl:2", 2, "has no weight"},
        {"a.jsonl", "{\"ids\":[1,2,3]}\n", " --dry-run", 0, "a.jsonl: token ids (field: ids)"},
        {"a.csv", "ids\n1\n", "", 1, "field 'ids' is text, a list was expected"},
    };
    snug_make_job((SnugJob){1, 16, 16});
    for (int i = 0; i < COUNT_OF(some); i++) {
        char more[300];
        put_file(some[i].name, some[i].text);
        snprintf(more, sizeof more, some[i].more, test_tmp());
        Ran r = snug_run("train --model %s --out %s --overwrite --seq 16 --no-save --data %s%s", test_path("m"),
                         test_path("o"), test_path(some[i].name), more);
        if (!EXPECT(r.code == some[i].code && strstr(str_text(&r.err), some[i].says)))
            test_note("    %s%s: %d, %s", some[i].name, more, r.code, str_text(&r.err));
        ran_free(&r);
    }
}

TEST(a_pipe_is_data_like_a_file) {
    const char *pipe = test_path("p.jsonl");
    snug_make_job((SnugJob){1, 16, 16});
    if (!EXPECT(!mkfifo(pipe, 0600))) return;
    pid_t writer = fork();
    if (!writer) { /* a row at a time, so that the pipe changes while it is read */
        int fd = open(pipe, O_WRONLY);
        for (int i = 0; i < 20; i++) {
            if (write(fd, "{\"ids\":[1,2,3]}\n", 16) < 0) _exit(1);
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        }
        _exit(0);
    }
    Ran r = snug_run("train --model %s --out %s --overwrite --seq 16 --no-save --steps 1 --data %s", test_path("m"),
                     test_path("o"), pipe);
    kill(writer, SIGKILL); /* where nobody has read */
    waitpid(writer, NULL, 0);
    if (!EXPECT(r.code == 0)) test_note("    %d, %s", r.code, str_text(&r.err));
    ran_free(&r);
}
