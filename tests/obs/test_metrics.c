/* test_metrics.c - metrics.jsonl and the event file, byte for byte. */
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "obs/metrics.h"
#include "obs/tensorboard.h"
#include "tests/test.h"

static void read_metrics(Str *text) {
    char path[200];
    Err e;
    str_clear(text);
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_tmp());
    EXPECT_OK(file_read(path, text, 0, &e));
}

static int count_lines(const Str *text) {
    int n = 0;
    for (int64_t i = 0; i < text->len; i++) n += text->data[i] == '\n';
    return n;
}

TEST(metrics_lines_are_json_and_never_hold_nan) {
    Metrics m;
    Err e;
    Str text = {0};
    EXPECT_OK(metrics_open(&m, test_tmp(), 0, &e));
    Metric fields[] = {METRIC_REAL("loss", 0.1), METRIC_REAL("norm", NAN), METRIC_REAL("up", INFINITY),
                       METRIC_INT("bytes", 9007199254740993), METRIC_REAL("third", 1.0 / 3)};
    EXPECT_OK(metrics_write(&m, "train", 10, fields, COUNT_OF(fields), &e));
    EXPECT_OK(metrics_write(&m, "eval", 10, fields, 1, &e));
    read_metrics(&text); /* there before the file is closed */
    EXPECT(count_lines(&text) == 2);
    json_t *line = json_loadb(text.data, strcspn(text.data, "\n"), 0, NULL);
    EXPECT(line != NULL);
    EXPECT_STR(json_string_value(json_object_get(line, "kind")), "train");
    EXPECT(json_integer_value(json_object_get(line, "step")) == 10);
    EXPECT(json_real_value(json_object_get(line, "time")) > 1.6e9);
    EXPECT(json_real_value(json_object_get(line, "loss")) == 0.1);
    EXPECT(json_real_value(json_object_get(line, "third")) == 1.0 / 3); /* to the last bit */
    EXPECT(json_is_null(json_object_get(line, "norm")) && json_is_null(json_object_get(line, "up")));
    EXPECT(json_integer_value(json_object_get(line, "bytes")) == 9007199254740993);
    EXPECT(strstr(text.data, "\"loss\": 0.1,") != NULL);
    json_decref(line);
    metrics_close(&m);
    str_free(&text);
}

TEST(metrics_writing_allocates_nothing) {
    Metrics m;
    Err e;
    EXPECT_OK(metrics_open(&m, test_tmp(), 0, &e));
    Metric fields[] = {METRIC_REAL("loss", 0.1234567890123), METRIC_INT("tokens", 5)};
    EXPECT_OK(metrics_write(&m, "train", 1, fields, 2, &e));
    int64_t before = mem_stats().requests;
    size_t heap = mallinfo2().uordblks;
    for (int i = 2; i < 50; i++) EXPECT_OK(metrics_write(&m, "train", i, fields, 2, &e));
    EXPECT(mem_stats().requests == before && mallinfo2().uordblks == heap);
    metrics_close(&m);
}

TEST(metrics_resumed_run_drops_what_an_interrupted_one_wrote_beyond) {
    Metrics m;
    Err e;
    Str text = {0};
    Metric loss = METRIC_REAL("loss", 1);
    EXPECT_OK(metrics_open(&m, test_tmp(), 0, &e));
    for (int step = 10; step <= 50; step += 10) EXPECT_OK(metrics_write(&m, "train", step, &loss, 1, &e));
    EXPECT(write(m.fd, "{\"kind\": \"tr", 12) == 12); /* killed in the middle of a line */
    metrics_close(&m);
    EXPECT_OK(metrics_open(&m, test_tmp(), 30, &e));
    EXPECT_OK(metrics_write(&m, "train", 40, &loss, 1, &e));
    metrics_close(&m);
    read_metrics(&text);
    EXPECT(count_lines(&text) == 4);
    EXPECT(strstr(text.data, "\"step\": 30") && strstr(text.data, "\"step\": 40") &&
           !strstr(text.data, "\"step\": 50"));
    EXPECT_OK(metrics_open(&m, test_tmp(), 90, &e)); /* all steps are kept */
    metrics_close(&m);
    read_metrics(&text);
    EXPECT(count_lines(&text) == 4);
    EXPECT_OK(metrics_open(&m, test_tmp(), 0, &e)); /* a new run in the same folder */
    metrics_close(&m);
    read_metrics(&text);
    EXPECT(text.len == 0);
    str_free(&text);
}

TEST(metrics_refusals_name_the_path_and_leave_whole_lines) {
    Metrics m;
    Err e;
    Str text = {0};
    EXPECT(!metrics_open(&m, "/nowhere/at/all", 0, &e) && strstr(e.text, "/nowhere/at/all/metrics.jsonl"));
    EXPECT_OK(metrics_open(&m, test_tmp(), 0, &e));
    Metric loss = METRIC_REAL("loss", 1);
    EXPECT_OK(metrics_write(&m, "train", 1, &loss, 1, &e));
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){.rlim_cur = (rlim_t)m.bytes + 20, .rlim_max = old.rlim_max}; /* a disk that fills up */
    setrlimit(RLIMIT_FSIZE, &small);
    bool ok = metrics_write(&m, "train", 2, &loss, 1, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT(!ok && strstr(e.text, "metrics.jsonl"));
    EXPECT_OK(metrics_write(&m, "train", 3, &loss, 1, &e));
    read_metrics(&text);
    EXPECT(count_lines(&text) == 2 && strstr(text.data, "\"step\": 3") && !strstr(text.data, "\"step\": 2,"));
    metrics_close(&m);
    str_free(&text);
}

