/* world.c - how small inputs are made, processes watched and folders compared, for tests that hurt the program. */
#include "tests/world.h"

#include <jansson.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"
#include "tests/test.h"

enum { PATH_BYTES = 600, LLAMA_VOCAB = 264 };

#define TINY                                                                                                  \
    "--set num_hidden_layers=1 --set hidden_size=16 --set num_attention_heads=2 --set num_key_value_heads=1 " \
    "--set intermediate_size=16 --dtype fp32"

const char *world_faulty(void) {
    const char *binary = getenv("FAULTY");
    if (!binary || !file_exists(binary))
        test_skip("the fault flavour is not built (make FAULTS=1; FAULTY=its path)");
    return binary && file_exists(binary) ? binary : NULL;
}

char *world_path(const char *format, ...) {
    static char path[16][PATH_BYTES];
    static int at;
    char *p = path[at++ % 16], rest[PATH_BYTES - 100];
    va_list ap;
    va_start(ap, format);
    vsnprintf(rest, sizeof rest, format, ap);
    va_end(ap);
    snprintf(p, PATH_BYTES, "%s/%s", test_tmp(), rest);
    return p;
}

/* ---- inputs ---- */

static void put_text(const char *name, const Str *text) {
    Err e = {0};
    EXPECT_OK(file_write_all(world_path("%s", name), str_text(text), text->len, &e));
}

static void make_rows(void) {
    Str ids = {0}, text = {0}, words = {0}, recipe = {0};
    for (int r = 0; r < 8; r++) {
        str_addf(&ids, "{\"ids\":[%d,2,3,%d,5,6,7,%d,9,10]}\n", r + 1, r + 20, r + 40);
        str_addf(&text, "{\"text\": \"row %d of the text\"}\n", r);
        str_addf(&words, "{\"text\": \"line %d, \\u00e9 and more\"}\n\n", r);
    }
    str_add(
        &recipe,
        "model: ../model\nmax_seq_length: 16\nper_device_train_batch_size: 2\nlora-targets: [q, v]\nmode: lora\n");
    put_text("rows.jsonl", &ids);
    put_text("text.jsonl", &text);
    put_text("in.jsonl", &words);
    put_text("recipe.yaml", &recipe);
    str_free(&ids), str_free(&text), str_free(&words), str_free(&recipe);
}

static void add_word(Str *to, int32_t value) {
    str_add_bytes(to, (const char *)&value, 4);
}

/* A llama2.c model (all zeros but its header) and its tokenizer: three special pieces, 256 bytes, a few letters. */
static void make_llama2c(void) {
    enum { DIM = 8, HIDDEN = 12, SEQ = 4 };
    const int32_t header[7] = {DIM, HIDDEN, 1, 2, 1, LLAMA_VOCAB, SEQ};
    int64_t floats =
        LLAMA_VOCAB * DIM + 2 * DIM + 2 * DIM * DIM + 2 * (DIM / 2) * DIM + 3 * DIM * HIDDEN + DIM + SEQ * 4;
    Str model = {0}, pieces = {0};
    for (int i = 0; i < 7; i++) add_word(&model, header[i]);
    for (int64_t i = 0; i < floats; i++) add_word(&model, 0);
    add_word(&pieces, 8);
    for (int i = 0; i < LLAMA_VOCAB; i++) {
        char text[16];
        static const char *const special[] = {"<unk>", "\n<s>\n", "\n</s>\n"};
        if (i < 3)
            snprintf(text, sizeof text, "%s", special[i]);
        else if (i < 259)
            snprintf(text, sizeof text, "<0x%02X>", i - 3);
        else
            snprintf(text, sizeof text, "%c", 'a' + i - 259);
        add_word(&pieces, 0);
        add_word(&pieces, (int32_t)strlen(text));
        str_add(&pieces, text);
    }
    put_text("tiny.bin", &model);
    put_text("tokenizer.bin", &pieces);
    str_free(&model), str_free(&pieces);
}

