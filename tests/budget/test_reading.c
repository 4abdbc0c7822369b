/* test_reading.c - what the kernel saw a process take while it read data of awkward shapes: at or below the plan;
 * and a row that the budget does not hold is refused with its file and line before it is read. */
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/snug.h"
#include "tests/test.h"

/* ---- a process and its peak ---- */

typedef struct Peak {
    int code;
    int64_t bytes;   /* VmHWM: the most that was resident at a time */
    int64_t planned; /* process_planned_bytes, of its JSON; 0: none */
    Str err;
} Peak;

static int64_t planned_of(const char *out) {
    const char *key = "\"process_planned_bytes\":", *at = strstr(out, key);
    return at ? atoll(at + strlen(key)) : 0;
}

static Peak run(const char *format, ...) {
    char arguments[2000], out[200], err[200];
    Str command = {0}, text = {0};
    Peak p = {.code = -1};
    va_list ap;
    va_start(ap, format);
    vsnprintf(arguments, sizeof arguments, format, ap);
    va_end(ap);
    snprintf(out, sizeof out, "%s/ran.out", test_tmp());
    snprintf(err, sizeof err, "%s/ran.err", test_tmp());
    str_addf(&command, "exec %s %s >%s 2>%s", getenv("SNUG") ? getenv("SNUG") : "./snug", arguments, out, err);
    pid_t pid = fork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", str_text(&command), (char *)NULL);
        _exit(127);
    }
    int status;
    struct rusage used;
    if (EXPECT(wait4(pid, &status, 0, &used) == pid) && WIFEXITED(status)) p.code = WEXITSTATUS(status);
    p.bytes = (int64_t)used.ru_maxrss * 1024;
    file_read(out, &text, 0, NULL);
    file_read(err, &p.err, 0, NULL);
    p.planned = planned_of(str_text(&text));
    str_free(&text);
    str_free(&command);
    return p;
}

static const char *last_line(const Str *text) {
    const char *last = str_text(text);
    for (const char *c = last; *c; c++)
        if (*c == '\n' && c[1] && c[1] != '\n') last = c + 1;
    return last;
}

/* ---- files ---- */

static void words(FILE *f, int64_t bytes) {
    static const char *const some[] = {"the ",   "river ", "bends ",  "a ",     "little ",
                                       "here, ", "and ",   "nobody ", "knows. "};
    for (int64_t i = 0; bytes > 0; i++) {
        const char *w = some[(i * i + i / 7) % COUNT_OF(some)];
        fputs(w, f);
        bytes -= (int64_t)strlen(w);
    }
}

static void letters(FILE *f, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) fputc("etaoinshr"[(i * i + i / 5) % 9], f);
}

typedef struct Shape {
    const char *name, *file;
    void (*write)(FILE *f);
    const char *where; /* named when it is refused */
} Shape;

static void text_of_8_mb(FILE *f) { words(f, 8000000); }

static void json_text(FILE *f, int64_t bytes) {
    fputs("{\"text\": \"short\"}\n{\"text\": \"", f);
    words(f, bytes);
    fputs("\"}\n", f);
}
static void text_row_of_6_mb(FILE *f) { json_text(f, 6000000); }
static void text_row_of_65_mb(FILE *f) { json_text(f, 65000000); }

static void many_lines(FILE *f) {
    for (int i = 0; i < 150000; i++) fprintf(f, "{\"text\": \"line %d of many\"}\n", i);
}

static void array(FILE *f) {
    for (int i = 0; i < 150000; i++) fprintf(f, "%s{\"text\": \"element %d of many\"}", i ? ",\n" : "[", i);
    fputs("]\n", f);
}

static void pair_of_6_mb(FILE *f) {
    fputs("{\"prompt\": \"why?\", \"completion\": \"so\"}\n{\"prompt\": \"", f);
    for (int i = 0; i < 3000000; i++) fputs("?\\n", f); /* a token for every letter, each written with an escape */
    fputs("\", \"completion\": \"", f);
    words(f, 1000000);
    fputs("\"}\n", f);
}