TEST(metrics_record_is_in_both_files_or_in_neither) {
    Metrics m;
    Err e;
    Str text = {0};
    EXPECT_OK(metrics_open(&m, test_tmp(), 0, &e));
    Metric loss = METRIC_REAL("loss", 1);
    int events = m.events.fd;
    m.events.fd = -1; /* cannot be written */
    EXPECT(!metrics_write(&m, "train", 1, &loss, 1, &e));
    m.events.fd = events;
    EXPECT_OK(metrics_write(&m, "train", 1, &loss, 1, &e)); /* the same once more */
    read_metrics(&text);
    EXPECT(count_lines(&text) == 1);
    metrics_close(&m);
    str_free(&text);
}

/* What the TensorBoard package 2.21.0 writes for the same three events. */
static const char expected_events[] =
    "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22\x09\x00\x00\x10\xb0\x2f\xac\xd9\x41\x1a\x0d\x62\x72\x61"
    "\x69\x6e\x2e\x45\x76\x65\x6e\x74\x3a\x32\x2c\x7e\x94\x08\x10\x00\x00\x00\x00\x00\x00\x00\x95\xfb\xfe\x18"
    "\x09\x00\x00\x10\xb0\x2f\xac\xd9\x41\x10\xad\x02\x3a\x02\x08\x01\xf6\x36\xe9\x78\xc6\x00\x00\x00\x00\x00"
    "\x00\x00\x71\x0d\x81\xd2\x09\x00\x00\x60\xb0\x2f\xac\xd9\x41\x10\xb6\x02\x2a\xb7\x01\x0a\x11\x0a\x0a\x74"
    "\x72\x61\x69\x6e\x2f\x6c\x6f\x73\x73\x15\x00\x00\x20\x40\x0a\x0f\x0a\x08\x74\x72\x61\x69\x6e\x2f\x6c\x72"
    "\x15\x17\xb7\xd1\x38\x0a\x90\x01\x0a\x88\x01\x74\x72\x61\x69\x6e\x2f\x78\x78\x78\x78\x78\x78\x78\x78\x78"
    "\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78"
    "\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78"
    "\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78"
    "\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78"
    "\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x78\x15\x00\x00\xc0\x7f\xc9\xde\x91\x49";

TEST(tensorboard_file_is_what_tensorboard_itself_writes) {
    static Tensorboard t;
    Err e;
    Str bytes = {0};
    char long_tag[200] = "train/";
    memset(long_tag + 6, 'x', 130);
    EXPECT_OK(tensorboard_open(&t, test_tmp(), 1722859200.25, 300, &e));
    EXPECT(strstr(t.path, "/events.out.tfevents.1722859200.") != NULL);
    tensorboard_begin(&t, 1722859201.5, 310);
    tensorboard_scalar(&t, "train/loss", 2.5);
    tensorboard_scalar(&t, "train/lr", 1e-4);
    tensorboard_scalar(&t, long_tag, (double)NAN);
    EXPECT_OK(tensorboard_end(&t, &e));
    EXPECT_OK(file_read(t.path, &bytes, 0, &e));
    EXPECT(bytes.len == (int64_t)sizeof expected_events - 1 && bytes.len == t.bytes);
    for (int64_t i = 0; i < bytes.len; i++)
        if (!EXPECT(bytes.data[i] == expected_events[i])) {
            test_note("    first difference at byte %d", (int)i);
            break;
        }
    tensorboard_close(&t);
    str_free(&bytes);
}

TEST(tensorboard_refuses_a_record_that_is_too_long_and_goes_on) {
    static Tensorboard t;
    Err e;
    EXPECT_OK(tensorboard_open(&t, test_tmp(), 1.0, 0, &e));
    int64_t before = t.bytes;
    tensorboard_begin(&t, 2.0, 1);
    for (int i = 0; i < 1000; i++) tensorboard_scalar(&t, "train/some-name", i);
    EXPECT(!tensorboard_end(&t, &e) && t.bytes == before);
    for (int n = 1; n < 400; n++) { /* up to the very edge of the buffer */
        tensorboard_begin(&t, 2.0, 1);
        for (int i = 0; i < n; i++) tensorboard_scalar(&t, "train/some-name", i);
        if (!tensorboard_end(&t, &e)) break;
    }
    EXPECT(e.code == ERR_FAIL && t.bytes > before);
    tensorboard_close(&t);
}

TEST(tensorboard_files_of_one_second_do_not_overwrite_each_other) {
    static Tensorboard a, b;
    Err e;
    EXPECT_OK(tensorboard_open(&a, test_tmp(), 5.0, 0, &e));
    EXPECT_OK(tensorboard_open(&b, test_tmp(), 5.0, 0, &e));
    EXPECT(strcmp(a.path, b.path));
    tensorboard_close(&a);
    tensorboard_close(&b);
    EXPECT(!tensorboard_open(&a, "/nowhere/at/all", 5.0, 0, &e) && strstr(e.text, "/nowhere/at/all"));
}