bool world_make(const char *binary) {
    char cwd[400], arguments[1000];
    test_tmp_in_memory();
    setenv("ASAN_OPTIONS", "exitcode=99", 1); /* never taken for the program's own codes */
    setenv("UBSAN_OPTIONS", "halt_on_error=1:exitcode=99", 1);
    setenv("XDG_CONFIG_HOME", test_tmp(), 1); /* not this machine's measured rates */
    make_rows();
    make_llama2c();
    if (!getcwd(cwd, sizeof cwd)) return false;
    bool ok =
        world_run("made", binary, NULL, "init --model llama-3.2-1b --out ../model --set vocab_size=64 " TINY) == 0;
    snprintf(arguments, sizeof arguments,
             "init --model llama-3.2-1b --out ../words --tokenizer \"%s/tests/data/tok_smollm2\" "
             "--set vocab_size=432 " TINY,
             cwd);
    ok = ok && world_run("made", binary, NULL, arguments) == 0;
    if (!EXPECT(ok)) {
        Str err = {0};
        world_said(NULL, &err, "made");
        test_note("%s", str_text(&err));
        str_free(&err);
    }
    return ok;
}

/* ---- processes ---- */

pid_t world_start(const char *folder, const char *binary, const char *input, const char *arguments) {
    Str command = {0};
    char cwd[400] = "";
    file_make_dirs(world_path("%s", folder), NULL);
    file_remove_tree(world_path("%s.out", folder), NULL); /* an earlier process's words */
    file_remove_tree(world_path("%s.err", folder), NULL);
    if (binary[0] != '/' && !getcwd(cwd, sizeof cwd)) return -1;
    const char *quote = file_exists(binary) ? "\"" : ""; /* else it is a command with words of its own */
    str_addf(&command, "exec %s%s%s%s%s %s <%s >../%s.out 2>../%s.err", quote, cwd, cwd[0] ? "/" : "", binary, quote,
             arguments, input ? input : "/dev/null", folder, folder);
    const char *where = world_path("%s", folder);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE); /* a read-only folder is one for root too */
        if (chdir(where) == 0) execl("/bin/sh", "sh", "-c", str_text(&command), (char *)NULL);
        _exit(127);
    }
    str_free(&command);
    return pid;
}