static void instruction_of_4_mb(FILE *f) {
    fputs("{\"instruction\": \"add\", \"input\": \"", f);
    for (int i = 0; i < 4000000; i++) fputc('1', f);
    fputs("\", \"output\": \"yes\"}\n", f);
    fputs("{\"instruction\": \"add\", \"input\": \"1\", \"output\": \"yes\"}\n", f);
}

static void ids_of_6_mb(FILE *f) {
    fputs("{\"ids\": [1, 2, 3]}\n{\"ids\": [1", f);
    for (int i = 0; i < 3000000; i++) fputs(",7", f);
    fputs("]}\n", f);
}

static void turn_of_3_mb(FILE *f) {
    fputs("{\"messages\": [{\"role\": \"user\", \"content\": \"", f);
    for (int i = 0; i < 1500000; i++) fputs("?1", f);
    fputs("\"}, {\"role\": \"assistant\", \"content\": \"so\"}]}\n", f);
    fputs(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}, {\"role\": \"assistant\", \"content\": "
        "\"so\"}]}\n",
        f);
}

static void turns_of_a_word(FILE *f) {
    fputs("{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}", f);
    for (int i = 0; i < 20000; i++) fputs(", {\"role\": \"user\", \"content\": \"a\"}", f);
    fputs(", {\"role\": \"assistant\", \"content\": \"so\"}]}\n", f);
    fputs(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}, {\"role\": \"assistant\", \"content\": "
        "\"so\"}]}\n",
        f);
}

static void word_of_a_mb(FILE *f) {
    fputs("{\"text\": \"", f);
    letters(f, 1000000);
    fputs("\"}\n", f);
}

static const Shape shapes[] = {
    {"8 MB of text in one line", "text.txt", text_of_8_mb, "text.txt:1:"},
    {"a text row of 6 MB", "text6.jsonl", text_row_of_6_mb, "text6.jsonl:2:"},
    {"a text row of 65 MB", "text65.jsonl", text_row_of_65_mb, "text65.jsonl:2:"},
    {"many short lines", "lines.jsonl", many_lines, "lines.jsonl:"},
    {"a JSON array of many", "array.json", array, "array.json:"},
    {"a pair of 6 MB", "pair.jsonl", pair_of_6_mb, "pair.jsonl:2:"},
    {"an instruction of 4 MB", "instruction.jsonl", instruction_of_4_mb, "instruction.jsonl:1:"},
    {"ids of 6 MB", "ids.jsonl", ids_of_6_mb, "ids.jsonl:2:"},
    {"a turn of 3 MB", "turn.jsonl", turn_of_3_mb, "turn.jsonl:1:"},
    {"turns of a word each", "turns.jsonl", turns_of_a_word, "turns.jsonl:1:"},
    {"a word of 1 MB", "word.jsonl", word_of_a_mb, "word.jsonl:1:"},
};