int world_wait(pid_t pid) {
    int status;
    if (waitpid(pid, &status, WUNTRACED) != pid) return -1;
    return WIFSTOPPED(status) ? 256 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void world_sleep(double seconds) {
    time_t whole = (time_t)seconds;
    nanosleep(&(struct timespec){whole, (long)((seconds - (double)whole) * 1e9)}, NULL);
}

int world_run(const char *folder, const char *binary, const char *input, const char *arguments) {
    return world_wait(world_start(folder, binary, input, arguments));
}

const char *world_binary(void) {
    static char path[PATH_MAX]; /* whole: commands run in folders of their own */
    return realpath(getenv("SNUG") ? getenv("SNUG") : "./snug", path) ? path : "./snug";
}

bool world_must(const char *folder, const char *arguments) {
    Str err = {0};
    int code = world_run(folder, world_binary(), NULL, arguments);
    world_said(NULL, &err, folder);
    if (!EXPECT(code == 0)) test_note("    %s: exit %d\n%s", arguments, code, str_text(&err));
    str_free(&err);
    return code == 0;
}

void world_said(Str *out, Str *err, const char *folder) {
    if (out) str_clear(out);
    if (err) str_clear(err);
    if (out) file_read(world_path("%s.out", folder), out, 0, NULL);
    if (err) file_read(world_path("%s.err", folder), err, 0, NULL);
}

/* ---- waiting ---- */

bool world_until(WorldLook *is_so, const void *context) {
    enum { LOOKS = 60000 };
    for (int i = 0; i < LOOKS; i++) {
        if (is_so(context)) return true;
        world_sleep(0.005);
    }
    return false;
}

static bool says(const void *context) {
    const char *const *of = context; /* folder, text */
    Str err = {0};
    world_said(NULL, &err, of[0]);
    bool said = strstr(str_text(&err), of[1]) != NULL;
    str_free(&err);
    return said;
}

bool world_says(const char *folder, const char *text) {
    return world_until(says, (const char *const[]){folder, text});
}

static bool is_there(const void *path) { return file_exists(path); }

bool world_appears(const char *path) {
    char kept[PATH_BYTES]; /* world_path's names are good for a few calls */
    snprintf(kept, sizeof kept, "%s", path);
    return world_until(is_there, kept);
}

/* What the kernel says of a process behind that word of its status; "": it is not there. */
static void status_of(char text[40], int pid, const char *word) {
    char path[60];
    Str all = {0};
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    const char *at = file_read(path, &all, 0, NULL) ? strstr(str_text(&all), word) : NULL;
    snprintf(text, 40, "%.39s", at ? at + strlen(word) : "");
    str_free(&all);
}

static bool is_gone(const void *pid) { /* a zombie that nobody collected does not run */
    char state[40];
    status_of(state, *(const int *)pid, "\nState:\t");
    return !state[0] || state[0] == 'Z' || state[0] == 'X';
}

bool world_is_gone(int pid) { return world_until(is_gone, &pid); }

static bool catches(const void *context) {
    const int *of = context; /* pid, signal */
    char caught[40];
    status_of(caught, of[0], "\nSigCgt:\t");
    return strtoull(caught, NULL, 16) >> (of[1] - 1) & 1 || is_gone(&of[0]);
}

bool world_catches(int pid, int signal) { return world_until(catches, (const int[]){pid, signal}); }

/* ---- calls of the fault flavour ---- */

int world_calls(const char *err, const char *kind) {
    char label[40];
    snprintf(label, sizeof label, " %s=", kind);
    const char *line = strstr(err, "fault: calls"), *at = line ? strstr(line, label) : NULL;
    return at ? atoi(at + strlen(label)) : -1;
}

bool world_made_fewer(const char *err, const char *kind, int n) {
    int made = world_calls(err, kind);
    return made >= 0 && made < n && n <= made + WORLD_LOOSE;
}

bool world_share(WorldJob *job, void *context, int n) {
    enum { MOST = 4 };
    int workers = threads_available() < MOST ? threads_available() : MOST, status;
    pid_t pid[MOST];
    bool ok = true;
    fflush(NULL);
    test_tmp();
    for (int w = 0; w < workers; w++) {
        if ((pid[w] = fork())) continue;
        bool mine = true;
        for (int i = w; i < n; i += workers) mine = job(context, w, i) && mine;
        fflush(NULL);
        _exit(!mine);
    }
    for (int w = 0; w < workers; w++) {
        if (waitpid(pid[w], &status, 0) != pid[w])
            ok = false;
        else if (WIFSIGNALED(status))
            fprintf(stderr, "  a worker of the test ended by signal %d\n", WTERMSIG(status));
        ok = ok && status == 0;
    }
    return ok;
}

/* ---- trees ---- */

typedef bool EachFn(void *context, const char *folder, const char *name);

/* Calls fn for every name in the folder, sorted; an absent folder has none. */
static bool each(const char *folder, EachFn *fn, void *context) {
    char **names;
    int64_t n;
    if (!file_is_dir(folder) || !file_list(folder, &names, &n, NULL)) return true;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        ok = fn(context, folder, names[i]) && ok;
        mem_free(names[i]);
    }
    mem_free(names);
    return ok;
}

static bool copy_one(void *to, const char *folder, const char *name) {
    char from[PATH_BYTES], dest[PATH_BYTES];
    snprintf(from, sizeof from, "%s/%s", folder, name);
    snprintf(dest, sizeof dest, "%s/%s", (const char *)to, name);
    return file_is_dir(from) ? world_copy_tree(from, dest) : file_copy(from, dest, NULL);
}