static void make_model(void) {
    file_make_dirs(test_path("t"), NULL);
    file_copy("tests/data/tok_llama3/tokenizer.json", test_path("t/tokenizer.json"), NULL);
    const char *config =
        "{\"eos_token\": \"<|end_of_text|>\", \"chat_template\": \"{% for m in messages %}[{{ m.role }}] "
        "{{ m.content }}\\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}\"}";
    file_write_all(test_path("t/tokenizer_config.json"), config, (int64_t)strlen(config), NULL);
    Ran r = snug_run(
        "init --model qwen2.5-0.5b --out %s --tokenizer %s --set num_hidden_layers=1 --set hidden_size=32 "
        "--set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=32 --set vocab_size=600",
        test_path("m"), test_path("t"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

static void check_peak(const char *command, const char *what, Peak *p, bool within) {
    if (!EXPECT(p->code == 0 && (!within || (p->planned > 0 && p->bytes <= p->planned))))
        test_note("    %s, %s: exit %d, peak %s, planned %s: %s", command, what, p->code, units_bytes(p->bytes).s,
                  units_bytes(p->planned).s, last_line(&p->err));
    str_free(&p->err);
}

/* Half a megabyte less than the plan: refused, and what was read until then stayed within. */
static void check_refused(const Shape *s, const char *path, int64_t planned) {
    int64_t budget = planned - (1 << 19);
    Peak p =
        run("train --device cpu --model %s --data %s --steps 1 --seq 128 --micro-batch 1 --recompute none "
            "--head-chunk 384 --out %s --no-save --budget %lld",
            test_path("m"), path, test_path("o2"), (long long)budget);
    bool within = test_sanitized() || p.bytes <= budget;
    if (!EXPECT(p.code == 3 && within && !file_exists(test_path("o2"))))
        test_note("    %s with %lld bytes: exit %d, peak %s: %s", s->name, (long long)budget, p.code,
                  units_bytes(p.bytes).s, last_line(&p.err));
    if (strstr(str_text(&p.err), "Nothing was loaded") && strstr(str_text(&p.err), "row has") &&
        !EXPECT(strstr(str_text(&p.err), s->where)))
        test_note("    %s", str_text(&p.err));
    str_free(&p.err);
}

TEST(the_kernels_peak_while_data_is_read_is_within_the_plan) {
    bool within = !test_sanitized();
    make_model();
    for (int i = 0; i < COUNT_OF(shapes); i += within ? 1 : 3) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", test_tmp(), shapes[i].file);
        FILE *f = fopen(path, "w");
        shapes[i].write(f);
        fclose(f);
        const char *job = "--device cpu --seq 128 --micro-batch 1";
        Peak plan = run("plan --json %s --model %s --data %s", job, test_path("m"), path);
        Peak train =
            run("train --json %s --recompute none --head-chunk 384 --model %s --data %s --steps 1 --out %s "
                "--no-save --overwrite",
                job, test_path("m"), path, test_path("o"));
        Peak eval = run("eval --json %s --model %s --data %s --eval-batches 1", job, test_path("m"), path);
        int64_t planned = train.planned;
        check_peak("plan", shapes[i].name, &plan, within);
        check_peak("train", shapes[i].name, &train, within);
        check_peak("eval", shapes[i].name, &eval, within);
        if (planned) check_refused(&shapes[i], path, planned);
        unlink(path);
    }
}

/* The window holds the line; on a pipe, which cannot be looked into, up to twice that. */
TEST(tokenize_takes_the_memory_of_its_longest_line) {
    char path[200];
    make_model();
    snprintf(path, sizeof path, "%s/long.jsonl", test_tmp());
    FILE *f = fopen(path, "w");
    text_row_of_65_mb(f);
    fclose(f);
    Peak none = run("tokenize --tokenizer %s < /dev/null", test_path("t"));
    Peak file = run("tokenize --tokenizer %s < %s", test_path("t"), path);
    EXPECT(none.code == 0 && file.code == 0);
    if (!test_sanitized() && !EXPECT(file.bytes <= none.bytes + 66 * MIB + 4 * MIB))
        test_note("    %s beside %s", units_bytes(file.bytes).s, units_bytes(none.bytes).s);
    unlink(path);
    str_free(&none.err);
    str_free(&file.err);
}

TEST(a_row_that_the_budget_does_not_hold_is_refused_by_file_and_line) {
    char path[200];
    make_model();
    snprintf(path, sizeof path, "%s/text65.jsonl", test_tmp());
    FILE *f = fopen(path, "w");
    text_row_of_65_mb(f);
    fclose(f);
    static const char *const commands[] = {"train --steps 1 --no-save --out %s/o", "eval", "plan"};
    for (int i = 0; i < COUNT_OF(commands); i++) {
        char command[200];
        snprintf(command, sizeof command, i ? "%s" : "train --steps 1 --no-save --out %s/o",
                 i ? commands[i] : test_tmp());
        Peak p = run("%s --device cpu --seq 128 --threads 1 --model %s --data %s --budget 60MB", command,
                     test_path("m"), path);
        bool told = p.code == 3 && strstr(str_text(&p.err), "text65.jsonl:2: this row has 61.99 MiB");
        if (!EXPECT(told && (test_sanitized() || p.bytes < 60 * 1000000)))
            test_note("    %s: exit %d, peak %s, %s", command, p.code, units_bytes(p.bytes).s, last_line(&p.err));
        str_free(&p.err);
    }
    EXPECT(!file_exists(test_path("o")));
    unlink(path);
}