bool world_complain(const char *folder, int round, const char *what) {
    Str err = {0};
    world_said(NULL, &err, folder);
    const char *text = str_text(&err), *end = strlen(text) > 1500 ? text + strlen(text) - 1500 : text;
    fprintf(stderr, "  round %d: %s\n%s\n", round, what, end);
    str_free(&err);
    return false;
}

bool world_copy_tree(const char *from, const char *to) {
    if (!file_remove_tree(to, NULL)) return false;
    return !file_is_dir(from) || (file_make_dirs(to, NULL) && each(from, copy_one, (void *)to));
}

bool world_same_file(const char *a, const char *b) {
    Str x = {0}, y = {0};
    bool same = file_read(a, &x, 0, NULL) && file_read(b, &y, 0, NULL) && x.len == y.len &&
                !memcmp(str_text(&x), str_text(&y), (size_t)x.len);
    str_free(&x), str_free(&y);
    return same;
}

/* Blanks what tells of one process: times of day, the journal's clock, and the page's facts. */
static void blank_times(Str *s) {
    static const char shape[] = "0000-00-00T00:00:00Z";
    for (int64_t i = 0; i + 20 <= s->len; i++) {
        int n = 0;
        for (const char *c = s->data + i; n < 20; n++)
            if (shape[n] == '0' ? c[n] < '0' || c[n] > '9' : c[n] != shape[n]) break;
        if (n == 20) memset(s->data + i, '0', 20);
    }
    for (char *at = s->data; at && (at = strstr(at, "\"time\":")); at++)
        for (char *c = at + 7; *c && *c != ','; c++) *c = '0';
    char *facts = s->data ? strstr(s->data, "<dl>") : NULL, *facts_end = facts ? strstr(facts, "</dl>") : NULL;
    if (!facts_end) return;
    memmove(facts, facts_end, (size_t)(s->data + s->len - facts_end) + 1);
    s->len -= facts_end - facts;
}

bool world_same_results(const char *a, const char *b) {
    Str x = {0}, y = {0};
    bool ok = file_read(a, &x, 0, NULL) && file_read(b, &y, 0, NULL);
    blank_times(&x);
    blank_times(&y);
    ok = ok && x.len == y.len && !memcmp(str_text(&x), str_text(&y), (size_t)x.len);
    str_free(&x), str_free(&y);
    return ok;
}

bool world_is_temporary(const char *name) {
    return strstr(name, ".tmp-") || str_ends(name, ".gone") || str_ends(name, ".old");
}

static bool count_temporary(void *context, const char *folder, const char *name) {
    *(int *)context += world_is_temporary(name);
    return true;
}

int world_temporaries(const char *folder) {
    int n = 0;
    each(folder, count_temporary, &n);
    return n;
}

void world_metrics(Str *to, const char *path) {
    Str text = {0};
    if (file_read(path, &text, 0, NULL) && text.len)
        for (char *save = NULL, *line = strtok_r(text.data, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
            json_t *j = json_loads(line, 0, NULL);
            if (!j)
                str_addf(to, "not JSON: %s\n", line);
            else
                str_addf(to, "%s %lld %.17g\n", json_string_value(json_object_get(j, "kind")),
                         json_integer_value(json_object_get(j, "step")),
                         json_real_value(json_object_get(j, "loss")));
            json_decref(j);
        }
    str_free(&text);
}

/* A kill between two pages of a write leaves the beginning of a line; --resume drops it with what is behind its
 * step. */
static void drop_torn_line(Str *metrics, const char *path) {
    Str text = {0};
    bool torn = file_read(path, &text, 0, NULL) && text.len && text.data[text.len - 1] != '\n';
    str_free(&text);
    while (torn && metrics->len && (--metrics->len, metrics->len && metrics->data[metrics->len - 1] != '\n')) {}
}

static bool same_metrics(const char *now, const char *want, bool complete) {
    Str a = {0}, b = {0};
    world_metrics(&a, now);
    world_metrics(&b, want);
    if (!complete) drop_torn_line(&a, now);
    bool same =
        a.len <= b.len && !memcmp(str_text(&a), str_text(&b), (size_t)a.len) && (!complete || a.len == b.len);
    str_free(&a), str_free(&b);
    return same;
}

/* A record of a run that grows line by line: the beginning of what it comes to. */
static bool same_beginning(const char *now, const char *want, bool complete) {
    Str a = {0}, b = {0};
    bool same = file_read(now, &a, 0, NULL) && file_read(want, &b, 0, NULL);
    while (!complete && a.len && a.data[a.len - 1] != '\n') a.len--; /* a torn line */
    same = same && a.len <= b.len && (!complete || a.len == b.len);
    same = same && !memcmp(str_text(&a), str_text(&b), (size_t)a.len);
    str_free(&a), str_free(&b);
    return same;
}

static bool is_record(const char *name) {
    return !strcmp(name, "rewards.jsonl") || !strcmp(name, "samples.jsonl") || !strcmp(name, "steps.jsonl");
}

/* Records that say when and how fast: nobody else's can be the same. */
static bool is_timed(const char *name) { return !strcmp(name, "EFFICIENCY.json") || !strcmp(name, "audit.jsonl"); }

/* Files that tell of one process: each run has its own. */
static bool is_of_the_run(const char *name) {
    return !strcmp(name, "train.log") || !strcmp(name, ".lock") || str_starts(name, "events.") ||
           str_ends(name, ".progress") || !strcmp(name, "progress.json");
}

static bool parses(const char *path) {
    json_t *j = json_load_file(path, 0, NULL);
    json_decref(j);
    return j != NULL;
}

typedef struct Check {
    Str *why;
    const char *now, *want, *before; /* folders; before may be NULL */
    bool complete;
} Check;

static bool check_folder(Str *why, const char *now, const char *want, const char *before, bool complete,
                         bool grows);

static bool check_entry(void *context, const char *folder, const char *name) {
    const Check *c = context;
    char now[PATH_BYTES], want[PATH_BYTES], before[PATH_BYTES] = "";
    if (world_is_temporary(name) || is_of_the_run(name)) return true;
    snprintf(now, sizeof now, "%s/%s", c->now, name);
    snprintf(want, sizeof want, "%s/%s", c->want, name);
    if (c->before) snprintf(before, sizeof before, "%s/%s", c->before, name);
    if (file_is_dir(now))
        return check_folder(c->why, now, want, before[0] ? before : NULL, c->complete, !strcmp(name, "step-log"));
    bool older = before[0] && (!c->complete || !file_exists(want)); /* what was there already may stand for it */
    if (!strcmp(name, "metrics.jsonl") ? same_metrics(now, want, c->complete)
        : !strcmp(name, "plan.json")   ? parses(now)
        : is_record(name)              ? same_beginning(now, want, c->complete)
        : is_timed(name)               ? !strcmp(name, "audit.jsonl") || parses(now)
        : str_starts(name, "reason.")  ? world_same_results(now, want)
                                       : world_same_file(now, want) || (older && world_same_file(now, before)))
        return true;
    str_addf(c->why, "%s is not what it should be; ", now);
    return false;
}

static bool check_present(void *context, const char *folder, const char *name) {
    const Check *c = context;
    char now[PATH_BYTES];
    snprintf(now, sizeof now, "%s/%s", c->now, name);
    if (world_is_temporary(name) || is_of_the_run(name) || file_exists(now)) return true;
    str_addf(c->why, "%s is missing; ", now);
    return false;
}

/* A folder that does not grow is written as a whole: it holds all of `want`, or all of `before`. */
static bool check_folder(Str *why, const char *now, const char *want, const char *before, bool complete,
                         bool grows) {
    Check c = {why, now, want, before, complete};
    if (!each(now, check_entry, &c)) return false;
    if (!complete && grows) return true;
    Str missing = {0};
    c.why = &missing;
    bool ok = file_is_dir(want) && each(want, check_present, &c);
    if (!ok && (!complete || !file_is_dir(want)) && before && file_is_dir(before))
        ok = each(before, check_present, &c);
    if (!ok) str_addf(why, "%s%s", str_text(&missing), file_is_dir(want) ? "" : "nothing to compare with; ");
    str_free(&missing);
    return ok;
}

bool world_check_tree(Str *why, const char *now, const char *want, const char *before, bool complete) {
    static const char *const growing[] = {"metrics.jsonl", "reason.json", "answers.jsonl", "manifest.json",
                                          "graphs.amr",    "model/EFFICIENCY.json"};
    bool grows = false; /* a run, a corpus, those of reason, generate, parse, unlearn; others appear whole */
    for (int i = 0; i < COUNT_OF(growing); i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", want, growing[i]);
        grows |= file_exists(path);
    }
    if (!file_exists(want)) return !file_exists(now);
    if (!complete && !before && !file_exists(now)) return true; /* not begun; what was there before is there still */
    return check_folder(why, now, want, before, complete, grows);
}

/* ---- what a next process would see ---- */

static void mix(unsigned long long *h, const void *data, int64_t n) {
    for (int64_t i = 0; i < n; i++) *h = (*h ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
}

static bool mix_entry(void *h, const char *folder, const char *name) {
    char path[PATH_BYTES], plain[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(plain, sizeof plain, "%s", name);
    char *pid = strstr(plain, ".tmp-");
    if (pid) pid[5] = 0;
    if (is_of_the_run(name) && !strstr(name, "progress")) return true;
    mix(h, plain, (int64_t)strlen(plain) + 1);
    if (file_is_dir(path)) return each(path, mix_entry, h);
    Str text = {0};
    if (!strcmp(name, "metrics.jsonl"))
        world_metrics(&text, path);
    else if (strcmp(name, "plan.json") && !is_timed(name))
        file_read(path, &text, 0, NULL);
    if (str_starts(name, "reason.")) blank_times(&text);
    mix(h, str_text(&text), text.len);
    str_free(&text);
    return true;
}

unsigned long long world_fingerprint(const char *folder) {
    unsigned long long h = 0xcbf29ce484222325ull;
    each(folder, mix_entry, &h);
    return h;
}

static bool note_entry(void *to, const char *folder, const char *name) {
    char path[PATH_BYTES];
    struct stat st;
    unsigned long long hash = 0xcbf29ce484222325ull;
    Str text = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (str_ends(name, ".out") || str_ends(name, ".err") || lstat(path, &st)) return true;
    if (S_ISREG(st.st_mode)) file_read(path, &text, 0, NULL);
    mix(&hash, str_text(&text), text.len);
    str_free(&text);
    str_addf(to, "%s %lld %lld.%09ld %016llx\n", path, S_ISDIR(st.st_mode) ? 0LL : (long long)st.st_size,
             (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, hash);
    return !S_ISDIR(st.st_mode) || each(path, note_entry, to);
}

void world_snapshot(Str *to, const char *folder) {
    each(folder, note_entry, to);
}

bool world_checksum(char to[24], const char *folder) {
    Str out = {0};
    world_said(&out, NULL, folder);
    const char *at = strstr(str_text(&out), "\"checksum\":\"");
    snprintf(to, 24, "%.16s", at ? at + 12 : "none");
    str_free(&out);
    return at != NULL;
}

static bool note_checkpoint(void *found, const char *folder, const char *name) {
    if (str_starts(name, "checkpoint-") && !world_is_temporary(name)) *(bool *)found = true;
    return true;
}

bool world_has_checkpoint(const char *run_folder) {
    bool found = false;
    each(run_folder, note_checkpoint, &found);
    return found;
}
